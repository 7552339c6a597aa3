"""What every object of one chat answer begins with: its id, its time, the model's name.

Owns these names. Never looks anything up by them: answers are not kept.
"""

import secrets
from datetime import UTC, datetime
from typing import Any

import attrs


def _new_id() -> str:
    return secrets.token_hex(12)


def _now_unix_s() -> int:
    return int(datetime.now(UTC).timestamp())


@attrs.frozen
class Head:
    """One answer's names. `created`: Unix seconds, a mere label."""

    model: str
    id: str = attrs.Factory(_new_id)
    created: int = attrs.Factory(_now_unix_s)

    def to_wire(self, kind: str) -> dict[str, Any]:
        """The fields that all objects of the answer share."""
        return {
            "id": f"chatcmpl-{self.id}",
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": None,
        }

    def audio(self) -> dict[str, Any]:
        """The names of its sound, which has expired at once: it cannot be asked for again."""
        return {"id": f"audio_{self.id}", "expires_at": self.created}
