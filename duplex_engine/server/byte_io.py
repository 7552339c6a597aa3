"""Bytes in and out of a client's stream, by the shortest way that the stream allows.

Owns the difference between a plain socket, where waiting first saves a pass through the scheduler and a write that the
kernel takes at once needs no waiting at all, and any other stream. Never knows what the bytes mean.
"""

import os
import socket
import struct

import trio

RECEIVE_BYTES = 64 * 1024
LINGER_S = 2.0
_GONE = (trio.BrokenResourceError, trio.ClosedResourceError)


class ByteIO:
    """Any stream: TLS, memory. The stream stays its owner's; `drop` is for a peer that is given up."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream

    async def receive(self) -> bytes:
        """Some bytes; b"" when the peer is gone, politely or not."""
        try:
            return bytes(await self._stream.receive_some(RECEIVE_BYTES))
        except _GONE:
            return b""

    def send_now(self, data: bytes) -> int:
        """Write without waiting; how many bytes were taken. Raises BrokenResourceError when the peer is gone."""
        return 0

    async def send_all(self, data: bytes | memoryview) -> None:
        """Write everything. Raises BrokenResourceError or ClosedResourceError when the peer is gone."""
        await self._stream.send_all(data)

    async def send_eof(self) -> None:
        """Tell the peer that nothing more will come, where the stream can say so without closing."""
        if isinstance(self._stream, trio.abc.HalfCloseableStream):
            try:
                await self._stream.send_eof()
            except _GONE:
                pass

    async def drop(self) -> None:
        """Close at once; what was not sent yet is forgotten."""
        await trio.aclose_forcefully(self._stream)


class SocketIO(ByteIO):
    """A plain socket."""

    def __init__(self, stream: trio.SocketStream) -> None:
        super().__init__(stream)
        self._socket = stream.socket

    async def receive(self) -> bytes:
        """Some bytes; b"" when the peer is gone, politely or not."""
        while True:
            try:
                await trio.lowlevel.wait_readable(self._socket)
                return os.read(self._socket.fileno(), RECEIVE_BYTES)
            except BlockingIOError:
                continue
            except (OSError, trio.ClosedResourceError):
                return b""

    def send_now(self, data: bytes) -> int:
        """Write without waiting; how many bytes were taken. Raises BrokenResourceError when the peer is gone."""
        try:
            return os.write(self._socket.fileno(), data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise trio.BrokenResourceError from error

    async def drop(self) -> None:
        """Close at once; what was not sent yet is forgotten."""
        try:
            # Otherwise the kernel keeps trying to deliver megabytes to a peer that is not there, for many minutes.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            pass
        await super().drop()


def byte_io(stream: trio.abc.Stream) -> ByteIO:
    """The shortest way for this stream."""
    if isinstance(stream, trio.SocketStream) and os.name == "posix":
        return SocketIO(stream)
    return ByteIO(stream)


async def linger(io: ByteIO) -> None:
    """Let a peer that is still sending read our last words: closing now would make its system throw them away.

    Reads and forgets until the peer has closed too, for at most `LINGER_S` seconds.
    """
    with trio.move_on_after(LINGER_S):
        await io.send_eof()
        while await io.receive():
            pass
