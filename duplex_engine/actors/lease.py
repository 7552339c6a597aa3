"""Leases and calls: the scoped use of a worker's slot, and one question on it.

Owns the caller's side of a worker: each call has its own one-use channel, so an answer is addressed to the call and not
to the caller. Cancel the call and the address is gone. Never touches the device.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import attrs
import trio
from outcome import Error, Value

from duplex_engine.errors import LeaseLost, StepFailed

Answers = trio.MemoryReceiveChannel[Value[object] | Error]

QUEUED_CALLS = 2
STREAM_ANSWERS = 1024
"""Room for answers of a stream; its producer is bounded by its own token budget, so this is never reached."""


@attrs.define(eq=False)
class Call:
    """One question: its payload and the address of its answers. `ticket` is set when the question goes to the device."""

    payload: object
    answers: trio.MemorySendChannel[Value[object] | Error]
    ticket: int | None = None

    @property
    def abandoned(self) -> bool:
        """Whether nobody listens any more."""
        return self.answers.statistics().open_receive_channels == 0


class WorkerLease:
    """The exclusive use of one slot. Leaving the block retires it, at once; the worker resets the slot later."""

    def __init__(self, worker: str, slot: int, specification: Mapping[str, object], wake: Callable[[], None]) -> None:
        self.slot = slot
        self.specification = specification
        self.retired = False
        self.opened = False
        self.queued: deque[Call] = deque()
        self._worker = worker
        self._wake = wake
        self._room = trio.lowlevel.ParkingLot()
        self._lost: str | None = None

    # --- for the caller -----------------------------------------------------------------------------------------

    async def step(self, payload: object) -> object:
        """One question, one answer. Raises LeaseLost when the worker dies, StepFailed when this item failed."""
        with await self._ask(payload, capacity=1) as answers:
            try:
                return self._unwrap(await answers.receive())
            except trio.EndOfChannel:
                raise LeaseLost(self._worker, self._lost or "it gave no answer") from None

    @asynccontextmanager
    async def stream(self, payload: object) -> AsyncIterator["AnswerStream"]:
        """One question, many answers; leaving the block abandons the rest."""
        with await self._ask(payload, capacity=STREAM_ANSWERS) as answers:
            yield AnswerStream(answers, self._unwrap, self._refuse_if_lost)

    async def _ask(self, payload: object, capacity: int) -> Answers:
        await trio.lowlevel.checkpoint_if_cancelled()
        while len(self.queued) >= QUEUED_CALLS and self._lost is None:
            await self._room.park()
        self._refuse_if_over()
        sender, receiver = trio.open_memory_channel[Value[object] | Error](capacity)
        self.queued.append(Call(payload, sender))
        self._wake()
        return receiver

    def _refuse_if_over(self) -> None:
        self._refuse_if_lost()
        if self.retired:
            raise LeaseLost(self._worker, "the lease's block has ended")

    def _refuse_if_lost(self) -> None:
        if self._lost is not None:
            raise LeaseLost(self._worker, self._lost)

    def _unwrap(self, answer: Value[object] | Error) -> object:
        if isinstance(answer, Error):
            raise StepFailed(self._worker, str(answer.error) or type(answer.error).__name__) from answer.error
        return answer.value

    # --- for the worker -----------------------------------------------------------------------------------------

    def take(self) -> Call | None:
        """The next question somebody still waits for."""
        while self.queued:
            call = self.queued.popleft()
            self._room.unpark()
            if not call.abandoned:
                return call
            call.answers.close()
        return None

    def lose(self, cause: str) -> None:
        """The worker is gone: everybody who waits on this lease learns it."""
        self._lost = cause
        while self.queued:
            self.queued.popleft().answers.close()
        self._room.unpark_all()


class AnswerStream:
    """Answers of one streaming call, in order. Iterate; it stops after the last one."""

    def __init__(
        self, answers: Answers, unwrap: Callable[[Value[object] | Error], object], ended: Callable[[], None]
    ) -> None:
        self._answers = answers
        self._unwrap = unwrap
        self._ended = ended

    def __aiter__(self) -> "AnswerStream":
        return self

    async def __anext__(self) -> object:
        try:
            answer = await self._answers.receive()
        except trio.EndOfChannel:
            self._ended()
            raise StopAsyncIteration from None
        return self._unwrap(answer)
