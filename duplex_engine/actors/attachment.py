"""Who is attached to a session: one guest at a time, the newest claimant wins.

Owns the scope a guest lives in. A replaced guest is cancelled and needs no join: its reader can at most re-send what
the journal holds, and its commands are refused by a look at its own scope before they act.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from duplex_engine.protocol.journal import Cursor


class Attachment:
    """A guest's hold on a session: its scope and its place in the journal.

    `writing`: a batch of it is on the wire. `interrupted_at`: an interruption came while it was.
    """

    def __init__(self, scope: trio.CancelScope, cursor: Cursor) -> None:
        self.scope = scope
        self.cursor = cursor
        self.writing = False
        self.interrupted_at: float | None = None

    @property
    def replaced(self) -> bool:
        """Whether a newer guest took over; nothing this one still says takes effect."""
        return self.scope.cancel_called


class AttachmentPoint:
    """Where guests attach. `changed` is called when the session gets its guest or loses it."""

    def __init__(self, new_cursor: Callable[[int], Cursor], changed: Callable[[], None]) -> None:
        self.current: Attachment | None = None
        self._new_cursor = new_cursor
        self._changed = changed

    @contextmanager
    def attach(self, after: int = 0) -> Iterator[Attachment]:
        """Hold the session for the block, reading its journal from behind sequence number `after`."""
        attachment = Attachment(trio.CancelScope(), self._new_cursor(after))
        previous, self.current = self.current, attachment
        if previous is not None:
            previous.scope.cancel(reason="replaced")
        self._changed()
        try:
            with attachment.scope:
                yield attachment
        finally:
            attachment.cursor.close()
            if self.current is attachment:
                self.current = None
                self._changed()
