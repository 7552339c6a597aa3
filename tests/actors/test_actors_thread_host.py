"""The thread host in real time: one dedicated thread, never cut off in a step."""

import threading

import pytest
import trio
from actors_steppers import Do

from duplex_engine.actors.host.thread import ThreadHost
from duplex_engine.errors import ServiceFailed
from duplex_engine.model_plugins.contract import Work, WorkerSpec


def spec(**fields: object) -> WorkerSpec:
    return WorkerSpec(**{"name": "device", "stepper": "actors_steppers:HostedStepper", **fields})  # type: ignore[arg-type]


def do(what: str, argument: object = None) -> Work:
    return Work(items=((0, 1, Do(what, argument)),))


def answers(results: object) -> list[object]:
    return [result.outcome.unwrap() for result in results]  # type: ignore[attr-defined]


async def test_everything_runs_in_one_thread_that_ends(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[str, float]] = []
    with trio.fail_after(10):
        async with ThreadHost().open(spec(), lambda what, fraction: told.append((what, fraction))) as stepper:
            assert told == [("opening", 0.25), ("opened", 1.0)]
            for _ in range(3):
                # A thread of Trio's own pool that is idle must not be picked for a step.
                await trio.to_thread.run_sync(threading.get_ident)
                (about,) = answers(await stepper.step(do("about")))
                assert about["same_thread"]  # type: ignore[index]
            (worker,) = [thread for thread in threading.enumerate() if thread.name == "worker device"]
    assert capsys.readouterr().out == "closed True\n", "closed where it was loaded"
    worker.join(10)
    assert not worker.is_alive()


async def test_what_a_stepper_raises_arrives() -> None:
    async def crash() -> None:
        async with ThreadHost().open(spec(), lambda what, fraction: None) as stepper:
            await stepper.step(do("crash", "do that"))

    with pytest.raises(RuntimeError, match="cannot do that"):
        await crash()


async def test_a_stepper_that_cannot_be_loaded_says_the_way_out() -> None:
    with pytest.raises(ServiceFailed, match="'device' cannot be loaded: weights are missing; run `make weights`"):
        async with ThreadHost().open(spec(arguments={"loading": "refuse"}), lambda what, fraction: None):
            pytest.fail("it was not loaded")


async def test_loading_that_raises_is_a_crash() -> None:
    with pytest.raises(RuntimeError, match="no such device"):
        async with ThreadHost().open(spec(arguments={"loading": "crash"}), lambda what, fraction: None):
            pytest.fail("it was not loaded")


async def test_leaving_waits_for_the_step_that_runs() -> None:
    async def step_and_be_cancelled() -> None:
        fields = {"stepper": "actors_steppers:PatientStepper", "arguments": {"events": (stepping, may_end, ended)}}
        async with ThreadHost().open(spec(**fields), lambda what, fraction: None) as stepper:
            await stepper.step(Work())

    stepping, may_end, ended = threading.Event(), threading.Event(), threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(step_and_be_cancelled)
        await trio.to_thread.run_sync(stepping.wait)
        nursery.cancel_scope.cancel()
        assert not ended.is_set()
        may_end.set()
    assert ended.is_set()
