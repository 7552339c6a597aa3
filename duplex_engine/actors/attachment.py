"""Who is attached to a session: one guest at a time, the newest claimant wins.

Owns the scope a guest lives in, the tokens that let a new guest in, and the check of a claim. A replaced guest is
cancelled and needs no join: its reader can at most re-send what the journal holds, and its commands are refused by a look
at its own scope before they act.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs
import trio

from duplex_engine.errors import JournalGap, ResumeRefused
from duplex_engine.protocol.commands import ResumeSession
from duplex_engine.protocol.journal import Cursor, Journal
from duplex_engine.protocol.resume import ResumeTokens


@attrs.define(eq=False, kw_only=True)
class Attachment:
    """A guest's hold on a session: its scope and its place in the journal.

    `generation`: a mere label for the wire, 1 for the first guest. `resume_token`: opens the session for the next guest;
    None when it cannot be resumed. `resumed`: it claimed a session that had a guest before. `writing`: a batch of it is
    on the wire. `interrupted_at`: an interruption came while it was. `on_replaced`: called when a newer guest takes over.
    """

    scope: trio.CancelScope
    cursor: Cursor
    generation: int
    resume_token: str | None
    resumed: bool
    writing: bool = False
    interrupted_at: float | None = None
    on_replaced: Callable[[], None] = lambda: None

    @property
    def replaced(self) -> bool:
        """Whether a newer guest took over; nothing this one still says takes effect."""
        return self.scope.cancel_called

    def replace(self) -> None:
        """A newer guest takes over."""
        self.scope.cancel(reason="replaced")
        self.on_replaced()


class AttachmentPoint:
    """Where guests attach. `changed` is called when the session gets its guest or loses it.

    `resumable`: a guest that is lost may be followed by another, who shows the token that the last one was given.
    """

    def __init__(self, journal: Journal, changed: Callable[[], None], *, resumable: bool) -> None:
        self.current: Attachment | None = None
        self._guests = 0
        self._journal = journal
        self._changed = changed
        self._tokens = ResumeTokens() if resumable else None

    @contextmanager
    def attach(self, after: int = 0, presented: str | None = None) -> Iterator[Attachment]:
        """Hold the session for the block, reading its journal from behind sequence number `after`.

        `presented`: the token of a claim that was checked; it stays good until the new guest's own has `arrived`.
        """
        cursor = self._journal.cursor(after)
        self._guests += 1
        token = None if self._tokens is None else self._tokens.issue(presented)
        attachment = Attachment(
            scope=trio.CancelScope(),
            cursor=cursor,
            generation=self._guests,
            resume_token=token,
            resumed=presented is not None,
        )
        previous, self.current = self.current, attachment
        if previous is not None:
            previous.replace()
        self._changed()
        try:
            with attachment.scope:
                yield attachment
        finally:
            attachment.cursor.close()
            if self.current is attachment:
                self.current = None
                self._changed()

    def check(self, claim: ResumeSession) -> None:
        """Whether `claim` may attach now. Raises ResumeRefused or JournalGap (2.8); nothing has changed then."""
        if self._tokens is None:
            raise ResumeRefused("unsupported_session_resume", "this session cannot be resumed; open another")
        if not self._tokens.accept(claim.resume_token):
            raise ResumeRefused("invalid_resume_token", "this is not the session's newest token", "resume_token")
        seen, head = claim.last_received_server_event_seq, self._journal.head
        if seen > head:
            raise ResumeRefused(
                "session_resume_conflict",
                f"event {seen} was never sent; the newest is {head}",
                "last_received_server_event_seq",
            )
        if not self._journal.bridges(seen):
            raise JournalGap(f"what followed event {seen} is not kept any more")

    def arrived(self, attachment: Attachment) -> None:
        """This guest has read its greeting: older tokens are void from now on."""
        if self._tokens is not None and not attachment.replaced:
            self._tokens.arrived()
