"""A checkpoint in memory: the language model, the codec, and the voices asked for so far.

Owns loading them onto one device. Voices are loaded as plain tensors only: a file that would run code is refused.
"""

import io
import pickle
import struct
from pathlib import Path

import torch

from duplex_engine.model_plugins.contract import Progress
from duplex_engine.model_plugins.personaplex.files import CheckpointFiles, read_voice
from duplex_engine.model_plugins.personaplex.lm import LanguageModel, lm_weights
from duplex_engine.model_plugins.personaplex.mimi import Mimi
from duplex_engine.model_plugins.personaplex.prompt import Voice, voice_from_bundle
from duplex_engine.model_plugins.personaplex.sizes import CheckpointRejected, LmSizes
from duplex_engine.model_plugins.personaplex.weights import load_lm, load_mimi, read_config

CODEC_SHARE = 0.05
"""Of the progress of loading."""
UNREADABLE = (
    pickle.UnpicklingError,
    struct.error,
    RuntimeError,
    EOFError,
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    AssertionError,
)
"""What the reader of plain tensors raises for a file that is none: a damaged one may stop it anywhere."""


class Checkpoint:
    """Everything that calls on one device share."""

    def __init__(self, files: CheckpointFiles, model: LanguageModel, mimi: Mimi) -> None:
        self.model = model
        self.mimi = mimi
        self._files = files
        self._voices: dict[str, Voice] = {}

    @classmethod
    def load(cls, folder: Path, device: torch.device, progress: Progress) -> "Checkpoint":
        """Read the files in `folder`. bfloat16 on an accelerator, float32 on a CPU. Raises CheckpointRejected."""
        files = CheckpointFiles(folder)
        config = read_config(files.config)
        dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
        codec_sizes, codec = load_mimi(
            files.codec, config, device, lambda done: progress("the audio codec", CODEC_SHARE * done)
        )
        sizes, tensors = load_lm(
            files.model,
            config,
            device,
            dtype,
            lambda done: progress("the language model", CODEC_SHARE + (1 - CODEC_SHARE) * done),
        )
        return cls(files, LanguageModel(sizes, lm_weights(tensors, sizes)), Mimi(codec_sizes, codec))

    def voice(self, name: str) -> Voice:
        """A voice of the archive. Raises CheckpointRejected when it is not there, or not of this checkpoint."""
        if name not in self._voices:
            self._voices[name] = load_voice(self._files.voices, name, self.model.sizes)
        return self._voices[name]


def load_voice(archive: Path, name: str, sizes: LmSizes) -> Voice:
    """A voice of the archive, as plain tensors: a file that would run code is refused. Raises CheckpointRejected."""
    data = read_voice(archive, name)
    try:
        bundle = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except UNREADABLE as error:
        raise CheckpointRejected(f"voice {name}: not a file of plain tensors: {error}") from error
    return voice_from_bundle(name, bundle, sizes)
