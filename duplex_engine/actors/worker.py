"""A worker: one device program, its slots, and the loop gather, step, deliver.

Owns the pool of slots, the calls that are open, and what goes to the device. An answer is delivered to the call's own
channel; when nobody listens the send fails, is counted, and that is the whole defence against stale output. Never knows
sessions, epochs or responses.
"""

import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import attrs
import trio

from duplex_engine.actors.host import Host, HostedStepper
from duplex_engine.actors.lease import Call, WorkerLease
from duplex_engine.actors.observations import (
    LoadProgressed,
    Observe,
    OutputDropped,
    StepTimed,
    WorkerLost,
    WorkerStarted,
)
from duplex_engine.errors import LeaseLost
from duplex_engine.model_plugins.contract import Result, Work, WorkerSpec


@attrs.define(eq=False)
class _Shift:
    """One life of the device program: everything that a crash takes with it."""

    free: deque[int]
    leases: dict[int, WorkerLease] = attrs.Factory(dict)
    dirty: set[int] = attrs.Factory(set)
    open_calls: dict[int, Call] = attrs.Factory(dict)


class Worker:
    """Lets slots of one device program and runs its steps. Survives the program's crashes; leases do not."""

    def __init__(self, spec: WorkerSpec, host: Host, observe: Observe, changed: Callable[[], None]) -> None:
        self.spec = spec
        self._host = host
        self._observe = observe
        self._changed = changed
        self._shift: _Shift | None = None
        self._work_came = trio.lowlevel.ParkingLot()
        self._slot_freed = trio.lowlevel.ParkingLot()
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
        """A slot for the block. Raises LeaseLost when none comes free within `timeout_s`."""
        shift, lease = await self._let(specification, timeout_s)
        try:
            yield lease
        finally:
            lease.retired = True
            shift.dirty.add(lease.slot)
            self._work_came.unpark()

    async def _let(self, specification: Mapping[str, object], timeout_s: float) -> tuple[_Shift, WorkerLease]:
        await trio.lowlevel.checkpoint_if_cancelled()
        with trio.move_on_after(timeout_s):
            while self._shift is None or not self._shift.free:
                await self._slot_freed.park()
        shift = self._shift
        if shift is None or not shift.free:
            raise LeaseLost(self.spec.name, f"no slot came free within {timeout_s:g} s")
        slot = shift.free.popleft()
        lease = shift.leases[slot] = WorkerLease(self.spec.name, slot, specification, self._work_came.unpark)
        return shift, lease

    # --- the device's life --------------------------------------------------------------------------------------

    async def run(self) -> None:
        """One life of the device program; raises when it crashes or hangs. The service restarts it."""
        began = trio.current_time()
        async with self._host.open(self.spec, self._progress) as stepper:
            shift = self._shift = _Shift(deque(range(self.spec.slots)))
            self._slot_freed.unpark_all()
            self._changed()
            self._observe(WorkerStarted(self.spec.name, trio.current_time() - began))
            cause = "it was stopped"
            try:
                while True:
                    await self._step(stepper, shift)
            except Exception as error:
                cause = str(error) or type(error).__name__
                raise
            finally:
                self._shift = None
                self._observe(WorkerLost(self.spec.name, cause))
                _close_shop(shift, cause)

    def _progress(self, what: str, fraction: float) -> None:
        self._observe(LoadProgressed(self.spec.name, what, fraction))

    async def _step(self, stepper: HostedStepper, shift: _Shift) -> None:
        await self._wait_for_work(shift)
        work = self._gather(shift)
        began = trio.current_time()
        with trio.fail_after(self.spec.step_timeout_s):
            results = await stepper.step(work)
        self._observe(StepTimed(self.spec.name, trio.current_time() - began, len(work.items)))
        for result in results:
            self._deliver(shift, result)

    async def _wait_for_work(self, shift: _Shift) -> None:
        await trio.lowlevel.checkpoint()
        while not (shift.open_calls or shift.dirty or any(lease.queued for lease in shift.leases.values())):
            await self._work_came.park()
        if self.spec.gather_s and not shift.open_calls:
            await trio.sleep(self.spec.gather_s)

    def _gather(self, shift: _Shift) -> Work:
        resets = self._recycle(shift)
        drops = tuple(ticket for ticket, call in shift.open_calls.items() if call.abandoned)
        for ticket in drops:
            shift.open_calls.pop(ticket).answers.close()
        opens: list[tuple[int, Mapping[str, object]]] = []
        items: list[tuple[int, int, object]] = []
        for slot, lease in shift.leases.items():
            call = lease.take()
            if call is None:
                continue
            if not lease.opened:
                lease.opened = True
                opens.append((slot, lease.specification))
            call.ticket = next(self._tickets)
            shift.open_calls[call.ticket] = call
            items.append((slot, call.ticket, call.payload))
        return Work(resets=resets, drops=drops, opens=tuple(opens), items=tuple(items))

    def _recycle(self, shift: _Shift) -> tuple[int, ...]:
        """Retired slots: reset in this step, free again from now on (a reset comes before any new item of the slot)."""
        resets = []
        retired = sorted(shift.dirty)
        for slot in retired:
            lease = shift.leases.pop(slot)
            lease.lose("the lease's block has ended")
            if lease.opened:
                resets.append(slot)
            shift.free.append(slot)
        shift.dirty.clear()
        self._slot_freed.unpark(count=len(retired))
        return tuple(resets)

    def _deliver(self, shift: _Shift, result: Result) -> None:
        call = shift.open_calls.get(result.ticket)
        if call is None:
            self._observe(OutputDropped(self.spec.name))
            return
        try:
            call.answers.send_nowait(result.outcome)
        except (trio.BrokenResourceError, trio.WouldBlock):
            self._observe(OutputDropped(self.spec.name))
            return
        if result.last:
            del shift.open_calls[result.ticket]
            call.answers.close()


def _close_shop(shift: _Shift, cause: str) -> None:
    for lease in shift.leases.values():
        lease.lose(cause)
    for call in shift.open_calls.values():
        call.answers.close()
    shift.open_calls.clear()
