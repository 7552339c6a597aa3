"""Supervision: what is contained, what passes, when a permanent child is restarted and when the failure goes up."""

import math
from collections.abc import Awaitable, Callable

import pytest
import trio

from duplex_engine.actors.supervisor import RestartBudget, contain, keep_running, sole_exception
from duplex_engine.errors import ServiceFailed


@pytest.mark.parametrize(
    ("crashes", "pauses"),
    [
        pytest.param([0.0], [0.1], id="the first restart comes soon"),
        pytest.param([0.0, 1.0, 2.0], [0.1, 0.2, 0.4], id="the pause doubles"),
        pytest.param([0.0, 1.0, 2.0, 3.0], [0.1, 0.2, 0.4, math.inf], id="the fourth in a minute is too much"),
        pytest.param([0.0, 1.0, 2.0, 59.9], [0.1, 0.2, 0.4, math.inf], id="just inside the window"),
        pytest.param([0.0, 1.0, 2.0, 60.0], [0.1, 0.2, 0.4, 0.4], id="what is a window old is forgiven"),
        pytest.param([0.0, 100.0, 200.0, 300.0], [0.1, 0.1, 0.1, 0.1], id="rare crashes are never too many"),
    ],
)
def test_restart_budget(crashes: list[float], pauses: list[float]) -> None:
    budget = RestartBudget()
    assert [budget.spend(now) for now in crashes] == pauses


def test_backoff_is_bounded() -> None:
    budget = RestartBudget(restarts=10, backoff_s=1.0, backoff_max_s=5.0)
    assert [budget.spend(0.0) for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_sole_exception_unwraps_groups_of_one_only() -> None:
    one, other = ValueError("one"), KeyError("other")
    assert sole_exception(one) is one
    assert sole_exception(ExceptionGroup("", [ExceptionGroup("", [one])])) is one
    several = ExceptionGroup("", [one, other])
    assert sole_exception(several) is several
    assert sole_exception(ExceptionGroup("", [several])) is several


async def test_contain_returns_what_the_child_raised() -> None:
    async def fine() -> None:
        pass

    async def crashing() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail, ValueError("inside"))

    assert await contain(fine) is None
    crash = await contain(crashing)
    assert isinstance(crash, ValueError)
    assert str(crash) == "inside"


async def test_contain_lets_cancellation_pass() -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await contain(trio.sleep_forever)
        pytest.fail("the cancellation was swallowed")
    assert scope.cancelled_caught


async def test_contain_lets_keyboard_interrupt_pass() -> None:
    with pytest.raises(KeyboardInterrupt):
        await contain(lambda: fail(KeyboardInterrupt()))
    with pytest.raises(BaseExceptionGroup):
        await contain(lambda: fail(BaseExceptionGroup("", [KeyboardInterrupt(), ValueError()])))


async def test_a_child_that_crashes_while_it_is_cancelled_is_contained_and_its_caller_cancelled() -> None:
    contained: list[Exception | None] = []

    async def crash_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("during cleanup")

    async def child() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(crash_when_cancelled)
            nursery.start_soon(trio.sleep_forever)

    with trio.CancelScope() as scope:
        scope.cancel()
        contained.append(await contain(child))
        await trio.lowlevel.checkpoint()
        pytest.fail("the cancellation was lost")
    assert scope.cancelled_caught
    assert [str(crash) for crash in contained] == ["during cleanup"]


async def test_keep_running_restarts_with_backoff_until_the_budget_is_spent(autojump_clock: trio.abc.Clock) -> None:
    began: list[float] = []
    told: list[str] = []
    zero = trio.current_time()

    async def child() -> None:
        began.append(round(trio.current_time() - zero, 3))
        raise ValueError(f"crash {len(began)}")

    with pytest.raises(ServiceFailed, match=r"the child failed more than 3 times in 60 s, at last: crash 4") as failure:
        await keep_running("the child", child, RestartBudget(), lambda error: told.append(str(error)))
    assert began == [0.0, 0.1, 0.3, 0.7]
    assert told == ["crash 1", "crash 2", "crash 3", "crash 4"]
    assert isinstance(failure.value.__cause__, ValueError)


async def test_keep_running_goes_on_for_ever_when_crashes_are_rare(autojump_clock: trio.abc.Clock) -> None:
    crashes: list[Exception] = []

    async def child() -> None:
        await trio.sleep(30.0)
        raise ValueError

    with trio.move_on_after(3600.0) as hour:
        await keep_running("the child", child, RestartBudget(), crashes.append)
    assert hour.cancelled_caught
    assert len(crashes) == 119


async def test_a_permanent_child_that_returns_has_crashed(autojump_clock: trio.abc.Clock) -> None:
    crashes: list[Exception] = []

    async def child() -> None:
        pass

    with pytest.raises(ServiceFailed):
        await keep_running("the child", child, RestartBudget(restarts=1), crashes.append)
    assert [str(crash) for crash in crashes] == ["the child stopped by itself"] * 2


async def test_a_child_that_cannot_be_helped_is_not_restarted() -> None:
    starts: list[Callable[[], Awaitable[None]]] = []

    async def child() -> None:
        starts.append(child)
        raise ServiceFailed("weights are missing; run `make weights`")

    with pytest.raises(ServiceFailed, match="run `make weights`"):
        await keep_running("the child", child, RestartBudget(), lambda error: None)
    assert len(starts) == 1


async def test_a_crash_during_shutdown_neither_restarts_nor_goes_up() -> None:
    crashes: list[Exception] = []

    async def child() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ServiceFailed("during cleanup")

    with trio.move_on_after(0):
        await keep_running("the child", child, RestartBudget(), crashes.append)
    assert [str(crash) for crash in crashes] == ["during cleanup"]


async def fail(error: BaseException) -> None:
    raise error
