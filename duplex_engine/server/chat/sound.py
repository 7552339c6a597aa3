"""Sound inside a chat message: base64 of a WAV file or of bare PCM16, as the append it stands for.

Owns the formats that are taken. Never judges whether anything can be heard.
"""

import io
import struct
import wave
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from duplex_engine.errors import ProtocolViolation
from duplex_engine.protocol.commands import AppendAudio
from duplex_engine.protocol.decode_append import decode_audio
from duplex_engine.protocol.fields import sample_rate, shown
from duplex_engine.protocol.formats import MAX_RATE_HZ, MIN_RATE_HZ, Encoding
from duplex_engine.server.chat.refusal import ChatRefused, refused, wrong

PCM_RATE_HZ: Final = 24_000
SAMPLE_BYTES: Final = 2
MOST_CHANNELS: Final = 8


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
    return read(data, param)


def _read_pcm(data: bytes, param: str) -> AppendAudio:
    return _append(data, PCM_RATE_HZ)


def _read_wav(data: bytes, param: str) -> AppendAudio:
    try:
        with wave.open(io.BytesIO(data)) as file:
            channels, width, rate_hz = file.getnchannels(), file.getsampwidth(), file.getframerate()
            frames = file.readframes(file.getnframes())
    except (wave.Error, EOFError, struct.error) as error:
        raise _bad_wav(param, f"is no WAV file of plain PCM: {error or 'it ends too early'}") from None
    if width != SAMPLE_BYTES or channels > MOST_CHANNELS:
        raise _bad_wav(param, f"has {channels} channels of {8 * width} bits; send 16-bit PCM, best with one channel")
    try:
        sample_rate(rate_hz, param)
    except ProtocolViolation:
        raise _bad_wav(param, f"has {rate_hz} Hz; send {MIN_RATE_HZ} to {MAX_RATE_HZ}") from None
    return _append(_mixed(frames, channels), rate_hz)


def _mixed(frames: bytes, channels: int) -> bytes:
    """All channels as one."""
    frames = frames[: len(frames) - len(frames) % (SAMPLE_BYTES * channels)]
    if channels == 1:
        return frames
    mixed: bytes = np.frombuffer(frames, "<i2").reshape(-1, channels).mean(axis=1).astype("<i2").tobytes()
    return mixed


def _append(pcm: bytes, rate_hz: int) -> AppendAudio:
    return AppendAudio(audio=pcm, encoding=Encoding.PCM16, sample_rate_hz=rate_hz)


def _bad_wav(param: str, what: str) -> ChatRefused:
    return ChatRefused(400, f"{param}.data {what}", f"{param}.data", "bad_audio")


FORMATS: Final[Mapping[str, Callable[[bytes, str], AppendAudio]]] = {"wav": _read_wav, "pcm16": _read_pcm}
