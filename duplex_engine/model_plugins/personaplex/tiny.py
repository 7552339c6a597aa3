"""A tiny checkpoint in the published layout: real names, real files, random weights that keep talking.

Owns nothing of the product's path; whoever wants to try or test it without 17 GB of weights makes one. The same arguments
give the same bytes, on any machine: weights come from scalar random numbers, one stream for each tensor.
"""

import gzip
import io
import json
import math
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
import sentencepiece
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from duplex_engine.model_plugins.personaplex.files import CheckpointFiles
from duplex_engine.model_plugins.personaplex.lm import LanguageModel, lm_weights
from duplex_engine.model_plugins.personaplex.mimi import Codec, Mimi
from duplex_engine.model_plugins.personaplex.prompt import RING, voice_rows
from duplex_engine.model_plugins.personaplex.sizes import (
    CODEBOOKS,
    FRAME_SAMPLES,
    RATE_HZ,
    ROWS,
    LmSizes,
    MimiSizes,
)
from duplex_engine.model_plugins.personaplex.weights import lm_tensors, load_lm, load_mimi, mimi_tensors, read_config

CARDS: Final = 2048
"""Codes of a codebook: as many as the published model has, because prompts name some of them."""
VOICES: Final[Mapping[str, tuple[int, float]]] = {"NATF2": (10, 220.0), "NATM1": (13, 110.0)}
"""Frames of each voice's prompt, and the pitch of its hum in Hz."""
HEADS: Final = ("text_linear", "linears.")
"""Tensors that answer with logits: larger, so that greedy speech does not get stuck on one token."""
SPEAKER: Final = "decoder.model.14."
"""The codec's last convolution."""
LOUDNESS: Final = 0.015

PLACES = ("at home", "in the garden", "by the sea", "at school", "on the train", "in town")
SAYINGS = (
    "You are a wise and friendly teacher {}.",
    "Answer questions or provide advice in a clear and engaging way {}.",
    "You enjoy having a good conversation {}.",
    "You work for the library and your name is Ann; meet people {}.",
    "<system> Hello, how are you today {}? <system>",
    "I would like to know what the weather is like {}.",
    "Thank you, that was a very good answer {}!",
    "What time does the last bus leave {}?",
    "We could talk about music, books and numbers like 1, 20 and 345 {}.",
    "The quick brown fox jumps over the lazy dog {}.",
)
"""What the text tokenizer learns from, said in every place."""


def make_tiny(
    folder: Path,
    *,
    steps: int = 2 * CODEBOOKS,
    seed: int = 0,
    context: int = 256,
    mimi_context: int = 250,
    dim: int = 32,
    layers: int = 2,
    heads: int = 2,
    depth_dim: int = 16,
    depth_layers: int = 2,
    depth_heads: int = 2,
    pieces: int = 384,
) -> CheckpointFiles:
    """Write all files of a checkpoint into `folder`, which is made.

    `steps`: inner steps of the depformer in the file, 8 or 16. `context`, `mimi_context`: windows in positions; a prompt
    (10 to 13 frames of voice, 12 of pause, one for each token of the persona) must fit into the first. `pieces`: text
    tokens. The widths of the feed-forward parts follow from the others as in the published model.
    """
    files = CheckpointFiles(folder)
    folder.mkdir(parents=True, exist_ok=True)
    sizes = LmSizes(
        dim=dim,
        layers=layers,
        heads=heads,
        hidden=_hidden(dim),
        text_cards=pieces,
        cards=CARDS,
        depth_dim=depth_dim,
        depth_layers=depth_layers,
        depth_heads=depth_heads,
        depth_hidden=_hidden(depth_dim),
        depth_steps=steps,
        context=context,
    )
    codec = _codec_sizes(mimi_context)
    files.config.write_text(json.dumps(_config(sizes, codec), indent=2) + "\n")
    save_file({name: _lm_tensor(name, what.shape, seed) for name, what in lm_tensors(sizes).items()}, files.model)
    save_file({name: _mimi_tensor(name, what.shape, seed) for name, what in mimi_tensors(codec).items()}, files.codec)
    files.text.write_bytes(_text_model(pieces))
    files.voices.write_bytes(_archive(_voices(files)))
    return files


def _codec_sizes(context: int) -> MimiSizes:
    return MimiSizes(
        dim=32,
        filters=2,
        layers=1,
        heads=2,
        hidden=32,
        codebook_dim=8,
        codebooks=CODEBOOKS,
        cards=CARDS,
        context=context,
    )


def _config(sizes: LmSizes, codec: MimiSizes) -> Mapping[str, object]:
    """What shapes cannot tell."""
    return {
        "num_heads": sizes.heads,
        "depformer_num_heads": sizes.depth_heads,
        "context": sizes.context,
        "mimi": {"num_heads": codec.heads, "context": codec.context},
    }


def _hidden(dim: int) -> int:
    """Width of a gated feed-forward part: two thirds of 4.125 times the model's."""
    return 2 * int(4.125 * dim) // 3


# --- Weights ------------------------------------------------------------------------------------------------------


def _normal(name: str, shape: tuple[int, ...], seed: int, deviation: float, mean: float = 0.0) -> Tensor:
    random = np.random.default_rng([seed, zlib.crc32(name.encode())])
    return torch.from_numpy(random.standard_normal(shape, np.float32) * np.float32(deviation) + np.float32(mean))


def _lm_tensor(name: str, shape: tuple[int, ...], seed: int) -> Tensor:
    if name.endswith(".alpha"):
        tensor = _normal(name, shape, seed, 0.1, 1.0)
    elif "emb" in name:
        tensor = _normal(name, shape, seed, 0.5)
    else:
        tensor = _normal(name, shape, seed, (4 if name.startswith(HEADS) else 1) / math.sqrt(shape[-1]))
    return tensor.to(torch.bfloat16)


def _mimi_tensor(name: str, shape: tuple[int, ...], seed: int) -> Tensor:
    kind = name.rpartition(".")[2]
    if kind in ("cluster_usage", "_initialized"):
        return torch.ones(shape)
    if kind == "embedding_sum":
        return _normal(name, shape, seed, 0.3)
    if kind == "scale":
        return torch.full(shape, 0.5)
    if ".norm" in name:
        return _normal(name, shape, seed, 0.1, 1.0 if kind == "weight" else 0.0)
    if kind == "bias":
        return _normal(name, shape, seed, 0.1)
    # Two taps of a transposed convolution meet in every sample.
    inputs = 2 * (shape[0] if shape[1] > 1 else 1) if "convtr" in name else math.prod(shape[1:])
    return _normal(name, shape, seed, (LOUDNESS if name.startswith(SPEAKER) else 1.4) / math.sqrt(inputs))


# --- Text ---------------------------------------------------------------------------------------------------------


def _text_model(pieces: int) -> bytes:
    """A text tokenizer, really trained, with the special tokens where the published one has them."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([saying.format(place) for saying in SAYINGS for place in PLACES]),
        model_writer=model,
        model_type="bpe",
        vocab_size=pieces,
        byte_fallback=True,
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=3,
        normalization_rule_name="identity",
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()


# --- Voices -------------------------------------------------------------------------------------------------------


def voice_sound(frames: int, pitch_hz: float) -> NDArray[np.float32]:
    """The sound of a voice's prompt, float32 (frames * 1920,): a hum of a few partials that swells and falls."""
    time_s = np.arange(frames * FRAME_SAMPLES) / RATE_HZ
    partials = [np.sin(2 * np.pi * pitch_hz * n * time_s + n) / n for n in (1, 2, 3, 5)]
    swell = 0.5 + 0.5 * np.sin(2 * np.pi * 1.7 * time_s)
    return np.asarray(0.3 * swell * np.sum(partials, axis=0), np.float32)


@torch.inference_mode()
def voice_codes(mimi: Mimi, sound: NDArray[np.float32]) -> Tensor:
    """Codes (frames, 8) of whole frames of sound, as a new stream."""
    codec, stepped = Codec(mimi, 1), torch.ones(1, dtype=torch.bool)
    frames = torch.from_numpy(sound).view(-1, 1, FRAME_SAMPLES)
    return torch.cat([codec.encode(frame, stepped) for frame in frames])


def _voices(files: CheckpointFiles) -> Mapping[str, bytes]:
    """Every voice's file, made the way the published ones were: by hearing its prompt with this very model."""
    config, cpu = read_config(files.config), torch.device("cpu")
    mimi = Mimi(*load_mimi(files.codec, config, cpu, _unwatched))
    sizes, tensors = load_lm(files.model, config, cpu, torch.float32, _unwatched)
    model = LanguageModel(sizes, lm_weights(tensors, sizes))
    return {
        f"voices/{name}.pt": _saved(voice_bundle(model, voice_codes(mimi, voice_sound(frames, pitch_hz))))
        for name, (frames, pitch_hz) in VOICES.items()
    }


def voice_bundle(model: LanguageModel, codes: Tensor) -> dict[str, Tensor]:
    """What the file of a voice holds whose prompt has these codes (n, 8): see `prompt.Voice`."""
    rows = voice_rows(codes, model.sizes)
    frames = codes.shape[0]
    ring = torch.empty(1, ROWS, RING, dtype=torch.int64)
    for position in range(frames - RING + 1, frames + 1):
        ring[0, :, position % RING] = rows[position]
    embeddings = model.embed(rows[: frames - 1]).to(torch.bfloat16)
    return {"embeddings": embeddings.view(frames - 1, 1, 1, -1), "cache": ring}


def _saved(bundle: Mapping[str, Tensor]) -> bytes:
    file = io.BytesIO()
    torch.save(dict(bundle), file)
    return file.getvalue()


def _archive(members: Mapping[str, bytes]) -> bytes:
    """A compressed archive without times and owners, so that its bytes depend on its contents alone."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as compressed:
        with tarfile.open(fileobj=compressed, mode="w") as tar:
            for name, data in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def _unwatched(done: float) -> None:
    """Nobody watches these files being read."""
