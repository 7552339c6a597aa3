"""Sound inside a chat message: base64 of a WAV file or of bare PCM16, as the append it stands for.

Owns the formats that are taken. Never judges whether anything can be heard.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

import attrs
import numpy as np

from duplex_engine.errors import ProtocolViolation
from duplex_engine.protocol.commands import AppendAudio
from duplex_engine.protocol.decode_append import decode_audio
from duplex_engine.protocol.fields import shown
from duplex_engine.protocol.formats import MAX_RATE_HZ, MIN_RATE_HZ, Encoding
from duplex_engine.server.chat.refusal import ChatRefused, refused, wrong

PCM_RATE_HZ: Final = 24_000
SAMPLE_BITS: Final = 16
MOST_CHANNELS: Final = 8
PIECE_S: Final = 10

RIFF_HEADER_BYTES: Final = 12
MOST_CHUNKS: Final = 64
FORMAT_FIELDS: Final = struct.Struct("<HHIIHH")
PLAIN, EXTENSIBLE = 1, 0xFFFE
SUBFORMAT_AT: Final = 24


def read_sound(part: object, param: str) -> AppendAudio:
    """The sound that `input_audio` holds: `data` and `format`. Raises ChatRefused."""
    if not isinstance(part, Mapping):
        raise wrong(param, "an object with data and format", part)
    text, name = part.get("data"), part.get("format")
    if not isinstance(text, str):
        raise wrong(f"{param}.data", "base64 text", text)
    read = FORMATS.get(name) if isinstance(name, str) else None
    if read is None:
        message = f"{param}.format must be one of {', '.join(FORMATS)}, not {shown(name)}"
        raise ChatRefused(400, message, f"{param}.format", "unsupported_audio_format")
    try:
        data = decode_audio(text, f"{param}.data")
    except ProtocolViolation as violation:
        raise refused(violation) from None
    return read(data, f"{param}.data")


def cut_sound(sound: AppendAudio) -> list[AppendAudio]:
    """The same in pieces short enough that nobody else's sound is late because one of them is being decoded."""
    assert sound.sample_rate_hz is not None, "a sound that was read has a rate"
    size = PIECE_S * sound.sample_rate_hz * SAMPLE_BITS // 8
    starts = range(0, max(len(sound.audio), 1), size)
    return [attrs.evolve(sound, audio=sound.audio[start : start + size]) for start in starts]


def _read_pcm(data: bytes, param: str) -> AppendAudio:
    return _append(data, PCM_RATE_HZ)


def _read_wav(data: bytes, param: str) -> AppendAudio:
    """16-bit PCM of any rate and up to eight channels; a file whose lengths were never filled in goes to its end."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise _bad(param, "is no WAV file")
    chunks = dict(islice(_chunks(data), MOST_CHUNKS))
    layout, frames = chunks.get(b"fmt ", b""), chunks.get(b"data", b"")
    if len(layout) < FORMAT_FIELDS.size:
        raise _bad(param, "is a WAV file that does not say its format")
    kind, channels, rate_hz, _, _, bits = FORMAT_FIELDS.unpack_from(layout)
    if kind == EXTENSIBLE and len(layout) >= SUBFORMAT_AT + 2:
        kind = int.from_bytes(layout[SUBFORMAT_AT : SUBFORMAT_AT + 2], "little")
    if (kind, bits) != (PLAIN, SAMPLE_BITS) or not 1 <= channels <= MOST_CHANNELS:
        raise _bad(param, f"has {channels} channels of {bits} bits in format {kind}; send 16-bit PCM, one channel")
    if not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
        raise _bad(param, f"has {rate_hz} Hz; send {MIN_RATE_HZ} to {MAX_RATE_HZ}")
    return _append(_mixed(frames, channels), rate_hz)


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = RIFF_HEADER_BYTES
    while at + 8 <= len(data):
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        yield data[at : at + 4], data[at + 8 : at + 8 + size]
        if data[at : at + 4] == b"data":
            return
        at += 8 + size + size % 2


def _mixed(frames: bytes, channels: int) -> bytes:
    """All channels as one; half a frame at the end is dropped."""
    whole = len(frames) - len(frames) % (channels * SAMPLE_BITS // 8)
    if channels == 1:
        return frames[:whole]
    mixed: bytes = np.frombuffer(frames[:whole], "<i2").reshape(-1, channels).mean(axis=1).astype("<i2").tobytes()
    return mixed


def _append(pcm: bytes, rate_hz: int) -> AppendAudio:
    return AppendAudio(audio=pcm, encoding=Encoding.PCM16, sample_rate_hz=rate_hz)


def _bad(param: str, what: str) -> ChatRefused:
    return ChatRefused(400, f"{param} {what}", param, "bad_audio")


FORMATS: Final[Mapping[str, Callable[[bytes, str], AppendAudio]]] = {"wav": _read_wav, "pcm16": _read_pcm}
