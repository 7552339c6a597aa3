"""The language model, one frame at a time for many calls at once: temporal transformer, then depformer.

Owns the weights as the computation wants them, and one step of it: rows of a batch are calls, and no row ever reads
another's. Sampling and the codec are elsewhere. All shapes: `rows` R calls, `dim` D, heads H of width W, positions P.

The architecture is that of Moshi (Défossez et al. 2024, sections 3.2 to 3.4): 17 summed embeddings, a causal transformer
over frames, and inside each frame a small transformer over codebooks with weights of its own for every step.
"""

from collections.abc import Mapping

import attrs
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from duplex_engine.model_plugins.personaplex.sizes import CODEBOOKS, ROWS, LmSizes

EPS = 1e-8
ROPE_BASE = 10_000.0


@attrs.frozen(kw_only=True)
class Block:
    """Weights of one pre-norm layer. Linear maps are (out, in). `gate`: gate rows, then up rows."""

    norm1: Tensor
    qkv: Tensor
    out: Tensor
    norm2: Tensor
    gate: Tensor
    down: Tensor


@attrs.frozen(kw_only=True)
class LmWeights:
    """All weights of both transformers.

    `table`: embeddings of all rows below each other, (text cards + 1 + 16 (cards + 1) + 1, D); its last row is zero and
    stands for the token -1. `offsets`: where each of the 17 begins. `depth_tables[k]`: embedding of what inner step `k`
    is told, k = 0 the text token. `depth_blocks[k]`: the depformer's layers at inner step `k`, which share nothing but
    their norms; `depth_heads[k]`: its logits.
    """

    table: Tensor
    offsets: Tensor
    blocks: tuple[Block, ...]
    out_norm: Tensor
    text_head: Tensor
    depth_in: Tensor
    depth_tables: tuple[Tensor, ...]
    depth_blocks: tuple[tuple[Block, ...], ...]
    depth_heads: tuple[Tensor, ...]


class Cache:
    """Keys and values of a number of calls. `keys`, `values`: (layers, rows, context, H, W)."""

    def __init__(self, sizes: LmSizes, rows: int, device: torch.device, dtype: torch.dtype) -> None:
        shape = (sizes.layers, rows, sizes.context, sizes.heads, sizes.head_dim)
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)


class LanguageModel:
    """Both transformers over fixed weights; the state of calls is the caller's. All methods run without gradients."""

    def __init__(self, sizes: LmSizes, weights: LmWeights) -> None:
        self.sizes = sizes
        self.weights = weights
        self.device = weights.text_head.device
        self.dtype = weights.text_head.dtype
        half = torch.arange(0, sizes.head_dim, 2, dtype=torch.float64, device=self.device)
        self._frequencies = ROPE_BASE ** (-half / sizes.head_dim)

    def embed(self, tokens: Tensor) -> Tensor:
        """The summed embeddings of token rows (..., 17) int64; -1 stands for nothing. Returns (..., D)."""
        zero_row = self.weights.table.shape[0] - 1
        indices = torch.where(tokens < 0, zero_row, tokens + self.weights.offsets)
        return F.embedding(indices, self.weights.table).sum(dim=-2)

    def rotation(self, positions: Tensor) -> Tensor:
        """Rotary factors of integer positions (...): complex64 (..., W/2). Angles are exact however long a call is."""
        angles = positions.to(torch.float64).unsqueeze(-1) * self._frequencies
        return torch.polar(torch.ones_like(angles), angles).to(torch.complex64)

    def step(self, x: Tensor, positions: Tensor, cache: Cache, visible: int) -> Tensor:
        """One position of every row: input (R, D) at `positions` (R,). Returns the normed hidden state (R, D).

        Writes each row's cell `position % context`; a row whose step does not count writes it again later.
        `visible`: cells that are looked at, at least as many as the longest row has.
        """
        sizes, rows = self.sizes, x.shape[0]
        cell = positions % sizes.context
        rotation = self.rotation(positions).view(rows, 1, 1, -1)
        index = torch.arange(rows, device=x.device)
        beyond = torch.arange(visible, device=x.device) > positions.clamp(max=sizes.context - 1).unsqueeze(1)
        mask = torch.zeros(beyond.shape, device=x.device, dtype=x.dtype).masked_fill_(beyond, -torch.inf)
        mask = mask.view(rows, 1, 1, visible)
        keys, values = cache.keys[:, :rows], cache.values[:, :rows]
        seen_keys, seen_values = (cells[:, :, :visible].transpose(2, 3).unbind() for cells in (keys, values))
        layers = zip(self.weights.blocks, keys.unbind(), values.unbind(), seen_keys, seen_values, strict=True)
        for block, into_keys, into_values, past_keys, past_values in layers:
            q, k, v = self._qkv(block, x, rotation)
            into_keys[index, cell] = k
            into_values[index, cell] = v
            heard = F.scaled_dot_product_attention(q.unsqueeze(2), past_keys, past_values, attn_mask=mask)
            x = _finish(block, x, heard.reshape(rows, sizes.dim))
        return _norm(x, self.weights.out_norm)

    def extend(self, x: Tensor, start: int, keys: Tensor, values: Tensor) -> Tensor:
        """Positions `start` to `start + P` of one call at once: input (P, D). Returns normed hidden states (P, D).

        `keys`, `values`: (layers, capacity, H, W), holding positions below `start` already; written here. No position
        may lie beyond the context.
        """
        sizes, count = self.sizes, x.shape[0]
        end = start + count
        positions = torch.arange(start, end, device=x.device)
        rotation = self.rotation(positions).view(count, 1, 1, -1)
        mask = torch.arange(end, device=x.device) <= positions.unsqueeze(1)
        for number, block in enumerate(self.weights.blocks):
            q, k, v = self._qkv(block, x, rotation)
            keys[number, start:end] = k
            values[number, start:end] = v
            past = keys[number, :end].transpose(0, 1), values[number, :end].transpose(0, 1)
            heard = F.scaled_dot_product_attention(q.transpose(0, 1), *past, attn_mask=mask)
            x = _finish(block, x, heard.transpose(0, 1).reshape(count, sizes.dim))
        return _norm(x, self.weights.out_norm)

    def _qkv(self, block: Block, x: Tensor, rotation: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        projected = F.linear(_norm(x, block.norm1), block.qkv).view(x.shape[0], 3, self.sizes.heads, -1)
        turned = torch.view_as_real(_pairs(projected[:, :2]) * rotation).flatten(-2).to(x.dtype)
        return turned[:, 0], turned[:, 1], projected[:, 2]

    def text_logits(self, hidden: Tensor) -> Tensor:
        """Logits of the text token of the next position: (R, text cards), float32."""
        return F.linear(hidden, self.weights.text_head).float()

    def depth(self, hidden: Tensor) -> "Depth":
        """Begin the inner steps of one frame."""
        return Depth(self, hidden)


class Depth:
    """The inner steps of one frame: step `k` is told a token and answers the logits of codebook `k`."""

    def __init__(self, model: LanguageModel, hidden: Tensor) -> None:
        sizes, weights = model.sizes, model.weights
        rows = hidden.shape[0]
        self._sizes, self._weights, self._rows = sizes, weights, rows
        # All steps look at the same hidden state: one product for all of them.
        self._inputs = F.linear(hidden, weights.depth_in).view(rows, CODEBOOKS, sizes.depth_dim)
        width = sizes.depth_dim // sizes.depth_heads
        shape = (sizes.depth_layers, rows, 2, sizes.depth_heads, CODEBOOKS, width)
        self._cells = hidden.new_empty(shape).unbind()

    def step(self, k: int, told: Tensor) -> Tensor:
        """Logits (R, cards), float32, of codebook `k`. `told`: (R,) int64, the text token for k = 0, else code k - 1."""
        sizes, rows = self._sizes, self._rows
        x = self._inputs[:, k] + F.embedding(told, self._weights.depth_tables[k])
        for block, cells in zip(self._weights.depth_blocks[k], self._cells, strict=True):
            projected = F.linear(_norm(x, block.norm1), block.qkv).view(rows, 3, sizes.depth_heads, -1)
            cells[..., k, :] = projected[:, 1:]
            keys, values = cells[..., : k + 1, :].unbind(1)
            heard = F.scaled_dot_product_attention(projected[:, 0].unsqueeze(2), keys, values)
            x = _finish(block, x, heard.reshape(rows, sizes.depth_dim))
        return F.linear(x, self._weights.depth_heads[k]).float()


def _norm(x: Tensor, alpha: Tensor) -> Tensor:
    """Root mean square norm, computed in float32 whatever the model's type."""
    return F.rms_norm(x.float(), alpha.shape, alpha, EPS).to(x.dtype)


def _pairs(x: Tensor) -> Tensor:
    """Neighbouring features as complex numbers: the rotary embedding here turns pairs, not halves."""
    return torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))


def _finish(block: Block, x: Tensor, heard: Tensor) -> Tensor:
    x = x + F.linear(heard, block.out)
    gate, up = F.linear(_norm(x, block.norm2), block.gate).chunk(2, dim=-1)
    return x + F.linear(F.silu(gate) * up, block.down)


def lm_weights(tensors: Mapping[str, Tensor], sizes: LmSizes) -> LmWeights:
    """Arrange a checkpoint's tensors (`weights.py`): on their device, of the wanted type, norms in float32.

    Of the depformer's inner steps only the first `CODEBOOKS` are there.
    """
    tables = [tensors["text_emb.weight"], *(tensors[f"emb.{c}.weight"] for c in range(ROWS - 1))]
    starts = [0]
    for table in tables[:-1]:
        starts.append(starts[-1] + table.shape[0])
    return LmWeights(
        table=torch.cat([*tables, torch.zeros_like(tables[0][:1])]),
        offsets=torch.tensor(starts, device=tables[0].device),
        blocks=tuple(_block(tensors, f"transformer.layers.{number}") for number in range(sizes.layers)),
        out_norm=tensors["out_norm.alpha"].flatten(),
        text_head=tensors["text_linear.weight"],
        depth_in=torch.cat([tensors[f"depformer_in.{k}.weight"] for k in range(CODEBOOKS)]),
        depth_tables=(
            tensors["depformer_text_emb.weight"],
            *(tensors[f"depformer_emb.{k}.weight"] for k in range(CODEBOOKS - 1)),
        ),
        depth_blocks=tuple(
            tuple(_depth_block(tensors, f"depformer.layers.{number}", k) for number in range(sizes.depth_layers))
            for k in range(CODEBOOKS)
        ),
        depth_heads=tuple(tensors[f"linears.{k}.weight"] for k in range(CODEBOOKS)),
    )


def _block(tensors: Mapping[str, Tensor], prefix: str) -> Block:
    return Block(
        norm1=tensors[f"{prefix}.norm1.alpha"].flatten(),
        qkv=tensors[f"{prefix}.self_attn.in_proj_weight"],
        out=tensors[f"{prefix}.self_attn.out_proj.weight"],
        norm2=tensors[f"{prefix}.norm2.alpha"].flatten(),
        gate=tensors[f"{prefix}.gating.linear_in.weight"],
        down=tensors[f"{prefix}.gating.linear_out.weight"],
    )


def _depth_block(tensors: Mapping[str, Tensor], prefix: str, k: int) -> Block:
    """Attention comes fused, the weights of one inner step below those of the one before; gating comes apart."""
    return Block(
        norm1=tensors[f"{prefix}.norm1.alpha"].flatten(),
        qkv=tensors[f"{prefix}.self_attn.in_proj_weight"].chunk(CODEBOOKS)[k],
        out=tensors[f"{prefix}.self_attn.out_proj.weight"].chunk(CODEBOOKS)[k],
        norm2=tensors[f"{prefix}.norm2.alpha"].flatten(),
        gate=tensors[f"{prefix}.gating.{k}.linear_in.weight"],
        down=tensors[f"{prefix}.gating.{k}.linear_out.weight"],
    )
