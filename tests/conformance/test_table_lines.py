"""Conformance checklist, line 17: the tables of `input_audio_buffer.commit` (3.4) and `response.create` (3.6), row by row."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from wire_rig import DELTA, DONE, NATIVE, Event, House, Line, Witness, house, native, turns

SLOWLY = 'forever { slow 0.5; speak "an answer that takes its time" for 2 }'
TALKATIVE = 'forever { listen 5; speak "hm" for 0.2; listen 5 }'

Row = Callable[[House], Awaitable[None]]


async def committed(line: Line) -> Event:
    """The next `committed`, with its item's events around it; returns its details."""
    event = await line.until("input_audio_buffer.committed")
    done = await line.until("conversation.item.done")
    added = line.all("conversation.item.added")[-1]
    assert event["item_id"] == done["item"]["id"] == added["item"]["id"]
    details: Event = event["event"]
    return details


async def is_answered(line: Line) -> None:
    """An answer comes and completes."""
    answer = await line.until("response.created")
    done = await line.until(DONE, response_id=answer["response_id"])
    assert done["response"]["status"] == "completed"


async def is_not_answered(line: Line) -> None:
    """Nothing is owed: whatever the session says, no answer begins."""
    before = len(line.all("response.created"))
    await line.is_well()
    assert len(line.all("response.created")) == before


async def listens(line: Line) -> None:
    """The next listen stands alone, and says that there was no speech."""
    listen = await line.until("response.listen")
    assert listen["response"]["metadata"]["reason"] == "silence_or_noise"
    assert "response_id" not in listen


async def talking(home: House) -> Line:
    """A caller in the middle of an answer."""
    line = await home.script(SLOWLY)
    await line.ask()
    await line.until(DELTA)
    return line


# --- 3.4 ----------------------------------------------------------------------------------------------------------


async def nothing_buffered(home: House) -> None:
    line = await home.open()
    await line.refused("input_audio_buffer_empty", event_id=await line.commit())
    await line.append(1)
    await line.commit(response_create=False)
    await committed(line)
    await line.refused("input_audio_buffer_empty", event_id=await line.commit())


async def only_silence(home: House) -> None:
    line = await home.open()
    await line.append(1, loud=False)
    await line.commit()
    flags = await committed(line)
    assert (flags["empty"], flags["is_speech"], flags["no_response"]) == (True, False, True)
    assert line.all("conversation.item.added")[-1]["item"]["content"][0]["is_speech"] is False
    await listens(line)
    await is_not_answered(line)
    assert "input_audio_buffer.speech_stopped" not in line.kinds


async def said_to_be_silence(home: House) -> None:
    line = await home.open()
    await line.commit(is_speech=False)
    flags = await committed(line)
    assert (flags["empty"], flags["is_speech"], flags["no_response"]) == (True, False, True)
    await listens(line)
    await is_not_answered(line)


async def behind_a_refused_append(home: House) -> None:
    line = await home.open()
    await line.refused("bad_audio", event_id=await line.say("input_audio_buffer.append", audio="?"))
    await line.refused("input_audio_buffer_empty", event_id=await line.commit())
    await line.append(1)
    await line.refused("bad_audio", event_id=await line.say("input_audio_buffer.append", audio="?"))
    await line.commit()
    await committed(line)
    await is_answered(line)


async def turn_idle_and_asked(home: House) -> None:
    line = await home.open()
    await line.append(1)
    await line.commit()
    flags = await committed(line)
    assert not {"empty", "no_response", "overlap_ack", "overlap_deferred"} & flags.keys()
    await is_answered(line)
    order = ["speech_started", "speech_stopped", "added", "created", "committed", "done"]
    kinds = [kind.rpartition(".")[2] for kind in line.kinds if kind.startswith(("input_audio", "conversation"))]
    assert kinds[:6] == order


async def turn_idle_and_not_asked(home: House) -> None:
    line = await home.open()
    for _ in range(3):
        await line.append(1)
        await line.commit(response_create=False)
        await committed(line)
    await is_not_answered(line)
    await line.say("response.create")
    await is_answered(line)
    await is_not_answered(line)


async def the_alias_asks_by_itself(home: House) -> None:
    line = await home.open()
    await line.append(1)
    await line.say("input_audio_buffer.commit")
    await committed(line)
    await is_not_answered(line)
    await line.append(1)
    await line.say("input.commit")
    await committed(line)
    await is_answered(line)


async def short_overlap(home: House) -> None:
    line = await talking(home)
    await line.append(0.6)
    await line.commit()
    flags = await committed(line)
    assert (flags["overlap_ack"], flags["empty"], flags["no_response"]) == (True, True, True)
    await line.until(DONE)
    await is_not_answered(line)
    await line.refused("response_create_without_input", event_id=await line.say("response.create"))


async def long_overlap_and_asked(home: House) -> None:
    line = await talking(home)
    await line.append(0.8)
    await line.commit()
    flags = await committed(line)
    assert (flags["overlap_deferred"], flags["response_create_deferred"]) == (True, True)
    done = await line.until(DONE)
    await is_answered(line)
    assert line.kinds[line.heard.index(done) + 1 : line.heard.index(done) + 3] == [
        "rate_limits.updated",
        "response.created",
    ]


async def long_overlap_and_not_asked(home: House) -> None:
    line = await talking(home)
    await line.append(0.8)
    await line.commit(response_create=False)
    flags = await committed(line)
    assert (flags["overlap_deferred"], flags["response_create_deferred"]) == (True, False)
    await line.until(DONE)
    await is_not_answered(line)
    await line.say("response.create")
    await is_answered(line)


async def long_overlap_of_a_cancelled_answer(home: House) -> None:
    line = await talking(home)
    await line.append(0.8)
    await line.commit()
    await committed(line)
    await line.say("output_audio_buffer.clear")
    await line.until(DONE)
    await is_not_answered(line)
    await line.say("response.create")
    await is_answered(line)


async def more_commits_than_may_wait(home: House) -> None:
    line = await talking(home)
    for _ in range(3):
        await line.append(0.8)
        await line.commit()
        await committed(line)
    await line.until(DONE)
    await is_answered(line)
    await is_not_answered(line)


async def native_speech(home: House) -> None:
    line = await home.open(NATIVE)
    await line.append(0.5)
    await line.commit(response_create=False)
    assert not {"empty", "no_response"} & (await committed(line)).keys()
    await line.append(0.5)
    await is_answered(line)


async def native_silence(home: House) -> None:
    line = await home.open(NATIVE)
    await line.append(0.1, loud=False)
    await line.commit()
    await committed(line)
    await listens(line)


TURN_COMMITS: list[Row] = [
    nothing_buffered,
    only_silence,
    said_to_be_silence,
    behind_a_refused_append,
    short_overlap,
    long_overlap_and_asked,
    long_overlap_and_not_asked,
    long_overlap_of_a_cancelled_answer,
    more_commits_than_may_wait,
    turn_idle_and_asked,
    turn_idle_and_not_asked,
    the_alias_asks_by_itself,
]
NATIVE_COMMITS: list[Row] = [native_speech, native_silence]


@pytest.mark.parametrize("row", TURN_COMMITS, ids=lambda row: row.__name__)
async def test_line_17_commit_of_a_turn(row: Row) -> None:
    async with house() as home:
        await row(home)


@pytest.mark.parametrize("row", NATIVE_COMMITS, ids=lambda row: row.__name__)
async def test_line_17_commit_of_a_native_session(row: Row) -> None:
    async with house(native(TALKATIVE)) as home:
        await row(home)


async def test_line_17_the_last_unit_of_a_native_commit_is_padded() -> None:
    witness = Witness()
    async with house(witness) as home:
        line = await home.open(NATIVE)
        await line.append(0.1)
        await line.commit()
        await witness.until_units(2)
        assert abs(witness.samples[1600:]).max() == 0
        assert abs(witness.samples[:1600]).max() > 0.3
        await line.until("response.listen")


# --- 3.6 ----------------------------------------------------------------------------------------------------------

TYPED: dict[str, Any] = {"item": {"content": [{"type": "input_text", "text": "Say something."}]}}


async def speak_without_asking(line: Line) -> None:
    await line.append(1)
    await line.commit(response_create=False)
    await committed(line)


async def committed_audio(home: House) -> None:
    line = await home.open()
    await speak_without_asking(line)
    await line.say("response.create")
    await is_answered(line)


async def typed_text(home: House) -> None:
    line = await home.open()
    await line.say("conversation.item.create", **TYPED)
    await line.until("conversation.item.done")
    await line.say("response.create")
    await is_answered(line)


async def nothing_to_answer(home: House) -> None:
    line = await home.open()
    await line.refused("response_create_without_input", event_id=await line.say("response.create"))


async def an_answer_is_being_given(home: House) -> None:
    line = await talking(home)
    await line.refused("response_already_active", event_id=await line.say("response.create"))
    done = await line.until(DONE)
    assert done["response"]["status"] == "completed"


async def not_acknowledged(home: House) -> None:
    line = await home.script('forever { slow 0.01; speak "a long answer, and not heard yet" for 20 }')
    answer = await line.ask()
    await line.until(DONE)
    await line.say("playback.ack", response_id=answer["response_id"], played_ms=100)
    await line.until("playback.acknowledged")
    await speak_without_asking(line)
    await line.refused("response_already_active", event_id=await line.say("response.create"))
    await line.say("playback.ack", response_id=answer["response_id"], played_ms=20_000)
    await line.until("playback.acknowledged")
    await line.say("response.create")
    await is_answered(line)


async def unsupported_format(home: House) -> None:
    line = await home.open()
    await speak_without_asking(line)
    event_id = await line.say("response.create", response={"output_audio_format": "opus"})
    error = await line.refused("unsupported_audio_format", event_id=event_id)
    assert error["param"] == "response.output_audio_format"
    await line.say("response.create")
    await is_answered(line)


async def native_busy(home: House) -> None:
    line = await home.open(NATIVE)
    await line.append(0.5)
    await line.until("response.created")
    await line.refused("response_already_active", event_id=await line.say("response.create"))
    await line.until(DONE)


async def native_owed(home: House) -> None:
    line = await home.script('wait 0.5; speak "hm" for 0.2; listen', **NATIVE)
    await line.append(0.1)
    await line.commit()
    await line.say("response.create")
    await committed(line)
    await is_answered(line)
    await is_not_answered(line)


async def native_typed(home: House) -> None:
    line = await home.open(NATIVE)
    await line.say("conversation.item.create", **TYPED)
    await line.until("conversation.item.done")
    await line.refused("text_only_turn_unsupported", event_id=await line.say("response.create"))
    await line.say("conversation.item.retrieve", item_id=line.all("conversation.item.done")[0]["item"]["id"])
    await line.until("conversation.item.retrieved")


TURN_CREATES: list[Row] = [
    committed_audio,
    typed_text,
    nothing_to_answer,
    an_answer_is_being_given,
    not_acknowledged,
    unsupported_format,
]
NATIVE_CREATES: list[Row] = [native_busy, native_owed, native_typed]


@pytest.mark.parametrize("row", TURN_CREATES, ids=lambda row: row.__name__)
async def test_line_17_create_in_a_turn_session(row: Row) -> None:
    async with house() as home:
        await row(home)


@pytest.mark.parametrize("row", NATIVE_CREATES, ids=lambda row: row.__name__)
async def test_line_17_create_in_a_native_session(row: Row) -> None:
    async with house(native(TALKATIVE)) as home:
        await row(home)


REFUSED_OPTIONS: dict[str, Any] = {
    "instructions": "Be brief.",
    "voice": "bass",
    "audio": {"output": {"voice": "bass"}},
    "temperature": 0.5,
    "max_response_output_tokens": 10,
    "max_output_tokens": 10,
    "max_tokens": 10,
    "tools": [],
    "tool_choice": "none",
}


@pytest.mark.parametrize("option", REFUSED_OPTIONS)
async def test_line_17_options_that_cannot_be_chosen_per_response_are_refused(option: str) -> None:
    async with house() as home:
        line = await home.open()
        await speak_without_asking(line)
        event_id = await line.say("response.create", response={option: REFUSED_OPTIONS[option]})
        error = await line.refused("unsupported_native_response_options", event_id=event_id)
        assert error["param"].startswith(f"response.{option}")
        await line.say("response.create", response={option: None})
        await is_answered(line)


async def created_with(line: Line, **options: Any) -> tuple[Event, Event]:
    """A response with these options: its `response.created` and its `response.done`."""
    await speak_without_asking(line)
    await line.say("response.create", response=options)
    answer = await line.until("response.created")
    return answer, await line.until(DONE, response_id=answer["response_id"])


async def test_line_17_options_that_apply_to_one_response() -> None:
    script = 'forever { speak "hello" for 0.5 }'
    async with house(turns(script=script)) as home:
        line = await home.open({"metadata": {"of": "session", "kept": "yes"}})
        answer, done = await created_with(line, modalities=["text"], metadata={"of": "response"}, input=[], id="mine")
        assert answer["response"]["modalities"] == ["text"]
        assert answer["response_id"] != "mine"
        assert {"of": "response", "kept": "yes"}.items() <= done["response"]["metadata"].items()
        answer, _ = await created_with(line, output_audio_format="g711_ulaw")
        (delta, *_) = line.all(DELTA, response_id=answer["response_id"])
        assert (delta["format"], delta["sample_rate_hz"]) == ("g711_ulaw", 8000)
        answer, done = await created_with(line)
        assert {"of": "session", "kept": "yes"}.items() <= done["response"]["metadata"].items()
        (delta, *_) = line.all(DELTA, response_id=answer["response_id"])
        assert (delta["format"], delta["sample_rate_hz"]) == ("pcm16", 24_000)


async def test_line_17_an_answer_outside_the_conversation_leaves_no_trace_in_the_history() -> None:
    async with house(turns(script='speak "secret" for 0.5; speak "{history}" for 0.5')) as home:
        line = await home.open()
        await created_with(line, conversation="none")
        answer, _ = await created_with(line)
        assert line.words(answer["response_id"]) == ""
