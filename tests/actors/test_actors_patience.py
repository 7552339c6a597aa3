import math

from duplex_engine.actors.patience import ABANDONED_AFTER_S, Patience
from duplex_engine.conversation.effects import EndSession


def patience(*, grace_s: float | None = None, tethered: bool = False) -> Patience:
    return Patience(idle_ttl_s=300.0, grace_s=grace_s, tethered=tethered, active_at=100.0)


def test_a_session_that_nobody_attaches_to_is_abandoned():
    waiting = patience()
    assert waiting.until == 100.0 + ABANDONED_AFTER_S
    assert waiting.verdict(waiting.until - 0.001, busy=False) is None
    assert waiting.verdict(waiting.until, busy=False) == EndSession("open_abandoned")


def test_a_lost_client_ends_a_session_that_cannot_be_resumed_at_once_busy_or_not():
    waiting = patience()
    waiting.attended()
    waiting.vacated(150.0)
    assert waiting.until == 150.0
    assert waiting.verdict(150.0, busy=True) == EndSession("disconnect")


def test_a_resumable_session_waits_for_its_client_and_forgets_the_wait_when_it_is_back():
    waiting = patience(grace_s=30.0)
    waiting.vacated(150.0)
    assert waiting.verdict(179.9, busy=False) is None
    assert waiting.verdict(180.0, busy=False) == EndSession("disconnect_grace_expired", expired=True)
    waiting.attended()
    assert waiting.verdict(181.0, busy=False) is None


def test_idle_time_ends_a_session_unless_it_is_busy():
    waiting = patience()
    waiting.attended()
    waiting.active_at = 200.0
    assert waiting.until == 500.0
    assert waiting.verdict(499.9, busy=False) is None
    assert waiting.verdict(500.0, busy=True) is None
    assert waiting.until == 800.0, "a busy session is looked at again a whole idle time later"
    assert waiting.verdict(800.0, busy=False) == EndSession("idle_ttl_expired", expired=True)


def test_a_tethered_session_is_never_vacant():
    waiting = patience(tethered=True)
    waiting.vacated(150.0)
    assert math.isclose(waiting.until, 400.0)
    assert waiting.verdict(399.0, busy=False) is None
