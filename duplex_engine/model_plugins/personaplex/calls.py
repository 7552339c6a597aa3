"""The calls in a batch: where each stands in its conversation, and one frame of all that have input.

Owns the state of every row. A row that is not stepped keeps its state to the bit: what the batch computes for it is not
committed. Encoding and decoding sound is `mimi.py`.

One frame at position p (after kyutai's order: nothing waits for a frame that is not there yet):
the row is text[p], the agent's codes at p, the user's first code of frame p and the other seven of frame p - 1; the step
yields text and codes of p + 1; frame p is then complete, its last seven codes being those of position p + 1.
"""

from collections.abc import Sequence

import attrs
import torch
from torch import Tensor

from duplex_engine.model_plugins.personaplex.lm import Cache, LanguageModel
from duplex_engine.model_plugins.personaplex.sampling import Draws, Sampling
from duplex_engine.model_plugins.personaplex.sizes import CODEBOOKS
from duplex_engine.model_plugins.personaplex.snapshot import Snapshot

LENGTH_STEP = 64
"""Attention looks at a multiple of this many cells, so that a young call pays for its own length."""


@attrs.frozen
class Frame:
    """What the agent says in one frame, for every row of the step: `codes` (R, 8) and `text` (R,), both int64."""

    codes: Tensor
    text: Tensor


class Calls:
    """All rows of one device. Rows are numbered from 0; a step computes rows 0 to the highest one in use."""

    def __init__(self, model: LanguageModel, rows: int) -> None:
        device = model.device
        self.rows = rows
        self._model = model
        self._cache = Cache(model.sizes, rows, device, model.dtype)
        self._draws = Draws(rows, device)
        self._position = torch.zeros(rows, dtype=torch.int64, device=device)
        self._text = torch.zeros(rows, dtype=torch.int64, device=device)
        self._agent = torch.zeros(rows, CODEBOOKS, dtype=torch.int64, device=device)
        self._user = torch.zeros(rows, CODEBOOKS, dtype=torch.int64, device=device)
        self._lengths = [0] * rows

    @torch.inference_mode()
    def open(self, row: int, snapshot: Snapshot, sampling: Sampling) -> None:
        """Begin a call on this row, right behind a prompt. Whatever the row held is gone."""
        positions = snapshot.positions
        self._cache.keys[:, row, :positions] = snapshot.keys
        self._cache.values[:, row, :positions] = snapshot.values
        self._draws.begin(row, sampling)
        noise = self._draws.next_frame([row])
        one = slice(row, row + 1)
        hidden = snapshot.hidden.unsqueeze(0)
        text = self._draws.draw(self._model.text_logits(hidden), noise[one, 0], text=True, first=row)
        first = self._draws.draw(self._model.depth(hidden).step(0, text), noise[one, 1], text=False, first=row)
        self._position[row] = positions
        self._text[row] = text[0]
        self._agent[row] = snapshot.tail
        self._agent[row, 0] = first[0]
        self._user[row] = snapshot.user_tail
        self._lengths[row] = positions

    def step(self, rows: Sequence[int], user: Tensor) -> Frame:
        """One frame of these rows. `user`: (R, 8) int64, the user's codes, R at least one more than the highest row."""
        count = user.shape[0]
        stepped = torch.zeros(count, dtype=torch.bool)
        stepped[list(rows)] = True
        frame = self.compute(user, stepped.to(user.device), self.noise(rows), self.visible(count))
        self.stepped(rows)
        return frame

    def noise(self, rows: Sequence[int]) -> Tensor:
        """What the draws of one more frame of these rows begin with, for all rows (see `sampling.py`)."""
        return self._draws.next_frame(rows)

    @torch.inference_mode()
    def compute(self, user: Tensor, stepped: Tensor, noise: Tensor, visible: int) -> Frame:
        """The device's part of a step: no value of it is looked at by the host. `stepped` (R,): rows that keep its outcome."""
        count = user.shape[0]
        agent, text = self._agent[:count], self._text[:count]
        tokens = torch.cat([text.unsqueeze(1), agent, user[:, :1], self._user[:count, 1:]], dim=1)
        hidden = self._model.step(self._model.embed(tokens), self._position[:count], self._cache, visible)
        next_text, next_agent = self._speak(hidden, noise)
        frame = Frame(torch.cat([agent[:, :1], next_agent[:, 1:]], dim=1), text.clone())
        self._commit(stepped, next_text, next_agent, user)
        return frame

    def stepped(self, rows: Sequence[int]) -> None:
        """These rows have had one more frame."""
        for row in rows:
            self._lengths[row] += 1

    def _speak(self, hidden: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Text and codes of the next position."""
        count = hidden.shape[0]
        text = told = self._draws.draw(self._model.text_logits(hidden), noise[:count, 0], text=True)
        depth, codes = self._model.depth(hidden), []
        for k in range(CODEBOOKS):
            told = self._draws.draw(depth.step(k, told), noise[:count, 1 + k], text=False)
            codes.append(told)
        return text, torch.stack(codes, dim=1)

    def _commit(self, stepped: Tensor, text: Tensor, agent: Tensor, user: Tensor) -> None:
        count, several = len(stepped), stepped.unsqueeze(1)
        self._text[:count] = torch.where(stepped, text, self._text[:count])
        self._agent[:count] = torch.where(several, agent, self._agent[:count])
        self._user[:count] = torch.where(several, user, self._user[:count])
        self._position[:count] += stepped

    def visible(self, count: int) -> int:
        """Cells that the next step of the first `count` rows has to look at."""
        longest = max(self._lengths[:count]) + 1
        return min(-(-longest // LENGTH_STEP) * LENGTH_STEP, self._model.sizes.context)

    def close(self, row: int) -> None:
        """Nobody is on this row: it makes no step longer any more."""
        self._lengths[row] = 0

    def rolls(self, row: int) -> bool:
        """Whether the window of this row is full for the first time: each step from now on forgets a position."""
        return self._lengths[row] == self._model.sizes.context
