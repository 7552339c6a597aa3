"""Conformance checklist, lines 12, 13, 22 and 23: answers from their announcement to their last word."""

import base64
import random
from collections.abc import Sequence
from typing import Any

import pytest
import trio
from wire_rig import DELTA, DONE, NATIVE, WORDS, Event, Line, eventually, house, native, numbers, turns

ANNOUNCED = (
    "response.created",
    "conversation.item.added",
    "conversation.item.created",
    "response.output_item.added",
    "response.content_part.added",
)
TERMINALS = (
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "response.output_item.done",
    "conversation.item.done",
    "response.done",
    "rate_limits.updated",
)
DECISIONS = {"response.listen", "response.created"}
RATE_HZ = 24_000


# --- line 12 ------------------------------------------------------------------------------------------------------

ENDS: dict[str, tuple[str, tuple[str, ...], str, str, Any]] = {
    "stop": ("", (), "completed", "completed", {"type": "completed", "reason": "stop"}),
    "yield": ("; yield", ("response.listen",), "completed", "completed", None),
    "fail": ("; fail", ("error",), "failed", "failed", {"type": "failed", "reason": "engine_error"}),
}


@pytest.mark.parametrize("end", ENDS)
async def test_line_12_every_response_has_one_of_each_terminal_in_order_and_pairs_of_deltas(end: str) -> None:
    last, before, status, item_status, details = ENDS[end]
    async with house() as home:
        line = await home.script(f'slow 0.05; speak "eight words that are spoken in one second" for 1.06{last}')
        answer = await line.ask()
        done = await line.until(DONE, errors=True)
        await line.until("rate_limits.updated")
        events = events_of(line, answer)
        assert kinds(events[:5]) == list(ANNOUNCED)
        assert events[5]["type"] == "response.speak"
        assert kinds(events[-len(TERMINALS) - len(before) :]) == [*before, *TERMINALS]
        check_pairs(events[6 : -len(TERMINALS) - len(before)], whole=end == "stop")
        (item,) = done["response"]["output"]
        assert (done["response"]["status"], item["status"]) == (status, item_status)
        assert done["response"]["status_details"] == details
        assert item["content"][0]["audio_duration_ms"] == len(line.sound(answer["response_id"])) * 1000 // 2 // RATE_HZ


@pytest.mark.parametrize("cancel", ["response.cancel", "barge_in", "input.cancel", "output_audio_buffer.clear"])
async def test_line_12_a_cancelled_response_ends_in_the_same_order(cancel: str) -> None:
    async with house() as home:
        line = await home.script('slow 0.3; speak "a b c d e f g h i j k l m n o p q r s t u v w x y z" for 4')
        answer = await line.ask()
        for _ in range(3):
            await line.until(DELTA)
        await line.say(cancel)
        done = await line.until(DONE)
        await line.until("rate_limits.updated")
        events = events_of(line, answer)
        last = (("output_audio_buffer.cleared",) if cancel.startswith("output") else ()) + TERMINALS
        assert kinds(events[-len(last) :]) == list(last)
        check_pairs(events[6 : -len(last)], whole=False)
        reason = {"response.cancel": "client_cancelled", "output_audio_buffer.clear": "output_audio_buffer_clear"}
        details = {"type": "cancelled", "reason": reason.get(cancel, "barge_in")}
        assert (done["response"]["status"], done["response"]["status_details"]) == ("cancelled", details)
        assert done["response"]["output"][0]["status"] == "cancelled"
        metadata = done["response"]["metadata"]
        assert (metadata["cancelled_epoch"], metadata["epoch"], metadata["reason"]) == (0, 1, details["reason"])


def events_of(line: Line, created: Event) -> list[Event]:
    """Everything from an answer's announcement on, but for what was said about the user's turn."""
    return [event for event in line.heard[line.heard.index(created) :] if event["type"] != "input_audio_buffer.cleared"]


def kinds(events: Sequence[Event]) -> list[str]:
    return [event["type"] for event in events]


def check_pairs(body: Sequence[Event], *, whole: bool) -> None:
    """Sound and words alternate, and each delta says exactly how much sound there is up to its end."""
    assert kinds(body) == [DELTA, WORDS] * (len(body) // 2)
    samples = 0
    for delta in body[::2]:
        samples += len(base64.b64decode(delta["delta"])) // 2
        assert delta["sample_rate_hz"] == RATE_HZ
        assert delta["metadata"]["audio_duration_ms"] == samples * 1000 // RATE_HZ
        assert delta["metadata"]["playback"]["sent_ms"] == samples * 1000 // RATE_HZ
    assert not whole or samples == round(1.06 * RATE_HZ)


# --- line 13 ------------------------------------------------------------------------------------------------------

CANCELS = 100
KINDS = ("response.cancel", "response.cancel", "barge_in", "input.cancel", "output_audio_buffer.clear")


@pytest.mark.parametrize("seed", [1, 2])
async def test_line_13_a_storm_of_cancels_raises_the_epoch_each_time_and_lets_nothing_old_through(seed: int) -> None:
    chance = random.Random(seed)
    async with house() as home:
        line = await home.script('forever { slow 0.05; speak "to be cut at a random point" for 3 }')
        for epoch in range(1, CANCELS + 1):
            answer = await line.ask()
            for _ in range(chance.randrange(12)):
                await line.until(DELTA, response_id=answer["response_id"])
            await trio.sleep(chance.random() * 0.005)
            cancel = chance.choice(KINDS)
            await line.say(cancel)
            done = await line.until(DONE, response_id=answer["response_id"])
            assert done["response"]["status"] == "cancelled"
            assert done["response"]["metadata"]["epoch"] == epoch
            assert done["response"]["metadata"]["cancelled_epoch"] == epoch - 1
        await line.is_well()
        check_storm(line)


def check_storm(line: Line) -> None:
    """Nothing after its end, nothing of an old epoch, one end for each beginning, numbers that only grow."""
    assert numbers(line.heard) == sorted(set(numbers(line.heard)))
    epoch, over, label = 0, list[str](), dict[str, int]()
    for event in line.heard:
        response_id = event.get("response_id")
        if event["type"] == "response.created":
            label[response_id] = epoch
        elif event["type"] == DONE:
            epoch = event["response"]["metadata"]["epoch"]
            over.append(response_id)
        elif response_id is not None:
            assert response_id not in over, event
        if event["type"] in (DELTA, "response.speak"):
            assert event["metadata"]["epoch"] == label[response_id] == epoch, event
    assert len(over) == len(set(over)) == len(label) == CANCELS


# --- line 22 ------------------------------------------------------------------------------------------------------


async def test_line_22_listens_that_stand_alone_carry_no_response_and_are_few() -> None:
    async with house(native('listen 5; speak "one" for 0.4; listen')) as home:
        line = await home.open(NATIVE)
        began = trio.current_time()
        for _ in range(40):
            await line.append(0.8, loud=False)
        await line.until(DONE)
        for _ in range(40):
            await line.append(0.8, loud=False)
        await line.is_well()
        listens = line.all("response.listen")
        assert listens
        for listen in listens:
            assert "response_id" not in listen
            assert "id" not in listen["response"]
            assert listen["response"]["status"] == "listening"
            assert listen["response"]["metadata"]["reason"] == "model_listen"
        seconds = trio.current_time() - began
        assert len(listens) <= 2 + seconds + 1, f"{len(listens)} listens in {seconds} s"


@pytest.mark.parametrize("loud", [True, False])
async def test_line_22_every_native_commit_is_followed_by_a_listen_or_a_response(loud: bool) -> None:
    async with house(native('forever { listen 3; speak "hm" for 0.1; listen 4 }')) as home:
        line = await home.open(NATIVE)
        for _ in range(12):
            await line.append(0.1, loud=loud)
            await line.commit()
            committed = await line.until("input_audio_buffer.committed")
            place = line.heard.index(committed)
            await eventually(lambda: not DECISIONS.isdisjoint(line.kinds[place:]), 2)  # noqa: B023 - asked at once


# --- line 23 ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["turn", "native"])
async def test_line_23_closing_during_speech_ends_the_answer_then_the_session_and_aborts_the_model(mode: str) -> None:
    script = 'slow 1; speak "a long speech that nobody will hear the end of" for 6'
    async with house(turns() if mode == "turn" else native()) as home:
        body = {"script": script, "auto_response": mode == "native"}
        line = await home.open({"extra_body": body})
        answer = await line.ask()
        while not line.words(answer["response_id"]):
            await line.until(DELTA)
        voice = home.engine.snapshot().workers["voice"]
        assert voice.free_slots == voice.slots - 1
        await line.say("session.close", reason="enough")
        done = await line.until(DONE, response_id=answer["response_id"])
        assert done["response"]["status_details"] == {"type": "cancelled", "reason": "session_closed"}
        closed = await line.until("session.closed", reason="enough")
        assert home.seats == 0
        assert kinds(line.heard)[-8:] == [*TERMINALS, "session.closed"]
        assert closed["server_event_seq"] == max(numbers(line.heard))
        assert await line.hang_up_of_server() == (1000, "enough")
        await home.until_slots_are_free()
