"""Playing a script: natively, unit by unit, or turn by turn.

Owns what each statement does inside and outside an answer, and where a session is in its script. Every piece of sound
is a question to a worker. Never decides when a turn is over.

Across epochs a script goes on where it was: after a failure with what follows the failure, after an interruption of a
response with what follows the answer. An interruption of the epoch gives the model a fresh context: the script starts
again.
"""

import math
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, suppress

import attrs
import trio

from duplex_engine.conversation.effects import Turn
from duplex_engine.conversation.facts import FunctionCall
from duplex_engine.errors import CodedError, LeaseLost, StepFailed
from duplex_engine.model_plugins.contract import AudioUnit, Epoch, EpochCause, Lease, Response
from duplex_engine.model_plugins.scripted.options import ScriptedOptions, ScriptedPlan
from duplex_engine.model_plugins.scripted.script import (
    HANDOVERS,
    Await,
    Call,
    Crash,
    Fail,
    Hang,
    Hear,
    Listen,
    Script,
    Slow,
    Speak,
    Statement,
    Storyline,
    Wait,
    Yield,
)
from duplex_engine.model_plugins.scripted.speech import pieces
from duplex_engine.model_plugins.scripted.stepper import Dying, Flaw, Hanging, Voice
from duplex_engine.protocol.commands import ResponseOptions


class ScriptedFailure(CodedError):
    """The script told this answer to fail, with this code."""


@attrs.define(eq=False)
class Memory:
    """What a session keeps across epochs: its mark, its place in the script, how many answers it gave, its slowness.

    `context`: units of sound in the context of this epoch. `calls`: how many it made. `open_calls`: those without an
    output. `output`: the newest.
    """

    mark: int
    story: Storyline = attrs.Factory(lambda: Storyline(()))
    begun: bool = False
    answers: int = 0
    slowness: float = 0.0
    context: int = 0
    calls: int = 0
    open_calls: set[str] = attrs.Factory(set)
    output: str = ""

    def begin(self, script: Script, cause: EpochCause) -> None:
        """An epoch begins: a fresh context begins the script."""
        self.context = 0
        if not self.begun or cause is EpochCause.INTERRUPTED:
            self.begun, self.story = True, Storyline(script)
            self.open_calls.clear()

    def new_call(self, mark: int) -> str:
        """A name for one more call of the session with this mark."""
        self.calls += 1
        call_id = f"call_{mark}_{self.calls}"
        self.open_calls.add(call_id)
        return call_id

    def learn_outputs(self, outputs: Iterable[tuple[str | None, str]]) -> None:
        """What calls came to, as pairs of `call_id` and output; calls of an older context are over."""
        for call_id, output in outputs:
            if call_id in self.open_calls:
                self.open_calls.remove(call_id)
                self.output = output


@attrs.frozen(eq=False)
class _Answer:
    """An answer being given. `may_speak`: asked before each piece of sound; refused, the answer is over.

    `instructions`, `aloud`: what this answer was asked under.
    """

    lease: Lease
    response: Response
    number: int
    may_speak: Callable[[], Awaitable[bool]]
    instructions: str
    aloud: bool
    turn: Turn | None = None


class Stage:
    """One epoch of one session, in which its script is played."""

    def __init__(self, epoch: Epoch, options: ScriptedOptions) -> None:
        assert isinstance(epoch.plan, ScriptedPlan)
        assert isinstance(epoch.memory, Memory)
        self._epoch = epoch
        self._plan = epoch.plan
        self._memory = epoch.memory
        self._options = options
        self._answers_output = False  # the unit taken last brought what was awaited, and nobody has answered it
        self._mark = self._memory.mark if self._plan.mark is None else self._plan.mark

    # --- natively -----------------------------------------------------------------------------------------------

    async def play(self) -> None:
        """Play the script, then listen for ever."""
        while (statement := self._memory.story.take()) is not None:
            match statement:
                case Listen(count=units):
                    await self._listen(units)
                case Await():
                    await self._await_outputs()
                case Speak() | Call():
                    await self._answer_by_itself(statement)
                case Fail() | Hang() | Crash():
                    async with self._lease() as lease:
                        await self._go_wrong(statement, lease)
                case _:
                    await self._aside(statement, None)
        await self._listen(math.inf)

    async def _listen(self, units: float) -> None:
        heard = 0
        while heard < units:
            await self._next_unit()
            await self._epoch.listen()
            heard += 1

    async def _await_outputs(self) -> None:
        while self._memory.open_calls:
            await self._next_unit()
            self._answers_output = not self._memory.open_calls
            if not self._answers_output:
                await self._epoch.listen()

    async def _next_unit(self, *, continuing: bool = False) -> AudioUnit:
        unit = await self._epoch.next_unit(continuing=continuing)
        self._remember(1)
        self._memory.learn_outputs((output.call_id, output.output) for output in unit.function_outputs)
        return unit

    async def _answer_by_itself(self, first: Speak | Call) -> None:
        with suppress(ScriptedFailure, StepFailed):  # told to the client when the response ended; the context is sound
            try:
                async with self._lease() as lease:
                    while not self._answers_output and (await self._next_unit(continuing=True)).force_listen:
                        await self._epoch.listen()
                    self._answers_output = False
                    async with self._epoch.response() as response:
                        await self._go_on(first, self._begin(lease, response, lambda: self._take_unit(response)))
            finally:
                self._memory.story.skip_answer()

    async def _take_unit(self, response: Response) -> bool:
        unit = await self._next_unit(continuing=True)
        if unit.force_listen:
            response.yields()
        elif unit.last and self._options.obedient:
            response.yields("continuation_limit")
        else:
            return True
        return False

    async def _go_on(self, statement: Statement, answer: _Answer) -> None:
        while await self._perform(statement, answer):
            following = self._memory.story.peek()
            if following is None or isinstance(following, HANDOVERS):
                return
            self._memory.story.take()
            statement = following

    # --- turn by turn -------------------------------------------------------------------------------------------

    async def answer(self, turn: Turn, response: Response) -> None:
        """Play the next answer of the script: up to the next `speak`, and what belongs to it."""
        story = self._memory.story
        said_by_tools = (message for message in turn.history if message.role == "tool")
        self._memory.learn_outputs((message.call_id, message.text) for message in said_by_tools)
        try:
            await self._think()
            async with self._lease() as lease:
                answer = self._begin(lease, response, self._say_one_more, turn)
                self._remember(math.ceil(_samples(turn) / (self._options.input_rate_hz * self._options.unit_s)))
                spoken = False
                while (statement := story.peek()) is not None and not isinstance(statement, Listen | Await):
                    if spoken and isinstance(statement, Speak):
                        return
                    spoken = spoken or isinstance(statement, Speak)
                    story.take()
                    if not await self._perform(statement, answer):
                        return
        finally:
            story.skip_answer()

    async def _say_one_more(self) -> bool:
        self._remember(1)
        return True

    async def _think(self) -> None:
        story = self._memory.story
        while isinstance(pause := story.peek(), Listen | Await) and pause != Listen(math.inf):
            story.take()
            if isinstance(pause, Listen):
                await trio.sleep(pause.count)

    # --- the context --------------------------------------------------------------------------------------------

    def _remember(self, units: int) -> None:
        self._memory.context += units
        limit = self._options.context_units
        if limit is not None and self._memory.context >= limit:
            raise ScriptedFailure("context_length_exceeded", f"the conversation fills all {limit} units of the context")

    # --- statements ---------------------------------------------------------------------------------------------

    def _lease(self) -> AbstractAsyncContextManager[Lease]:
        return self._epoch.lease(self._plan.worker, mark=self._mark)

    def _begin(
        self, lease: Lease, response: Response, may_speak: Callable[[], Awaitable[bool]], turn: Turn | None = None
    ) -> _Answer:
        self._memory.answers += 1
        plan, chosen = response.plan, ResponseOptions() if turn is None else turn.options
        assert isinstance(plan, ScriptedPlan)
        return _Answer(
            lease=lease,
            response=response,
            number=self._memory.answers,
            may_speak=may_speak,
            instructions=plan.instructions if chosen.instructions is None else chosen.instructions,
            aloud=plan.speaks if chosen.modalities is None else "audio" in chosen.modalities,
            turn=turn,
        )

    async def _perform(self, statement: Statement, answer: _Answer) -> bool:
        """Play a statement of an answer; whether the answer goes on."""
        match statement:
            case Speak():
                return await self._speak(statement, answer)
            case Yield():
                answer.response.yields()
                return False
            case Call(name=name, arguments=arguments):
                await answer.response.call(FunctionCall(name, arguments, self._memory.new_call(self._mark)))
            case Fail() | Hang() | Crash():
                await self._go_wrong(statement, answer.lease)
            case _:
                await self._aside(statement, answer.turn)
        return True

    async def _speak(self, statement: Speak, answer: _Answer) -> bool:
        rate_hz = self._options.output_rate_hz
        size = round(rate_hz * self._options.unit_s)
        for piece in pieces(
            self._fill_in(statement.text, answer.instructions), round(rate_hz * statement.seconds), size
        ):
            if not await answer.may_speak():
                return False
            question = Voice(self._mark, answer.number, piece.start, piece.count, self._step_s())
            pcm = await answer.lease.step(question)
            assert isinstance(pcm, bytes)
            if answer.aloud:
                await answer.response.audio(pcm, text=piece.text)
            else:
                await answer.response.text(piece.text)
        return True

    def _step_s(self) -> float:
        return self._memory.slowness * self._options.unit_s or self._options.step_ms / 1000

    def _fill_in(self, text: str, instructions: str) -> str:
        if "{history}" in text:
            said = " | ".join(f"{message.role}: {message.text}" for message in self._epoch.history)
            text = text.replace("{history}", said)
        return text.replace("{instructions}", instructions).replace("{output}", self._memory.output)

    async def _aside(self, statement: Statement, turn: Turn | None) -> None:
        match statement:
            case Wait(seconds=seconds):
                await trio.sleep(seconds)
            case Hear(text=text):
                await self._epoch.heard(text, turn=turn)
            case Slow(factor=factor):
                self._memory.slowness = factor
            case Yield():
                await self._epoch.listen()

    async def _go_wrong(self, statement: Fail | Hang | Crash, lease: Lease) -> None:
        match statement:
            case Fail(message=message, code=None):
                await lease.step(Flaw(self._mark, message))
            case Fail(message=message, code=str(code)):
                raise ScriptedFailure(code, message)
            case Hang():
                await lease.step(Hanging(self._mark))
            case Crash(worker=None):
                await lease.step(Dying(self._mark))
            case Crash(worker=str(worker)) if worker == self._plan.worker:
                await lease.step(Dying(self._mark))
            case Crash(worker=str(worker)):
                with suppress(LeaseLost):
                    async with self._epoch.lease(worker, mark=self._mark) as other:
                        await other.step(Dying(self._mark))


def _samples(turn: Turn) -> int:
    return 0 if turn.utterance is None else turn.utterance.sample_count
