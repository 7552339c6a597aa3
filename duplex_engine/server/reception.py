"""What all connections of one server share: the engine they talk to, the settings, the figures, and the server's mood.

Owns the count of open connections and the two moods: warm once the engine has been ready, leaving once it was told to
stop. Never talks to a client.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import attrs
import trio

from duplex_engine.engine import Engine
from duplex_engine.server.metrics import Metrics
from duplex_engine.server.settings import ServeConfig


def _now_unix_s() -> int:
    return int(datetime.now(UTC).timestamp())


@attrs.define(eq=False)
class Reception:
    """One server's front. `stop`: set it to have the server drain and end. `opened_at`: Unix seconds, a mere label."""

    engine: Engine
    config: ServeConfig
    metrics: Metrics
    stop: trio.Event = attrs.Factory(trio.Event)
    warm: bool = False
    connections: int = 0
    opened_at: int = attrs.Factory(_now_unix_s)

    @property
    def leaving(self) -> bool:
        """Whether the server was told to stop."""
        return self.stop.is_set()

    @property
    def full(self) -> bool:
        """Whether one more connection would be too many."""
        return self.connections >= self.config.max_connections

    @property
    def why_not_ready(self) -> str | None:
        """Why no session can be opened now; None when one can."""
        now = self.engine.snapshot()
        if self.leaving or now.draining:
            return "shutting down"
        if now.ready:
            return None
        return "recovering" if self.warm else "warming up"

    @property
    def engine_died(self) -> bool:
        """Whether a cancellation of everything, now, means that the engine failed."""
        return not self.leaving and not self.engine.ready

    @contextmanager
    def visit(self) -> Iterator[None]:
        """Count a connection for the block."""
        self.connections += 1
        self.metrics.connections.inc()
        try:
            yield
        finally:
            self.connections -= 1
            self.metrics.connections.dec()

    async def watch_warmth(self) -> None:
        """Note when the engine has become ready for the first time."""
        await self.engine.wait_ready()
        self.warm = True
