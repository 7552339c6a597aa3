"""A session's mailbox: bounded, typed, refused loudly when full, gone when the session is.

Owns the queue of commands and the count of input bytes in it. Never waits: a socket's reader must not.
"""

import attrs
import trio

from duplex_engine.errors import ProtocolViolation, SessionGone
from duplex_engine.protocol.commands import AppendAudio, ClientCommand
from duplex_engine.protocol.formats import Encoding


@attrs.define
class Mailbox:
    """Commands from the attached guest to the session, in order.

    `pending_bytes`: memory that the input in the queue will take once it is decoded.
    """

    capacity: int
    pending_bytes: int = attrs.field(default=0, init=False)
    _sender: trio.MemorySendChannel[ClientCommand] = attrs.field(init=False)
    _receiver: trio.MemoryReceiveChannel[ClientCommand] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._sender, self._receiver = trio.open_memory_channel[ClientCommand](self.capacity)

    def put(self, command: ClientCommand) -> None:
        """Queue a command. Raises SessionGone, or ProtocolViolation `input_backpressure` when the mailbox is full."""
        try:
            self._sender.send_nowait(command)
        except trio.WouldBlock:
            raise ProtocolViolation(
                "input_backpressure",
                f"{self.capacity} commands are waiting already; slow down",
                event_id=command.event_id,
            ) from None
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise SessionGone("the session has ended") from None
        self.pending_bytes += input_bytes(command)

    async def take(self) -> ClientCommand:
        """The next command, once there is one."""
        command = await self._receiver.receive()
        self.pending_bytes -= input_bytes(command)
        return command

    def close(self) -> None:
        """Drop what is queued; from now on `put` raises SessionGone."""
        self._receiver.close()
        self.pending_bytes = 0


def input_bytes(command: ClientCommand) -> int:
    """Memory this command's input will take once decoded: float32 samples and pictures."""
    if type(command) is not AppendAudio:
        return 0
    sample_bytes = (command.encoding or Encoding.PCM16).sample_bytes
    return 4 * (len(command.audio) // sample_bytes) + sum(map(len, command.video_frames))
