"""A draft: one answer in the making, from the user's sound to spoken clauses, in a scope of its own.

A draft may begin before the turn is committed, when the user pauses: if the user goes on it is thrown away, if the turn
is committed its answer takes it over. Owns the pipeline recognise, think, speak, and the bounded channel of finished
pieces. Never says anything to the client: pieces wait in the draft until an answer takes them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs
import trio

from duplex_engine.conversation.effects import Message, Samples
from duplex_engine.conversation.facts import Usage
from duplex_engine.errors import LeaseLost, StepFailed
from duplex_engine.model_plugins.cascade.clauses import ClauseSplitter
from duplex_engine.model_plugins.cascade.payloads import Completion, RecogniseAudio, Speak, SpokenClause, TextDelta
from duplex_engine.model_plugins.cascade.plan import CascadePlan
from duplex_engine.model_plugins.cascade.prompt import compose
from duplex_engine.model_plugins.contract import Epoch

PIECES_AHEAD = 2
CLAUSES_AHEAD = 4


@attrs.frozen
class Piece:
    """A finished part of an answer: its words and, when the session speaks, their sound (PCM16 mono)."""

    text: str
    pcm: bytes = b""


class Draft:
    """One answer in the making.

    `samples`: the user's sound (n,), None for a turn of text alone. `history` and `plan`: what it was begun with; an
    answer takes the draft over only while both still hold.
    """

    def __init__(self, epoch: Epoch, plan: CascadePlan, history: Sequence[Message], samples: Samples | None) -> None:
        self.plan = plan
        self.history = tuple(history)
        self.samples = samples
        self.usage = Usage()
        self.reason = "stop"
        self._epoch = epoch
        self._scope = trio.CancelScope()
        self._heard = trio.Event()
        self._words = ""
        self._failure: ExceptionGroup[Exception] | None = None
        self._sender, self._receiver = trio.open_memory_channel[Piece](PIECES_AHEAD)

    # --- for whoever owns the draft -----------------------------------------------------------------------------

    def discard(self) -> None:
        """Nobody wants this answer: stop making it."""
        self._receiver.close()
        self._scope.cancel(reason="draft discarded")

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Take the draft over for the block; leaving it ends the draft wherever it was."""
        try:
            yield
        finally:
            self.discard()

    async def transcript(self) -> str:
        """What the user said, "" when there was nothing to recognise. Raises LeaseLost or StepFailed in a group."""
        await self._heard.wait()
        self._raise_failure()
        return self._words

    async def next_piece(self) -> Piece | None:
        """The next finished part; None after the last. Raises LeaseLost or StepFailed in a group."""
        try:
            return await self._receiver.receive()
        except trio.EndOfChannel:
            self._raise_failure()
            return None

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    # --- the pipeline -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Make the answer; waits while enough pieces are ready and nobody takes them."""
        with self._scope, self._sender:
            try:
                await self._make()
            except* (LeaseLost, StepFailed) as failure:
                self._failure = failure
            finally:
                self._heard.set()

    async def _make(self) -> None:
        if self.samples is not None:
            self._words = await self._recognise(self.samples)
            self._heard.set()
            if not self._words:
                return
        sender, receiver = trio.open_memory_channel[str](CLAUSES_AHEAD)
        async with trio.open_nursery() as pipeline:
            pipeline.start_soon(self._think, sender)
            pipeline.start_soon(self._speak, receiver)

    async def _recognise(self, samples: Samples) -> str:
        async with self._epoch.lease("recogniser") as recogniser:
            words = await recogniser.step(RecogniseAudio(samples))
        assert isinstance(words, str)
        return words.strip()

    async def _think(self, clauses: trio.MemorySendChannel[str]) -> None:
        splitter = ClauseSplitter()
        prompt = compose(self.plan, self.history, self._words if self.samples is not None else None)
        with clauses:
            async with self._epoch.lease("language") as language, language.stream(prompt) as answers:
                async for answer in answers:
                    if isinstance(answer, TextDelta):
                        for clause in splitter.push(answer.text):
                            await clauses.send(clause)
                    elif isinstance(answer, Completion):
                        self._note_end(answer)
            # An answer that ran out of tokens ends with its last whole clause, not in the middle of a word.
            if self.reason != "length" or not splitter.begun:
                for clause in splitter.finish():
                    await clauses.send(clause)

    async def _speak(self, clauses: trio.MemoryReceiveChannel[str]) -> None:
        if not self.plan.speaks:
            async for clause in clauses:
                await self._sender.send(Piece(clause))
            return
        async with self._epoch.lease("voice") as voice:
            async for clause in clauses:
                spoken = await voice.step(Speak(clause, self.plan.speed))
                assert isinstance(spoken, SpokenClause)
                await self._sender.send(Piece(clause, spoken.pcm))

    def _note_end(self, completion: Completion) -> None:
        self.reason = completion.reason
        self.usage = Usage(
            input_text=completion.prompt_tokens,
            input_cached=completion.cached_tokens,
            output_text=completion.completion_tokens,
        )
