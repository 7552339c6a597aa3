"""Kind: an answer's events are incomplete, out of order or disagree with its last one, and stock clients stall."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from duplex_engine.protocol.session_config import Profile
from duplex_engine.testing.caller import Caller, Heard
from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore, run_story

CREATED = ["conversation.item.added", "conversation.item.created", "response.output_item.added"]
CLOSED = ["response.output_item.done", "conversation.item.done", "response.done", "rate_limits.updated"]
SPOKEN = [
    "response.created",
    *CREATED,
    "response.content_part.added",
    "response.output_audio.delta",
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    *CLOSED,
]
CALLED = [
    "response.created",
    *CREATED,
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    *CLOSED,
]
SILENT = ["response.created", *CREATED, "response.content_part.added", "response.content_part.done", *CLOSED]
WRITTEN = [
    "response.created",
    *CREATED,
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    *CLOSED,
]
BESIDE = ("response.speak", "response.listen", "session.updated", "response.output_audio_transcript.delta")
"""What may come in between without being part of the life of an answer."""


def lives(caller: Caller) -> dict[str, list[Heard]]:
    """All events between each answer's first and last, repeated deltas told once, by response."""
    told: dict[str, list[Heard]] = {}
    current = ""
    for heard in caller.heard:
        if heard.type == "response.created":
            current = str(heard["response_id"])
            told[current] = []
        if not current or heard.type in BESIDE:
            continue
        told[current].append(heard)
        if heard.type == "rate_limits.updated":
            current = ""
    return told


def kinds(life: Sequence[Heard]) -> list[str]:
    """Their types; a run of deltas is one."""
    types = [heard.type for heard in life]
    return [kind for place, kind in enumerate(types) if place == 0 or kind != types[place - 1]]


def check_ids(life: Sequence[Heard]) -> dict[str, Any]:
    """One response, one item, one part, and `response.done` shows that item as it was closed; returns the item."""
    response_id = life[0]["response_id"]
    done = next(heard for heard in life if heard.type == "response.done")
    (item,) = done.event["response"]["output"]  # type: ignore[index]
    for heard in life:
        if heard.type.startswith("response."):
            assert heard["response_id"] == response_id, heard.event
            assert heard.event.get("output_index", 0) == 0
            assert heard.event.get("content_index", 0) == 0
            assert heard.event.get("item_id", item["id"]) == item["id"]
        shown = heard.event.get("item")
        if isinstance(shown, Mapping):
            assert shown["id"] == item["id"]
            assert shown["type"] == item["type"]
            closed = heard.type.endswith(".done")
            assert shown["status"] == (item["status"] if closed else "in_progress")
            if closed:
                assert shown == item
    return item  # type: ignore[no-any-return]


async def asks(caller: Caller) -> str:
    await caller.appends(1.0)
    await caller.commits()
    return str((await caller.hears("response.created"))["response_id"])


@pytest.mark.parametrize("profile", list(Profile))
@pytest.mark.parametrize("mode", ["turn", "native"])
def test_a_completed_answer_is_told_from_its_beginning_to_its_end(mode: str, profile: Profile) -> None:
    async def story() -> None:
        script = 'listen 1; speak "one two three" for 2.4; listen 1'
        session = {"sample_rate_hz": 16000, "turn_detection": None, "extra_body": {"auto_response": mode == "native"}}
        async with open_rig(mode=mode, script=script) as rig, rig.caller(profile=profile, session=session) as caller:
            response_id = await asks(caller)
            await caller.hears("response.done", status="completed")
            await caller.hears("rate_limits.updated")
            (life,) = lives(caller).values()
            assert kinds(life) == SPOKEN
            item = check_ids(life)
            assert item["status"] == "completed"
            (part,) = item["content"]
            assert (part["type"], part["transcript"]) == ("output_audio", "one two three")
            assert caller.transcript(response_id) == "one two three"
            assert caller.all("response.output_audio_transcript.done", transcript="one two three")
            assert caller.all("response.content_part.done")[0]["transcript"] == "one two three"

    run_story(story)


@pytest.mark.parametrize(("profile", "status"), [(Profile.STRICT, "cancelled"), (Profile.GA, "incomplete")])
@pytest.mark.parametrize("command", ["response.cancel", "barge_in", "output_audio_buffer.clear", "input.cancel"])
def test_a_cancelled_answer_keeps_what_was_exposed(profile: Profile, status: str, command: str) -> None:
    async def story() -> None:
        script = 'speak "one two three four five six seven eight nine ten" for 4'
        session = {"sample_rate_hz": 16000, "turn_detection": None}
        async with open_rig(mode="turn", lead_s=0.2, script=script) as rig:
            async with rig.caller(profile=profile, session=session) as caller:
                response_id = await asks(caller)
                await caller.waits(1.5)
                await caller.sends(command)
                await caller.hears("response.done", status="cancelled", response_id=response_id)
                await caller.hears("rate_limits.updated")
                (life,) = lives(caller).values()
                assert [kind for kind in kinds(life) if kind[:12] not in ("output_audio", "input_audio_")] == SPOKEN
                item = check_ids([heard for heard in life if heard.type != "input_audio_buffer.cleared"])
                assert item["status"] == status
                (part,) = item["content"]
                assert caller.transcript(response_id).startswith(part["transcript"])
                assert part["transcript"].startswith("one two")
                assert "six" not in part["transcript"]

    run_story(story)


@pytest.mark.parametrize(("profile", "status"), [(Profile.STRICT, "cancelled"), (Profile.GA, "incomplete")])
def test_an_answer_that_is_cancelled_before_it_says_anything_has_no_audio_terminals(
    profile: Profile, status: str
) -> None:
    async def story() -> None:
        session = {"sample_rate_hz": 16000, "turn_detection": None}
        async with open_rig(mode="turn", script='wait 5; speak "too late" for 1') as rig:
            async with rig.caller(profile=profile, session=session) as caller:
                await asks(caller)
                await caller.waits(1.0)
                await caller.cancels()
                await caller.hears("response.done", status="cancelled")
                await caller.hears("rate_limits.updated")
                (life,) = lives(caller).values()
                assert kinds(life) == SILENT
                item = check_ids(life)
                assert (item["status"], item["content"]) == (status, [])

    run_story(story)


@pytest.mark.parametrize(("profile", "status"), [(Profile.STRICT, "failed"), (Profile.GA, "incomplete")])
def test_an_answer_that_fails_is_told_to_its_end(profile: Profile, status: str) -> None:
    async def story() -> None:
        session = {"sample_rate_hz": 16000, "turn_detection": None}
        async with open_rig(mode="turn", script='speak "one two" for 1; fail "broken"') as rig:
            async with rig.caller(profile=profile, session=session) as caller:
                await asks(caller)
                await caller.hears("response.done", status="failed")
                await caller.hears("rate_limits.updated")
                (life,) = lives(caller).values()
                assert [kind for kind in kinds(life) if kind != "error"] == SPOKEN
                item = check_ids([heard for heard in life if heard.type != "error"])
                assert item["status"] == status
                assert item["content"][0]["transcript"] == "one two"

    run_story(story)


@pytest.mark.parametrize("profile", list(Profile))
@pytest.mark.parametrize("mode", ["turn", "native"])
def test_an_answer_that_only_calls_a_function_has_no_audio_terminals(mode: str, profile: Profile) -> None:
    """`strict` gives each call a response of its own, `ga` makes it an item of the answer."""

    async def story() -> None:
        script = 'listen 1; call lookup {"city": "Oslo"}; listen'
        session = {"sample_rate_hz": 16000, "turn_detection": None, "extra_body": {"auto_response": mode == "native"}}
        async with open_rig(mode=mode, script=script) as rig:
            async with rig.caller(profile=profile, session=session) as caller:
                await caller.appends(1.0)
                await caller.commits()
                called = await caller.hears("response.function_call_arguments.done", arguments='{"city": "Oslo"}')
                await caller.waits(3.0)
                life = [heard for heard in caller.heard if _about(called["item_id"], heard)]
                assert kinds(life) == CALLED[1:-2]
                done = next(
                    heard for heard in caller.all("response.done") if heard["response_id"] == called["response_id"]
                )
                output = done.event["response"]["output"]  # type: ignore[index]
                index = int(str(called["output_index"]))
                assert output[index] == life[-1].event["item"]
                assert not [heard for heard in caller.heard if "output_audio" in heard.type]

    run_story(story)


def _about(item_id: object, heard: Heard) -> bool:
    item = heard.event.get("item")
    return heard.event.get("item_id") == item_id or (isinstance(item, Mapping) and item["id"] == item_id)


@explore
async def test_a_written_answer_is_told_from_its_beginning_to_its_end() -> None:
    session = {"sample_rate_hz": 16000, "turn_detection": None, "output_modalities": ["text"]}
    async with open_rig(mode="turn", script='speak "one two three" for 0.8') as rig:
        async with rig.caller(profile=Profile.GA, session=session) as caller:
            await asks(caller)
            await caller.hears("response.done", status="completed")
            await caller.hears("rate_limits.updated")
            (life,) = lives(caller).values()
            assert kinds(life) == WRITTEN
            assert check_ids(life)["content"] == [{"type": "output_text", "text": "one two three"}]


@pytest.mark.parametrize("late", ["playback.ack", "conversation.item.truncate", "output_audio_buffer.clear"])
def test_an_item_that_was_closed_stays_as_it_was_closed(late: str) -> None:
    """What happens afterwards may shorten what counts as heard, and takes nothing back of the answer's end."""

    async def story() -> None:
        async with open_rig(mode="turn", script='speak "one two three" for 2.4') as rig, rig.caller() as caller:
            response_id = await asks(caller)
            await caller.hears("response.done", status="completed")
            await caller.waits(1.0)
            fields = {"item_id": f"item_{response_id}", "response_id": response_id}
            await caller.sends(late, audio_end_ms=800, content_index=0, played_ms=800, **fields)
            await caller.waits(0.1)
            await caller.sends("conversation.item.retrieve", item_id=f"item_{response_id}")
            retrieved = await caller.hears("conversation.item.retrieved")
            assert retrieved["status"] == "completed"
            assert len(caller.all("response.done")) == 1
            assert not caller.all("error")

    run_story(story)


@pytest.mark.parametrize("profile", list(Profile))
def test_sound_that_nobody_took_is_withdrawn_together_with_its_words(profile: Profile) -> None:
    async def story() -> None:
        session = {"sample_rate_hz": 16000, "turn_detection": None}
        script = 'speak "one two three four five six seven eight nine ten" for 10'
        async with open_rig(mode="turn", script=script) as rig:
            async with rig.caller(profile=profile, session=session) as caller:
                await caller.appends(1.0)
                await caller.commits()
                await caller.hears("response.created")
                await caller.hears("response.output_audio.delta")
                caller.stops_reading()
                await caller.waits(1.0)
                await caller.cancels()
                await caller.waits(0.1)
                caller.reads_on()
                await caller.hears("response.done", status="cancelled")
                body = [heard for heard in caller.heard if heard.type.endswith(".delta")]
                sounds = [heard for heard in body if heard.type == "response.output_audio.delta"]
                assert 0 < len(sounds) < 20
                words = [heard for heard in body if heard not in sounds]
                assert len(words) == len(sounds) if profile is Profile.STRICT else len(words) <= len(sounds)
                if profile is Profile.STRICT:
                    assert [heard.type for heard in body] == [sounds[0].type, words[0].type] * len(sounds)

    run_story(story)
