"""A draft: one answer in the making, from the user's sound to spoken clauses, in a scope of its own.

A draft may begin before the turn is committed, when the user pauses: if the user goes on it is thrown away, if the turn
is committed its answer takes it over. Owns the pipeline recognise, think, speak, and the bounded channel of finished
pieces. Never says anything to the client: pieces wait in the draft until an answer takes them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs
import trio

from duplex_engine.audio.pcm import Samples
from duplex_engine.conversation.effects import Message
from duplex_engine.conversation.facts import Usage
from duplex_engine.errors import LeaseLost, StepFailed
from duplex_engine.model_plugins.cascade.calls import AnswerReader, BrokenCall, Call
from duplex_engine.model_plugins.cascade.payloads import Completion, RecogniseAudio, Speak, SpokenClause, TextDelta
from duplex_engine.model_plugins.cascade.plan import CascadePlan
from duplex_engine.model_plugins.cascade.prompt import compose
from duplex_engine.model_plugins.contract import Epoch

PIECES_AHEAD = 2
CLAUSES_AHEAD = 4


@attrs.frozen
class Piece:
    """A finished part of an answer: its words and, when the session speaks, their sound (PCM16 mono); or a call."""

    text: str
    pcm: bytes = b""
    call: Call | None = None


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
        """What the user said, "" when there was nothing to recognise. Raises what `next_piece` does."""
        await self._heard.wait()
        self._raise_failure()
        return self._words

    async def next_piece(self) -> Piece | None:
        """The next finished part; None after the last. Raises LeaseLost, StepFailed or BrokenCall in a group."""
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
            except* (LeaseLost, StepFailed, BrokenCall) as failure:
                self._failure = failure
            finally:
                self._heard.set()

    async def _make(self) -> None:
        if self.samples is not None:
            self._words = await self._recognise(self.samples)
            self._heard.set()
            if not self._words:
                return
        sender, receiver = trio.open_memory_channel[str | Call](CLAUSES_AHEAD)
        async with trio.open_nursery() as pipeline:
            pipeline.start_soon(self._think, sender)
            pipeline.start_soon(self._speak, receiver)

    async def _recognise(self, samples: Samples) -> str:
        async with self._epoch.lease("recogniser") as recogniser:
            words = await recogniser.step(RecogniseAudio(samples))
        assert isinstance(words, str)
        return words.strip()

    async def _think(self, parts: trio.MemorySendChannel[str | Call]) -> None:
        reader = AnswerReader([tool.name for tool in self.plan.tools.offered])
        prompt = compose(self.plan, self.history, self._words if self.samples is not None else None)
        with parts:
            async with self._epoch.lease("language") as language, language.stream(prompt) as answers:
                async for answer in answers:
                    if isinstance(answer, TextDelta):
                        for part in reader.push(answer.text):
                            await parts.send(part)
                        if reader.in_circles:
                            return
                    elif isinstance(answer, Completion):
                        self._note_end(answer)
            for part in reader.finish(cut_off=self.reason == "length"):
                await parts.send(part)

    async def _speak(self, parts: trio.MemoryReceiveChannel[str | Call]) -> None:
        if not self.plan.speaks:
            async for part in parts:
                await self._sender.send(Piece("", call=part) if isinstance(part, Call) else Piece(part))
            return
        async with self._epoch.lease("voice") as voice:
            async for part in parts:
                if isinstance(part, Call):
                    await self._sender.send(Piece("", call=part))
                    continue
                spoken = await voice.step(Speak(part, self.plan.speed))
                assert isinstance(spoken, SpokenClause)
                await self._sender.send(Piece(part, spoken.pcm))

    def _note_end(self, completion: Completion) -> None:
        self.reason = completion.reason
        self.usage = Usage(
            input_text=completion.prompt_tokens,
            input_cached=completion.cached_tokens,
            output_text=completion.completion_tokens,
        )
