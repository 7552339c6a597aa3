"""Names of things on the wire: cheap to make, never used twice.

Owns their spelling (wire contract 4.1). Never looks anything up by them.
"""

import secrets
import uuid

import attrs


def new_item_id() -> str:
    """`item_` and 32 hexadecimal digits."""
    return f"item_{uuid.uuid4().hex}"


def _random_half() -> str:
    return secrets.token_hex(8)


@attrs.define
class EventIds:
    """Makes `event_` and 32 hexadecimal digits: a random half for this maker, then a counter."""

    _half: str = attrs.field(factory=_random_half)
    _count: int = attrs.field(default=0, init=False)

    def __call__(self) -> str:
        """The next id."""
        self._count += 1
        return f"event_{self._half}{self._count:016x}"
