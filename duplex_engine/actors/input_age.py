"""How long a session's input waits for its model, and when that is worth a word to the client.

Owns when each waiting unit came, when the last notice was given, and how much was refused since then. Never drops input
and never says anything itself.
"""

from collections import deque

import attrs

NOTICE_EVERY_S = 1.0


@attrs.define
class InputAge:
    """Ages of the units that wait, oldest first. `notice_after_s`: age from which a notice is due, once a second."""

    notice_after_s: float
    _came_at: deque[float] = attrs.field(factory=deque, init=False)
    _noticed_at: float | None = attrs.field(default=None, init=False)
    _dropped_s: float = attrs.field(default=0.0, init=False)

    def waiting(self, units: int, now: float) -> None:
        """So many units wait at `now`; the new ones came just now."""
        while len(self._came_at) < units:
            self._came_at.append(now)

    def taken(self, now: float) -> float | None:
        """The model took the oldest unit: the seconds it had waited."""
        return now - self._came_at.popleft() if self._came_at else None

    def forget(self) -> None:
        """The waiting input was thrown away."""
        self._came_at.clear()

    def notice(self, now: float) -> float | None:
        """The age of the oldest unit in seconds, when a notice is due."""
        if not self._came_at or now - self._came_at[0] < self.notice_after_s:
            return None
        if self._noticed_at is not None and now - self._noticed_at < NOTICE_EVERY_S:
            return None
        self._noticed_at = now
        return now - self._came_at[0]

    def drop(self, seconds: float) -> None:
        """So much sound was refused, because too much was waiting."""
        self._dropped_s += seconds

    def take_dropped(self) -> float:
        """Seconds of sound refused since this was asked last."""
        dropped, self._dropped_s = self._dropped_s, 0.0
        return dropped
