"""The session's values as the wire shows them in `ga`.

Owns the flat form of metadata. Never holds state.
"""

import json
from collections.abc import Mapping


def text_map(metadata: Mapping[str, object]) -> dict[str, str]:
    """Metadata as a map of strings, which is all that `ga` clients take (12.4 row 10)."""
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items()}
