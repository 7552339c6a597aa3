"""The worker: what goes to the device in which step, and what a crash, a hang and an interruption do to whom."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from actors_kit import Count, Crash, Echo, Fail, Hang, on_virtual_clock, running_worker, under_schedules, worker_spec
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from duplex_engine.actors.host import HostedStepper, ignore
from duplex_engine.actors.host.inline import InlineHost
from duplex_engine.actors.lease import WorkerLease
from duplex_engine.actors.observations import OutputDropped, StepTimed, WorkerLost, WorkerStarted
from duplex_engine.actors.supervisor import RestartBudget
from duplex_engine.actors.worker import Worker
from duplex_engine.errors import LeaseLost, StepFailed
from duplex_engine.model_plugins.contract import Progress, Work, WorkerSpec


class Stopwatch:
    """Seconds of the run's clock since it was made."""

    def __init__(self) -> None:
        self._zero = trio.current_time()

    def __call__(self) -> float:
        return round(trio.current_time() - self._zero, 6)


# --- gathering ----------------------------------------------------------------------------------------------------


async def test_one_item_a_slot_and_step_however_many_questions_wait(autojump_clock: MockClock) -> None:
    steps: list[Work] = []
    async with running_worker(worker_spec(slots=2, steps=steps)) as (worker, _):
        async with worker.lease({}, 1.0) as busy, worker.lease({}, 1.0) as calm, trio.open_nursery() as nursery:
            for value in range(5):
                nursery.start_soon(busy.step, Echo(value))
            await calm.step(Echo("calm"))
    slots = [[slot for slot, _, _ in work.items] for work in steps]
    assert sum(step.count(0) for step in slots) == 5
    assert all(step.count(0) <= 1 for step in slots)
    assert any(1 in step for step in slots[:2]), "a busy slot must not hold up a calm one"


async def test_the_gather_window_collects_slots_that_ask_a_little_later(autojump_clock: MockClock) -> None:
    steps: list[Work] = []
    async with running_worker(worker_spec(slots=3, steps=steps, gather_s=0.005)) as (worker, _):
        async with worker.lease({}, 1.0) as a, worker.lease({}, 1.0) as b, worker.lease({}, 1.0):
            now = Stopwatch()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(a.step, Echo("a"))
                await trio.sleep(0.004)
                nursery.start_soon(b.step, Echo("b"))
            assert now() == 0.105
    assert [len(work.items) for work in steps] == [2]


async def test_the_gather_window_closes_as_soon_as_everybody_has_asked(autojump_clock: MockClock) -> None:
    async with running_worker(worker_spec(slots=3, gather_s=0.005)) as (worker, _):
        async with worker.lease({}, 1.0) as a, worker.lease({}, 1.0) as b:
            now = Stopwatch()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(a.step, Echo("a"))
                await trio.sleep(0.002)
                nursery.start_soon(b.step, Echo("b"))
            assert now() == 0.102


async def test_a_reset_does_not_wait_for_the_gather_window(autojump_clock: MockClock) -> None:
    async with running_worker(worker_spec(slots=1, gather_s=1.0)) as (worker, _):
        async with worker.lease({}, 1.0) as lease:
            await lease.step(Echo("first"))
        now = Stopwatch()
        async with worker.lease({}, 5.0):
            assert now() == 0.0


async def test_an_idle_worker_does_not_step(autojump_clock: MockClock) -> None:
    steps: list[Work] = []
    async with running_worker(worker_spec(slots=4, steps=steps)) as (worker, _):
        async with worker.lease({}, 1.0), worker.lease({}, 1.0) as lease:
            await lease.step(Echo("once"))
            await trio.sleep(100.0)
        async with worker.lease({}, 1.0):
            await trio.sleep(100.0)
    assert [(len(work.items), work.resets) for work in steps] == [(1, ()), (0, (1,))]


async def test_a_thousand_slots(autojump_clock: MockClock) -> None:
    steps: list[Work] = []
    answered: list[object] = []

    async def ask(worker: Worker, number: int) -> None:
        async with worker.lease({"number": number}, 1.0) as lease:
            await all_let.wait()
            answered.append((await lease.step(Echo(number))) == ({"number": number}, 0, number))

    all_let = trio.Event()
    async with running_worker(worker_spec(slots=1000, steps=steps)) as (worker, _), trio.open_nursery() as nursery:
        for number in range(1000):
            nursery.start_soon(ask, worker, number)
        await trio.testing.wait_all_tasks_blocked()
        assert worker.free_slots == 0
        all_let.set()
    assert answered == [True] * 1000
    assert len(steps[0].items) == 1000


# --- delivering ---------------------------------------------------------------------------------------------------


async def test_an_interrupted_call_is_not_delivered_and_the_next_one_gets_its_own_answer(
    autojump_clock: MockClock,
) -> None:
    async with running_worker(worker_spec(slots=1, step_s=1.0)) as (worker, seen):
        async with worker.lease({}, 1.0) as lease:
            now = Stopwatch()
            with trio.move_on_after(0.5):
                await lease.step(Echo("old"))
            assert now() == 0.5, "an interruption does not wait for the step"
            assert await lease.step(Echo("new")) == ({}, 1, "new"), "the row keeps what it heard"
            assert now() == 2.0
        assert [type(o) for o in seen].count(OutputDropped) == 1


async def test_steps_are_timed(autojump_clock: MockClock) -> None:
    async with running_worker(worker_spec(step_s=0.25)) as (worker, seen):
        async with worker.lease({}, 1.0) as lease:
            await lease.step(Echo("x"))
            timed = [observation for observation in seen if isinstance(observation, StepTimed)]
            assert [(o.worker, round(o.seconds, 6), o.items) for o in timed] == [("device", 0.25, 1)]


# --- slots --------------------------------------------------------------------------------------------------------


async def test_a_slot_retired_during_a_step_is_reset_before_it_is_let_again(autojump_clock: MockClock) -> None:
    steps: list[Work] = []
    async with running_worker(worker_spec(slots=1, steps=steps, step_s=1.0)) as (worker, _):
        now = Stopwatch()
        with trio.move_on_after(0.5):
            async with worker.lease({"user": "first"}, 1.0) as lease:
                await lease.step(Echo("cut off"))
        async with worker.lease({"user": "second"}, 5.0) as lease:
            assert now() == 1.0, "the slot is free once the running step is over"
            assert await lease.step(Echo("fresh")) == ({"user": "second"}, 0, "fresh")
    told = [(work.resets, [spec for _, spec in work.opens], len(work.items)) for work in steps]
    assert told[:3] == [((), [{"user": "first"}], 1), ((0,), [], 0), ((), [{"user": "second"}], 1)]


async def test_a_slot_the_device_never_saw_is_free_at_once(autojump_clock: MockClock) -> None:
    steps: list[Work] = []
    async with running_worker(worker_spec(slots=1, steps=steps)) as (worker, _):
        async with worker.lease({}, 1.0):
            assert worker.free_slots == 0
        assert worker.free_slots == 1
        await trio.sleep(1.0)
    assert not steps


async def test_a_lease_waits_for_a_slot_and_gives_up_in_time(autojump_clock: MockClock) -> None:
    async with running_worker(worker_spec(slots=1)) as (worker, _):
        async with worker.lease({}, 1.0):
            now = Stopwatch()
            with pytest.raises(LeaseLost, match=r"all 1 slots are in use; waited 2\.5 s"):
                async with worker.lease({}, 2.5):
                    pytest.fail("there was no slot")
            assert now() == 2.5


async def test_a_lease_waits_for_a_worker_that_is_still_loading(autojump_clock: MockClock) -> None:
    worker = Worker(worker_spec(), SlowHost(load_s=3.0), lambda observation: None, lambda: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.run)
        now = Stopwatch()
        with pytest.raises(LeaseLost, match=r"it is not running; waited 1 s"):
            async with worker.lease({}, 1.0):
                pytest.fail("it was not loaded")
        assert not worker.ready
        async with worker.lease({}, 5.0):
            assert now() == 3.0
            assert worker.ready
        nursery.cancel_scope.cancel()


async def test_whoever_gives_up_waiting_makes_way_for_the_next(autojump_clock: MockClock) -> None:
    async def give_up(worker: Worker) -> None:
        with pytest.raises(LeaseLost):
            async with worker.lease({}, 1.0):
                pytest.fail("there was no slot")

    async def be_served(worker: Worker) -> None:
        await trio.sleep(0.1)
        async with worker.lease({}, 10.0):
            served.append(trio.current_time())

    served: list[float] = []
    async with running_worker(worker_spec(slots=1)) as (worker, _), trio.open_nursery() as nursery:
        async with worker.lease({}, 1.0):
            nursery.start_soon(give_up, worker)
            nursery.start_soon(be_served, worker)
            await trio.sleep(5.0)
    assert served == [5.0]


@under_schedules(100)
async def test_slots_are_let_in_the_order_of_asking() -> None:
    served: list[int] = []

    async def borrow(worker: Worker, number: int) -> None:
        async with worker.lease({}, 60.0) as lease:
            served.append(number)
            await lease.step(Echo(number))

    async with running_worker(worker_spec(slots=1)) as (worker, _), trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(borrow, worker, number)
            await trio.sleep(0.01)
        await trio.sleep(0.06)  # the first is just giving its slot back
        nursery.start_soon(borrow, worker, 5)
    assert served == [0, 1, 2, 3, 4, 5]


# --- crashes ------------------------------------------------------------------------------------------------------


async def test_a_crash_is_told_to_every_caller_and_a_new_lease_works(autojump_clock: MockClock) -> None:
    crashes: list[Exception] = []
    async with running_worker(worker_spec(slots=3), crashes=crashes) as (worker, seen):
        now = Stopwatch()
        async with worker.lease({}, 1.0) as a, worker.lease({}, 1.0) as b, trio.open_nursery() as nursery:
            nursery.start_soon(lose, b, Echo("innocent"))
            await lose(a, Crash())
            assert now() == 0.1
            with pytest.raises(LeaseLost, match="device on fire"):
                await b.step(Echo("on the old lease"))
        assert not worker.ready
        async with worker.lease({}, 1.0) as lease:
            assert now() == 0.2, "restarted after the first backoff"
            assert await lease.step(Echo("again")) == ({}, 0, "again")
        assert worker.free_slots + 1 >= 3
    assert [str(crash) for crash in crashes] == ["device on fire"]
    life = [type(o) for o in seen if isinstance(o, WorkerStarted | WorkerLost)]
    assert life == [WorkerStarted, WorkerLost, WorkerStarted, WorkerLost]
    assert [o.cause for o in seen if isinstance(o, WorkerLost)] == ["device on fire", "it was stopped"]


async def test_a_hang_is_a_crash_after_the_step_timeout(autojump_clock: MockClock) -> None:
    crashes: list[Exception] = []
    async with running_worker(worker_spec(step_timeout_s=3.0), crashes=crashes) as (worker, _):
        now = Stopwatch()
        async with worker.lease({}, 1.0) as lease:
            await lose(lease, Hang())
        assert now() == 3.0
        async with worker.lease({}, 1.0) as lease:
            await lease.step(Echo("again"))
    assert [str(crash) for crash in crashes] == ["worker 'device' did not finish a step within 3 s"]


async def test_stopping_a_worker_ends_every_call_at_once(autojump_clock: MockClock) -> None:
    worker = Worker(worker_spec(), SlowHost(), lambda observation: None, lambda: None)
    async with trio.open_nursery() as nursery:
        scope = await nursery.start(run_in_scope, worker)
        async with worker.lease({}, 1.0) as lease:
            nursery.start_soon(cancel_at, scope, 0.5)
            now = Stopwatch()
            with pytest.raises(LeaseLost, match="it was stopped"):
                await lease.step(Echo("slow", seconds=2.0))
            assert now() == 0.5


async def test_readiness_changes_are_told(autojump_clock: MockClock) -> None:
    told: list[bool] = []
    worker = Worker(worker_spec(), SlowHost(), lambda observation: None, lambda: told.append(worker.ready))
    async with trio.open_nursery() as nursery:
        scope = await nursery.start(run_in_scope, worker)
        async with worker.lease({}, 1.0):
            scope.cancel()
    assert told == [True, False]


# --- everything at once -------------------------------------------------------------------------------------------


class Books(list[Work]):
    """The steps of a device; checks at every one that each slot is in exactly one place (I8)."""

    worker: Worker | None = None

    def append(self, work: Work) -> None:
        shift = self.worker._shift if self.worker else None
        if shift is not None and self.worker is not None:
            slots = [*shift.free, *shift.let, *shift.retired]
            assert sorted(slots) == list(range(self.worker.spec.slots)), "a slot is lost, or in two places"
        super().append(work)


@attrs.frozen
class Interrupted:
    """Ask, and go away after `after_s`."""

    question: object
    after_s: float


DELAYS = st.floats(0.0, 0.5).map(lambda seconds: round(seconds, 2))
QUESTIONS = st.one_of(
    st.builds(Echo, st.none(), DELAYS),
    st.builds(Count, st.integers(1, 5), st.integers(1, 2)),
    st.builds(Fail),
)
MOVES = st.one_of(
    QUESTIONS, QUESTIONS, st.builds(Interrupted, QUESTIONS, DELAYS), st.builds(Interrupted, st.just(Hang()), DELAYS)
)
USERS = st.lists(st.lists(st.lists(MOVES, max_size=4), max_size=3), min_size=1, max_size=4)


class User:
    """Takes one lease after the other and checks every answer it gets (I9)."""

    def __init__(self, worker: Worker, number: int) -> None:
        self._worker = worker
        self._number = number
        self._questions = 0

    async def live(self, leases: list[list[object]]) -> None:
        for visit, moves in enumerate(leases):
            self._row = {"user": self._number, "visit": visit}
            self._rank = -1
            try:
                async with self._worker.lease(self._row, 100.0) as lease:
                    for move in moves:
                        await self._make(lease, move)
            except LeaseLost:
                pass

    async def _make(self, lease: WorkerLease, move: object) -> None:
        if isinstance(move, Interrupted):
            with trio.move_on_after(move.after_s):
                await self._make(lease, move.question)
        elif isinstance(move, Echo):
            self._questions += 1
            mine = (self._number, self._questions)
            row, rank, value = await lease.step(attrs.evolve(move, value=mine))
            assert (row, value) == (self._row, mine), "an answer to another question, or from another row"
            assert rank > self._rank, "an answer out of order"
            self._rank = rank
        elif isinstance(move, Count):
            async with lease.stream(move) as answers:
                assert [answer async for answer in answers] == list(range(1, move.to + 1))
        elif isinstance(move, Fail):
            with pytest.raises(StepFailed):
                await lease.step(move)
        else:
            await lease.step(move)


@settings(max_examples=300, deadline=None, database=None)
@given(schedule=st.random_module(), users=USERS, crash_at=st.none() | DELAYS, slots=st.integers(1, 3))
@on_virtual_clock
async def test_whatever_callers_do_answers_are_their_own_and_no_slot_is_lost(
    schedule: object, users: list[list[list[object]]], crash_at: float | None, slots: int
) -> None:
    books = Books()
    crashes: list[Exception] = []
    spec = worker_spec(slots=slots, steps=books, step_timeout_s=1.0)
    async with running_worker(spec, budget=RestartBudget(restarts=1000), crashes=crashes) as (worker, _):
        books.worker = worker
        async with trio.open_nursery() as nursery:
            for number, leases in enumerate(users):
                nursery.start_soon(User(worker, number).live, leases)
            if crash_at is not None:
                await trio.sleep(crash_at)
                with pytest.raises(LeaseLost):
                    async with worker.lease({}, 100.0) as lease:
                        await lease.step(Crash())
        await trio.sleep(20.0)
        assert worker._shift is not None
        assert worker.free_slots == slots, "a slot was not given back"
        assert not worker._shift.has_work
        count = len(books)
        await trio.sleep(20.0)
        assert len(books) == count, "the device is stepped for nobody"
    assert {str(crash) for crash in crashes} <= {
        "device on fire",
        "worker 'device' did not finish a step within 1 s",
    }, "the device was asked something illegal"


# --- fixtures of this page ----------------------------------------------------------------------------------------


class SlowHost(InlineHost):
    """An inline host whose steppers take their time to load."""

    def __init__(self, load_s: float = 0.0) -> None:
        self._load_s = load_s

    @asynccontextmanager
    async def open(
        self, spec: WorkerSpec, progress: Progress, on_end: Callable[[], object] = ignore
    ) -> AsyncIterator[HostedStepper]:
        await trio.sleep(self._load_s)
        async with super().open(spec, progress, on_end) as stepper:
            yield stepper


async def run_in_scope(worker: Worker, *, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
    with trio.CancelScope() as scope:
        task_status.started(scope)
        await worker.run()


async def cancel_at(scope: trio.CancelScope, after_s: float) -> None:
    await trio.sleep(after_s)
    scope.cancel()


async def lose(lease: WorkerLease, question: object) -> None:
    with pytest.raises(LeaseLost):
        await lease.step(question)
