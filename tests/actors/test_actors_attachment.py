"""Attachment: one guest at a time, the newest claimant wins, and nothing of a replaced one takes effect any more."""

import random

import pytest
import trio
from actors_kit import under_schedules

from duplex_engine.actors.attachment import Attachment, AttachmentPoint
from duplex_engine.config import SessionLimits
from duplex_engine.errors import JournalGap, LocalProtocolError, ResumeRefused
from duplex_engine.protocol.commands import ResumeSession
from duplex_engine.protocol.events import HeartbeatAcknowledged
from duplex_engine.protocol.journal import Journal


def new_journal() -> Journal:
    return Journal(SessionLimits(), session_id="duplex-0", now=trio.current_time, resumable=True, numbered=True)


def new_point(changes: list[bool] | None = None) -> AttachmentPoint:
    def changed() -> None:
        if changes is not None:
            changes.append(point.current is not None)

    point = AttachmentPoint(new_journal(), changed, resumable=True)
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


def claim(token: str | None, seen: int = 0) -> ResumeSession:
    return ResumeSession(session_id="duplex-0", resume_token=token or "", last_received_server_event_seq=seen)


async def test_a_claim_needs_the_newest_token() -> None:
    point = new_point()
    with point.attach() as first:
        point.check(claim(first.resume_token))
        refusal = refusal_of(point, claim("another"))
        assert (refusal.code, refusal.param) == ("invalid_resume_token", "resume_token")
        assert not first.replaced, "a refused claim harms nobody"


async def test_the_token_before_is_good_until_the_new_one_has_arrived() -> None:
    point = new_point()
    with point.attach() as first:
        pass
    with point.attach(0, first.resume_token) as second:
        point.check(claim(first.resume_token))
        point.arrived(second)
        assert refusal_of(point, claim(first.resume_token)).code == "invalid_resume_token"
        point.check(claim(second.resume_token))
    assert (first.generation, second.generation, first.resumed, second.resumed) == (1, 2, False, True)


async def test_a_replaced_guest_proves_nothing() -> None:
    point = new_point()
    with point.attach() as first:
        with point.attach(0, first.resume_token) as second:
            point.arrived(first)
            point.check(claim(first.resume_token))
            point.check(claim(second.resume_token))


async def test_a_claim_ahead_of_the_journal_is_a_conflict_and_one_behind_it_a_gap() -> None:
    journal = new_journal()
    for _ in range(3):
        journal.append(HeartbeatAcknowledged(session_id="duplex-0"))
    point = AttachmentPoint(journal, lambda: None, resumable=True)
    with point.attach() as guest:
        guest.cursor.take(10_000)
        journal.trim(2)
        assert refusal_of(point, claim(guest.resume_token, 4)).code == "session_resume_conflict"
        with pytest.raises(JournalGap):
            point.check(claim(guest.resume_token, 1))
        point.check(claim(guest.resume_token, 2))


async def test_what_cannot_be_resumed_gives_no_token() -> None:
    point = AttachmentPoint(new_journal(), lambda: None, resumable=False)
    with point.attach() as guest:
        assert guest.resume_token is None
        assert refusal_of(point, claim("x")).code == "unsupported_session_resume"


async def test_a_guest_is_told_when_it_is_replaced() -> None:
    point = new_point()
    told: list[str] = []
    with point.attach() as first:
        first.on_replaced = lambda: told.append("first")
        with point.attach():
            assert told == ["first"]


def refusal_of(point: AttachmentPoint, refused: ResumeSession) -> ResumeRefused:
    with pytest.raises(ResumeRefused) as caught:
        point.check(refused)
    return caught.value


async def test_a_guest_reads_behind_where_it_left_off() -> None:
    journal = new_journal()
    for _ in range(3):
        journal.append(HeartbeatAcknowledged(session_id="duplex-0"))
    point = AttachmentPoint(journal, lambda: None, resumable=True)
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
