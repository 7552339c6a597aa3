"""The epoch scope: one life of a model's context, and what a plugin may do in it.

Owns the offered turns, the responses alive, and the waiting for input. Everything in it ends with it; the input itself
belongs to the session and survives. Never numbers itself: the label on the wire is the conversation machine's.
"""

import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Protocol

import numpy as np
import trio

from duplex_engine.actors.floor import Floor
from duplex_engine.actors.response import Response
from duplex_engine.audio.cadence import Cadence
from duplex_engine.audio.pcm import SILENCE, Samples
from duplex_engine.conversation.effects import Message, Turn, Utterance
from duplex_engine.conversation.facts import (
    ContextRolled,
    FunctionOutput,
    ModelListened,
    OutputsTaken,
    ResponseStatus,
    UserHeard,
)
from duplex_engine.errors import EpochOver
from duplex_engine.model_plugins.contract import AudioUnit, EpochCause, Lease, ModelPlugin, SessionPlan


class Lender(Protocol):
    """Lets slots of workers by name."""

    def lease(
        self, worker: str, specification: dict[str, object], timeout_s: float
    ) -> AbstractAsyncContextManager[Lease]: ...


class Epoch:
    """One life of a model's context. `over` is set when everything in it has ended."""

    def __init__(self, floor: Floor, lender: Lender, plan: SessionPlan, memory: object, cause: EpochCause) -> None:
        self.plan: object = plan
        self.memory = memory
        self.cause = cause
        self.scope = trio.CancelScope()
        self.over = trio.Event()
        self._floor = floor
        self._lender = lender
        self._changed = trio.lowlevel.ParkingLot()
        self._offered: deque[tuple[Turn, Response]] = deque()
        self._alive: list[Response] = []
        self._utterance: Utterance | None = None
        self._cadence = Cadence(floor.unit_format.period_s)
        self._silent_units = 0
        self._running = False

    # --- for the session ----------------------------------------------------------------------------------------

    async def run(self, plugin: ModelPlugin) -> None:
        """Live once. Returns when the epoch was ended; raises what the plugin raised."""
        self._running = True
        try:
            with self.scope:
                await plugin.converse(self)
                raise EpochOver(f"{plugin.name}.converse returned; it has to run until it is cancelled")
        except Exception as error:
            self._withdraw_offers(partial(Response.failed, error=error))
            raise
        finally:
            self.over.set()
            self._withdraw_offers(Response.abandoned)

    def end(self, reason: str) -> Sequence[trio.Event]:
        """Order the epoch to be left; returns what is over when it is, which takes no time on the clock."""
        self.cut(reason)
        return (self.over,) if self._running else ()

    def cut(self, reason: str, status: ResponseStatus = ResponseStatus.CANCELLED) -> None:
        """Order the epoch to be left, for `end`, and for a session whose own scope is being left.

        An epoch that waits for its start after a failure only loses its offers: its context is fresh anyway.
        """
        self._cut_responses(reason, status)
        if self._running:
            self.scope.cancel(reason=reason)

    def interrupt(self, reason: str) -> Sequence[trio.Event]:
        """Order every answer to end, alive or still to come; the context survives. Returns what is over when they are."""
        return [response.over for response in self._cut_responses(reason)]

    def offer(self, turn: Turn) -> None:
        """Queue a turn for the plugin. A model that hears units hears it as such, and answers or listens."""
        self._offered.append((turn, Response(self._floor, turn, self.plan)))
        if self._floor.hears_units:
            self._play_in(SILENCE if turn.utterance is None else turn.utterance.samples())
        self._changed.unpark_all()

    def _play_in(self, samples: Samples) -> None:
        """The model listens up to the last unit of a turn; on that one it may begin to answer."""
        intake, size = self._floor.intake, self._floor.unit_format.samples
        intake.pad()
        last = max(len(samples) - 1, 0) // size * size
        intake.push(samples[:last], force_listen=True)
        intake.push(samples[last:] if len(samples) else np.zeros(size, np.float32))
        intake.pad()

    def overheard(self, utterance: Utterance) -> None:
        """The open turn changed."""
        self._utterance = utterance
        self._changed.unpark_all()

    def fed(self) -> None:
        """Input, or an output of a function, has arrived."""
        self._changed.unpark_all()

    def _cut_responses(self, reason: str, status: ResponseStatus = ResponseStatus.CANCELLED) -> Sequence[Response]:
        alive = tuple(self._alive)
        for response in alive:
            response.cut(reason, status)
        self._withdraw_offers(partial(Response.cut, reason=reason, status=status))
        return alive

    def _withdraw_offers(self, end: Callable[[Response], None]) -> None:
        offers, self._offered = self._offered, deque()  # what their last words bring about is offered anew
        if offers and self._floor.hears_units:
            self._floor.intake.clear()
        for _, response in offers:
            end(response)
            response.conclude()

    # --- for the plugin -----------------------------------------------------------------------------------------

    @property
    def history(self) -> Sequence[Message]:
        """The conversation so far: only what was really said and heard."""
        return self._floor.history()

    def lease(self, worker: str, /, **specification: object) -> AbstractAsyncContextManager[Lease]:
        """Borrow a slot of a worker for the block; waits for one. Raises LeaseLost when none comes in time."""
        return self._lender.lease(worker, specification, self._floor.limits.lease_timeout_s)

    async def next_turn(self) -> Turn:
        """The next committed turn that wants an answer. It stays offered until its response block is entered."""
        await self._check()
        while not self._offered:
            await self._changed.park()
        turn, _ = self._offered[0]
        await trio.lowlevel.cancel_shielded_checkpoint()
        return turn

    async def overhear(self) -> Utterance:
        """Wait until the user's open turn changes; then that turn."""
        await self._check()
        while self._utterance is None:
            await self._changed.park()
        utterance, self._utterance = self._utterance, None
        await trio.lowlevel.cancel_shielded_checkpoint()
        return utterance

    async def next_unit(self, *, continuing: bool = False) -> AudioUnit:
        """The next unit of input; with `continuing`, or for an output that waits, silence when none is there in time."""
        await self._check()
        unit = self._take_unit()
        if unit is not None:
            await trio.lowlevel.cancel_shielded_checkpoint()
            return unit
        while unit is None:
            wanted = continuing or self._floor.outputs
            due = self._silence_due() if wanted and self._may_go_on else math.inf
            unit = await self._unit_before(due) or (self._silence() if trio.current_time() >= due else None)
        return unit

    @property
    def _may_go_on(self) -> bool:
        """Whether silence stands in for input: always, unless the model may only speak when it is asked to."""
        return self._floor.native or bool(self._alive)

    async def _unit_before(self, due: float) -> AudioUnit | None:
        if math.isinf(due):
            await self._changed.park()
        else:
            with trio.CancelScope(deadline=due):
                await self._changed.park()
        return self._take_unit()

    def _take_unit(self) -> AudioUnit | None:
        intake = self._floor.intake
        samples = intake.unit()
        if samples is None:
            return None
        self._cadence.anchor(trio.current_time())
        self._silent_units = 0
        self._floor.input_taken()
        return AudioUnit(
            samples=samples,
            video_frames=intake.video_frames,
            force_listen=intake.force_listen,
            function_outputs=self._take_outputs(),
            behind=intake.pending_samples // intake.unit_samples,
        )

    def _take_outputs(self) -> Sequence[FunctionOutput]:
        outputs = tuple(self._floor.outputs)
        if outputs:
            self._floor.outputs.clear()
            self._floor.learn(OutputsTaken(len(outputs)))
        return outputs

    def _silence_due(self) -> float:
        if math.isinf(self._cadence.due):
            self._cadence.anchor(trio.current_time())
        return self._cadence.due if self._silent_units else self._cadence.due + self._floor.late_s

    def _silence(self) -> AudioUnit:
        limits = self._floor.limits
        bound = limits.silence_units_native if self._floor.native else limits.silence_units_turn
        self._cadence.step(trio.current_time())
        self._silent_units += 1
        if self._silent_units > bound:
            for response in tuple(self._alive):
                response.cut("continuation_limit", ResponseStatus.INCOMPLETE)
            self._silent_units = 0
        silence = np.zeros(self._floor.unit_format.samples, np.float32)
        last = self._silent_units >= bound
        return AudioUnit(samples=silence, silent=True, last=last, function_outputs=self._take_outputs())

    @asynccontextmanager
    async def response(self, turn: Turn | None = None) -> AsyncIterator[Response]:
        """Answer. Leaving the block ends the answer; an interruption leaves it early and execution goes on after it."""
        await self._check()
        response = self._enter(turn)
        if not self._floor.endless:
            response.scope.deadline = trio.current_time() + self._floor.limits.answer_s
        self._alive.append(response)
        self._silent_units = 0
        left_by_itself = False
        try:
            with response.scope:
                if not response.over.is_set():
                    response.opened()
                yield response
            left_by_itself = True
            if response.scope.cancelled_caught:
                response.overlong()
        except Exception as error:
            response.failed(error)
            raise
        finally:
            if not left_by_itself:
                response.abandoned()
            self._alive.remove(response)
            response.conclude()

    def _enter(self, turn: Turn | None) -> Response:
        if turn is None:
            asked = self._floor.hears_units and self._offered
            return self._offered.popleft()[1] if asked else Response(self._floor, plan=self.plan)
        for offer in self._offered:
            if offer[0] is turn:
                self._offered.remove(offer)
                return offer[1]
        return Response.withdrawn(self._floor, turn)

    async def listen(self, reason: str = "model_listen") -> None:
        """The model decided to listen on this unit."""
        await self._check()
        if self._offered and self._floor.hears_units and not self._floor.intake.pending_samples:
            _, response = self._offered.popleft()
            response.yields(reason)  # it has heard the turn to its end, and has nothing to say
            response.conclude()
        else:
            self._floor.learn(ModelListened(reason))
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def heard(self, text: str, *, turn: Turn | None = None, final: bool = True) -> None:
        """Words recognised in a user turn (None: the newest)."""
        await self._check()
        self._floor.learn(UserHeard(text, turn, final))
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def rolled(self) -> None:
        """The context has begun to forget its beginning: have the client told."""
        await self._check()
        self._floor.learn(ContextRolled())
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def _check(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.over.is_set():
            raise EpochOver("this epoch has ended")
