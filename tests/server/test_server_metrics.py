"""Figures: every observation counts, under bounded labels."""

from typing import get_args

import pytest
import trio
from server_rig import Talker
from trio.abc import Clock

from duplex_engine.actors.observations import (
    FirstAudio,
    InputAged,
    InputDropped,
    InputRefusedByLimit,
    InterruptionSettled,
    LoadProgressed,
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
from duplex_engine.config import EngineConfig
from duplex_engine.engine import open_engine
from duplex_engine.server.metrics import Metrics

SEEN = [
    (SessionOpened("s"), "sessions 1.0"),
    (SessionEnded("s", "whatever the client said"), "sessions -1.0"),
    (SeatRefused("resource_exhausted"), 'refused_total{reason="resource_exhausted"} 1.0'),
    (InputRefusedByLimit("s", "input_backpressure"), 'refused_total{reason="input_backpressure"} 1.0'),
    (FirstAudio("s", 0.4), 'first_audio_seconds_bucket{le="0.5"} 1.0'),
    (InterruptionSettled("s", 0.0003), 'interruption_seconds_bucket{le="0.0005"} 1.0'),
    (ResponseFinished("s", "cancelled"), 'responses_total{status="cancelled"} 1.0'),
    (InputAged("s", 0.03), 'input_age_seconds_bucket{le="0.04"} 1.0'),
    (StepTimed("voice", 0.03, 2), 'step_seconds_bucket{le="0.04",worker="voice"} 1.0'),
    (InputDropped("s", 3), 'dropped_total{reason="input_late"} 3.0'),
    (OutputDropped("voice"), 'dropped_total{reason="caller_gone"} 1.0'),
    (OutputPurged("s", 7), 'dropped_total{reason="interrupted"} 7.0'),
    (WorkerLost("voice", "a cause with details"), 'worker_losses_total{worker="voice"} 1.0'),
    (LoadProgressed("voice", "reading", 0.5), "sessions 0.0"),
]


async def page(metrics: Metrics) -> str:
    async with open_engine(EngineConfig(plugin=""), plugin=Talker()) as engine:
        return metrics.exposition(engine).decode()


@pytest.mark.parametrize(("observation", "line"), SEEN, ids=lambda value: type(value).__name__)
async def test_every_observation_has_its_series(observation: Observation, line: str) -> None:
    metrics = Metrics()
    metrics.observe(observation)
    text = await page(metrics)
    assert f"duplex_engine_{line}" in text.splitlines()
    assert "whatever the client said" not in text
    assert "a cause with details" not in text


def test_no_observation_is_forgotten() -> None:
    assert {type(observation) for observation, _ in SEEN} | {WorkerStarted} == set(get_args(Observation))


async def test_only_a_second_start_of_a_worker_is_a_restart() -> None:
    metrics = Metrics()
    for worker in ("voice", "language", "voice"):
        metrics.observe(WorkerStarted(worker, 1.0))
    text = await page(metrics)
    assert 'duplex_engine_worker_restarts_total{worker="voice"} 1.0' in text
    assert 'worker_restarts_total{worker="language"}' not in text


async def test_seats_and_readiness_are_read_when_asked() -> None:
    metrics = Metrics()
    async with open_engine(EngineConfig(plugin=""), plugin=Talker()) as engine:
        async with engine.open_session({}):
            text = metrics.exposition(engine).decode()
            assert "duplex_engine_seats_taken 1.0" in text
            assert "duplex_engine_seats_limit 10.0" in text
            assert "duplex_engine_ready 1.0" in text
        await engine.drain(0)
        text = metrics.exposition(engine).decode()
        assert "duplex_engine_seats_taken 0.0" in text
        assert "duplex_engine_ready 0.0" in text


async def test_the_loop_is_sampled_ten_times_a_second(autojump_clock: Clock) -> None:
    metrics = Metrics()
    with trio.move_on_after(1.05):
        await metrics.watch_loop_lag()
    text = await page(metrics)
    assert "duplex_engine_loop_lag_seconds_count 10.0" in text
