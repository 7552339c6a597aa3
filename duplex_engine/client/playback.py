"""What a player has played, computed instead of played.

Owns the arithmetic of a loudspeaker fed in pieces: it starts with the first piece, runs by the clock, and stands still
when it has run dry. Pure: the time is an argument.
"""

import attrs

__all__ = ["PlaybackClock"]


@attrs.define
class PlaybackClock:
    """The position of a player in one answer. Times in seconds of any one clock, positions in milliseconds."""

    received_ms: float = 0.0
    _from_ms: float = attrs.field(default=0.0, init=False)
    _from_s: float = attrs.field(default=0.0, init=False)
    _stopped_ms: float | None = attrs.field(default=None, init=False)

    def deliver(self, duration_ms: float, now_s: float) -> None:
        """A piece of `duration_ms` has arrived. A player that had run dry goes on from here."""
        if self.dry(now_s):
            self._from_ms, self._from_s = self.received_ms, now_s
        self.received_ms += duration_ms

    def stop(self, now_s: float) -> None:
        """Silence, for good: the position stays where it is."""
        if self._stopped_ms is None:
            self._stopped_ms = self.position_ms(now_s)

    def position_ms(self, now_s: float) -> float:
        """How much has been heard."""
        if self._stopped_ms is not None:
            return self._stopped_ms
        return min(self.received_ms, self._from_ms + max(0.0, now_s - self._from_s) * 1000)

    def dry(self, now_s: float) -> bool:
        """Whether everything that has arrived has been played, or playing was stopped."""
        return self._stopped_ms is not None or self.position_ms(now_s) >= self.received_ms
