"""The journal with a wake-up: every follower sees every event once, in order, and then the end."""

import trio
from actors_kit import under_schedules
from trio.testing import MockClock

from duplex_engine.actors.feed import JournalFeed
from duplex_engine.config import SessionLimits
from duplex_engine.protocol.events import HeartbeatAcknowledged
from duplex_engine.protocol.journal import Cursor, Journal


def new_feed() -> JournalFeed:
    return JournalFeed(
        Journal(SessionLimits(), session_id="duplex-0", now=trio.current_time, resumable=True, numbered=True)
    )


def say(feed: JournalFeed) -> None:
    feed.append(HeartbeatAcknowledged(session_id="duplex-0"))


async def follow(feed: JournalFeed, cursor: Cursor, seen: list[int | None]) -> None:
    while batch := await feed.next_batch(cursor, 200):
        seen += [entry.seq for entry in batch]


async def test_a_follower_sleeps_until_something_is_said(autojump_clock: MockClock) -> None:
    feed, seen = new_feed(), []
    cursor = feed.journal.cursor()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow, feed, cursor, seen)
        await trio.sleep(1.0)
        assert seen == []
        say(feed)
        say(feed)
        await trio.testing.wait_all_tasks_blocked()
        assert seen == [1, 2]
        feed.close()
    assert trio.current_time() == 1.0


async def test_what_was_said_before_the_end_is_still_read(autojump_clock: MockClock) -> None:
    feed, seen = new_feed(), []
    cursor = feed.journal.cursor()
    for _ in range(5):
        say(feed)
    feed.close()
    await follow(feed, cursor, seen)
    assert seen == [1, 2, 3, 4, 5]


async def test_a_follower_that_is_cancelled_takes_nothing(autojump_clock: MockClock) -> None:
    feed = new_feed()
    cursor = feed.journal.cursor()
    say(feed)
    with trio.CancelScope() as scope:
        scope.cancel()
        await feed.next_batch(cursor, 200)
    assert scope.cancelled_caught
    assert [entry.seq for entry in await feed.next_batch(cursor, 200)] == [1]


@under_schedules(100)
async def test_followers_see_everything_once_however_they_are_scheduled() -> None:
    feed = new_feed()
    seen: list[list[int | None]] = [[] for _ in range(3)]
    async with trio.open_nursery() as nursery:
        for mine in seen:
            nursery.start_soon(follow, feed, feed.journal.cursor(), mine)
        for pause in range(20):
            say(feed)
            if pause % 3 == 0:
                await trio.lowlevel.checkpoint()
        feed.close()
    assert seen == [list(range(1, 21))] * 3
