import numpy as np
import pytest

from duplex_engine.audio.vad import WINDOW_MS, WINDOW_SAMPLES, EnergyDetector, SpeechDetector


@pytest.mark.parametrize(("level", "expected"), [(0.0, 0.0), (0.0029, 0.0), (0.004, 1.0), (1.0, 1.0)])
def test_loud_is_speech(level, expected):
    detector: SpeechDetector = EnergyDetector(0.003)
    assert detector.probability(np.full(WINDOW_SAMPLES, level, np.float32)) == expected


def test_a_window_lasts_32_ms():
    assert WINDOW_MS == 32.0


def test_earlier_windows_do_not_matter():
    detector = EnergyDetector(0.01)
    assert detector.probability(np.full(WINDOW_SAMPLES, 0.5, np.float32)) == 1.0
    assert detector.probability(np.zeros(WINDOW_SAMPLES, np.float32)) == 0.0
    detector.reset()
    assert detector.probability(np.full(WINDOW_SAMPLES, 0.5, np.float32)) == 1.0


def test_the_floor_lies_above_zero():
    with pytest.raises(ValueError, match="floor"):
        EnergyDetector(0.0)
