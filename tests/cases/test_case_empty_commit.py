"""A commit with nothing to commit that makes a turn, asks the model, or cannot be told from the next one."""

from collections.abc import Awaitable, Callable

import pytest

from duplex_engine.protocol.session_config import Profile
from duplex_engine.testing.caller import Caller
from duplex_engine.testing.rig import NATIVE, open_rig
from duplex_engine.testing.schedules import explore, run_story

EMPTY = {Profile.STRICT: "input_audio_buffer_empty", Profile.GA: "input_audio_buffer_commit_empty"}
"""How a profile says that there is nothing to commit."""
DETECTED = {"turn_detection": {"type": "server_vad"}}
ANSWERS = 'forever { speak "an answer" for 0.4 }'


async def nothing(caller: Caller) -> None:
    pass


async def committed_before(caller: Caller) -> None:
    await caller.appends(1.0)
    await caller.commits(response_create=False)


async def cleared_before(caller: Caller) -> None:
    await caller.appends(0.2)
    await caller.sends("input_audio_buffer.clear")
    await caller.hears("input_audio_buffer.cleared")


async def withdrawn_before(caller: Caller) -> None:
    await caller.appends(0.2)
    await caller.sends("input.cancel")
    await caller.hears("input_audio_buffer.cleared")


async def barged_in_before(caller: Caller) -> None:
    await caller.appends(0.2)
    await caller.interrupts()
    await caller.hears("input_audio_buffer.cleared")


async def refused_before(caller: Caller) -> None:
    for broken in ("", "AAA", "?"):
        await caller.sends("input_audio_buffer.append", audio=broken)
        await caller.hears("error", code="bad_audio")


async def typed_before(caller: Caller) -> None:
    await caller.types("hello")
    await caller.hears("conversation.item.done")


async def half_a_sample_before(caller: Caller) -> None:
    await caller.sends("input_audio_buffer.append", audio="AA==")


BEFORE = (
    nothing,
    committed_before,
    cleared_before,
    withdrawn_before,
    barged_in_before,
    refused_before,
    typed_before,
)


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("before", BEFORE, ids=lambda before: before.__name__)
def test_a_commit_of_nothing_is_one_error_by_its_name(
    before: Callable[[Caller], Awaitable[None]], profile: Profile
) -> None:
    @explore(examples=3)
    async def story() -> None:
        async with open_rig(mode="turn", script=ANSWERS) as rig:
            async with rig.caller(session={"turn_detection": None}, profile=profile) as caller:
                await before(caller)
                await caller.waits(0.1)
                known = len(caller.heard)
                for asked in (False, True):
                    empty = await caller.commits(response_create=asked)
                    await caller.hears("error", code=EMPTY[profile], event_id=empty)
                await caller.waits(1)
                assert [heard.type for heard in caller.heard[known:]] == ["error", "error"]
                await caller.appends(1.0)
                await caller.commits()
                await caller.hears("response.done", status="completed")
                assert len(caller.responses()) == 1

    story()


@explore
async def test_a_native_model_is_not_asked_by_a_commit_of_nothing() -> None:
    async with open_rig(script='listen 8; speak "an answer" for 0.4') as rig, rig.caller(session=NATIVE) as caller:
        for _ in range(3):
            empty = await caller.commits()
            await caller.hears("error", code="input_audio_buffer_empty", event_id=empty)
        await caller.speaks(0.72)
        await caller.hears("response.done", status="completed")
        assert not caller.all("input_audio_buffer.committed")


@explore
async def test_a_client_that_commits_what_the_detector_has_committed_makes_no_second_turn() -> None:
    """The common race: the detector is faster. Whatever the client then commits, only one answer comes."""
    async with open_rig(mode="turn", lead_s=0.2, script=ANSWERS) as rig:
        async with rig.caller(session=DETECTED) as caller:
            await caller.speaks(1.2)
            while not caller.all("input_audio_buffer.committed"):
                await caller.is_silent(0.08)
            for _ in range(3):  # of the rest of a chunk, of nothing, of silence
                await caller.commits()
                await caller.commits()
                await caller.is_silent(0.24)
            await caller.hears("response.done", status="completed")
            await caller.waits(2)
            assert len(caller.responses()) == 1
            assert {error["code"] for error in caller.all("error")} <= {EMPTY[Profile.STRICT]}
            assert len(caller.all("input_audio_buffer.committed", empty=True)) + len(caller.all("error")) == 6


@pytest.mark.parametrize("samples", [1, 2, 31, 160])
@pytest.mark.parametrize("profile", Profile)
def test_a_commit_of_next_to_nothing_is_a_silent_turn_that_nobody_answers(samples: int, profile: Profile) -> None:
    async def story() -> None:
        async with open_rig(mode="turn", script=ANSWERS) as rig:
            async with rig.caller(session={"turn_detection": None}, profile=profile) as caller:
                await caller.appends(samples / 16_000, loudness=0.0)
                await caller.commits()
                await caller.hears("input_audio_buffer.committed")
                if profile is Profile.STRICT:
                    await caller.hears("response.listen", reason="silence_or_noise")
                empty = await caller.commits()
                await caller.hears("error", event_id=empty)
                await caller.waits(1)
                assert not caller.responses()
                await caller.appends(1.0)
                await caller.commits()
                await caller.hears("response.done", status="completed")

    run_story(story)


@explore
async def test_a_commit_that_says_it_holds_no_speech_is_answered_by_listening() -> None:
    async with open_rig(mode="turn", script=ANSWERS) as rig, rig.caller() as caller:
        await caller.commits(is_speech=False)
        committed = await caller.hears("input_audio_buffer.committed")
        assert (committed["empty"], committed["no_response"]) == (True, True)
        await caller.hears("response.listen", reason="silence_or_noise")
        await caller.waits(1)
        assert not caller.responses()
        assert not caller.all("error")


def test_half_a_sample_is_no_turn() -> None:
    async def story() -> None:
        async with open_rig(mode="turn", script=ANSWERS) as rig, rig.caller() as caller:
            await half_a_sample_before(caller)
            await caller.commits()
            await caller.waits(1)
            assert not caller.responses()
            await caller.appends(1.0)
            await caller.commits()
            done = await caller.hears("response.done", status="completed")
            assert caller.audio_ms(done["response_id"]) == 400

    run_story(story)
