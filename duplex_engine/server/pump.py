"""Between one socket and one session: what the client says goes in, what the session says goes out.

Owns the order on both ways, one write for a batch of events, and the patience with a silent client. The way in never
waits for the session, and neither way starts a task or a scope for a message. Never opens or ends a session.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Final

import trio
from trio_websocket import ConnectionClosed

from duplex_engine.actors.handle import Guest
from duplex_engine.errors import ProtocolViolation, SessionGone, TransportStalled
from duplex_engine.protocol.codec import decode_command
from duplex_engine.protocol.events import OutputAudioDelta
from duplex_engine.protocol.handshake import Action, Complain, Deliver, Handshake
from duplex_engine.protocol.journal import Entry
from duplex_engine.server.transport import BinaryMessage, FrameSocket, Message

COMPLAINT_BYTES: Final = 2 * 1024 * 1024
"""Complaints that may wait for a client that sends nonsense and does not read."""
REPLACED_WRITE_S: Final = 0.25
"""What is being written when another connection takes the session over may take this long."""


class Outcome(Enum):
    """Why the pumping stopped."""

    SESSION_OVER = "session over"
    REPLACED = "replaced"
    SOCKET_LOST = "socket lost"
    CLIENT_SILENT = "client silent"
    CLIENT_DEAF = "client deaf"


class Pump:
    """One guest of a session, on its socket.

    `idle_s`: seconds without any message after which the client is given up. `complaint`: the frame of a complaint; such
    frames go out beside the session's events, outside their sequence.
    """

    def __init__(
        self,
        socket: FrameSocket,
        guest: Guest,
        handshake: Handshake,
        *,
        idle_s: float,
        write_deadline_s: float,
        complaint: Callable[[Complain], bytes],
    ) -> None:
        self._socket = socket
        self._guest = guest
        self._handshake = handshake
        self._idle_s = idle_s
        self._write_deadline_s = write_deadline_s
        self._complaint = complaint
        self._complaints: list[bytes] = []
        self._complaint_bytes = 0
        self._heard_at = trio.current_time()
        self._outcome = Outcome.SOCKET_LOST
        self._nursery: trio.Nursery

    async def run(self, greeting: bytes, first: Deliver | Complain | None) -> Outcome:
        """Say `greeting`, do `first`, and pump until the session is over and all was said, or the client is gone."""
        self._guest.attachment.on_replaced = partial(self._socket.hurry, REPLACED_WRITE_S)
        if not await self._greet(greeting, first):
            return Outcome.SOCKET_LOST
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._listen)
            if self._guest.resumed:
                self._nursery.start_soon(self._prove_greeting)
            self._stop(await self._deliver())
        return self._outcome

    def _stop(self, outcome: Outcome) -> None:
        if not self._nursery.cancel_scope.cancel_called:
            self._outcome = outcome
            self._nursery.cancel_scope.cancel(reason=outcome.value)

    # --- in -------------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        while (silent_at := self._heard_at + self._idle_s) > trio.current_time():
            # The wait is renewed when it is over, not with each message.
            with trio.move_on_at(silent_at):
                await self._socket.listen(self._take)
                self._stop(Outcome.SOCKET_LOST)
                return
        self._stop(Outcome.CLIENT_SILENT)

    async def _prove_greeting(self) -> None:
        """A pong comes from behind everything that was sent before the ping."""
        try:
            await self._socket.ping()
        except ConnectionClosed:
            return
        self._guest.arrived()

    def _take(self, message: Message) -> None:
        self._heard_at = trio.current_time()
        try:
            action = self._handshake.receive(decode_command(text_of(message)))
        except ProtocolViolation as violation:
            action = self._handshake.reject(violation)
        self._act(action)

    def _act(self, action: Action) -> None:
        if type(action) is Deliver:
            try:
                self._guest.submit(action.command)
            except SessionGone:
                pass  # its last words are on their way out
        elif type(action) is Complain:
            self._complain(self._complaint(action))

    # --- out ------------------------------------------------------------------------------------------------------

    async def _greet(self, greeting: bytes, first: Deliver | Complain | None) -> bool:
        batch = self._guest.ready_batch()
        frames = [greeting, *(entry.frame for entry in batch)]
        if type(first) is Complain:
            frames.append(self._complaint(first))
        elif first is not None:
            self._act(first)
        return await self._send(frames)

    async def _deliver(self) -> Outcome:
        while batch := await self._guest.next_batch():
            self._guest.attachment.writing = _has_audio(batch)
            if not await self._send([entry.frame for entry in batch]):
                return Outcome.SOCKET_LOST
            self._guest.wrote()
        return Outcome.SESSION_OVER

    def _complain(self, frame: bytes) -> None:
        """Queue an answer to nonsense. The task that sends such answers lives while there are any."""
        self._complaint_bytes += len(frame)
        if self._complaint_bytes > COMPLAINT_BYTES:
            self._stop(Outcome.CLIENT_DEAF)
        self._complaints.append(frame)
        if len(self._complaints) == 1:
            self._nursery.start_soon(self._send_complaints)

    async def _send_complaints(self) -> None:
        while frames := tuple(self._complaints):
            if not await self._send(frames):
                self._stop(Outcome.SOCKET_LOST)
            del self._complaints[: len(frames)]
            self._complaint_bytes = sum(map(len, self._complaints))

    async def _send(self, frames: Sequence[bytes]) -> bool:
        """Send all of it; false when the client is gone."""
        try:
            await self._socket.send_frames(frames, self._write_deadline_s)
        except (ConnectionClosed, TransportStalled):
            return False
        return True


def text_of(message: Message) -> bytes:
    """The text of a message. Raises ProtocolViolation `bad_event` for a binary one."""
    if isinstance(message, BinaryMessage):
        raise ProtocolViolation("bad_event", "binary messages are not taken; send JSON as text")
    return message


def _has_audio(batch: Sequence[Entry]) -> bool:
    return any(type(entry.event) is OutputAudioDelta for entry in batch)
