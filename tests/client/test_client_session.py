"""One session on one connection: opening, saying, hearing, closing. Virtual clock, real frames."""

import re

import pytest
import trio
from client_peer import SESSION_ID, Line, Peer, refuse, serve_quietly
from trio_websocket import ConnectionClosed

from duplex_engine.client import (
    AudioFormat,
    DuplexClient,
    DuplexConnectionError,
    DuplexProtocolError,
    DuplexSessionClosedError,
    SessionConfig,
    SessionUpdated,
    TranscriptDelta,
)
from duplex_engine.errors import ConnectionLost, ServerError, SessionGone
from duplex_engine.protocol.wire_json import b64encode

URL = "ws://127.0.0.1:8099"


async def test_opening_says_what_the_contract_shows(autojump_clock, nursery):
    peer = Peer(nursery, serve_quietly)
    async with DuplexClient(URL, model="demo", connect=peer.connect) as client:
        assert client.session_id == SESSION_ID
        assert client.session_info["capabilities"] == {"chunk_period_ms": 80}
        assert client.credentials is not None
        assert client.credentials.resume_token == "token-1"
    assert peer.query == {"duplex": "1", "model": "demo", "autostart": "0"}
    assert peer.urls[0].startswith("ws://127.0.0.1:8099/v1/realtime?")
    update = peer.lines[0].received[0]
    assert re.fullmatch(r"evt_[0-9a-f]{32}", update.pop("event_id"))
    assert update == {
        "type": "session.update",
        "session": {
            "model": "demo",
            "modalities": ["audio", "text"],
            "input_audio_format": "pcm16",
            "output_audio_format": "pcm16",
            "sample_rate_hz": 16000,
            "audio": {"input": {"sample_rate_hz": 16000}, "output": {"sample_rate_hz": 24000}},
            "turn_detection": None,
            "extra_body": {"auto_response": True},
        },
    }


async def test_session_updated_replaces_the_session_info(autojump_clock, nursery):
    async def script(line: Line) -> None:
        await line.open()
        await line.receive("input_audio_buffer.clear")
        await line.say("session.updated", session={"id": SESSION_ID, "voice": "amber"})
        await line.serve_until_closed()

    peer = Peer(nursery, script)
    async with DuplexClient(URL, connect=peer.connect) as client:
        with client.events() as events:
            await client.clear_input()
            async for event in events:
                if isinstance(event, SessionUpdated) and "voice" in event.session:
                    break
        assert client.session_info["voice"] == "amber"


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        (
            {"type": "error", "error": {"type": "rate_limit_error", "code": "resource_exhausted", "message": "full"}},
            "resource_exhausted",
            "full",
        ),
        ({"type": "error", "error": "no duplex here", "code": "unsupported"}, "unsupported", "no duplex here"),
    ],
)
async def test_a_refused_session_raises_the_error(autojump_clock, nursery, answer, code, message):
    async def script(line: Line) -> None:
        await line.receive()
        await line.send(answer)
        await line.ws.aclose(1013, code)

    with pytest.raises(DuplexProtocolError) as refused:
        async with DuplexClient(URL, connect=Peer(nursery, script).connect):
            pytest.fail("entered")
    assert isinstance(refused.value, ServerError)
    assert (refused.value.code, refused.value.message, refused.value.raw) == (code, message, answer)


async def test_a_silent_server_times_out(autojump_clock, nursery):
    async def script(line: Line) -> None:
        await line.receive()
        await trio.sleep(100)

    with pytest.raises(TimeoutError, match=r"session\.created within 30 s"):
        async with DuplexClient(URL, connect=Peer(nursery, script).connect):
            pytest.fail("entered")
    assert trio.current_time() == pytest.approx(30)


async def test_no_server_raises_the_reason_alone(autojump_clock):
    with pytest.raises(ConnectionRefusedError):
        async with DuplexClient(URL, connect=refuse):
            pytest.fail("entered")


async def test_a_server_that_hangs_up_during_the_handshake(autojump_clock, nursery):
    async def script(line: Line) -> None:
        await line.receive()
        await line.ws.aclose(1011, "broken")

    with pytest.raises(DuplexConnectionError, match="1011 broken"):
        async with DuplexClient(URL, connect=Peer(nursery, script).connect):
            pytest.fail("entered")


@pytest.mark.parametrize("url", ["127.0.0.1:8099", "ftp://host/", "ws://", "localhost"])
def test_a_wrong_address_is_refused_with_an_example(url):
    with pytest.raises(ValueError, match="write it like ws://"):
        DuplexClient(url)


async def test_what_the_client_sends(autojump_clock, nursery):
    peer = Peer(nursery, serve_quietly)
    picture = "/9j/4AAQ"
    async with DuplexClient(URL, connect=peer.connect) as client:
        await client.append_audio(b"\0\1" * 1600)
        await client.append_audio(b"\0\1" * 800, is_speech=True, video_frames=[f"data:image/jpeg;base64,{picture}"])
        await client.commit(create_response=True)
        await client.cancel_response("resp-1")
        await client.cancel_response()
        await client.ack_playback(640.7, response_id="resp-1", item_id="item_resp-1")
        await client.ack_playback(640, committed_ms=600)
        assert await client.send({"type": "barge_in", "event_id": "mine"}) == "mine"
    sent = peer.lines[0].received[1:]
    assert len({event.pop("event_id") for event in sent}) == len(sent)
    one, two, commit, cancel, cancel_active, ack, ack_less, barge_in, close = sent
    assert one.pop("audio") == b64encode(b"\0\1" * 1600)
    assert one == {
        "type": "input_audio_buffer.append",
        "format": "pcm16",
        "sample_rate_hz": 16000,
        "duration_ms": 100,
        "audio_end_ms": 100,
    }
    assert (two["duration_ms"], two["audio_end_ms"], two["is_speech"]) == (50, 150, True)
    assert two["video_frames"] == [picture]
    assert commit == {"type": "input_audio_buffer.commit", "response_create": True}
    assert cancel == {"type": "response.cancel", "response_id": "resp-1"}
    assert cancel_active == {"type": "response.cancel"}
    assert (ack["played_ms"], ack["committed_ms"], ack["item_id"]) == (640, 640, "item_resp-1")
    assert (ack_less["played_ms"], ack_less["committed_ms"]) == (640, 600)
    assert barge_in == {"type": "barge_in"}
    assert close["type"] == "session.close"


async def test_a_picture_that_is_no_base64_is_refused_before_it_is_sent(autojump_clock, nursery):
    peer = Peer(nursery, serve_quietly)
    async with DuplexClient(URL, connect=peer.connect) as client:
        with pytest.raises(ValueError, match="neither base64"):
            await client.append_audio(b"\0\0", video_frames=["data:image/png;base64,?"])
        await client.append_audio(b"\0\0" * 16)
    assert peer.lines[0].received[1]["audio_end_ms"] == 1


async def test_stream_pcm_keeps_speaking_pace_without_drift(autojump_clock, nursery):
    # On a lockstep pair a send takes as long as the server takes to read: 50 ms here.
    async def script(line: Line) -> None:
        await line.open()
        kind = ""
        while kind != "session.close":
            kind = (await line.receive())["type"]
            await trio.sleep(0.05)
        await line.say("session.closed", session_id=SESSION_ID, reason="client_close")

    peer = Peer(nursery, script, pair=trio.testing.lockstep_stream_pair)
    async with DuplexClient(URL, connect=peer.connect) as client:
        start = trio.current_time()
        assert await client.stream_pcm(b"\0\0" * 16000 * 2, video_frames=["AAAA", "BBBB"]) == 2
        assert trio.current_time() - start == pytest.approx(2.0)
    line = peer.lines[0]
    appends = [(at, event) for at, event in zip(line.times, line.received, strict=True) if "audio" in event]
    for number, (at, event) in enumerate(appends):
        assert 0.2 * number <= at - start + 1e-9 < 0.2 * number + 0.15
        assert event["audio_end_ms"] == 200 * (number + 1)
    assert [index for index, (_, event) in enumerate(appends) if "video_frames" in event] == [4, 9]


async def test_events_are_typed_and_end_quietly(autojump_clock, nursery):
    async def script(line: Line) -> None:
        await line.open()
        await line.receive("input_audio_buffer.commit")
        await line.say("response.output_audio_transcript.delta", response_id="r", delta="there ")
        await line.say("some.new.event", number=1)
        await line.serve_until_closed()

    peer = Peer(nursery, script)
    async with DuplexClient(URL, connect=peer.connect) as client:
        events = client.events()
        await client.commit()
        await client.close()
        kinds = []
        async for event in events:
            kinds.append(event.type)
            if isinstance(event, TranscriptDelta):
                assert (event.text, event.response_id) == ("there ", "r")
    assert kinds[-3:] == ["response.output_audio_transcript.delta", "some.new.event", "session.closed"]
    assert events.lag == 0


async def test_every_number_is_acknowledged_in_the_end(autojump_clock, nursery):
    async def script(line: Line) -> None:
        await line.open()
        for number in range(50):
            await line.say("some.event", number=number)
            if number % 7 == 0:
                await trio.sleep(0.01)
        await line.receive("session.close")
        await line.say("session.closed", session_id=SESSION_ID, reason="client_close")

    peer = Peer(nursery, script)
    async with DuplexClient(URL, connect=peer.connect):
        await trio.sleep(1)
    acknowledged = peer.lines[0].acknowledged
    assert acknowledged == sorted(set(acknowledged))
    assert acknowledged[-1] == 51


async def test_heartbeats_every_thirty_seconds(autojump_clock, nursery):
    peer = Peer(nursery, serve_quietly)
    async with DuplexClient(URL, connect=peer.connect):
        await trio.sleep(100)
    line = peer.lines[0]
    beats = [at for at, event in zip(line.times, line.received, strict=True) if event["type"] == "session.heartbeat"]
    assert [round(at) for at in beats] == [30, 60, 90]


async def test_an_expired_session_raises_out_of_every_iterator(autojump_clock, nursery):
    async def script(line: Line) -> None:
        await line.open()
        await line.receive("input_audio_buffer.clear")
        await line.respond("r", b"\1\0" * 100)
        await line.say("session.expired", session_id=SESSION_ID, reason="idle_ttl_expired")
        await line.ws.aclose(1000, "idle_ttl_expired")

    async with DuplexClient(URL, connect=Peer(nursery, script).connect) as client:
        events = client.events()
        await client.clear_input()
        with pytest.raises(DuplexSessionClosedError, match="idle_ttl_expired"):
            async for _ in events:
                pass
        responses = client.responses()
        handle = await anext(responses)
        assert [chunk async for chunk in handle.audio()] == [b"\1\0" * 100]
        assert handle.status == "incomplete"
        with pytest.raises(DuplexSessionClosedError):
            await anext(responses)
        with pytest.raises(SessionGone):
            await client.clear_input()
        with pytest.raises(DuplexSessionClosedError):
            await anext(client.events())


async def test_the_reason_of_a_close_is_the_last_error(autojump_clock, nursery):
    async def script(line: Line) -> None:
        await line.open()
        await line.receive("input_audio_buffer.clear")
        await line.say("error", error={"code": "output_overflow", "message": "you read too slowly"})
        await line.say("session.closed", session_id=SESSION_ID, reason="output_overflow")
        await line.ws.aclose()

    async with DuplexClient(URL, connect=Peer(nursery, script).connect) as client:
        await client.clear_input()
        await trio.sleep(1)
        with pytest.raises(DuplexSessionClosedError, match="output_overflow: you read too slowly") as ended:
            await client.clear_input()
        assert not isinstance(ended.value, ConnectionLost)


async def test_wait_for(autojump_clock, nursery):
    async def script(line: Line) -> None:
        await line.open()
        for kind, fields in (
            ("input_audio_buffer.cleared", {}),
            ("error", {"error": {"code": "bad_event", "message": "no", "event_id": "evt_x", "param": "p"}}),
            ("session.closed", {"session_id": SESSION_ID, "reason": "shutdown"}),
        ):
            await line.receive("input_audio_buffer.clear")
            await trio.sleep(0.1)
            await line.say(kind, **fields)

    async with DuplexClient(URL, connect=Peer(nursery, script).connect) as client:
        await client.clear_input()
        assert (await client.wait_for("input_audio_buffer.cleared", timeout_s=5)).server_event_seq == 2
        await client.clear_input()
        with pytest.raises(DuplexProtocolError, match="bad_event: no") as refused:
            await client.wait_for("response.done", timeout_s=5)
        assert (refused.value.event_id, refused.value.param) == ("evt_x", "p")
        with pytest.raises(TimeoutError, match=r"no response\.done within 2 s"):
            await client.wait_for("response.done", timeout_s=2)
        await client.clear_input()
        with pytest.raises(DuplexSessionClosedError, match="shutdown"):
            await client.wait_for("response.done", timeout_s=5)


async def test_close_waits_for_the_server_but_not_for_ever(autojump_clock, nursery):
    async def script(line: Line) -> None:
        await line.open()
        await line.receive("session.close")
        await trio.sleep(1000)

    peer = Peer(nursery, script)
    async with DuplexClient(URL, connect=peer.connect) as client:
        start = trio.current_time()
        await client.close()
        assert trio.current_time() - start == pytest.approx(20)
        assert [event async for event in client.events()] == []
    nursery.cancel_scope.cancel()


async def test_an_orderly_end_is_orderly_on_the_wire_too(autojump_clock, nursery):
    reasons = []

    async def script(line: Line) -> None:
        await line.open()
        await line.receive("session.close")
        await line.say("session.closed", session_id=SESSION_ID, reason="client_close")
        try:
            await line.receive()
        except ConnectionClosed as closed:
            reasons.append(closed.reason.code)

    async with DuplexClient(URL, connect=Peer(nursery, script).connect):
        pass
    await trio.testing.wait_all_tasks_blocked()
    assert reasons == [1000]


async def test_an_exception_tells_the_server_and_comes_out_alone(autojump_clock, nursery):
    async def script(line: Line) -> None:
        await line.open()
        await line.receive("session.close")
        await trio.sleep(1000)

    peer = Peer(nursery, script)
    start = trio.current_time()
    with pytest.raises(ZeroDivisionError):
        async with DuplexClient(URL, connect=peer.connect):
            raise ZeroDivisionError
    assert trio.current_time() - start < 2.5
    assert peer.lines[0].received[-1]["type"] == "session.close"
    nursery.cancel_scope.cancel()


async def test_cancellation_passes_through(autojump_clock, nursery):
    peer = Peer(nursery, serve_quietly)
    with trio.move_on_after(5) as scope:
        async with DuplexClient(URL, connect=peer.connect):
            await trio.sleep_forever()
    assert scope.cancelled_caught
    await trio.testing.wait_all_tasks_blocked()
    assert peer.lines[0].received[-1]["type"] == "session.close"


async def test_an_input_format_of_floats(autojump_clock, nursery):
    peer = Peer(nursery, serve_quietly)
    config = SessionConfig(input_audio=AudioFormat("pcm_f32le", 24_000), voice="NATF2.pt", instructions="")
    async with DuplexClient(URL, config=config, connect=peer.connect) as client:
        await client.append_audio(b"\0\0\0\0" * 1920)
    opening, append = peer.lines[0].received[:2]
    assert opening["session"]["voice"] == "NATF2.pt"
    assert opening["session"]["instructions"] == ""
    assert "model" not in opening["session"]
    assert (append["format"], append["sample_rate_hz"], append["duration_ms"]) == ("pcm_f32le", 24000, 80)
