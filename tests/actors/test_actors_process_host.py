"""The process host in real time: a child is spawned, stepped, watched, and always gone in the end."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
import structlog
import trio
from actors_steppers import Do
from outcome import Error

from duplex_engine.actors.host import HostedStepper, WorkerCrashed, process
from duplex_engine.actors.host.process import ProcessHost
from duplex_engine.actors.observations import Observation
from duplex_engine.actors.supervisor import RestartBudget, keep_running
from duplex_engine.actors.worker import Worker
from duplex_engine.errors import LeaseLost, ServiceFailed
from duplex_engine.model_plugins.contract import Progress, Work, WorkerSpec


class Printed:
    """The lines that children printed, as they arrive in the log."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self._more = trio.Event()

    def __call__(self, logger: object, name: str, event: MutableMapping[str, object]) -> str:
        if event["event"] == "worker_output":
            self.lines.append((str(event["worker"]), str(event["line"])))
            self._more.set()
        raise structlog.DropEvent

    async def wait_for(self, line: str) -> None:
        while line not in [printed for _, printed in self.lines]:
            self._more = trio.Event()
            await self._more.wait()


@pytest.fixture
def printed() -> Iterator[Printed]:
    lines = Printed()
    structlog.configure(processors=[lines])
    yield lines
    structlog.reset_defaults()


def spec(**fields: object) -> WorkerSpec:
    return WorkerSpec(**{"name": "device", "stepper": "actors_steppers:HostedStepper", **fields})  # type: ignore[arg-type]


def no_progress(what: str, fraction: float) -> None:
    pass


@asynccontextmanager
async def hosted(fields: WorkerSpec | None = None, progress: Progress = no_progress) -> AsyncIterator[HostedStepper]:
    with trio.fail_after(30):
        async with ProcessHost().open(fields or spec(), progress) as stepper:
            yield stepper


async def ask(stepper: HostedStepper, what: str, argument: object = None) -> object:
    (result,) = await stepper.step(Work(items=((0, 1, Do(what, argument)),)))
    return result.outcome.unwrap()


def pid_of(stepper: HostedStepper) -> int:
    return stepper._process.pid  # type: ignore[attr-defined,no-any-return]


async def ask_once(what: str, argument: object = None, **fields: object) -> object:
    async with hosted(spec(**fields)) as stepper:
        return await ask(stepper, what, argument)


def is_gone(pid: int) -> bool:
    """Whether there is no such process, not even a zombie."""
    return not Path(f"/proc/{pid}").exists()


def children() -> list[str]:
    """Processes that this one has started and not buried."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = children()
    yield
    assert children() == before


def open_files() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


async def test_a_stepper_is_loaded_with_progress_and_stepped() -> None:
    told: list[tuple[str, float]] = []
    async with hosted(progress=lambda what, fraction: told.append((what, fraction))) as stepper:
        assert told == [("opening", 0.25), ("opened", 1.0)]
        assert await ask(stepper, "echo", {"a": [1, 2]}) == {"a": [1, 2]}
        assert await stepper.step(Work()) == ()
        pid = pid_of(stepper)
    assert is_gone(pid)


async def test_the_child_is_as_the_specification_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTED_STEPPER", "the parent's")
    async with hosted(spec(nice=3, environment={"HOSTED_STEPPER": "the child's"})) as stepper:
        about = await ask(stepper, "about")
        assert isinstance(about, dict)
        assert about["nice"] == about["nice_at_import"] == os.nice(0) + 3
        assert about["environment"] == about["environment_at_import"] == "the child's"
        assert about["interrupt"], "a Ctrl-C is not for the child"
        assert about["group"] == about["pid"] != os.getpgid(0), "a terminal's Ctrl-C does not reach the child"
        assert about["pid"] == pid_of(stepper)
        assert about["open_files"] <= 5, "stdin, the output twice, the pipe, and the listing itself"
    assert os.environ["HOSTED_STEPPER"] == "the parent's"


async def test_payloads_of_megabytes_pass_both_ways() -> None:
    sound = np.arange(4_000_000, dtype=np.float32)
    async with hosted() as stepper:
        back = await ask(stepper, "echo", sound)
        assert isinstance(back, np.ndarray)
        assert back.dtype == np.float32
        np.testing.assert_array_equal(back, sound)


async def test_what_the_child_prints_is_logged_with_the_name_of_its_worker(
    printed: Printed, capfd: pytest.CaptureFixture[str]
) -> None:
    async with hosted() as stepper:
        await ask(stepper, "say", "loading...\rloaded\nhé")
    said = [("device", "loading..."), ("device", "loaded"), ("device", "hé")]
    assert printed.lines == [*said, *said, ("device", "closed True")], "the stepper was closed, in the end"
    assert capfd.readouterr() == ("", "")


# --- failures -----------------------------------------------------------------------------------------------------


async def test_a_bad_item_comes_back_in_words() -> None:
    async with hosted() as stepper:
        (result,) = await stepper.step(Work(items=((0, 1, Do("fail")),)))
        assert isinstance(result.outcome, Error)
        assert str(result.outcome.error) == "one and two"
        assert "Unpicklable: one and two" in result.outcome.error.__notes__[0]
        assert await ask(stepper, "echo", "fine") == "fine"


async def test_a_stepper_that_raises_is_a_crash_with_its_traceback() -> None:
    with pytest.raises(WorkerCrashed) as crash:
        await ask_once("crash", "do that")
    assert str(crash.value) == "worker 'device' raised: cannot do that", "no traceback for clients"
    assert 'raise RuntimeError(f"cannot {argument}")' in crash.value.__notes__[0]


async def test_a_child_killed_in_a_step_is_a_crash() -> None:
    with pytest.raises(WorkerCrashed, match=r"worker 'device' \(pid \d+\) was killed \(Killed\)") as crash:
        await ask_once("kill")
    assert crash.value.__notes__ == ["It printed last:\ngoing down"]


async def test_a_child_killed_between_steps_is_a_crash() -> None:
    async def kill_and_ask() -> None:
        async with hosted() as stepper:
            os.kill(pid_of(stepper), signal.SIGKILL)
            await ask(stepper, "echo", np.zeros(4_000_000))

    with pytest.raises(WorkerCrashed, match="was killed"):
        await kill_and_ask()


async def test_a_child_that_exits_is_a_crash() -> None:
    with pytest.raises(WorkerCrashed, match="exited with status 7"):
        await ask_once("exit", 7)


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"arguments": {"loading": "crash"}}, WorkerCrashed, "worker 'device' raised: no such device"),
        ({"stepper": "actors_steppers:Nobody"}, WorkerCrashed, "has no attribute 'Nobody'"),
        (
            {"arguments": {"loading": "refuse"}},
            ServiceFailed,
            "'device' cannot be loaded: weights are missing; run `make",
        ),
        (
            {"arguments": {"loading": "hang"}, "load_timeout_s": 0.01},
            WorkerCrashed,
            "'device' did not load within 0.01 s",
        ),
    ],
)
async def test_what_goes_wrong_while_loading(fields: dict[str, object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        await ask_once("echo", **fields)


# --- the end ------------------------------------------------------------------------------------------------------


async def test_a_parent_that_is_cancelled_in_a_step_leaves_no_child(printed: Printed) -> None:
    async with trio.open_nursery() as nursery:
        stepper = await nursery.start(hang_in_step, "hang")
        await printed.wait_for("hanging")
        nursery.cancel_scope.cancel()
    assert is_gone(pid_of(stepper))


async def test_a_child_that_ignores_terminate_is_killed(printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "TERMINATE_AFTER_S", 0.05)
    monkeypatch.setattr(process, "KILL_AFTER_S", 0.2)
    async with trio.open_nursery() as nursery:
        stepper = await nursery.start(hang_in_step, "hang_stubbornly")
        await printed.wait_for("hanging")
        nursery.cancel_scope.cancel()
    assert is_gone(pid_of(stepper))
    assert stepper._process.returncode == -signal.SIGKILL


ORPHANED = """
import os, structlog, sys, trio
sys.path[:] = {path!r}
from actors_steppers import Do
from duplex_engine.actors.host.process import ProcessHost
from duplex_engine.model_plugins.contract import Work, WorkerSpec

async def main():
    spec = WorkerSpec(name="orphan", stepper="actors_steppers:HostedStepper")
    async with ProcessHost().open(spec, lambda what, fraction: None) as stepper, trio.open_nursery() as nursery:
        def announce(logger, name, event):
            os.write(1, b"%d " % stepper._process.pid)
            raise structlog.DropEvent
        structlog.configure(processors=[announce])
        nursery.start_soon(stepper.step, Work(items=((0, 1, Do({question!r}, "said something")),)))
        await trio.sleep_forever()

trio.run(main)
"""


@pytest.mark.parametrize("question", ["say", "hang"])
async def test_a_child_ends_when_its_parent_is_killed_whatever_it_does(question: str) -> None:
    script = ORPHANED.format(path=sys.path, question=question)
    with trio.fail_after(30):
        parent = await trio.lowlevel.open_process([sys.executable, "-c", script], stdout=subprocess.PIPE)
        assert parent.stdout is not None
        async with parent.stdout:
            announced = await parent.stdout.receive_some()  # once for each printed line
            child = os.pidfd_open(int(announced.split()[0]))
            try:
                parent.kill()
                await parent.wait()
                await trio.lowlevel.wait_readable(child)
            finally:
                os.close(child)


async def test_nothing_is_left_over_after_twenty_lives() -> None:
    async def live_and_crash() -> None:
        async with in_parallel:
            with pytest.raises(WorkerCrashed):
                await ask_once("echo", stepper="actors_steppers:Nobody")

    in_parallel = trio.CapacityLimiter(4)
    await live_and_crash()  # whatever is made once is made now
    before = open_files()
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(live_and_crash)
    assert open_files() == before


# --- with a worker ------------------------------------------------------------------------------------------------


async def test_a_hung_child_is_replaced(printed: Printed) -> None:
    crashes: list[Exception] = []
    seen: list[Observation] = []
    worker = Worker(spec(step_timeout_s=1.0), ProcessHost(), seen.append, lambda: None)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_running, "device", worker.run, RestartBudget(), crashes.append)
            async with worker.lease({}, 30.0) as lease:
                with pytest.raises(LeaseLost, match="did not finish a step within"):
                    await lease.step(Do("hang"))
            async with worker.lease({}, 30.0) as lease:
                assert await lease.step(Do("echo", "alive")) == "alive"
            nursery.cancel_scope.cancel()
    assert len(crashes) == 1


async def test_a_child_that_dies_while_nobody_asks_is_missed_at_once(printed: Printed) -> None:
    crashes: list[Exception] = []
    crashed = trio.Event()

    def note(crash: Exception) -> None:
        crashes.append(crash)
        crashed.set()

    worker = Worker(spec(), ProcessHost(), lambda observation: None, lambda: None)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_running, "device", worker.run, RestartBudget(), note)
            async with worker.lease({}, 30.0) as lease:
                about = await lease.step(Do("about"))
            os.kill(about["pid"], signal.SIGKILL)  # type: ignore[index]
            await crashed.wait()
            assert not worker.ready
            async with worker.lease({}, 30.0) as lease:
                assert await lease.step(Do("echo", "alive")) == "alive"
            nursery.cancel_scope.cancel()
    assert "was killed" in str(crashes[0])


async def hang_in_step(what: str, *, task_status: trio.TaskStatus[HostedStepper]) -> None:
    async with hosted() as stepper:
        task_status.started(stepper)
        await ask(stepper, what)
