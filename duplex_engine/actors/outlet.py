"""All that a session says, and the one guest that reads it.

Owns the journal, who is attached to it, how far a guest may fall behind, and how long an interruption takes until the wire
is quiet. Never decides what is said.
"""

from collections.abc import Callable, Sequence

import trio

from duplex_engine.actors.attachment import Attachment, AttachmentPoint
from duplex_engine.actors.feed import JournalFeed
from duplex_engine.actors.observations import InterruptionSettled, Observe, OutputPurged
from duplex_engine.config import SessionLimits
from duplex_engine.protocol.events import OutputAudioDelta, ServerEvent, TranscriptDelta
from duplex_engine.protocol.journal import Entry, Journal


class Outlet:
    """One session's output. `presence_changed` is called when the session gets its guest or loses it."""

    def __init__(
        self,
        session_id: str,
        limits: SessionLimits,
        observe: Observe,
        presence_changed: Callable[[], None],
        *,
        resumable: bool,
        numbered: bool,
    ) -> None:
        journal = Journal(limits, session_id=session_id, now=trio.current_time, resumable=resumable, numbered=numbered)
        self.feed = JournalFeed(journal)
        self.attachments = AttachmentPoint(journal, self._presence_changed, resumable=resumable)
        self._tell_presence = presence_changed
        self._progress = trio.lowlevel.ParkingLot()
        self._session_id = session_id
        self._limits = limits
        self._observe = observe

    def _presence_changed(self) -> None:
        self._progress.unpark_all()
        self._tell_presence()

    async def caught_up(self) -> None:
        """Wait while the guest has half of what it may fall behind still to read; at once when it has not."""
        while (guest := self.attachments.current) is not None:
            waiting_bytes, waiting_events = guest.cursor.behind
            if 2 * waiting_bytes < self._limits.output_bytes and 2 * waiting_events < self._limits.output_events:
                return
            await self._progress.park()

    def say(self, event: ServerEvent) -> bool:
        """Say an event. False: the guest has fallen too far behind."""
        self.feed.append(event)
        guest = self.attachments.current
        if guest is None:
            return True
        waiting_bytes, waiting_events = guest.cursor.behind
        return waiting_bytes <= self._limits.output_bytes and waiting_events <= self._limits.output_events

    def withdraw(self, response_id: str) -> Sequence[bytes]:
        """Take back the sound of a response that no reader has passed, and its words; returns that sound.

        Words whose sound was passed stay: the two go in pairs.
        """
        sounds: list[bytes] = []

        def unwanted(entry: Entry) -> bool:
            event = entry.event
            if type(event) is OutputAudioDelta and event.response_id == response_id:
                sounds.append(event.audio)
                return True
            return type(event) is TranscriptDelta and event.response_id == response_id and bool(sounds)

        purged = self.feed.journal.purge(unwanted)
        if purged:
            self._observe(OutputPurged(self._session_id, purged))
        return sounds

    def trim(self, seq: int) -> None:
        """The client has processed everything up to `seq`. Raises ProtocolViolation `invalid_event_ack`."""
        self.feed.journal.trim(seq)

    def interrupted(self) -> None:
        """An interruption begins now: measure until the guest's writer has nothing older under way."""
        guest = self.attachments.current
        if guest is not None and guest.writing:
            guest.interrupted_at = trio.current_time()
        else:
            self._observe(InterruptionSettled(self._session_id, 0.0))

    def wrote(self, guest: Attachment) -> None:
        """A guest's writer has finished a batch."""
        guest.writing = False
        if self._progress:
            self._progress.unpark_all()
        if guest.interrupted_at is not None:
            self._observe(InterruptionSettled(self._session_id, trio.current_time() - guest.interrupted_at))
            guest.interrupted_at = None

    def close(self) -> None:
        """The last word has been said; readers take what is left."""
        self.feed.close()
