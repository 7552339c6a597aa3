"""The desk: seats, the nursery of sessions, draining.

Owns admission. A seat is taken without waiting or refused with a typed reason; the plugin's validation comes first.
Never reads a session's state.
"""

import math
import secrets
from collections.abc import Callable

import attrs
import trio

from duplex_engine.actors.epoch import Lender
from duplex_engine.actors.handle import SessionHandle
from duplex_engine.actors.observations import Observe, SeatRefused
from duplex_engine.actors.opening import Opening
from duplex_engine.actors.session import Session
from duplex_engine.config import SessionLimits
from duplex_engine.errors import AdmissionRefused, ResumeRefused
from duplex_engine.model_plugins.contract import ModelPlugin
from duplex_engine.protocol.capabilities import Capabilities
from duplex_engine.protocol.session_config import SessionConfig


class Desk:
    """Admits sessions up to `capabilities.max_sessions` and tells all of them when the house closes."""

    def __init__(
        self,
        nursery: trio.Nursery,
        plugin: ModelPlugin,
        capabilities: Capabilities,
        lender: Lender,
        limits: SessionLimits,
        observe: Observe,
        ready: Callable[[], bool],
    ) -> None:
        self._nursery = nursery
        self._plugin = plugin
        self._capabilities = capabilities
        self._lender = lender
        self._limits = limits
        self._observe = observe
        self._ready = ready
        self._sessions: dict[str, Session] = {}
        self._seats_taken = 0
        self._drain_at = math.inf
        self._left = trio.lowlevel.ParkingLot()

    @property
    def seats_taken(self) -> int:
        """Sessions opening, alive or closing."""
        return self._seats_taken

    @property
    def draining(self) -> bool:
        """Whether newcomers are refused for good."""
        return not math.isinf(self._drain_at)

    async def open(self, config: SessionConfig, *, tethered: bool = False, paced: bool = True) -> SessionHandle:
        """Seat a session. Raises ConfigRejected, or AdmissionRefused (`resource_exhausted`, `warming_up`, `draining`).

        `tethered`: its opener ends it; otherwise it ends when nobody is attached any more (after the grace). `paced`
        False: nobody listens at the speed of sound, answers are given as fast as they are made.
        A cancelled opener leaves nothing behind.
        """
        plan = self._plugin.plan(config)
        if not paced:
            plan = attrs.evolve(plan, lead_s=None)
        self._refuse_if_full()
        session = Session(
            Opening(
                id=f"duplex-{secrets.token_hex(16)}",
                config=config,
                plan=plan,
                plugin=self._plugin,
                capabilities=self._capabilities,
                lender=self._lender,
                limits=self._limits,
                observe=self._observe,
                release_seat=self._release_seat,
                tethered=tethered,
            )
        )
        self._seats_taken += 1
        self._sessions[session.id] = session
        await self._nursery.start(self._host, session)
        return SessionHandle(session)

    def find(self, session_id: str) -> SessionHandle:
        """A session that is alive, for a claim. Raises ResumeRefused."""
        if not self._capabilities.resume:
            raise ResumeRefused("unsupported_session_resume", "sessions of this model cannot be resumed; open another")
        session = self._sessions.get(session_id)
        if session is None or session.ending:
            raise ResumeRefused("session_resume_expired", "this session has ended, or never was; open another")
        return SessionHandle(session)

    async def _host(self, session: Session, *, task_status: trio.TaskStatus[None]) -> None:
        try:
            await session.run(task_status=task_status)
        finally:
            del self._sessions[session.id]
            self._left.unpark_all()

    def _refuse_if_full(self) -> None:
        refusal = self._refusal()
        if refusal is not None:
            self._observe(SeatRefused(refusal.code))
            raise refusal

    def _refusal(self) -> AdmissionRefused | None:
        limit = self._capabilities.max_sessions
        if self.draining:
            return AdmissionRefused("draining", "this server is shutting down and takes no new sessions")
        if not self._ready():
            return AdmissionRefused("warming_up", "the model is still loading; try again in a moment")
        if self._seats_taken >= limit:
            return AdmissionRefused("resource_exhausted", f"duplex_session_capacity_exhausted: limit={limit}")
        overload = self._plugin.overloaded()
        if overload is not None:
            return AdmissionRefused("resource_exhausted", overload)
        return None

    def _release_seat(self) -> None:
        self._seats_taken -= 1

    async def drain(self, grace_s: float) -> None:
        """Refuse newcomers, wait up to `grace_s` for sessions to end by themselves, end the rest; returns when all left.

        A later call may shorten the grace, never lengthen it.
        """
        self._drain_at = min(self._drain_at, trio.current_time() + grace_s)
        with trio.move_on_at(self._drain_at):
            await self._all_left()
        for session in tuple(self._sessions.values()):
            session.end("shutdown")
        await self._all_left()

    async def _all_left(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        while self._sessions:
            await self._left.park()
