"""What the server counts and times, in the form that Prometheus reads.

Owns the names of all series. Is told by the engine through `observe`, and reads seats and readiness when asked. Never
uses a value that a client chose as a label: the number of series is bounded.
"""

import math
from collections.abc import Callable
from typing import Any, Final

import trio
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from duplex_engine.actors.observations import (
    FirstAudio,
    InputAged,
    InputDropped,
    InputRefusedByLimit,
    InterruptionSettled,
    Observation,
    OutputDropped,
    OutputPurged,
    ResponseFinished,
    SeatRefused,
    SessionEnded,
    SessionOpened,
    StepTimed,
    WorkerLost,
    WorkerStarted,
)
from duplex_engine.engine import Engine

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
LAG_SAMPLE_S: Final = 0.1

_TURN_S: Final = (0.1, 0.2, 0.3, 0.5, 0.8, 1.1, 1.5, 2.0, 3.0, 5.0, 10.0)
_INSTANT_S: Final = (0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)
_STEP_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.5, 1.0, 5.0)


class Metrics:
    """All series of one server. Pass `observe` to `open_engine`, and the object itself to `serve`."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._started: set[str] = set()
        self._make_gauges()
        self._make_histograms()
        self._make_counters()
        self._observers: dict[type, Callable[[Any], object]] = self._table()

    def _make_gauges(self) -> None:
        self._sessions = self._gauge("sessions", "Sessions alive.")
        self.connections = self._gauge("connections", "WebSocket and HTTP connections open.")
        self._seats_taken = self._gauge("seats_taken", "Seats taken: sessions opening, alive or closing.")
        self._seats_limit = self._gauge("seats_limit", "Seats there are.")
        self._ready = self._gauge("ready", "1 while sessions can be opened.")
        self._tasks = self._gauge("tasks", "Trio tasks alive in the server.")

    def _make_histograms(self) -> None:
        self._first_audio = self._histogram(
            "first_audio_seconds", "From the end of the user's turn to the first sound of its answer.", _TURN_S
        )
        self._interruption = self._histogram(
            "interruption_seconds", "From an interruption to the last byte of the old answer leaving.", _INSTANT_S
        )
        self._input_age = self._histogram(
            "input_age_seconds", "How long input waited until the model took it.", _STEP_S
        )
        self._loop_lag = self._histogram("loop_lag_seconds", "How late the event loop ran a timer.", _INSTANT_S)
        self._step = self._histogram("step_seconds", "Device time of one step of a worker.", _STEP_S, "worker")

    def _make_counters(self) -> None:
        self._responses = self._counter("responses", "Answers given, by how they ended.", "status")
        self._refused = self._counter("refused", "Sessions and input refused, by error code.", "reason")
        self._resumes = self._counter("resumes", "Attempts to take a session over, by outcome.", "outcome")
        self._dropped = self._counter(
            "dropped", "Output nobody heard, and input that waited too long, thrown away.", "reason"
        )
        self._chats = self._counter("chat_requests", "Chat requests, by what became of them.", "outcome")
        self._lost = self._counter("worker_losses", "Ends of a worker's device program.", "worker")
        self._restarts = self._counter("worker_restarts", "Restarts of a worker's device program.", "worker")

    def _table(self) -> dict[type, Callable[[Any], object]]:
        return {
            SessionOpened: lambda _: self._sessions.inc(),
            SessionEnded: lambda _: self._sessions.dec(),
            SeatRefused: lambda seen: self.refuse(seen.reason),
            InputRefusedByLimit: lambda seen: self.refuse(seen.reason),
            FirstAudio: lambda seen: self._first_audio.observe(seen.seconds),
            InterruptionSettled: lambda seen: self._interruption.observe(seen.seconds),
            ResponseFinished: lambda seen: self._responses.labels(seen.status).inc(),
            InputAged: lambda seen: self._input_age.observe(seen.seconds),
            StepTimed: lambda seen: self._step.labels(seen.worker).observe(seen.seconds),
            InputDropped: lambda seen: self._dropped.labels("input_late").inc(seen.units),
            OutputDropped: lambda _: self._dropped.labels("caller_gone").inc(),
            OutputPurged: lambda seen: self._dropped.labels("interrupted").inc(seen.events),
            WorkerStarted: self._count_start,
            WorkerLost: lambda seen: self._lost.labels(seen.worker).inc(),
        }

    def observe(self, observation: Observation) -> None:
        """Take note of something the engine saw. An observer for `open_engine`."""
        note = self._observers.get(type(observation))
        if note is not None:
            note(observation)

    def refuse(self, reason: str) -> None:
        """Count something that the server itself refused. `reason`: one of our own words."""
        self._refused.labels(reason).inc()

    def resume(self, outcome: str) -> None:
        """Count an attempt to take a session over. `outcome`: `resumed`, or the error code of the refusal."""
        self._resumes.labels(outcome).inc()

    def count_chat(self, outcome: str) -> None:
        """Count a chat request. `outcome`: one of our own words."""
        self._chats.labels(outcome).inc()

    def _count_start(self, seen: WorkerStarted) -> None:
        if seen.worker in self._started:
            self._restarts.labels(seen.worker).inc()
        self._started.add(seen.worker)

    async def watch_loop_lag(self) -> None:
        """Sample for ever how late the loop runs a timer, and how many tasks live on it."""
        while True:
            due = trio.current_time() + LAG_SAMPLE_S
            await trio.sleep_until(due)
            self._loop_lag.observe(trio.current_time() - due)
            self._tasks.set(trio.lowlevel.current_statistics().tasks_living)

    def exposition(self, engine: Engine) -> bytes:
        """All series now, in the text format that `CONTENT_TYPE` names."""
        now = engine.snapshot()
        self._seats_taken.set(now.seats_taken)
        self._seats_limit.set(now.max_sessions)
        self._ready.set(now.ready)
        return generate_latest(self._registry)

    def _gauge(self, name: str, says: str) -> Gauge:
        return Gauge(f"duplex_engine_{name}", says, registry=self._registry)

    def _counter(self, name: str, says: str, *labels: str) -> Counter:
        return Counter(f"duplex_engine_{name}", says, labels, registry=self._registry)

    def _histogram(self, name: str, says: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"duplex_engine_{name}", says, labels, registry=self._registry, buckets=(*buckets, math.inf))
