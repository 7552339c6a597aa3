"""A second implementation of what a call begins with and how it goes on: one frame at a time, over a ring of tokens.

Written from the recipe of the published model and from how its own server goes about it: every frame of the prompt is a
step, tokens lie in a ring of four columns with a mark for those that were given, and position p - 1 is thought when frame p
arrives. It shares nothing with the product: the networks are those of `transformers`, constants are written out again.
NVIDIA's own package cannot be installed beside current releases of torch, so this stands in for it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import DynamicCache, MoshiForConditionalGeneration

ROWS = 17
COLUMNS = 4
DELAYS = (0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1)
TEXT_PAD = 3
SILENT_FRAME = [948, 243, 1178, 546, 1736, 1030, 1978, 2008]
TONE_FRAME = [430, 1268, 381, 1611, 1095, 1495, 56, 472]
PAUSE_FRAMES = 6


class RingReference:
    """One greedy call."""

    def __init__(self, model: MoshiForConditionalGeneration) -> None:
        self._model = model
        self._cache = DynamicCache(config=model.decoder.config)
        self._start = [model.config.vocab_size] + [model.config.audio_vocab_size] * (ROWS - 1)
        self._ring = torch.full((ROWS, COLUMNS), -2)
        self._given = torch.zeros(ROWS, COLUMNS, dtype=torch.bool)
        self._frame = 0

    def hear_voice(self, codes: Tensor) -> None:
        """The voice's prompt as codes (n, 8)."""
        for frame in codes:
            self._step({0: TEXT_PAD} | _rows(1, frame.tolist()) | _rows(9, TONE_FRAME))

    def hear_bundle(self, embeddings: Tensor, ring: Tensor) -> None:
        """The voice's prompt as its file has it: inputs of all positions but the last, then the ring they left."""
        self._frame = 1  # the first frame of a stream only fills the ring
        for embedded in embeddings:
            self._think(embedded.view(1, 1, -1).float())
            self._frame += 1
        self._ring = ring[0].clone()
        delayed = torch.tensor(DELAYED_ROWS)
        self._given[delayed, self._frame % COLUMNS] = True

    def read(self, persona: Sequence[int]) -> None:
        """Pause, persona, pause."""
        for tokens in ([TEXT_PAD] * PAUSE_FRAMES, persona, [TEXT_PAD] * PAUSE_FRAMES):
            for token in tokens:
                self._step({0: token} | _rows(1, SILENT_FRAME) | _rows(9, TONE_FRAME))

    def answer(self, user: Tensor) -> list[int] | None:
        """Text and codes (9) of the frame before, to the user's codes (8) of this one."""
        return self._step(_rows(9, user.tolist()))

    def _step(self, given: dict[int, int]) -> list[int] | None:
        frame = self._frame
        for row, token in given.items():
            column = (frame + DELAYS[row]) % COLUMNS
            self._ring[row, column] = token
            self._given[row, column] = True
        for row in range(ROWS):
            if frame <= DELAYS[row]:
                self._ring[row, frame % COLUMNS] = self._start[row]
                self._given[row, frame % COLUMNS] = True
        self._frame += 1
        if frame == 0:
            return None
        hidden = self._think(self._embedded(self._ring[:, (frame - 1) % COLUMNS]))
        self._speak(hidden, frame % COLUMNS)
        self._given[:, (frame - 1) % COLUMNS] = False
        if frame <= max(DELAYS):
            return None
        return [int(self._ring[row, (frame - 1 + DELAYS[row]) % COLUMNS]) for row in range(9)]

    def _embedded(self, tokens: Tensor) -> Tensor:
        summed = self._model.decoder.model.embed_tokens(tokens[0])
        for row in range(1, ROWS):
            summed = summed + self._model.embed_tokens[row - 1](tokens[row])
        return summed.view(1, 1, -1)

    def _think(self, embedded: Tensor) -> Tensor:
        answer = self._model.decoder.model(inputs_embeds=embedded, past_key_values=self._cache, use_cache=True)
        hidden: Tensor = answer.last_hidden_state
        return hidden

    def _speak(self, hidden: Tensor, column: int) -> None:
        """Text and codes of a position, each given one standing in for what would have been said."""
        told = []
        for row in range(9):
            if row == 0:
                logits = self._model.decoder.lm_head(hidden)[0, 0]
            else:
                several = hidden.expand(1, row, -1)
                answer = self._model.depth_decoder(torch.tensor([told]), last_hidden_state=several, use_cache=False)
                logits = answer.logits[0, -1]
            if not self._given[row, column]:
                self._ring[row, column] = logits.argmax()
            told.append(int(self._ring[row, column]))


def _rows(first: int, codes: Sequence[int]) -> dict[int, int]:
    return {first + number: code for number, code in enumerate(codes)}


DELAYED_ROWS = [row for row, delay in enumerate(DELAYS) if delay]
