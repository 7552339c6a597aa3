"""Hosts: where a stepper runs. Threads and child processes live in this package alone.

A host opens a device program for a worker and steps it, one step in flight. `inline` simulates time on the run's clock,
`thread` uses one thread, `process` a child that can be killed.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from duplex_engine.errors import DuplexError, ServiceFailed
from duplex_engine.model_plugins.contract import Progress, Result, Work, WorkerSpec


def ignore() -> None:
    """For whoever does not want to know when a device program ends."""


class WorkerCrashed(DuplexError):
    """The device program raised, or its process ended."""


class HostedStepper(Protocol):
    """A loaded stepper, wherever it runs."""

    @property
    def ended(self) -> bool:
        """Whether the device program is gone; the next step says why."""

    async def step(self, work: Work) -> Sequence[Result]:
        """One step. Raises what the stepper raised, or WorkerCrashed. Cancelled, it leaves the host to be closed."""


class Host(Protocol):
    """Opens steppers."""

    def open(
        self, spec: WorkerSpec, progress: Progress, on_end: Callable[[], object] = ignore
    ) -> AbstractAsyncContextManager[HostedStepper]:
        """Load the stepper of `spec` for the block; leaving the block ends the device program for certain.

        `on_end` is called when the program ends by itself, also between steps. Raises ServiceFailed when loading raised
        DuplexError: the stepper says that trying again would not help.
        """


def refused(spec: WorkerSpec, why: object) -> ServiceFailed:
    """The stepper of `spec` cannot be loaded on this machine."""
    return ServiceFailed(f"worker {spec.name!r} cannot be loaded: {why}")
