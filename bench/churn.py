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
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping

import attrs
import trio
from mortals import ASK, CLOSE, HOST, MOMENTS, STRICT, Client, Cycle
from served import Served, served
from wire import upgrade_request

from duplex_engine.config import Limits, SessionLimits
from duplex_engine.server.settings import ServeConfig

GRACE_S, WRITE_S, SETTLING_S, CYCLE_S = 0.3, 2.0, 20.0, 30.0
SCRIPT = 'forever { speak "words that hardly anybody will hear" for 2; wait 0.2; speak "short" for 0.2 }'


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
