"""The two lines between callers and an engine: inside the process, and through the real server.

Owns how frames get from one side to the other, and how a session is opened. Never looks into a frame.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any

import trio
import trio.testing
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_client_stream

from duplex_engine.actors.handle import Guest, SessionHandle
from duplex_engine.engine import Engine
from duplex_engine.errors import CodedError, ProtocolViolation, SessionGone
from duplex_engine.protocol.codec import decode_command, encode_command
from duplex_engine.protocol.commands import ResumeSession
from duplex_engine.protocol.session_config import Profile
from duplex_engine.server.connection import receive_caller
from duplex_engine.server.metrics import Metrics
from duplex_engine.server.reception import Reception
from duplex_engine.server.settings import ServeConfig
from duplex_engine.testing.caller import Line

ADDRESS = "/v1/realtime?duplex=1&autostart=0"
Session = Mapping[str, object] | None
Delivery = Callable[[bytes], None]


class _Line(ABC):
    """What both lines share: being connected, losing that, and coming back by right of a token."""

    def __init__(self) -> None:
        self.session_id = ""
        self.token: str | None = None
        self._life = trio.CancelScope()
        self._connection = trio.CancelScope()
        self._claim: ResumeSession | None = None
        self._claimed = trio.lowlevel.ParkingLot()

    async def listen(self, deliver: Delivery, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Deliver everything, over as many connections as it takes. Raises CodedError when a session is refused."""
        with self._life:
            await self._connect(None, deliver, task_status.started)
            while self._connection.cancel_called:
                while self._claim is None:
                    await self._claimed.park()
                claim, self._claim = self._claim, None
                await self._connect(claim, deliver, lambda: None)

    @abstractmethod
    async def _connect(self, claim: ResumeSession | None, deliver: Delivery, connected: Callable[[], None]) -> None:
        """One connection, the first one or by right of `claim`, until it is over."""

    def lose(self) -> None:
        """Drop the connection without a word; it can be had again."""
        self._connection.cancel(reason="the line was lost")

    def come_back(self, seen: int) -> None:
        """Claim the session, having heard all up to the event numbered `seen`."""
        assert self.token is not None, "this session cannot be resumed"
        self._claim = ResumeSession(
            session_id=self.session_id, resume_token=self.token, last_received_server_event_seq=seen
        )
        self._claimed.unpark_all()

    def hang_up(self) -> None:
        """Drop the line for good."""
        self._life.cancel(reason="the caller hung up")


class EngineLine(_Line):
    """A line inside the process: what a connection does, without a socket."""

    def __init__(self, handle: SessionHandle) -> None:
        super().__init__()
        self.session_id = handle.id
        self._handle = handle
        self._guest: Guest | None = None
        self._reading = trio.Event()
        self._reading.set()

    async def send(self, *frames: bytes) -> None:
        """Decode and submit, as a connection does."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._guest is None:
            raise SessionGone("the line is down")
        for frame in frames:
            try:
                self._guest.submit(decode_command(frame))
            except ProtocolViolation as error:
                self._guest.refuse(error)
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def _connect(self, claim: ResumeSession | None, deliver: Delivery, connected: Callable[[], None]) -> None:
        """Follow the journal, unless reading is stopped."""
        attaching = self._handle.attach() if claim is None else self._handle.take_over(claim)
        try:
            with trio.CancelScope() as self._connection, attaching as self._guest:
                self.token = self._guest.attachment.resume_token
                self._guest.arrived()
                connected()
                while batch := await self._guest.next_batch():
                    await trio.lowlevel.checkpoint_if_cancelled()  # a batch in hand when the line is lost never arrives
                    for entry in batch:
                        deliver(entry.frame)
                    self._guest.wrote()
                    await self._reading.wait()
        finally:
            self._guest = None

    def stop_reading(self) -> None:
        """Take nothing any more: a peer whose receive window is full."""
        self._reading = trio.Event()

    def read_on(self) -> None:
        """Take everything again."""
        self._reading.set()


class WireLine(_Line):
    """A WebSocket to the real server, over streams in memory that `dial` opens. Whatever comes is read at once."""

    def __init__(self, dial: Callable[[], Any], session: Session) -> None:
        super().__init__()
        self._dial = dial
        self._session = session
        self._socket: WebSocketConnection | None = None

    async def send(self, *frames: bytes) -> None:
        """One message each."""
        if self._socket is None:
            raise SessionGone("the line is down")
        try:
            for frame in frames:
                await self._socket.send_message(frame.decode())
        except ConnectionClosed:
            raise SessionGone("the server closed the connection") from None

    async def _connect(self, claim: ResumeSession | None, deliver: Delivery, connected: Callable[[], None]) -> None:
        """Open or resume the session, and deliver every message. Raises CodedError when there is none to be had."""
        stream = self._dial()
        hello = json.dumps({"type": "session.update", "session": self._session or {}}).encode()
        try:
            async with trio.open_nursery() as nursery:
                with trio.CancelScope() as self._connection:
                    socket = await wrap_client_stream(nursery, stream, "rig", ADDRESS)
                    await socket.send_message((hello if claim is None else encode_command(claim)).decode())
                    frame = await _frame(socket)
                    self._remember(frame)
                    deliver(frame)
                    self._socket = socket
                    connected()
                    await self._deliver_all(socket, deliver)
                nursery.cancel_scope.cancel(reason="the line is over")
        finally:
            self._socket = None
            await trio.aclose_forcefully(stream)

    def _remember(self, frame: bytes) -> None:
        event = json.loads(frame)
        if event["type"] == "error":
            raise CodedError(event["error"]["code"], event["error"]["message"], event["error"].get("param"))
        self.session_id, self.token = event["session"]["id"], event.get("resume_token")

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
        return WireLine(self._dial, session)

    def _dial(self) -> Any:
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(receive_caller, self._reception, theirs)
        return ours


Connect = Callable[[Exchange, Session, Profile], Awaitable[Line]]
LINE: ContextVar[Connect] = ContextVar("LINE", default=Exchange.inside)
"""Which lines callers of this context get: `Exchange.inside` or `Exchange.over_the_wire`."""
