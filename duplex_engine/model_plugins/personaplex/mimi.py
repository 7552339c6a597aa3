"""The codec: 80 ms of sound to 8 codes and back, for many calls at once, one frame at a time.

Owns how the layers are put together and the quantizer. The network is Mimi (Défossez et al. 2024, section 3.3): a
convolutional encoder and decoder around a causal transformer each, and a split residual quantizer, one codebook for meaning
beside seven for sound.
"""

from collections.abc import Mapping, Sequence

import attrs
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from duplex_engine.model_plugins.personaplex.layers import (
    Chain,
    Conv,
    ConvTranspose,
    Elu,
    Residual,
    Streaming,
    Transformer,
    TransformerLayer,
)
from duplex_engine.model_plugins.personaplex.sizes import CODEBOOKS, MIMI_RATIOS, MimiSizes

POSITIONS = 2
"""Positions of the transformers in one frame."""
USAGE_FLOOR = 1e-5


@attrs.frozen
class Mimi:
    """Sizes and tensors of a codec (`weights.py`)."""

    sizes: MimiSizes
    tensors: dict[str, Tensor]


class Codec:
    """Encoder and decoder of `rows` calls.

    The first R rows take part in a call of `encode` or `decode`; those that are not `stepped` (R,) keep their state.
    """

    def __init__(self, mimi: Mimi, rows: int) -> None:
        tensors, sizes = mimi.tensors, mimi.sizes
        self.rows = rows
        self._encoder = Chain(
            [
                *_seanet_encoder(tensors, rows),
                _transformer(tensors, "encoder_transformer", sizes, rows),
                _down(tensors, rows),
            ]
        )
        self._decoder = Chain(
            [
                _up(tensors, rows),
                _transformer(tensors, "decoder_transformer", sizes, rows),
                *_seanet_decoder(tensors, rows),
            ]
        )
        self._meaning = Quantizer(tensors, "quantizer.rvq_first", 1)
        self._sound = Quantizer(tensors, "quantizer.rvq_rest", CODEBOOKS - 1)

    @torch.inference_mode()
    def encode(self, sound: Tensor, stepped: Tensor) -> Tensor:
        """Codes (R, 8) int64 of one frame of sound (R, 1920) float32, -1 to 1."""
        latent = self._encoder(sound.unsqueeze(1), stepped)[..., 0]
        return torch.cat([self._meaning.encode(latent), self._sound.encode(latent)], dim=1)

    @torch.inference_mode()
    def decode(self, codes: Tensor, stepped: Tensor) -> Tensor:
        """Sound (R, 1920) float32 of codes (R, 8)."""
        latent = self._meaning.decode(codes[:, :1]) + self._sound.decode(codes[:, 1:])
        return self._decoder(latent.unsqueeze(2), stepped)[:, 0]

    def reset_encoder(self, row: int) -> None:
        """What this row hears begins anew."""
        self._encoder.reset(row)

    def reset_decoder(self, row: int) -> None:
        """What this row says begins anew."""
        self._decoder.reset(row)


class Quantizer:
    """The first `books` codebooks of one branch: each codes what those before it left over."""

    def __init__(self, tensors: Mapping[str, Tensor], prefix: str, books: int) -> None:
        self._into = tensors[f"{prefix}.input_proj.weight"][..., 0]
        self._out = tensors[f"{prefix}.output_proj.weight"][..., 0]
        names = [f"{prefix}.vq.layers.{number}._codebook" for number in range(books)]
        self._books = torch.stack(
            [
                tensors[f"{n}.embedding_sum"] / tensors[f"{n}.cluster_usage"].clamp(min=USAGE_FLOOR)[:, None]
                for n in names
            ]
        )
        self._half_squares = -0.5 * self._books.square().sum(dim=-1)

    def encode(self, latent: Tensor) -> Tensor:
        """Codes (R, books) of the nearest codewords of `latent` (R, D)."""
        left, codes = F.linear(latent, self._into), []
        for book, half_squares in zip(self._books, self._half_squares, strict=True):
            # |left - word|^2 is smallest where left * word - |word|^2 / 2 is largest.
            code = F.linear(left, book, half_squares).argmax(dim=-1)
            left = left - F.embedding(code, book)
            codes.append(code)
        return torch.stack(codes, dim=1)

    def decode(self, codes: Tensor) -> Tensor:
        """The latent (R, D) that codes (R, books) stand for."""
        words = torch.stack([F.embedding(codes[:, number], book) for number, book in enumerate(self._books)])
        return F.linear(words.sum(dim=0), self._out)


def _conv(tensors: Mapping[str, Tensor], name: str, rows: int, stride: int = 1) -> Conv:
    return Conv(rows, tensors[f"{name}.weight"], tensors[f"{name}.bias"], stride=stride)


def _residual(tensors: Mapping[str, Tensor], name: str, rows: int) -> Residual:
    wide, narrow = (_conv(tensors, f"{name}.block.{number}.conv.conv", rows) for number in (1, 3))
    return Residual(Elu(), wide, Elu(), narrow)


def _seanet_encoder(tensors: Mapping[str, Tensor], rows: int) -> Sequence[Streaming]:
    layers: list[Streaming] = [_conv(tensors, "encoder.model.0.conv.conv", rows)]
    number = 1
    for ratio in MIMI_RATIOS:
        layers.append(_residual(tensors, f"encoder.model.{number}", rows))
        layers += [Elu(), _conv(tensors, f"encoder.model.{number + 2}.conv.conv", rows, ratio)]
        number += 3
    return [*layers, Elu(), _conv(tensors, f"encoder.model.{number + 1}.conv.conv", rows)]


def _seanet_decoder(tensors: Mapping[str, Tensor], rows: int) -> Sequence[Streaming]:
    layers: list[Streaming] = [_conv(tensors, "decoder.model.0.conv.conv", rows)]
    number = 2
    for ratio in reversed(MIMI_RATIOS):
        name = f"decoder.model.{number}.convtr.convtr"
        layers += [Elu(), ConvTranspose(rows, tensors[f"{name}.weight"], tensors[f"{name}.bias"], stride=ratio)]
        layers.append(_residual(tensors, f"decoder.model.{number + 1}", rows))
        number += 3
    return [*layers, Elu(), _conv(tensors, f"decoder.model.{number}.conv.conv", rows)]


def _transformer(tensors: dict[str, Tensor], name: str, sizes: MimiSizes, rows: int) -> Transformer:
    layers = [TransformerLayer(tensors, f"{name}.transformer.layers.{number}") for number in range(sizes.layers)]
    return Transformer(rows, layers, heads=sizes.heads, dim=sizes.dim, context=sizes.context, piece=POSITIONS)


def _down(tensors: Mapping[str, Tensor], rows: int) -> Conv:
    return Conv(rows, tensors["downsample.conv.conv.conv.weight"], stride=2, replicate=True)


def _up(tensors: Mapping[str, Tensor], rows: int) -> ConvTranspose:
    weight = tensors["upsample.convtr.convtr.convtr.weight"]
    return ConvTranspose(rows, weight, stride=2, depthwise=True)
