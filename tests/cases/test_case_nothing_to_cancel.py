"""A cancel that comes when there is nothing left to cancel, and does harm all the same."""

import pytest

from duplex_engine.protocol.session_config import Profile
from duplex_engine.testing.caller import Caller
from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore, run_story

NAMES = {Profile.STRICT: "response_not_active", Profile.GA: "response_cancel_not_active"}
"""How a profile says that nothing is active."""


async def is_refused(caller: Caller, profile: Profile, **fields: object) -> None:
    """One error, by the name of the command, and nothing else."""
    await caller.waits(0.05)  # for what was said before
    known = len(caller.heard)
    event_id = await caller.cancels(**fields)
    error = await caller.hears("error", code=NAMES[profile], event_id=event_id)
    await caller.waits(0.2)
    others = [heard.type for heard in caller.heard[known:] if heard is not error]
    assert not [kind for kind in others if not kind.startswith("response.output")], others


@pytest.mark.parametrize("profile", Profile)
def test_a_cancel_that_is_too_early_or_too_late_is_one_error_and_changes_nothing(profile: Profile) -> None:
    @explore(examples=5)
    async def story() -> None:
        script = 'forever { speak "an answer" for 0.4 }'
        session = {"turn_detection": None}
        async with open_rig(mode="turn", script=script) as rig, rig.caller(session=session, profile=profile) as caller:
            await is_refused(caller, profile)
            await caller.appends(0.5)
            await is_refused(caller, profile)
            await is_refused(caller, profile, response_id="resp_none")
            await caller.appends(0.5)
            await caller.commits(response_create=False)
            await is_refused(caller, profile)
            await caller.asks()
            done = await caller.hears("response.done", status="completed")
            assert caller.audio(done["response_id"])
            await caller.waits(1)
            for _ in range(2):
                await is_refused(caller, profile)
                await is_refused(caller, profile, response_id=done["response_id"])
            await caller.sends("session.update", session={})
            assert (await caller.hears("session.updated"))["epoch"] == 0
            await caller.appends(1.0)
            await caller.commits()
            await caller.hears("response.done", status="completed")

    story()


@explore
async def test_a_cancel_of_another_answer_leaves_the_running_one_alone() -> None:
    async with open_rig(mode="turn", lead_s=0.2, script='speak "short" for 0.4; speak "long" for 3') as rig:
        async with rig.caller() as caller:
            await caller.appends(1.0)
            await caller.commits()
            first = await caller.hears("response.done")
            await caller.appends(1.0)
            await caller.commits()
            second = await caller.hears("response.created")
            await caller.waits(1)
            await is_refused(caller, Profile.STRICT, response_id=first["response_id"])
            await is_refused(caller, Profile.STRICT, response_id="resp_none")
            await caller.hears("response.done", status="completed", response_id=second["response_id"])
            assert caller.audio_ms(second["response_id"]) == 3000


@explore
async def test_what_was_said_before_an_idle_cancel_is_answered() -> None:
    """Sound in the buffer, a committed turn and a typed message all survive it."""
    async with open_rig(mode="turn", script='forever { speak "{history}" for 0.4 }') as rig, rig.caller() as caller:
        await caller.types("written")
        await is_refused(caller, Profile.STRICT)
        await caller.appends(1.0, transcript="spoken")
        await is_refused(caller, Profile.STRICT)
        await caller.commits(response_create=False)
        await is_refused(caller, Profile.STRICT)
        await caller.asks()
        done = await caller.hears("response.done", status="completed")
        assert caller.transcript(done["response_id"]) == "user: written | user: spoken"


@explore
async def test_an_idle_cancel_costs_a_native_model_neither_its_context_nor_its_input() -> None:
    for interrupt in ("response", "epoch"):
        script = 'listen 6; speak "first" for 0.4; listen 4; speak "second" for 0.4'
        async with open_rig(interrupt=interrupt, script=script) as rig, rig.caller() as caller:
            for words in ("first", "second"):
                await caller.speaks(0.16)
                await is_refused(caller, Profile.STRICT)
                await caller.speaks(0.56)
                done = await caller.hears("response.done", status="completed")
                assert caller.transcript(done["response_id"]) == words


def test_every_way_to_stop_nothing_can_be_repeated() -> None:
    """`barge_in` and its kin say what they did to the buffer; none of them is an error, and none blocks the next turn."""

    async def story() -> None:
        async with open_rig(mode="turn", script='forever { speak "an answer" for 0.4 }') as rig, rig.caller() as caller:
            for kind, answer in (
                ("barge_in", "input_audio_buffer.cleared"),
                ("input.cancel", "input_audio_buffer.cleared"),
                ("input_audio_buffer.clear", "input_audio_buffer.cleared"),
                ("output_audio_buffer.clear", "output_audio_buffer.cleared"),
            ):
                for _ in range(2):
                    await caller.sends(kind)
                    await caller.hears(answer)
            assert not caller.all("error")
            await caller.appends(1.0)
            await caller.commits()
            await caller.hears("response.done", status="completed")

    run_story(story)
