"""Stories of lost lines: the session lives and speaks on, and whoever comes back has missed nothing."""

import pytest

from duplex_engine.testing.caller import Caller
from duplex_engine.testing.rig import Rig, open_rig
from duplex_engine.testing.schedules import Ending, cancel_at_every_checkpoint, explore

WORDS = "one two three four five six seven eight nine ten eleven twelve"
ANSWER = f'speak "{WORDS}" for 12'
ALWAYS = f"forever {{ {ANSWER} }}"
TURN = {"mode": "turn", "resume": True, "lead_s": 0.2}
VAD = {"turn_detection": {"type": "server_vad"}}


async def asks(caller: Caller) -> None:
    await caller.appends(1.0)
    await caller.commits()
    await caller.hears("response.output_audio.delta")


@explore
async def test_who_comes_back_in_mid_answer_hears_all_of_it_once() -> None:
    async with open_rig(script=ANSWER, **TURN) as rig, rig.caller() as caller:
        await asks(caller)
        caller.loses_the_line()
        await caller.waits(0.5)
        await caller.comes_back()
        done = await caller.hears("response.done")
        assert done["status"] == "completed"
        await whole(caller)


async def whole(caller: Caller) -> None:
    """The caller has heard every word and every sample of the newest answer, once."""
    response_id = caller.responses()[-1]
    assert caller.transcript(response_id).split() == WORDS.split()
    rate_hz = 24_000
    assert caller.audio_ms(response_id) == len(caller.audio(response_id)) * 1000 // (2 * rate_hz)


@explore
async def test_an_answer_that_ended_meanwhile_is_waiting() -> None:
    async with open_rig(script=ALWAYS, **TURN) as rig, rig.caller() as caller:
        await asks(caller)
        caller.loses_the_line()
        await caller.waits(20)
        assert not caller.all("response.done")
        await caller.comes_back()
        await caller.hears("response.done", status="completed")
        await whole(caller)
        await asks(caller)
        await caller.hears("response.done", status="completed")


@explore
async def test_lines_that_fail_again_and_again_lose_nothing() -> None:
    async with open_rig(script=ANSWER, **TURN) as rig, rig.caller() as caller:
        await asks(caller)
        for _ in range(5):
            caller.loses_the_line()
            await caller.waits(0.13)
            await caller.comes_back()
            await caller.waits(0.05)
        await caller.hears("response.done", status="completed")
        await whole(caller)


@explore
async def test_nobody_is_there_and_the_answer_s_end_begins_the_next_one() -> None:
    """A deferred turn is answered although its caller is away."""
    async with open_rig(script=f'{ANSWER}; speak "second" for 2', **TURN) as rig, rig.caller() as caller:
        await asks(caller)
        await caller.appends(1.0, duration_ms=1000)
        await caller.commits(response_create=True)
        caller.loses_the_line()
        await caller.waits(25)
        await caller.comes_back()
        await caller.hears("response.done", status="completed")
        await caller.hears("response.done", status="completed")
        assert caller.transcript(caller.responses()[-1]).strip() == "second"


@explore
async def test_who_comes_back_can_cut_in_at_once() -> None:
    async with open_rig(script=ALWAYS, **TURN) as rig, rig.caller() as caller:
        await asks(caller)
        caller.loses_the_line()
        await caller.waits(0.3)
        await caller.comes_back()
        await caller.interrupts()
        await caller.hears("response.done", status="cancelled")
        await asks(caller)


@explore
async def test_the_first_thing_said_after_coming_back_may_interrupt() -> None:
    """Voice detection goes on where it was: the session was not reset by the loss."""
    async with open_rig(script=ANSWER, **TURN) as rig, rig.caller(session=VAD) as caller:
        await caller.speaks(1.2)
        await caller.is_silent(0.8)
        await caller.hears("response.output_audio.delta")
        caller.loses_the_line()
        await caller.waits(0.2)
        await caller.comes_back()
        await caller.speaks(1.2)
        await caller.hears("response.done", status="cancelled", reason="turn_detected")
        await caller.is_silent(0.8)
        await caller.hears("response.created")


@explore
async def test_a_model_that_decides_by_itself_speaks_on_into_the_journal() -> None:
    async with open_rig(script=f'listen 2; speak "{WORDS}" for 4; listen', resume=True) as rig, rig.caller() as caller:
        await caller.speaks(0.4)
        await caller.hears("response.output_audio.delta")
        caller.loses_the_line()
        await caller.waits(5)
        await caller.comes_back()
        await caller.hears("response.done")
        await whole(caller)


@pytest.mark.parametrize("ending", [Ending.RESPONSE, Ending.EPOCH])
def test_an_absence_at_any_moment_and_an_end_at_any_other(ending: Ending) -> None:
    """Each scheduling step of an absence once with something ending in it: the record stays whole and in order."""

    async def story(rig: Rig) -> None:
        async with rig.caller() as caller:
            await caller.appends(1.0)
            await caller.commits()
            await caller.waits(0.05)
            caller.loses_the_line()
            await caller.waits(0.1)
            await caller.comes_back()
            await caller.hears("response.done")

    script = 'speak "one two" for 2'
    runs = cancel_at_every_checkpoint(lambda: open_rig(script=script, **TURN), story, ending, schedules=1)
    assert runs > 20
