"""A single event that is too big for the limits that clients usually have, and a client's message that is too big for us."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import trio
from case_server import house
from server_rig import Caller, Talker
from transport_peer import TEXT, frame, header

from duplex_engine.conversation.effects import Turn
from duplex_engine.conversation.facts import FunctionCall
from duplex_engine.model_plugins.contract import Epoch, Response
from duplex_engine.protocol.session_config import Profile
from duplex_engine.testing.caller import Caller as Person
from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import run_story

FRAME_BYTES = 256 * 1024
MIB = 1024 * 1024
LONG = "x" * MIB
SOUND = base64.b64encode(b"\x00\x20\x00\xe0" * 4_000).decode()
MUCH_SOUND = base64.b64encode(b"\x00\x20\x00\xe0" * 500_000).decode()
ANSWERS = 'forever { speak "an answer" for 0.4 }'

Word = Mapping[str, Any]


def item(**fields: Any) -> Word:
    return {"type": "conversation.item.create", "item": fields}


def written(text: str, **fields: Any) -> Word:
    return item(content=[{"type": "input_text", "text": text}], **fields)


def update(**session: Any) -> Word:
    return {"type": "session.update", "session": session}


def spoken(**fields: Any) -> Sequence[Word]:
    append = {"type": "input_audio_buffer.append", "audio": SOUND, **fields}
    return append, {"type": "input_audio_buffer.commit", "response_create": True}


def create(**response: Any) -> Sequence[Word]:
    return *spoken()[:1], {"type": "input_audio_buffer.commit"}, {"type": "response.create", "response": response}


SAID: dict[str, Sequence[Word]] = {
    "event_id": [{"type": "response.cancel", "event_id": LONG}],
    "type": [{"type": LONG}],
    "a signal": [{"type": "turn.signal", "event": LONG}],
    "instructions": [update(instructions=LONG)],
    "instructions that nearly fit": [update(instructions="x" * 220_000), update()],
    "unheard of settings": [update(**{f"key{number}": "x" * 20_000 for number in range(11)}), update()],
    "a transcription twice in the echo": [update(input_audio_transcription={"prompt": "x" * 120_000}), update()],
    "many tools": [update(tools=[{"type": "function", "name": "f", "description": "x" * 900}] * 1000)],
    "metadata": [update(metadata={"a": LONG}), *spoken()],
    "metadata that nearly fits": [update(metadata={"a": "ä" * 7_000}), *create(metadata={"b": "ö" * 7_000})],
    "metadata of an answer": create(metadata={"a": LONG}),
    "modalities": create(modalities=["audio", LONG]),
    "a format": create(output_audio_format=LONG),
    "a script": [update(extra_body={"script": LONG})],
    "a detector": [update(turn_detection={"type": "server_vad", LONG: 1})],
    "a model": [update(model=LONG)],
    "a written message": [written(LONG)],
    "a message that nearly fits": [written("x" * 220_000)],
    "many parts": [item(content=[{"type": "input_text", "text": "x"}] * 100_000)],
    "an item id": [written("x", id=LONG)],
    "an item's status": [written("x", status=LONG)],
    "an item of another type": [item(type="note", note=LONG)],
    "more of an item": [written("x", note=LONG)],
    "a place": [{**written("x"), "previous_item_id": LONG}],
    "words beside sound": [item(content=[{"type": "input_audio", "audio": SOUND, "transcript": LONG}])],
    "sound": [item(id="much", content=[{"type": "input_audio", "audio": MUCH_SOUND}])],
    "an output": [item(type="function_call_output", call_id="call", output=LONG)],
    "a call": [item(type="function_call_output", call_id=LONG, output="x")],
    "words of an append": spoken(transcript=LONG),
    "words of many appends": [*(spoken(transcript=f"{n}" + "x" * 30_000)[0] for n in range(20)), spoken()[1]],
    "an action": spoken(overlap_action=LONG),
    "a delete": [{"type": "conversation.item.delete", "item_id": LONG}],
    "a retrieve": [{"type": "conversation.item.retrieve", "item_id": LONG}],
    "a truncate": [{"type": "conversation.item.truncate", "item_id": LONG, "audio_end_ms": 1}],
    "an acknowledgement": [{"type": "playback.ack", "item_id": LONG, "played_ms": 1}],
    "a cancel": [{"type": "response.cancel", "response_id": LONG}],
    "a clear": [{"type": "output_audio_buffer.clear", "response_id": LONG}],
    "an event's number": [{"type": "session.event_ack", "server_event_seq": LONG}],
    "a resume": [{"type": "session.resume", "session_id": LONG, "resume_token": LONG}],
    "a goodbye": [{"type": "session.close", "reason": LONG}],
}
"""Everything of a client that could be said back to it."""


def sizes(person: Person) -> dict[str, int]:
    """The biggest frame of each type."""
    found: dict[str, int] = {}
    for heard in person.heard:
        size = len(json.dumps(heard.event, ensure_ascii=False, separators=(",", ":")).encode())
        found[heard.type] = max(found.get(heard.type, 0), size)
    return found


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("said", SAID)
def test_nothing_a_client_says_comes_back_as_a_frame_that_is_too_big(said: str, profile: Profile) -> None:
    async def story() -> None:
        async with open_rig(mode="turn", script=ANSWERS) as rig:
            async with rig.caller(session={"turn_detection": None}, profile=profile, marks=False) as person:
                for word in SAID[said]:
                    await person.sends_together(word)
                await person.waits(2)
                for heard in [*person.heard]:
                    if heard.type == "conversation.item.added":
                        item_id = heard.event["item"]["id"]  # type: ignore[index]
                        await person.sends("conversation.item.retrieve", item_id=item_id)
                        await person.hears("conversation.item.retrieved")
                if said != "a goodbye":
                    assert not person.ended, person.heard[-1]
                    await person.appends(1.0)
                    await person.commits()
                    await person.hears("response.done", status="completed")
            assert max(sizes(person).values()) < FRAME_BYTES, sizes(person)

    run_story(story)


FITTING = ("instructions that nearly fit", "a message that nearly fits", "metadata that nearly fits", "sound")


@pytest.mark.parametrize("said", FITTING)
def test_what_nearly_fits_is_taken(said: str) -> None:
    async def story() -> None:
        async with open_rig(mode="turn", script=ANSWERS) as rig, rig.caller() as person:
            for word in SAID[said]:
                await person.sends_together(word)
            await person.waits(2)
            assert not person.all("error")

    run_story(story)


class AtOnce(Talker):
    """Gives a whole minute in one piece."""

    async def answer(self, epoch: Epoch, turn: Turn, response: Response) -> None:
        await response.audio(bytes(2 * 60 * 24_000), text="word " * 600)


FORMATS: list[dict[str, Any]] = [
    {"output_audio_format": "pcm16"},
    {"output_audio_format": "wav"},
    {"output_audio_format": "g711_ulaw"},
    {"audio": {"output": {"format": {"type": "pcm16", "rate": 192_000}}}, "extra_body": {"resample_output": True}},
    {"audio": {"output": {"format": {"type": "wav", "rate": 192_000}}}, "extra_body": {"resample_output": True}},
]


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("session", FORMATS, ids=[str(session)[:70] for session in FORMATS])
def test_a_minute_in_one_block_is_cut_into_small_deltas(session: dict[str, Any], profile: Profile) -> None:
    async def story() -> None:
        async with open_rig(AtOnce()) as rig:
            async with rig.caller(session={**session, "turn_detection": None}, profile=profile, marks=False) as person:
                await person.appends(1.0)
                await person.commits()
                done = await person.hears("response.done", status="completed")
                response_id = done["response_id"]
                await person.sends("conversation.item.retrieve", item_id=f"item_{response_id}")
                await person.hears("conversation.item.retrieved")
                rate_hz = person.all("response.output_audio.delta")[0]["sample_rate_hz"]
                assert isinstance(rate_hz, int)
                longest = max(len(delta.pcm) for delta in person.all("response.output_audio.delta"))
                assert longest <= 2 * rate_hz * 0.5 + 44
                (shown,) = person.all("conversation.item.retrieved")
                assert not [part for part in shown.event["item"]["content"] if "audio" in part]  # type: ignore[index]
            assert max(sizes(person).values()) < FRAME_BYTES, sizes(person)

    run_story(story)


class Long(Talker):
    """Gives an answer of very many pieces."""

    async def answer(self, epoch: Epoch, turn: Turn, response: Response) -> None:
        for number in range(PIECES):
            await response.audio(bytes(2 * 240), text=f"{number % 10} ")


PIECES = 2_500


def test_an_answer_of_very_many_pieces_shows_as_many_marks_as_fit_and_the_last() -> None:
    async def story() -> None:
        async with open_rig(Long()) as rig, rig.caller(marks=False) as person:
            await person.appends(1.0)
            await person.commits()
            done = await person.hears("response.done", status="completed")
            assert max(sizes(person).values()) < FRAME_BYTES, sizes(person)
            marks = done["audio_text_marks"]
            assert isinstance(marks, list)
            assert marks[-1] == {"text_chars": 2 * PIECES, "audio_end_ms": 10 * PIECES}
            assert marks == sorted(marks, key=lambda mark: mark["audio_end_ms"])
            assert 500 < len(marks) <= 1000
            assert done["transcript"] == "0 1 2 3 4 5 6 7 8 9 " * (PIECES // 10)

    run_story(story)


class Endless(Talker):
    """Talks, with sound and without, or calls functions, for as long as it is let."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    async def answer(self, epoch: Epoch, turn: Turn, response: Response) -> None:
        number = 0
        while True:
            number += 1
            if self._kind == "sound":
                await response.audio(bytes(2 * 240), text='"ä\n" ' * 8)
            elif self._kind == "words":
                await response.text('"ä\n" ' * 500)
            else:
                await response.call(FunctionCall("f" * 64, '{"ä": "\\n"}' * (number % 500), f"call_{number}"))


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("kind", ["sound", "words", "calls"])
def test_an_answer_without_an_end_is_ended_before_its_last_event_is_too_big(kind: str, profile: Profile) -> None:
    async def story() -> None:
        async with open_rig(Endless(kind)) as rig:
            session = {"turn_detection": None, "metadata": {"a": "ä" * 7_000}}
            async with rig.caller(session=session, profile=profile, marks=False) as person:
                await person.sends("conversation.item.create", item={"content": [{"type": "input_text", "text": "go"}]})
                await person.sends("response.create", response={"metadata": {"b": "ö" * 7_000}})
                await person.hears("response.done", status="incomplete", reason="max_output_tokens")
                assert sum(len(json.dumps(heard.event)) for heard in person.heard) > FRAME_BYTES / 2
            assert max(sizes(person).values()) < FRAME_BYTES, sizes(person)

    run_story(story)


def test_what_a_client_has_missed_comes_in_frames_of_the_same_size() -> None:
    async def story() -> None:
        options = {"resume": True, "lead_s": 0.2, "script": 'speak "a long answer" for 40'}
        async with open_rig(mode="turn", **options) as rig, rig.caller() as person:
            await person.sends_together(written("x" * 220_000))
            await person.appends(1.0)
            await person.commits()
            await person.hears("response.output_audio.delta")
            person.loses_the_line()
            await person.waits(25)
            known = len(person.heard)
            await person.comes_back()
            assert len(person.heard) > known + 100
            await person.hears("response.done", status="completed")
            assert max(sizes(person).values()) < FRAME_BYTES, sizes(person)

    run_story(story)


# --- on real sockets ------------------------------------------------------------------------------------------------


async def lives(caller: Caller) -> None:
    await caller.say("session.heartbeat")
    await caller.hears("session.heartbeat_ack")


async def test_a_message_that_is_too_big_for_us_is_that_session_s_business_alone() -> None:
    async with house(Talker()) as server:
        neighbour, caller = await server.call(), await server.call()
        await neighbour.open()
        await caller.open()
        await neighbour.asks()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(caller.send, frame(TEXT, json.dumps({"type": "x" * 15 * MIB}).encode()))
            error = await caller.next_event()
        assert error["error"]["code"] == "event_too_large"
        await lives(caller)
        caller_is_told = await caller_sends_too_much(caller)
        assert caller_is_told == 1009
        await neighbour.hears("response.done")
        await server.settles(1)
        await lives(neighbour)


async def caller_sends_too_much(caller: Caller) -> int:
    """The header alone is enough."""
    await caller.send(header(TEXT, 17 * MIB) + bytes(4) + b"x" * MIB)
    return int(await caller.close_code())


async def test_a_message_of_several_megabytes_is_taken_and_not_said_back() -> None:
    async with house(Talker()) as server:
        caller = await server.call()
        voice = f"data:audio/wav;base64,{'A' * 4 * MIB}"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(caller.open, {"ref_audio": voice})
        await caller.say("input_audio_buffer.append", audio=base64.b64encode(bytes(6 * MIB)).decode())
        await caller.say("session.update", session={})
        updated = await caller.hears("session.updated")
        assert updated["session"]["ref_audio"] == {"bytes": len(voice)}
        assert len(json.dumps(updated)) < FRAME_BYTES
