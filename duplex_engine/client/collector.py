"""Collecting a whole session's events: for tests, probes and benchmarks.

Owns what can be asked about the events afterwards. Unbounded on purpose: not for a client that runs for hours.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs
import trio

from duplex_engine.client.client import DuplexClient
from duplex_engine.client.config import AudioFormat
from duplex_engine.client.errors import DuplexSessionClosedError
from duplex_engine.client.events import AudioDelta, DuplexEvent, TextDelta, TranscriptDelta, wrap_event

__all__ = ["EventCollector", "acknowledge_collected_playback", "wait_for_condition"]

JsonObject = Mapping[str, object]


@attrs.frozen
class _Received:
    event: DuplexEvent
    at_s: float


@attrs.define
class _Observed:
    """What a window of events showed: times in seconds of trio's clock, durations in milliseconds."""

    created_s: float | None = None
    first_text_s: float | None = None
    audio_s: list[float] = attrs.Factory(list)
    positions_ms: dict[str, list[float]] = attrs.Factory(dict)
    stages: dict[str, object] = attrs.Factory(dict)
    request_metrics: dict[str, object] = attrs.Factory(dict)

    def learn(self, received: _Received) -> None:
        event, response_id = received.event, received.event.response_id or ""
        if event.type == "response.created" and self.created_s is None:
            self.created_s = received.at_s
        if isinstance(event, TranscriptDelta | TextDelta) and event.text and self.first_text_s is None:
            self.first_text_s = received.at_s
        for diagnostics in _diagnostics(event.raw):
            self.stages |= _mapping(diagnostics.get("stage_metrics"))
            self.request_metrics |= _mapping(diagnostics.get("response_request_metrics"))
        if isinstance(event, AudioDelta) and event.audio:
            self.audio_s.append(received.at_s)
            position = _mapping(event.raw.get("metadata")).get("audio_duration_ms")
            if isinstance(position, int | float) and math.isfinite(position):
                self.positions_ms.setdefault(response_id, []).append(max(0.0, float(position)))

    def chunks_ms(self) -> list[float]:
        """Durations of the audio deltas: the differences of their cumulative positions."""
        steps = []
        for positions in self.positions_ms.values():
            steps += [after - before for before, after in zip([0.0, *positions], positions, strict=False)]
        return steps


class EventCollector:
    """Keeps every event with the time of its arrival (seconds of trio's clock) and the audio of every response."""

    def __init__(self) -> None:
        self.events: list[JsonObject] = []
        self.event_received_at_s: list[float] = []
        self.response_audio: dict[str, list[bytes]] = {}
        self.response_ids: list[str] = []
        self.output_sample_rate_hz = 24_000
        self._received: list[_Received] = []

    async def consume(
        self, client: DuplexClient, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Collect from now until the session ends, however it does. With `nursery.start`: listening when it returns."""
        with client.events() as events:
            task_status.started()
            try:
                async for event in events:
                    self.add(event)
            except DuplexSessionClosedError:
                return

    @staticmethod
    def response_id(event: JsonObject) -> str | None:
        """The response that an event belongs to."""
        return wrap_event(event).response_id

    def add(self, event: JsonObject | DuplexEvent, *, received_at_s: float | None = None) -> None:
        """Keep one event, received now unless `received_at_s` says otherwise."""
        view = event if isinstance(event, DuplexEvent) else wrap_event(event)
        received = _Received(view, trio.current_time() if received_at_s is None else received_at_s)
        self.events.append(view.raw)
        self.event_received_at_s.append(received.at_s)
        self._received.append(received)
        response_id = view.response_id
        if view.type == "response.created" and response_id and response_id not in self.response_ids:
            self.response_ids.append(response_id)
        if isinstance(view, AudioDelta):
            if response_id and (chunk := view.audio):
                self.response_audio.setdefault(response_id, []).append(chunk)
            self.output_sample_rate_hz = view.sample_rate_hz or self.output_sample_rate_hz

    def count(self, event_type: str) -> int:
        """How many events of a type came."""
        return sum(received.event.type == event_type for received in self._received)

    def errors(self) -> list[JsonObject]:
        """The `error` events."""
        return [received.event.raw for received in self._received if received.event.type == "error"]

    def audio_bytes(self, response_id: str | None = None) -> bytes:
        """The audio of one response, or of all in the order of their creation."""
        chosen = self.response_ids if response_id is None else [response_id]
        return b"".join(chunk for one in chosen for chunk in self.response_audio.get(one, ()))

    def response_is_done(self, response_id: str) -> bool:
        """Whether `response.done` came for it."""
        return any(view.type == "response.done" for view in self._of(response_id))

    def response_text(self, response_id: str) -> str:
        """All its words: transcript and text deltas joined."""
        return "".join(
            view.text or "" for view in self._of(response_id) if isinstance(view, TranscriptDelta | TextDelta)
        )

    def first_received_at(self, *event_types: str, after_s: float = 0.0) -> float | None:
        """When the first event of these types came, not before `after_s`."""
        return next((r.at_s for r in self._received if r.at_s >= after_s and r.event.type in event_types), None)

    def last_received_at(self, event_type: str) -> float | None:
        """When the last event of a type came."""
        return next((r.at_s for r in reversed(self._received) if r.event.type == event_type), None)

    def timing_summary(
        self,
        *,
        after_s: float,
        input_committed_at_s: float | None = None,
        response_id: str | None = None,
        measurement_origin: Mapping[str, str] | None = None,
    ) -> dict[str, object]:
        """The cadence of the audio from `after_s` on, of one response or of all; empty without audio.

        `audio_output`: chunks and their intervals. `request_metrics`: time to first text and audio from the commit, or
        from `response.created` without one; the server's own figures take precedence. `stages`: what it reported.
        """
        seen = self._observe(after_s, None if response_id is None else {response_id})
        result: dict[str, object] = {"stages": seen.stages} if seen.stages else {}
        if not seen.audio_s:
            return result
        intervals_ms = [(after - before) * 1000 for before, after in zip(seen.audio_s, seen.audio_s[1:], strict=False)]
        result["audio_output"] = {
            "source": "client_monotonic_receive",
            "chunk_count": len(seen.audio_s),
            "response_created_to_first_audio_ms": _since_ms(seen.created_s, seen.audio_s[0]),
            "commit_to_first_audio_ms": _since_ms(input_committed_at_s, seen.audio_s[0]),
            "inter_chunk_interval_ms": interval_summary(intervals_ms),
            "chunk_duration_ms": interval_summary(seen.chunks_ms()),
            "max_chunk_gap_ms": max(intervals_ms, default=0.0),
        }
        start_s = seen.created_s if input_committed_at_s is None else input_committed_at_s
        if start_s is not None:
            origin = "response.created received" if input_committed_at_s is None else "commit sent"
            result["request_metrics"] = {
                "source": "client_monotonic_receive",
                "measurement_origin": {"ttft": origin, "ttfp": origin, **(measurement_origin or {})},
                **self._spans(seen, start_s, response_id),
                **{
                    key: value for key in ("ttft_ms", "ttfp_ms") if (value := seen.request_metrics.get(key)) is not None
                },
            }
        return result

    def global_timing_summary(
        self,
        *,
        after_s: float,
        window_started_at_s: float,
        response_ids: Sequence[str],
        measurement_origin: Mapping[str, str],
    ) -> dict[str, object]:
        """The same spans over several responses, from `window_started_at_s`; empty without audio."""
        seen = self._observe(after_s, set(response_ids))
        if not seen.audio_s:
            return {}
        return {
            "source": "client_monotonic_receive",
            "response_ids": list(response_ids),
            "measurement_origin": dict(measurement_origin),
            **self._spans(seen, window_started_at_s, *response_ids),
        }

    def _of(self, response_id: str) -> Iterator[DuplexEvent]:
        return (received.event for received in self._received if received.event.response_id == response_id)

    def _observe(self, after_s: float, response_ids: set[str] | None) -> _Observed:
        seen = _Observed()
        for received in self._received:
            if received.at_s >= after_s and (response_ids is None or received.event.response_id in response_ids):
                seen.learn(received)
        return seen

    def _spans(self, seen: _Observed, start_s: float, *response_ids: str | None) -> dict[str, object]:
        positions_ms = [max(positions) for positions in seen.positions_ms.values()]
        audio = AudioFormat("pcm16", self.output_sample_rate_hz)
        byte_count = sum(len(self.audio_bytes(response_id)) for response_id in response_ids)
        return {
            "ttft_ms": _since_ms(start_s, seen.first_text_s),
            "ttfp_ms": _since_ms(start_s, seen.audio_s[0]),
            "audio_generation_ms": _since_ms(start_s, seen.audio_s[-1]),
            "audio_duration_ms": round(sum(positions_ms) if positions_ms else audio.duration_ms(byte_count), 3),
        }


async def acknowledge_collected_playback(client: DuplexClient, collector: EventCollector) -> None:
    """Acknowledge all collected audio as played: a shorthand for probes.

    A response without audio so far is acknowledged with 0 ms, which reserves its place in the history, unless it is
    already over.
    """
    audio = AudioFormat("pcm16", collector.output_sample_rate_hz)
    for response_id in list(collector.response_ids):
        pcm16 = collector.audio_bytes(response_id)
        if pcm16 or not collector.response_is_done(response_id):
            await client.ack_playback(
                audio.duration_ms(len(pcm16)), response_id=response_id, item_id=f"item_{response_id}"
            )


async def wait_for_condition(predicate: Callable[[], bool], *, timeout_s: float, label: str) -> None:
    """Look every 20 ms until `predicate` holds. Raises TimeoutError naming `label`."""
    with trio.move_on_after(timeout_s):
        while not predicate():  # noqa: ASYNC110  a predicate over anything has no event to wait for
            await trio.sleep(0.02)
        return
    raise TimeoutError(f"{label} did not come within {timeout_s:g} s")


def interval_summary(values_ms: Sequence[float]) -> dict[str, float | int]:
    """`{count, mean, p50, p95, max}` of durations in milliseconds; all zero without any."""
    ordered = sorted(round(value, 3) for value in values_ms if value >= 0)
    if not ordered:
        return {"count": 0, "mean": 0.0, "p50": 0.0, "p95": 0.0, "max": 0.0}
    return {
        "count": len(ordered),
        "mean": round(sum(ordered) / len(ordered), 3),
        "p50": ordered[math.ceil(0.50 * len(ordered)) - 1],
        "p95": ordered[math.ceil(0.95 * len(ordered)) - 1],
        "max": ordered[-1],
    }


def _mapping(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _since_ms(start_s: float | None, end_s: float | None) -> float | None:
    return None if start_s is None or end_s is None else round((end_s - start_s) * 1000, 3)


def _diagnostics(raw: JsonObject) -> Iterator[JsonObject]:
    """Everywhere that a server may put its figures (wire contract 4.3)."""
    yield raw
    yield _mapping(raw.get("vllm_omni"))
    for metadata in (_mapping(raw.get("metadata")), _mapping(_mapping(raw.get("response")).get("metadata"))):
        yield metadata
        yield _mapping(metadata.get("vllm_omni"))
        yield _mapping(metadata.get("duplex_event"))
