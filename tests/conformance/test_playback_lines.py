"""Conformance checklist, lines 14 to 16: barge-in, and what counts as heard."""

from typing import Any

import pytest
import trio
from wire_rig import DELTA, DONE, Event, Line, house, native, turns

ENDED = (
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "response.output_item.done",
    "conversation.item.done",
    "response.done",
    "rate_limits.updated",
)
SPEECH = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
TOLD = f'slow 0.05; speak "{SPEECH}" for 2; slow 1; speak "{SPEECH}" for 2; slow 0.05'


def marks_of(line: Line, response_id: str) -> list[tuple[int, int]]:
    """All text marks of a response: (milliseconds, characters)."""
    deltas = line.all(DELTA, response_id=response_id)
    marks = [mark for delta in deltas for mark in delta["metadata"]["audio_text_marks"]]
    return sorted((mark["audio_end_ms"], mark["text_chars"]) for mark in marks)


def words_heard(line: Line, response_id: str, heard_ms: int) -> str:
    """The words of a response that belong to its first `heard_ms`, by the marks that came with its sound."""
    (start_ms, start), reached = (0, 0), 0
    for end_ms, end in marks_of(line, response_id):
        if heard_ms >= end_ms:
            start_ms, start, reached = end_ms, end, end
        else:
            reached = start + (end - start) * (heard_ms - start_ms) // (end_ms - start_ms)
            break
    return line.words(response_id)[:reached].rstrip()


async def until_sound(line: Line, response_id: str, ms: int) -> None:
    """Wait until so much sound of a response has come."""
    while len(line.sound(response_id)) < 48 * ms:
        await line.until(DELTA, response_id=response_id)


async def acknowledge(line: Line, response_id: str, played_ms: float, **fields: Any) -> Event:
    """Acknowledge; returns what the server makes of it."""
    await line.say("playback.ack", response_id=response_id, played_ms=played_ms, **fields)
    event: Event = (await line.until("playback.acknowledged"))["event"]
    return event


async def history(line: Line) -> str:
    """What the model is shown of the conversation: it says so in its next answer, which must be scripted to."""
    answer = await line.ask()
    await line.until(DONE, response_id=answer["response_id"])
    return line.words(answer["response_id"])


# --- line 14 ------------------------------------------------------------------------------------------------------


async def test_line_14_speech_interrupts_in_this_order_and_the_history_holds_what_was_heard() -> None:
    script = f'slow 0.5; speak "{SPEECH}" for 4; slow 0.05; speak "{{history}}" for 1'
    session = {"turn_detection": {"type": "server_vad", "silence_duration_ms": 100}, "overlap_short_ack_ms": 0}
    async with house() as home:
        line = await home.script(script, **session)
        await line.append(0.5)
        await line.append(0.5, loud=False)
        first: str = (await line.until("response.created"))["response_id"]
        await until_sound(line, first, 1300)
        await acknowledge(line, first, 1100)
        await line.append(0.2)
        done = await line.until(DONE, response_id=first)
        await line.until("rate_limits.updated")
        began = max(i for i, kind in enumerate(line.kinds) if kind == "input_audio_buffer.speech_started")
        interruption = line.heard[began:]
        kinds = [event["type"] for event in interruption]
        assert kinds == ["input_audio_buffer.speech_started", "overlap.decision", *ENDED]
        decision = interruption[1]
        assert (decision["action"], decision["reason"]) == ("barge_in", "server_vad_speech_started")
        assert decision["metadata"]["cancel_reason"] == "turn_detected"
        assert done["response"]["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
        (item,) = done["response"]["output"]
        cut = item["content"][0]["transcript"]
        assert cut == words_heard(line, first, 1100)
        assert 0 < len(cut) < len(SPEECH) // 2
        assert interruption[3]["transcript"] == line.words(first), "the transcript itself says all that was sent"
        await line.append(0.5, loud=False)
        second = await line.until("response.created")
        stopped = line.all("input_audio_buffer.speech_stopped")[-1]
        assert line.heard.index(done) < line.heard.index(stopped) < line.heard.index(second)
        assert stopped["item_id"] == interruption[0]["item_id"]
        await line.until(DONE, response_id=second["response_id"])
        assert line.words(second["response_id"]) == f"assistant: {cut}"


async def test_line_14_on_a_native_model_too_speech_interrupts() -> None:
    model = native(f'slow 0.5; speak "{SPEECH}" for 4; listen')
    async with house(model) as home:
        line = await home.open({"turn_detection": {"type": "server_vad"}, "extra_body": {"auto_response": True}})
        await line.append(0.2, loud=False)
        first: str = (await line.until("response.created"))["response_id"]
        await until_sound(line, first, 1300)
        await acknowledge(line, first, 1100)
        await line.append(0.4)
        done = await line.until(DONE, response_id=first)
        began = line.kinds.index("input_audio_buffer.speech_started")
        after = [event["type"] for event in line.heard[began:]]
        assert after[:2] == ["input_audio_buffer.speech_started", "overlap.decision"]
        assert after[2 : 2 + 6] == list(ENDED[:6])
        assert done["response"]["status_details"]["reason"] == "turn_detected"
        assert done["response"]["output"][0]["content"][0]["transcript"] == words_heard(line, first, 1100)


# --- line 15 ------------------------------------------------------------------------------------------------------


async def test_line_15_acknowledgements_only_grow_and_never_beyond_what_was_sent() -> None:
    async with house() as home:
        line = await home.script(f'slow 0.05; speak "{SPEECH}" for 2')
        answer: str = (await line.ask())["response_id"]
        await line.until(DONE)
        first = await acknowledge(line, answer, 0)
        assert (first["played_ms"], first["item_id"]) == (0, f"item_{answer}")
        ledger = {"generated_ms": 2000, "sent_ms": 2000}
        assert first["playback"] == {**ledger, "played_ms": 0, "committed_ms": 0}
        for said, kept in ((500, 500), (300, 500), (-5, 500), (999_999, 2000), (1, 2000)):
            event = await acknowledge(line, answer, said, committed_ms=said)
            assert (event["played_ms"], event["committed_ms"]) == (said, said), "the request is repeated"
            assert event["playback"] == {**ledger, "played_ms": kept, "committed_ms": kept}


async def test_line_15_a_late_first_acknowledgement_is_accepted_and_its_place_is_before_the_turn_that_followed() -> (
    None
):
    async with house() as home:
        line = await home.script(f'slow 0.05; speak "{SPEECH}" for 2; speak "{{history}}" for 1')
        answer: str = (await line.ask())["response_id"]
        await line.until(DONE)
        await line.append(1, transcript="and then?")
        await line.commit(response_create=False)
        event = await acknowledge(line, answer, 2000)
        assert event["history_committed"] is True
        await line.say("response.create")
        second = await line.until("response.created")
        await line.until(DONE, response_id=second["response_id"])
        assert line.words(second["response_id"]) == f"assistant: {SPEECH} | user: and then?"


async def test_line_15_a_cap_holds_whatever_is_acknowledged_later() -> None:
    script = f'slow 0.05; speak "{SPEECH}" for 2; speak "{{history}}" for 1; speak "{{history}}" for 1'
    async with house() as home:
        line = await home.script(script)
        answer: str = (await line.ask())["response_id"]
        await line.until(DONE)
        await line.say("conversation.item.truncate", item_id=f"item_{answer}", content_index=0, audio_end_ms=700)
        assert (await line.until("conversation.item.truncated"))["audio_end_ms"] == 700
        assert (await line.until("playback.acknowledged"))["event"]["truncate"] is True
        capped = words_heard(line, answer, 700)
        event = await acknowledge(line, answer, 2000)
        assert event["playback"]["played_ms"] == 2000
        assert await history(line) == f"assistant: {capped}"
        await line.say("conversation.item.retrieve", item_id=f"item_{answer}")
        item = (await line.until("conversation.item.retrieved"))["item"]
        assert item["content"][0]["transcript"] == capped


async def test_line_15_a_duplicate_after_the_end_changes_nothing() -> None:
    script = f'slow 0.05; speak "{SPEECH}" for 2; speak "{{history}}" for 1'
    async with house() as home:
        line = await home.script(script)
        answer: str = (await line.ask())["response_id"]
        await line.until(DONE)
        whole = await acknowledge(line, answer, 2000)
        again = await acknowledge(line, answer, 2000)
        less = await acknowledge(line, answer, 100)
        assert whole["playback"] == again["playback"] == less["playback"]
        assert less["history_committed"] is True
        assert await history(line) == f"assistant: {SPEECH}"


@pytest.mark.parametrize("modality", ["spoken", "silent"])
async def test_line_15_zero_reserves_and_every_known_answer_can_be_acknowledged(modality: str) -> None:
    words = SPEECH if modality == "spoken" else " "
    async with house() as home:
        line = await home.script(f'slow 1; speak "{words}" for 2')
        answer: str = (await line.ask())["response_id"]
        event = await acknowledge(line, answer, 0)
        assert event["playback"]["played_ms"] == 0
        await until_sound(line, answer, 80)
        await acknowledge(line, answer, 10)
        await line.say("response.cancel")
        await line.until(DONE)
        assert (await acknowledge(line, answer, 80))["playback"]["played_ms"] == 80


# --- line 16 ------------------------------------------------------------------------------------------------------


async def test_line_16_a_client_that_never_acknowledges_is_answered_again_and_again() -> None:
    async with house(turns(script=f'forever {{ slow 0.05; speak "{SPEECH}" for 30 }}')) as home:
        line = await home.open()
        for _ in range(3):
            began = trio.current_time()
            await line.append(1)
            await line.commit(response_create=False)
            await line.until("conversation.item.done")
            await line.say("response.create")
            answer = await line.until("response.created")
            done = await line.until(DONE, response_id=answer["response_id"])
            assert done["response"]["status"] == "completed"
            assert trio.current_time() - began < 15, "the next answer came while this one would still be playing"
        assert not line.all("error")
