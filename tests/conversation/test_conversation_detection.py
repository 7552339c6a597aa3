"""Hysteresis over probabilities (wire contract 6.3)."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duplex_engine.audio.vad import WINDOW_MS
from duplex_engine.conversation.detection import Edge, Endpointing
from duplex_engine.protocol.session_config import TurnDetection

HIGH, BETWEEN, LOW = 0.9, 0.4, 0.1


def edges(probabilities, detection=None, clock_ms=0.0):
    endpointing = Endpointing(detection or TurnDetection())
    endpointing.reset(clock_ms)
    return [edge for edge in map(endpointing.push, probabilities) if edge is not None]


def kinds(probabilities, **fields):
    return [edge.kind for edge in edges(probabilities, TurnDetection(**fields))]


def test_speech_starts_after_the_shortest_run_and_stops_after_the_silence():
    found = edges([LOW] * 20 + [HIGH] * 10 + [LOW] * 20)
    assert [edge.kind for edge in found] == ["started", "paused", "stopped"]
    started, paused, stopped = found
    assert started == Edge("started", 20 * 32 - 300, 23 * 32, 96)
    assert paused == Edge("paused", 30 * 32, 33 * 32, 320)
    assert stopped == Edge("stopped", 46 * 32, 46 * 32, 320)  # 512 ms of silence: the first whole window beyond 500


@pytest.mark.parametrize(
    ("probabilities", "fields", "expected"),
    [
        ([HIGH, HIGH, LOW] * 9, {}, []),  # one lower window resets the run
        ([HIGH, HIGH, BETWEEN] * 9, {}, []),
        ([HIGH], {"min_speech_duration_ms": 0}, ["started"]),  # used as at least one window
        ([HIGH] * 2, {"min_speech_duration_ms": 33}, ["started"]),
        ([HIGH] * 3 + [BETWEEN] * 50, {}, ["started"]),  # only a low window starts the silence
        ([HIGH] * 3 + [LOW] + [BETWEEN] * 50, {}, ["started", "paused"]),  # in between it runs, and cannot end
        ([HIGH] * 3 + [LOW] + [BETWEEN] * 50 + [LOW], {}, ["started", "paused", "stopped"]),
        ([HIGH] * 3 + [LOW] * 2 + [HIGH] + [LOW] * 2, {}, ["started"]),  # speech clears the silence
        ([HIGH] * 3 + [LOW] * 5 + [HIGH], {}, ["started", "paused", "resumed"]),
        ([HIGH] * 3 + [LOW], {"silence_duration_ms": 0}, ["started", "stopped"]),
        ([HIGH] * 3 + [LOW] * 4, {"silence_duration_ms": 100}, ["started", "paused", "stopped"]),
        ([HIGH] * 3 + [LOW] * 4, {"silence_duration_ms": 60}, ["started", "stopped"]),
        ([HIGH] * 3 + [0.02] * 30, {"threshold": 0.16}, ["started"]),  # the floor under the band is 0.01
        ([HIGH] * 3 + [0.005] * 30, {"threshold": 0.16}, ["started", "paused", "stopped"]),
        ([0.5] * 3, {}, ["started"]),
        ([0.6] * 3, {"threshold": 0.7}, []),
    ],
)
def test_edges(probabilities, fields, expected):
    assert kinds(probabilities, **fields) == expected


def test_a_start_is_not_reported_before_the_last_reset():
    (started,) = edges([HIGH] * 3, clock_ms=5000)
    assert started.at_ms == 5000
    (started,) = edges([LOW] * 5 + [HIGH] * 3, clock_ms=5000)
    assert started.at_ms == 5000
    (started,) = edges([LOW] * 10 + [HIGH] * 3, clock_ms=5000)
    assert started.at_ms == 5000 + 320 - 300


def test_a_reset_forgets_a_run():
    endpointing = Endpointing(TurnDetection())
    assert [endpointing.push(HIGH) for _ in range(2)] == [None, None]
    endpointing.reset(64)
    assert [endpointing.push(HIGH) for _ in range(2)] == [None, None]
    assert endpointing.push(HIGH) == Edge("started", 64, 160, 96)


def test_voiced_time_leaves_out_pauses_and_trailing_silence():
    endpointing = Endpointing(TurnDetection())
    for probability in [HIGH] * 10 + [LOW] * 8 + [HIGH] * 5 + [LOW] * 3:
        endpointing.push(probability)
    assert endpointing.voiced_ms == 15 * 32
    for _ in range(20):
        endpointing.push(LOW)
    assert endpointing.voiced_ms == 0


@given(
    st.lists(st.floats(0, 1), max_size=200),
    st.builds(
        TurnDetection,
        threshold=st.floats(0.2, 1),
        prefix_padding_ms=st.floats(0, 600),
        silence_duration_ms=st.floats(0, 600),
        min_speech_duration_ms=st.floats(0, 300),
    ),
)
def test_edges_alternate_and_move_forward(probabilities, detection):
    endpointing = Endpointing(detection)
    speaking = paused = False
    seen_ms = 0.0
    for place, probability in enumerate(probabilities, 1):
        edge = endpointing.push(probability)
        assert 0 <= endpointing.voiced_ms <= place * WINDOW_MS
        if edge is None:
            continue
        assert edge.seen_ms > seen_ms
        assert 0 <= edge.at_ms <= edge.seen_ms == place * WINDOW_MS
        seen_ms = edge.seen_ms
        assert (edge.kind == "started") == (not speaking)
        assert (edge.kind == "resumed") == paused if edge.kind in ("paused", "resumed") else True
        speaking = edge.kind != "stopped"
        paused = edge.kind == "paused"
        assert endpointing.speaking is speaking


@given(st.lists(st.floats(0, 1), max_size=100), st.floats(0, 10_000))
def test_positions_follow_the_clock(probabilities, clock_ms):
    """The same sound later gives the same edges later."""
    shifted = edges(probabilities, TurnDetection(prefix_padding_ms=0), round(clock_ms))
    plain = edges(probabilities, TurnDetection(prefix_padding_ms=0))
    moved = [attrs.evolve(e, at_ms=e.at_ms + round(clock_ms), seen_ms=e.seen_ms + round(clock_ms)) for e in plain]
    assert shifted == moved
