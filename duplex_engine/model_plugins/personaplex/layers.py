"""Streaming layers of the codec: each remembers, for every row, what its next piece of sound needs of the last one.

Owns those memories. A row that is not stepped keeps its memory to the bit. Shapes: `x` (R, channels, samples), rows 0 to R
of all; `stepped` (R,) bool.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

ROPE_BASE = 10_000.0


class Streaming(Protocol):
    """A layer with a memory."""

    def __call__(self, x: Tensor, stepped: Tensor) -> Tensor: ...

    def reset(self, row: int) -> None:
        """Row `row` begins anew."""


class Conv:
    """A causal convolution: zeros before the first sample or, with `replicate`, the first sample again."""

    def __init__(
        self, rows: int, weight: Tensor, bias: Tensor | None = None, *, stride: int = 1, replicate: bool = False
    ) -> None:
        self._weight, self._bias, self._stride = weight, bias, stride
        self._past = weight.new_zeros(rows, weight.shape[1], weight.shape[2] - stride)
        self._fresh = torch.ones(rows, 1, 1, dtype=torch.bool, device=weight.device) if replicate else None

    def __call__(self, x: Tensor, stepped: Tensor) -> Tensor:
        count, length = x.shape[0], self._past.shape[2]
        if not length:
            return F.conv1d(x, self._weight, self._bias, stride=self._stride)
        past = self._past[:count]
        if self._fresh is not None:
            past = torch.where(self._fresh[:count], x[..., :1], past)
            self._fresh[:count] &= ~stepped.view(-1, 1, 1)
        whole = torch.cat([past, x], dim=2)
        self._past[:count] = torch.where(stepped.view(-1, 1, 1), whole[..., -length:], self._past[:count])
        return F.conv1d(whole, self._weight, self._bias, stride=self._stride)

    def reset(self, row: int) -> None:
        """Row `row` begins anew."""
        self._past[row] = 0
        if self._fresh is not None:
            self._fresh[row] = True


class ConvTranspose:
    """A causal transposed convolution whose kernel is twice its stride: what overlaps the next piece waits for it.

    Weights are (channels in, channels out, kernel) or, with `depthwise`, (channels, 1, kernel). Every input sample makes two
    strides of output, the second of which falls on the first of the next sample's: one product and one sum.
    """

    def __init__(
        self, rows: int, weight: Tensor, bias: Tensor | None = None, *, stride: int, depthwise: bool = False
    ) -> None:
        self._channels = weight.shape[0] if depthwise else weight.shape[1]
        self._weight = weight[:, 0] if depthwise else weight.flatten(1).t().contiguous()
        self._depthwise, self._stride = depthwise, stride
        self._bias = None if bias is None else bias.view(1, self._channels, 1)
        self._tail = weight.new_zeros(rows, 1, self._channels, stride)

    def __call__(self, x: Tensor, stepped: Tensor) -> Tensor:
        count, length = x.shape[0], x.shape[2]
        x = x.transpose(1, 2)
        made = x.unsqueeze(-1) * self._weight if self._depthwise else F.linear(x, self._weight)
        first, second = made.view(count, length, self._channels, 2, self._stride).unbind(3)
        tail = self._tail[:count]
        sound = (first + torch.cat([tail, second[:, :-1]], dim=1)).transpose(1, 2).flatten(2)
        self._tail[:count] = torch.where(stepped.view(-1, 1, 1, 1), second[:, -1:], tail)
        return sound if self._bias is None else sound + self._bias

    def reset(self, row: int) -> None:
        """Row `row` begins anew."""
        self._tail[row] = 0


class Elu:
    """An activation; nothing to remember."""

    def __call__(self, x: Tensor, stepped: Tensor) -> Tensor:
        return F.elu(x)

    def reset(self, row: int) -> None:
        """Nothing to do."""


class Residual:
    """Layers whose result is added to their input."""

    def __init__(self, *layers: Streaming) -> None:
        self._layers = Chain(layers)

    def __call__(self, x: Tensor, stepped: Tensor) -> Tensor:
        return x + self._layers(x, stepped)

    def reset(self, row: int) -> None:
        """Row `row` begins anew."""
        self._layers.reset(row)


class Chain:
    """Layers one after the other."""

    def __init__(self, layers: Sequence[Streaming]) -> None:
        self._layers = tuple(layers)

    def __call__(self, x: Tensor, stepped: Tensor) -> Tensor:
        for layer in self._layers:
            x = layer(x, stepped)
        return x

    def reset(self, row: int) -> None:
        """Row `row` begins anew."""
        for layer in self._layers:
            layer.reset(row)


class Transformer:
    """A causal transformer over positions, `context` of them in view, several a piece.

    Keys and values live in a ring of `context` cells and one for each further position of a piece: all positions of a piece
    are written before the first one looks back, and it must still find its oldest.
    """

    def __init__(
        self, rows: int, layers: Sequence["TransformerLayer"], *, heads: int, dim: int, context: int, piece: int
    ) -> None:
        self._layers = tuple(layers)
        self._heads, self._context, self._piece = heads, context, piece
        device = layers[0].qkv.device
        self._cells = context + piece - 1
        shape = (len(layers), rows, self._cells, heads, dim // heads)
        self._keys = torch.zeros(shape, device=device)
        self._values = torch.zeros(shape, device=device)
        self._position = torch.zeros(rows, dtype=torch.int64, device=device)
        half = torch.arange(0, dim // heads, 2, dtype=torch.float64, device=device)
        self._frequencies = ROPE_BASE ** (-half * heads / dim)

    def __call__(self, x: Tensor, stepped: Tensor) -> Tensor:
        count = x.shape[0]
        x = x.transpose(1, 2)
        positions = self._position[:count].unsqueeze(1) + torch.arange(self._piece, device=x.device)
        angles = positions.unsqueeze(-1) * self._frequencies
        rotation = torch.polar(torch.ones_like(angles), angles).to(torch.complex64).unsqueeze(2).unsqueeze(2)
        cells, mask = positions % self._cells, self._mask(positions)
        index = torch.arange(count, device=x.device).unsqueeze(1)
        for number, layer in enumerate(self._layers):
            q, k, v = layer.project(x, self._heads, rotation)
            keys, values = self._keys[number, :count], self._values[number, :count]
            keys[index, cells] = k
            values[index, cells] = v
            heard = F.scaled_dot_product_attention(
                q.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2), attn_mask=mask
            )
            x = layer.finish(x, heard.transpose(1, 2).flatten(2))
        self._position[:count] += self._piece * stepped
        return x.transpose(1, 2)

    def _mask(self, positions: Tensor) -> Tensor:
        """Which cell each position sees: (R, 1, piece, cells)."""
        newest = positions[:, -1:]
        cells = torch.arange(self._cells, device=positions.device)
        held = (newest - (newest - cells) % self._cells).unsqueeze(1)
        now = positions.unsqueeze(-1)
        return ((held >= 0) & (held <= now) & (held > now - self._context)).unsqueeze(1)

    def reset(self, row: int) -> None:
        """Row `row` begins anew; what its cells hold is never seen again."""
        self._position[row] = 0


class TransformerLayer:
    """A pre-norm layer with layer norms, scaled branches and a GELU."""

    def __init__(self, tensors: dict[str, Tensor], prefix: str) -> None:
        self.qkv = tensors[f"{prefix}.self_attn.in_proj_weight"]
        self._out = tensors[f"{prefix}.self_attn.out_proj.weight"]
        self._norms = [(tensors[f"{prefix}.{norm}.weight"], tensors[f"{prefix}.{norm}.bias"]) for norm in NORMS]
        self._scales = [tensors[f"{prefix}.layer_scale_{which}.scale"] for which in (1, 2)]
        self._up = tensors[f"{prefix}.linear1.weight"]
        self._down = tensors[f"{prefix}.linear2.weight"]

    def project(self, x: Tensor, heads: int, rotation: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys, turned by `rotation` (R, T, 1, 1, W/2), and values: (R, T, H, W) each."""
        projected = F.linear(self._norm(x, 0), self.qkv).view(*x.shape[:2], 3, heads, -1)
        pairs = torch.view_as_complex(projected[:, :, :2].reshape(*x.shape[:2], 2, heads, -1, 2))
        turned = torch.view_as_real(pairs * rotation).flatten(-2)
        return turned[:, :, 0], turned[:, :, 1], projected[:, :, 2]

    def finish(self, x: Tensor, heard: Tensor) -> Tensor:
        """What was heard, and the feed-forward branch, added to the input."""
        x = x + F.linear(heard, self._out) * self._scales[0]
        return x + F.linear(F.gelu(F.linear(self._norm(x, 1), self._up)), self._down) * self._scales[1]

    def _norm(self, x: Tensor, which: int) -> Tensor:
        weight, bias = self._norms[which]
        return F.layer_norm(x, weight.shape, weight, bias, 1e-5)


NORMS = ("norm1", "norm2")
