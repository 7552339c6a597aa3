"""How large a checkpoint's networks are, read off the shapes of its tensors.

Owns the derivation and its cross-checks. Head counts, windows and the like cannot be seen in shapes: `config.json` may
state them, the published model's are the defaults. Opens no file and imports no torch.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import attrs

from duplex_engine.errors import DuplexError

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]
"""Names and shapes of a file's tensors."""

FRAME_SAMPLES: Final = 1920
"""Samples of one frame: 80 ms at 24 kHz."""
RATE_HZ: Final = 24_000
CODEBOOKS: Final = 8
"""Codebooks of one voice (the codec has more; the model uses these)."""
ROWS: Final = 1 + 2 * CODEBOOKS
"""Token rows of one frame: text, the agent's codes, the user's codes."""
MIMI_RATIOS: Final = (4, 5, 6, 8)
"""Strides of the codec's encoder, outermost first."""


class CheckpointRejected(DuplexError):
    """A file of a checkpoint is not what it should be; the message names file or tensor, and what was expected."""


@attrs.frozen(kw_only=True)
class LmSizes:
    """The language model. `text_cards`: text tokens it can say; `cards`: codes of one codebook.

    `depth_steps`: inner steps in the file; only the first `CODEBOOKS` reach the agent. `context`: positions a position
    can look back at, itself included.
    """

    dim: int
    layers: int
    heads: int
    hidden: int
    text_cards: int
    cards: int
    depth_dim: int
    depth_layers: int
    depth_heads: int
    depth_hidden: int
    depth_steps: int
    context: int

    @property
    def head_dim(self) -> int:
        """Width of one head of the temporal transformer."""
        return self.dim // self.heads

    @property
    def bytes_per_position(self) -> int:
        """Bytes of keys and values of one position in bfloat16."""
        return 2 * self.layers * self.dim * 2


@attrs.frozen(kw_only=True)
class MimiSizes:
    """The codec. `dim`: width of the latent and of both transformers; `filters`: channels of the outermost convolution.

    `context`: positions (two a frame) that a position of the transformers can look back at, itself included.
    """

    dim: int
    filters: int
    layers: int
    heads: int
    hidden: int
    codebook_dim: int
    codebooks: int
    cards: int
    context: int

    @property
    def bytes_per_call(self) -> int:
        """Bytes of keys and values of one call, in both transformers, in float32."""
        return 2 * self.layers * 2 * (self.context + 1) * self.dim * 4


def lm_sizes(shapes: Shapes, config: Mapping[str, Any]) -> LmSizes:
    """Sizes of the language model. Raises CheckpointRejected naming the tensor that is missing or does not fit."""
    text_rows, dim = _shape(shapes, "text_emb.weight", 2)
    cards = _shape(shapes, "emb.0.weight", 2)[0] - 1
    embeddings = _count(shapes, r"emb\.(\d+)\.weight")
    if embeddings != 2 * CODEBOOKS:
        raise CheckpointRejected(f"{embeddings} embeddings of audio codes (emb.N.weight); expected {2 * CODEBOOKS}")
    steps = _count(shapes, r"linears\.(\d+)\.weight")
    depth_dim = _shape(shapes, "depformer_in.0.weight", 2)[0]
    fused = _shape(shapes, "depformer.layers.0.self_attn.in_proj_weight", 2)[0]
    if steps < CODEBOOKS or fused != steps * 3 * depth_dim:
        raise CheckpointRejected(
            f"depformer.layers.0.self_attn.in_proj_weight has {fused} rows for {steps} steps of width {depth_dim}; "
            f"expected {steps * 3 * depth_dim}, and at least {CODEBOOKS} steps"
        )
    sizes = LmSizes(
        dim=dim,
        layers=_count(shapes, r"transformer\.layers\.(\d+)\.norm1\.alpha"),
        heads=_number(config, "num_heads", 32),
        hidden=_shape(shapes, "transformer.layers.0.gating.linear_in.weight", 2)[0] // 2,
        text_cards=text_rows - 1,
        cards=cards,
        depth_dim=depth_dim,
        depth_layers=_count(shapes, r"depformer\.layers\.(\d+)\.norm1\.alpha"),
        depth_heads=_number(config, "depformer_num_heads", 16),
        depth_hidden=_shape(shapes, "depformer.layers.0.gating.0.linear_in.weight", 2)[0] // 2,
        depth_steps=steps,
        context=_number(config, "context", 3000),
    )
    for width, heads, name in ((dim, sizes.heads, "num_heads"), (depth_dim, sizes.depth_heads, "depformer_num_heads")):
        if width % (2 * heads):
            raise CheckpointRejected(f"config.json: {name} {heads} does not divide the width {width} into pairs")
    return sizes


def mimi_sizes(shapes: Shapes, config: Mapping[str, Any]) -> MimiSizes:
    """Sizes of the codec. Raises CheckpointRejected naming the tensor that is missing or does not fit."""
    of_mimi = config.get("mimi", {})
    if not isinstance(of_mimi, Mapping):
        raise CheckpointRejected("config.json: mimi is not an object")
    cards, codebook_dim = _shape(shapes, "quantizer.rvq_first.vq.layers.0._codebook.embedding_sum", 2)
    dim = _shape(shapes, "downsample.conv.conv.conv.weight", 3)[0]
    sizes = MimiSizes(
        dim=dim,
        filters=_shape(shapes, "encoder.model.0.conv.conv.weight", 3)[0],
        layers=_count(shapes, r"encoder_transformer\.transformer\.layers\.(\d+)\.norm1\.weight"),
        heads=_number(of_mimi, "num_heads", 8),
        hidden=_shape(shapes, "encoder_transformer.transformer.layers.0.linear1.weight", 2)[0],
        codebook_dim=codebook_dim,
        codebooks=1 + _count(shapes, r"quantizer\.rvq_rest\.vq\.layers\.(\d+)\._codebook\.embedding_sum"),
        cards=cards,
        context=_number(of_mimi, "context", 250),
    )
    if sizes.codebooks < CODEBOOKS:
        raise CheckpointRejected(f"the codec has {sizes.codebooks} codebooks; {CODEBOOKS} are needed")
    if dim % (2 * sizes.heads):
        raise CheckpointRejected(
            f"config.json: mimi.num_heads {sizes.heads} does not divide the width {dim} into pairs"
        )
    return sizes


def _shape(shapes: Shapes, name: str, axes: int) -> Shape:
    if name not in shapes:
        raise CheckpointRejected(f"the tensor {name} is missing")
    if len(shapes[name]) != axes:
        raise CheckpointRejected(f"the tensor {name} has the shape {shapes[name]}; expected {axes} axes")
    return shapes[name]


def _count(shapes: Shapes, pattern: str) -> int:
    """How many tensors match; their numbers must run from 0."""
    numbers = sorted(int(match[1]) for match in map(re.compile(pattern).fullmatch, shapes) if match)
    if not numbers or numbers != list(range(len(numbers))):
        found = numbers or "none"
        raise CheckpointRejected(f"tensors {pattern.replace(chr(92), '')} must be numbered from 0; found {found}")
    return len(numbers)


def _number(config: Mapping[str, Any], key: str, default: int) -> int:
    value = config.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise CheckpointRejected(f"config.json: {key} is {value!r}; expected a positive integer")
    return value
