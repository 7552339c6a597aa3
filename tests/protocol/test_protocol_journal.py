"""The journal keeps order, loses nothing but what was purged, repeats nothing, and stays within its bounds."""

import json
import tracemalloc

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from duplex_engine.config import SessionLimits
from duplex_engine.errors import LocalProtocolError, ProtocolViolation
from duplex_engine.protocol.events import (
    InputCleared,
    OutputAudioDelta,
    ResyncRequired,
    ServerEvent,
    TranscriptDelta,
)
from duplex_engine.protocol.journal import Cursor, Entry, Journal


def text(delta: str) -> TranscriptDelta:
    return TranscriptDelta(response_id="r", item_id="item_r", delta=delta)


def audio(response_id: str = "r", size: int = 3) -> OutputAudioDelta:
    return OutputAudioDelta(
        response_id=response_id, item_id="i", audio=b"\0" * size, format="pcm16", sample_rate_hz=24000
    )


def is_audio(entry: Entry) -> bool:
    return type(entry.event) is OutputAudioDelta


def is_audio_of(entry: Entry, response_id: str) -> bool:
    return isinstance(entry.event, OutputAudioDelta) and entry.event.response_id == response_id


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


def new_journal(
    *, resumable: bool = True, numbered: bool = True, clock: Clock | None = None, journal_bytes: int = 1_000_000
) -> Journal:
    return Journal(
        SessionLimits(journal_bytes=journal_bytes, journal_s=60.0),
        session_id="duplex-1",
        now=clock or Clock(),
        resumable=resumable,
        numbered=numbered,
    )


def seqs(entries: list[Entry]) -> list[int | None]:
    return [entry.seq for entry in entries]


EVERYTHING = 1_000_000_000


def test_numbers_ids_and_frames() -> None:
    journal = new_journal()
    entries = [journal.append(text(delta)) for delta in "abc"]
    assert seqs(entries) == [1, 2, 3]
    assert journal.head == 3
    said = [json.loads(entry.frame) for entry in entries]
    assert [frame["server_event_seq"] for frame in said] == [1, 2, 3]
    assert [frame["delta"] for frame in said] == ["a", "b", "c"]
    assert len({frame["event_id"] for frame in said}) == 3


def test_without_numbers() -> None:
    journal = new_journal(resumable=False, numbered=False)
    entry = journal.append(text("a"))
    assert (entry.seq, journal.head) == (None, 0)
    assert "server_event_seq" not in json.loads(entry.frame)
    assert journal.cursor().take(EVERYTHING) == [entry]
    with pytest.raises(ProtocolViolation):
        journal.trim(1)


def test_take_is_bounded_by_bytes_but_never_stuck() -> None:
    journal = new_journal()
    cursor = journal.cursor()
    frames = [journal.append(text("x" * 100)).frame for _ in range(5)]
    assert seqs(cursor.take(1)) == [1]
    assert seqs(cursor.take(len(frames[1]) + len(frames[2]))) == [2, 3]
    assert cursor.backlog == (len(frames[3]) + len(frames[4]), 2)
    assert seqs(cursor.take(EVERYTHING)) == [4, 5]
    assert cursor.take(EVERYTHING) == []
    assert cursor.backlog == (0, 0)


def test_replay_is_the_same_bytes() -> None:
    journal = new_journal()
    first = journal.cursor()
    for delta in "abcd":
        journal.append(text(delta))
    live = first.take(EVERYTHING)
    first.close()
    assert journal.bridges(2)
    assert journal.cursor(2).take(EVERYTHING) == live[2:]


def test_acknowledged_entries_go_and_gaps_are_known() -> None:
    journal = new_journal()
    cursor = journal.cursor()
    for delta in "abcd":
        journal.append(text(delta))
    journal.trim(2)
    journal.trim(1)
    assert journal.bridges(0), "not passed by the reader yet"
    cursor.take(EVERYTHING)
    assert [journal.bridges(seq) for seq in range(6)] == [False, False, True, True, True, False]
    assert seqs(journal.cursor(0).take(EVERYTHING)) == [3, 4]
    journal.trim(1)
    assert not journal.bridges(1)


def test_an_acknowledgement_from_the_future_changes_nothing() -> None:
    journal = new_journal()
    journal.append(text("a"))
    with pytest.raises(ProtocolViolation) as caught:
        journal.trim(2)
    assert (caught.value.code, caught.value.param) == ("invalid_event_ack", "server_event_seq")
    assert journal.bridges(0)


def test_age_ends_replay_but_not_delivery() -> None:
    clock = Clock()
    journal = new_journal(clock=clock)
    cursor = journal.cursor()
    journal.append(text("a"))
    clock.time = 61.0
    journal.append(text("b"))
    assert seqs(cursor.take(EVERYTHING)) == [1, 2]
    assert not journal.bridges(0)
    assert journal.bridges(1)


def test_overflow_ends_resuming_once_and_for_all() -> None:
    journal = new_journal(journal_bytes=1000)
    cursor = journal.cursor()
    entries = [journal.append(text("x" * 200)) for _ in range(4)]
    assert seqs(entries) == [1, 2, None, None]
    assert journal.overflowed
    assert not journal.resumable
    assert not journal.bridges(2)
    batch = cursor.take(EVERYTHING)
    assert [type(entry.event) for entry in batch].count(ResyncRequired) == 1
    assert seqs(batch) == [1, 2, None, None, None]
    assert json.loads(batch[2].frame)["reason"] == "journal_overflow"
    assert json.loads(batch[2].frame)["session_id"] == "duplex-1"
    journal.trim(2)
    assert journal.append(text("late")).seq is None


def test_acknowledging_prevents_overflow() -> None:
    journal = new_journal(journal_bytes=1000)
    cursor = journal.cursor()
    for seq in range(1, 20):
        journal.append(text("x" * 200))
        cursor.take(EVERYTHING)
        journal.trim(seq)
    assert not journal.overflowed


def test_old_entries_make_room_before_anything_overflows() -> None:
    clock = Clock()
    journal = new_journal(clock=clock, journal_bytes=1000)
    for _ in range(10):
        journal.append(text("x" * 200))
        clock.time += 40.0
    assert not journal.overflowed


def test_a_journal_that_nobody_reads_keeps_the_newest() -> None:
    journal = new_journal(resumable=False, journal_bytes=1000)
    for _ in range(10):
        journal.append(text("x" * 200))
    assert seqs(journal.cursor().take(EVERYTHING)) == [9, 10]


def test_what_is_not_resumable_is_dropped_once_read() -> None:
    journal = new_journal(resumable=False)
    slow, fast = journal.cursor(), journal.cursor()
    journal.append(text("a"))
    fast.take(EVERYTHING)
    assert seqs(journal.cursor().take(EVERYTHING)) == [1]
    slow.take(EVERYTHING)
    assert journal.cursor().take(EVERYTHING) == []
    assert not journal.bridges(1)


def test_closing_a_cursor_frees_what_only_it_needed() -> None:
    journal = new_journal(resumable=False)
    slow, fast = journal.cursor(), journal.cursor()
    journal.append(text("a"))
    fast.take(EVERYTHING)
    slow.close()
    slow.close()
    assert journal.cursor().take(EVERYTHING) == []
    assert slow.backlog == (0, 0)
    with pytest.raises(LocalProtocolError):
        slow.take(1)


def test_purge_spares_what_a_reader_has_passed() -> None:
    journal = new_journal()
    fast, slow = journal.cursor(), journal.cursor()
    journal.append(audio("a"))
    fast.take(EVERYTHING)
    journal.append(audio("a"))
    journal.append(text("words"))
    journal.append(audio("b"))
    journal.append(audio("a"))
    unwanted = journal.cursor(1).take(1)
    assert seqs(unwanted) == [2], "a third reader has passed the second event"
    assert journal.purge(lambda entry: is_audio_of(entry, "a")) == 1
    journal.append(text("end"))
    assert seqs(slow.take(EVERYTHING)) == [1, 2, 3, 4, 6]
    assert seqs(fast.take(EVERYTHING)) == [2, 3, 4, 6]


def test_purge_of_everything() -> None:
    journal = new_journal()
    cursor = journal.cursor()
    for _ in range(3):
        journal.append(audio())
    assert journal.purge(is_audio) == 3
    assert journal.purge(is_audio) == 0
    assert cursor.backlog == (0, 0)
    assert cursor.take(EVERYTHING) == []
    entry = journal.append(InputCleared())
    assert entry.seq == 4
    assert cursor.take(EVERYTHING) == [entry]


def test_the_last_word() -> None:
    journal = new_journal()
    cursor = journal.cursor()
    journal.append(text("bye"))
    journal.close()
    assert journal.closed
    with pytest.raises(LocalProtocolError):
        journal.append(text("and"))
    assert seqs(cursor.take(EVERYTHING)) == [1]


@pytest.mark.parametrize("resumable", [True, False])
def test_memory_stays_flat_while_the_reader_keeps_up(resumable: bool) -> None:
    journal = new_journal(resumable=resumable)
    cursor = journal.cursor()

    def talk(events: int) -> None:
        for _ in range(events):
            entry = journal.append(audio(size=2000))
            cursor.take(EVERYTHING)
            if resumable and entry.seq is not None:
                journal.trim(entry.seq)

    talk(100)
    tracemalloc.start()
    talk(100)
    before, _ = tracemalloc.get_traced_memory()
    talk(2000)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 20_000


@pytest.mark.parametrize("attached", [True, False], ids=["read to the end", "left before the end"])
def test_a_closed_journal_keeps_nothing_once_its_last_reader_has_left(attached: bool) -> None:
    journal = new_journal()
    cursor = journal.cursor()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(400):
        journal.append(audio(size=900))
    assert len(cursor.take(300_000)) < 300
    if attached:
        journal.close()
        assert cursor.take(400_000)[-1].seq == 400
        cursor.close()
    else:
        cursor.close()
        journal.close()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 50_000
    assert not journal.cursor().take(1_000)


def test_the_last_word_waits_for_a_reader_who_comes_late() -> None:
    journal = new_journal()
    journal.append(text("only"))
    journal.close()
    assert [entry.seq for entry in journal.cursor().take(1_000)] == [1]


def test_memory_is_bounded_while_nobody_reads() -> None:
    journal = new_journal(resumable=False, journal_bytes=20_000)

    def talk(events: int) -> None:
        for _ in range(events):
            journal.append(audio(size=2000))

    talk(100)
    tracemalloc.start()
    talk(100)
    before, _ = tracemalloc.get_traced_memory()
    talk(2000)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 20_000


def test_a_long_unread_chain_is_freed_without_recursion() -> None:
    journal = new_journal(resumable=False)
    cursor = journal.cursor()
    for _ in range(50_000):
        journal.append(InputCleared())
    cursor.close()
    del journal, cursor


def size_of(entries: list[Entry]) -> tuple[int, int]:
    return sum(len(entry.frame) for entry in entries), len(entries)


class JournalMachine(RuleBasedStateMachine):
    """A journal beside a plain list that never forgets."""

    cursors = Bundle("cursors")

    @initialize(resumable=st.booleans(), numbered=st.booleans(), room=st.sampled_from([2_000, 1_000_000]))
    def open(self, resumable: bool, numbered: bool, room: int) -> None:
        self.clock = Clock()
        self.room = room
        self.journal = new_journal(
            resumable=resumable and numbered, numbered=numbered, clock=self.clock, journal_bytes=room
        )
        self.said: list[Entry] = []
        self.purged: set[Entry] = set()
        self.passed: set[Entry] = set()
        self.taken: dict[Cursor, list[Entry]] = {}
        self.started_at: dict[Cursor, int] = {}
        self.found: dict[Cursor, int] = {}

    def _note(self, entry: Entry) -> None:
        if self.journal.overflowed and not any(type(old.event) is ResyncRequired for old in self.said):
            self.said.append(self._resync())
        self.said.append(entry)

    def _resync(self) -> Entry:
        probe = self.journal.cursor()
        found = [entry for entry in self._peek(probe) if type(entry.event) is ResyncRequired]
        probe.close()
        return found[0]

    @staticmethod
    def _peek(cursor: Cursor) -> list[Entry]:
        entries, place = [], cursor.place
        while (link := place.next) is not None:
            entries.append(link.entry)
            place = link
        return entries

    @rule(event=st.one_of(st.builds(text, st.text("ab", max_size=300)), st.builds(audio, st.sampled_from(["a", "b"]))))
    def append(self, event: ServerEvent) -> None:
        self._note(self.journal.append(event))

    @rule(target=cursors)
    def attach(self) -> Cursor:
        cursor = self.journal.cursor()
        self.taken[cursor], self.found[cursor] = [], len(self.said)
        left = self._peek(cursor)
        self.started_at[cursor] = self.said.index(left[0]) if left else len(self.said)
        return cursor

    @rule(target=cursors, data=st.data())
    def resume(self, data: st.DataObject) -> Cursor:
        seq = data.draw(st.integers(0, self.journal.head))
        cursor = self.journal.cursor(seq)
        self.taken[cursor], self.found[cursor] = [], len(self.said)
        left = self._peek(cursor)
        self.started_at[cursor] = self.said.index(left[0]) if left else len(self.said)
        self.passed |= set(self.said[: self.started_at[cursor]]) - self.purged
        if self.journal.bridges(seq):
            missed = [e for e in self.said if e.seq is not None and e.seq > seq and e not in self.purged]
            assert left == missed
        return cursor

    @rule(cursor=cursors, max_bytes=st.integers(1, 2_000))
    def take(self, cursor: Cursor, max_bytes: int) -> None:
        waiting = self._peek(cursor)
        batch = cursor.take(max_bytes)
        assert batch == waiting[: len(batch)]
        assert bool(batch) == bool(waiting)
        assert sum(len(entry.frame) for entry in batch) <= max_bytes or len(batch) == 1
        self.taken[cursor] += batch
        self.passed |= set(batch)

    @rule(cursor=consumes(cursors))
    def detach(self, cursor: Cursor) -> None:
        cursor.close()
        del self.taken[cursor], self.started_at[cursor]

    @rule(response=st.sampled_from(["a", "b"]))
    def purge(self, response: str) -> None:
        present = {entry for cursor in self.taken for entry in self._peek(cursor)}
        newest_passed = max((index for index, entry in enumerate(self.said) if entry in self.passed), default=-1)
        ahead = {e for e in self.said[newest_passed + 1 :] if is_audio_of(e, response) and e not in self.purged}
        count = self.journal.purge(lambda entry: is_audio_of(entry, response))
        assert count <= len(ahead)
        assert count >= len(ahead & present)
        self.purged |= ahead

    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        self.journal.trim(data.draw(st.integers(0, self.journal.head)))

    @rule(seconds=st.sampled_from([1.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.clock.time += seconds

    @invariant()
    def readers_see_everything_in_order_once(self) -> None:
        for cursor, taken in self.taken.items():
            due = [entry for entry in self.said[self.started_at[cursor] :] if entry not in self.purged]
            assert taken + self._peek(cursor) == due
            waiting = self._peek(cursor)
            assert cursor.backlog == size_of(waiting)
            assert cursor.behind == size_of([e for e in waiting if self.said.index(e) >= self.found[cursor]])

    @invariant()
    def numbers_strictly_increase(self) -> None:
        numbers = [entry.seq for entry in self.said if entry.seq is not None]
        assert numbers == sorted(set(numbers))

    @invariant()
    def what_is_kept_is_bounded(self) -> None:
        probe = self.journal.cursor()
        kept = self._peek(probe)
        probe.close()
        if self.journal.resumable:
            assert sum(len(entry.frame) for entry in kept) <= self.room


TestJournalMachine = JournalMachine.TestCase
TestJournalMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
