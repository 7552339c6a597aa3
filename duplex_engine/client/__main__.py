"""`python -m duplex_engine.client`."""

import sys

from duplex_engine.client.cli import main

sys.exit(main())
