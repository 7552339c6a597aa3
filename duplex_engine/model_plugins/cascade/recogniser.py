"""Speech recognition, device side: the Moonshine tiny English model on onnxruntime.

Owns the model's graphs, its token table and the cutting of long recordings. Never knows turns or sessions: every item
is one recording, answered by its words.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from outcome import Error, Value

from duplex_engine.errors import StepFailed
from duplex_engine.model_plugins.cascade.models import locate
from duplex_engine.model_plugins.cascade.payloads import RECOGNISER_RATE_HZ, RecogniseAudio, Samples
from duplex_engine.model_plugins.cascade.runtime import Array, Graph, integers, open_graph
from duplex_engine.model_plugins.contract import Progress, Result, Work

MODEL: Final = "moonshine-tiny-en"
START_TOKEN: Final = 1
END_TOKEN: Final = 2
TOKENS_PER_S: Final = 6.5
SPARE_TOKENS: Final = 4
SHORTEST_S: Final = 0.15
QUIETEST_PEAK: Final = 0.001
LONGEST_S: Final = 20.0
CUT_WINDOW_S: Final = 5.0
CUT_FRAME: Final = 800
HEADS: Final = 8
HEAD_SIZE: Final = 36


class Recogniser:
    """A `Stepper`: each item is a RecogniseAudio, answered by the words in it (`str`)."""

    def load(self, progress: Progress) -> None:
        """Open the graphs and run them once. Raises ModelMissing or ModelRefused."""
        progress("checking the recogniser", 0.0)
        files = locate(MODEL)
        progress("loading the recogniser", 0.3)
        self._encoder = open_graph(files["encoder_model.ort"])
        self._decoder = Decoder(open_graph(files["decoder_model_merged.ort"]))
        self._tokens = read_tokens(files["tokenizer.bin"])
        progress("warming up the recogniser", 0.8)
        self._words(np.zeros(RECOGNISER_RATE_HZ, np.float32))
        progress("the recogniser is ready", 1.0)

    def step(self, work: Work) -> Iterable[Result]:
        """Recognise every item. A recording without words, or too short or quiet for any, is answered by ""."""
        for _slot, ticket, payload in work.items:
            if isinstance(payload, RecogniseAudio):
                yield Result(ticket, Value(self.recognise(payload.samples)))
            else:
                cause = f"asked to recognise a {type(payload).__name__}, not a RecogniseAudio"
                yield Result(ticket, Error(StepFailed("recogniser", cause)))

    def close(self) -> None:
        """The graphs go with their process or object; there is nothing else to release."""

    def recognise(self, samples: Samples) -> str:
        """The words in float32 mono audio (n,) at 16 kHz."""
        if len(samples) < SHORTEST_S * RECOGNISER_RATE_HZ or float(np.abs(samples).max()) < QUIETEST_PEAK:
            return ""
        return " ".join(filter(None, (self._words(stretch) for stretch in stretches(samples))))

    def _words(self, samples: Samples) -> str:
        audio = np.ascontiguousarray(samples, np.float32)[None]
        mask = np.ones(audio.shape, np.int64)
        (states,) = self._encoder.run(None, {"input_values": audio, "attention_mask": mask})
        longest = int(len(samples) / RECOGNISER_RATE_HZ * TOKENS_PER_S) + SPARE_TOKENS
        text = text_of(self._decoder.decode(states, mask, longest), self._tokens)
        return text if any(character.isalnum() for character in text) else ""


class Decoder:
    """Greedy decoding with the merged decoder graph, which keeps its own past as inputs and outputs."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._past_names = [node.name for node in graph.get_inputs() if node.name.startswith("past")]

    def decode(self, states: Array, mask: Array, longest: int) -> Sequence[int]:
        """At most `longest` tokens. `mask`: int64 (1, n) at audio rate, as the graph strides it by itself."""
        past: dict[str, Array] = {name: np.zeros((1, HEADS, 0, HEAD_SIZE), np.float32) for name in self._past_names}
        inputs = {"encoder_hidden_states": states, "encoder_attention_mask": mask}
        tokens: list[int] = []
        token = START_TOKEN
        for position in range(longest):
            step = {"input_ids": integers([token]), "use_cache_branch": np.array([position > 0])}
            logits, *present = self._graph.run(None, {**inputs, **step, **past})
            for name, value in zip(self._past_names, present, strict=True):
                # What the encoder contributed never changes: after the first step the graph returns it empty.
                if position == 0 or "decoder" in name:
                    past[name] = value
            token = int(logits[0, -1].argmax())
            if token == END_TOKEN:
                break
            tokens.append(token)
        return tokens


def stretches(samples: Samples) -> Iterator[Samples]:
    """Cut a long recording at its quietest moments into stretches of at most 20 s; a short one stays whole."""
    longest, window = int(LONGEST_S * RECOGNISER_RATE_HZ), int(CUT_WINDOW_S * RECOGNISER_RATE_HZ)
    while len(samples) > longest:
        tail = samples[longest - window : longest]
        loudness = np.square(tail.reshape(-1, CUT_FRAME)).mean(axis=1)
        cut = longest - window + int(loudness.argmin()) * CUT_FRAME + CUT_FRAME // 2
        yield samples[:cut]
        samples = samples[cut:]
    yield samples


def read_tokens(path: Path) -> Sequence[bytes]:
    """The token table: each entry a length (one byte, or two with the first above 127) and its bytes."""
    data = path.read_bytes()
    tokens: list[bytes] = []
    place = 0
    while place < len(data):
        length = data[place]
        place += 1
        if length >= 128:
            length += (data[place] - 1) * 128
            place += 1
        tokens.append(data[place : place + length])
        place += length
    return tokens


def text_of(ids: Sequence[int], tokens: Sequence[bytes]) -> str:
    """The text that token ids mean; byte tokens such as `<0xC3>` are joined before decoding."""
    data = b"".join(_token_bytes(tokens[token]) for token in ids if token > END_TOKEN)
    return data.decode("utf-8", "replace").replace("▁", " ").strip()


def _token_bytes(token: bytes) -> bytes:
    if len(token) == 6 and token.startswith(b"<0x") and token.endswith(b">"):
        return bytes([int(token[3:5], 16)])
    return token
