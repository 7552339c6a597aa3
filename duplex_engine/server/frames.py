"""WebSocket frames as a server reads and writes them, without any I/O.

Owns the short path for what nearly every frame is: one whole, masked text message. Never interprets anything else:
fragments, binary messages, control frames and broken headers are cut out and left to wsproto.
"""

import struct
from collections.abc import Sequence

import attrs
import numpy as np

TOO_LONG = 1009
NOT_UTF8 = 1007

_WHOLE_TEXT = 0x81
_MASKED = 0x80
_FIN = 0x80
_CONTINUATION, _TEXT, _BINARY = 0, 1, 2


def _xor_by_numpy(data: bytes | bytearray | memoryview, mask: bytes | bytearray) -> bytes:
    keys = np.frombuffer(mask * (len(data) // 4 + 1), np.uint8)[: len(data)]
    return (np.frombuffer(data, np.uint8) ^ keys).tobytes()


try:
    from websockets.speedups import apply_mask as unmask
except ImportError:  # a platform without the compiled routine
    unmask = _xor_by_numpy


@attrs.frozen
class Leftover:
    """Bytes of a frame that the short path does not read; in order, they are a valid stream for wsproto."""

    data: bytes


@attrs.frozen
class Violation:
    """The peer broke a rule that is checked here; `code` is the close code it deserves. Nothing follows."""

    code: int
    reason: str


Piece = bytes | Leftover | Violation


class FrameCutter:
    """Cuts the bytes of one client at frame boundaries; `bytes` pieces are whole text messages, valid UTF-8.

    A message is at most `max_message_bytes` long, whole or in fragments; a longer one is a violation as soon as its
    header is read.
    """

    def __init__(self, max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes
        self._held = bytearray()
        self._leftover_bytes = 0
        self._fragment_bytes: int | None = None

    @property
    def mid_frame(self) -> bool:
        """Whether a frame has been begun and not ended."""
        return bool(self._held) or self._leftover_bytes > 0

    def cut(self, data: bytes) -> list[Piece]:
        """The pieces that these bytes complete, in order."""
        held = self._held
        if not held:
            pieces, used = self._cut(data)
            if used < len(data):
                held += data[used:]
            return pieces
        held += data
        pieces, used = self._cut(held)
        del held[:used]
        return pieces

    def _cut(self, data: bytes | bytearray) -> tuple[list[Piece], int]:
        pieces: list[Piece] = []
        pos, end = 0, len(data)
        while pos < end:
            if self._leftover_bytes:
                stop = min(pos + self._leftover_bytes, end)
                self._leftover_bytes -= stop - pos
                pieces.append(Leftover(bytes(data[pos:stop])))
                pos = stop
                continue
            extent = _payload_extent(data, pos, end)
            if extent is None:
                break
            start, stop = extent
            if data[pos] != _WHOLE_TEXT or self._fragment_bytes is not None or not _is_plain(data, pos, start, stop):
                violation = self._leave(data[pos], stop - pos, stop - start)
            elif stop - start > self._max_message_bytes:
                violation = self._too_long()
            elif stop > end:
                break
            else:
                text = unmask(data[start:stop], data[start - 4 : start])
                violation = None if text.isascii() else _utf8_violation(text)
                if violation is None:
                    pieces.append(text)
                    pos = stop
            if violation is not None:
                return [*pieces, violation], end
        return pieces, pos

    def _leave(self, first: int, frame_bytes: int, payload_bytes: int) -> Violation | None:
        """Leave the frame to wsproto, watching only the length of the message it belongs to."""
        self._leftover_bytes = frame_bytes
        if first & 0x0F not in (_CONTINUATION, _TEXT, _BINARY):
            return None
        message_bytes = (self._fragment_bytes or 0) + payload_bytes
        self._fragment_bytes = None if first & _FIN else message_bytes
        return self._too_long() if message_bytes > self._max_message_bytes else None

    def _too_long(self) -> Violation:
        return Violation(TOO_LONG, f"a message may be at most {self._max_message_bytes} bytes long")


def _payload_extent(data: bytes | bytearray, pos: int, end: int) -> tuple[int, int] | None:
    """Where the payload of the frame at `pos` starts and stops; None while its header is incomplete."""
    if end - pos < 2:
        return None
    second = data[pos + 1]
    length = second & 0x7F
    start = pos + (2 if length < 126 else 4 if length == 126 else 10)
    if second & _MASKED:
        start += 4
    if start > end:
        return None
    if length == 126:
        length = data[pos + 2] << 8 | data[pos + 3]
    elif length == 127:
        length = int.from_bytes(data[pos + 2 : pos + 10])
    return start, start + length


def _is_plain(data: bytes | bytearray, pos: int, start: int, stop: int) -> bool:
    """Whether the frame is masked and states its length in the shortest way, as it must."""
    length = stop - start
    return data[pos + 1] >= _MASKED and start - pos == (6 if length < 126 else 8 if length < 65536 else 14)


def _utf8_violation(text: bytes) -> Violation | None:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return Violation(NOT_UTF8, f"a text message must be UTF-8: {error.reason} at byte {error.start}")
    return None


def text_frames(messages: Sequence[bytes]) -> bytes:
    """These UTF-8 messages as unmasked text frames, one behind the other."""
    parts: list[bytes] = []
    for message in messages:
        length = len(message)
        if length < 126:
            parts.append(bytes((_WHOLE_TEXT, length)))
        elif length < 65536:
            parts.append(struct.pack("!BBH", _WHOLE_TEXT, 126, length))
        else:
            parts.append(struct.pack("!BBQ", _WHOLE_TEXT, 127, length))
        parts.append(message)
    return b"".join(parts)
