"""The whole server on a real port, in this process, and callers on real sockets who can be as rude as they like."""

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import trio
from server_rig import DUPLEX, Caller

from duplex_engine.config import EngineConfig, Limits, SessionLimits
from duplex_engine.engine import Engine, open_engine
from duplex_engine.server.app import serve
from duplex_engine.server.metrics import Metrics
from duplex_engine.server.settings import ServeConfig

PATIENCE_S = 60


@attrs.define
class House:
    """A running server. `port`: where."""

    engine: Engine
    metrics: Metrics
    port: int

    async def connect(self) -> Caller:
        """A caller on a socket, who has said nothing yet."""
        return Caller(await trio.open_tcp_stream("127.0.0.1", self.port))

    async def call(self, path: str = DUPLEX, **upgrade: Any) -> Caller:
        """A caller behind a successful upgrade."""
        caller = await self.connect()
        status, _ = await caller.upgrade(path, **upgrade)
        assert status.startswith("HTTP/1.1 101"), status
        return caller

    @property
    def seats(self) -> int:
        """Seats taken."""
        return self.engine.snapshot().seats_taken

    def figure(self, name: str) -> float:
        """The value of a series without labels."""
        page = self.metrics.exposition(self.engine).decode()
        (line,) = (line for line in page.splitlines() if line.startswith(f"duplex_engine_{name} "))
        return float(line.split()[-1])

    @property
    def connections(self) -> int:
        """Connections open."""
        (family,) = self.metrics.connections.collect()
        return int(family.samples[0].value)

    async def settles(self, callers: int = 0) -> None:
        """Return once so many callers are left. The test's patience ends the wait."""
        while self.seats != callers or self.connections != callers:
            await trio.lowlevel.checkpoint()


def resets(caller: Caller) -> None:
    """Drop the connection without a goodbye of any kind."""
    caller.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    caller.stream.socket.close()


@asynccontextmanager
async def house(
    plugin: Any, *, max_sessions: int = 10, session: SessionLimits | None = None, **settings: Any
) -> AsyncIterator[House]:
    """A server for the block, on a free port."""
    metrics = Metrics()
    config = EngineConfig(plugin="", limits=Limits(max_sessions=max_sessions, session=session or SessionLimits()))
    with trio.fail_after(PATIENCE_S):
        async with open_engine(config, plugin=plugin, observers=(metrics.observe,)) as engine:
            async with trio.open_nursery() as nursery:
                serving = partial(serve, engine, ServeConfig(port=0, **settings), metrics=metrics, signals=())
                (url,) = await nursery.start(serving)
                yield House(engine, metrics, int(url.rpartition(":")[2]))
                nursery.cancel_scope.cancel(reason="the test is over")
