"""Response handles: when they are announced, what they decide, what they carry, and who loses what when slow."""

import pytest
import trio
from client_peer import Line, Peer

from duplex_engine.client import AudioFormat, DuplexClient, DuplexProtocolError
from duplex_engine.client.events import wrap_event
from duplex_engine.client.responses import ResponseBook
from duplex_engine.client.streams import CAPACITY

URL = "ws://127.0.0.1:8099"


def book() -> ResponseBook:
    return ResponseBook(AudioFormat("pcm16", 24_000))


def feed(responses: ResponseBook, *events: tuple[str, str | None, dict]) -> None:
    for kind, response_id, fields in events:
        ident = {"response_id": response_id} if response_id else {}
        responses.learn(wrap_event({"type": kind, **ident, **fields}))


def announced(responses: ResponseBook) -> list:
    return [entry.unwrap() for entry in responses.announced._entries]


CREATED = ("response.created", "r", {"response": {"id": "r"}})
SPEAK = ("response.speak", "r", {})
AUDIO = ("response.output_audio.delta", "r", {"delta": "AAAA", "sample_rate_hz": 8000})
WORDS = ("response.output_audio_transcript.delta", "r", {"delta": "one "})
TEXT = ("response.output_text.delta", "r", {"delta": "two"})
YIELD = ("response.listen", "r", {"response": {"id": "r", "status": "listening"}})
LISTEN = ("response.listen", None, {"response": {"status": "listening"}})
DONE = ("response.done", "r", {"response": {"id": "r", "status": "completed"}})
CANCELLED = ("response.done", "r", {"response": {"id": "r", "status": "cancelled"}})


@pytest.mark.parametrize(
    ("events", "decisions", "statuses"),
    [
        ([CREATED], [], []),
        ([CREATED, SPEAK], ["speak"], ["in_progress"]),
        ([CREATED, AUDIO], ["speak"], ["in_progress"]),
        ([CREATED, WORDS], ["speak"], ["in_progress"]),
        ([CREATED, TEXT, DONE], ["speak"], ["completed"]),
        ([CREATED, DONE], ["speak"], ["completed"]),
        ([CREATED, SPEAK, AUDIO, CANCELLED], ["speak"], ["cancelled"]),
        ([CREATED, YIELD, DONE], ["listen"], ["listening"]),
        ([CREATED, SPEAK, YIELD, DONE], ["speak"], ["listening"]),
        ([LISTEN], ["listen"], ["listening"]),
        ([CREATED, LISTEN, SPEAK, LISTEN], ["listen", "speak", "listen"], ["listening", "in_progress", "listening"]),
        ([AUDIO, WORDS, SPEAK, DONE], [], []),
        ([CREATED, CREATED, SPEAK], ["speak"], ["in_progress"]),
    ],
)
def test_announcement_and_decision(events, decisions, statuses):
    responses = book()
    feed(responses, *events)
    handles = announced(responses)
    assert [handle.decision for handle in handles] == decisions
    assert [handle.status for handle in handles] == statuses


def test_words_and_text_are_kept_apart():
    responses = book()
    feed(responses, CREATED, WORDS, WORDS, TEXT, DONE)
    (handle,) = announced(responses)
    assert (handle.transcript, handle.text, handle.item_id) == ("one one ", "two", "item_r")
    assert handle.created_event.type == "response.created"
    assert handle.done_event.type == "response.done"


def test_after_a_hand_over_unknown_responses_are_followed():
    responses = ResponseBook(AudioFormat("pcm16", 24_000), open_unknown=True)
    feed(responses, AUDIO, WORDS, DONE)
    (handle,) = announced(responses)
    assert (handle.transcript, handle.status, handle.created_event) == ("one ", "completed", None)


async def test_audio_counts_what_was_taken_at_the_rate_of_each_delta():
    responses = book()
    feed(responses, CREATED, AUDIO, ("response.output_audio.delta", "r", {"delta": "AAAAAAAA"}), DONE)
    (handle,) = announced(responses)
    chunks = handle.audio()
    assert await anext(chunks) == b"\0\0\0"
    assert handle.played_ms == pytest.approx(1.5 / 8)
    assert await anext(chunks) == b"\0" * 6
    assert handle.played_ms == pytest.approx(1.5 / 8 + 3 / 24)
    with pytest.raises(StopAsyncIteration):
        await anext(chunks)


async def test_undrained_audio_loses_its_oldest_chunks_and_says_how_many():
    responses = book()
    feed(responses, CREATED, *[AUDIO] * (CAPACITY + 5), DONE)
    (handle,) = announced(responses)
    with handle.audio() as chunks:
        assert len([chunk async for chunk in chunks]) == CAPACITY
        assert chunks.lag == 5


async def test_closing_the_audio_gives_the_rest_up():
    responses = book()
    feed(responses, CREATED, AUDIO, AUDIO)
    (handle,) = announced(responses)
    chunks = handle.audio()
    await anext(chunks)
    chunks.close()
    feed(responses, AUDIO)
    assert [chunk async for chunk in chunks] == []
    assert [chunk async for chunk in handle.audio()] == []
    feed(responses, DONE)
    await handle.wait()


async def test_waiting_for_the_end(autojump_clock):
    responses = book()
    feed(responses, CREATED, SPEAK)
    (handle,) = announced(responses)
    with pytest.raises(TimeoutError):
        await handle.wait(3)
    assert trio.current_time() == pytest.approx(3)
    feed(responses, DONE)
    await handle.wait(3)
    assert handle.finished


async def test_a_turn_loop_over_a_session(autojump_clock, nursery):
    async def script(line: Line) -> None:
        await line.open()
        await line.receive("input_audio_buffer.commit")
        await line.say("response.listen", response={"status": "listening"})
        await line.respond("a", b"\1\0" * 240, b"\2\0" * 240, text="Hello.")
        await line.done("a")
        await line.say("error", error={"code": "input_audio_buffer_empty", "message": "nothing to commit"})
        await line.respond("b", b"\3\0" * 240)
        await line.done("b", "cancelled")
        await line.serve_until_closed()

    heard = []
    async with DuplexClient(URL, connect=Peer(nursery, script).connect) as client:
        await client.commit()
        responses = client.responses()
        for _ in range(2):
            response = await anext(responses)
            heard.append((response.decision, b"".join([chunk async for chunk in response.audio()])))
            assert response.transcript == ("Hello." if response.decision == "speak" else "")
        with pytest.raises(DuplexProtocolError, match="nothing to commit"):
            await anext(responses)
        response = await anext(responses)
        heard.append((response.decision, b"".join([chunk async for chunk in response.audio()])))
        await response.wait()
        assert response.status == "cancelled"
        await client.close()
        assert [response async for response in client.responses()] == []
    assert heard == [("listen", b""), ("speak", b"\1\0" * 240 + b"\2\0" * 240), ("speak", b"\3\0" * 240)]


async def test_a_lazy_consumer_never_stalls_the_session(autojump_clock, nursery):
    async def script(line: Line) -> None:
        await line.open()
        await line.receive("input_audio_buffer.clear")
        for _ in range(CAPACITY + 100):
            await line.say("response.listen", response={"status": "listening"})
        await line.say("input_audio_buffer.cleared")
        await line.serve_until_closed()

    async with DuplexClient(URL, connect=Peer(nursery, script).connect) as client:
        events, responses = client.events(), client.responses()
        await client.clear_input()
        await client.wait_for("input_audio_buffer.cleared", timeout_s=60)
        assert responses.lag == 100
        assert events.lag >= 101
        assert (await anext(events)).server_event_seq - events.lag in (1, 2)
