"""A WebSocket client that costs almost nothing, so that a load generator measures the server and not itself.

Text frames only, masked with a zero key, over one TCP stream. For loopback benchmarks; never for the product.
"""

import base64
import os
from collections.abc import Iterator

import trio

ZERO_KEY = bytes(4)


class LeanSocket:
    """One client connection. `frames` yields complete text frames as they arrive; `sent_at` is up to the caller."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._buffer = bytearray()
        self._farewell: str | None = None
        self._pings: list[bytes] = []
        self._writing = trio.Lock()

    @classmethod
    async def connect(cls, host: str, port: int, target: str) -> "LeanSocket":
        """Open TCP, do the upgrade. Raises RuntimeError when the server does not switch protocols."""
        socket = cls(await trio.open_tcp_stream(host, port))
        await socket.upgrade(upgrade_request(host, port, target))
        return socket

    async def upgrade(self, request: bytes) -> None:
        """Send `request` (and whatever stands behind it). Raises RuntimeError when the server does not switch."""
        await self.stream.send_all(request)
        answer = b""
        while b"\r\n\r\n" not in answer:
            data = await self.stream.receive_some(65536)
            if not data:
                raise RuntimeError(f"the server hung up during the upgrade: {answer[:200]!r}")
            answer += data
        status, _, rest = answer.partition(b"\r\n\r\n")
        if b" 101 " not in status.split(b"\r\n")[0]:
            raise RuntimeError(f"no upgrade: {status.decode(errors='replace')}")
        self._buffer += rest

    async def send(self, *frames: bytes) -> None:
        """Masked text frames in one write."""
        async with self._writing:
            await self.stream.send_all(b"".join(map(masked, frames)))

    async def receive(self) -> list[bytes]:
        """At least one text frame; raises EOFError when the server has hung up or closed."""
        while True:
            frames = list(self._cut())
            while self._pings:
                async with self._writing:
                    await self.stream.send_all(masked(self._pings.pop(), opcode=10))
            if frames:
                return frames
            if self._farewell is not None:
                raise EOFError(self._farewell)
            data = await self.stream.receive_some(262_144)
            if not data:
                raise EOFError("the server hung up")
            self._buffer += data

    def _cut(self) -> Iterator[bytes]:
        buffer = self._buffer
        start = 0
        while len(buffer) - start >= 2:
            length, body = buffer[start + 1], start + 2
            if length == 126:
                length, body = int.from_bytes(buffer[start + 2 : start + 4], "big"), start + 4
            elif length == 127:
                length, body = int.from_bytes(buffer[start + 2 : start + 10], "big"), start + 10
            if body + length > len(buffer) or body > len(buffer):
                break
            opcode = buffer[start] & 15
            if opcode == 1:
                yield bytes(buffer[body : body + length])
            elif opcode == 9:
                self._pings.append(bytes(buffer[body : body + length]))
            elif opcode == 8:
                self._farewell = f"closed with {bytes(buffer[body : body + length])!r}"
            start = body + length
        del buffer[:start]

    async def aclose(self) -> None:
        """Hang up without a close frame."""
        await self.stream.aclose()


def upgrade_request(host: str, port: int, target: str) -> bytes:
    """A request to become a WebSocket."""
    key = base64.b64encode(os.urandom(16)).decode()
    head = (
        f"GET {target} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    return head.encode()


def masked(frame: bytes, opcode: int = 1) -> bytes:
    """A complete masked frame, text by default."""
    size, first = len(frame), 0x80 | opcode
    if size < 126:
        head = bytes((first, 0x80 | size))
    elif size < 65536:
        head = bytes((first, 0xFE)) + size.to_bytes(2, "big")
    else:
        head = bytes((first, 0xFF)) + size.to_bytes(8, "big")
    return head + ZERO_KEY + frame
