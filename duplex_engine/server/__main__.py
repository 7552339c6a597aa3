"""`python -m duplex_engine.server`. Owns nothing but the way in."""

import sys

from duplex_engine.server.cli import main

sys.exit(main())
