"""A WebSocket client made of single steps, so that tests can be rude; and a server around one application."""

import base64
import os
import struct
from contextlib import asynccontextmanager
from functools import partial

import trio
from trio_websocket import ConnectionClosed

from duplex_engine.actors.supervisor import contain
from duplex_engine.server.http1 import HttpConnection
from duplex_engine.server.transport import accept_websocket

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
MASK = b"\x11\x22\x33\x44"


def masked(data, mask=MASK):
    keys = (mask * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(keys, "big")).to_bytes(len(data), "big")


def header(opcode, length, fin=True):
    first = (0x80 if fin else 0) | opcode
    if length < 126:
        return bytes((first, 0x80 | length))
    if length < 65536:
        return struct.pack("!BBH", first, 0x80 | 126, length)
    return struct.pack("!BBQ", first, 0x80 | 127, length)


def frame(opcode, payload=b"", fin=True):
    return header(opcode, len(payload), fin) + MASK + masked(payload)


def close_frame(code=1000, reason=b""):
    return frame(CLOSE, struct.pack("!H", code) + reason)


class Peer:
    """The client's end of a stream."""

    def __init__(self, stream):
        self.stream = stream
        self._held = b""

    async def upgrade(self, path="/v1/realtime", offer=(), behind=b""):
        """Send the handshake, with `behind` in the same write; returns status line and headers of the answer."""
        lines = [f"GET {path} HTTP/1.1", "Host: test", "Upgrade: websocket", "Connection: keep-alive, Upgrade"]
        lines += [f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}", "Sec-WebSocket-Version: 13"]
        lines += [*offer, "", ""]
        await self.send("\r\n".join(lines).encode() + behind)
        head = await self.read_head()
        return head[0], {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:])}

    async def send(self, data):
        await self.stream.send_all(data)

    async def read_head(self):
        while b"\r\n\r\n" not in self._held:
            await self._more()
        head, _, self._held = self._held.partition(b"\r\n\r\n")
        return head.decode().split("\r\n")

    async def read(self, count):
        """Exactly `count` bytes, taking no more than that from the stream."""
        while len(self._held) < count:
            await self._more(count - len(self._held))
        data, self._held = self._held[:count], self._held[count:]
        return data

    async def next_frame(self):
        """(opcode, payload) of the next frame, which must be whole and unmasked."""
        first, second = await self.read(2)
        assert first & 0xF0 == 0x80, "the server sends whole frames without extensions"
        length = second
        if second == 126:
            (length,) = struct.unpack("!H", await self.read(2))
        elif second == 127:
            (length,) = struct.unpack("!Q", await self.read(8))
        return first & 0x0F, await self.read(length)

    async def next_text(self):
        opcode, payload = await self.next_frame()
        assert opcode == TEXT, (opcode, payload)
        return payload

    async def close_code(self):
        """The code of the close frame that comes next, pings aside."""
        while True:
            opcode, payload = await self.next_frame()
            if opcode == CLOSE:
                return struct.unpack("!H", payload[:2])[0]
            assert opcode == PING, (opcode, payload)

    async def at_end(self):
        """Whether the server has closed the stream and sent nothing more."""
        try:
            return not self._held and not await self.stream.receive_some(1)
        except trio.BrokenResourceError:
            return not self._held

    async def _more(self, at_most=65536):
        data = await self.stream.receive_some(at_most)
        if not data:
            raise EOFError(f"the server closed, {len(self._held)} bytes are left")
        self._held += data


async def serve(stream, app, subprotocol=None):
    """Answer one upgrade on `stream` and run `app(socket)`."""
    request = await HttpConnection(stream).next_request()
    if request is None:
        return
    async with accept_websocket(stream, request, subprotocol=subprotocol) as socket:
        await app(socket)


async def echo(socket):
    try:
        while True:
            await socket.send_frames([await socket.receive()], 5)
    except ConnectionClosed:
        pass


@asynccontextmanager
async def real_server(app):
    """`app` behind a real listener; yields an opener of peers and a list that gathers what the connections raised.

    In the end the peers are closed, and every connection has to end by that.
    """
    crashes, peers = [], []

    async def connection(stream):
        if (error := await contain(lambda: serve(stream, app))) is not None:
            crashes.append(error)

    async def connect():
        peers.append(Peer(await trio.open_tcp_stream("127.0.0.1", port)))
        return peers[-1]

    with trio.fail_after(30):
        async with trio.open_nursery() as connections, trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            port = listeners[0].socket.getsockname()[1]
            nursery.start_soon(partial(trio.serve_listeners, connection, listeners, handler_nursery=connections))
            yield connect, crashes
            for peer in peers:
                await peer.stream.aclose()
            nursery.cancel_scope.cancel()
