"""Losing and resuming connections: what is resent, what is dropped, when the client gives up."""

import pytest
import trio
from client_peer import SESSION_ID, Line, Peer, Script, refuse, serve_quietly
from trio_websocket import ConnectionClosed

from duplex_engine.client import (
    ConnectionResumed,
    Credentials,
    DuplexClient,
    DuplexConnectionError,
    DuplexProtocolError,
    DuplexSessionClosedError,
    DuplexSessionLostError,
    ReconnectPolicy,
    SessionResumed,
)
from duplex_engine.client.reconnect import FATAL_RESUME_CODES
from duplex_engine.errors import ConnectionLost

URL = "ws://127.0.0.1:8099"


async def open_and_drop(line: Line) -> None:
    await line.open()
    await trio.sleep(1)
    await line.cut()


async def resume_quietly(line: Line) -> None:
    await line.resume()
    await line.serve_until_closed()


def answering(*events: dict) -> Script:
    """A server that answers the first frame of a connection with `events` and hangs up."""

    async def script(line: Line) -> None:
        await line.receive()
        for event in events:
            await line.send(event)
        await line.ws.aclose(1008)

    return script


async def test_a_drop_inside_a_response_loses_and_repeats_nothing(autojump_clock, nursery):
    async def before(line: Line) -> None:
        await line.open()
        await line.receive("input_audio_buffer.commit")
        await line.respond("r", b"\1\0", b"\2\0")
        await trio.sleep(1)
        # Numbered and journaled, but never sent: the cable is already dead.
        line.number("response.output_audio.delta", response_id="r", delta="AwA=", sample_rate_hz=24000)
        await line.cut()

    async def after(line: Line) -> None:
        line.session.journal.insert(0, {"type": "some.event", "server_event_seq": 2})
        request = await line.resume()
        assert request == {
            "type": "session.resume",
            "session_id": SESSION_ID,
            "resume_token": "token-1",
            "last_received_server_event_seq": 5,
        }
        await line.send(line.session.journal[3])
        await line.audio("r", b"\4\0")
        await line.done("r")
        await line.serve_until_closed()

    peer = Peer(nursery, before, after)
    async with DuplexClient(URL, model="demo", connect=peer.connect) as client:
        events = client.events()
        await client.commit()
        response = await anext(client.responses())
        assert b"".join([chunk async for chunk in response.audio()]) == b"\1\0\2\0\3\0\4\0"
        assert client.resume_token == "token-2"
        await client.close()
        received = [event async for event in events]
    assert peer.urls[0] == peer.urls[1]
    numbers = [event.server_event_seq for event in received if event.server_event_seq]
    assert numbers == sorted(set(numbers))
    at = next(index for index, event in enumerate(received) if isinstance(event, ConnectionResumed))
    assert isinstance(received[at + 1], SessionResumed)
    assert received[at].raw == {"type": "connection.resumed", "attempt": 0}
    assert peer.lines[1].acknowledged[-1] >= 7


async def test_backoff_grows_with_jitter_until_the_attempts_are_used_up(autojump_clock, nursery):
    peer = Peer(nursery, open_and_drop, answering({"type": "error", "error": {"code": "runtime_resume_failed"}}))
    async with DuplexClient(URL, connect=peer.connect) as client:
        with pytest.raises(DuplexSessionLostError, match="runtime_resume_failed") as lost:
            async for _ in client.events():
                pass
        assert isinstance(lost.value, ConnectionLost)
        with pytest.raises(DuplexConnectionError):
            await client.clear_input()
    assert len(peer.attempts) == 6
    waits = [after - before for before, after in zip([1.0, *peer.attempts[1:]], peer.attempts[1:], strict=False)]
    for number, wait in enumerate(waits):
        assert 0.25 - 1e-9 <= wait <= min(4, 0.25 * 2**number) + 1e-9


@pytest.mark.parametrize(
    "answer",
    [{"type": "error", "error": {"code": code, "message": "no"}} for code in sorted(FATAL_RESUME_CODES)]
    + [{"type": "session.resync_required", "session_id": SESSION_ID, "reason": "journal_gap"}],
    ids=lambda answer: answer.get("reason") or answer["error"]["code"],
)
async def test_a_final_refusal_ends_the_session_at_once(autojump_clock, nursery, answer):
    peer = Peer(nursery, open_and_drop, answering(answer))
    async with DuplexClient(URL, connect=peer.connect) as client:
        with pytest.raises(DuplexSessionClosedError, match="connection lost"):
            await client.wait_for("response.done", timeout_s=100)
    assert len(peer.attempts) == 2


async def test_an_unreachable_server_and_a_transient_refusal_are_tried_again(autojump_clock, nursery):
    peer = Peer(nursery, open_and_drop, answering({"type": "error", "error": {"code": "engine_error"}}), resume_quietly)
    reachable = iter([True, False, True, False, True])

    async def connect(url: str) -> trio.abc.Stream:
        return await (peer.connect if next(reachable) else refuse)(url)

    async with DuplexClient(URL, connect=connect) as client:
        event = await client.wait_for("connection.resumed", timeout_s=60)
        assert event.raw["attempt"] == 3
        assert client.resume_token == "token-2"


async def test_a_server_that_never_answers_the_resume_costs_one_attempt(autojump_clock, nursery):
    async def silent(line: Line) -> None:
        await line.receive()
        await trio.sleep_forever()

    peer = Peer(nursery, open_and_drop, silent, resume_quietly)
    async with DuplexClient(URL, connect=peer.connect, handshake_timeout_s=5) as client:
        await client.wait_for("session.resumed", timeout_s=60)
    assert peer.attempts[2] - peer.attempts[1] == pytest.approx(5.4, abs=0.2)
    nursery.cancel_scope.cancel()


async def test_what_overtakes_session_resumed_comes_after_it(autojump_clock, nursery):
    async def early(line: Line) -> None:
        request = await line.receive("session.resume")
        await line.say("some.event")
        await line.send({"type": "session.resumed", "session_id": SESSION_ID, "session": {}, "resume_token": "new"})
        assert request["last_received_server_event_seq"] == 1
        await line.serve_until_closed()

    peer = Peer(nursery, open_and_drop, early)
    async with DuplexClient(URL, connect=peer.connect) as client:
        with client.events() as events:
            kinds = [(await anext(events)).type for _ in range(4)]
        assert kinds[-3:] == ["connection.resumed", "session.resumed", "some.event"]
        assert client.session_info["id"] == SESSION_ID


async def test_sending_waits_for_the_next_connection_and_keeps_its_order(autojump_clock, nursery):
    async def late(line: Line) -> None:
        await line.receive("session.resume")
        await trio.sleep(3)
        await line.send({"type": "session.resumed", "session_id": SESSION_ID, "session": {}, "resume_token": "new"})
        await line.serve_until_closed()

    peer = Peer(nursery, open_and_drop, late)
    async with DuplexClient(URL, connect=peer.connect) as client:
        await trio.sleep(2)
        async with trio.open_nursery() as sending:
            for number in range(5):
                sending.start_soon(client.send, {"type": "some.event", "event_id": str(number)})
                await trio.testing.wait_all_tasks_blocked()
        assert trio.current_time() > 4
    assert [event["event_id"] for event in peer.lines[1].received[1:6]] == list("01234")


async def test_a_cancelled_send_is_not_sent_later(autojump_clock, nursery):
    peer = Peer(nursery, open_and_drop, resume_quietly)
    async with DuplexClient(URL, connect=peer.connect) as client:
        await trio.sleep(1.1)
        with trio.move_on_after(0.05):
            await client.send({"type": "regretted"})
        await client.send({"type": "meant"})
    assert [event["type"] for event in peer.lines[1].received] == ["session.resume", "meant", "session.close"]


async def test_without_a_policy_a_lost_connection_is_the_end(autojump_clock, nursery):
    peer = Peer(nursery, open_and_drop)
    async with DuplexClient(URL, connect=peer.connect, reconnect=None) as client:
        with pytest.raises(DuplexSessionLostError):
            await anext(client.responses())
    assert len(peer.attempts) == 1


@pytest.mark.parametrize("notice", ["session.resync_required", "session.replaced"])
async def test_a_notice_that_spoils_the_token_makes_the_next_drop_final(autojump_clock, nursery, notice):
    async def script(line: Line) -> None:
        await line.open()
        await line.send({"type": notice, "session_id": SESSION_ID})
        await line.receive("input_audio_buffer.clear")
        await line.ws.aclose(1000, "gone")

    peer = Peer(nursery, script)
    async with DuplexClient(URL, connect=peer.connect) as client:
        await trio.sleep(1)
        assert client.credentials is None
        await client.clear_input()
        with pytest.raises(DuplexSessionLostError, match="1000 gone"):
            await client.wait_for("response.done", timeout_s=100)
    assert len(peer.attempts) == 1


async def test_a_session_without_token_is_not_resumed(autojump_clock, nursery):
    async def script(line: Line) -> None:
        await line.receive()
        await line.send({"type": "session.created", "session": {"id": SESSION_ID}})
        await trio.sleep(1)
        await line.cut()

    peer = Peer(nursery, script)
    async with DuplexClient(URL, connect=peer.connect) as client:
        assert client.session_id == SESSION_ID
        with pytest.raises(DuplexSessionLostError):
            await client.wait_for("response.done", timeout_s=100)
    assert len(peer.attempts) == 1


async def test_closing_during_a_reconnect_closes_the_session(autojump_clock, nursery):
    peer = Peer(nursery, open_and_drop, resume_quietly)
    async with DuplexClient(URL, connect=peer.connect):
        await trio.sleep(1.1)
    assert peer.lines[1].received[-1]["type"] == "session.close"


async def test_leaving_with_an_exception_during_a_reconnect_does_not_wait(autojump_clock, nursery):
    peer = Peer(nursery, open_and_drop, resume_quietly)

    async def program() -> None:
        async with DuplexClient(URL, connect=peer.connect):
            await trio.sleep(1.1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await program()
    assert trio.current_time() == pytest.approx(1.1)


async def test_another_client_takes_the_session_over(autojump_clock, nursery):
    async def first(line: Line) -> None:
        await line.open()
        await line.respond("r", b"\1\0")
        with pytest.raises(ConnectionClosed):
            await line.receive()

    async def second(line: Line) -> None:
        await line.resume()
        await line.audio("r", b"\3\0")
        await line.done("r")
        await line.serve_until_closed()

    refusal = answering({"type": "error", "error": {"code": "invalid_resume_token", "message": "used"}})
    peer = Peer(nursery, first, second, refusal)
    holder = DuplexClient(URL, connect=peer.connect)
    async with holder:
        await trio.sleep(1)
        credentials = holder.credentials
        peer.lines[0].number("response.output_audio.delta", response_id="r", delta="AgA=")
        assert credentials == Credentials(session_id=SESSION_ID, resume_token="token-1", last_server_event_seq=4)
        assert "token-1" not in repr(credentials)
        client = DuplexClient.resume(URL, credentials, connect=peer.connect)
        async with client:
            assert client.session_id == SESSION_ID
            response = await anext(client.responses())
            assert [chunk async for chunk in response.audio()] == [b"\2\0", b"\3\0"]
            await response.wait()
            assert response.status == "completed"
        await peer.lines[0].cut()
        with pytest.raises(DuplexSessionLostError):
            await holder.wait_for("response.done", timeout_s=60)
    assert peer.urls[1] == peer.urls[0]


@pytest.mark.parametrize(
    ("answer", "error", "attempts"),
    [
        ({"type": "error", "error": {"code": "invalid_resume_token", "message": "used"}}, DuplexProtocolError, 1),
        ({"type": "session.resync_required", "reason": "journal_gap"}, DuplexConnectionError, 1),
        ({"type": "error", "error": {"code": "runtime_resume_failed", "message": "later"}}, DuplexProtocolError, 3),
    ],
)
async def test_a_refused_take_over_raises(autojump_clock, nursery, answer, error, attempts):
    peer = Peer(nursery, answering(answer))
    credentials = Credentials(session_id=SESSION_ID, resume_token="old", last_server_event_seq=7)
    with pytest.raises(error):
        async with DuplexClient.resume(URL, credentials, connect=peer.connect, reconnect=ReconnectPolicy(3)):
            pytest.fail("entered")
    assert len(peer.attempts) == attempts
    assert peer.lines[0].received[0]["last_received_server_event_seq"] == 7


def test_credentials_need_both_halves():
    with pytest.raises(ValueError):
        Credentials(session_id="", resume_token="x")
    with pytest.raises(ValueError):
        Credentials(session_id="x", resume_token="")


async def test_a_server_that_stops_reading_costs_the_connection_not_half_a_frame(autojump_clock, nursery):
    async def deaf(line: Line) -> None:
        await line.open()
        await trio.sleep_forever()

    peer = Peer(nursery, deaf, resume_quietly, pair=trio.testing.lockstep_stream_pair)
    async with DuplexClient(URL, connect=peer.connect) as client:
        start = trio.current_time()
        for number in range(10):
            await client.send({"type": "some.event", "event_id": str(number)})
        assert 10 <= trio.current_time() - start < 16
    sent = [event["event_id"] for event in peer.lines[1].received if event["type"] == "some.event"]
    assert sent == [str(number) for number in range(10)][-len(sent) :]
    assert sent
    nursery.cancel_scope.cancel()


async def test_a_frame_that_broke_off_is_sent_again_whole(autojump_clock, nursery):
    async def stalling(line: Line) -> None:
        await line.open()
        await trio.sleep(2)
        await line.cut()
        while True:
            await line.receive()

    # In lockstep a frame is either read completely or its writer learns that it was not.
    peer = Peer(nursery, stalling, resume_quietly, pair=trio.testing.lockstep_stream_pair)
    async with DuplexClient(URL, connect=peer.connect) as client:
        for number in range(10):
            await client.send({"type": "some.event", "event_id": str(number)})
    sent = [event["event_id"] for line in peer.lines for event in line.received if event["type"] == "some.event"]
    assert sent == [str(number) for number in range(10)]
    assert 0 < sum(event["type"] == "some.event" for event in peer.lines[0].received) < 10


async def test_cancelling_a_slow_send_leaves_no_half_frame(autojump_clock, nursery):
    async def slow(line: Line) -> None:
        await line.open()
        await trio.sleep(3)
        await line.serve_until_closed()

    peer = Peer(nursery, slow, pair=trio.testing.lockstep_stream_pair)
    async with DuplexClient(URL, connect=peer.connect) as client:
        for number in range(10):
            with trio.move_on_after(0.1):
                await client.send({"type": "some.event", "event_id": str(number), "padding": "x" * 1000})
        await client.send({"type": "last.event"})
    assert len(peer.attempts) == 1
    kinds = [event["type"] for event in peer.lines[0].received]
    assert kinds[-2:] == ["last.event", "session.close"]


async def test_each_success_gives_all_attempts_back(autojump_clock, nursery):
    async def resume_and_drop(line: Line) -> None:
        await line.resume()
        await line.cut()

    peer = Peer(nursery, open_and_drop, *[resume_and_drop] * 7, resume_quietly)
    async with DuplexClient(URL, connect=peer.connect):
        await trio.sleep(30)
    waits = [after - before for before, after in zip(peer.attempts[1:], peer.attempts[2:], strict=False)]
    assert [round(wait, 6) for wait in waits] == [0.25] * 7


async def test_a_connection_that_breaks_after_the_close_was_sent_is_closed(autojump_clock, nursery):
    async def script(line: Line) -> None:
        await line.open()
        await line.receive("session.close")
        await line.cut()

    peer = Peer(nursery, script)
    async with DuplexClient(URL, connect=peer.connect) as client:
        await client.close()
        assert trio.current_time() < 0.1
        assert [event async for event in client.events()] == []
    assert len(peer.attempts) == 1


async def test_nothing_is_left_behind(autojump_clock, nursery):
    before = len(trio.lowlevel.current_root_task().child_nurseries)
    peer = Peer(nursery, serve_quietly)
    async with DuplexClient(URL, connect=peer.connect) as client:
        pass
    with pytest.raises(DuplexSessionClosedError):
        await client.clear_input()
    await trio.testing.wait_all_tasks_blocked()
    assert not nursery.child_tasks
    assert len(trio.lowlevel.current_root_task().child_nurseries) == before
