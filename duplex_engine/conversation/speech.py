"""The user's open turn as sound: when its speech starts and stops, and what is kept of it.

Owns the open turn, the sound just before it, and the session's audio clock. Never decides what a turn leads to.
"""

from duplex_engine.audio.pcm import Samples
from duplex_engine.conversation.effects import Overheard, Pause
from duplex_engine.conversation.items import ROOT, Items
from duplex_engine.conversation.pending import OpenTurn, Recent
from duplex_engine.conversation.scene import Scene
from duplex_engine.conversation.turns import Happening
from duplex_engine.protocol.events import SpeechStarted, SpeechStopped

PREFIX_MS = 300.0
DETECTION_SLACK_MS = 500.0
"""How much later than its shortest run of speech a detector may notice a start: an append's length, or so."""


class Speech:
    """The open turn of one conversation; a fresh one follows each commit, so no id is ever used twice."""

    def __init__(self, scene: Scene, items: Items) -> None:
        self._scene = scene
        self._items = items
        self._heard_samples = 0
        self.turn = OpenTurn(item_id=scene.new_id("item"))
        self.prepare()

    def prepare(self) -> None:
        """The configuration is new: remember as much as its detector may want back."""
        detection, kept_ms = self._scene.config.turn_detection, PREFIX_MS
        if detection is not None:
            kept_ms = max(detection.prefix_padding_ms, PREFIX_MS)
            kept_ms += detection.min_speech_duration_ms + DETECTION_SLACK_MS
        self._recent = Recent(self._samples(kept_ms))

    @property
    def now_ms(self) -> float:
        """The session's audio clock: how much sound has come."""
        return self._heard_samples * 1000 / self._scene.input_rate_hz

    def pass_time(self, samples: Samples) -> None:
        """The clock goes on by these samples, whatever becomes of them."""
        self._heard_samples += len(samples)

    def remember(self, samples: Samples) -> None:
        """Sound outside of speech: only the end of it may be wanted."""
        self._recent.push(samples)

    def forget(self) -> None:
        """Sound outside of speech was thrown away: no turn may begin with it."""
        self._recent.take(0)

    def keep(self, samples: Samples, *, before_ms: float = PREFIX_MS) -> None:
        """Sound of the turn; the first brings along what was heard up to `before_ms` before it."""
        turn = self.turn
        if not turn.samples:
            turn.keep(self._recent.take(self._samples(before_ms)))
        turn.keep(samples)
        self._scene.do(Overheard(turn.utterance))

    def start(self, at_ms: float) -> None:
        """The user began to speak."""
        turn = self.turn
        turn.speaking = True
        if not turn.speech:
            turn.after = self._items.last_id or ROOT
        self._scene.say(SpeechStarted(audio_start_ms=round(at_ms), item_id=turn.item_id))
        self._scene.happened(Happening.USER_STARTED)

    def stop(self, at_ms: float | None = None) -> None:
        """The user stopped, if a start was said: each start has exactly one stop (D-11)."""
        turn = self.turn
        if turn.speaking:
            turn.speaking = False
            at_ms = self.now_ms if at_ms is None else at_ms
            self._scene.say(SpeechStopped(audio_end_ms=round(at_ms), item_id=turn.item_id))

    def pause(self, *, paused: bool) -> None:
        """The detector sees silence that may be the end, or speech again."""
        if self.turn.samples:
            self.turn.utterance.pause = Pause() if paused else None
            self._scene.do(Overheard(self.turn.utterance))

    def finish(self, *, dropped: bool) -> OpenTurn:
        """The open turn is over; returns it. The next one is fresh."""
        turn, self.turn = self.turn, OpenTurn(item_id=self._scene.new_id("item"))
        turn.utterance.over, turn.utterance.dropped = True, dropped
        if turn.samples:
            self._scene.do(Overheard(turn.utterance))
        return turn

    def _samples(self, duration_ms: float) -> int:
        return round(duration_ms * self._scene.input_rate_hz / 1000)
