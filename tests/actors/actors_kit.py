"""What the actor tests share: schedule exploration, an honest device program, a floor that remembers."""

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial, wraps

import attrs
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from outcome import Error, Value

from duplex_engine.actors.epoch import Epoch
from duplex_engine.actors.host.inline import InlineHost
from duplex_engine.actors.observations import Observation
from duplex_engine.actors.supervisor import RestartBudget, contain, keep_running
from duplex_engine.actors.worker import Worker
from duplex_engine.audio.intake import UnitIntake
from duplex_engine.config import SessionLimits
from duplex_engine.conversation.effects import Message, Turn
from duplex_engine.conversation.facts import Fact, FunctionOutput
from duplex_engine.model_plugins.contract import (
    EpochCause,
    HostKind,
    Lease,
    Progress,
    Result,
    SessionPlan,
    UnitFormat,
    Work,
    WorkerSpec,
)

UNIT = UnitFormat(rate_hz=16_000, samples=1_600, output_rate_hz=24_000)


def run_virtual(main: Callable[[], Awaitable[None]]) -> None:
    """Run `main` on a virtual clock that jumps whenever everybody waits."""
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def under_schedules(examples: int) -> Callable[[Callable[[], Awaitable[None]]], Callable[[], None]]:
    """Run an async test without arguments under many orders in which runnable tasks may be run."""

    def decorate(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        def explored(schedule: object) -> None:
            run_virtual(test)

        explored.__name__, explored.__doc__ = test.__name__, test.__doc__
        return settings(max_examples=examples, deadline=None, database=None)(given(st.random_module())(explored))

    return decorate


def on_virtual_clock(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """An async property (with Hypothesis arguments) as a plain function; use under `@given`."""

    @wraps(test)
    def run(**arguments: object) -> None:
        async def main() -> None:
            await test(**arguments)

        run_virtual(main)

    return run


# --- a device program --------------------------------------------------------------------------------------------


@attrs.frozen
class Echo:
    """Answered by (the specification of the row, how many questions the row was asked before, `value`)."""

    value: object
    seconds: float = 0.1


@attrs.frozen
class Count:
    """Answered by 1, 2, ... `to`, one a step (`per_step` a step)."""

    to: int
    per_step: int = 1


@attrs.frozen
class Fail:
    """This item alone fails."""

    message: str = "bad item"


@attrs.frozen
class Crash:
    """The step raises."""

    message: str = "device on fire"


@attrs.frozen
class Hang:
    """The step never ends."""


class HonestStepper:
    """A device program that checks what it is asked: rows are reset between leases, one item a slot, tickets new.

    `steps` collects every Work. Anything wrong raises, which is a crash of the worker.
    """

    def __init__(self, steps: list[Work] | None = None, step_s: float = 0.1) -> None:
        self.steps: list[Work] = [] if steps is None else steps
        self._step_s = step_s
        self._rows: dict[int, Mapping[str, object]] = {}
        self._asked: dict[int, int] = {}
        self._streams: dict[int, list[int]] = {}
        self._newest_ticket = 0

    def load(self, progress: Progress) -> None:
        progress("nothing to load", 1.0)

    def close(self) -> None:
        pass

    def duration_s(self, work: Work) -> float:
        if any(isinstance(payload, Hang) for _, _, payload in work.items):
            return math.inf
        return max([self._step_s, *(p.seconds for _, _, p in work.items if isinstance(p, Echo))])

    def step(self, work: Work) -> Iterator[Result]:
        self.steps.append(work)
        for slot in work.resets:
            del self._rows[slot], self._asked[slot]
        for ticket in work.drops:
            assert self._streams.pop(ticket, None), f"ticket {ticket} was dropped but is not running"
        for slot, specification in work.opens:
            assert slot not in self._rows, f"slot {slot} was opened twice without a reset"
            self._rows[slot], self._asked[slot] = specification, 0
        assert len({slot for slot, _, _ in work.items}) == len(work.items), "two items for one slot"
        for slot, ticket, payload in work.items:
            assert ticket > self._newest_ticket, "tickets are never reused"
            self._newest_ticket = ticket
            yield from self._answer(slot, ticket, payload)
        yield from self._go_on()

    def _answer(self, slot: int, ticket: int, payload: object) -> Iterator[Result]:
        row = self._rows[slot]
        match payload:
            case Echo(value=value):
                yield Result(ticket, Value((dict(row), self._asked[slot], value)))
            case Fail(message=message):
                yield Result(ticket, Error(ValueError(message)))
            case Count(to=to, per_step=per_step):
                self._streams[ticket] = [0, to, per_step]
            case Crash(message=message):
                raise RuntimeError(message)
            case _:
                raise AssertionError(f"unknown question {payload!r}")
        self._asked[slot] += 1

    def _go_on(self) -> Iterator[Result]:
        for ticket, stream in tuple(self._streams.items()):
            for _ in range(stream[2]):
                stream[0] += 1
                last = stream[0] == stream[1]
                yield Result(ticket, Value(stream[0]), last)
                if last:
                    del self._streams[ticket]
                    break


def worker_spec(*, steps: list[Work] | None = None, step_s: float = 0.1, **fields: object) -> WorkerSpec:
    """A worker of HonestSteppers on the inline host."""
    return WorkerSpec(
        **{  # type: ignore[arg-type]
            "name": "device",
            "stepper": "actors_kit:HonestStepper",
            "arguments": {"steps": steps, "step_s": step_s},
            "host": HostKind.INLINE,
            "step_timeout_s": 5.0,
            **fields,
        }
    )


@asynccontextmanager
async def running_worker(
    spec: WorkerSpec, *, budget: RestartBudget | None = None, crashes: list[Exception] | None = None
) -> AsyncIterator[tuple[Worker, list[Observation]]]:
    """A supervised worker for the block, and what it told its observer."""
    seen: list[Observation] = []
    worker = Worker(spec, InlineHost(), seen.append, lambda: None)
    async with trio.open_nursery() as nursery:
        told = crashes if crashes is not None else []
        nursery.start_soon(keep_running, spec.name, worker.run, budget or RestartBudget(), told.append)
        yield worker, seen
        nursery.cancel_scope.cancel()


# --- a floor -----------------------------------------------------------------------------------------------------


@attrs.define
class RememberingFloor:
    """A floor that writes down every fact with the time at which it was said."""

    unit_format: UnitFormat = UNIT
    limits: SessionLimits = attrs.Factory(SessionLimits)
    intake: UnitIntake = attrs.Factory(lambda: UnitIntake(UNIT.samples))
    native: bool = True
    hears_units: bool = False
    lead_s: float | None = None
    late_s: float = 0.0
    endless: bool = False
    outputs: list[FunctionOutput] = attrs.Factory(list)
    said: list[tuple[float, Fact]] = attrs.Factory(list)
    units_taken: int = 0

    def learn(self, fact: Fact) -> None:
        self.said.append((trio.current_time(), fact))

    def history(self) -> Sequence[Message]:
        return ()

    def input_taken(self) -> None:
        self.units_taken += 1

    def facts(self, kind: type) -> list[Fact]:
        """The facts of one kind, in order."""
        return [fact for _, fact in self.said if isinstance(fact, kind)]


# --- an epoch ----------------------------------------------------------------------------------------------------


class NoLender:
    """Lets nothing."""

    def lease(
        self, worker: str, specification: dict[str, object], timeout_s: float
    ) -> AbstractAsyncContextManager[Lease]:
        raise AssertionError("this epoch borrows nothing")


@attrs.define
class Model:
    """A plugin that is only its `converse`."""

    converse: Callable[[Epoch], Awaitable[None]]
    name: str = "model"


def new_epoch(floor: RememberingFloor) -> Epoch:
    return Epoch(floor, NoLender(), SessionPlan(), None, EpochCause.OPENED)


@asynccontextmanager
async def conversing(
    converse: Callable[[Epoch], Awaitable[None]], floor: RememberingFloor | None = None
) -> AsyncIterator[tuple[Epoch, RememberingFloor]]:
    """An epoch living `converse` for the block, and its floor; a crash of it is contained and raised by nobody."""
    floor = floor or RememberingFloor()
    epoch = new_epoch(floor)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(contain, partial(epoch.run, Model(converse)))
        yield epoch, floor
        nursery.cancel_scope.cancel()


async def joined(overs: Sequence[trio.Event]) -> None:
    """Wait for what was ordered to end."""
    for over in overs:
        await over.wait()


def new_turn() -> Turn:
    return Turn(utterance=None, item_id=None, history=())


def sound(seconds: float) -> bytes:
    """Silence at the output rate, PCM16."""
    return bytes(2 * round(seconds * UNIT.output_rate_hz))
