"""HTTP/1.1 on a client's stream: requests in, answers out, whole or part by part, until one asks to become a WebSocket.

Owns the limits on a request and the manners of a kept-alive connection. Never knows a route, and never opens a
WebSocket: a request that wants one is handed on together with every byte read after it. A body is read only by whoever
wants it, so that a caller who may not ask does not have to be listened to.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from urllib.parse import parse_qsl

import attrs
import h11
import trio

from duplex_engine.errors import DuplexError
from duplex_engine.server.byte_io import byte_io, linger

Headers = Sequence[tuple[bytes, bytes]]
CLOSE = (b"connection", b"close")
WRITE_BYTES = 256 * 1024
"""What has to be taken within one write deadline: the time for an answer grows with its length."""


@attrs.define(eq=False)
class BodyRefused(DuplexError):
    """The body of a request was too long (413), too slow (408) or no valid HTTP (400)."""

    status: int
    message: str

    def __str__(self) -> str:
        return f"{self.status}: {self.message}"


@attrs.frozen(kw_only=True)
class HttpLimits:
    """Bounds of one request: bytes of head and body, seconds to read each of them, and to write a piece of the answer."""

    head_bytes: int = 64 * 1024
    body_bytes: int = 15 * 1024 * 1024
    read_s: float = 10.0
    body_s: float = 60.0
    write_s: float = 10.0


@attrs.frozen(kw_only=True, eq=False)
class Request:
    """The head of one request. Its printed form leaves out whatever may hold a credential.

    `path`: without the query, percent escapes as sent. `query`: decoded, the first of repeated names wins. `headers`:
    names in lower case. `trailing`: bytes read behind a request that wants to become a WebSocket.
    """

    method: str
    path: str
    target: str = attrs.field(repr=False)
    query: Mapping[str, str] = attrs.field(repr=False)
    headers: Headers = attrs.field(repr=False)
    trailing: bytes = attrs.field(default=b"", repr=False)

    def header(self, name: str) -> str | None:
        """All values of a header, joined as the standard says; None when it is absent. `name` in lower case."""
        values = [value.decode("latin-1") for key, value in self.headers if key == name.encode()]
        return ", ".join(values) if values else None

    @property
    def has_body(self) -> bool:
        """Whether a body follows the head."""
        return self.header("transfer-encoding") is not None or self.body_bytes > 0

    @property
    def body_bytes(self) -> int:
        """How long the body is, as far as the head says; 0 when it does not."""
        return int(self.header("content-length") or 0)

    @property
    def wants_websocket(self) -> bool:
        """Whether this asks to become a WebSocket; whether it does so correctly shows when that is tried."""
        return _names(self.header("upgrade")) == ("websocket",) and "upgrade" in _names(self.header("connection"))

    @property
    def subprotocols(self) -> tuple[str, ...]:
        """The WebSocket subprotocols that the client offers, in its order."""
        offered = self.header("sec-websocket-protocol") or ""
        return tuple(filter(None, (name.strip() for name in offered.split(","))))


class HttpConnection:
    """The requests of one client connection, one after the other. The stream stays its owner's to close."""

    def __init__(self, stream: trio.abc.Stream, limits: HttpLimits = HttpLimits()) -> None:
        self._io = byte_io(stream)
        self._limits = limits
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head_bytes)
        self._method = b""
        self._declared_bytes = 0

    async def next_request(self) -> Request | None:
        """The next request; None when there will be none: the peer left, was too slow, or sent no valid HTTP.

        A peer that can still listen has been told why (400, 408, 431) before None is returned.
        """
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        if self._http.our_state is not h11.IDLE:
            return None
        status, reason = HTTPStatus.REQUEST_TIMEOUT.value, f"no complete request within {self._limits.read_s:g} s"
        with trio.move_on_after(self._limits.read_s):
            try:
                return await self._read_request()
            except h11.RemoteProtocolError as error:
                status, reason = error.error_status_hint, str(error)
        if self._begun or status != HTTPStatus.REQUEST_TIMEOUT:
            await self.respond(status, reason.encode(), content_type="text/plain", headers=[CLOSE])
        return None

    async def read_body(self) -> bytes:
        """The body of the request read last; b"" when it has none. Raises BodyRefused; answering then ends the connection.

        A peer that is gone before the end of its body raises it too (400).
        """
        if self._http.their_state is not h11.SEND_BODY:
            return b""
        with trio.move_on_after(self._limits.body_s):
            try:
                return await self._read_body()
            except h11.RemoteProtocolError as error:
                raise BodyRefused(error.error_status_hint, str(error)) from None
        raise BodyRefused(HTTPStatus.REQUEST_TIMEOUT, f"no complete body within {self._limits.body_s:g} s")

    async def respond(
        self, status: int, body: bytes = b"", *, content_type: str = "application/json", headers: Headers = ()
    ) -> None:
        """Answer the request read last. A peer that is gone, or takes nothing, simply has no further request.

        Whoever answers without having read the body ends the connection. When an answer has been begun, or was given up in
        the middle, nothing is sent.
        """
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        ending = CLOSE in headers or self._unfinished
        answer = self._head(status, content_type, [(b"content-length", b"%d" % len(body)), *headers])
        if body and self._method != b"HEAD":
            answer += self._http.send(h11.Data(data=body)) or b""
        answer += self._http.send(h11.EndOfMessage()) or b""
        if await self._send(answer) and ending:
            await linger(self._io)

    # --- answers of many parts ------------------------------------------------------------------------------------

    async def begin(self, status: int, content_type: str, headers: Headers = ()) -> bool:
        """Begin an answer whose length is not known; false when the peer is gone or takes nothing.

        It is given up when one of its writes is cancelled.
        """
        return await self._send(self._head(status, content_type, headers))

    async def send_part(self, data: bytes) -> bool:
        """Send more of the answer that was begun; false when the peer is gone or takes nothing."""
        if self._http.our_state is not h11.SEND_BODY:
            return False
        return await self._send(self._http.send(h11.Data(data=data)) or b"")

    async def end(self) -> bool:
        """The answer that was begun is complete; false when the peer is gone or takes nothing."""
        if self._http.our_state is not h11.SEND_BODY:
            return False
        return await self._send(self._http.send(h11.EndOfMessage()) or b"")

    async def until_gone(self) -> None:
        """Return once the peer has closed its side; to be cancelled when its answer is complete.

        A further request that it sends meanwhile is kept. Beyond the size of a head nothing is read, and then nothing
        is noticed either.
        """
        while len(self._http.trailing_data[0]) <= self._limits.head_bytes:
            data = await self._io.receive()
            self._http.receive_data(data)
            if not data:
                return
        await trio.sleep_forever()

    @property
    def _begun(self) -> bool:
        """Whether the peer has sent any of the request that is waited for."""
        return self._http.their_state is not h11.IDLE or bool(self._http.trailing_data[0])

    @property
    def _unfinished(self) -> bool:
        """Whether the request read last did not come to its end."""
        return self._http.their_state in (h11.SEND_BODY, h11.ERROR)

    async def _read_request(self) -> Request | None:
        self._method = b""
        event = await self._next_event()
        if not isinstance(event, h11.Request):
            return None
        self._method = event.method
        request = _request(event)
        self._declared_bytes = request.body_bytes
        if not request.has_body:
            await self._next_event()
        elif request.wants_websocket:
            raise h11.RemoteProtocolError("an upgrade has no body")
        return attrs.evolve(request, trailing=self._http.trailing_data[0]) if request.wants_websocket else request

    async def _read_body(self) -> bytes:
        body: list[bytes] = []
        self._check_length(self._declared_bytes)
        length = 0
        while isinstance(part := await self._next_event(), h11.Data):
            length += len(part.data)
            self._check_length(length)
            body.append(bytes(part.data))
        return b"".join(body)

    def _check_length(self, length: int) -> None:
        limit = self._limits.body_bytes
        if length > limit:
            raise BodyRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body may be at most {limit} bytes long")

    async def _next_event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                await self._send(self._http.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
            self._http.receive_data(await self._io.receive())
        return event

    def _head(self, status: int, content_type: str, headers: Headers) -> bytes:
        head = [(b"content-type", content_type.encode()), *headers]
        if self._unfinished and CLOSE not in headers:
            head.append(CLOSE)
        return self._http.send(h11.Response(status_code=status, headers=head, reason=_reason(status))) or b""

    async def _send(self, data: bytes) -> bool:
        sent = False
        try:
            sent = await self._send_pieces(data)
        finally:
            if not sent:
                # What followed half an answer could not be read.
                self._http.send_failed()
        return sent

    async def _send_pieces(self, data: bytes) -> bool:
        for start in range(0, len(data), WRITE_BYTES):
            if not await self._send_piece(memoryview(data)[start : start + WRITE_BYTES]):
                return False
        return True

    async def _send_piece(self, piece: memoryview) -> bool:
        with trio.move_on_after(self._limits.write_s):
            try:
                await self._io.send_all(piece)
                return True
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
        return False


def _request(event: h11.Request) -> Request:
    target = event.target.decode("ascii")
    path, _, query = target.partition("?")
    return Request(
        method=event.method.decode("ascii"),
        path=path,
        target=target,
        query=dict(reversed(parse_qsl(query, keep_blank_values=True))),
        headers=tuple((bytes(name), bytes(value)) for name, value in event.headers),
    )


def _names(header: str | None) -> tuple[str, ...]:
    return tuple(name.strip().lower() for name in (header or "").split(","))


def _reason(status: int) -> bytes:
    return HTTPStatus(status).phrase.encode()
