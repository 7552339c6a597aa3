"""How a session is opened: the first frame, autostart, refusals, seats."""

import json
import re
from typing import Any

import attrs
import pytest
import trio
from server_rig import DUPLEX, SPEECH, Caller, Rig, Talker, rigged
from transport_peer import BINARY, TEXT, close_frame, frame
from trio.abc import Clock

from duplex_engine.model_plugins.contract import SessionPlan
from duplex_engine.protocol.session_config import SessionConfig


async def test_session_update_opens_a_session(autojump_clock: Clock) -> None:
    async with rigged() as rig:
        caller = await rig.call()
        await caller.say("session.update", session={"model": "demo", "id": "mine", "session_id": "mine"})
        created = await caller.next_event()
        updated = await caller.next_event()
        assert created["type"] == "session.created"
        assert "server_event_seq" not in created
        assert "resume_token" not in created
        assert re.fullmatch("duplex-[0-9a-f]{32}", created["session"]["id"])
        assert created["session"]["model"] == "demo"
        assert len(created["session"]["capabilities"]) == 40
        assert (updated["type"], updated["server_event_seq"]) == ("session.updated", 1)
        assert updated["session"] == created["session"]
        assert rig.seats == 1


@pytest.mark.parametrize("path", ["/v1/duplex?autostart=0", DUPLEX, "/v1/realtime?duplex=TRUE&autostart=off"])
async def test_strict_sessions_are_numbered(autojump_clock: Clock, path: str) -> None:
    async with rigged() as rig:
        caller = await rig.call(path)
        await caller.say("session.update", session={})
        await caller.next_event()
        assert (await caller.next_event())["server_event_seq"] == 1


async def test_with_a_model_in_the_url_the_session_starts_by_itself(autojump_clock: Clock) -> None:
    async with rigged() as rig:
        caller = await rig.call("/v1/realtime?model=some-model")
        created, updated = await caller.next_event(), await caller.next_event()
        assert (created["type"], updated["type"]) == ("session.created", "session.updated")
        assert created["session"]["model"] == "some-model"
        assert "server_event_seq" not in updated, "profile ga has no numbers"


async def test_without_autostart_nothing_is_said_before_the_client_speaks(autojump_clock: Clock) -> None:
    async with rigged() as rig:
        caller = await rig.call(f"{DUPLEX}&model=some-model")
        with trio.move_on_after(5):
            pytest.fail(f"said {await caller.next_event()}")
        assert rig.seats == 0
        created = await caller.open()
        assert created["session"]["model"] == "some-model"


async def test_any_other_first_event_opens_a_default_session_and_is_executed(autojump_clock: Clock) -> None:
    async with rigged() as rig:
        caller = await rig.call()
        await caller.say("session.heartbeat", event_id="evt_1")
        kinds = [(await caller.next_event())["type"] for _ in range(3)]
        assert kinds == ["session.created", "session.updated", "session.heartbeat_ack"]


async def test_frames_sent_in_one_go_with_the_first_are_kept_in_order(autojump_clock: Clock) -> None:
    async with rigged() as rig:
        caller = rig.connect()
        words = [{"type": "session.update", "session": {}}, {"type": "session.heartbeat"}, {"type": "session.close"}]
        await caller.upgrade(DUPLEX, behind=b"".join(frame(TEXT, json.dumps(word).encode()) for word in words))
        kinds = [(await caller.next_event())["type"] for _ in range(4)]
        assert kinds == ["session.created", "session.updated", "session.heartbeat_ack", "session.closed"]
        assert await caller.farewell() == (1000, "client_close")


async def test_a_first_acknowledgement_opens_and_is_then_unknown(autojump_clock: Clock) -> None:
    async with rigged() as rig:
        caller = await rig.call()
        await caller.say("session.event_ack", server_event_seq=3, event_id="evt_1")
        created, updated, error = [await caller.next_event() for _ in range(3)]
        assert (created["type"], updated["type"]) == ("session.created", "session.updated")
        assert (error["error"]["code"], error["error"]["event_id"]) == ("unknown_event", "evt_1")
        await caller.say("session.heartbeat")
        await caller.hears("session.heartbeat_ack")


FIRST_FRAMES = [
    (frame(TEXT, b"hello"), "invalid_json", 1008),
    (frame(TEXT, b'{"type": "session.update"'), "invalid_json", 1008),
    (frame(TEXT, b'{"type": "session.update", "session": {"temperature": NaN}}'), "invalid_json", 1008),
    (frame(TEXT, b"[]"), "bad_event", 1008),
    (frame(TEXT, b'"session.update"'), "bad_event", 1008),
    (frame(TEXT, b"{}"), "bad_event", 1008),
    (frame(TEXT, b'{"type": 1}'), "bad_event", 1008),
    (frame(TEXT, b'{"type": "session.explode"}'), "unknown_event", 1008),
    (frame(BINARY, b'{"type": "session.update"}'), "bad_event", 1008),
    (frame(TEXT, b'{"type": "playback.ack", "played_ms": true}'), "bad_event", 1008),
    (frame(TEXT, b"[" * 100_000), "invalid_json", 1008),
    (frame(TEXT, b" " * (15 * 1024 * 1024) + b"{}"), "event_too_large", 1008),
    (
        frame(TEXT, b'{"type": "session.resume", "session_id": "duplex-1", "resume_token": "t", "event_id": "evt_1"}'),
        "unsupported_session_resume",
        1008,
    ),
]


@pytest.mark.parametrize(("first", "code", "close_code"), FIRST_FRAMES, ids=lambda value: str(value)[:30])
async def test_an_impossible_first_frame_ends_the_connection(
    autojump_clock: Clock, first: bytes, code: str, close_code: int
) -> None:
    async with rigged() as rig:
        caller = await rig.call()
        await caller.send(first)
        error = await caller.next_event()
        assert (error["type"], error["error"]["code"]) == ("error", code)
        assert error["error"]["type"] == "invalid_request_error"
        assert "server_event_seq" not in error
        assert await caller.farewell() == (close_code, code)
        await rig.settles()
        assert (rig.seats, rig.reception.connections) == (0, 0)


async def test_no_first_frame_within_ten_seconds(autojump_clock: Clock) -> None:
    async with rigged() as rig:
        caller = await rig.call()
        began = trio.current_time()
        error = await caller.next_event()
        assert error["error"]["code"] == "config_timeout"
        assert trio.current_time() - began == pytest.approx(10.0)
        assert await caller.farewell() == (1008, "config_timeout")


@pytest.mark.parametrize("value", ["0", "false", "no", "", "maybe"])
async def test_a_refused_lane_is_told_flat(autojump_clock: Clock, value: str) -> None:
    async with rigged() as rig:
        caller = await rig.call(f"/v1/realtime?duplex={value}")
        error = await caller.next_event()
        assert error == {"type": "error", "error": "Realtime API is not available", "code": "unsupported"}
        assert await caller.farewell() == (1008, "unsupported")


@pytest.mark.parametrize(
    ("session", "code", "param"),
    [
        ({"input_audio_format": "opus"}, "unsupported_audio_format", "input_audio_format"),
        ({"turn_detection": {"type": "telepathy"}}, "unsupported_turn_detection", "turn_detection.type"),
    ],
)
async def test_a_refused_configuration_has_its_own_code(
    autojump_clock: Clock, session: dict[str, Any], code: str, param: str
) -> None:
    async with rigged() as rig:
        caller = await rig.call()
        await caller.say("session.update", session=session, event_id="evt_1")
        error = (await caller.next_event())["error"]
        assert (error["code"], error["event_id"]) == (code, "evt_1")
        assert error["param"] == param
        assert await caller.farewell() == (1008, code)
        assert rig.seats == 0


async def test_a_full_house_says_so_and_a_seat_is_free_right_after_session_closed(autojump_clock: Clock) -> None:
    async with rigged(max_sessions=1) as rig:
        first, second = await rig.call(), await rig.call()
        await first.open()
        await second.say("session.update", session={})
        error = (await second.next_event())["error"]
        assert error["code"] == "resource_exhausted"
        assert error["message"] == "duplex_session_capacity_exhausted: limit=1"
        assert (error["type"], error["retryable"]) == ("rate_limit_error", True)
        assert await second.farewell() == (1013, "resource_exhausted")
        third = await rig.call()
        await first.say("session.close")
        await first.hears("session.closed")
        await third.open()
        assert rig.seats == 1


@attrs.define
class Moody(Talker):
    """Refuses some configurations, and stumbles over others."""

    def plan(self, config: SessionConfig) -> SessionPlan:
        if config.voice == "bug":
            raise ZeroDivisionError("a bug of the plugin")
        return SessionPlan()


async def test_a_plugin_that_stumbles_over_a_configuration_hurts_nobody_else(autojump_clock: Clock) -> None:
    async with rigged(Moody()) as rig:
        neighbour = await rig.call()
        await neighbour.open()
        caller = await rig.call()
        await caller.say("session.update", session={"voice": "bug"})
        error = (await caller.next_event())["error"]
        assert (error["type"], error["code"]) == ("server_error", "internal_error")
        assert "ZeroDivisionError" not in error["message"]
        assert await caller.farewell() == (1011, "internal_error")
        assert rig.seats == 1
        await neighbour.say("session.heartbeat")
        await neighbour.hears("session.heartbeat_ack")


async def vanish_silently(caller: Caller) -> None:
    await caller.stream.aclose()


async def vanish_politely(caller: Caller) -> None:
    await caller.send(close_frame(1001))
    await caller.stream.aclose()


async def vanish_in_mid_frame(caller: Caller) -> None:
    await caller.send(frame(TEXT, b'{"type":"session.heartbeat"}')[:9])
    await caller.stream.aclose()


@pytest.mark.parametrize("vanish", [vanish_silently, vanish_politely, vanish_in_mid_frame])
@pytest.mark.parametrize("after", ["upgrade", "session.update", "session.created", "response.created"])
async def test_an_opener_that_vanishes_leaks_no_seat(autojump_clock: Clock, after: str, vanish: Any) -> None:
    """Whenever it leaves, its seat is free at once; nothing is resumable yet."""
    async with rigged(max_sessions=1) as rig:
        for _ in range(5):
            caller = await rig.call()
            await _get_to(caller, after)
            await vanish(caller)
            await trio.sleep(0.01)
        assert (rig.seats, rig.reception.connections) == (0, 0)
        newcomer = await rig.call()
        await newcomer.open()


async def _get_to(caller: Caller, after: str) -> None:
    if after == "upgrade":
        return
    await caller.say("session.update", session={})
    if after == "session.update":
        return
    await caller.hears("session.created")
    if after == "response.created":
        await caller.say("input_audio_buffer.append", audio=SPEECH)
        await caller.say("input_audio_buffer.commit", response_create=True)
        await caller.hears("response.created")


async def test_connections_beyond_the_limit_are_dropped_and_counted(autojump_clock: Clock) -> None:
    async with rigged(max_connections=2) as rig:
        first, second = await rig.call(), await rig.call()
        third = rig.connect()
        assert await third.at_end()
        assert metric(rig, 'refused_total{reason="too_many_connections"}') == 1
        await first.open()
        await second.stream.aclose()
        await trio.sleep(0.01)
        await (await rig.call()).open()


def metric(rig: Rig, name: str) -> float:
    page = rig.metrics.exposition(rig.engine).decode()
    (line,) = (line for line in page.splitlines() if line.startswith(f"duplex_engine_{name} "))
    return float(line.split()[-1])
