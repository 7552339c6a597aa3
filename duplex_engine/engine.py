"""The engine: services below, sessions above, in one block. What an embedding Trio program opens.

Owns the nursery order (sessions die before services) and the public way to a session. Needs no global state, installs no
signal handlers. Never speaks WebSocket: that is `duplex_engine.server`.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

import attrs
import trio

from duplex_engine.actors.desk import Desk
from duplex_engine.actors.handle import SessionHandle
from duplex_engine.actors.host import Host
from duplex_engine.actors.host.inline import InlineHost
from duplex_engine.actors.host.process import ProcessHost
from duplex_engine.actors.host.thread import ThreadHost
from duplex_engine.actors.observations import Observation, Observe
from duplex_engine.actors.service import Service
from duplex_engine.actors.supervisor import sole_exception
from duplex_engine.config import EngineConfig
from duplex_engine.errors import ConfigRejected, SessionGone
from duplex_engine.model_plugins.contract import HostKind, ModelPlugin
from duplex_engine.model_plugins.registry import load_plugin
from duplex_engine.protocol.capabilities import Capabilities
from duplex_engine.protocol.commands import AppendAudio, ClientCommand, CommitAudio
from duplex_engine.protocol.events import ServerEvent
from duplex_engine.protocol.journal import Cursor
from duplex_engine.protocol.session_config import Profile, SessionConfig
from duplex_engine.protocol.session_parse import open_config

HOSTS: Mapping[HostKind, Host] = {
    HostKind.INLINE: InlineHost(),
    HostKind.THREAD: ThreadHost(),
    HostKind.PROCESS: ProcessHost(),
}


@attrs.frozen(kw_only=True)
class WorkerSnapshot:
    """A worker at one instant."""

    ready: bool
    free_slots: int
    slots: int


@attrs.frozen(kw_only=True)
class EngineSnapshot:
    """Statistics of an engine at one instant."""

    ready: bool
    draining: bool
    seats_taken: int
    max_sessions: int
    workers: Mapping[str, WorkerSnapshot]


class EventStream:
    """A session's events in order. Iterate inside `async with`/`with`; ends when the session has ended."""

    def __init__(self, handle: SessionHandle, cursor: Cursor) -> None:
        self._handle = handle
        self._cursor = cursor
        self._ready: list[ServerEvent] = []

    @property
    def ready(self) -> bool:
        """Whether an event has been said and not been read, so that the next one comes without waiting."""
        return bool(self._ready) or self._cursor.place.next is not None

    @property
    def waiting_bytes(self) -> int:
        """Bytes of events, as JSON, that have been said since `events` was opened and not been taken."""
        return self._cursor.backlog[0]

    def __aiter__(self) -> "EventStream":
        return self

    async def __anext__(self) -> ServerEvent:
        if not self._ready:
            batch = await self._handle.follow(self._cursor)
            self._ready = [entry.event for entry in reversed(batch)]
        if not self._ready:
            raise StopAsyncIteration
        return self._ready.pop()


class EmbeddedSession:
    """A session in the hands of an embedding program: typed commands in, typed events out."""

    def __init__(self, handle: SessionHandle) -> None:
        self._handle = handle

    @property
    def id(self) -> str:
        """The session's id."""
        return self._handle.id

    @property
    def config(self) -> SessionConfig:
        """The effective configuration."""
        return self._handle.config

    def send(self, command: ClientCommand) -> None:
        """Give a command. Raises SessionGone."""
        self._handle.submit(command)

    def append(self, audio: bytes) -> None:
        """Append audio in the session's input format."""
        self.send(AppendAudio(audio=audio))

    def commit(self, *, response_create: bool = True) -> None:
        """End the user's turn and, by default, ask for an answer."""
        self.send(CommitAudio(response_create=response_create))

    @contextmanager
    def events(self) -> Iterator[EventStream]:
        """All events of the session from its first one on."""
        cursor = self._handle.cursor()
        try:
            yield EventStream(self._handle, cursor)
        finally:
            cursor.close()


class Engine:
    """A running engine. Opened by `open_engine`."""

    def __init__(
        self, config: EngineConfig, plugin: ModelPlugin, capabilities: Capabilities, service: Service, desk: Desk
    ) -> None:
        self.config = config
        self.plugin = plugin
        self.capabilities = capabilities
        self._service = service
        self._desk = desk

    @property
    def ready(self) -> bool:
        """Whether sessions can be opened now."""
        return self._service.ready and not self._desk.draining

    @property
    def model_name(self) -> str:
        """The name this engine serves its model under."""
        return self.config.model_name or self.plugin.name

    async def wait_ready(self) -> None:
        """Return once all workers are loaded and the plugin is warm."""
        await self._service.wait_ready()

    def configure(
        self, session: SessionConfig | Mapping[str, object] | None, *, profile: Profile = Profile.STRICT
    ) -> SessionConfig:
        """The effective configuration of a Realtime session object. Raises ConfigRejected."""
        if isinstance(session, SessionConfig):
            return session
        config = open_config(
            session or {},
            profile=profile,
            capabilities=self.capabilities,
            default_model=self.model_name,
            limits=self.config.limits.session,
        )
        if self.config.strict_model_names and config.model != self.model_name and profile is Profile.STRICT:
            raise ConfigRejected(
                "invalid_session_config", f"unknown model {config.model!r}; served: {self.model_name}", "model"
            )
        return config

    @asynccontextmanager
    async def open_session(
        self,
        session: SessionConfig | Mapping[str, object] | None = None,
        *,
        profile: Profile = Profile.STRICT,
        paced: bool = True,
    ) -> AsyncIterator[EmbeddedSession]:
        """A session for the block; once the block is left the session is over and its seat is free.

        `paced` False: answers come as fast as they are made, not at the speed of sound. Raises ConfigRejected,
        AdmissionRefused.
        """
        handle = await self._desk.open(self.configure(session, profile=profile), tethered=True, paced=paced)
        try:
            yield EmbeddedSession(handle)
        finally:
            handle.end("client_close")
            with trio.CancelScope(shield=True):  # takes no time: a session's end waits for nobody
                await handle.over.wait()

    async def start_session(
        self, session: SessionConfig | Mapping[str, object] | None = None, *, profile: Profile = Profile.STRICT
    ) -> SessionHandle:
        """A session that lives as long as somebody is attached to it (what the server uses)."""
        return await self._desk.open(self.configure(session, profile=profile))

    def find_session(self, session_id: str) -> SessionHandle:
        """A session that is alive, to take it over. Raises ResumeRefused (`session_resume_expired`, or no resume here)."""
        return self._desk.find(session_id)

    async def drain(self, grace_s: float) -> None:
        """Refuse newcomers, let sessions end by themselves for `grace_s`, end the rest; returns when none is left."""
        await self._desk.drain(grace_s)

    def snapshot(self) -> EngineSnapshot:
        """Statistics now."""
        return EngineSnapshot(
            ready=self.ready,
            draining=self._desk.draining,
            seats_taken=self._desk.seats_taken,
            max_sessions=self.capabilities.max_sessions,
            workers={
                name: WorkerSnapshot(ready=worker.ready, free_slots=worker.free_slots, slots=worker.spec.slots)
                for name, worker in self._service.workers.items()
            },
        )


@asynccontextmanager
async def open_engine(
    config: EngineConfig | None = None,
    *,
    plugin: ModelPlugin | None = None,
    observers: tuple[Observe, ...] = (),
    wait_ready: bool = True,
) -> AsyncIterator[Engine]:
    """An engine for the block: workers loaded and warm (unless `wait_ready` is false), sessions ended when it is left.

    Raises ConfigRejected for a plugin that does not exist or refuses its options, ServiceFailed when a worker cannot be
    kept running, and whatever the block raises; always a single exception.
    """
    config = config or EngineConfig()
    plugin = plugin or load_plugin(config.plugin, config.options)
    capabilities = plugin.capabilities(config.limits.max_sessions)

    def observe(observation: Observation) -> None:
        for observer in observers:
            observer(observation)

    service = Service(plugin, capabilities.max_sessions, HOSTS, config.limits.session, observe)
    try:
        async with trio.open_nursery() as services:
            services.start_soon(service.run)
            async with trio.open_nursery() as sessions:
                desk = Desk(
                    sessions, plugin, capabilities, service, config.limits.session, observe, lambda: service.ready
                )
                engine = Engine(config, plugin, capabilities, service, desk)
                if wait_ready:
                    await engine.wait_ready()
                yield engine
                await desk.drain(0)
            services.cancel_scope.cancel(reason="engine closed")
    except ExceptionGroup as group:
        raise sole_exception(group) from None


__all__ = ["EmbeddedSession", "Engine", "EngineSnapshot", "EventStream", "SessionGone", "open_engine"]
