"""Sample rate conversion of a stream, with a filter that remembers: appends join without a click.

Owns the choice of filter. Never splits or buffers beyond what the filter itself needs.
"""

import numpy as np
import soxr

from duplex_engine.audio.pcm import SILENCE, Samples


class Resampler:
    """One direction of one stream from `rate_in` to `rate_out` Hz. Equal rates pass samples through untouched.

    The filter is linear in phase and looks ahead, so `push` returns up to a few hundredths of a second less than went
    in, in uneven portions; `flush` returns the rest. How the input is cut never changes the samples that come out.
    """

    def __init__(self, rate_in: int, rate_out: int) -> None:
        self.rate_in = rate_in
        self.rate_out = rate_out
        self._stream = None if rate_in == rate_out else soxr.ResampleStream(rate_in, rate_out, 1, "float32", "HQ")
        self._holding = False

    def push(self, samples: Samples) -> Samples:
        """The samples that are ready after these went in, shape (m,), m >= 0. With equal rates: the same array."""
        if self._stream is None:
            return samples
        self._holding = self._holding or len(samples) > 0
        ready: Samples = self._stream.resample_chunk(samples)
        return ready

    def flush(self) -> Samples:
        """What the filter still holds, shape (m,); afterwards it is as new."""
        if self._stream is None or not self._holding:
            return SILENCE
        tail: Samples = self._stream.resample_chunk(np.zeros(0, np.float32), last=True)
        self.reset()
        return tail

    def reset(self) -> None:
        """Forget what the filter holds."""
        if self._stream is not None:
            self._stream.clear()
        self._holding = False
