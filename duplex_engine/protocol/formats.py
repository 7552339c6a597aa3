"""Audio formats as the wire names them (wire contract 5.1).

Owns names, sample widths and rates. Never touches samples: conversions live in `duplex_engine.audio`.
"""

from enum import Enum

import attrs

from duplex_engine.errors import ProtocolViolation

MIN_RATE_HZ = 8_000
MAX_RATE_HZ = 192_000
G711_RATE_HZ = 8_000
"""Of G.711 that declares no rate."""


class Encoding(Enum):
    """A sample encoding; the value is the canonical wire name."""

    PCM16 = "pcm16"
    F32 = "pcm_f32le"
    ULAW = "g711_ulaw"
    ALAW = "g711_alaw"
    WAV = "wav"

    @property
    def sample_bytes(self) -> int:
        """Bytes of one mono sample (WAV carries PCM16)."""
        return _SAMPLE_BYTES[self]

    @property
    def telephone(self) -> bool:
        """Whether this is one of the two G.711 laws."""
        return self is Encoding.ULAW or self is Encoding.ALAW

    __hash__ = object.__hash__  # members are singletons; hashing their names takes longer


_SAMPLE_BYTES = {Encoding.PCM16: 2, Encoding.F32: 4, Encoding.ULAW: 1, Encoding.ALAW: 1, Encoding.WAV: 2}

_NAMES: dict[str, Encoding] = {
    "pcm16": Encoding.PCM16,
    "pcm": Encoding.PCM16,
    "pcm_s16le": Encoding.PCM16,
    "s16le": Encoding.PCM16,
    "audio/pcm": Encoding.PCM16,
    "audio/pcm16": Encoding.PCM16,
    "pcm_f32le": Encoding.F32,
    "f32le": Encoding.F32,
    "audio/pcm_f32le": Encoding.F32,
    "g711_ulaw": Encoding.ULAW,
    "g711-ulaw": Encoding.ULAW,
    "ulaw": Encoding.ULAW,
    "mulaw": Encoding.ULAW,
    "audio/g711_ulaw": Encoding.ULAW,
    "audio/pcmu": Encoding.ULAW,
    "g711_alaw": Encoding.ALAW,
    "g711-alaw": Encoding.ALAW,
    "alaw": Encoding.ALAW,
    "audio/g711_alaw": Encoding.ALAW,
    "audio/pcma": Encoding.ALAW,
    "wav": Encoding.WAV,
    "audio/wav": Encoding.WAV,
}

INPUT_ENCODINGS = frozenset({Encoding.PCM16, Encoding.F32, Encoding.ULAW, Encoding.ALAW})
OUTPUT_ENCODINGS = frozenset({Encoding.PCM16, Encoding.WAV, Encoding.ULAW, Encoding.ALAW})


@attrs.frozen
class AudioFormat:
    """Encoding and sample rate in Hz of one direction; audio is always mono."""

    encoding: Encoding
    rate_hz: int

    def duration_ms(self, byte_count: int) -> float:
        """Milliseconds that `byte_count` bytes of this format last."""
        return byte_count * 1000 / (self.encoding.sample_bytes * self.rate_hz)


def parse_encoding(name: object, *, allowed: frozenset[Encoding], param: str) -> Encoding:
    """The encoding that a wire name (any case) means.

    Raises ProtocolViolation `unsupported_audio_format` for a name that is unknown, no string, or not in `allowed`.
    """
    encoding = _NAMES.get(name.lower()) if isinstance(name, str) else None
    if encoding is None or encoding not in allowed:
        known = ", ".join(sorted(e.value for e in allowed))
        said = repr(name[:40]) if isinstance(name, str) else f"a {type(name).__name__}"
        raise ProtocolViolation("unsupported_audio_format", f"audio format {said} is not one of {known}", param)
    return encoding
