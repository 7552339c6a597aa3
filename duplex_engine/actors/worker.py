"""A worker: one device program, its slots, and the loop gather, step, deliver.

Owns the life of the device program and the line of those who wait for a slot; the books are `shift.py`. An answer is
delivered to the call's own channel; when nobody listens it is counted and dropped, and that is the whole defence
against stale output. Never knows sessions, epochs or responses.
"""

import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from duplex_engine.actors.host import Host, HostedStepper, WorkerCrashed
from duplex_engine.actors.lease import WorkerLease
from duplex_engine.actors.observations import (
    LoadProgressed,
    Observe,
    OutputDropped,
    StepTimed,
    WorkerLost,
    WorkerStarted,
)
from duplex_engine.actors.shift import Shift
from duplex_engine.errors import LeaseLost
from duplex_engine.model_plugins.contract import Result, Work, WorkerSpec


class Worker:
    """Lets slots of one device program and runs its steps. Survives the program's crashes; leases do not.

    `changed` is called when the worker became ready, or is so no longer.
    """

    def __init__(self, spec: WorkerSpec, host: Host, observe: Observe, changed: Callable[[], object]) -> None:
        self.spec = spec
        self._host = host
        self._observe = observe
        self._changed = changed
        self._shift: Shift | None = None
        self._stirred = trio.lowlevel.ParkingLot()
        self._line = trio.StrictFIFOLock()
        self._tickets = itertools.count(1)

    @property
    def ready(self) -> bool:
        """Whether the device program is loaded and stepping."""
        return self._shift is not None

    @property
    def free_slots(self) -> int:
        """Slots that could be let now."""
        return 0 if self._shift is None else len(self._shift.free)

    # --- for epochs ---------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def lease(self, specification: Mapping[str, object], timeout_s: float) -> AsyncIterator[WorkerLease]:
        """A slot for the block; who came first is served first. Raises LeaseLost when none is free in `timeout_s`."""
        shift = await self._free_slot(timeout_s)
        lease = shift.lend(specification)
        try:
            yield lease
        finally:
            shift.retire(lease)

    async def _free_slot(self, timeout_s: float) -> Shift:
        with trio.move_on_after(timeout_s):
            async with self._line:
                while self._shift is None or not self._shift.free:
                    await self._stirred.park()
                return self._shift
        trouble = "it is not running" if self._shift is None else f"all {self.spec.slots} slots are in use"
        raise LeaseLost(self.spec.name, f"{trouble}; waited {timeout_s:g} s")

    # --- the device's life --------------------------------------------------------------------------------------

    async def run(self) -> None:
        """One life of the device program; raises when it crashes or hangs. The service restarts it."""
        began = trio.current_time()
        async with self._host.open(self.spec, self._progress, self._stirred.unpark_all) as stepper:
            shift = self._shift = Shift(self.spec.name, self.spec.slots, self._tickets, self._stirred.unpark_all)
            self._stirred.unpark_all()
            self._observe(WorkerStarted(self.spec.name, trio.current_time() - began))
            self._changed()
            cause = "it was stopped"
            try:
                while True:
                    await self._step(stepper, shift)
            except Exception as error:
                cause = str(error) or type(error).__name__
                raise
            finally:
                self._shift = None
                shift.close(cause)
                self._observe(WorkerLost(self.spec.name, cause))
                self._changed()

    def _progress(self, what: str, fraction: float) -> None:
        self._observe(LoadProgressed(self.spec.name, what, fraction))

    async def _step(self, stepper: HostedStepper, shift: Shift) -> None:
        await self._wait_for_work(stepper, shift)
        work = shift.gather()
        if work.resets:
            self._stirred.unpark_all()
        began = trio.current_time()
        results = await self._stepped(stepper, work, began + self.spec.step_timeout_s)
        self._observe(StepTimed(self.spec.name, trio.current_time() - began, len(work.items)))
        for result in results:
            if not shift.deliver(result):
                self._observe(OutputDropped(self.spec.name))

    async def _stepped(self, stepper: HostedStepper, work: Work, deadline: float) -> Sequence[Result]:
        with trio.CancelScope(deadline=deadline):
            return await stepper.step(work)
        limit = f"{self.spec.step_timeout_s:g} s"
        raise WorkerCrashed(f"worker {self.spec.name!r} did not finish a step within {limit}")

    async def _wait_for_work(self, stepper: HostedStepper, shift: Shift) -> None:
        if shift.has_work or stepper.ended:
            await trio.lowlevel.checkpoint()  # whoever has had an answer may ask again first
        while not (shift.has_work or stepper.ended):
            await self._stirred.park()
        if self.spec.gather_s and shift.asking and not shift.open_calls:
            with trio.move_on_after(self.spec.gather_s):
                while not shift.all_ask:
                    await self._stirred.park()
