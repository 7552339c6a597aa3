"""How busy the device is: the newest ticks and what they cost, and when in each frame the group of calls is stepped.

Owns the figures that admission and phase alignment look at. Never waits.
"""

import math
from collections import deque

import attrs

TICKS = 100
ENOUGH_TICKS = 20
"""Before so many were seen, nothing is concluded."""
QUANTILE = 0.95


@attrs.define
class TickLoad:
    """Ticks of one device. `limit_s`: a 95th percentile beyond this means that no further call fits into `period_s`."""

    limit_s: float
    period_s: float
    _costs: deque[float] = attrs.field(factory=lambda: deque(maxlen=TICKS), init=False)
    _ticked_at: float | None = attrs.field(default=None, init=False)

    def ticked(self, began_at: float, ended_at: float) -> None:
        """A frame was stepped between these moments."""
        self._costs.append(ended_at - began_at)
        self._ticked_at = began_at

    @property
    def p95_s(self) -> float:
        """Seconds that 95 % of the newest ticks stayed below; 0 while too few are known."""
        if len(self._costs) < ENOUGH_TICKS:
            return 0.0
        return sorted(self._costs)[math.ceil(QUANTILE * len(self._costs)) - 1]

    @property
    def overloaded(self) -> str | None:
        """Why nobody else fits, if nobody does."""
        if self.p95_s <= self.limit_s:
            return None
        return (
            f"the device is busy: a frame takes {self.p95_s * 1000:.0f} ms, "
            f"newcomers are taken up to {self.limit_s * 1000:.0f} ms"
        )

    def forget(self) -> None:
        """Nobody is there any more: what was measured says nothing about who comes next."""
        self._costs.clear()
        self._ticked_at = None

    def padding_s(self, now: float) -> float:
        """How much silence a newcomer's first frame needs to end with those of the others, 0 when it is alone."""
        if self._ticked_at is None or now - self._ticked_at > 2 * self.period_s:
            return 0.0
        early = (self._ticked_at - now) % self.period_s
        return (self.period_s - early) % self.period_s
