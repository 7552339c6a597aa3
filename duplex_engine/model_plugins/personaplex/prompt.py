"""What a call begins with: voice, pause, persona, pause, as rows of tokens (the recipe of the published model).

Owns the fixed codes and the arrangement of rows with their delays. Touches no model: the rows become a snapshot in
`snapshot.py`; the persona's tokens come from `text.py`.
"""

from collections.abc import Sequence
from typing import Final

import attrs
import torch
from torch import Tensor

from duplex_engine.model_plugins.personaplex.sizes import CODEBOOKS, ROWS, CheckpointRejected, LmSizes
from duplex_engine.model_plugins.personaplex.text import PAD

SILENCE: Final = (948, 243, 1178, 546, 1736, 1030, 1978, 2008)
"""Codes of a silent frame: what the agent is heard saying while the persona is read."""
SINE: Final = (430, 1268, 381, 1611, 1095, 1495, 56, 472)
"""Codes of a 440 Hz tone: what the user is heard saying before the call."""
SPACER_FRAMES: Final = 6
RING: Final = 4
"""Columns of a voice's token ring: the largest delay and three."""

DELAYED: Final = tuple(row for row in range(1, ROWS) if (row - 1) % CODEBOOKS)
"""Rows whose token at a position belongs to the frame before: all codebooks but the first of each voice."""


@attrs.frozen(kw_only=True)
class Voice:
    """A voice as the checkpoint carries it.

    `embeddings`: (n - 1, D), the summed input of positions 0 to n - 2. `last_row`: (17,) int64, the tokens of position
    n - 1. `pending`: (17,) int64, of which the delayed rows are the codes of frame n - 1 that position n still needs.
    """

    name: str
    embeddings: Tensor
    last_row: Tensor
    pending: Tensor

    @property
    def frames(self) -> int:
        """n, the frames of the voice prompt."""
        return self.embeddings.shape[0] + 1


def voice_from_bundle(name: str, bundle: object, sizes: LmSizes) -> Voice:
    """A voice from the dictionary in its file. Raises CheckpointRejected when it does not belong to this checkpoint."""
    if not isinstance(bundle, dict) or not {"embeddings", "cache"} <= set(bundle):
        raise CheckpointRejected(f"voice {name}: expected a dictionary with embeddings and cache")
    embeddings, cache = bundle["embeddings"], bundle["cache"]
    if not isinstance(embeddings, Tensor) or not isinstance(cache, Tensor):
        raise CheckpointRejected(f"voice {name}: embeddings and cache must be tensors")
    if embeddings.dim() != 4 or embeddings.shape[1:] != (1, 1, sizes.dim) or not embeddings.is_floating_point():
        raise CheckpointRejected(
            f"voice {name}: embeddings have the shape {tuple(embeddings.shape)}; expected (frames, 1, 1, {sizes.dim})"
        )
    if tuple(cache.shape) != (1, ROWS, RING) or cache.dtype != torch.int64:
        raise CheckpointRejected(
            f"voice {name}: cache has the shape {tuple(cache.shape)}; expected (1, {ROWS}, {RING})"
        )
    frames = embeddings.shape[0] + 1
    voice = Voice(
        name=name,
        embeddings=embeddings[:, 0, 0],
        last_row=cache[0, :, (frames - 1) % RING].clone(),
        pending=cache[0, :, frames % RING].clone(),
    )
    _check_tokens(voice, sizes)
    return voice


def _check_tokens(voice: Voice, sizes: LmSizes) -> None:
    delayed = torch.tensor(DELAYED)
    cards = torch.tensor([sizes.text_cards, *[sizes.cards] * (ROWS - 1)])
    for what, tokens, rows in (
        ("last row", voice.last_row, torch.arange(ROWS)),
        ("pending codes", voice.pending, delayed),
    ):
        if bool(((tokens[rows] < -1) | (tokens[rows] > cards[rows])).any()):
            raise CheckpointRejected(f"voice {voice.name}: the {what} hold tokens outside the model's vocabulary")


@attrs.frozen(kw_only=True)
class PromptRows:
    """All positions of a prompt behind the voice's embedded ones.

    `rows`: (P, 17) int64, position n - 1 of the voice first. `tail`: (17,) int64, what the position after the prompt is
    forced to where a row is delayed; `user_tail`: (8,) the user's codes of the last frame.
    """

    rows: Tensor
    tail: Tensor
    user_tail: Tensor


def prompt_rows(voice: Voice, persona: Sequence[int]) -> PromptRows:
    """Rows of positions n - 1 to the end of the prompt. `persona`: its text tokens, none for no persona."""
    texts = [PAD] * SPACER_FRAMES + ([*persona, *[PAD] * SPACER_FRAMES] if persona else [PAD] * SPACER_FRAMES)
    frame = torch.tensor([PAD, *SILENCE, *SINE])
    rows = frame.repeat(len(texts), 1)
    rows[:, 0] = torch.tensor(texts)
    delayed = list(DELAYED)
    rows[0, delayed] = voice.pending[delayed]  # the voice's last sound is not over yet
    return PromptRows(
        rows=torch.cat([voice.last_row.unsqueeze(0), rows]),
        tail=frame,
        user_tail=torch.tensor(SINE),
    )


def voice_rows(codes: Tensor, sizes: LmSizes) -> Tensor:
    """Rows of positions 0 to n of a voice prompt spoken by the agent: codes (n, 8) int64. Returns (n + 1, 17) int64.

    A stream begins with start tokens: everywhere at position 0, in delayed rows at position 1. Position n holds the delayed
    codes of frame n - 1 and nothing else that counts. Used to make voices, and to check that a voice's file says the
    same as its sound.
    """
    frames = codes.shape[0]
    undelayed = torch.full((frames + 1, ROWS), PAD)
    undelayed[:frames, 1 : 1 + CODEBOOKS] = codes
    undelayed[:, 1 + CODEBOOKS :] = torch.tensor(SINE)
    rows = undelayed.clone()
    delayed = list(DELAYED)
    rows[1:, delayed] = undelayed[:-1, delayed]
    start = torch.tensor([sizes.text_cards, *[sizes.cards] * (ROWS - 1)])
    rows[0] = start
    rows[1, delayed] = start[delayed]
    return rows
