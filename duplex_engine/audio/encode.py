"""The model's voice to what the client plays: encoding and rate of one response's audio.

Owns the resampler of the outgoing stream. Never cuts or paces: a block in is at most one block out.
"""

from collections.abc import Callable

from duplex_engine.audio.pcm import compress_g711, float_to_pcm16, pcm16_to_float, wav_file
from duplex_engine.audio.resample import Resampler
from duplex_engine.protocol.formats import OUTPUT_ENCODINGS, Encoding

_ENCODERS: dict[Encoding, Callable[[bytes, int], bytes]] = {
    Encoding.PCM16: lambda pcm, rate_hz: pcm,
    Encoding.WAV: wav_file,
    Encoding.ULAW: lambda pcm, rate_hz: compress_g711(pcm, Encoding.ULAW),
    Encoding.ALAW: lambda pcm, rate_hz: compress_g711(pcm, Encoding.ALAW),
}


class OutputEncoder:
    """Encodes mono 16-bit PCM at `rate_in` Hz as `encoding` at `rate_out` Hz; `rate_hz` is the rate of what comes out.

    Encoding WAV makes every block a complete file. Raises ValueError for an encoding that is for input only.
    """

    def __init__(self, encoding: Encoding, rate_in: int, rate_out: int) -> None:
        if encoding not in OUTPUT_ENCODINGS:
            raise ValueError(f"{encoding.value} is an input encoding, clients cannot be sent it")
        self.encoding = encoding
        self.rate_hz = rate_out
        self._encode = _ENCODERS[encoding]
        self._resampler = Resampler(rate_in, rate_out)

    def encode(self, pcm: bytes) -> bytes:
        """The bytes that are ready after this block of whole samples; may be empty while the resampler fills up.

        PCM16 at the model's own rate is returned as it came, uncopied.
        """
        if self._resampler.rate_in != self.rate_hz:
            pcm = float_to_pcm16(self._resampler.push(pcm16_to_float(pcm)))
        return self._encode(pcm, self.rate_hz) if pcm else b""

    def flush(self) -> bytes:
        """What the resampler still held, encoded; b"" when nothing is left."""
        tail = float_to_pcm16(self._resampler.flush())
        return self._encode(tail, self.rate_hz) if tail else b""
