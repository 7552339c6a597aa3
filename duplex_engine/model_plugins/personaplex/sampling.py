"""Drawing tokens: temperature, the k likeliest, and a random stream of its own for every call.

Owns the draw. A call's stream depends on its seed and on how many frames it has had, never on who else is in the batch, so
a seed reproduces a call.

The draw is a race among the k likeliest tokens: the one with the largest logit / temperature + Gumbel noise wins. That is a
multinomial draw from their softmax without computing it. Noise belongs to ranks, not to tokens, so that it is as much as
the largest k for any vocabulary.
"""

from collections.abc import Sequence

import attrs
import numpy as np
import torch
from torch import Tensor

from duplex_engine.model_plugins.personaplex.sizes import CODEBOOKS

MAX_TOP_K = 250
DRAWS = 1 + CODEBOOKS
"""Draws of one frame: the text token, then each codebook."""


@attrs.frozen(kw_only=True)
class Sampling:
    """How one call draws. Temperatures of 0 take the likeliest. `seed` None: a random one."""

    text_temperature: float = 0.7
    text_top_k: int = 25
    audio_temperature: float = 0.8
    audio_top_k: int = MAX_TOP_K
    seed: int | None = None


class Draws:
    """The random streams and settings of `rows` calls."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self._generators = [torch.Generator() for _ in range(rows)]
        self._greedy = [True] * rows
        self._uniform = torch.full((rows, DRAWS, MAX_TOP_K), 0.5)
        self._beyond = torch.zeros(rows, DRAWS, MAX_TOP_K, device=device)
        self._scale = torch.ones(2, rows, 1, device=device)
        self._device = device

    def begin(self, row: int, sampling: Sampling) -> None:
        """A new call on this row."""
        generator = self._generators[row]
        if sampling.seed is None:
            generator.seed()
        else:
            generator.manual_seed(sampling.seed)
        kinds = (
            (0, slice(0, 1), sampling.text_temperature, sampling.text_top_k),
            (1, slice(1, DRAWS), sampling.audio_temperature, sampling.audio_top_k),
        )
        for kind, draws, temperature, top_k in kinds:
            self._scale[kind, row] = 1 / temperature if temperature > 0 else 1.0
            self._beyond[row, draws] = 0
            self._beyond[row, draws, top_k if temperature > 0 else 1 :] = -torch.inf
        self._greedy[row] = sampling.text_temperature <= 0 and sampling.audio_temperature <= 0

    def next_frame(self, rows: Sequence[int]) -> Tensor:
        """What each rank starts with in the races of one more frame: (all rows, DRAWS, MAX_TOP_K) on the device.

        Only the streams of `rows` advance.
        """
        for row in rows:
            if not self._greedy[row]:
                self._uniform[row].uniform_(generator=self._generators[row])
        uniform = self._uniform.to(self._device, non_blocking=True)
        return self._beyond - uniform.log().neg_().log_()

    def draw(self, logits: Tensor, start: Tensor, *, text: bool, first: int = 0) -> Tensor:
        """One token for each of R rows from `first` on: logits (R, cards) float32, start (R, MAX_TOP_K). Returns (R,) int64."""
        count = min(MAX_TOP_K, logits.shape[1])
        scale = self._scale[0 if text else 1, first : first + logits.shape[0]]
        if logits.device.type == "cpu":
            return _drawn_by_value(logits, scale, start[:, :count])
        values, tokens = logits.topk(count, dim=-1)
        winner = (values * scale + start[:, :count]).argmax(dim=-1, keepdim=True)
        return tokens.gather(-1, winner).squeeze(-1)


def _drawn_by_value(logits: Tensor, scale: Tensor, start: Tensor) -> Tensor:
    """The same on a CPU, where sorting whole rows without their indices is several times faster than finding the largest.

    Of tokens with the very same logit the first is meant.
    """
    ascending = torch.from_numpy(np.sort(logits.numpy(), axis=-1))
    values = ascending[:, -start.shape[1] :].flip(-1)
    winner = (values * scale + start).argmax(dim=-1, keepdim=True)
    return (logits == values.gather(-1, winner)).view(torch.uint8).argmax(dim=-1)
