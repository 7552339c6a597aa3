"""One client's WebSocket as a connection actor uses it: messages in, batches of messages out, closed in bounded time.

Owns the socket's liveness: whatever the application does, pings are answered, a close is noticed, silence is noticed,
and a peer that takes nothing is dropped. Never decodes a message, and never waits for the application, save for room
when it leaves `INBOX_BYTES` unread.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import attrs
import h11
import trio
import wsproto.events
from trio_websocket import CloseReason, ConnectionClosed, WebSocketConnection
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.utilities import RemoteProtocolError

from duplex_engine.actors.supervisor import sole_exception
from duplex_engine.errors import ProtocolViolation, TransportStalled
from duplex_engine.server.byte_io import byte_io, linger
from duplex_engine.server.frames import FrameCutter, Leftover, Violation, text_frames
from duplex_engine.server.http1 import Request

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
INBOX_BYTES = 32 * 1024 * 1024
PING_EVERY_S = 20.0
PONG_WITHIN_S = 20.0
CONTROL_WRITE_S = 10.0
CLOSE_S = 2.0

NORMAL, ABNORMAL, INTERNAL_ERROR = 1000, 1006, 1011
_MESSAGE_OVERHEAD_BYTES = 100


@attrs.frozen
class BinaryMessage:
    """A binary message; the wire contract has none, so this is always a peer's mistake."""

    data: bytes


Message = bytes | BinaryMessage
"""A text message as its UTF-8 bytes, checked but not decoded; or a binary message."""


class FrameSocket(WebSocketConnection):
    """The server's end of one WebSocket. Made by `accept_websocket`; `closed` tells the close reason, None while open.

    One task of the socket reads all the time; whoever wants messages takes them with `receive` or has them delivered
    with `listen`. Any task may send.
    """

    def __init__(self, stream: trio.abc.Stream, trailing: bytes = b"") -> None:
        super().__init__(stream, WSConnection(ConnectionType.SERVER), max_message_size=MAX_MESSAGE_BYTES)
        self._io = byte_io(stream)
        self._trailing = trailing
        self._cutter = FrameCutter(MAX_MESSAGE_BYTES)
        self._inbox: deque[Message] = deque()
        self._inbox_bytes = 0
        self._arrivals = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()
        self._listener: Callable[[Message], None] | None = None
        self._parts: list[bytes] = []
        self._received_any = False
        self._pong = b""
        self._writes: set[trio.CancelScope] = set()

    # Messages

    async def receive(self) -> Message:
        """The next message. Raises ConnectionClosed once the socket is closed and all earlier messages are taken."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._inbox:
            if self._close_reason is not None:
                raise ConnectionClosed(self._close_reason)
            await self._arrivals.park()
        return self._take_from_inbox()

    async def listen(self, on_message: Callable[[Message], None]) -> CloseReason:
        """Call `on_message` for every message, in order, until the socket closes; returns the reason.

        The call comes straight from the task that reads, so it must neither block nor take long; between two calls other
        tasks have their turn. What it raises ends the block of `accept_websocket`. Cancelling `listen` leaves later
        messages to `receive`.
        """
        while self._inbox:
            await trio.lowlevel.checkpoint()
            on_message(self._take_from_inbox())
        self._listener = on_message
        try:
            while self._close_reason is None:
                await self._arrivals.park()
        finally:
            self._listener = None
        return self._close_reason

    async def send_frames(self, messages: Sequence[bytes], deadline_s: float) -> None:
        """Send UTF-8 text messages in one write: all of them, or the connection is lost.

        Cancellation is noticed before the first byte and not after it. Returns without waiting when the system takes
        everything at once. Raises TransportStalled when the peer did not take everything within `deadline_s` seconds,
        and ConnectionClosed when the socket is or becomes closed.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._close_reason is not None:
            raise ConnectionClosed(self._close_reason)
        await self._write(text_frames(messages), deadline_s)

    async def close(self, code: int = NORMAL, reason: str | None = None, deadline_s: float = CLOSE_S) -> None:
        """Say goodbye and wait for the peer's answer; after `deadline_s` seconds the connection is dropped.

        Messages that nobody has taken are forgotten. Closing a closed socket waits until its end is complete.
        """
        with trio.move_on_after(deadline_s) as limit:
            if self._close_reason is None:
                self._mark_closed(CloseReason(code, reason))
                self._inbox.clear()
                self._inbox_bytes = 0
                try:
                    await self._send_close(code, reason, deadline_s)
                except (ConnectionClosed, TransportStalled):
                    pass
            await self._close_handshake.wait()
        if limit.cancelled_caught:
            await self._io.drop()

    # What WebSocketConnection promises, by the means above

    async def get_message(self) -> str | bytes:
        """The next message as trio-websocket gives it: str for text, bytes for binary."""
        message = await self.receive()
        return message.decode() if isinstance(message, bytes) else message.data

    async def aclose(self, code: int = NORMAL, reason: str | None = None) -> None:
        """`close` with the default deadline."""
        await self.close(code, reason)

    async def _send(self, event: wsproto.events.Event) -> None:
        await self._write(self._wsproto.send(event), CONTROL_WRITE_S)

    # Opening

    async def open(self, request: Request, subprotocol: str | None) -> None:
        """Answer the upgrade request. Raises ProtocolViolation when it is no correct one; nothing was sent then."""
        try:
            self._wsproto.initiate_upgrade_connection(list(request.headers), request.target)
        except (RemoteProtocolError, h11.LocalProtocolError, UnicodeError) as error:
            raise ProtocolViolation("bad_handshake", f"not a correct WebSocket handshake: {error}") from error
        (event,) = self._wsproto.events()
        assert isinstance(event, wsproto.events.Request)
        # No extensions: compression costs more than everything else together.
        await self._accept(event, subprotocol, [])

    # Reading

    async def _reader_task(self) -> None:
        try:
            await self._read_until_over()
        except (ConnectionClosed, TransportStalled):
            pass
        self._mark_closed(CloseReason(ABNORMAL, "the connection was lost"))
        await self._close_stream()
        self._close_handshake.set()

    async def _read_until_over(self) -> None:
        trailing, self._trailing = self._trailing, b""
        going_on = not trailing or await self._digest(trailing)
        while going_on:
            # Nothing of what was read stays in a variable while the next bytes are waited for.
            going_on = await self._digest(await self._io.receive())

    async def _digest(self, data: bytes) -> bool:
        """Act on received bytes; false when the socket is over, as it is when there are none."""
        self._received_any = True
        for number, piece in enumerate(self._cutter.cut(data)):
            if number:
                await trio.lowlevel.checkpoint()
            if isinstance(piece, bytes):
                self._deliver(piece)
            elif isinstance(piece, Leftover):
                if not await self._obey_wsproto(piece.data):
                    return False
            else:
                await self._fail(piece)
                return False
        if self._pong and not self._stream_lock.locked():
            await self._write(b"", CONTROL_WRITE_S)
        while self._inbox_bytes > INBOX_BYTES and self._close_reason is None:
            await self._room.park()
        return bool(data)

    def _deliver(self, message: Message) -> None:
        if self._close_reason is not None:
            return
        if self._listener is not None:
            self._listener(message)
        else:
            self._inbox.append(message)
            self._inbox_bytes += _cost(message)
            self._arrivals.unpark_all()

    def _take_from_inbox(self) -> Message:
        message = self._inbox.popleft()
        self._inbox_bytes -= _cost(message)
        self._room.unpark_all()
        return message

    async def _obey_wsproto(self, data: bytes) -> bool:
        """Give bytes to wsproto and act on what it makes of them; false when the socket is over."""
        self._wsproto.receive_data(data)
        for event in self._wsproto.events():
            match event:
                case wsproto.events.TextMessage():
                    self._assemble(event.data.encode(), event.message_finished, bytes)
                case wsproto.events.BytesMessage():
                    self._assemble(bytes(event.data), event.message_finished, BinaryMessage)
                case wsproto.events.Ping() if self._wsproto.state is ConnectionState.OPEN:
                    # Only the latest ping needs an answer, so a flood of them costs no memory.
                    self._pong = self._wsproto.send(event.response())
                case wsproto.events.Pong():
                    await self._handle_pong_event(event)
                case wsproto.events.CloseConnection():
                    await self._obey_close(event)
                    return False
        return True

    def _assemble(self, part: bytes, finished: bool, message: Callable[[bytes], Message]) -> None:
        if part:
            self._parts.append(part)
        if finished:
            parts, self._parts = self._parts, []
            self._deliver(message(b"".join(parts)))

    # Ending

    async def _obey_close(self, event: wsproto.events.CloseConnection) -> None:
        if self._wsproto.state is ConnectionState.REMOTE_CLOSING:
            self._mark_closed(CloseReason(event.code, event.reason or None))
            await self._write(self._wsproto.send(event.response()), CONTROL_WRITE_S)
        elif self._wsproto.state is ConnectionState.OPEN:
            # Not the peer's close: wsproto's verdict on what it sent.
            await self._fail(Violation(event.code, event.reason or ""))

    async def _fail(self, violation: Violation) -> None:
        """The peer broke the protocol: tell it so, and read no more."""
        if self._close_reason is None:
            self._mark_closed(CloseReason(violation.code, violation.reason))
            await self._send_close(violation.code, violation.reason, CONTROL_WRITE_S)
        await linger(self._io)

    async def _send_close(self, code: int, reason: str | None, deadline_s: float) -> None:
        await self._write(self._wsproto.send(wsproto.events.CloseConnection(code, reason)), deadline_s)

    def _mark_closed(self, reason: CloseReason) -> None:
        if self._close_reason is None:
            self._close_reason = reason
        self._arrivals.unpark_all()
        self._room.unpark_all()

    async def _close_stream(self) -> None:
        with trio.move_on_after(CLOSE_S):
            await super()._close_stream()

    # Writing

    async def _write(self, data: bytes, deadline_s: float) -> None:
        """Write `data` and any waiting pong whole, or drop the connection: half a frame garbles all that follow."""
        try:
            if not self._stream_lock.locked():
                data = self._with_pong(data)
                taken = self._io.send_now(data)
                if taken == len(data):
                    return
                data = data[taken:] if taken else data
            with trio.move_on_after(deadline_s, shield=True) as limit, self._under_way(limit):
                async with self._stream_lock:
                    await self._io.send_all(data)
                    while self._pong:
                        await self._io.send_all(self._with_pong(b""))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._mark_closed(CloseReason(ABNORMAL, "the connection was lost"))
            assert self._close_reason is not None
            raise ConnectionClosed(self._close_reason) from None
        if limit.cancelled_caught:
            self._mark_closed(CloseReason(ABNORMAL, "the peer stopped reading"))
            await self._io.drop()
            raise TransportStalled(f"the peer did not take {len(data)} bytes within {deadline_s:g} s")

    @contextmanager
    def _under_way(self, limit: trio.CancelScope) -> Iterator[None]:
        self._writes.add(limit)
        try:
            yield
        finally:
            self._writes.discard(limit)

    def hurry(self, within_s: float) -> None:
        """Writes that are under way now get no more than `within_s` seconds: something else is waiting for this socket."""
        for limit in self._writes:
            limit.deadline = min(limit.deadline, trio.current_time() + within_s)

    def _with_pong(self, data: bytes) -> bytes:
        pong, self._pong = self._pong, b""
        return pong + data if pong else data

    # Liveness

    async def _keep_alive(self) -> None:
        try:
            while self._close_reason is None:
                await trio.sleep(PING_EVERY_S)
                await self._ping_once()
        except (ConnectionClosed, TransportStalled):
            pass

    async def _ping_once(self) -> None:
        answered = False
        while not answered:
            self._received_any = False
            with trio.move_on_after(PONG_WITHIN_S):
                await self.ping()
                answered = True
            # A pong cannot overtake a frame that is still arriving.
            if not answered and not (self._received_any and self._cutter.mid_frame):
                self._mark_closed(CloseReason(ABNORMAL, f"no pong within {PONG_WITHIN_S:g} s"))
                await self._io.drop()
                return


def _cost(message: Message) -> int:
    return _MESSAGE_OVERHEAD_BYTES + len(message if isinstance(message, bytes) else message.data)


@asynccontextmanager
async def accept_websocket(
    stream: trio.abc.Stream, request: Request, *, subprotocol: str | None = None
) -> AsyncIterator[FrameSocket]:
    """Answer an upgrade request and hold the WebSocket for the block; leaving the block closes socket and stream.

    A block that raises closes with 1011, else with 1000. Raises ProtocolViolation for an incorrect handshake, before
    anything was sent; and what the block or a listener raised, as a single exception.
    """
    socket = FrameSocket(stream, request.trailing)
    await socket.open(request, subprotocol)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(socket._reader_task)
            nursery.start_soon(socket._keep_alive)
            code = INTERNAL_ERROR
            try:
                yield socket
                code = NORMAL
            finally:
                await socket.close(code)
                nursery.cancel_scope.cancel(reason="socket closed")
    except ExceptionGroup as group:
        raise sole_exception(group) from None
    finally:
        await trio.aclose_forcefully(stream)
