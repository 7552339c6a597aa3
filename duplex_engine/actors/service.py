"""A service: the workers of one plugin, kept running, warmed up, and ready or not.

Owns supervision of workers and readiness. Workers are restarted one by one; one that exceeds its budget takes the
service, and the engine, down. Never touches a session: epochs borrow slots through `lease`.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

import numpy as np
import structlog
import trio

from duplex_engine.actors.epoch import Epoch, Lender
from duplex_engine.actors.floor import MuteFloor
from duplex_engine.actors.host import Host
from duplex_engine.actors.lease import WorkerLease
from duplex_engine.actors.observations import Observe
from duplex_engine.actors.supervisor import RestartBudget, contain, keep_running
from duplex_engine.actors.worker import Worker
from duplex_engine.audio.intake import UnitIntake
from duplex_engine.config import SessionLimits
from duplex_engine.conversation.effects import Turn, Utterance
from duplex_engine.errors import LeaseLost, ServiceFailed
from duplex_engine.model_plugins.contract import EpochCause, HostKind, ModelPlugin, SessionPlan

log = structlog.get_logger()

WARM_UP_LIMIT_S = 120.0
REHEARSED_UNITS = 5


class Service:
    """The workers of one plugin. `ready` while all of them are loaded and the plugin has been rehearsed on them."""

    def __init__(
        self,
        plugin: ModelPlugin,
        max_sessions: int,
        hosts: Mapping[HostKind, Host],
        limits: SessionLimits,
        observe: Observe,
    ) -> None:
        self._plugin = plugin
        self._limits = limits
        self._changed = trio.lowlevel.ParkingLot()
        self._workers = {
            spec.name: Worker(spec, hosts[spec.host], observe, self._changed.unpark_all)
            for spec in plugin.workers(max_sessions)
        }
        self._rehearsed = False

    @property
    def workers(self) -> Mapping[str, Worker]:
        """By name."""
        return self._workers

    @property
    def ready(self) -> bool:
        """Whether sessions can be served now."""
        return self._rehearsed and self._loaded

    async def wait_ready(self) -> None:
        """Return once the service is ready."""
        while not self.ready:
            await self._changed.park()

    def lease(
        self, worker: str, specification: dict[str, object], timeout_s: float
    ) -> AbstractAsyncContextManager[WorkerLease]:
        """A slot of the named worker for the block. Raises LeaseLost when none comes in time, or there is no such one."""
        if worker not in self._workers:
            raise LeaseLost(worker, f"the plugin declares no such worker; it has {sorted(self._workers)}")
        return self._workers[worker].lease(specification, timeout_s)

    async def run(self) -> None:
        """Keep all workers running, and warm; raises ServiceFailed when one cannot be, or the first rehearsal fails."""
        async with trio.open_nursery() as nursery:
            for worker in self._workers.values():
                nursery.start_soon(
                    keep_running,
                    f"worker {worker.spec.name!r}",
                    worker.run,
                    RestartBudget(),
                    partial(_log_crash, worker),
                )
            await self._until(loaded=True)
            failure = await contain(self._rehearse)
            if failure is not None:
                raise ServiceFailed(f"the rehearsal of {self._plugin.name!r} failed: {failure}") from failure
            while True:
                self._rehearsed = True
                self._changed.unpark_all()
                await self._until(loaded=False)
                self._rehearsed = False
                await self._until(loaded=True)
                await self._rehearse_if_idle()

    @property
    def _loaded(self) -> bool:
        return all(worker.ready for worker in self._workers.values())

    async def _until(self, *, loaded: bool) -> None:
        while self._loaded != loaded:
            await self._changed.park()

    async def _rehearse_if_idle(self) -> None:
        """After a restart. Sessions that took slots at once are a rehearsal themselves, and need not wait for ours."""
        await trio.lowlevel.checkpoint()
        if all(worker.free_slots == worker.spec.slots for worker in self._workers.values()):
            failure = await contain(self._rehearse)
            if failure is not None:
                log.warning("rehearsal_failed", plugin=self._plugin.name, exc_info=failure)

    async def _rehearse(self) -> None:
        with trio.move_on_after(WARM_UP_LIMIT_S) as patience:
            await self._plugin.warm_up(MuteRehearsal(self, self._plugin, self._limits))
        if patience.cancelled_caught:
            log.warning("warm_up_timed_out", seconds=WARM_UP_LIMIT_S)


class MuteRehearsal:
    """Warm-up through the production path: a real epoch on a floor that nobody hears."""

    def __init__(self, lender: Lender, plugin: ModelPlugin, limits: SessionLimits) -> None:
        self._lender = lender
        self._unit_format = plugin.unit_format()
        self._native = plugin.capabilities(None).native
        self._limits = limits

    @asynccontextmanager
    async def epoch(self, plan: SessionPlan, memory: object) -> AsyncIterator[Epoch]:
        """A rehearsal epoch for the block."""
        unit_format = self._unit_format
        intake = UnitIntake(unit_format.samples)
        intake.push(np.zeros(REHEARSED_UNITS * unit_format.samples, np.float32))
        floor = MuteFloor(unit_format, self._limits, intake, self._native)
        epoch = Epoch(floor, self._lender, plan, memory, EpochCause.OPENED)
        floor.on_unit = lambda: epoch.scope.cancel(reason="rehearsed") if intake.pending_samples == 0 else None
        silence = Utterance(chunks=[np.zeros(unit_format.rate_hz // 2, np.float32)], over=True)
        epoch.offer(Turn(utterance=silence, item_id=None, history=()))
        with epoch.scope:
            yield epoch


def _log_crash(worker: Worker, error: Exception) -> None:
    log.error("worker_crashed", worker=worker.spec.name, exc_info=error)
