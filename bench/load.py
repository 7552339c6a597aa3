"""Many callers at once over real sockets: each streams 80 ms of sound every 80 ms, hears marked sound, and cuts in once.

    python bench/load.py --sessions 200 --seconds 30

Starts its own server (scripted model, native) in another process. Checks, for every caller: each sample heard carries its
own session's mark and continues where its response stopped; after `response.done` nothing of that response follows; every
created response has exactly one terminal. Prints turnaround percentiles (from an append leaving to the delta that answers
it arriving), interruption times, server CPU per append, and that seats and tasks are back to zero.
"""

import argparse
import base64
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import attrs
import trio
from wire import LeanSocket

from duplex_engine.testing.marks import MarkReader

UNIT_S = 0.08
SCRIPT = 'forever { listen 5; speak "one two three four five six seven eight nine ten" for 8 }'
APPEND = json.dumps(
    {
        "type": "input_audio_buffer.append",
        "audio": base64.b64encode(bytes(2560)).decode(),
        "format": "pcm16",
        "sample_rate_hz": 16000,
    }
).encode()
OPEN = json.dumps(
    {"type": "session.update", "session": {"turn_detection": None, "extra_body": {"auto_response": True}}}
).encode()


@attrs.define
class Caller:
    """One caller and what was seen from its chair."""

    number: int
    marks: MarkReader = attrs.Factory(MarkReader)
    open: set[str] = attrs.Factory(set)
    done: dict[str, str] = attrs.Factory(dict)
    turnarounds: list[float] = attrs.Factory(list)
    interruptions: list[float] = attrs.Factory(list)
    faults: list[str] = attrs.Factory(list)
    asked_at: float = 0.0
    cut_at: float | None = None
    closed: bool = False

    async def talk(self, port: int, seconds: float) -> None:
        """The whole call."""
        await trio.sleep(UNIT_S * random.random())
        socket = await LeanSocket.connect("127.0.0.1", port, "/v1/realtime?duplex=1&autostart=0")
        await socket.send(OPEN)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen, socket, nursery.cancel_scope)
            await self._stream(socket, seconds)
            await socket.send(b'{"type":"session.close"}')
            await trio.sleep(5)
            self.faults.append("no session.closed within 5 s")
            nursery.cancel_scope.cancel()
        await socket.aclose()

    async def _stream(self, socket: LeanSocket, seconds: float) -> None:
        began = trio.current_time()
        cut_after = int(seconds / UNIT_S * random.uniform(0.3, 0.7))
        for tick in range(int(seconds / UNIT_S)):
            await trio.sleep_until(began + tick * UNIT_S)
            self.asked_at = trio.current_time()
            await socket.send(APPEND)
            if tick >= cut_after and self.cut_at is None and not self.interruptions and self.open:
                self.cut_at = trio.current_time()
                await socket.send(b'{"type":"response.cancel"}')

    async def _listen(self, socket: LeanSocket, call: trio.CancelScope) -> None:
        try:
            while not self.closed:
                for frame in await socket.receive():
                    self._hear(json.loads(frame))
        except EOFError as error:
            if not self.closed:
                self.faults.append(f"hung up: {error}")
        call.cancel()

    def _hear(self, event: dict[str, object]) -> None:
        response_id = event.get("response_id")
        if response_id in self.done and str(event["type"]).startswith("response."):
            self.faults.append(f"{event['type']} after response.done")
        match event["type"]:
            case "response.created":
                self.open.add(str(response_id))
            case "response.output_audio.delta":
                if self.asked_at:
                    self.turnarounds.append(trio.current_time() - self.asked_at)
                    self.asked_at = 0.0
                try:
                    self.marks.hear(str(response_id), base64.b64decode(str(event["delta"])))
                except AssertionError as error:
                    self.faults.append(str(error))
            case "response.done":
                self._response_done(str(response_id), event)
            case "error" if event["error"]["code"] == "response_not_active":  # type: ignore[index]
                self.cut_at = None  # it ended by itself while the cancel was on its way: cut the next one
            case "error":
                self.faults.append(json.dumps(event["error"]))
            case "session.closed":
                self.closed = True

    def _response_done(self, response_id: str, event: dict[str, object]) -> None:
        self.open.remove(response_id)
        status = event["response"]["status"]  # type: ignore[index]
        self.done[response_id] = status
        if status == "cancelled" and self.cut_at is not None:
            self.interruptions.append(trio.current_time() - self.cut_at)
            self.cut_at = None


def percentile(values: list[float], share: float) -> float:
    """In milliseconds."""
    ordered = sorted(values)
    return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def start_server(port: int, sessions: int) -> subprocess.Popen[bytes]:
    """The server in another process, ready."""
    command = [sys.executable, "-m", "duplex_engine.server", "--plugin", "scripted", "--port", str(port)]
    command += [
        "--option",
        "mode=native",
        "--option",
        "step_ms=0",
        "--option",
        f"script={SCRIPT}",
        "--max-sessions",
        str(sessions + 8),
        "--log-level",
        "warning",
    ]
    server = subprocess.Popen(command)
    for _ in range(200):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=1)
            return server
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server did not become ready")


def metrics(port: int) -> dict[str, float]:
    """The server's own figures."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
    rows = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, value in rows}


def cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def run(port: int, sessions: int, seconds: float) -> list[Caller]:
    """All callers, started over one unit."""
    callers = [Caller(number) for number in range(sessions)]
    async with trio.open_nursery() as nursery:
        for caller in callers:
            nursery.start_soon(caller.talk, port, seconds)
    return callers


def main() -> None:
    """Run the load and say what was seen; exit status 1 on any fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--port", type=int, default=8198)
    chosen = parser.parse_args()
    server = start_server(chosen.port, chosen.sessions)
    try:
        time.sleep(0.5)  # the server samples its tasks a few times a second
        before = metrics(chosen.port)
        spent = cpu_seconds(server.pid)
        callers = trio.run(run, chosen.port, chosen.sessions, chosen.seconds)
        spent = cpu_seconds(server.pid) - spent
        time.sleep(0.5)
        left = metrics(chosen.port)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(20)
    report(callers, spent, before, left, chosen.seconds)


def say(name: str, values: list[float]) -> None:
    """One line of percentiles."""
    p50, p99, most = (percentile(values, share) for share in (0.5, 0.99, 1))
    print(f"{name} ms: p50 {p50:.2f}  p99 {p99:.2f}  max {most:.2f}  n {len(values)}")


def found_faults(callers: list[Caller]) -> Iterator[str]:
    """Everything that should not have been seen."""
    for caller in callers:
        yield from (f"caller {caller.number}: {fault}" for fault in caller.faults)
        if caller.open:
            yield f"caller {caller.number}: {len(caller.open)} responses without a terminal"
        if len(caller.interruptions) != 1:
            yield f"caller {caller.number}: {len(caller.interruptions)} interruptions"
    marks = Counter(caller.marks.mark for caller in callers)
    yield from (f"{count} callers heard mark {mark}" for mark, count in marks.items() if count > 1)


def report(
    callers: list[Caller], spent: float, before: dict[str, float], left: dict[str, float], seconds: float
) -> None:
    """Figures, then faults."""
    turnarounds = [value for caller in callers for value in caller.turnarounds]
    cuts = [value for caller in callers for value in caller.interruptions]
    statuses = Counter(status for caller in callers for status in caller.done.values())
    faults = list(found_faults(callers))
    appends = len(callers) * int(seconds / UNIT_S)
    print(f"{len(callers)} sessions, {seconds:g} s; responses: {dict(statuses)}")
    say("turnaround", turnarounds)
    say("cancel to response.done", cuts)
    print(f"server CPU: {spent:.2f} s, {1e6 * spent / appends:.0f} us per append")
    for name in ("duplex_engine_sessions", "duplex_engine_seats_taken", "duplex_engine_tasks"):
        print(f"{name}: {before[name]:.0f} before, {left[name]:.0f} after")
        if left[name] > before[name]:
            faults.append(f"{name} did not come back to {before[name]:.0f}")
    for fault in faults[:20]:
        print("FAULT", fault)
    print(f"{len(faults)} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
