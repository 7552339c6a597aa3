"""Prompts that have been read: made once, a chunk at a time, then copied into every call that begins with them.

Owns the reading of a prompt and the store of snapshots with its budget. A prompt is known in advance, so it is one causal
forward pass instead of one step per frame, and its result is a small state that can be copied. Never samples.
"""

from collections import OrderedDict
from collections.abc import Hashable

import attrs
import torch
from torch import Tensor

from duplex_engine.model_plugins.personaplex.lm import LanguageModel
from duplex_engine.model_plugins.personaplex.prompt import PromptRows, Voice
from duplex_engine.model_plugins.personaplex.sizes import CODEBOOKS, CheckpointRejected

CHUNK = 64
"""Positions read at a time: short enough that live calls keep their deadline."""


@attrs.frozen(kw_only=True)
class Snapshot:
    """The state behind a prompt of P positions.

    `keys`, `values`: (layers, P, heads, width). `hidden`: (D,), normed, of the last position. `tail`: (8,) what the agent's
    codes at position P are forced to, but for the first; `user_tail`: (8,) the user's codes of the last frame.
    """

    keys: Tensor
    values: Tensor
    hidden: Tensor
    tail: Tensor
    user_tail: Tensor

    @property
    def positions(self) -> int:
        """P."""
        return self.keys.shape[1]

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        return self.keys.nbytes + self.values.nbytes


class Reading:
    """A prompt being read: call `advance` until it returns the snapshot."""

    def __init__(self, model: LanguageModel, voice: Voice, prompt: PromptRows) -> None:
        self._model = model
        embedded = voice.embeddings.to(model.device, model.dtype)
        self._input = torch.cat([embedded, model.embed(prompt.rows.to(model.device))])
        self._prompt = prompt
        sizes = model.sizes
        if self._input.shape[0] >= sizes.context:
            raise CheckpointRejected(
                f"voice {voice.name} and persona take {self._input.shape[0]} positions; the window has {sizes.context}"
            )
        shape = (sizes.layers, self._input.shape[0], sizes.heads, sizes.head_dim)
        self._keys = torch.empty(shape, device=model.device, dtype=model.dtype)
        self._values = torch.empty_like(self._keys)
        self._read = 0

    @property
    def positions(self) -> int:
        """Positions of the whole prompt."""
        return self._input.shape[0]

    def advance(self, positions: int = CHUNK) -> Snapshot | None:
        """Read at most so many more positions; the snapshot once all are read."""
        chunk = self._input[self._read : self._read + positions]
        hidden = self._model.extend(chunk, self._read, self._keys, self._values)
        self._read += chunk.shape[0]
        if self._read < self.positions:
            return None
        device = self._model.device
        return Snapshot(
            keys=self._keys,
            values=self._values,
            hidden=hidden[-1],
            tail=self._prompt.tail[1 : 1 + CODEBOOKS].to(device),
            user_tail=self._prompt.user_tail.to(device),
        )


class Snapshots:
    """The newest snapshots that fit into `budget_bytes`; the one used longest ago goes first. Pinned ones stay."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._kept: OrderedDict[Hashable, Snapshot] = OrderedDict()
        self._pinned: set[Hashable] = set()

    def get(self, key: Hashable) -> Snapshot | None:
        """The snapshot of this key, if it is still there."""
        snapshot = self._kept.get(key)
        if snapshot is not None:
            self._kept.move_to_end(key)
        return snapshot

    def put(self, key: Hashable, snapshot: Snapshot, *, pinned: bool = False) -> None:
        """Keep it; others go until all fit."""
        self._kept[key] = snapshot
        self._kept.move_to_end(key)
        if pinned:
            self._pinned.add(key)
        for old in [old for old in self._kept if old not in self._pinned and old != key]:
            if self.nbytes <= self._budget:
                break
            del self._kept[old]

    @property
    def nbytes(self) -> int:
        """Memory all of them take."""
        return sum(snapshot.nbytes for snapshot in self._kept.values())

    def __len__(self) -> int:
        return len(self._kept)
