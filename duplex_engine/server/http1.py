"""HTTP/1.1 on a client's stream: requests in, plain answers out, until one of them asks to become a WebSocket.

Owns the limits on a request and the manners of a kept-alive connection. Never knows a route, and never opens a
WebSocket: a request that wants one is handed on together with every byte read after it.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from urllib.parse import parse_qsl

import attrs
import h11
import trio

from duplex_engine.server.byte_io import byte_io, linger

Headers = Sequence[tuple[bytes, bytes]]


@attrs.frozen(kw_only=True)
class HttpLimits:
    """Bounds of one request: bytes of head and body, seconds to read it and to write the answer."""

    head_bytes: int = 64 * 1024
    body_bytes: int = 16 * 1024 * 1024
    read_s: float = 10.0
    write_s: float = 10.0


@attrs.frozen(kw_only=True, eq=False)
class Request:
    """One request, read completely. Its printed form leaves out whatever may hold a credential.

    `path`: without the query, percent escapes as sent. `query`: decoded, the first of repeated names wins. `headers`:
    names in lower case. `trailing`: bytes read behind a request that wants to become a WebSocket.
    """

    method: str
    path: str
    target: str = attrs.field(repr=False)
    query: Mapping[str, str] = attrs.field(repr=False)
    headers: Headers = attrs.field(repr=False)
    body: bytes = attrs.field(default=b"", repr=False)
    trailing: bytes = attrs.field(default=b"", repr=False)

    def header(self, name: str) -> str | None:
        """All values of a header, joined as the standard says; None when it is absent. `name` in lower case."""
        values = [value.decode("latin-1") for key, value in self.headers if key == name.encode()]
        return ", ".join(values) if values else None

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

    async def next_request(self) -> Request | None:
        """The next request; None when there will be none: the peer left, was too slow, or sent no valid HTTP.

        A peer that can still listen has been told why (400, 408, 413, 431) before None is returned.
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
            await self._refuse(status, reason)
        return None

    async def respond(
        self, status: int, body: bytes = b"", *, content_type: str = "application/json", headers: Headers = ()
    ) -> None:
        """Answer the request read last. A peer that is gone, or takes nothing, simply has no further request."""
        head = [(b"content-type", content_type.encode()), (b"content-length", b"%d" % len(body)), *headers]
        answer = self._http.send(h11.Response(status_code=status, headers=head, reason=_reason(status))) or b""
        if body and self._method != b"HEAD":
            answer += self._http.send(h11.Data(data=body)) or b""
        answer += self._http.send(h11.EndOfMessage()) or b""
        await self._send(answer)

    @property
    def _begun(self) -> bool:
        """Whether the peer has sent any of the request that is waited for."""
        return self._http.their_state is not h11.IDLE or bool(self._http.trailing_data[0])

    async def _read_request(self) -> Request | None:
        self._method = b""
        event = await self._next_event()
        if not isinstance(event, h11.Request):
            return None
        self._method = event.method
        body: list[bytes] = []
        room = self._limits.body_bytes
        while isinstance(part := await self._next_event(), h11.Data):
            room -= len(part.data)
            if room < 0:
                limit = self._limits.body_bytes
                raise h11.RemoteProtocolError(f"a body may be at most {limit} bytes long", error_status_hint=413)
            body.append(bytes(part.data))
        return self._request(event, b"".join(body))

    def _request(self, event: h11.Request, body: bytes) -> Request:
        target = event.target.decode("ascii")
        path, _, query = target.partition("?")
        request = Request(
            method=event.method.decode("ascii"),
            path=path,
            target=target,
            query=dict(reversed(parse_qsl(query, keep_blank_values=True))),
            headers=tuple((bytes(name), bytes(value)) for name, value in event.headers),
            body=body,
        )
        return attrs.evolve(request, trailing=self._http.trailing_data[0]) if request.wants_websocket else request

    async def _next_event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                await self._send(self._http.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
            self._http.receive_data(await self._io.receive())
        return event

    async def _refuse(self, status: int, reason: str) -> None:
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            await self.respond(status, reason.encode(), content_type="text/plain", headers=[(b"connection", b"close")])
            await linger(self._io)

    async def _send(self, data: bytes) -> None:
        with trio.move_on_after(self._limits.write_s):
            try:
                await self._io.send_all(data)
                return
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
        # What followed half an answer could not be read.
        self._http.send_failed()


def _names(header: str | None) -> tuple[str, ...]:
    return tuple(name.strip().lower() for name in (header or "").split(","))


def _reason(status: int) -> bytes:
    return HTTPStatus(status).phrase.encode()
