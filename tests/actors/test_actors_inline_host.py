"""The inline host: steps take time on the run's clock, and may be left at any instant."""

import pytest
import trio
from actors_kit import Crash, Echo, Hang, worker_spec
from trio.testing import MockClock

from duplex_engine.actors.host.inline import InlineHost
from duplex_engine.errors import ServiceFailed
from duplex_engine.model_plugins.contract import HostKind, Work, WorkerSpec


def ignore(what: str, fraction: float) -> None:
    pass


async def test_a_step_takes_simulated_time(autojump_clock: MockClock) -> None:
    async with InlineHost().open(worker_spec(step_s=0.25), ignore) as stepper:
        began = trio.current_time()
        work = Work(opens=((0, {}),), items=((0, 1, Echo("x")),))
        (result,) = await stepper.step(work)
        assert trio.current_time() == began + 0.25
        assert result.outcome.unwrap() == ({}, 0, "x")


async def test_a_hang_can_be_left(autojump_clock: MockClock) -> None:
    async with InlineHost().open(worker_spec(), ignore) as stepper:
        with trio.move_on_after(1e6) as patience:
            await stepper.step(Work(opens=((0, {}),), items=((0, 1, Hang()),)))
        assert patience.cancelled_caught


async def test_what_a_stepper_raises_is_raised(autojump_clock: MockClock) -> None:
    async with InlineHost().open(worker_spec(), ignore) as stepper:
        with pytest.raises(RuntimeError, match="device on fire"):
            await stepper.step(Work(opens=((0, {}),), items=((0, 1, Crash()),)))


async def test_a_stepper_that_cannot_be_loaded_says_the_way_out() -> None:
    refusing = WorkerSpec(
        name="device",
        stepper="actors_steppers:HostedStepper",
        arguments={"loading": "refuse"},
        host=HostKind.INLINE,
    )
    with pytest.raises(ServiceFailed, match="'device' cannot be loaded: weights are missing; run `make weights`"):
        async with InlineHost().open(refusing, ignore):
            pytest.fail("it was not loaded")
