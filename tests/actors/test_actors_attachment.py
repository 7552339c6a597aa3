"""Attachment: one guest at a time, the newest claimant wins, and nothing of a replaced one takes effect any more."""

import random

import pytest
import trio
from actors_kit import under_schedules

from duplex_engine.actors.attachment import Attachment, AttachmentPoint
from duplex_engine.config import SessionLimits
from duplex_engine.errors import LocalProtocolError
from duplex_engine.protocol.events import HeartbeatAcknowledged
from duplex_engine.protocol.journal import Journal


def new_journal() -> Journal:
    return Journal(SessionLimits(), session_id="duplex-0", now=trio.current_time, resumable=True, numbered=True)


def new_point(changes: list[bool] | None = None) -> AttachmentPoint:
    def changed() -> None:
        if changes is not None:
            changes.append(point.current is not None)

    point = AttachmentPoint(new_journal().cursor, changed)
    return point


async def test_a_guest_comes_and_leaves() -> None:
    changes: list[bool] = []
    point = new_point(changes)
    with point.attach() as guest:
        assert point.current is guest
        assert not guest.replaced
    assert point.current is None
    assert changes == [True, False]


async def test_a_newer_guest_ends_the_block_of_the_older_one() -> None:
    changes: list[bool] = []
    point = new_point(changes)
    left: list[str] = []

    async def older() -> None:
        with point.attach():
            attached.set()
            await trio.sleep_forever()
        left.append("older")

    attached = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(older)
        await attached.wait()
        with point.attach() as newer:
            await trio.testing.wait_all_tasks_blocked()
            assert left == ["older"]
            assert point.current is newer, "the older one leaving does not detach the newer"
            assert changes == [True, True]
    assert changes == [True, True, False]


async def test_a_guest_that_cannot_be_placed_replaces_nobody() -> None:
    def refuse(after: int) -> object:
        raise LocalProtocolError("no such place")

    point = new_point()
    with point.attach() as guest:
        point._new_cursor = refuse  # type: ignore[assignment]
        with pytest.raises(LocalProtocolError), point.attach():
            pytest.fail("there was no place")
        assert not guest.replaced
        assert point.current is guest


async def test_a_guest_reads_behind_where_it_left_off() -> None:
    journal = new_journal()
    for _ in range(3):
        journal.append(HeartbeatAcknowledged(session_id="duplex-0"))
    point = AttachmentPoint(journal.cursor, lambda: None)
    with point.attach(after=2) as guest:
        assert [entry.seq for entry in guest.cursor.take(1000)] == [3]
    with pytest.raises(LocalProtocolError):
        guest.cursor.take(1000)


@under_schedules(1000)
async def test_five_rivals() -> None:
    """I7: commands take effect in the order in which the newest guest gave them, and of a replaced one none at all."""
    point = new_point()
    effects: list[tuple[Attachment, int]] = []
    replaced_at: dict[Attachment, int] = {}

    async def rival(commands: int) -> None:
        for _ in range(random.randrange(3)):
            await trio.lowlevel.checkpoint()
        before = point.current
        with point.attach() as mine:
            if before is not None:
                replaced_at[before] = len(effects)
            assert point.current is mine
            for number in range(commands):
                await trio.lowlevel.checkpoint()
                if not mine.replaced:
                    assert point.current is mine, "two guests at once"
                    effects.append((mine, number))

    async with trio.open_nursery() as nursery:
        for commands in range(3, 8):
            nursery.start_soon(rival, commands)
    assert point.current is None
    for guest, end in replaced_at.items():
        assert guest not in [giver for giver, _ in effects[end:]], "a replaced guest acted"
    for guest in {giver for giver, _ in effects}:
        numbers = [number for giver, number in effects if giver is guest]
        assert numbers == list(range(len(numbers))), "out of order"
