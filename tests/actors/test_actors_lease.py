"""Leases and calls, seen from a caller: what is answered, to whom, and how a call ends."""

import pytest
import trio
from actors_kit import Count, Crash, Echo, Fail, Hang, running_worker, worker_spec
from trio.testing import MockClock

from duplex_engine.actors.lease import QUEUED_CALLS, STREAM_ANSWERS, WorkerLease
from duplex_engine.actors.observations import OutputDropped
from duplex_engine.errors import LeaseLost, StepFailed
from duplex_engine.model_plugins.contract import Stream, Work


async def test_a_question_is_answered_from_its_own_row(autojump_clock: MockClock) -> None:
    async with running_worker(worker_spec(slots=2)) as (worker, _):
        async with worker.lease({"voice": "a"}, 1.0) as a, worker.lease({"voice": "b"}, 1.0) as b:
            assert await a.step(Echo("one")) == ({"voice": "a"}, 0, "one")
            assert await b.step(Echo("two")) == ({"voice": "b"}, 0, "two")
            assert await a.step(Echo("three")) == ({"voice": "a"}, 1, "three")


async def test_a_bad_item_fails_its_caller_only(autojump_clock: MockClock) -> None:
    async with running_worker(worker_spec(slots=2)) as (worker, _):
        async with worker.lease({}, 1.0) as bad, worker.lease({}, 1.0) as good, trio.open_nursery() as nursery:
            nursery.start_soon(good.step, Echo("fine"))
            with pytest.raises(StepFailed, match="could not compute this item: bad item") as failure:
                await bad.step(Fail())
            assert isinstance(failure.value.__cause__, ValueError)
            assert await bad.step(Echo("the lease goes on")) == ({}, 1, "the lease goes on")


async def test_a_stream_gives_all_answers_in_order_and_stops(autojump_clock: MockClock) -> None:
    async with running_worker(worker_spec()) as (worker, _):
        async with worker.lease({}, 1.0) as lease, lease.stream(Count(5)) as answers:
            assert [answer async for answer in answers] == [1, 2, 3, 4, 5]
            with pytest.raises(StopAsyncIteration):
                await anext(answers)


async def test_a_stream_that_had_ended_is_whole_even_if_the_worker_dies_before_it_is_read(
    autojump_clock: MockClock,
) -> None:
    async with running_worker(worker_spec(slots=2)) as (worker, _):
        async with worker.lease({}, 1.0) as lease, worker.lease({}, 1.0) as other:
            async with lease.stream(Count(2, per_step=2)) as answers:
                await trio.sleep(0.15)
                with pytest.raises(LeaseLost):
                    await other.step(Crash())
                assert [answer async for answer in answers] == [1, 2]


async def test_a_stream_cut_short_by_a_crash_says_so_after_what_was_answered(autojump_clock: MockClock) -> None:
    async with running_worker(worker_spec(slots=2)) as (worker, _):
        async with worker.lease({}, 1.0) as lease, worker.lease({}, 1.0) as other:
            async with lease.stream(Count(1000)) as answers:
                await trio.sleep(0.15)
                with pytest.raises(LeaseLost):
                    await other.step(Crash())
                got: list[object] = []
                with pytest.raises(LeaseLost, match="device on fire"):
                    await collect(answers, got)
                assert got == [1, 2]


async def test_leaving_a_stream_midway_stops_it_on_the_device(autojump_clock: MockClock) -> None:
    steps: list[Work] = []
    async with running_worker(worker_spec(steps=steps)) as (worker, seen):
        async with worker.lease({}, 1.0) as lease:
            async with lease.stream(Count(1000)) as answers:
                assert [await anext(answers) for _ in range(3)] == [1, 2, 3]
            assert await lease.step(Echo("next")) == ({}, 1, "next")
            ticket = steps[0].items[0][1]
            assert [work.drops for work in steps if work.drops] == [(ticket,)]
            count = len(steps)
            await trio.sleep(10.0)
            assert len(steps) == count, "the device was stepped for nobody"
    assert sum(isinstance(observation, OutputDropped) for observation in seen) <= 1


async def test_a_caller_that_does_not_take_its_answers_loses_the_call_and_nothing_else(
    autojump_clock: MockClock,
) -> None:
    steps: list[Work] = []
    async with running_worker(worker_spec(steps=steps, slots=2)) as (worker, seen):
        async with worker.lease({}, 1.0) as slow, worker.lease({}, 1.0) as other:
            async with slow.stream(Count(10 * STREAM_ANSWERS, per_step=STREAM_ANSWERS)) as answers:
                await trio.sleep(1.0)
                assert any(isinstance(observation, OutputDropped) for observation in seen)
                got: list[object] = []
                with pytest.raises(StepFailed, match="not taken in time"):
                    await collect(answers, got)
                assert len(got) == STREAM_ANSWERS
            assert [work.drops for work in steps if work.drops] == [(1,)]
            assert await other.step(Echo("fine")) == ({}, 0, "fine")
            count = len(steps)
            await trio.sleep(10.0)
            assert len(steps) == count, "the lost call stayed open"


async def test_a_third_question_waits_until_one_has_gone_to_the_device(autojump_clock: MockClock) -> None:
    steps: list[Work] = []
    async with running_worker(worker_spec(steps=steps, step_s=1.0)) as (worker, _):
        async with worker.lease({}, 1.0) as lease, trio.open_nursery() as nursery:
            for value in range(6):
                nursery.start_soon(lease.step, Echo(value))
            await trio.sleep(0.5)
            assert len(lease.queued) == QUEUED_CALLS
        assert [len(work.items) for work in steps] == [1] * 6


async def test_a_question_taken_back_while_it_waits_never_reaches_the_device(autojump_clock: MockClock) -> None:
    steps: list[Work] = []
    async with running_worker(worker_spec(steps=steps, step_s=1.0)) as (worker, _):
        async with worker.lease({}, 1.0) as lease, trio.open_nursery() as nursery:
            nursery.start_soon(lease.step, Echo("first"))
            await trio.sleep(0.5)
            with trio.move_on_after(0.1):
                await lease.step(Echo("taken back"))
            assert not lease.queued
            await trio.sleep(10.0)
        assert [payload.value for work in steps for _, _, payload in work.items] == ["first"]


async def test_a_question_taken_back_makes_room_for_the_next(autojump_clock: MockClock) -> None:
    async with running_worker(worker_spec(step_s=1.0)) as (worker, _):
        async with worker.lease({}, 1.0) as lease, trio.open_nursery() as nursery:
            nursery.start_soon(lease.step, Echo("on the device"))
            await trio.sleep(0.1)
            nursery.start_soon(lease.step, Echo("waiting"))
            with trio.move_on_after(0.5):
                nursery.start_soon(ask_soon, lease, 0.2)
                await lease.step(Echo("taken back"))
            await trio.testing.wait_all_tasks_blocked()
            assert sorted(call.payload.value for call in lease.queued) == ["next", "waiting"]


async def test_a_lease_used_after_its_block_is_refused(autojump_clock: MockClock) -> None:
    async with running_worker(worker_spec()) as (worker, _):
        async with worker.lease({}, 1.0) as lease:
            await lease.step(Echo("fine"))
        with pytest.raises(LeaseLost, match="the lease's block has ended"):
            await lease.step(Echo("late"))
        with pytest.raises(LeaseLost, match="the lease's block has ended"):
            async with lease.stream(Count(1)):
                pass


@pytest.mark.parametrize("question", [Echo("slow", seconds=2.0), Count(100)])
async def test_a_call_that_another_task_holds_ends_with_the_lease(question: object, autojump_clock: MockClock) -> None:
    steps: list[Work] = []
    ended: list[float] = []

    async def ask(lease: WorkerLease) -> None:
        async with lease.stream(question) as answers:
            with pytest.raises(LeaseLost, match="the lease's block has ended"):
                await collect(answers, [])
        ended.append(trio.current_time())

    async with running_worker(worker_spec(steps=steps)) as (worker, _), trio.open_nursery() as nursery:
        async with worker.lease({}, 1.0) as lease:
            nursery.start_soon(ask, lease)
            await trio.sleep(0.55)
        left = trio.current_time()
        await trio.sleep(5.0)
        assert ended == [left]
        count = len(steps)
        await trio.sleep(5.0)
        assert len(steps) == count, "the device was stepped for nobody"
        assert worker.free_slots == 1


async def test_callers_queued_for_room_learn_that_the_worker_is_lost(autojump_clock: MockClock) -> None:
    lost: list[str] = []

    async def ask(lease: WorkerLease) -> None:
        with pytest.raises(LeaseLost) as loss:
            await lease.step(Echo("never"))
        lost.append(loss.value.cause)

    async with running_worker(worker_spec()) as (worker, _):
        async with worker.lease({}, 1.0) as lease, trio.open_nursery() as nursery:
            nursery.start_soon(ask_and_lose, lease)
            await trio.sleep(0.05)
            for _ in range(5):
                nursery.start_soon(ask, lease)
    assert lost == ["device on fire"] * 5


async def test_a_hang_ends_every_caller_at_the_step_timeout(autojump_clock: MockClock) -> None:
    async with running_worker(worker_spec(slots=2, step_timeout_s=3.0)) as (worker, _):
        async with worker.lease({}, 1.0) as hanging, worker.lease({}, 1.0) as other, trio.open_nursery() as nursery:
            began = trio.current_time()
            nursery.start_soon(ask_and_lose, other, Echo("innocent"))
            with pytest.raises(LeaseLost, match="did not finish a step within 3 s"):
                await hanging.step(Hang())
            assert trio.current_time() == began + 3.0


async def ask_soon(lease: WorkerLease, after_s: float) -> None:
    await trio.sleep(after_s)
    await lease.step(Echo("next"))


async def collect(answers: Stream, into: list[object]) -> None:
    async for answer in answers:
        into.append(answer)


async def ask_and_lose(lease: WorkerLease, question: object = Crash()) -> None:
    with pytest.raises(LeaseLost):
        await lease.step(question)
