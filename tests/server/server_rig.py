"""An engine with a small real plugin, the server's connections in front of it, and callers on in-memory streams."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs
import numpy as np
import trio
import trio.testing
from transport_peer import CLOSE, PING, TEXT, Peer, frame

from duplex_engine.config import Limits, SessionLimits
from duplex_engine.conversation.effects import Turn
from duplex_engine.engine import Engine, open_engine
from duplex_engine.errors import ServiceFailed
from duplex_engine.model_plugins.behaviours import TurnBased
from duplex_engine.model_plugins.contract import Epoch, HostKind, Progress, Response, UnitFormat, WorkerSpec
from duplex_engine.protocol.capabilities import Capabilities, TurnPolicy
from duplex_engine.protocol.wire_json import b64encode
from duplex_engine.server.connection import receive_caller
from duplex_engine.server.metrics import Metrics
from duplex_engine.server.reception import Reception
from duplex_engine.server.settings import ServeConfig

DUPLEX = "/v1/realtime?duplex=1&autostart=0"
PIECE_S = 0.1
SPEECH = b64encode((np.sin(np.arange(16_000) * 0.2) * 12_000).astype("<i2").tobytes())
"""One second of loud PCM16 at 16 kHz."""


@attrs.define
class Talker(TurnBased):
    """Answers every turn with `pieces` pieces of sound of 0.1 s each, as fast as they are heard."""

    pieces: int = 5
    resume: bool = False
    name: str = "talker"

    def capabilities(self, max_sessions: int | None) -> Capabilities:
        return Capabilities(
            turn_policy=TurnPolicy.TURN,
            text_only_turns=True,
            resume=self.resume,
            chunk_period_ms=80,
            max_sessions=max_sessions or 10,
        )

    def unit_format(self) -> UnitFormat:
        return UnitFormat(rate_hz=16_000, samples=1280, output_rate_hz=24_000)

    async def answer(self, epoch: Epoch, turn: Turn, response: Response) -> None:
        for number in range(self.pieces):
            await response.audio(bytes(2 * int(PIECE_S * 24_000)), text=f"word{number} ")
            await trio.sleep(PIECE_S)


class NoWeights:
    """A stepper that cannot load, and knows that trying again is no use."""

    def load(self, progress: Progress) -> None:
        raise ServiceFailed("the weights are not on this machine; run: fetch-weights")


@attrs.define
class Hopeless(Talker):
    """A plugin whose worker has no weights."""

    def workers(self, max_sessions: int) -> Sequence[WorkerSpec]:
        return (WorkerSpec(name="voice", stepper="server_rig:NoWeights", host=HostKind.INLINE),)


class Caller(Peer):
    """A client of the realtime protocol, made of single steps."""

    async def say(self, kind: str, **fields: Any) -> None:
        await self.send(frame(TEXT, json.dumps({"type": kind, **fields}).encode()))

    async def open(self, session: dict[str, Any] | None = None) -> dict[str, Any]:
        """Open a session by `session.update`; returns `session.created`."""
        await self.say("session.update", session=session or {})
        created = await self.next_event()
        assert created["type"] == "session.created", created
        assert (await self.next_event())["type"] == "session.updated"
        return created

    async def next_event(self) -> dict[str, Any]:
        """The next event; pings are passed over, a close frame is a failure."""
        while True:
            opcode, payload = await self.next_frame()
            assert opcode != CLOSE, (int.from_bytes(payload[:2]), payload[2:])
            if opcode != PING:
                return json.loads(payload)

    async def hears(self, kind: str, *, errors: bool = False) -> dict[str, Any]:
        """Events up to the next one of this type, which is returned. `errors`: whether there may be any before it."""
        while (event := await self.next_event())["type"] != kind:
            assert errors or event["type"] != "error", event
        return event

    async def asks(self) -> dict[str, Any]:
        """Speak for a second and ask for an answer; returns `response.created`."""
        await self.say("input_audio_buffer.append", audio=SPEECH)
        await self.say("input_audio_buffer.commit", response_create=True)
        return await self.hears("response.created")

    async def farewell(self) -> tuple[int, str]:
        """Code and reason of the close frame that comes next, and the end of the stream behind it."""
        while True:
            opcode, payload = await self.next_frame()
            if opcode == CLOSE:
                await self.send(frame(CLOSE, payload[:2]))
                assert await self.at_end()
                return int.from_bytes(payload[:2]), payload[2:].decode()
            assert opcode == PING, payload


@attrs.define
class Rig:
    """A running server without a port."""

    engine: Engine
    reception: Reception
    metrics: Metrics
    _nursery: trio.Nursery

    def connect(self) -> Caller:
        """A caller whose server end is being received."""
        ours, theirs = trio.testing.memory_stream_pair()
        self.receive(theirs)
        return Caller(ours)

    def receive(self, stream: trio.abc.Stream) -> None:
        """Have this end of a connection served."""
        self._nursery.start_soon(receive_caller, self.reception, stream)

    async def call(self, path: str = DUPLEX, **upgrade: Any) -> Caller:
        """A caller behind a successful upgrade."""
        caller = self.connect()
        status, _ = await caller.upgrade(path, **upgrade)
        assert status.startswith("HTTP/1.1 101"), status
        return caller

    def end_connections(self) -> None:
        """What the server does when the time for last words is up."""
        self._nursery.cancel_scope.cancel()

    @property
    def seats(self) -> int:
        return self.engine.snapshot().seats_taken

    async def settles(self) -> None:
        """Wait until nothing moves, without letting time pass."""
        await trio.testing.wait_all_tasks_blocked()


@asynccontextmanager
async def rigged(
    plugin: Any = None, *, max_sessions: int = 10, session: SessionLimits | None = None, **settings: Any
) -> AsyncIterator[Rig]:
    """A rig for the block; what its connections left behind is cancelled at the end."""
    metrics = Metrics()
    limits = Limits(max_sessions=max_sessions, session=session or SessionLimits())
    config = ServeConfig(plugin="", limits=limits, **settings)
    async with open_engine(config.engine, plugin=plugin or Talker(), observers=(metrics.observe,)) as engine:
        reception = Reception(engine, config, metrics, warm=True)
        async with trio.open_nursery() as nursery:
            connections = await nursery.start(_hold_connections)
            yield Rig(engine, reception, metrics, connections)
            connections.cancel_scope.cancel()


async def _hold_connections(*, task_status: trio.TaskStatus[trio.Nursery]) -> None:
    async with trio.open_nursery() as connections:
        task_status.started(connections)
        await trio.sleep_forever()
