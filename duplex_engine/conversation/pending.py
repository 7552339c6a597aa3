"""The user's turns between the first sound and the answer: the open one, and those committed and not yet answered.

Owns the sound that no answer has taken yet, and its bytes. Never says anything.
"""

from collections.abc import Sequence

import attrs
import numpy as np

from duplex_engine.audio.pcm import SILENCE, Samples
from duplex_engine.conversation.effects import Message, Turn, Utterance
from duplex_engine.conversation.items import Items
from duplex_engine.protocol.commands import ResponseOptions
from duplex_engine.protocol.sizes import TRANSCRIPT_CHARACTERS

SAMPLE_BYTES = 4


@attrs.define(eq=False, kw_only=True)
class OpenTurn:
    """The turn that the next commit will end. `item_id` is reserved for its item from the start.

    `buffered`: something came, if only silence. `speech`: some of what is kept is speech. `speaking`: speech_started
    was said and its stop was not. `overlaps`: the speech began during an answer that it has not interrupted.
    `after`: id of the item that was last when the speech began. `hints`: what the client says was said.
    """

    item_id: str
    utterance: Utterance = attrs.Factory(Utterance)
    samples: int = 0
    buffered: bool = False
    speech: bool = False
    speaking: bool = False
    overlaps: bool = False
    speech_ms: float = 0.0
    after: str | None = None
    hints: list[str] = attrs.Factory(list)

    def keep(self, samples: Samples) -> None:
        """The utterance grew."""
        if len(samples):
            self.utterance.chunks.append(samples)
            self.samples += len(samples)

    def hint(self, transcript: str | None) -> None:
        """The client knows what was said; saying the same again adds nothing, nor does saying more than was said."""
        room = TRANSCRIPT_CHARACTERS - len(self.transcript)
        if transcript and room > 0 and transcript not in self.hints[-1:]:
            self.hints.append(transcript[:room])

    @property
    def transcript(self) -> str:
        """All hints together."""
        return " ".join(self.hints)


@attrs.frozen(kw_only=True)
class CommittedTurn:
    """A turn that waits for its answer. `asked`: it is to be answered as soon as the model is free.

    `written`: its item has text as well, which the history keeps showing.
    """

    item_id: str
    utterance: Utterance
    transcript: str = ""
    asked: bool = False
    written: bool = False


class Pending:
    """Everything that the next answer will answer. `texts`: ids of user items without sound.

    `undelivered`: outputs of functions that a model that hears units has not taken.
    """

    def __init__(self) -> None:
        self.turns: list[CommittedTurn] = []
        self.texts: dict[str, None] = {}
        self.undelivered = 0

    @property
    def samples(self) -> int:
        """Samples of committed sound that wait."""
        return sum(turn.utterance.sample_count for turn in self.turns)

    @property
    def asked(self) -> bool:
        """Whether a waiting turn is to be answered as soon as the model is free."""
        return any(turn.asked for turn in self.turns)

    def wait(self) -> None:
        """The answer they would have followed did not complete: they wait to be asked for."""
        self.turns = [attrs.evolve(turn, asked=False) for turn in self.turns]

    def forget(self, item_id: str) -> Sequence[Utterance]:
        """The item left the conversation; returns the sound that goes with it."""
        self.texts.pop(item_id, None)
        gone = [turn.utterance for turn in self.turns if turn.item_id == item_id]
        self.turns = [turn for turn in self.turns if turn.item_id != item_id]
        return gone

    def drop_sound(self) -> Sequence[Utterance]:
        """Forget all committed sound; returns it."""
        gone, self.turns = [turn.utterance for turn in self.turns], []
        return gone

    def take(self, items: Items, options: ResponseOptions) -> Turn:
        """Everything that waits, as one turn for the model; nothing waits afterwards."""
        turns, self.turns = self.turns, []
        self.texts.clear()
        history = items.history(without={turn.item_id for turn in turns if not turn.written})
        return _merged(turns, history, options)


def _merged(turns: Sequence[CommittedTurn], history: Sequence[Message], options: ResponseOptions) -> Turn:
    if not turns:
        return Turn(utterance=None, item_id=None, history=history, options=options)
    utterance = turns[0].utterance
    if len(turns) > 1:
        utterance = Utterance(chunks=[turn.utterance.samples() for turn in turns], over=True)
    transcript = " ".join(turn.transcript for turn in turns if turn.transcript)
    return Turn(
        utterance=utterance,
        item_id=turns[-1].item_id,
        history=history,
        options=options,
        transcript=transcript or None,
    )


class Recent:
    """The last sound before speech was noticed: at most `capacity` samples, oldest first."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._chunks: list[Samples] = []
        self._count = 0

    def push(self, samples: Samples) -> None:
        """More sound that nobody called speech."""
        if len(samples):
            self._chunks.append(samples[-self._capacity :])
            self._count += len(self._chunks[-1])
        while self._chunks and self._count - len(self._chunks[0]) >= self._capacity:
            self._count -= len(self._chunks.pop(0))

    def take(self, count: int) -> Samples:
        """The newest `count` samples, or all there are up to the capacity; empty afterwards."""
        kept = np.concatenate(self._chunks) if self._chunks else SILENCE
        self._chunks, self._count = [], 0
        count = min(count, self._capacity)
        return kept[len(kept) - min(count, len(kept)) :]
