"""The session's ears: an append as it came to what the conversation machine hears (wire contract 3.3, 5.2, 6.3).

Owns the decoder, the detector's stream and the session's audio clock. Never decides what is done about what is heard.
"""

import attrs
import numpy as np

from duplex_engine.audio.decode import InputDecoder
from duplex_engine.audio.pcm import SILENCE, Samples, rms
from duplex_engine.audio.resample import Resampler
from duplex_engine.audio.vad import WINDOW_RATE_HZ, WINDOW_SAMPLES, SpeechDetector
from duplex_engine.conversation.detection import Edge, Endpointing
from duplex_engine.conversation.effects import Heard, SpeechChange
from duplex_engine.errors import DetectorFailed, ProtocolViolation
from duplex_engine.protocol.commands import AppendAudio
from duplex_engine.protocol.formats import G711_RATE_HZ, Encoding
from duplex_engine.protocol.session_config import SessionConfig


def input_format(config: SessionConfig, append: AppendAudio) -> tuple[Encoding, int]:
    """Encoding and rate in Hz of an append: its own, else the session's; undeclared G.711 has 8,000 Hz."""
    session = config.input_format
    encoding = append.encoding or session.encoding
    if append.sample_rate_hz is not None:
        return encoding, append.sample_rate_hz
    if encoding.telephone and encoding is not session.encoding:
        return encoding, G711_RATE_HZ
    return encoding, session.rate_hz


def append_s(config: SessionConfig, append: AppendAudio) -> float:
    """Seconds of sound in an append."""
    encoding, rate_hz = input_format(config, append)
    return len(append.audio) / encoding.sample_bytes / rate_hz


class Ears:
    """Hears the appends of one session in order, as float32 mono at `rate_hz`, the model's input rate."""

    def __init__(self, config: SessionConfig, rate_hz: int, detector: SpeechDetector | None) -> None:
        self._config = config
        self._rate_hz = rate_hz
        self._detector = detector
        self._decoder = InputDecoder(rate_hz)
        self._heard_samples = 0
        self._newest: AppendAudio | None = None
        self._to_detector = Resampler(rate_hz, WINDOW_RATE_HZ)
        self._window_part = SILENCE
        self._endpointing: Endpointing | None = None
        self.reconfigure(config)

    @property
    def now_ms(self) -> float:
        """The session's audio clock: milliseconds heard so far. It survives every reset."""
        return self._heard_samples * 1000 / self._rate_hz

    def hear(self, append: AppendAudio) -> Heard:
        """Decode one append and judge it. Raises ProtocolViolation `bad_audio` or `bad_event`: nothing was heard."""
        if not append.audio and not append.video_frames:
            raise ProtocolViolation("bad_event", "an append needs audio or video_frames", "audio")
        encoding, rate_hz = input_format(self._config, append)
        samples = self._decoder.decode(append.audio, encoding, rate_hz) if append.audio else SILENCE
        began_ms = self.now_ms
        self._heard_samples += len(samples)
        self._newest = append
        duration_ms = len(samples) * 1000 / self._rate_hz if append.duration_ms is None else append.duration_ms
        loudness = rms(samples)
        unjudged = Heard(
            samples=samples,
            speech=self._verdict(append, loudness),
            duration_ms=duration_ms,
            rms=loudness,
            video_frames=append.video_frames,
        )
        if self._endpointing is None or self._detector is None:
            return unjudged
        speaking = self._endpointing.speaking
        try:
            changes = tuple(self._change(edge, began_ms, len(samples)) for edge in self._detect(samples))
        except DetectorFailed as failure:
            return attrs.evolve(unjudged, detector_failed=str(failure))
        return Heard(
            samples=samples,
            speech=speaking or any(change.kind == "started" for change in changes),
            duration_ms=duration_ms,
            rms=loudness,
            changes=changes,
            detected=True,
            voiced_ms=self._endpointing.voiced_ms,
            video_frames=append.video_frames,
        )

    def drain(self) -> Heard | None:
        """The client ends its turn: the sound that the resampler still held, which goes with CommitAudio; None: none.

        It is judged as the append was that brought it. A short turn may be in there as a whole.
        """
        tail = self._decoder.drain()
        if not len(tail):
            return None
        self._heard_samples += len(tail)
        loudness = rms(tail)
        newest = self._newest if self._endpointing is None else None
        return Heard(
            samples=tail,
            speech=newest is not None and self._verdict(newest, loudness),
            duration_ms=len(tail) * 1000 / self._rate_hz,
            rms=loudness,
        )

    def reset_decoder(self) -> None:
        """After a clear: the rest of a sample, and what the resampler holds, was thrown away with the sound before."""
        self._decoder.reset()

    def reset_detector(self) -> None:
        """After a commit or a clear: what follows has nothing to do with what was."""
        self._window_part = SILENCE
        self._to_detector.reset()
        if self._detector is not None:
            self._detector.reset()
        if self._endpointing is not None:
            self._endpointing.reset(self.now_ms)

    def reconfigure(self, config: SessionConfig) -> None:
        """Listen by this configuration from the next append on."""
        detection, before = config.turn_detection, self._endpointing
        if detection is None or self._detector is None:
            self._endpointing = None
        elif before is None or before.detection != detection:
            self._endpointing = Endpointing(detection)
            self.reset_detector()
        self._config = config

    def _verdict(self, append: AppendAudio, loudness: float) -> bool:
        if append.speech is not None:
            return append.speech
        floor = append.overlap_silence_rms
        return loudness > 0 and loudness >= (self._config.overlap_silence_rms if floor is None else floor)

    def _detect(self, samples: Samples) -> list[Edge]:
        endpointing, detector = self._endpointing, self._detector
        if endpointing is None or detector is None:
            return []
        stream = np.concatenate((self._window_part, self._to_detector.push(samples)))
        whole = len(stream) - len(stream) % WINDOW_SAMPLES
        self._window_part = stream[whole:]
        edges = (
            endpointing.push(detector.probability(stream[start : start + WINDOW_SAMPLES]))
            for start in range(0, whole, WINDOW_SAMPLES)
        )
        return [edge for edge in edges if edge is not None]

    def _change(self, edge: Edge, began_ms: float, count: int) -> SpeechChange:
        place = round((edge.seen_ms - began_ms) * self._rate_hz / 1000)
        return SpeechChange(
            kind=edge.kind, at_ms=edge.at_ms, samples_before=min(max(place, 0), count), voiced_ms=edge.voiced_ms
        )
