"""When the next silent unit is due, if the client sends nothing (wire contract 6.7).

Owns the grid of due times. Reads no clock: every `now` is given, in seconds of one steady clock.
"""

import math


class Cadence:
    """One due time per `period_s`, on a fixed grid that the last real input anchors.

    The grid does not drift: due times are whole periods after the anchor. When the caller falls more than one period
    behind, the grid restarts instead of asking for a burst.
    """

    def __init__(self, period_s: float) -> None:
        if not period_s > 0:
            raise ValueError(f"a cadence needs a period above zero, not {period_s}")
        self.period_s = period_s
        self._anchor = math.inf
        self._steps = 1

    @property
    def due(self) -> float:
        """When the next silent unit should be fed; infinity before the first anchor."""
        return self._anchor + self._steps * self.period_s

    def anchor(self, now: float) -> None:
        """Real input was fed at `now`: the next silent unit is due one period later."""
        self._anchor, self._steps = now, 1

    def step(self, now: float) -> None:
        """The silent unit that was due has been fed at `now`."""
        if now - self.due > self.period_s:
            self.anchor(now)
        else:
            self._steps += 1
