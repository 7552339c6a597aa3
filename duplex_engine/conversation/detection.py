"""When speech starts, pauses and stops: hysteresis over the probabilities of 32 ms windows (wire contract 6.3).

Owns the run and silence timers. Never hears audio: `hearing.py` feeds it.
"""

import attrs

from duplex_engine.audio.vad import WINDOW_MS
from duplex_engine.protocol.session_config import TurnDetection

BAND = 0.15
LOWEST_FLOOR = 0.01
SHORTEST_SPEECH_MS = 32.0


@attrs.frozen
class Edge:
    """A change at the end of one window. `at_ms`: the reported position; `seen_ms`: end of the window that showed it.

    `kind` and `voiced_ms` as in `SpeechChange`.
    """

    kind: str
    at_ms: float
    seen_ms: float
    voiced_ms: float


@attrs.define
class Endpointing:
    """One detector's judgement over time. All positions are milliseconds of the session's audio clock.

    `speaking`: inside an utterance. `voiced_ms`: its speech so far, without pauses and trailing silence.
    """

    detection: TurnDetection
    pause_after_ms: float = 96.0
    speaking: bool = False
    paused: bool = False
    _not_before_ms: float = 0.0
    _clock_ms: float = 0.0
    _run_from_ms: float | None = None
    _voiced_until_ms: float = 0.0
    _silent_from_ms: float | None = None
    _earlier_ms: float = 0.0

    def reset(self, clock_ms: float) -> None:
        """Forget the stream so far; the next window begins at `clock_ms`, and no start is reported before it."""
        self._not_before_ms = self._clock_ms = clock_ms
        self.speaking = self.paused = False
        self._run_from_ms = self._silent_from_ms = None
        self._earlier_ms = 0.0

    @property
    def voiced_ms(self) -> float:
        """Speech of the open utterance: its stretches between pauses, each from its first to its last loud window."""
        if not self.speaking:
            return 0.0
        return self._earlier_ms + (self._voiced_until_ms - self._run_from_ms if self._run_from_ms is not None else 0.0)

    def push(self, probability: float) -> Edge | None:
        """The next window; returns the edge it makes, if any."""
        began_ms = self._clock_ms
        self._clock_ms = began_ms + WINDOW_MS
        if not self.speaking:
            return self._await_speech(probability, began_ms)
        if probability >= self.detection.threshold:
            return self._go_on(began_ms)
        return self._fall_silent(probability, began_ms)

    def _await_speech(self, probability: float, began_ms: float) -> Edge | None:
        if probability < self.detection.threshold:
            self._run_from_ms = None
            return None
        if self._run_from_ms is None:
            self._run_from_ms = began_ms
        if self._clock_ms - self._run_from_ms < max(self.detection.min_speech_duration_ms, SHORTEST_SPEECH_MS):
            return None
        self.speaking, self._voiced_until_ms, self._earlier_ms = True, self._clock_ms, 0.0
        at_ms = max(self._run_from_ms - self.detection.prefix_padding_ms, self._not_before_ms, 0.0)
        return Edge("started", at_ms, self._clock_ms, self.voiced_ms)

    def _go_on(self, began_ms: float) -> Edge | None:
        self._silent_from_ms = None
        if self._run_from_ms is None:
            self._run_from_ms = began_ms
        self._voiced_until_ms = self._clock_ms
        if not self.paused:
            return None
        self.paused = False
        return Edge("resumed", began_ms, self._clock_ms, self.voiced_ms)

    def _fall_silent(self, probability: float, began_ms: float) -> Edge | None:
        low = probability < max(self.detection.threshold - BAND, LOWEST_FLOOR)
        if self._silent_from_ms is None:
            if not low:
                return None
            self._silent_from_ms = began_ms
        silent_ms = self._clock_ms - self._silent_from_ms
        if low and silent_ms >= self.detection.silence_duration_ms:
            edge = Edge("stopped", self._clock_ms, self._clock_ms, self.voiced_ms)
            self.speaking = self.paused = False
            self._run_from_ms = self._silent_from_ms = None
            return edge
        if self.paused or silent_ms < self.pause_after_ms:
            return None
        edge = Edge("paused", self._silent_from_ms, self._clock_ms, self.voiced_ms)
        self.paused = True
        self._earlier_ms, self._run_from_ms = self.voiced_ms, None
        return edge
