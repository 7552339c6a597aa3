"""How likely a short window of sound is speech: the seam behind which detectors are exchanged.

Owns the window's shape and a detector by loudness that needs no weights. Turning probabilities into the start and end
of speech is the conversation's business.
"""

from typing import Protocol

from duplex_engine.audio.pcm import Samples, rms

WINDOW_SAMPLES = 512
WINDOW_RATE_HZ = 16_000
WINDOW_MS = 1000 * WINDOW_SAMPLES / WINDOW_RATE_HZ


class SpeechDetector(Protocol):
    """A detector that listens to one stream; windows come in order and may be remembered."""

    def probability(self, window: Samples) -> float:
        """How likely this window, shape (512,) at 16 kHz, is speech: 0..1. Raises DetectorFailed when it cannot say."""

    def reset(self) -> None:
        """Forget the stream so far: what follows is unrelated to it."""


class EnergyDetector:
    """Everything at least as loud as `rms_floor` is speech. Deterministic, without memory."""

    def __init__(self, rms_floor: float = 0.003) -> None:
        if not rms_floor > 0:
            raise ValueError(f"a loudness floor must lie above zero, not at {rms_floor}")
        self.rms_floor = rms_floor

    def probability(self, window: Samples) -> float:
        """1.0 for a window at or above the floor, else 0.0."""
        return 1.0 if rms(window) >= self.rms_floor else 0.0

    def reset(self) -> None:
        """Nothing is remembered, so nothing is forgotten."""
