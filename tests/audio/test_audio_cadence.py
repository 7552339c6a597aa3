import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duplex_engine.audio.cadence import Cadence


def test_nothing_is_due_before_real_input():
    assert Cadence(0.08).due == math.inf


def test_the_grid_follows_the_last_real_input():
    cadence = Cadence(0.5)
    cadence.anchor(10.0)
    assert cadence.due == 10.5
    cadence.step(10.5)
    assert cadence.due == 11.0
    cadence.anchor(10.7)
    assert cadence.due == 11.2


# Fed this long after it was due, with a period of 1 s and due at 1 s: the next due time.
@pytest.mark.parametrize(
    ("late", "next_due"), [(0.0, 2.0), (0.3, 2.0), (0.9, 2.0), (1.0, 2.0), (1.01, 3.01), (30.0, 32.0)]
)
def test_lateness(late, next_due):
    cadence = Cadence(1.0)
    cadence.anchor(0.0)
    cadence.step(1.0 + late)
    assert cadence.due == pytest.approx(next_due)


def test_it_does_not_drift():
    cadence = Cadence(0.08)
    cadence.anchor(1.0)
    for _ in range(45_000):
        cadence.step(cadence.due + 0.02)
    assert cadence.due == 1.0 + 45_001 * 0.08


@given(st.floats(0.01, 2.0), st.lists(st.floats(0.0, 5.0), min_size=1, max_size=60))
def test_it_never_bursts(period_s, delays):
    cadence = Cadence(period_s)
    cadence.anchor(0.0)
    now, fed = 0.0, []
    for delay in delays:
        now = max(now, cadence.due) + delay
        fed.append(now)
        cadence.step(now)
        assert cadence.due >= now - period_s * 1.0001
    # At most one unit of debt: any stretch of the timeline holds no more units than periods, plus two.
    for first in range(len(fed)):
        assert len(fed) - first <= (fed[-1] - fed[first]) / period_s + 2.001


@pytest.mark.parametrize("period_s", [0.0, -1.0, math.nan])
def test_a_period_lies_above_zero(period_s):
    with pytest.raises(ValueError, match="period"):
        Cadence(period_s)
