"""Kind: a client that guesses how much was heard guesses wrong, or guesses nothing at all, and is cut off for it."""

from collections.abc import Mapping

import pytest

from duplex_engine.protocol.session_config import Profile
from duplex_engine.testing.caller import Caller
from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import run_story

WORDS = "one two three four five six"
SESSION = {"sample_rate_hz": 16000, "turn_detection": None}
BOTH = pytest.mark.parametrize("profile", list(Profile))


async def truncates(caller: Caller, item_id: object, audio_end_ms: object, content_index: object = 0) -> str:
    fields = {"item_id": item_id, "content_index": content_index, "audio_end_ms": audio_end_ms}
    return await caller.sends("conversation.item.truncate", **fields)


async def item(caller: Caller, item_id: object) -> Mapping[str, object]:
    """The item as it stands."""
    await caller.sends("conversation.item.retrieve", item_id=item_id)
    shown = (await caller.hears("conversation.item.retrieved")).event["item"]
    assert isinstance(shown, Mapping)
    return shown


async def asks(caller: Caller) -> str:
    await caller.appends(1.0)
    await caller.commits()
    return str((await caller.hears("response.created"))["response_id"])


async def history(caller: Caller) -> str:
    response_id = await asks(caller)
    await caller.hears("response.done", status="completed", response_id=response_id)
    return caller.transcript(response_id)


@BOTH
@pytest.mark.parametrize("excess_ms", [2, 400, 10**9])
def test_more_than_there_is_cuts_nothing_and_ends_nothing(excess_ms: int, profile: Profile) -> None:
    """`ga` takes it as all of it, `strict` refuses it by name."""

    async def story() -> None:
        script = f'speak "{WORDS}" for 0.48; speak "{{history}}" for 1'
        async with open_rig(mode="turn", script=script) as rig:
            async with rig.caller(session=SESSION, profile=profile) as caller:
                item_id = f"item_{await asks(caller)}"
                await caller.hears("response.done", status="completed")
                before = await item(caller, item_id)
                event_id = await truncates(caller, item_id, 480 + excess_ms)
                if profile is Profile.GA:
                    truncated = await caller.hears("conversation.item.truncated")
                    assert truncated["audio_end_ms"] == 480
                    assert not caller.all("error")
                else:
                    error = await caller.hears("error", code="bad_event", event_id=event_id)
                    assert error["type"] == "invalid_request_error"
                    assert error["param"] == "audio_end_ms"
                    assert await item(caller, item_id) == before
                await caller.waits(1.0)
                assert WORDS in await history(caller)

    run_story(story)


@BOTH
@pytest.mark.parametrize("when", ["complete", "under way"])
def test_what_cannot_be_truncated_is_one_error_and_changes_nothing(when: str, profile: Profile) -> None:
    async def story() -> None:
        script = f'speak "{WORDS}" for 2; speak "{{history}}" for 1'
        lead_s = None if when == "complete" else 0.2
        async with open_rig(mode="turn", script=script, lead_s=lead_s) as rig:
            async with rig.caller(session=SESSION, profile=profile) as caller:
                item_id = f"item_{await asks(caller)}"
                await caller.waits(1.0)
                user_item = caller.all("conversation.item.added")[0]["id"]
                if when == "complete":
                    before = await item(caller, item_id)
                for fields in (
                    (item_id, -1),
                    (item_id, "x"),
                    (item_id, None),
                    (item_id, True),
                    (item_id, 100, 1),
                    (item_id, 100, -1),
                    ("item_unknown", 100),
                    ("", 100),
                    (user_item, 100),
                ):
                    event_id = await truncates(caller, *fields)
                    await caller.hears("error", event_id=event_id)
                    assert len(caller.all("error", event_id=event_id)) == 1
                nothing = await caller.sends("conversation.item.truncate", item_id=item_id, content_index=0)
                await caller.hears("error", event_id=nothing)
                assert not caller.all("conversation.item.truncated")
                if when == "complete":
                    assert await item(caller, item_id) == before
                else:
                    await caller.hears("response.done", status="completed")
                await caller.waits(3.0)
                assert WORDS in await history(caller)

    run_story(story)


# --- nothing was heard ---------------------------------------------------------------------------------------------

CANCEL: dict[str, object] = {"type": "response.cancel"}
CLEAR: dict[str, object] = {"type": "output_audio_buffer.clear"}


@BOTH
@pytest.mark.parametrize("stop", [CANCEL, CLEAR, {"type": "barge_in"}], ids=lambda stop: str(stop["type"]))
@pytest.mark.parametrize("stopped_first", [False, True], ids=["truncates, stops", "stops, truncates"])
@pytest.mark.parametrize("mode", ["turn", "native"])
def test_an_answer_that_is_stopped_before_its_first_sound_was_not_heard(
    mode: str, stopped_first: bool, stop: dict[str, object], profile: Profile
) -> None:
    async def story() -> None:
        script = f'listen 1; wait 1; speak "{WORDS}" for 2; listen 1; speak "{{history}}." for 1'
        session = {**SESSION, "extra_body": {"auto_response": False}}
        async with open_rig(mode=mode, script=script) as rig:
            async with rig.caller(session=session, profile=profile) as caller:
                await asks(caller)
                part = await caller.hears("response.content_part.added")
                truncate = {
                    "type": "conversation.item.truncate",
                    "item_id": part["item_id"],
                    "content_index": 0,
                    "audio_end_ms": 0,
                }
                await caller.sends_together(*((stop, truncate) if stopped_first else (truncate, stop)))
                await caller.hears("response.done", status="cancelled")
                await caller.waits(5.0)
                (truncated,) = caller.all("conversation.item.truncated")
                assert (truncated["audio_end_ms"], truncated["item_id"]) == (0, part["item_id"])
                assert len(caller.all("response.done")) == 1
                assert not caller.all("response.output_audio.delta")
                assert not caller.all("error")
                assert (await item(caller, part["item_id"]))["content"] == []
                assert "assistant" not in await history(caller)

    run_story(story)


@BOTH
def test_a_truncation_before_the_first_sound_leaves_the_answer_alone_and_out_of_the_history(profile: Profile) -> None:
    async def story() -> None:
        script = f'wait 1; speak "{WORDS}" for 2; speak "{{history}}." for 1'
        async with open_rig(mode="turn", script=script) as rig:
            async with rig.caller(session=SESSION, profile=profile) as caller:
                response_id = await asks(caller)
                await truncates(caller, f"item_{response_id}", 0)
                await caller.hears("conversation.item.truncated", audio_end_ms=0)
                await caller.hears("response.done", status="completed")
                assert caller.audio(response_id)
                await caller.waits(3.0)
                assert "assistant" not in await history(caller)

    run_story(story)
