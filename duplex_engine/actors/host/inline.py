"""The inline host: the stepper runs on the loop, and its time passes on the run's clock. For tests and simulations.

Owns the simulated duration of a step. Interruptible at any instant, like nothing real.
"""

import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import cast

import trio

from duplex_engine.actors.host import HostedStepper, ignore, refused
from duplex_engine.errors import DuplexError
from duplex_engine.model_plugins.contract import Progress, Result, TimedStepper, Work, WorkerSpec
from duplex_engine.model_plugins.registry import resolve


class InlineHost:
    """Runs steppers that simulate the time they take (TimedStepper)."""

    @asynccontextmanager
    async def open(
        self, spec: WorkerSpec, progress: Progress, on_end: Callable[[], object] = ignore
    ) -> AsyncIterator[HostedStepper]:
        """Load here and now. Raises ServiceFailed when the stepper says that it cannot be loaded here."""
        try:
            stepper = cast("type[TimedStepper]", resolve(spec.stepper))(**spec.arguments)
            stepper.load(progress)
        except DuplexError as refusal:
            raise refused(spec, refusal) from refusal
        try:
            yield _InlineStepper(stepper)
        finally:
            stepper.close()


class _InlineStepper:
    ended = False

    def __init__(self, stepper: TimedStepper) -> None:
        self._stepper = stepper

    async def step(self, work: Work) -> Sequence[Result]:
        seconds = self._stepper.duration_s(work)
        if math.isinf(seconds):
            await trio.sleep_forever()
        if seconds > 0:
            await trio.sleep(seconds)
        return tuple(self._stepper.step(work))
