"""How values look in `ga` events. Owns the shape of flat metadata. Never holds state."""

import json
from collections.abc import Mapping


def text_map(metadata: Mapping[str, object]) -> dict[str, str]:
    """Metadata as a map of strings, which is all that `ga` clients take (12.4 row 10)."""
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items()}
