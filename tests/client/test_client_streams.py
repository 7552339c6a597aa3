"""The bounded queue under many schedules: nothing is taken twice, nothing is lost but the counted oldest."""

import gc

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from duplex_engine.client.errors import DuplexSessionClosedError
from duplex_engine.client.streams import DropOldest, Ending, Stream


@settings(max_examples=100, deadline=None)
@given(st.random_module(), st.lists(st.booleans(), min_size=1, max_size=30), st.integers(1, 4))
def test_cancelled_takers_lose_nothing(random_module, cancels, capacity):
    async def main() -> None:
        queue: DropOldest[int] = DropOldest(1000)
        taken: list[int] = []

        async def take(cancelled: bool) -> None:
            with trio.CancelScope() as scope:
                if cancelled:
                    nursery.start_soon(cancel, scope)
                while True:
                    try:
                        taken.append(await queue.get())
                    except DuplexSessionClosedError:
                        return

        async def cancel(scope: trio.CancelScope) -> None:
            await trio.lowlevel.checkpoint()
            scope.cancel()

        async with trio.open_nursery() as nursery:
            for cancelled in cancels:
                nursery.start_soon(take, cancelled)
                queue.put(len(taken))
                for _ in range(capacity):
                    await trio.lowlevel.checkpoint()
            put = len(cancels)
            queue.end(Ending("done"))
        left = len(queue._entries)
        assert len(taken) + left == put

    trio.run(main)


async def test_entries_before_the_end_are_still_delivered_and_the_end_repeats():
    queue: DropOldest[int] = DropOldest()
    queue.put(1)
    queue.fail(ValueError("in between"))
    queue.put(2)
    queue.end(Ending("over", expected=False, lost=True))
    queue.put(3)
    assert await queue.get() == 1
    with pytest.raises(ValueError, match="in between"):
        await queue.get()
    assert await queue.get() == 2
    for _ in range(2):
        with pytest.raises(DuplexSessionClosedError, match="over"):
            await queue.get()


async def test_closing_a_stream_ends_the_task_that_waits_on_it(autojump_clock):
    queue: DropOldest[int] = DropOldest()
    stream = Stream(queue, queue.get, lambda: queue.end(Ending("closed")))
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def consume() -> None:
            assert [item async for item in stream] == []

        await trio.testing.wait_all_tasks_blocked()
        await stream.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_a_forgotten_subscription_costs_nothing():
    from duplex_engine.client import DuplexClient

    client = DuplexClient("ws://127.0.0.1:1")
    kept = client.events()
    client.events()
    gc.collect()
    assert len(client._event_queues) == 1
    kept.close()
    assert len(client._event_queues) == 0
