"""What tests of PersonaPlex share: a loaded tiny checkpoint, random input, and one call that runs alone."""

import io
from collections.abc import Sequence
from pathlib import Path

import attrs
import numpy as np
import sentencepiece
import torch
from safetensors.torch import load_file
from torch import Tensor

from duplex_engine.model_plugins.personaplex.calls import Calls
from duplex_engine.model_plugins.personaplex.checkpoint import Checkpoint
from duplex_engine.model_plugins.personaplex.files import CheckpointFiles, read_voice
from duplex_engine.model_plugins.personaplex.lm import LanguageModel, lm_weights
from duplex_engine.model_plugins.personaplex.mimi import Codec
from duplex_engine.model_plugins.personaplex.prompt import Voice, prompt_rows
from duplex_engine.model_plugins.personaplex.sampling import Sampling
from duplex_engine.model_plugins.personaplex.sizes import CODEBOOKS, FRAME_SAMPLES, RATE_HZ, ROWS, LmSizes
from duplex_engine.model_plugins.personaplex.snapshot import Reading, Snapshot
from duplex_engine.model_plugins.personaplex.text import wrap_persona
from duplex_engine.model_plugins.personaplex.tiny import CARDS, make_tiny
from duplex_engine.model_plugins.personaplex.weights import load_lm, read_config

GREEDY = Sampling(text_temperature=0, audio_temperature=0)
CPU = torch.device("cpu")
NARROW = {"context": 24, "mimi_context": 20}
"""Windows short enough to be outgrown in a moment."""
PERSONA = "Ann, a friendly teacher."

PUBLISHED = LmSizes(
    dim=4096,
    layers=32,
    heads=32,
    hidden=11264,
    text_cards=32000,
    cards=2048,
    depth_dim=1024,
    depth_layers=6,
    depth_heads=16,
    depth_hidden=2816,
    depth_steps=16,
    context=3000,
)
"""The sizes of the published model."""


def unwatched(*done: object) -> None:
    """Progress that nobody watches."""


@attrs.frozen
class Tiny:
    """A tiny checkpoint: its files, and what they hold in float32."""

    files: CheckpointFiles
    checkpoint: Checkpoint

    @classmethod
    def make(cls, folder: Path, **arguments: int) -> "Tiny":
        """Write it and load it."""
        files = make_tiny(folder, **arguments)
        return cls(files, Checkpoint.load(folder, CPU, unwatched))

    @property
    def folder(self) -> Path:
        return self.files.folder

    @property
    def model(self) -> LanguageModel:
        return self.checkpoint.model

    @property
    def lm_file(self) -> dict[str, Tensor]:
        """The tensors of the language model as they are in the file, in float32."""
        return {name: tensor.float() for name, tensor in load_file(self.files.model).items()}

    @property
    def codec_file(self) -> dict[str, Tensor]:
        """The tensors of the codec as they are in the file."""
        return load_file(self.files.codec)

    def bundle(self, voice: str) -> dict[str, Tensor]:
        """What a voice's file holds."""
        found: dict[str, Tensor] = torch.load(io.BytesIO(read_voice(self.files.voices, voice)), weights_only=True)
        return found

    def as_bfloat16(self) -> "Tiny":
        """The same weights as an accelerator would hold them."""
        sizes, tensors = load_lm(self.files.model, read_config(self.files.config), CPU, torch.bfloat16, unwatched)
        model = LanguageModel(sizes, lm_weights(tensors, sizes))
        return Tiny(self.files, Checkpoint(self.files, model, self.checkpoint.mimi))

    def persona(self, text: str = PERSONA) -> list[int]:
        """The tokens of a persona."""
        return list(sentencepiece.SentencePieceProcessor(model_file=str(self.files.text)).encode(wrap_persona(text)))

    def snapshot(self, voice: str | Voice = "NATF2", persona: str = PERSONA, chunk: int = 64) -> Snapshot:
        """The state behind a prompt."""
        found = self.checkpoint.voice(voice) if isinstance(voice, str) else voice
        reading = Reading(self.model, found, prompt_rows(found, self.persona(persona)))
        while (snapshot := reading.advance(chunk)) is None:
            pass
        return snapshot


def random_codes(frames: int, seed: int, rows: int = 1) -> Tensor:
    """Codes (frames, rows, 8) that mean nothing."""
    return torch.from_numpy(np.random.default_rng(seed).integers(0, CARDS, (frames, rows, CODEBOOKS)))


def random_rows(tiny: Tiny, positions: int, seed: int = 1) -> Tensor:
    """Token rows (positions, 17) that mean nothing."""
    codes = random_codes(positions, seed, rows=2).view(positions, -1)
    text = np.random.default_rng(seed + 1).integers(0, tiny.model.sizes.text_cards, (positions, 1))
    return torch.cat([torch.from_numpy(text), codes], dim=1)


def random_sound(frames: int, seed: int) -> Tensor:
    """Sound (frames, 1920): a few tones under noise, other ones every few frames."""
    random = np.random.default_rng(seed)
    time_s = np.arange(frames * FRAME_SAMPLES) / RATE_HZ
    pieces = -(-frames // 4)
    pitch = np.repeat(random.uniform(80, 900, (pieces, 1)), 4 * FRAME_SAMPLES)[: len(time_s)]
    loudness = np.repeat(random.uniform(0, 0.6, (pieces, 1)), 4 * FRAME_SAMPLES)[: len(time_s)]
    sound = loudness * np.sin(2 * np.pi * pitch * time_s) + 0.05 * random.standard_normal(len(time_s))
    return torch.from_numpy(sound.astype(np.float32)).view(frames, FRAME_SAMPLES)


def spoken(frames: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Text and codes of what was said, (frames, 9)."""
    return torch.stack([torch.cat([text.view(1), codes.view(-1)]) for codes, text in frames])


@torch.inference_mode()
def bare_snapshot(model: LanguageModel) -> Snapshot:
    """The state behind no prompt at all: one position of start tokens, which still delays what is delayed."""
    sizes = model.sizes
    keys = torch.empty(sizes.layers, 1, sizes.heads, sizes.head_dim)
    values = torch.empty_like(keys)
    start = torch.tensor([[sizes.text_cards, *[sizes.cards] * (ROWS - 1)]])
    hidden = model.extend(model.embed(start), 0, keys, values)[0]
    return Snapshot(keys=keys, values=values, hidden=hidden, tail=start[0, 1:9], user_tail=start[0, 9:])


def speak_alone(
    model: LanguageModel, snapshot: Snapshot, user: Tensor, sampling: Sampling = GREEDY, *, rows: int = 1, row: int = 0
) -> Tensor:
    """What one call says, (frames, 9), to the user's codes (frames, 1, 8), with nobody else in a batch of `rows`."""
    calls = Calls(model, rows)
    calls.open(row, snapshot, sampling)
    said = []
    for frame in user:
        answer = calls.step([row], frame.expand(rows, -1))
        said.append((answer.codes[row], answer.text[row]))
    return spoken(said)


def encode_alone(codec: Codec, sound: Tensor, row: int = 0) -> Tensor:
    """Codes (frames, 8) of sound (frames, 1920)."""
    stepped = torch.arange(codec.rows) == row
    return torch.stack([codec.encode(frame.expand(codec.rows, -1), stepped)[row] for frame in sound])


def decode_alone(codec: Codec, codes: Tensor, row: int = 0) -> Tensor:
    """Sound (frames, 1920) of codes (frames, 8)."""
    stepped = torch.arange(codec.rows) == row
    return torch.stack([codec.decode(frame.expand(codec.rows, -1), stepped)[row] for frame in codes])
