"""Reading the tensors of a checkpoint: every one is expected and of the right shape, and only what is used is loaded.

Owns the names in the published files and the check against them. Computes nothing.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from duplex_engine.model_plugins.personaplex.sizes import (
    CODEBOOKS,
    MIMI_RATIOS,
    CheckpointRejected,
    LmSizes,
    MimiSizes,
    Shape,
    lm_sizes,
    mimi_sizes,
)

MISSING_SHOWN: Final = 5
Fraction = Callable[[float], None]
"""Told the fraction of a file that has been read, 0 to 1."""


@attrs.frozen(kw_only=True)
class Wanted:
    """A tensor a file must have. `rows`: how many of its first rows are used; None: all, 0: none of it is loaded."""

    shape: Shape
    rows: int | None = None


def read_config(path: Path) -> Mapping[str, Any]:
    """The checkpoint's `config.json`, which may be empty or missing. Raises CheckpointRejected."""
    if not path.exists():
        return {}
    try:
        config = json.loads(path.read_text() or "{}")
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointRejected(f"{path}: not JSON: {error}") from error
    if not isinstance(config, dict):
        raise CheckpointRejected(f"{path}: not a JSON object")
    return config


def load_lm(
    path: Path, config: Mapping[str, Any], device: torch.device, dtype: torch.dtype, progress: Fraction
) -> tuple[LmSizes, dict[str, Tensor]]:
    """Sizes and tensors of the language model; steps of the depformer that never reach the agent stay on disk."""
    with _opened(path) as file:
        sizes = lm_sizes(file.shapes, config)
        tensors = file.load(lm_tensors(sizes), device, dtype, progress)
    return sizes, tensors


def load_mimi(
    path: Path, config: Mapping[str, Any], device: torch.device, progress: Fraction
) -> tuple[MimiSizes, dict[str, Tensor]]:
    """Sizes and tensors of the codec, in float32."""
    with _opened(path) as file:
        sizes = mimi_sizes(file.shapes, config)
        tensors = file.load(mimi_tensors(sizes), device, torch.float32, progress)
    return sizes, tensors


def check_lm(path: Path, config: Mapping[str, Any]) -> LmSizes:
    """Sizes of the language model, every tensor's name and shape looked at and none loaded. Raises CheckpointRejected."""
    with _opened(path) as file:
        sizes = lm_sizes(file.shapes, config)
        file.check(lm_tensors(sizes))
    return sizes


def check_mimi(path: Path, config: Mapping[str, Any]) -> MimiSizes:
    """The same for the codec."""
    with _opened(path) as file:
        sizes = mimi_sizes(file.shapes, config)
        file.check(mimi_tensors(sizes))
    return sizes


def used_numbers(wanted: Mapping[str, Wanted]) -> int:
    """How many numbers of a file are loaded."""
    return sum(math.prod(what.shape if what.rows is None else (what.rows, *what.shape[1:])) for what in wanted.values())


def lm_tensors(sizes: LmSizes) -> dict[str, Wanted]:
    """Every tensor of the language model's file."""
    dim, depth, steps = sizes.dim, sizes.depth_dim, sizes.depth_steps
    wanted = {
        "text_emb.weight": Wanted(shape=(sizes.text_cards + 1, dim)),
        "text_linear.weight": Wanted(shape=(sizes.text_cards, dim)),
        "out_norm.alpha": Wanted(shape=(1, 1, dim)),
        "depformer_text_emb.weight": Wanted(shape=(sizes.text_cards + 1, depth)),
    }
    for codebook in range(2 * CODEBOOKS):
        wanted[f"emb.{codebook}.weight"] = Wanted(shape=(sizes.cards + 1, dim))
    for k in range(steps):
        used = None if k < CODEBOOKS else 0
        wanted[f"depformer_in.{k}.weight"] = Wanted(shape=(depth, dim), rows=used)
        wanted[f"linears.{k}.weight"] = Wanted(shape=(sizes.cards, depth), rows=used)
    for k in range(steps - 1):
        used = None if k < CODEBOOKS - 1 else 0
        wanted[f"depformer_emb.{k}.weight"] = Wanted(shape=(sizes.cards + 1, depth), rows=used)
    for number in range(sizes.layers):
        wanted |= _attention(f"transformer.layers.{number}", dim, 1)
        wanted |= _gating(f"transformer.layers.{number}.gating", dim, sizes.hidden)
    for number in range(sizes.depth_layers):
        wanted |= _attention(f"depformer.layers.{number}", depth, steps)
        for k in range(steps):
            used = None if k < CODEBOOKS else 0
            wanted |= _gating(f"depformer.layers.{number}.gating.{k}", depth, sizes.depth_hidden, used)
    return wanted


def _attention(prefix: str, dim: int, steps: int) -> dict[str, Wanted]:
    kept = min(steps, CODEBOOKS)
    return {
        f"{prefix}.norm1.alpha": Wanted(shape=(1, 1, dim)),
        f"{prefix}.norm2.alpha": Wanted(shape=(1, 1, dim)),
        f"{prefix}.self_attn.in_proj_weight": Wanted(shape=(steps * 3 * dim, dim), rows=kept * 3 * dim),
        f"{prefix}.self_attn.out_proj.weight": Wanted(shape=(steps * dim, dim), rows=kept * dim),
    }


def _gating(prefix: str, dim: int, hidden: int, rows: int | None = None) -> dict[str, Wanted]:
    return {
        f"{prefix}.linear_in.weight": Wanted(shape=(2 * hidden, dim), rows=rows),
        f"{prefix}.linear_out.weight": Wanted(shape=(dim, hidden), rows=rows),
    }


def mimi_tensors(sizes: MimiSizes) -> dict[str, Wanted]:
    """Every tensor of the codec's file."""
    return {
        **_seanet_encoder(sizes),
        **_seanet_decoder(sizes),
        **_mimi_transformer("encoder_transformer", sizes),
        **_mimi_transformer("decoder_transformer", sizes),
        "downsample.conv.conv.conv.weight": Wanted(shape=(sizes.dim, sizes.dim, 4)),
        "upsample.convtr.convtr.convtr.weight": Wanted(shape=(sizes.dim, 1, 4)),
        **_quantizer("quantizer.rvq_first", sizes, 1),
        **_quantizer("quantizer.rvq_rest", sizes, sizes.codebooks - 1),
    }


def _conv(prefix: str, out: int, into: int, kernel: int) -> dict[str, Wanted]:
    return {f"{prefix}.weight": Wanted(shape=(out, into, kernel)), f"{prefix}.bias": Wanted(shape=(out,))}


def _residual(prefix: str, channels: int) -> dict[str, Wanted]:
    return {
        **_conv(f"{prefix}.block.1.conv.conv", channels // 2, channels, 3),
        **_conv(f"{prefix}.block.3.conv.conv", channels, channels // 2, 1),
    }


def _seanet_encoder(sizes: MimiSizes) -> dict[str, Wanted]:
    wanted = _conv("encoder.model.0.conv.conv", sizes.filters, 1, 7)
    channels, number = sizes.filters, 1
    for ratio in MIMI_RATIOS:
        wanted |= _residual(f"encoder.model.{number}", channels)
        wanted |= _conv(f"encoder.model.{number + 2}.conv.conv", 2 * channels, channels, 2 * ratio)
        channels, number = 2 * channels, number + 3
    return wanted | _conv(f"encoder.model.{number + 1}.conv.conv", sizes.dim, channels, 3)


def _seanet_decoder(sizes: MimiSizes) -> dict[str, Wanted]:
    channels = sizes.filters * 2 ** len(MIMI_RATIOS)
    wanted = _conv("decoder.model.0.conv.conv", channels, sizes.dim, 7)
    number = 2
    for ratio in reversed(MIMI_RATIOS):
        prefix = f"decoder.model.{number}.convtr.convtr"
        wanted[f"{prefix}.weight"] = Wanted(shape=(channels, channels // 2, 2 * ratio))
        wanted[f"{prefix}.bias"] = Wanted(shape=(channels // 2,))
        channels //= 2
        wanted |= _residual(f"decoder.model.{number + 1}", channels)
        number += 3
    return wanted | _conv(f"decoder.model.{number}.conv.conv", 1, channels, 3)


def _mimi_transformer(prefix: str, sizes: MimiSizes) -> dict[str, Wanted]:
    wanted: dict[str, Wanted] = {}
    dim, hidden = sizes.dim, sizes.hidden
    for number in range(sizes.layers):
        layer = f"{prefix}.transformer.layers.{number}"
        for norm in ("norm1", "norm2"):
            wanted |= {f"{layer}.{norm}.{part}": Wanted(shape=(dim,)) for part in ("weight", "bias")}
        wanted |= {f"{layer}.layer_scale_{which}.scale": Wanted(shape=(dim,)) for which in (1, 2)}
        wanted |= {
            f"{layer}.self_attn.in_proj_weight": Wanted(shape=(3 * dim, dim)),
            f"{layer}.self_attn.out_proj.weight": Wanted(shape=(dim, dim)),
            f"{layer}.linear1.weight": Wanted(shape=(hidden, dim)),
            f"{layer}.linear2.weight": Wanted(shape=(dim, hidden)),
        }
    return wanted


def _quantizer(prefix: str, sizes: MimiSizes, layers: int) -> dict[str, Wanted]:
    inner = sizes.codebook_dim
    wanted = {
        f"{prefix}.input_proj.weight": Wanted(shape=(inner, sizes.dim, 1)),
        f"{prefix}.output_proj.weight": Wanted(shape=(sizes.dim, inner, 1)),
    }
    for number in range(layers):
        book = f"{prefix}.vq.layers.{number}._codebook"
        wanted |= {
            f"{book}._initialized": Wanted(shape=(1,), rows=0),
            f"{book}.cluster_usage": Wanted(shape=(sizes.cards,)),
            f"{book}.embedding_sum": Wanted(shape=(sizes.cards, inner)),
        }
    return wanted


class _File:
    """An open safetensors file."""

    def __init__(self, path: Path, file: Any) -> None:
        self._path = path
        self._file = file
        self.shapes: dict[str, Shape] = {
            name: tuple(file.get_slice(name).get_shape())
            for name in file.keys()  # noqa: SIM118 - not a dictionary
        }

    def load(
        self, wanted: Mapping[str, Wanted], device: torch.device, dtype: torch.dtype, progress: Fraction
    ) -> dict[str, Tensor]:
        """All used tensors. Raises CheckpointRejected as `check` does."""
        self.check(wanted)
        tensors: dict[str, Tensor] = {}
        for number, (name, what) in enumerate(wanted.items()):
            if what.rows != 0:
                tensor = self._file.get_slice(name)[: what.rows] if what.rows else self._file.get_tensor(name)
                kind = torch.float32 if name.endswith(".alpha") else dtype
                tensors[name] = tensor.to(device=device, dtype=kind)
            progress((number + 1) / len(wanted))
        return tensors

    def check(self, wanted: Mapping[str, Wanted]) -> None:
        """Raises CheckpointRejected for a missing, an unknown and a misshapen tensor."""
        missing, unknown = wanted.keys() - self.shapes.keys(), self.shapes.keys() - wanted.keys()
        for problem, names in (("is missing", missing), ("is not part of this model", unknown)):
            if names:
                shown = ", ".join(sorted(names)[:MISSING_SHOWN])
                more = f" and {len(names) - MISSING_SHOWN} more" if len(names) > MISSING_SHOWN else ""
                raise CheckpointRejected(f"{self._path}: tensor {shown}{more} {problem}")
        for name, what in wanted.items():
            if self.shapes[name] != what.shape:
                raise CheckpointRejected(
                    f"{self._path}: the tensor {name} has the shape {self.shapes[name]}; expected {what.shape}"
                )


@contextmanager
def _opened(path: Path) -> Iterator[_File]:
    try:
        with safe_open(path, framework="pt") as file:
            yield _File(path, file)
    except (SafetensorError, OSError) as error:
        raise CheckpointRejected(f"{path}: not a readable safetensors file: {error}") from error
