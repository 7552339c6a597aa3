"""Kind: an answer whose playback was stopped early keeps the floor, or comes back into the history later."""

from collections.abc import Mapping

import pytest

from duplex_engine.protocol.session_config import Profile
from duplex_engine.testing.caller import Caller
from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import run_story

WORDS = "one two three four five six seven eight nine ten"
SCRIPT = f'speak "{WORDS}" for 5; speak "{{history}}" for 1'
POLICIES: list[dict[str, object]] = [
    {"playback_commit_policy": "ack_only"},
    {"playback_commit_policy": "commit_all_on_done"},
    {},
]

STOPS: dict[str, Mapping[str, object]] = {
    "clear": {"type": "output_audio_buffer.clear"},
    "clear by id": {"type": "output_audio_buffer.clear", "response_id": "ID"},
    "barge-in": {"type": "barge_in"},
    "cancelled input": {"type": "input.cancel"},
    "truncation": {"type": "conversation.item.truncate", "item_id": "item_ID", "content_index": 0, "audio_end_ms": 300},
    "truncating acknowledgement": {"type": "playback.ack", "response_id": "ID", "played_ms": 300, "truncate": True},
    "deletion": {"type": "conversation.item.delete", "item_id": "item_ID"},
}
"""Every way to say that a complete answer is played no further."""
FOR_GOOD = {"output_audio_buffer.clear", "conversation.item.truncate", "playback.ack"}
"""Those after which no acknowledgement counts any more; after the others the player may know better."""
HEARD = {True: "assistant: one", False: "assistant: one two"}
"""The most that was heard when it is stopped, as acknowledged, or as long as it could have been playing."""


def of(response_id: object, command: Mapping[str, object]) -> dict[str, object]:
    """The command, about this answer."""
    return {
        key: str(value).replace("ID", str(response_id)) if "ID" in str(value) else value
        for key, value in command.items()
    }


async def history(caller: Caller) -> str:
    """A normal next turn; what the model believes was said before it."""
    await caller.appends(0.8)
    await caller.commits(response_create=False)
    asked = await caller.asks()
    created = await caller.hears("response.created")
    await caller.hears("response.done", status="completed", response_id=created["response_id"])
    assert not caller.all("error", event_id=asked)
    return caller.transcript(created["response_id"])


@pytest.mark.parametrize("session", POLICIES, ids=["ack_only", "commit_all_on_done", "adaptive"])
@pytest.mark.parametrize("acknowledged", [True, False], ids=["acknowledged", "silent"])
@pytest.mark.parametrize("late", [True, False], ids=["acknowledged late", "left alone"])
@pytest.mark.parametrize("stop", STOPS.values(), ids=list(STOPS))
def test_a_complete_answer_that_is_stopped_frees_the_turn(
    stop: Mapping[str, object], late: bool, acknowledged: bool, session: dict[str, object]
) -> None:
    """Little of 5 seconds was heard; whatever is acknowledged afterwards, the rest never was."""

    async def story() -> None:
        async with open_rig(mode="turn", script=SCRIPT) as rig, rig.caller(session=session) as caller:
            await caller.appends(0.8)
            await caller.commits()
            first = (await caller.hears("response.done", status="completed"))["response_id"]
            await caller.waits(0.3)
            if acknowledged:
                await caller.acks(300, response_id=first)
            (event_id,) = await caller.sends_together(of(first, stop))
            await caller.waits(0.1)
            assert not caller.all("error", event_id=event_id)
            if late and stop["type"] in FOR_GOOD:
                await caller.acks(9000, response_id=first)
            assert len(await history(caller)) <= len(HEARD[acknowledged])

    run_story(story)


@pytest.mark.parametrize("profile", list(Profile))
def test_a_clear_is_answered_once_and_nothing_is_played_after_it(profile: Profile) -> None:
    async def story() -> None:
        session = {"sample_rate_hz": 16000, "turn_detection": None, "playback_commit_policy": "ack_only"}
        async with open_rig(mode="turn", script=SCRIPT) as rig:
            async with rig.caller(session=session, profile=profile) as caller:
                await caller.appends(0.8)
                await caller.commits()
                first = (await caller.hears("response.done", status="completed"))["response_id"]
                await caller.acks(300, response_id=first)
                await caller.sends("output_audio_buffer.clear")
                await caller.hears("output_audio_buffer.cleared", response_id=first)
                deltas = len(caller.all("response.output_audio.delta"))
                await caller.waits(6.0)
                assert len(caller.all("response.output_audio.delta")) == deltas
                assert len(caller.all("output_audio_buffer.cleared")) == 1
                assert len(caller.all("response.done")) == 1
                assert not caller.all("error")
                assert (await history(caller)).startswith("assistant: one"[:11])

    run_story(story)
