"""Sample arithmetic: encoded bytes to float32 and back, the two G.711 laws, WAV wrapping, loudness.

Owns `Samples`, the one shape audio has inside the engine. Keeps no state: streams live in `decode.py` and `encode.py`.
"""

import math
import struct

import numpy as np
import numpy.typing as npt

from duplex_engine.errors import ProtocolViolation
from duplex_engine.protocol.formats import Encoding

Samples = npt.NDArray[np.float32]
"""Mono audio, shape (n,), float32 in -1..1."""

SILENCE: Samples = np.zeros(0, np.float32)
SILENCE.setflags(write=False)

_Steps = npt.NDArray[np.int32]
_Codes = npt.NDArray[np.uint8]

_FULL_SCALE = 32768.0
_PER_STEP = np.float32(1 / _FULL_SCALE)


def pcm16_to_float(pcm: bytes | memoryview) -> Samples:
    """Little-endian 16-bit PCM as samples, a fresh array. `pcm` must hold whole samples."""
    samples: Samples = np.multiply(np.frombuffer(pcm, "<i2"), _PER_STEP, dtype=np.float32)
    return samples


def float_to_pcm16(samples: Samples) -> bytes:
    """Samples as little-endian 16-bit PCM: rounded to the nearest step, clipped beyond full scale."""
    steps = np.rint(samples * np.float32(_FULL_SCALE))
    pcm: bytes = np.clip(steps, -32768, 32767).astype("<i2").tobytes()
    return pcm


def f32_to_float(data: bytes | memoryview) -> Samples:
    """Little-endian float32 as samples, clipped to -1..1.

    Raises ProtocolViolation `bad_audio` when a sample is not a finite number.
    """
    samples = np.frombuffer(data, "<f4")
    if not np.isfinite(samples).all():
        raise ProtocolViolation("bad_audio", "float audio must be finite, got NaN or infinity", "audio")
    clipped: Samples = np.clip(samples, -1, 1).astype(np.float32, copy=False)
    return clipped


def _ulaw_steps() -> _Steps:
    code = ~np.arange(256) & 0xFF
    segment, interval = code >> 4 & 7, code & 15
    magnitude = ((interval << 3) + 132 << segment) - 132
    return np.where(code & 0x80, -magnitude, magnitude).astype(np.int32)


def _alaw_steps() -> _Steps:
    code = np.arange(256) ^ 0x55
    segment, interval = code >> 4 & 7, code & 15
    magnitude = np.where(segment == 0, (interval << 4) + 8, (interval << 4) + 264 << np.maximum(segment - 1, 0))
    return np.where(code & 0x80, magnitude, -magnitude).astype(np.int32)


def _pcm16_in_code_order() -> tuple[_Steps, _Steps]:
    """Every 16-bit value, at the place of its unsigned bit pattern: one's complement magnitude and sign."""
    value = np.arange(65536, dtype=np.uint16).view(np.int16).astype(np.int32)
    return np.where(value < 0, ~value, value), (value < 0).astype(np.int32)


def _ulaw_codes() -> _Codes:
    magnitude, negative = _pcm16_in_code_order()
    biased = np.minimum(magnitude, 32635) + 132
    segment = np.log2(biased).astype(np.int32) - 7
    code = negative << 7 | segment << 4 | (biased >> segment + 3) & 15
    codes: _Codes = (~code & 0xFF).astype(np.uint8)
    return codes


def _alaw_codes() -> _Codes:
    magnitude, negative = _pcm16_in_code_order()
    segment = np.maximum(np.log2(np.maximum(magnitude, 1)).astype(np.int32) - 7, 0)
    interval = magnitude >> np.maximum(segment, 1) + 3 & 15
    code = (1 - negative) << 7 | segment << 4 | interval
    codes: _Codes = (code ^ 0x55).astype(np.uint8)
    return codes


# ITU-T G.711, tabulated once: code to 16-bit steps (as samples), and 16-bit pattern to code.
_EXPANSION = {
    Encoding.ULAW: (_ulaw_steps() * _PER_STEP).astype(np.float32),
    Encoding.ALAW: (_alaw_steps() * _PER_STEP).astype(np.float32),
}
_COMPRESSION = {Encoding.ULAW: _ulaw_codes(), Encoding.ALAW: _alaw_codes()}


def expand_g711(data: bytes | memoryview, law: Encoding) -> Samples:
    """G.711 codes of `law` (ULAW or ALAW) as samples, a fresh array."""
    return _EXPANSION[law][np.frombuffer(data, np.uint8)]


def compress_g711(pcm: bytes, law: Encoding) -> bytes:
    """Little-endian 16-bit PCM as G.711 codes of `law` (ULAW or ALAW), one byte a sample."""
    codes: _Codes = _COMPRESSION[law][np.frombuffer(pcm, "<u2")]
    return codes.tobytes()


def wav_file(pcm: bytes, rate_hz: int) -> bytes:
    """A complete RIFF/WAVE file around one block of mono 16-bit PCM."""
    header = struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        *(b"RIFF", 36 + len(pcm), b"WAVE"),
        *(b"fmt ", 16, 1, 1, rate_hz, 2 * rate_hz, 2, 16),
        *(b"data", len(pcm)),
    )
    return header + pcm


def rms(samples: Samples) -> float:
    """Root mean square of the samples; 0.0 when there are none."""
    if not len(samples):
        return 0.0
    return math.sqrt(float(np.dot(samples, samples)) / len(samples))
