"""Client audio to the model's samples: one stream across any number of appends.

Owns the bytes of a sample that an append cut in two, and the resampler's memory. Never decides what the audio means.
"""

from collections.abc import Callable

import numpy as np

from duplex_engine.audio.pcm import SILENCE, Samples, expand_g711, f32_to_float, pcm16_to_float
from duplex_engine.audio.resample import Resampler
from duplex_engine.protocol.formats import Encoding


def _ulaw(data: bytes | memoryview) -> Samples:
    return expand_g711(data, Encoding.ULAW)


def _alaw(data: bytes | memoryview) -> Samples:
    return expand_g711(data, Encoding.ALAW)


_DECODERS: dict[Encoding, Callable[[bytes | memoryview], Samples]] = {
    Encoding.PCM16: pcm16_to_float,
    Encoding.F32: f32_to_float,
    Encoding.ULAW: _ulaw,
    Encoding.ALAW: _alaw,
}


class InputDecoder:
    """Decodes the appends of one session to float32 mono at `rate_out` Hz.

    Cutting the same bytes differently gives the same samples. When encoding or rate change in mid-stream, what the
    old resampler held comes out in front of the new audio.
    """

    def __init__(self, rate_out: int) -> None:
        self.rate_out = rate_out
        self._encoding: Encoding | None = None
        self._resampler = Resampler(rate_out, rate_out)
        self._carry = b""

    def decode(self, data: bytes, encoding: Encoding, rate_hz: int) -> Samples:
        """The samples, shape (n,), that these bytes of `encoding` at `rate_hz` complete; n may be 0.

        Raises ProtocolViolation `bad_audio` for float samples that are not finite; the stream is then as before.
        """
        if encoding is self._encoding and rate_hz == self._resampler.rate_in:
            return self._resampler.push(self._expand(data, encoding))
        successor = InputDecoder(self.rate_out)
        successor._encoding, successor._resampler = encoding, Resampler(rate_hz, self.rate_out)
        samples = successor.decode(data, encoding, rate_hz)
        tail = self.drain()
        self._encoding, self._resampler, self._carry = encoding, successor._resampler, successor._carry
        return np.concatenate((tail, samples)) if len(tail) else samples

    def drain(self) -> Samples:
        """End of a turn: what the resampler still held, shape (n,); the bytes of an unfinished sample are dropped."""
        self._carry = b""
        return self._resampler.flush()

    def reset(self) -> None:
        """The input was thrown away: forget everything that has not come out yet."""
        self._carry = b""
        self._resampler.reset()

    def _expand(self, data: bytes, encoding: Encoding) -> Samples:
        if self._carry:
            data = self._carry + data
        excess = len(data) % encoding.sample_bytes
        if not excess:
            samples = _DECODERS[encoding](data)
            self._carry = b""
            return samples
        whole = len(data) - excess
        samples = _DECODERS[encoding](memoryview(data)[:whole]) if whole else SILENCE
        self._carry = data[whole:]
        return samples
