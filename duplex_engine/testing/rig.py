"""A rig: an engine on a plugin and callers on the line, in one block, checked when it is left.

Owns the opening and the final checks. What callers do is `caller.py`, what has to hold is `invariants.py`.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import trio

from duplex_engine.actors.handle import SessionHandle
from duplex_engine.actors.observations import Observation
from duplex_engine.config import EngineConfig, Limits, SessionLimits
from duplex_engine.engine import Engine, open_engine
from duplex_engine.model_plugins.contract import ModelPlugin
from duplex_engine.model_plugins.scripted.plugin import ScriptedPlugin
from duplex_engine.protocol.session_config import Profile
from duplex_engine.testing.caller import Caller
from duplex_engine.testing.invariants import check_record
from duplex_engine.testing.lines import LINE, Exchange
from duplex_engine.testing.marks import MarkReader
from duplex_engine.testing.timeline import Timeline

NATIVE = {"extra_body": {"auto_response": True}}
"""The session object of a session in which the model decides."""

GLANCE_S = 0.05
SETTLING_S = 60.0
"""How long workers may take to take their slots back."""


class Rig:
    """An engine under test, the callers it has had, and what they heard. Opened by `open_rig`."""

    def __init__(self, engine: Engine, exchange: Exchange, observed: list[Observation]) -> None:
        self.engine = engine
        self.observed = observed
        self.callers: list[Caller] = []
        self.began_at = trio.current_time()
        self._exchange = exchange

    @property
    def handles(self) -> list[SessionHandle]:
        """The sessions of all callers, oldest first, whose line is inside the process."""
        return self._exchange.handles

    @property
    def timeline(self) -> Timeline:
        """What all callers heard, and when."""
        return Timeline(self.began_at, self.callers)

    @asynccontextmanager
    async def caller(
        self,
        name: str | None = None,
        session: Mapping[str, object] | None = None,
        *,
        profile: Profile = Profile.STRICT,
        marks: bool = True,
    ) -> AsyncIterator[Caller]:
        """A caller for the block, with a session of its own; at the end of the block they say goodbye.

        `session`: the Realtime session object; None: a native session if the model is native. `marks`: check that all
        sound is this session's own (scripted plugin only). Raises ConfigRejected, AdmissionRefused.
        """
        if session is None and self.engine.capabilities.native:
            session = NATIVE
        line = await LINE.get()(self._exchange, session, profile)
        name = name or f"caller{len(self.callers) + 1}"
        reader = MarkReader() if marks and self.engine.plugin.name == "scripted" else None
        caller = Caller(name, line, marks=reader)
        self.callers.append(caller)
        async with trio.open_nursery() as nursery:
            await nursery.start(caller.listens)
            yield caller
            if not caller.ended and not caller.hung_up:
                caller.reads_on()
                await caller.closes()

    async def settles(self) -> None:
        """Wait until nobody is left, and every slot has been taken back. Raises AssertionError."""
        for _ in range(round(SETTLING_S / GLANCE_S)):
            if self._at_rest:
                break
            await trio.sleep(GLANCE_S)
        snapshot = self.engine.snapshot()
        assert snapshot.seats_taken == 0, f"{snapshot.seats_taken} seats are still taken"
        for name, worker in snapshot.workers.items():
            assert worker.ready, f"worker {name!r} did not come back"
            assert worker.free_slots == worker.slots, f"worker {name!r} misses slots: {worker}"
        for handle in self.handles:
            left = pending_input_bytes(handle)
            assert left == 0, f"I12: {left} bytes of input are still reserved after the end of {handle.id}"

    @property
    def _at_rest(self) -> bool:
        snapshot = self.engine.snapshot()
        return snapshot.seats_taken == 0 and all(
            worker.ready and worker.free_slots == worker.slots for worker in snapshot.workers.values()
        )

    def check(self) -> None:
        """Everything that has to hold of every record. Raises AssertionError."""
        lead_s = getattr(getattr(self.engine.plugin, "options", None), "lead_s", None)
        for caller in self.callers:
            check_record(caller, lead_s=lead_s)


def pending_input_bytes(handle: SessionHandle) -> int:
    """Input that a session holds and nobody has heard yet: in its mailbox, in its intake, in its open and kept turns."""
    session = handle._session
    return session._mailbox.pending_bytes + session.intake.pending_bytes + session._machine.pending_input_bytes


def open_rig(
    plugin: ModelPlugin | None = None,
    *,
    limits: SessionLimits | None = None,
    max_sessions: int | None = None,
    **options: object,
) -> AbstractAsyncContextManager[Rig]:
    """An engine for the block. When the block has ended in peace, the invariants are checked.

    `plugin`: the plugin under test; None: a scripted plugin with these `options`.
    """
    return _open_rig(
        plugin or ScriptedPlugin(**options), Limits(max_sessions=max_sessions, session=limits or SessionLimits())
    )


@asynccontextmanager
async def _open_rig(plugin: ModelPlugin, limits: Limits) -> AsyncIterator[Rig]:
    observed: list[Observation] = []
    async with open_engine(EngineConfig(limits=limits), plugin=plugin, observers=(observed.append,)) as engine:
        async with trio.open_nursery() as connections:
            rig = Rig(engine, Exchange(engine, connections), observed)
            yield rig
            await rig.settles()
            connections.cancel_scope.cancel(reason="the rig is closed")
    rig.check()
