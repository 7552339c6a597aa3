"""WebSocket over a byte stream, on trio-websocket: the transport that the client uses unless it is given another.

Owns the opening handshake, size limits, keep-alive pings and a close that cannot hang. Never looks into a message.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import trio
from trio_websocket import ConnectionClosed, ConnectionRejected, WebSocketConnection
from wsproto import ConnectionType, WSConnection
from wsproto.utilities import LocalProtocolError

from duplex_engine.client.transport import CONNECT_TIMEOUT_S, public_part
from duplex_engine.errors import ConnectionLost

__all__ = ["WebSocket", "websocket"]

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
RECEIVE_BYTES = 64 * 1024
QUEUED_MESSAGES = 8
KEEPALIVE_S = 20.0
CLOSE_S = 1.0


class _Connection(WebSocketConnection):
    """trio-websocket's connection, whose reader ends in every case instead of leaving the opener waiting."""

    refusal: ConnectionRejected | None = None

    async def _reader_task(self) -> None:
        try:
            await super()._reader_task()
        except ConnectionRejected as refusal:
            self.refusal = refusal
        except LocalProtocolError:
            # An answer was due (a pong, say) on a connection that is already closing: it is over, nothing else.
            await self._close_stream()
        finally:
            self._open_handshake.set()

    async def opened(self, url: str) -> str | None:
        """Wait for the handshake; None when it succeeded, else why not."""
        with trio.move_on_after(CONNECT_TIMEOUT_S) as patience:
            await self._open_handshake.wait()
        if patience.cancelled_caught:
            return f"{public_part(url)} did not answer the WebSocket handshake within {CONNECT_TIMEOUT_S:g} s"
        if self.refusal is not None:
            text = (self.refusal.body or b"").decode("utf-8", "replace").strip()
            return f"{public_part(url)} refused the connection: HTTP {self.refusal.status_code} {text}".rstrip()
        if self.closed is not None or not self._reader_running:
            return f"{public_part(url)} closed the connection during the WebSocket handshake"
        return None


class WebSocket:
    """An open connection as a `WebSocketTransport`."""

    def __init__(self, connection: WebSocketConnection, stream: trio.abc.Stream) -> None:
        self._connection = connection
        self._stream = stream
        self._unfinished_frames = 0

    async def send(self, data: str) -> None:
        """Write one message. Raises ConnectionLost. Cancelled: only `close` makes sense after that."""
        self._unfinished_frames += 1
        try:
            await self._connection.send_message(data)
        except (ConnectionClosed, LocalProtocolError):
            raise self._lost() from None
        self._unfinished_frames -= 1

    async def recv(self) -> str | bytes:
        """The next message. Raises ConnectionLost."""
        try:
            return await self._connection.get_message()
        except ConnectionClosed:
            raise self._lost() from None

    async def close(self) -> None:
        """Say goodbye for at most a second, unless a frame is half written; then drop the connection."""
        if not self._unfinished_frames:
            with trio.move_on_after(CLOSE_S):
                await self._connection.aclose()
        await trio.aclose_forcefully(self._stream)

    async def keep_alive(self) -> None:
        """Ping every 20 s; drop the connection when an answer takes as long."""
        while True:
            await trio.sleep(KEEPALIVE_S)
            with trio.move_on_after(KEEPALIVE_S) as patience:
                try:
                    await self._connection.ping()
                except (ConnectionClosed, LocalProtocolError):
                    return
            if patience.cancelled_caught:
                await self.close()

    def _lost(self) -> ConnectionLost:
        reason = self._connection.closed
        if reason is None:
            return ConnectionLost("the connection is closed")
        return ConnectionLost(f"connection closed: {reason.code} {reason.reason or reason.name}")


@asynccontextmanager
async def websocket(stream: trio.abc.Stream, url: str, headers: list[tuple[bytes, bytes]]) -> AsyncIterator[WebSocket]:
    """Speak WebSocket as client on `stream`, which is closed when the block is left. Raises ConnectionLost."""
    parts = urlsplit(url)
    connection = _Connection(
        stream,
        WSConnection(ConnectionType.CLIENT),
        host=parts.netloc.rpartition("@")[2],
        path=f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/",
        client_extra_headers=headers,
        message_queue_size=QUEUED_MESSAGES,
        max_message_size=MAX_MESSAGE_BYTES,
        receive_buffer_size=RECEIVE_BYTES,
    )
    transport = WebSocket(connection, stream)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection._reader_task)
        refusal = await connection.opened(url)
        try:
            if refusal is None:
                nursery.start_soon(transport.keep_alive)
                yield transport
        finally:
            await transport.close()
            nursery.cancel_scope.cancel(reason="connection over")
    if refusal is not None:
        raise ConnectionLost(refusal)
