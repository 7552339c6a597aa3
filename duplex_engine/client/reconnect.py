"""The link between a client and its session, over as many connections as that takes: connect, resume, pump.

Owns the current connection, event numbers and their acknowledgement, the resume token, and the decision whether a lost
connection is worth another attempt. Never interprets events beyond that: each accepted one goes to `deliver`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import trio

from duplex_engine.client.config import Credentials, ReconnectPolicy
from duplex_engine.client.errors import DuplexProtocolError, DuplexSessionClosedError
from duplex_engine.client.events import ErrorEvent, SessionCreated
from duplex_engine.client.streams import Ending
from duplex_engine.client.transport import LOST, ConnectFn, WebSocketTransport, transport_over
from duplex_engine.errors import ConnectionLost
from duplex_engine.protocol.commands import AcknowledgeEvents, CloseSession, ResumeSession, UpdateSession
from duplex_engine.protocol.encode import encode_command
from duplex_engine.protocol.wire_json import loads

__all__ = ["Link"]

JsonObject = Mapping[str, Any]
Hello = UpdateSession | ResumeSession

FATAL_RESUME_CODES = frozenset(
    {
        "invalid_session_resume",
        "session_resume_expired",
        "unsupported_session_resume",
        "invalid_resume_token",
        "session_resume_conflict",
    }
)
WRITE_S = 10.0
SLOWEST_BYTES_PER_S = 64 * 1024
FAREWELL_S = 1.0


class CannotResume(ConnectionLost):
    """The server cannot bridge what was missed; no further attempt can change that."""


@attrs.frozen
class _Detached:
    """Why a connection is over; `live` if it had carried the session."""

    cause: Exception
    live: bool = False


class Link:
    """Carries messages of one session. `run` is its task; everything else may be called while that runs. Cancelling it
    closes the session, if that takes no more than a second.

    `deliver` gets each received object once and in order, `on_end` the reason when no connection can be had any more;
    neither may wait. `opening` is the first message of a new session; None together with `credentials` takes over an
    existing one.
    """

    def __init__(
        self,
        *,
        url: str,
        connect: ConnectFn,
        headers: list[tuple[bytes, bytes]],
        policy: ReconnectPolicy | None,
        handshake_timeout_s: float,
        opening: UpdateSession | None,
        credentials: Credentials | None,
        deliver: Callable[[JsonObject], None],
        on_end: Callable[[Ending], None],
    ) -> None:
        self.session_id = credentials.session_id if credentials else None
        self.resume_token = credentials.resume_token if credentials else None
        self.last_seq = credentials.last_server_event_seq if credentials else 0
        self.closing = False
        self.failure: Exception | None = None
        self.over = trio.Event()
        self._url, self._connect, self._headers = url, connect, headers
        self._policy, self._handshake_timeout_s = policy, handshake_timeout_s
        self._opening, self._deliver, self._on_end = opening, deliver, on_end
        self._ending: Ending | None = None
        self._transport: WebSocketTransport | None = None
        self._changed = trio.lowlevel.ParkingLot()
        self._writing = trio.Lock()
        self._unacknowledged = trio.Event()

    async def run(self) -> None:
        """Keep the session connected until it ends or the connection is lost for good; then set `over`."""
        detached = await self._attach(self._opening or self._resume_request(), attempt=0)
        attempt = 0 if detached.live or self._opening else 1
        while self._worth_resuming(detached, attempt):
            assert self._policy is not None
            await trio.sleep(self._policy.delay(attempt))
            detached = await self._attach(self._resume_request(), attempt)
            attempt = 0 if detached.live else attempt + 1
        self.failure = detached.cause
        reason = "closed" if self.closing else f"connection lost: {detached.cause}"
        self._on_end(Ending(reason, expected=self.closing, lost=not self.closing))
        self.over.set()

    async def wait_live(self) -> None:
        """Wait until the session is connected. Raises what prevented it."""
        try:
            await self._connected()
        except DuplexSessionClosedError as ended:
            raise self.failure or ended from None

    async def send(self, message: str) -> None:
        """Write one message, on the next connection if the current one breaks. Raises the session's ending.

        Messages go out in the order of the calls. Cancelled: nothing was written.
        """
        async with self._writing:
            while True:
                transport = await self._connected()
                if await self._write(transport, message):
                    return
                while self._transport is transport:
                    await self._changed.park()

    def end(self, ending: Ending) -> None:
        """The session is over: whoever waits here learns it."""
        if self._ending is None:
            self._ending = ending
        self._unacknowledged.set()
        self._changed.unpark_all()

    async def _connected(self) -> WebSocketTransport:
        while self._ending is None:
            if self._transport is not None:
                return self._transport
            await self._changed.park()
        raise self._ending.to_exception()

    async def _write(self, transport: WebSocketTransport, message: str) -> bool:
        # A frame is atomic: half a frame would make the server swallow the next one.
        try:
            with trio.move_on_after(WRITE_S + len(message) / SLOWEST_BYTES_PER_S, shield=True) as patience:
                await transport.send(message)
            if patience.cancelled_caught:
                await transport.close()
        except LOST:
            return False
        return not patience.cancelled_caught

    def _resume_request(self) -> ResumeSession:
        return ResumeSession(
            session_id=self.session_id or "",
            resume_token=self.resume_token or "",
            last_received_server_event_seq=self.last_seq,
        )

    def _worth_resuming(self, detached: _Detached, attempt: int) -> bool:
        if self._ending is not None or self.closing or self._policy is None or attempt >= self._policy.max_attempts:
            return False
        if isinstance(detached.cause, CannotResume):
            return False
        if isinstance(detached.cause, DuplexProtocolError) and detached.cause.code in FATAL_RESUME_CODES:
            return False
        return bool(self.session_id and self.resume_token)

    async def _attach(self, hello: Hello, attempt: int) -> _Detached:
        try:
            async with transport_over(self._connect, self._url, self._headers) as transport:
                return await self._serve(transport, hello, attempt)
        except LOST as lost:
            return _Detached(lost)

    async def _serve(self, transport: WebSocketTransport, hello: Hello, attempt: int) -> _Detached:
        """One connection from its first message to its loss; raises nothing but cancellation."""
        try:
            received = await self._greet(transport, hello)
        except (*LOST, DuplexProtocolError) as failure:
            return _Detached(failure)
        if isinstance(hello, ResumeSession):
            self._deliver({"type": "connection.resumed", "attempt": attempt})
        self._transport = transport
        for message in received:
            self._accept(message)
        self._changed.unpark_all()
        lost: Exception | None = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._acknowledge, transport)
                lost = await self._pump(transport)
                nursery.cancel_scope.cancel(reason="connection over")
        finally:
            self._transport = None
            self._changed.unpark_all()
            if lost is None and self._ending is None and not self.closing:
                await self._farewell(transport)
        return _Detached(lost, live=True)

    async def _farewell(self, transport: WebSocketTransport) -> None:
        # Cancelled with the session alive: a connection that is merely dropped would hold the seat for the grace time.
        with trio.move_on_after(FAREWELL_S, shield=True):
            try:
                await transport.send(encode_command(CloseSession()).decode())
            except LOST:
                pass

    async def _greet(self, transport: WebSocketTransport, hello: Hello) -> list[JsonObject]:
        """Say hello and wait for the answer; the answer comes first in the result, then what had overtaken it."""
        answer = "session.resumed" if isinstance(hello, ResumeSession) else "session.created"
        early: list[JsonObject] = []
        with trio.move_on_after(self._handshake_timeout_s) as patience:
            await transport.send(encode_command(hello).decode())
            while True:
                message = await self._receive(transport)
                match message.get("type"):
                    case "error":
                        raise ErrorEvent(message).to_exception()
                    case "session.resync_required":
                        raise CannotResume(f"the session cannot be resumed: {message.get('reason')}")
                    case kind if kind == answer:
                        return [message, *early]
                early.append(message)
        assert patience.cancelled_caught
        raise TimeoutError(f"the server did not send {answer} within {self._handshake_timeout_s:g} s")

    async def _receive(self, transport: WebSocketTransport) -> JsonObject:
        while True:
            data = await transport.recv()
            if not isinstance(data, str):
                continue
            try:
                message = loads(data)
            except ValueError:
                continue
            if isinstance(message, dict):
                return message

    async def _pump(self, transport: WebSocketTransport) -> Exception:
        while self._ending is None:
            try:
                self._accept(await self._receive(transport))
            except LOST as lost:
                return lost
        return ConnectionLost(self._ending.reason)

    def _accept(self, message: JsonObject) -> None:
        seq = message.get("server_event_seq")
        if isinstance(seq, int) and not isinstance(seq, bool):
            if seq <= self.last_seq:
                return
            self.last_seq = seq
            self._unacknowledged.set()
        self._keep_credentials(message)
        self._deliver(message)

    def _keep_credentials(self, message: JsonObject) -> None:
        match message.get("type"):
            case "session.created" | "session.resumed":
                event = SessionCreated(message)
                candidates = (event.session.get("session_id"), event.session.get("id"), event.session_id)
                self.session_id = next((c for c in candidates if isinstance(c, str) and c), self.session_id)
                self.resume_token = event.resume_token or self.resume_token
            case "session.resync_required" | "session.replaced":
                # The journal is gone, or another connection owns the session: our token will be refused from now on.
                self.resume_token = None

    async def _acknowledge(self, transport: WebSocketTransport) -> None:
        acknowledged = 0
        while self._ending is None:
            await self._unacknowledged.wait()
            self._unacknowledged = trio.Event()
            async with self._writing:
                seq = self.last_seq
                if seq > acknowledged and self._ending is None:
                    acknowledgement = encode_command(AcknowledgeEvents(server_event_seq=seq))
                    await self._write(transport, acknowledgement.decode())
                    acknowledged = seq
