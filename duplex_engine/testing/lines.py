"""The two lines between callers and an engine: inside the process, and through the real server.

Owns how frames get from one side to the other, and how a session is opened. Never looks into a frame.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any

import trio
import trio.testing
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_client_stream

from duplex_engine.actors.handle import Guest, SessionHandle
from duplex_engine.engine import Engine
from duplex_engine.errors import CodedError, ProtocolViolation, SessionGone
from duplex_engine.protocol.codec import decode_command
from duplex_engine.protocol.session_config import Profile
from duplex_engine.server.connection import receive_caller
from duplex_engine.server.metrics import Metrics
from duplex_engine.server.reception import Reception
from duplex_engine.server.settings import ServeConfig
from duplex_engine.testing.caller import Line

ADDRESS = "/v1/realtime?duplex=1&autostart=0"
Session = Mapping[str, object] | None
Delivery = Callable[[bytes], None]


class EngineLine:
    """A line inside the process: what a connection does, without a socket."""

    def __init__(self, handle: SessionHandle) -> None:
        self._handle = handle
        self._guest: Guest | None = None
        self._scope = trio.CancelScope()
        self._reading = trio.Event()
        self._reading.set()

    async def send(self, *frames: bytes) -> None:
        """Decode and submit, as a connection does."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._guest is None:
            raise SessionGone("the line was hung up")
        for frame in frames:
            try:
                self._guest.submit(decode_command(frame))
            except ProtocolViolation as error:
                self._guest.refuse(error)
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def listen(self, deliver: Delivery, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the journal, unless reading is stopped."""
        with self._scope, self._handle.attach() as guest:
            self._guest = guest
            task_status.started()
            while batch := await guest.next_batch():
                for entry in batch:
                    deliver(entry.frame)
                guest.wrote()
                await self._reading.wait()
        self._guest = None

    def stop_reading(self) -> None:
        """Take nothing any more: a peer whose receive window is full."""
        self._reading = trio.Event()

    def read_on(self) -> None:
        """Take everything again."""
        self._reading.set()

    def hang_up(self) -> None:
        """Drop the line."""
        self._scope.cancel(reason="the caller hung up")


class WireLine:
    """A WebSocket to the real server, over `stream`, a stream in memory. Whatever comes is read at once."""

    def __init__(self, stream: Any, session: Session) -> None:
        self._stream = stream
        self._session = session
        self._scope = trio.CancelScope()
        self._socket: WebSocketConnection | None = None

    async def send(self, *frames: bytes) -> None:
        """One message each."""
        if self._socket is None:
            raise SessionGone("the line was hung up")
        try:
            for frame in frames:
                await self._socket.send_message(frame.decode())
        except ConnectionClosed:
            raise SessionGone("the server closed the connection") from None

    async def listen(self, deliver: Delivery, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open a session, and deliver every message. Raises CodedError when there is none to be had."""
        try:
            async with trio.open_nursery() as nursery:
                with self._scope:
                    socket = await wrap_client_stream(nursery, self._stream, "rig", ADDRESS)
                    await socket.send_message(json.dumps({"type": "session.update", "session": self._session or {}}))
                    deliver(_opened(await _frame(socket)))
                    self._socket = socket
                    task_status.started()
                    await self._deliver_all(socket, deliver)
                nursery.cancel_scope.cancel(reason="the line is over")
        finally:
            self._socket = None
            await trio.aclose_forcefully(self._stream)

    async def _deliver_all(self, socket: WebSocketConnection, deliver: Delivery) -> None:
        while True:
            try:
                frame = await _frame(socket)
            except ConnectionClosed:
                return
            deliver(frame)

    def stop_reading(self) -> None:
        """Not on this line."""
        raise NotImplementedError("a stream in memory never fills up; use a line inside the process")

    def read_on(self) -> None:
        """It never stopped."""

    def hang_up(self) -> None:
        """Drop the connection without a close frame."""
        self._scope.cancel(reason="the caller hung up")


def _opened(frame: bytes) -> bytes:
    event = json.loads(frame)
    if event["type"] == "error":
        raise CodedError(event["error"]["code"], event["error"]["message"], event["error"].get("param"))
    return frame


async def _frame(socket: WebSocketConnection) -> bytes:
    message = await socket.get_message()
    return message if isinstance(message, bytes) else message.encode()


class Exchange:
    """Where lines come from."""

    def __init__(self, engine: Engine, nursery: trio.Nursery) -> None:
        self.handles: list[SessionHandle] = []
        self._engine = engine
        self._nursery = nursery
        self._reception = Reception(engine, ServeConfig(), Metrics(), warm=True)

    async def inside(self, session: Session, profile: Profile) -> Line:
        """A line inside the process. Raises ConfigRejected, AdmissionRefused."""
        handle = await self._engine.start_session(session, profile=profile)
        self.handles.append(handle)
        return EngineLine(handle)

    async def over_the_wire(self, session: Session, profile: Profile) -> Line:
        """A line through the server; its session is opened when it is listened to."""
        assert profile is Profile.STRICT, "callers speak the strict profile on the wire"
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(receive_caller, self._reception, theirs)
        return WireLine(ours, session)


Connect = Callable[[Exchange, Session, Profile], Awaitable[Line]]
LINE: ContextVar[Connect] = ContextVar("LINE", default=Exchange.inside)
"""Which lines callers of this context get: `Exchange.inside` or `Exchange.over_the_wire`."""
