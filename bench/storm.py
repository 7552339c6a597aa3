"""A storm of cancels over real sockets: many callers at once who let nobody finish, at random moments and by every means.

    python bench/storm.py --sessions 100 --cancels 100

Starts its own server (scripted model) in another process. Checks of every caller's record what scenarios check on a
virtual clock: no event of a response after its terminal, none missing, none twice, all in order, labels and numbers
that grow; each sample heard is that session's own; and that seats and tasks are back afterwards. Prints a line each
second and a summary; exit status 1 on any violation.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import attrs
import trio
from served import Served, served
from wire import LeanSocket

from duplex_engine.config import Limits
from duplex_engine.errors import SessionGone
from duplex_engine.server.settings import ServeConfig
from duplex_engine.testing.caller import LAST_WORDS, Caller
from duplex_engine.testing.invariants import check_record
from duplex_engine.testing.marks import MarkReader
from duplex_engine.testing.storm import SCRIPTS, SESSIONS, Storm

CALL_S = 300.0
"""No call takes longer, or something hangs."""
TARGET = "/v1/realtime?duplex=1&autostart=0"


class SocketLine:
    """A line over a real socket, as callers want one."""

    def __init__(self, port: int, session: Mapping[str, object]) -> None:
        self._port = port
        self._session = session
        self._scope = trio.CancelScope()
        self._socket: LeanSocket | None = None

    async def send(self, *frames: bytes) -> None:
        """All in one write. Raises SessionGone when the server has hung up."""
        if self._socket is None:
            raise SessionGone("the line was hung up")
        try:
            await self._socket.send(*frames)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise SessionGone("the server closed the connection") from None

    async def listen(
        self, deliver: Callable[[bytes], None], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Open a session, and deliver every frame."""
        socket = await LeanSocket.connect("127.0.0.1", self._port, TARGET)
        try:
            with self._scope:
                await socket.send(json.dumps({"type": "session.update", "session": self._session}).encode())
                self._socket = socket
                for frame in await socket.receive():
                    deliver(frame)
                task_status.started()
                while True:
                    for frame in await socket.receive():
                        deliver(frame)
        except EOFError:
            pass
        finally:
            self._socket = None
            await trio.aclose_forcefully(socket)

    def stop_reading(self) -> None:
        """Not on this line."""
        raise NotImplementedError("a storm reads all the time")

    def read_on(self) -> None:
        """It never stopped."""

    def hang_up(self) -> None:
        """Drop the connection without a close frame."""
        self._scope.cancel(reason="the caller hung up")


@attrs.define
class Weather:
    """All callers of one run."""

    mode: str
    cancels: int
    storms: list[Storm] = attrs.Factory(list)
    gone: int = 0
    faults: list[str] = attrs.Factory(list)

    async def break_loose(self, port: int, sessions: int, rng: random.Random) -> None:
        """Everybody calls within a second, and each leaves when they have cut off enough."""
        async with trio.open_nursery() as watch:
            watch.start_soon(self._report)
            async with trio.open_nursery() as nursery:
                for number in range(sessions):
                    nursery.start_soon(self._call, port, number, random.Random(rng.random()))
            watch.cancel_scope.cancel(reason="the storm is over")

    async def _call(self, port: int, number: int, rng: random.Random) -> None:
        await trio.sleep(rng.random())
        session = SESSIONS[self.mode][number % len(SESSIONS[self.mode])]
        caller = Caller(f"caller{number}", SocketLine(port, session), marks=MarkReader())
        storm = Storm(caller, rng)
        self.storms.append(storm)
        with trio.move_on_after(CALL_S) as patience:
            try:
                async with trio.open_nursery() as nursery:
                    await nursery.start(caller.listens)
                    await storm.rages(self.cancels)
                    await storm.leaves()
                    nursery.cancel_scope.cancel(reason="the call is over")
                check_record(caller, timed=False)
            except* (AssertionError, SessionGone, RuntimeError, OSError) as group:
                self.faults += [f"{caller.name}: {str(error)[:1000] or error!r}" for error in group.exceptions]
        if patience.cancelled_caught:
            self.faults.append(f"{caller.name}: the call did not end within {CALL_S:g} s")
        self.gone += 1

    async def _report(self) -> None:
        began = trio.current_time()
        while True:
            await trio.sleep(1)
            cuts = sum(storm.cuts for storm in self.storms)
            callers = f"{len(self.storms) - self.gone} callers on the line, {self.gone} gone"
            seconds = trio.current_time() - began
            print(f"{seconds:4.0f} s  {callers}  {cuts} cancels  {len(self.faults)} faults", flush=True)


def main() -> None:
    """Let the storm loose and say what was seen; exit status 1 on any violation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=100, help="callers at once (default 100)")
    parser.add_argument("--cancels", type=int, default=100, help="attempts of each to cut an answer off (default 100)")
    parser.add_argument("--mode", choices=sorted(SCRIPTS), default="turn", help="who decides to answer (default turn)")
    parser.add_argument("--seed", type=int, default=None, help="repeat the choices of another run (default: a new one)")
    chosen = parser.parse_args()
    seed = random.randrange(1_000_000) if chosen.seed is None else chosen.seed
    print(f"seed {seed}, mode {chosen.mode}: {chosen.sessions} callers, {chosen.cancels} cancels each", flush=True)
    weather = Weather(chosen.mode, chosen.cancels)
    with served(server_config(chosen.mode, chosen.sessions)) as server:
        before, spent, began = at_rest(server), server.cpu_s(), time.monotonic()
        trio.run(weather.break_loose, server.port, chosen.sessions, random.Random(seed))
        took, spent = time.monotonic() - began, server.cpu_s() - spent
        left = at_rest(server)
        weather.faults += server.complaints()
    weather.faults += [
        f"{name}: {before[name]:.0f} before, {left[name]:.0f} after" for name in before if left[name] > before[name]
    ]
    report(weather, took, spent, seed)


def server_config(mode: str, sessions: int) -> ServeConfig:
    """A scripted model that is quick to answer, and paced where turns are."""
    options: dict[str, object] = {"mode": mode, "script": SCRIPTS[mode], "step_ms": 1}
    if mode == "turn":
        options["lead_s"] = 0.2
    return ServeConfig(
        plugin="scripted", options=options, port=0, log_level="error", limits=Limits(max_sessions=sessions + 8)
    )


def at_rest(server: Served) -> Mapping[str, float]:
    """Sessions, seats and tasks, once the server has sampled them after the last call."""
    time.sleep(1.0)
    metrics = server.metrics()
    return {name: metrics[f"duplex_engine_{name}"] for name in ("sessions", "seats_taken", "tasks")}


def told(weather: Weather) -> Iterator[tuple[str, int]]:
    """What was seen, counted."""
    callers = [storm.caller for storm in weather.storms]
    dones = [done for caller in callers for done in caller.all("response.done")]
    yield "cancels", sum(storm.cuts for storm in weather.storms)
    yield "responses", len(dones)
    yield from sorted(Counter(f"responses {done['status']}" for done in dones).items())
    cut = Counter(f"  by {done['reason']}" for done in dones if done["status"] == "cancelled")
    yield from sorted(cut.items())
    yield "events", sum(len(caller.heard) for caller in callers)
    yield "last words heard", sum(caller.heard[-1].type in LAST_WORDS for caller in callers if caller.heard)


def report(weather: Weather, took: float, spent: float, seed: int) -> None:
    """Figures, then faults."""
    for name, count in told(weather):
        print(f"{name}: {count}")
    for fault in weather.faults[:20]:
        print("FAULT", fault)
    callers = len(weather.storms)
    print(f"{callers} callers, {took:.1f} s, server CPU {spent:.1f} s, seed {seed}: {len(weather.faults)} faults")
    sys.exit(1 if weather.faults else 0)


if __name__ == "__main__":
    main()
