"""Leases and calls: the scoped use of a worker's slot, and one question on it.

Owns the caller's side of a worker: each call keeps its own answers, so an answer is addressed to the call and not
to the caller. Hang up the call and the address is gone. Never touches the device.
"""

from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Protocol

import trio
from outcome import Error, Value

from duplex_engine.errors import LeaseLost, StepFailed

Answer = Value[object] | Error

QUEUED_CALLS = 2
STREAM_ANSWERS = 1024
"""Answers of a stream that may wait for their caller; one that falls further behind loses the call."""

BLOCK_ENDED = "the lease's block has ended"


class Counter(Protocol):
    """The worker's side of a lease: where questions are put and where hanging up is noticed."""

    def asked(self, lease: "WorkerLease") -> None:
        """A question waits in `lease.queued`."""

    def hung_up(self, call: "Call") -> None:
        """Nobody waits for the answers of `call` any more."""


class Call:
    """One question: its payload and the address of its answers. Leaving its block hangs up.

    `ticket` is set when the question goes to the device.
    """

    def __init__(self, lease: "WorkerLease", payload: object, room: int) -> None:
        self.lease = lease
        self.payload = payload
        self.ticket: int | None = None
        self._room = room
        self._answers: deque[Answer] = deque()
        self._news = trio.lowlevel.ParkingLot()
        self._ended = False
        self._revoked = False
        self._failure: LeaseLost | StepFailed | None = None

    def __enter__(self) -> "Call":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.revoke()
        self.lease.hung_up(self)

    # --- for the caller -----------------------------------------------------------------------------------------

    async def answer(self) -> object:
        """The next answer. Raises trio.EndOfChannel after the last one, LeaseLost or StepFailed when there is none."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._answers:
            await trio.lowlevel.cancel_shielded_checkpoint()
        while not (self._answers or self._ended or self._revoked):
            await self._news.park()
        if self._revoked:
            raise LeaseLost(self.lease.worker, BLOCK_ENDED)
        if not self._answers:
            raise self._failure or trio.EndOfChannel
        answer = self._answers.popleft()
        if isinstance(answer, Error):
            cause = str(answer.error) or type(answer.error).__name__
            raise StepFailed(self.lease.worker, cause) from answer.error
        return answer.value

    def revoke(self) -> None:
        """The lease has ended around this call: nothing that was answered may be read any more."""
        self._revoked = True
        self._answers.clear()
        self._wake()

    # --- for the worker -----------------------------------------------------------------------------------------

    def put(self, answer: Answer, *, last: bool) -> bool:
        """Deliver an answer. False when its caller is too far behind to take it: the call has ended as failed then."""
        if len(self._answers) >= self._room:
            self.end(StepFailed(self.lease.worker, "its answers were not taken in time"))
            return False
        self._answers.append(answer)
        self._ended = self._ended or last
        self._wake()
        return True

    def end(self, failure: LeaseLost | StepFailed | None = None) -> None:
        """No further answer comes; with `failure` because something went wrong."""
        if not self._ended:
            self._ended = True
            self._failure = failure
            self._wake()

    def _wake(self) -> None:
        if self._news:
            self._news.unpark_all()


class WorkerLease:
    """The exclusive use of one slot. Leaving the block retires it, at once; the worker resets the slot later.

    `queued`: questions that have not gone to the device. `opened`: the device knows this lease.
    """

    def __init__(self, worker: str, slot: int, specification: Mapping[str, object], counter: Counter) -> None:
        self.worker = worker
        self.slot = slot
        self.specification = specification
        self.opened = False
        self.queued: deque[Call] = deque()
        self._counter = counter
        self._calls: dict[Call, None] = {}
        self._room = trio.lowlevel.ParkingLot()
        self._over: str | None = None

    # --- for the caller -----------------------------------------------------------------------------------------

    async def step(self, payload: object) -> object:
        """One question, one answer. Raises LeaseLost when the worker dies, StepFailed when this item failed."""
        with await self._ask(payload, room=1) as call:
            return await call.answer()

    @asynccontextmanager
    async def stream(self, payload: object) -> AsyncIterator["AnswerStream"]:
        """One question, many answers; leaving the block abandons the rest."""
        with await self._ask(payload, room=STREAM_ANSWERS) as call:
            yield AnswerStream(call)

    async def _ask(self, payload: object, room: int) -> Call:
        await trio.lowlevel.checkpoint_if_cancelled()
        while len(self.queued) >= QUEUED_CALLS and self._over is None:
            await self._room.park()
        if self._over is not None:
            raise LeaseLost(self.worker, self._over)
        call = Call(self, payload, room)
        self._calls[call] = None
        self.queued.append(call)
        self._counter.asked(self)
        return call

    def hung_up(self, call: Call) -> None:
        """The caller left the block of `call`."""
        if call not in self._calls:
            return
        del self._calls[call]
        if call.ticket is None:
            self.queued.remove(call)
            self._room.unpark()
        self._counter.hung_up(call)

    # --- for the worker -----------------------------------------------------------------------------------------

    def take(self) -> Call:
        """The question that has waited longest."""
        call = self.queued.popleft()
        if self._room:
            self._room.unpark()
        return call

    def retire(self) -> None:
        """The block has been left: calls that other tasks still hold are hung up, nothing more can be asked."""
        if self._over is None:
            self._over = BLOCK_ENDED
            for call in tuple(self._calls):
                call.revoke()
                self.hung_up(call)
            self._room.unpark_all()

    def lose(self, cause: str) -> None:
        """The worker is gone: everybody who waits on this lease learns it."""
        if self._over is None:
            self._over = cause
            for call in self._calls:
                call.end(LeaseLost(self.worker, cause))
            self._calls.clear()
            self.queued.clear()
            self._room.unpark_all()


class AnswerStream:
    """Answers of one streaming call, in order. Iterate; it stops after the last one."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def __aiter__(self) -> "AnswerStream":
        return self

    async def __anext__(self) -> object:
        try:
            return await self._call.answer()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None
