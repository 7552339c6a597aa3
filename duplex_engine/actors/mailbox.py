"""A session's mailbox: bounded, typed, refused loudly when full, gone when the session is.

Owns the queue of commands, the count of input bytes in it, and what kinds of commands there are to a queue. Putting never
waits: a socket's reader must not.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

import attrs
import trio
from outcome import Error, Value

from duplex_engine.errors import ProtocolViolation, SessionGone
from duplex_engine.protocol.commands import (
    AcknowledgeEvents,
    AcknowledgePlayback,
    AppendAudio,
    ClientCommand,
    CommitAudio,
    CreateItem,
    DeleteItem,
    Heartbeat,
    RetrieveItem,
    TruncateItem,
    UpdateSession,
)
from duplex_engine.protocol.formats import Encoding

NO_ACTIVITY: Final = (AcknowledgeEvents, CommitAudio, CreateItem, DeleteItem, RetrieveItem, TruncateItem)
"""Commands that do not renew the idle lease (2.10)."""

ANSWERED_AT_ONCE: Final = (CreateItem, DeleteItem, RetrieveItem, TruncateItem, Heartbeat, UpdateSession)
"""Commands that are answered with events and stop nothing: many in one write must not outrun their own client."""

STREAMED: Final = frozenset({AppendAudio, AcknowledgeEvents, AcknowledgePlayback, Heartbeat})
"""Small commands that clients send by the hundred in one write: a recording, or acknowledgements of a replay."""
STREAMED_FOR_ONE: Final = 64


Obeyed = Value[Sequence[trio.Event]] | Error
"""What has to be over before the next command is obeyed; or how the obeying crashed."""


@attrs.define
class Mailbox:
    """Commands from the attached guest to the session, in order.

    `capacity`: how many may wait; of those that come in streams, 64 times as many (sound is bounded by its bytes, which
    is the session's business). `pending_bytes`: memory that the input in the queue will take once it is decoded.
    `idle`: nothing is queued, and who takes waits for the next command: it may as well be obeyed where it arrives. What
    that leaves to be waited for is left here.
    """

    capacity: int
    pending_bytes: int = attrs.field(default=0, init=False)
    idle: bool = attrs.field(default=False, init=False)
    _closed: bool = attrs.field(default=False, init=False)
    _waiting: dict[bool, int] = attrs.field(factory=lambda: {True: 0, False: 0}, init=False)
    _queue: deque[ClientCommand | Obeyed] = attrs.field(factory=deque, init=False)
    _arrival: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    def put(self, command: ClientCommand) -> None:
        """Queue a command. Raises SessionGone, or ProtocolViolation `input_backpressure` when the mailbox is full."""
        if self._closed:
            raise SessionGone("the session has ended")
        streamed = type(command) in STREAMED
        limit = self.capacity * STREAMED_FOR_ONE if streamed else self.capacity
        if self._waiting[streamed] >= limit:
            message = f"{limit} commands are waiting already; slow down"
            raise ProtocolViolation("input_backpressure", message, event_id=command.event_id)
        self._waiting[streamed] += 1
        self.pending_bytes += input_bytes(command)
        self._add(command)

    def leave(self, obeyed: Obeyed) -> None:
        """A command was obeyed on its arrival; this is to be waited for before the next one."""
        self._add(obeyed)

    def _add(self, entry: ClientCommand | Obeyed) -> None:
        self._queue.append(entry)
        self.idle = False
        self._arrival.unpark_all()

    async def take(self) -> ClientCommand | Obeyed:
        """The next command, once there is one; others have their turn before each."""
        if self._queue:
            await trio.lowlevel.checkpoint()
        while not self._queue:
            self.idle = True
            try:
                await self._arrival.park()
            finally:
                self.idle = False
        entry = self._queue.popleft()
        if not isinstance(entry, Value | Error):
            self._waiting[type(entry) in STREAMED] -= 1
            self.pending_bytes -= input_bytes(entry)
        return entry

    def close(self) -> None:
        """Drop what is queued; from now on `put` raises SessionGone."""
        self._closed = True
        self._queue.clear()
        self._waiting = {True: 0, False: 0}
        self.pending_bytes = 0


def input_bytes(command: ClientCommand) -> int:
    """Memory this command's input will take once decoded: float32 samples and pictures beside them."""
    if type(command) is CreateItem:
        return sum(map(input_bytes, command.audio))
    if type(command) is not AppendAudio:
        return 0
    sample_bytes = (command.encoding or Encoding.PCM16).sample_bytes
    return 4 * (len(command.audio) // sample_bytes) + sum(map(len, command.video_frames))
