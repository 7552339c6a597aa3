"""Kind: what a client says about playback comes too late, twice, backwards or about nothing, and ends its call."""

from collections.abc import Mapping

import pytest

from duplex_engine.protocol.session_config import Profile
from duplex_engine.testing.caller import Caller
from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore, run_story

WORDS = "one two three four five six seven eight nine ten"
SCRIPT = f'speak "{WORDS}" for 5; forever {{ speak "{{history}}" for 1 }}'
SESSION = {"sample_rate_hz": 16000, "turn_detection": None}

COMMIT = {"type": "input_audio_buffer.commit", "response_create": True}
SUPERSEDED: dict[str, list[Mapping[str, object]]] = {
    "commit": [COMMIT],
    "cancel": [{"type": "response.cancel"}],
    "barge-in": [{"type": "barge_in"}],
    "clear": [{"type": "output_audio_buffer.clear"}],
    "cancelled input": [{"type": "input.cancel"}],
    "cancel and commit": [{"type": "response.cancel"}, COMMIT],
}


async def first_answer(caller: Caller) -> object:
    await caller.appends(1.0)
    await caller.commits()
    return (await caller.hears("response.created"))["response_id"]


async def history(caller: Caller) -> str:
    """What the model believes was said, by its next answer."""
    while len(caller.all("response.created")) > len(caller.all("response.done")):
        await caller.hears("response.done")
    await caller.appends(1.0)
    await caller.commits()
    created = await caller.hears("response.created")
    await caller.hears("response.done", response_id=created["response_id"], status="completed")
    return caller.transcript(created["response_id"])


@pytest.mark.parametrize("profile", list(Profile))
@pytest.mark.parametrize("steps", SUPERSEDED.values(), ids=list(SUPERSEDED))
def test_an_acknowledgement_that_crosses_the_end_of_its_answer_is_taken(
    steps: list[Mapping[str, object]], profile: Profile
) -> None:
    """The player counts on while the server has moved on; both were right when they spoke."""

    async def story() -> None:
        async with open_rig(mode="turn", lead_s=0.2, script=SCRIPT) as rig:
            async with rig.caller(session=SESSION, profile=profile) as caller:
                first = await first_answer(caller)
                await caller.waits(2.0)
                await caller.acks(500, response_id=first)
                await caller.hears("playback.acknowledged")
                await caller.appends(1.0)
                ack = {"type": "playback.ack", "response_id": first, "played_ms": 1100}
                await caller.sends_together(*steps, ack, {**ack, "played_ms": 900})
                for _ in range(2):
                    await caller.hears("playback.acknowledged")
                await caller.waits(4.0)
                assert not caller.all("error")
                assert not caller.ended
                heard = await history(caller)
                if steps != [COMMIT]:
                    assert ("one two" in heard) is (steps != SUPERSEDED["clear"]), "a clear is for good"
                    assert "four" not in heard

    run_story(story)


@explore
async def test_the_first_acknowledgement_of_all_may_come_turns_later() -> None:
    """Its words stand where the answer began, before the turns that followed it."""
    script = f'speak "{WORDS}" for 5; speak "second" for 0.4; speak "{{history}}" for 1'
    async with open_rig(mode="turn", script=script) as rig:
        async with rig.caller(session={"playback_commit_policy": "commit_all_on_done"}) as caller:
            first = await first_answer(caller)
            await caller.hears("response.done", status="completed")
            await caller.types("and then")
            await caller.asks()
            await caller.hears("response.done", status="completed")
            await caller.acks(2000, response_id=first)
            await caller.hears("playback.acknowledged")
            heard = await history(caller)
            assert heard.index("one two") < heard.index("and then") < heard.index("second")
            assert not caller.all("error")


@pytest.mark.parametrize("profile", list(Profile))
def test_acknowledgements_of_nothing_are_one_error_each(profile: Profile) -> None:
    async def story() -> None:
        async with open_rig(mode="turn", script='forever { speak "fine" for 0.4 }') as rig:
            async with rig.caller(session=SESSION, profile=profile) as caller:
                early = await caller.acks(100)
                await caller.hears("error", code="playback_item_not_found", event_id=early)
                first = await first_answer(caller)
                await caller.hears("response.done", status="completed")
                user_item = caller.all("conversation.item.added")[0]["id"]
                for fields, code in (
                    ({"response_id": "resp_none"}, "playback_item_not_found"),
                    ({"item_id": "item_none"}, "playback_item_not_found"),
                    ({"item_id": user_item}, "playback_item_not_found"),
                    ({"response_id": first, "item_id": user_item}, "playback_item_mismatch"),
                ):
                    event_id = await caller.acks(100, **fields)
                    await caller.hears("error", code=code, event_id=event_id)
                    assert len(caller.all("error", event_id=event_id)) == 1
                await caller.sends("conversation.item.delete", item_id=f"item_{first}")
                gone = await caller.acks(400, response_id=first)
                await caller.hears("error", code="playback_item_not_found", event_id=gone)
                await first_answer(caller)
                await caller.hears("response.done", status="completed")

    run_story(story)


@pytest.mark.parametrize("policy", ["ack_only", "commit_all_on_done", None])
def test_acknowledgements_never_go_backwards(policy: str | None) -> None:
    async def story() -> None:
        session = {} if policy is None else {"playback_commit_policy": policy}
        async with open_rig(mode="turn", lead_s=0.2, script=SCRIPT) as rig:
            async with rig.caller(session=session) as caller:
                first = await first_answer(caller)
                await caller.waits(3.0)
                for played_ms, expected in ((500, 500), (2000, 2000), (900, 2000), (-1, 2000), (0, 2000)):
                    await caller.acks(played_ms, response_id=first)
                    told = (await caller.hears("playback.acknowledged"))["playback"]
                    assert isinstance(told, dict)
                    assert (told["played_ms"], told["committed_ms"]) == (expected, expected)
                await caller.interrupts()
                await caller.hears("response.done", status="cancelled")
                await caller.acks(100, response_id=first)
                heard = await history(caller)
                assert "one two three" in heard
                assert "six" not in heard

    run_story(story)
