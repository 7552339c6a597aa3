"""Everything a session has said, in order, for as long as somebody may still need it (wire contract 2.9, D-19, D-20).

Owns numbering, encoding (once per event), retention and reading positions. Never waits: waking readers is its owner's
job. Entries form a chain and a cursor holds the place it has passed, so appending, taking and dropping cost the same
however long the session is.
"""

from collections.abc import Callable

import attrs

from duplex_engine.config import SessionLimits
from duplex_engine.errors import LocalProtocolError, ProtocolViolation
from duplex_engine.protocol.encode import encode_event
from duplex_engine.protocol.events import ResyncRequired, ServerEvent
from duplex_engine.protocol.ids import EventIds


@attrs.frozen(eq=False)
class Entry:
    """One event as it was said. `seq` is None for events without a number; `at`: seconds on the journal's clock."""

    seq: int | None
    frame: bytes
    event: ServerEvent
    at: float


@attrs.define(eq=False)
class _Place:
    """A place in the chain; `number` grows along it."""

    number: int = 0
    next: "_Link | None" = attrs.field(default=None, init=False)


@attrs.define(eq=False, kw_only=True)
class _Link(_Place):
    """The place behind an entry."""

    entry: Entry


class Journal:
    """The events of one session.

    `now`: the session's clock in seconds. `numbered`: events carry sequence numbers from 1 (profile `strict`).
    `resumable`: events are kept for replay until acknowledged or `limits.journal_s` old; what does not fit into
    `limits.journal_bytes` then ends resuming for good (`overflowed`). Entries that a cursor has still to pass stay.
    Without any cursor a journal that is not resumable keeps the newest, within the same age and size.
    """

    def __init__(
        self, limits: SessionLimits, *, session_id: str, now: Callable[[], float], resumable: bool, numbered: bool
    ) -> None:
        self.head = 0
        self.closed = False
        self.overflowed = False
        self._limits = limits
        self._session_id = session_id
        self._now = now
        self._resumable = resumable
        self._numbered = numbered
        self._ids = EventIds()
        self._dropped: _Place = _Place()
        self._furthest = self._last = self._dropped
        self._places = 0
        self._gone = 0
        self._acknowledged = 0
        self._kept_bytes = 0
        self._said_bytes = 0
        self._said_events = 0
        self._cursors: list[Cursor] = []

    # --- writing ------------------------------------------------------------------------------------------------

    def append(self, event: ServerEvent) -> Entry:
        """Say an event. Raises LocalProtocolError once closed."""
        if self.closed:
            raise LocalProtocolError(f"{event.TYPE} was said after the session's last word")
        entry = self._entry(event)
        if self.resumable and self._kept_bytes + len(entry.frame) > self._limits.journal_bytes:
            self._drop()
            if self._kept_bytes + len(entry.frame) > self._limits.journal_bytes:
                self._overflow()
                entry = self._entry(event)
        self._add(entry)
        if not self._cursors:  # otherwise readers do it, when they move on
            self._drop()
        return entry

    def purge(self, unwanted: Callable[[Entry], bool]) -> int:
        """Remove the unwanted entries that no cursor has ever passed; their numbers stay unused. Returns how many."""
        purged = 0
        before = self._furthest
        while (link := before.next) is not None:
            if unwanted(link.entry):
                before.next = link.next
                self._kept_bytes -= len(link.entry.frame)
                self._said_bytes -= len(link.entry.frame)
                for cursor in self._cursors:
                    cursor._purged(link)
                purged += 1
            else:
                before = link
        self._last = before
        self._said_events -= purged
        return purged

    def trim(self, seq: int) -> None:
        """The client has processed all up to `seq`. Raises ProtocolViolation `invalid_event_ack` beyond the head."""
        if seq > self.head:
            raise ProtocolViolation(
                "invalid_event_ack", f"{seq} was never sent; the newest event is {self.head}", "server_event_seq"
            )
        self._acknowledged = max(self._acknowledged, seq)
        self._drop()

    def close(self) -> None:
        """Nothing more will be said; cursors read what is left. Where there has been a reader no other comes."""
        self.closed = True
        if self._furthest.number:
            self._let_go()

    def _let_go(self) -> None:
        """Free what is over once its last reader has left: the session itself may wait long for the garbage collector."""
        if not self._cursors:
            self._furthest = self._last
            while (link := self._dropped.next) is not None:
                self._dropped = link
            self._kept_bytes = 0

    # --- reading ------------------------------------------------------------------------------------------------

    @property
    def resumable(self) -> bool:
        """Whether a client that lost its connection can still be told everything it missed."""
        return self._resumable and not self.overflowed

    def bridges(self, seq: int) -> bool:
        """Whether a client that saw everything up to `seq` can be told all the rest."""
        return self.resumable and self._gone <= seq <= self.head

    def cursor(self, after: int = 0) -> "Cursor":
        """A reading position behind the event numbered `after`, or at the oldest entry that is left."""
        start = self._dropped
        while (link := start.next) is not None and link.entry.seq is not None and link.entry.seq <= after:
            start = link
        cursor = Cursor(self, start)
        self._cursors.append(cursor)
        self._reached(start)
        return cursor

    def _reached(self, place: _Place) -> None:
        if place.number > self._furthest.number:
            self._furthest = place
        self._drop()

    def _forget(self, cursor: "Cursor") -> None:
        self._cursors.remove(cursor)
        self._drop()
        if self.closed:
            self._let_go()

    # --- the chain ----------------------------------------------------------------------------------------------

    def _entry(self, event: ServerEvent) -> Entry:
        seq = self.head + 1 if self._numbered and not self.overflowed else None
        return Entry(seq, encode_event(event, event_id=self._ids(), seq=seq), event, self._now())

    def _add(self, entry: Entry) -> None:
        self._places += 1  # never used again, even if this one is purged
        link = _Link(self._places, entry=entry)
        self._last.next = link
        self._last = link
        self._kept_bytes += len(entry.frame)
        self._said_bytes += len(entry.frame)
        self._said_events += 1
        self.head = self.head if entry.seq is None else entry.seq

    def _overflow(self) -> None:
        self.overflowed = True
        self._add(self._entry(ResyncRequired(session_id=self._session_id, reason="journal_overflow")))

    def _drop(self) -> None:
        """Let go, from the oldest on, of what nobody will read any more."""
        passed = min((cursor.place.number for cursor in self._cursors), default=None)
        too_old = self._now() - self._limits.journal_s
        while (link := self._dropped.next) is not None and self._droppable(link, passed, too_old):
            self._dropped = link
            self._kept_bytes -= len(link.entry.frame)
            self._gone = self._gone if link.entry.seq is None else link.entry.seq
        if self._dropped.number > self._furthest.number:
            self._furthest = self._dropped  # or the chain before it would never be freed

    def _droppable(self, link: _Link, passed: int | None, too_old: float) -> bool:
        if passed is not None and link.number > passed:
            return False
        if link.entry.at < too_old:
            return True
        if self.resumable:
            return link.entry.seq is not None and link.entry.seq <= self._acknowledged
        return passed is not None or self._kept_bytes > self._limits.journal_bytes


class Cursor:
    """A reader's position in a journal. Closing it lets the journal go of what only this reader had still to read."""

    def __init__(self, journal: Journal, start: _Place) -> None:
        self.place = start
        self._journal = journal
        self._closed = False
        self._passed_bytes = journal._said_bytes
        self._passed_events = journal._said_events
        self._replay_bytes = self._replay_events = 0
        self._found = journal._last.number
        while (link := start.next) is not None:
            self._replay_bytes += len(link.entry.frame)
            self._replay_events += 1
            start = link
        self._passed_bytes -= self._replay_bytes
        self._passed_events -= self._replay_events

    @property
    def backlog(self) -> tuple[int, int]:
        """Bytes and events that this reader has still to take."""
        if self._closed:
            return 0, 0
        return self._journal._said_bytes - self._passed_bytes, self._journal._said_events - self._passed_events

    @property
    def behind(self) -> tuple[int, int]:
        """The part of the backlog that was said since this reader came: a replay is no sign of a slow reader."""
        waiting_bytes, waiting_events = self.backlog
        return max(waiting_bytes - self._replay_bytes, 0), max(waiting_events - self._replay_events, 0)

    def take(self, max_bytes: int) -> list[Entry]:
        """The next entries, in order: at least one if there is any, together at most `max_bytes` unless it is one."""
        if self._closed:
            raise LocalProtocolError("this cursor is closed")
        batch: list[Entry] = []
        place, size = self.place, 0
        while (link := place.next) is not None:
            size += len(link.entry.frame)
            if batch and size > max_bytes:
                size -= len(link.entry.frame)
                break
            batch.append(link.entry)
            place = link
        if batch:
            self._pass(place, size, len(batch))
        return batch

    def close(self) -> None:
        """Give the position up; doing so twice is fine."""
        if not self._closed:
            self._closed = True
            self.place = _Place()
            self._journal._forget(self)

    def _purged(self, link: _Link) -> None:
        if link.number <= self._found:
            self._replay_bytes -= len(link.entry.frame)
            self._replay_events -= 1

    def _pass(self, place: _Place, size: int, count: int) -> None:
        self.place = place
        replayed = place.number >= self._found
        self._replay_bytes = 0 if replayed else self._replay_bytes - size
        self._replay_events = 0 if replayed else self._replay_events - count
        self._passed_bytes += size
        self._passed_events += count
        self._journal._reached(place)
