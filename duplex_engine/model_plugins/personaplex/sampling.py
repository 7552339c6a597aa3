"""Drawing tokens: temperature, the k likeliest, and a random stream of its own for every call.

Owns the draw. A call's stream depends on its seed and on how many frames it has had, never on who else is in the batch, so
a seed reproduces a call.

The draw is an exponential race over the k largest softmax values, not renormalised: the index with the largest
probability / noise wins, with noise exponential of rate 1. That is a multinomial draw without a cumulative sum.
"""

import attrs
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
        self._noise = torch.ones(rows, DRAWS, MAX_TOP_K)
        self._device = device
        self._temperature = torch.zeros(2, rows, 1, device=device)
        self._top_k = torch.ones(2, rows, 1, dtype=torch.int64, device=device)
        self._greedy = [True] * rows

    def begin(self, row: int, sampling: Sampling) -> None:
        """A new call on this row."""
        generator = self._generators[row]
        if sampling.seed is None:
            generator.seed()
        else:
            generator.manual_seed(sampling.seed)
        self._temperature[:, row, 0] = torch.tensor([sampling.text_temperature, sampling.audio_temperature])
        self._top_k[:, row, 0] = torch.tensor([sampling.text_top_k, sampling.audio_top_k])
        self._greedy[row] = sampling.text_temperature <= 0 and sampling.audio_temperature <= 0

    def next_frame(self, rows: list[int]) -> Tensor:
        """Noise for one more frame of these rows: (all rows, DRAWS, MAX_TOP_K) on the device; other rows keep their place."""
        for row in rows:
            if not self._greedy[row]:
                self._noise[row].exponential_(generator=self._generators[row])
        return self._noise.to(self._device, non_blocking=True)

    def draw(self, logits: Tensor, noise: Tensor, *, text: bool, first: int = 0) -> Tensor:
        """One token for each of R rows from `first` on: logits (R, cards) float32, noise (R, MAX_TOP_K). Returns (R,) int64."""
        kind, rows = 0 if text else 1, slice(first, first + logits.shape[0])
        count = min(MAX_TOP_K, logits.shape[1])
        values, indices = logits.topk(count, dim=-1)
        temperature, top_k = self._temperature[kind, rows], self._top_k[kind, rows]
        beyond = torch.arange(count, device=logits.device) >= top_k
        race = (values / temperature.clamp(min=1e-6) - noise[:, :count].log()).masked_fill(beyond, -torch.inf)
        chosen = torch.where(temperature > 0, race.argmax(dim=-1, keepdim=True), 0)
        return indices.gather(-1, chosen).squeeze(-1)
