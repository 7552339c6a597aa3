"""A connection with its session: nonsense answered, silence noticed, rude clients kept apart, and how it ends."""

import json
from typing import Any

import pytest
import structlog
import trio
import trio.testing
from server_rig import DUPLEX, SPEECH, Caller, Talker, rigged
from transport_peer import BINARY, TEXT, close_frame, frame
from trio.abc import Clock

from duplex_engine.config import SessionLimits
from duplex_engine.errors import ServiceFailed
from duplex_engine.model_plugins.scripted.plugin import ScriptedPlugin
from duplex_engine.server.connection import receive_caller

NONSENSE = [
    (b"{", "invalid_json"),
    (b'{"type": NaN}', "invalid_json"),
    (b"[" * 50_000, "invalid_json"),
    (b"[]", "bad_event"),
    (b"3", "bad_event"),
    (b"{}", "bad_event"),
    (b'{"type": ["session.update"], "event_id": "evt_1"}', "bad_event"),
    (b'{"type": "session.explode", "event_id": "evt_1"}', "unknown_event"),
    (b'{"type": "playback.ack", "played_ms": true, "event_id": "evt_1"}', "bad_event"),
    (b'{"type": "input_audio_buffer.append", "audio": "*", "event_id": "evt_1"}', "bad_audio"),
    (b'{"type": "session.event_ack", "server_event_seq": -1, "event_id": "evt_1"}', "invalid_event_ack"),
    (
        b'{"type": "session.resume", "session_id": "a", "resume_token": "b", "event_id": "evt_1"}',
        "unsupported_session_resume",
    ),
    (b"{}" + b" " * (15 * 1024 * 1024), "event_too_large"),
]


@pytest.mark.parametrize(("nonsense", "code"), NONSENSE, ids=lambda value: str(value)[:40])
async def test_nonsense_is_answered_outside_the_sequence_and_the_session_goes_on(
    autojump_clock: Clock, nonsense: bytes, code: str
) -> None:
    async with rigged() as rig:
        caller = await rig.call()
        await caller.open()
        await caller.send(frame(TEXT, nonsense))
        error = await caller.next_event()
        assert (error["type"], error["error"]["code"]) == ("error", code)
        assert "server_event_seq" not in error
        assert error["event_id"]
        assert error["error"].get("event_id") == ("evt_1" if b"evt_1" in nonsense else None)
        await caller.say("session.heartbeat")
        assert (await caller.hears("session.heartbeat_ack"))["server_event_seq"] == 2


async def test_a_binary_message_is_answered_and_the_session_goes_on(autojump_clock: Clock) -> None:
    async with rigged() as rig:
        caller = await rig.call()
        await caller.open()
        await caller.send(frame(BINARY, b"\x00\x01"))
        assert (await caller.next_event())["error"]["code"] == "bad_event"
        await caller.say("session.heartbeat")
        await caller.hears("session.heartbeat_ack")


async def test_a_message_beyond_the_transport_s_limit_closes_that_connection_alone(autojump_clock: Clock) -> None:
    async with rigged() as rig:
        caller, neighbour = await rig.call(), await rig.call()
        await caller.open()
        await neighbour.open()
        await caller.send(frame(TEXT, b" " * (16 * 1024 * 1024 + 1)))
        assert await caller.close_code() == 1009
        await neighbour.say("session.heartbeat")
        await neighbour.hears("session.heartbeat_ack")
        await trio.sleep(3)
        assert rig.seats == 1


async def test_much_nonsense_in_one_go_is_answered_in_full(autojump_clock: Clock) -> None:
    async with rigged() as rig:
        caller = await rig.call()
        await caller.open()
        words = [{"type": "explode", "event_id": f"evt_{number}"} for number in range(1000)]
        await caller.send(b"".join(frame(TEXT, json.dumps(word).encode()) for word in words))
        answers = [(await caller.next_event())["error"]["event_id"] for _ in words]
        assert answers == [f"evt_{number}" for number in range(1000)]


async def test_a_spoken_turn_is_answered(autojump_clock: Clock) -> None:
    async with rigged() as rig:
        caller = await rig.call()
        await caller.open()
        created = await caller.asks()
        deltas = [await caller.hears("response.output_audio.delta") for _ in range(Talker().pieces)]
        assert {delta["response_id"] for delta in deltas} == {created["response_id"]}
        assert (await caller.hears("response.done"))["response"]["status"] == "completed"
        page = rig.metrics.exposition(rig.engine).decode()
        assert "duplex_engine_first_audio_seconds_count 1.0" in page
        assert 'duplex_engine_responses_total{status="completed"} 1.0' in page


async def test_each_of_two_callers_hears_its_own_answer(autojump_clock: Clock) -> None:
    async with rigged() as rig:
        callers = [await rig.call() for _ in range(2)]
        for caller in callers:
            await caller.open()
        opened = [await caller.asks() for caller in callers]
        for caller, response in zip(callers, opened, strict=True):
            while (event := await caller.next_event())["type"] != "response.done":
                assert event.get("response_id", response["response_id"]) == response["response_id"]


# --- ends --------------------------------------------------------------------------------------------------------


async def test_closing_during_an_answer_gives_terminals_then_the_last_word_then_the_close_frame(
    autojump_clock: Clock,
) -> None:
    async with rigged() as rig:
        caller = await rig.call()
        await caller.open()
        await caller.asks()
        await caller.hears("response.output_audio.delta")
        await caller.say("session.close", reason="enough")
        done = await caller.hears("response.done")
        assert done["response"]["status"] == "cancelled"
        closed = await caller.hears("session.closed")
        assert closed["reason"] == "enough"
        assert closed["server_event_seq"] > done["server_event_seq"]
        assert rig.seats == 0
        assert await caller.farewell() == (1000, "enough")


async def test_a_long_reason_is_cut_to_what_a_close_frame_can_carry(autojump_clock: Clock) -> None:
    async with rigged() as rig:
        caller = await rig.call()
        await caller.open()
        await caller.say("session.close", reason="ä" * 100)
        assert (await caller.hears("session.closed"))["reason"] == "ä" * 100
        assert await caller.farewell() == (1000, "ä" * 61)


async def test_an_idle_session_expires(autojump_clock: Clock) -> None:
    async with rigged(session=SessionLimits(idle_ttl_s=20)) as rig:
        caller = await rig.call()
        await caller.open({"idle_timeout_s": 1000})
        began = trio.current_time()
        assert (await caller.hears("session.expired"))["reason"] == "idle_ttl_expired"
        assert trio.current_time() - began == pytest.approx(20, abs=5)
        assert await caller.farewell() == (1000, "idle_ttl_expired")


async def test_a_silent_socket_is_given_up_and_its_session_ends(autojump_clock: Clock) -> None:
    async with rigged() as rig:
        caller = await rig.call()
        await caller.open({"idle_timeout_s": 15})
        began = trio.current_time()
        for _ in range(2):
            await trio.sleep(10)
            await caller.say("session.event_ack", server_event_seq=1)
        assert await caller.farewell() == (1001, "idle_timeout")
        assert trio.current_time() - began == pytest.approx(35, abs=1)
        assert rig.seats == 0


@pytest.mark.parametrize("politely", [True, False])
async def test_a_lost_socket_ends_the_session_and_its_answer(autojump_clock: Clock, politely: bool) -> None:
    async with rigged() as rig:
        caller = await rig.call()
        await caller.open()
        await caller.asks()
        await caller.hears("response.output_audio.delta")
        if politely:
            await caller.send(close_frame())
        await caller.stream.aclose()
        await trio.sleep(0.01)
        assert (rig.seats, rig.reception.connections) == (0, 0)
        assert 'responses_total{status="cancelled"} 1.0' in rig.metrics.exposition(rig.engine).decode()


async def test_a_client_that_stops_reading_loses_its_session_and_nobody_else_does(autojump_clock: Clock) -> None:
    async with rigged(Talker(pieces=1000), write_deadline_s=5) as rig, trio.open_nursery() as nursery:
        ours, theirs = trio.testing.lockstep_stream_pair()
        nursery.start_soon(receive_caller, rig.reception, theirs)
        deaf, neighbour = Caller(ours), await rig.call()
        await neighbour.open()
        await deaf.upgrade(DUPLEX)
        await deaf.open()
        await deaf.say("input_audio_buffer.append", audio=SPEECH)
        await deaf.say("input_audio_buffer.commit", response_create=True)
        await deaf.hears("response.created")
        assert rig.seats == 2
        await trio.sleep(10)
        assert rig.seats == 1
        await neighbour.say("session.heartbeat")
        await neighbour.hears("session.heartbeat_ack")


async def test_a_client_that_sends_nonsense_and_does_not_read_is_given_up(autojump_clock: Clock) -> None:
    async with rigged(write_deadline_s=50) as rig, trio.open_nursery() as nursery:
        ours, theirs = trio.testing.lockstep_stream_pair()
        nursery.start_soon(receive_caller, rig.reception, theirs)
        deaf = Caller(ours)
        await deaf.upgrade(DUPLEX)
        await deaf.open()
        nonsense = b"".join(frame(TEXT, b"[]") for _ in range(1000))
        with structlog.testing.capture_logs() as logs:
            for _ in range(20):
                await deaf.send(nonsense)
            await trio.sleep(60)
        assert [line["outcome"] for line in logs if line["event"] == "client_left"] == ["client deaf"]
        assert rig.seats == 0
        nursery.cancel_scope.cancel()


async def test_a_caller_who_is_gone_before_the_upgrade_is_answered_is_no_crash(autojump_clock: Clock) -> None:
    async with rigged() as rig:
        ours, theirs = trio.testing.lockstep_stream_pair()
        with structlog.testing.capture_logs() as logs:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(receive_caller, rig.reception, theirs)
                lines = (f"GET {DUPLEX} HTTP/1.1", "Host: test", "Upgrade: websocket", "Connection: Upgrade")
                key = ("Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version: 13")
                await Caller(ours).send("\r\n".join((*lines, *key, "", "")).encode())
                await ours.aclose()
        assert "connection_crashed" not in [line["event"] for line in logs]
        assert rig.reception.connections == 0


async def test_a_server_that_is_told_to_stop_says_so(autojump_clock: Clock) -> None:
    async with rigged() as rig:
        talking, opening = await rig.call(), await rig.call()
        await talking.open()
        await talking.asks()
        rig.reception.stop.set()
        await rig.engine.drain(0)
        assert (await talking.hears("session.closed"))["reason"] == "shutdown"
        assert await talking.farewell() == (1000, "shutdown")
        await opening.say("session.update", session={})
        error = (await opening.next_event())["error"]
        assert (error["code"], error["retryable"]) == ("draining", True)
        assert await opening.farewell() == (1013, "draining")


async def test_whoever_is_left_when_time_is_up_gets_a_close_code(autojump_clock: Clock) -> None:
    async with rigged() as rig:
        opening = await rig.call()
        talking = await rig.call()
        await talking.open()
        rig.reception.stop.set()
        rig.end_connections()
        assert await opening.close_code() == 1001
        assert await talking.close_code() == 1001
        assert rig.reception.connections == 0


async def test_when_the_engine_dies_every_client_is_told(autojump_clock: Clock) -> None:
    plugin = ScriptedPlugin(mode="turn", script='forever { speak "a" for 0.1; crash }')
    callers: list[Caller] = []

    async def wear_out() -> None:
        async with rigged(plugin) as rig:
            callers[:] = bystander, _, cause = [await rig.call() for _ in range(3)]
            await bystander.open()
            await cause.open()
            for _ in range(4):
                await cause.asks()
                await cause.hears("response.done", errors=True)
                await trio.sleep(1)
            pytest.fail("the engine went on")

    with pytest.raises(ServiceFailed):
        await wear_out()
    bystander, opening, _ = callers
    error, closed = await bystander.next_event(), await bystander.next_event()
    assert (error["error"]["code"], error["error"]["type"]) == ("engine_dead", "server_error")
    assert (closed["type"], closed["reason"]) == ("session.closed", "engine_dead")
    assert await bystander.close_code() == 1011
    assert (await opening.next_event())["error"]["code"] == "engine_dead"
    assert await opening.close_code() == 1011


# --- rude neighbours ----------------------------------------------------------------------------------------------


async def half_a_handshake(caller: Caller) -> None:
    await caller.send(b"GET /v1/realtime HTTP/1.1\r\nHost: ")


async def no_http(caller: Caller) -> None:
    await caller.send(b"\x16\x03\x01\x00\xff" * 20)


async def half_a_frame(caller: Caller) -> None:
    await caller.upgrade(DUPLEX)
    await caller.open()
    await caller.send(frame(TEXT, b"{}")[:-1])


async def broken_utf8(caller: Caller) -> None:
    await caller.upgrade(DUPLEX)
    await caller.open()
    await caller.send(frame(TEXT, b"\xff\xfe"))


async def broken_frames(caller: Caller) -> None:
    await caller.upgrade(DUPLEX)
    await caller.open()
    await caller.send(b"\x83\x80\x00\x00\x00\x00")


async def unmasked(caller: Caller) -> None:
    await caller.upgrade(DUPLEX)
    await caller.open()
    await caller.send(b"\x81\x02{}")


async def talks_and_goes(caller: Caller) -> None:
    await caller.upgrade(DUPLEX)
    await caller.open()
    await caller.say("input_audio_buffer.append", audio=SPEECH)
    await caller.say("input_audio_buffer.commit", response_create=True)


@pytest.mark.parametrize(
    "rudeness", [half_a_handshake, no_http, half_a_frame, broken_utf8, broken_frames, unmasked, talks_and_goes]
)
async def test_a_rude_client_does_not_touch_its_neighbour(autojump_clock: Clock, rudeness: Any) -> None:
    async with rigged(Talker(pieces=20)) as rig:
        neighbour = await rig.call()
        await neighbour.open()
        response = await neighbour.asks()
        rude = rig.connect()
        await rudeness(rude)
        await rude.stream.aclose()
        heard = 0
        while (event := await neighbour.next_event())["type"] != "response.done":
            heard += event["type"] == "response.output_audio.delta"
        assert heard == 20
        assert event["response"]["id"] == response["response_id"]
        assert event["response"]["status"] == "completed"
        await trio.sleep(30)
        assert rig.reception.connections == 1
        assert rig.seats == 1


async def test_a_crash_of_one_connection_stays_there(autojump_clock: Clock) -> None:
    class Secretive(Talker):
        def describe(self) -> Any:
            raise ZeroDivisionError("a bug of the plugin")

    async with rigged(Secretive()) as rig:
        neighbour = await rig.call()
        await neighbour.open()
        other = rig.connect()
        await other.send(b"GET /v1/models HTTP/1.1\r\nHost: test\r\n\r\n")
        assert await other.at_end()
        await neighbour.say("session.heartbeat")
        await neighbour.hears("session.heartbeat_ack")
