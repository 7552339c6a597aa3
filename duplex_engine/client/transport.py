"""How a client reaches a server: the seam for other transports, addresses, and frames over a byte stream.

Owns `ConnectFn` and the WebSocket handshake, keep-alive and close of the built-in transport. Never reads a message's
content and never reconnects.
"""

import errno
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

import trio

from duplex_engine.errors import ConnectionLost

__all__ = [
    "LOST",
    "ConnectFn",
    "WebSocketTransport",
    "build_realtime_url",
    "open_stream",
    "session_url",
    "transport_over",
]

CONNECT_TIMEOUT_S = 10.0
DEFAULT_PATH = "/v1/realtime"
_SCHEMES = {"": "ws", "ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}
_PORTS = {"ws": 80, "wss": 443}

LOST = (
    ConnectionLost,
    OSError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    trio.EndOfChannel,
    trio.TooSlowError,
)
"""What a transport may raise to say that its connection is over."""


class WebSocketTransport(Protocol):
    """One connection that carries whole text messages. Every method raises one of `LOST` once the connection is over.

    After `send` has raised, `recv` must sooner or later raise as well: that is how the client notices.
    """

    async def send(self, data: str) -> None:
        """Write one message. Raising one of LOST means that the server did not get it as a whole."""

    async def recv(self) -> str | bytes:
        """The next message, waiting for it."""

    async def close(self) -> None:
        """End the connection; bounded in time, harmless when repeated."""


ConnectFn = Callable[[str], Awaitable[WebSocketTransport | trio.abc.Stream]]
"""Opens a connection to a URL: message by message, or a byte stream on which the client speaks WebSocket itself."""


@asynccontextmanager
async def transport_over(
    connect: ConnectFn, url: str, headers: list[tuple[bytes, bytes]]
) -> AsyncIterator[WebSocketTransport]:
    """A transport to `url`, closed when the block is left. Raises one of LOST when there is none within 10 s.

    The block must not raise anything but cancellation.
    """
    with trio.move_on_after(CONNECT_TIMEOUT_S) as patience:
        connection = await connect(url)
    if patience.cancelled_caught:
        raise ConnectionLost(f"no connection to {public_part(url)} within {CONNECT_TIMEOUT_S:g} s")
    if isinstance(connection, trio.abc.Stream):
        from duplex_engine.client.websocket import websocket  # keeps the import of the client light

        async with websocket(connection, url, headers) as framed:
            yield framed
        return
    try:
        yield connection
    finally:
        with trio.move_on_after(1.0):
            await connection.close()


async def open_stream(url: str, ssl_context: ssl.SSLContext | None = None) -> trio.abc.Stream:
    """A TCP or TLS stream to the server of `url`. Raises ConnectionLost with the reason in one line."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    try:
        stream = await trio.open_tcp_stream(host, port)
    except OSError as error:
        raise ConnectionLost(f"cannot connect to {public_part(url)}: {_reason(error)}") from error
    if parts.scheme != "wss":
        return stream
    secure = trio.SSLStream(
        stream, ssl_context or ssl.create_default_context(), server_hostname=host, https_compatible=True
    )
    try:
        await secure.do_handshake()
    except trio.BrokenResourceError as error:
        raise ConnectionLost(f"TLS with {public_part(url)} failed: {error.__cause__ or error}") from error
    return secure


def session_url(url: str, *, model: str, api_key: str | None = None) -> str:
    """The URL of a duplex session: default path, `duplex=1`, the model, and `autostart=0`, which is not negotiable.

    With autostart the server would open a default session before it has read this client's configuration.
    """
    parts = _split(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    query.setdefault("duplex", "1")
    if model:
        query.setdefault("model", model)
    if api_key is not None:
        query.setdefault("api_key", api_key)
    query["autostart"] = "0"
    path = parts.path if parts.path not in ("", "/") else DEFAULT_PATH
    return urlunsplit((parts.scheme, parts.netloc, path, urlencode(query), ""))


def build_realtime_url(
    url: str, model: str | None, *, autostart: bool | None = None, extra_query: dict[str, str] | None = None
) -> str:
    """A Realtime URL for programs that speak the protocol themselves; query parameters already there stay as they are.

    http and https become ws and wss. Raises ValueError for any other scheme, or without a host.
    """
    parts = _split(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    wanted = {"duplex": "1"} | ({"model": model} if model else {}) | (extra_query or {})
    if autostart is not None:
        wanted["autostart"] = "1" if autostart else "0"
    return urlunsplit((parts.scheme, parts.netloc, parts.path, urlencode(wanted | query), parts.fragment))


def public_part(url: str) -> str:
    """The URL without its query, where secrets may be: for messages."""
    return urlunsplit(urlsplit(url)._replace(query="", fragment=""))


def _split(url: str) -> SplitResult:
    parts = urlsplit(url)
    scheme = _SCHEMES.get(parts.scheme)
    if scheme is None or not parts.hostname:
        raise ValueError(f"{public_part(url)!r} is no server address; write it like ws://127.0.0.1:8099{DEFAULT_PATH}")
    return parts._replace(scheme=scheme)


def _reason(error: OSError) -> str:
    """trio reports all addresses that it tried as one error around the real ones."""
    cause = error.__cause__
    if isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    if isinstance(cause, OSError):
        return _reason(cause)
    if error.errno == errno.ECONNREFUSED:
        return "connection refused (is the server running?)"
    return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error.strerror or str(error)
