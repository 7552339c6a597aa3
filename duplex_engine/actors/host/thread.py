"""The thread host: one step at a time in a worker thread. For development on a CPU without child processes.

A step cannot be interrupted: leaving the host waits for the step that runs.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

import trio

from duplex_engine.actors.host import HostedStepper
from duplex_engine.model_plugins.contract import Progress, Result, Stepper, Work, WorkerSpec
from duplex_engine.model_plugins.registry import resolve


class ThreadHost:
    """Runs steppers in a thread of their own limiter, one step in flight."""

    @asynccontextmanager
    async def open(self, spec: WorkerSpec, progress: Progress) -> AsyncIterator[HostedStepper]:
        """Load in the thread."""
        limiter = trio.CapacityLimiter(1)
        stepper = cast("type[Stepper]", resolve(spec.stepper))(**spec.arguments)
        with trio.fail_after(spec.load_timeout_s):
            await trio.to_thread.run_sync(stepper.load, partial(trio.from_thread.run_sync, progress), limiter=limiter)
        try:
            yield _ThreadStepper(stepper, limiter)
        finally:
            stepper.close()


class _ThreadStepper:
    def __init__(self, stepper: Stepper, limiter: trio.CapacityLimiter) -> None:
        self._stepper = stepper
        self._limiter = limiter

    async def step(self, work: Work) -> Sequence[Result]:
        return await trio.to_thread.run_sync(lambda: tuple(self._stepper.step(work)), limiter=self._limiter)
