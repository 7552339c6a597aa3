"""Clients who die at random moments, many at once: does the server get everything back?

    python bench/churn.py --cycles 10000

Starts its own server (scripted model) in another process. Each cycle brings one or two connections to a random moment
(half a request, half a frame, while the session opens, in the middle of an answer, while closing, while resuming or
taking over, ...) and lets them die in a random manner. Sessions of the strict profile can be resumed, so their seats
outlive their clients for the grace; those of `ga` cannot. Afterwards seats, sessions, tasks, connections, file
descriptors and threads have to be what they were at the start, and memory what it was after a warm-up, by when the heap
has found its size (dead sessions wait for the garbage collector); and the server has to hold a polite conversation
still. Prints a line each second and a summary; exit status 1 on any fault.
"""

import argparse
import base64
import json
import random
import socket
import struct
import sys
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import attrs
import trio
from served import Served, served
from wire import LeanSocket, masked, upgrade_request

from duplex_engine.config import Limits, SessionLimits
from duplex_engine.server.settings import ServeConfig

HOST = "127.0.0.1"
STRICT, GA = "/v1/realtime?duplex=1&autostart=0", "/v1/realtime?autostart=0"
GRACE_S, WRITE_S, SETTLING_S, CYCLE_S = 0.3, 2.0, 20.0, 30.0
SCRIPT = 'forever { speak "words that hardly anybody will hear" for 2; wait 0.2; speak "short" for 0.2 }'
RESUME_REFUSALS = {"invalid_resume_token", "session_resume_expired", "session_resume_conflict"}
SOUND = base64.b64encode(bytes(range(256)) * 40).decode()


def event(kind: str, **fields: object) -> bytes:
    """A frame's text."""
    return json.dumps({"type": kind, **fields}).encode()


OPEN = event("session.update", session={})
APPEND = event("input_audio_buffer.append", audio=SOUND)
WORDS = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "tell me everything"}]}
ASK = (APPEND, event("conversation.item.create", item=WORDS), event("response.create"))
CLOSE = event("session.close")


class Client:
    """One connection, and what it knows of its session."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.socket = LeanSocket(stream)
        self.session_id = self.token = ""
        self.seq = 0
        self._events: deque[dict[str, Any]] = deque()

    async def hears(self, *kinds: str) -> dict[str, Any]:
        """The next event of one of these kinds. Raises EOFError when the server hangs up."""
        while True:
            while self._events:
                heard = self._events.popleft()
                self.seq = heard.get("server_event_seq", self.seq)
                if heard["type"] in kinds:
                    return heard
            self._events.extend(map(json.loads, await self.socket.receive()))

    async def opens(self) -> None:
        """Open a session."""
        await self.socket.send(OPEN)
        created = await self.hears("session.created", "error")
        if created["type"] == "error":
            raise EOFError(created["error"]["code"])
        self.session_id, self.token = created["session"]["id"], created.get("resume_token", "")

    def claim(self) -> bytes:
        """The frame by which another connection takes this session over."""
        return event(
            "session.resume",
            session_id=self.session_id,
            resume_token=self.token,
            last_received_server_event_seq=self.seq,
        )


# --- how they die ------------------------------------------------------------------------------------------------


async def reset(stream: trio.SocketStream, rng: random.Random) -> None:
    """Like a machine that lost its power, and its peer finds out."""
    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def hang_up(stream: trio.SocketStream, rng: random.Random) -> None:
    """Close without a word."""


async def half_close(stream: trio.SocketStream, rng: random.Random) -> None:
    """Say nothing any more, but listen until the server has had enough."""
    await stream.send_eof()
    await drain(stream, 1.0)


async def close_politely(stream: trio.SocketStream, rng: random.Random) -> None:
    """Send a close frame and wait for the answer."""
    await stream.send_all(masked(b"\x03\xe8", opcode=8))
    await drain(stream, 1.0)


async def go_deaf(stream: trio.SocketStream, rng: random.Random) -> None:
    """Stop reading for a while, then go."""
    await trio.sleep(rng.uniform(0, 0.3))
    await reset(stream, rng)


async def drain(stream: trio.SocketStream, seconds: float) -> None:
    """Read until the server hangs up."""
    with trio.move_on_after(seconds):
        while await stream.receive_some(65536):
            pass


MANNERS = (reset, hang_up, half_close, close_politely, go_deaf)


# --- when they die -----------------------------------------------------------------------------------------------


@attrs.define
class Cycle:
    """One cycle: connections that are brought to a moment, and then die. `resumes` counts the answers to resuming."""

    port: int
    rng: random.Random
    deaths: Counter[str]
    resumes: Counter[str]
    clients: list[Client] = attrs.Factory(list)

    async def run(self, moment: str) -> None:
        """Live up to the moment, and die."""
        try:
            await MOMENTS[moment](self)
        finally:
            while self.clients:
                await self.die(self.clients.pop())

    async def die(self, client: Client) -> None:
        """In a random manner."""
        manner = self.rng.choice(MANNERS)
        self.deaths[manner.__name__] += 1
        stream = client.socket.stream
        try:
            await manner(stream, self.rng)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the server was quicker
        stream.socket.close()

    async def dials(self) -> Client:
        """A TCP connection."""
        client = Client(await trio.open_tcp_stream(HOST, self.port))
        self.clients.append(client)
        return client

    async def upgrades(self, target: str | None = None) -> Client:
        """A WebSocket."""
        client = await self.dials()
        await client.socket.upgrade(upgrade_request(HOST, self.port, target or self.rng.choice((STRICT, GA))))
        return client

    async def opens(self, target: str | None = None) -> Client:
        """A session."""
        client = await self.upgrades(target)
        await client.opens()
        return client

    async def asks(self, target: str | None = None) -> Client:
        """A session that owes an answer, or gives one."""
        client = await self.opens(target)
        await client.socket.send(*ASK)
        if self.rng.random() < 0.7:
            await client.hears("response.created")
            if self.rng.random() < 0.7:
                await client.hears("response.output_audio.delta")
        return client

    def part(self, data: bytes) -> bytes:
        """Some of it, never all."""
        return data[: self.rng.randrange(1, len(data))]

    # --- moments ----------------------------------------------------------------------------------------------

    async def connecting(self) -> None:
        await self.dials()

    async def half_a_request(self) -> None:
        client = await self.dials()
        await client.socket.stream.send_all(self.part(upgrade_request(HOST, self.port, STRICT)))

    async def upgraded(self) -> None:
        await self.upgrades()

    async def half_a_first_frame(self) -> None:
        client = await self.upgrades()
        await client.socket.stream.send_all(self.part(masked(OPEN)))

    async def opening(self) -> None:
        client = await self.dials()
        request = upgrade_request(HOST, self.port, self.rng.choice((STRICT, GA)))
        await client.socket.stream.send_all(request + masked(OPEN))
        await trio.sleep(self.rng.choice((0, 0.002, 0.02)))

    async def opened(self) -> None:
        await self.opens()

    async def half_an_append(self) -> None:
        client = await self.opens()
        await client.socket.stream.send_all(self.part(masked(APPEND)))

    async def asking(self) -> None:
        client = await self.opens()
        await client.socket.send(*ASK)

    async def answered(self) -> None:
        await self.asks()
        await trio.sleep(self.rng.uniform(0, 0.1))

    async def closing(self) -> None:
        client = await self.asks()
        await client.socket.send(CLOSE)

    async def closed(self) -> None:
        client = await self.asks()
        await client.socket.send(CLOSE)
        await client.hears("session.closed")

    async def half_a_close_frame(self) -> None:
        client = await self.asks()
        await client.socket.stream.send_all(self.part(masked(b"\x03\xe8", opcode=8)))

    async def resuming(self) -> None:
        claim = await self._claim(dead=True)
        client = await self.upgrades(STRICT)
        await client.socket.send(claim)

    async def resumed(self) -> None:
        await self._resumes(await self._claim(dead=True))

    async def taken_over(self) -> None:
        await self._resumes(await self._claim(dead=False))

    async def rivals(self) -> None:
        claim = await self._claim(dead=self.rng.random() < 0.5)
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(self._resumes, claim)

    async def _claim(self, *, dead: bool) -> bytes:
        client = await self.asks(STRICT)
        if dead:
            self.clients.remove(client)
            await self.die(client)
        return client.claim()

    async def _resumes(self, claim: bytes) -> None:
        client = await self.upgrades(STRICT)
        await client.socket.send(claim)
        answer = await client.hears("session.resumed", "session.resync_required", "error")
        code = answer["error"]["code"] if answer["type"] == "error" else answer["type"]
        assert code == "session.resumed" or code in RESUME_REFUSALS, f"a resume was answered with {answer}"
        self.resumes[code] += 1


MOMENTS: Mapping[str, Callable[[Cycle], Awaitable[None]]] = {
    moment.__name__: moment
    for moment in (
        Cycle.connecting,
        Cycle.half_a_request,
        Cycle.upgraded,
        Cycle.half_a_first_frame,
        Cycle.opening,
        Cycle.opened,
        Cycle.half_an_append,
        Cycle.asking,
        Cycle.answered,
        Cycle.closing,
        Cycle.closed,
        Cycle.half_a_close_frame,
        Cycle.resuming,
        Cycle.resumed,
        Cycle.taken_over,
        Cycle.rivals,
    )
}


# --- the crowd ---------------------------------------------------------------------------------------------------


@attrs.define
class Churn:
    """All cycles of a run."""

    server: Served
    rng: random.Random
    at_once: int
    done: int = 0
    deaths: Counter[str] = attrs.Factory(Counter)
    resumes: Counter[str] = attrs.Factory(Counter)
    moments: Counter[str] = attrs.Factory(Counter)
    faults: list[str] = attrs.Factory(list)

    async def run(self, cycles: int) -> None:
        """So many cycles, `at_once` in flight."""
        seats = trio.Semaphore(self.at_once)
        target = self.done + cycles
        async with trio.open_nursery() as watch:
            watch.start_soon(self._report, target)
            async with trio.open_nursery() as nursery:
                for number in range(self.done, target):
                    await seats.acquire()
                    nursery.start_soon(self._cycle, number, seats)
            watch.cancel_scope.cancel(reason="all cycles are done")

    async def _cycle(self, number: int, seats: trio.Semaphore) -> None:
        rng = random.Random(self.rng.random())
        moment = rng.choice(tuple(MOMENTS))
        try:
            with trio.fail_after(CYCLE_S):
                await Cycle(self.server.port, rng, self.deaths, self.resumes).run(moment)
        except* (AssertionError, EOFError, RuntimeError, OSError, trio.BrokenResourceError, trio.TooSlowError) as group:
            self.faults += [f"cycle {number} ({moment}): {error!r}" for error in group.exceptions]
        self.moments[moment] += 1
        self.done += 1
        seats.release()

    async def _report(self, target: int) -> None:
        began, before = trio.current_time(), self.done
        while True:
            await trio.sleep(1)
            rate = (self.done - before) / (trio.current_time() - began)
            bar = "#" * (20 * self.done // target)
            files, megabytes = self.server.open_files(), self.server.status("VmRSS") / 1024
            print(
                f"[{bar:.<20}] {self.done} of {target} cycles  {rate:.0f}/s  "
                f"{files} files  {megabytes:.1f} MB  {len(self.faults)} faults",
                flush=True,
            )


async def polite_call(server: Served) -> None:
    """Open, ask, hear the whole answer, close. Raises EOFError, TooSlowError."""
    with trio.fail_after(CYCLE_S):
        client = Client(await trio.open_tcp_stream(HOST, server.port))
        await client.socket.upgrade(upgrade_request(HOST, server.port, STRICT))
        await client.opens()
        await client.socket.send(*ASK)
        await client.hears("response.done")
        await client.socket.send(CLOSE)
        await client.hears("session.closed")
        await client.socket.aclose()


# --- what the server holds ---------------------------------------------------------------------------------------


def holdings(server: Served) -> dict[str, float]:
    """What has to come back."""
    metrics = server.metrics()
    seen = {name: metrics[f"duplex_engine_{name}"] for name in ("seats_taken", "sessions", "tasks", "connections")}
    return {**seen, "files": server.open_files(), "threads": server.status("Threads")}


def settled(server: Served, wanted: Mapping[str, float] | None = None) -> dict[str, float]:
    """The same once it is no more than wanted, or has had time enough."""
    deadline = time.monotonic() + SETTLING_S
    time.sleep(1.0)
    while True:
        seen = holdings(server)
        if wanted is None or time.monotonic() > deadline or all(seen[name] <= wanted[name] for name in wanted):
            return {**seen, "memory MB": server.status("VmRSS") / 1024}
        time.sleep(0.2)


def main() -> None:
    """Churn and say what was seen; exit status 1 on any fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=10_000, help="clients who die (default 10000)")
    parser.add_argument("--warm-up", type=int, default=None, help="cycles before memory counts (default: half)")
    parser.add_argument("--at-once", type=int, default=50, help="cycles in flight (default 50)")
    parser.add_argument("--growth", type=float, default=3.0, metavar="MB", help="memory growth allowed (default 3 MB)")
    parser.add_argument("--seed", type=int, default=None, help="repeat the choices of another run (default: a new one)")
    chosen = parser.parse_args()
    seed = random.randrange(1_000_000) if chosen.seed is None else chosen.seed
    warm_up = chosen.cycles // 2 if chosen.warm_up is None else chosen.warm_up
    print(f"seed {seed}: {chosen.cycles} cycles, {chosen.at_once} at once, {warm_up} before memory counts", flush=True)
    with served(server_config(chosen.at_once)) as server:
        churn = Churn(server, random.Random(seed), chosen.at_once)
        trio.run(polite_call, server)
        stages = {"before": settled(server)}
        began = time.monotonic()
        for stage, cycles in (("warm", warm_up), ("after", chosen.cycles - warm_up)):
            trio.run(churn.run, cycles)
            stages[stage] = settled(server, {n: v for n, v in stages["before"].items() if n != "memory MB"})
        took = time.monotonic() - began
        trio.run(polite_call, server)
        churn.faults += server.complaints()
    churn.faults += not_back(stages, chosen.growth)
    report(churn, stages, took, seed)


def server_config(at_once: int) -> ServeConfig:
    """A scripted model whose sessions can be resumed for a moment."""
    options = {"mode": "turn", "script": SCRIPT, "resume": True, "lead_s": 0.2, "step_ms": 1}
    return ServeConfig(
        plugin="scripted",
        options=options,
        port=0,
        log_level="error",
        write_deadline_s=WRITE_S,
        limits=Limits(max_sessions=8 * at_once + 8, session=SessionLimits(disconnect_grace_s=GRACE_S)),
    )


def not_back(stages: Mapping[str, Mapping[str, float]], growth: float) -> list[str]:
    """What the server kept."""
    before, warm, after = stages["before"], stages["warm"], stages["after"]
    kept = [f"{name}: {before[name]:.0f} before, {after[name]:.0f} after" for name in before if name != "memory MB"]
    faults = [text for text, name in zip(kept, before, strict=False) if after[name] > before[name]]
    grown = after["memory MB"] - warm["memory MB"]
    return faults + [f"memory grew by {grown:.1f} MB since the warm-up"] * (grown > growth)


def report(churn: Churn, stages: Mapping[str, Mapping[str, float]], took: float, seed: int) -> None:
    """Figures, then faults."""
    for title, counts in (("moments of death", churn.moments), ("manners", churn.deaths), ("resumes", churn.resumes)):
        print(f"{title}: " + ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in sorted(counts.items())))
    print(f"{'':12}" + "".join(f"{stage:>10}" for stage in stages))
    for name in stages["before"]:
        print(f"{name:12}" + "".join(f"{seen[name]:10.1f}" for seen in stages.values()))
    for fault in churn.faults[:20]:
        print("FAULT", fault)
    rate = churn.done / took
    print(f"{churn.done} cycles in {took:.0f} s ({rate:.0f}/s), seed {seed}: {len(churn.faults)} faults")
    sys.exit(1 if churn.faults else 0)


if __name__ == "__main__":
    main()
