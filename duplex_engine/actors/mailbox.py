"""A session's mailbox: bounded, typed, refused loudly when full, gone when the session is.

Owns the queue of commands and the count of input bytes in it. Never waits: a socket's reader must not.
"""

import math
from typing import Final

import attrs
import trio

from duplex_engine.errors import ProtocolViolation, SessionGone
from duplex_engine.protocol.commands import (
    AcknowledgeEvents,
    AcknowledgePlayback,
    AppendAudio,
    ClientCommand,
    CreateItem,
    Heartbeat,
)
from duplex_engine.protocol.formats import Encoding

STREAMED: Final = frozenset({AppendAudio, AcknowledgeEvents, AcknowledgePlayback, Heartbeat})
"""Small commands that clients send by the hundred in one write: a recording, or acknowledgements of a replay."""
STREAMED_FOR_ONE: Final = 64


@attrs.define
class Mailbox:
    """Commands from the attached guest to the session, in order.

    `capacity`: how many may wait; of those that come in streams, 64 times as many (sound is bounded by its bytes, which
    is the session's business). `pending_bytes`: memory that the input in the queue will take once it is decoded.
    """

    capacity: int
    pending_bytes: int = attrs.field(default=0, init=False)
    _waiting: dict[bool, int] = attrs.field(factory=lambda: {True: 0, False: 0}, init=False)
    _sender: trio.MemorySendChannel[ClientCommand] = attrs.field(init=False)
    _receiver: trio.MemoryReceiveChannel[ClientCommand] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._sender, self._receiver = trio.open_memory_channel[ClientCommand](math.inf)

    def put(self, command: ClientCommand) -> None:
        """Queue a command. Raises SessionGone, or ProtocolViolation `input_backpressure` when the mailbox is full."""
        streamed = type(command) in STREAMED
        limit = self.capacity * STREAMED_FOR_ONE if streamed else self.capacity
        if self._waiting[streamed] >= limit:
            message = f"{limit} commands are waiting already; slow down"
            raise ProtocolViolation("input_backpressure", message, event_id=command.event_id)
        try:
            self._sender.send_nowait(command)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise SessionGone("the session has ended") from None
        self._waiting[streamed] += 1
        self.pending_bytes += input_bytes(command)

    async def take(self) -> ClientCommand:
        """The next command, once there is one."""
        command = await self._receiver.receive()
        self._waiting[type(command) in STREAMED] -= 1
        self.pending_bytes -= input_bytes(command)
        return command

    def close(self) -> None:
        """Drop what is queued; from now on `put` raises SessionGone."""
        self._receiver.close()
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
