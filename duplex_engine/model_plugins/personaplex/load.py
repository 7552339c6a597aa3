"""How busy the device is, and the beat that all calls are stepped to.

Owns the figures that admission looks at, and when a call's frame is due. Frames of callers who began at different moments
are ready at different moments, and a step costs about the same for one as for all: so everybody follows the call that is
there longest, up to a frame behind its own sound. Never waits.
"""

import math
from collections import deque
from collections.abc import Hashable

import attrs

TICKS = 100
ENOUGH_TICKS = 20
"""Before so many were seen, nothing is concluded."""
QUANTILE = 0.95
LATE_S = 0.02
"""A frame that misses the beat by less than this is stepped at once: networks are not that exact."""


@attrs.define
class TickLoad:
    """Ticks of one device. `limit_s`: a 95th percentile beyond this means that no further call fits into `period_s`."""

    limit_s: float
    period_s: float
    _costs: deque[float] = attrs.field(factory=lambda: deque(maxlen=TICKS), init=False)
    _began: dict[Hashable, float] = attrs.field(factory=dict, init=False)

    def due(self, call: Hashable, now: float, *, behind: int) -> float:
        """When the frame that `call` has in hand now is to be stepped. `behind`: frames that wait behind it."""
        leader = next(iter(self._began), call)
        anchor = self._began.get(leader, now)
        if leader == call or behind or now - anchor > 2 * self.period_s:
            return now
        beat = anchor + math.floor((now - anchor) / self.period_s) * self.period_s
        missed_by = now - beat
        stepped_before = self._began.get(call, -math.inf) < beat - self.period_s / 2
        return now if missed_by <= LATE_S and stepped_before else beat + self.period_s

    def ticked(self, call: Hashable, began_at: float, ended_at: float) -> None:
        """A frame of `call` was stepped between these moments."""
        self._began[call] = began_at
        self._costs.append(ended_at - began_at)

    def left(self, call: Hashable) -> None:
        """The call is over. When it was the last, what was measured says nothing about who comes next."""
        self._began.pop(call, None)
        if not self._began:
            self._costs.clear()

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
