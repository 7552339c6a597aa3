"""What a guest holds of a session: say commands, read its journal, learn that it is over.

Owns the check that a replaced guest no longer acts. A connection and the embedding API use the same handle.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import trio

from duplex_engine.actors.attachment import Attachment
from duplex_engine.actors.session import Session
from duplex_engine.errors import ProtocolViolation, SessionGone
from duplex_engine.protocol.commands import ClientCommand, ResumeSession
from duplex_engine.protocol.journal import Cursor, Entry
from duplex_engine.protocol.session_config import SessionConfig

BATCH_BYTES = 256 * 1024


class Guest:
    """An attached guest: the newest claimant of its session, until replaced."""

    def __init__(self, session: Session, attachment: Attachment) -> None:
        self.attachment = attachment
        self._session = session

    @property
    def resumed(self) -> bool:
        """Whether it took the session over from another, or from its own former connection."""
        return self.attachment.resumed

    def submit(self, command: ClientCommand) -> None:
        """Give a command. Raises SessionGone when the session ended or another guest took over."""
        if self.attachment.replaced:
            raise SessionGone("another connection took this session over")
        self._session.submit(command, at_once=True)

    def refuse(self, error: ProtocolViolation) -> None:
        """Have a message that could not be decoded answered in order with everything else."""
        if not self.attachment.replaced:
            self._session.refuse(error)

    def ready_batch(self) -> list[Entry]:
        """The next events for this guest as far as there are any now."""
        return self.attachment.cursor.take(BATCH_BYTES)

    def arrived(self) -> None:
        """The guest has proved that it read its greeting: tokens older than the one in it are void."""
        self._session.outlet.attachments.arrived(self.attachment)

    async def next_batch(self) -> list[Entry]:
        """The next events for this guest, at least one; empty when the session has ended and all was read."""
        return await self._session.outlet.feed.next_batch(self.attachment.cursor, BATCH_BYTES)

    def wrote(self) -> None:
        """The last batch has left."""
        self._session.outlet.wrote(self.attachment)


class SessionHandle:
    """A live session, for whoever opened it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def id(self) -> str:
        """`duplex-` and 32 hexadecimal digits."""
        return self._session.id

    @property
    def config(self) -> SessionConfig:
        """The effective configuration."""
        return self._session.config

    @property
    def over(self) -> trio.Event:
        """Set when the last word has been said."""
        return self._session.over

    @property
    def ending_reason(self) -> str:
        """Why it ended, once it is over."""
        return self._session.ending_reason

    def public_session(self) -> Mapping[str, object]:
        """The session object as clients see it."""
        return self._session.public_session()

    @contextmanager
    def attach(self, after: int = 0) -> Iterator[Guest]:
        """Be the session's guest for the block; a former guest is replaced. Its scope ends the block early."""
        with self._session.outlet.attachments.attach(after) as attachment:
            yield Guest(self._session, attachment)

    @contextmanager
    def take_over(self, claim: ResumeSession) -> Iterator[Guest]:
        """Be the session's guest for the block by right of a token, from where the claim left off.

        Raises ResumeRefused or JournalGap, and then whoever is attached stays.
        """
        self._session.outlet.attachments.check(claim)
        with self._session.outlet.attachments.attach(
            claim.last_received_server_event_seq, claim.resume_token
        ) as attachment:
            yield Guest(self._session, attachment)

    def submit(self, command: ClientCommand) -> None:
        """Give a command without being attached (embedding)."""
        self._session.submit(command)

    def cursor(self) -> Cursor:
        """A reading position at the journal's start."""
        return self._session.outlet.feed.journal.cursor(0)

    async def follow(self, cursor: Cursor) -> list[Entry]:
        """The next events behind `cursor`; empty when the session has ended and all was read."""
        return await self._session.outlet.feed.next_batch(cursor, BATCH_BYTES)

    def end(self, reason: str) -> None:
        """End the session."""
        self._session.end(reason)
