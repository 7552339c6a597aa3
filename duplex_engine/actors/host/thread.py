"""The thread host: one step at a time in a thread of its own. For development on a CPU without child processes.

A step cannot be interrupted: leaving the host waits for the step that runs.
"""

import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from queue import SimpleQueue
from typing import TypeVar, cast

import outcome
import trio

from duplex_engine.actors.host import HostedStepper, ignore, refused
from duplex_engine.errors import DuplexError
from duplex_engine.model_plugins.contract import Progress, Result, Stepper, Work, WorkerSpec
from duplex_engine.model_plugins.registry import resolve

T = TypeVar("T")


class ThreadHost:
    """Runs each stepper in one dedicated thread (libraries may be bound to the thread that loaded them)."""

    @asynccontextmanager
    async def open(
        self, spec: WorkerSpec, progress: Progress, on_end: Callable[[], object] = ignore
    ) -> AsyncIterator[HostedStepper]:
        """Build and load in the thread. Raises ServiceFailed when the stepper says that it cannot be loaded here."""
        thread = _Thread(spec.name)
        try:
            try:
                stepper = await thread.do(lambda: _loaded(spec, partial(thread.tell, progress)))
            except DuplexError as refusal:
                raise refused(spec, refusal) from refusal
            try:
                yield _ThreadStepper(stepper, thread)
            finally:
                await thread.do(stepper.close)
        finally:
            thread.stop()


class _ThreadStepper:
    ended = False

    def __init__(self, stepper: Stepper, thread: "_Thread") -> None:
        self._stepper = stepper
        self._thread = thread

    async def step(self, work: Work) -> Sequence[Result]:
        await trio.lowlevel.checkpoint_if_cancelled()
        return await self._thread.do(lambda: tuple(self._stepper.step(work)))


class _Thread:
    """Does one thing after the other. Waiting for it cannot be cancelled."""

    def __init__(self, name: str) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._orders: SimpleQueue[tuple[Callable[[], object], trio.lowlevel.Task] | None] = SimpleQueue()
        # A daemon, so that a program that is torn down without leaving our block can still end.
        threading.Thread(target=self._live, name=f"worker {name}", daemon=True).start()

    async def do(self, order: Callable[[], T]) -> T:
        self._orders.put((order, trio.lowlevel.current_task()))
        return cast("T", await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED))

    def tell(self, progress: Progress, what: str, fraction: float) -> None:
        self._token.run_sync_soon(lambda: progress(what, fraction))

    def stop(self) -> None:
        self._orders.put(None)

    def _live(self) -> None:
        while (order := self._orders.get()) is not None:
            self._token.run_sync_soon(trio.lowlevel.reschedule, order[1], outcome.capture(order[0]))


def _loaded(spec: WorkerSpec, progress: Progress) -> Stepper:
    stepper = cast("type[Stepper]", resolve(spec.stepper))(**spec.arguments)
    stepper.load(progress)
    return stepper
