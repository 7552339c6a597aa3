"""Kind: one call that outgrows the memory of its model takes others down with it, falls silent, or keeps its seat."""

from contextlib import suppress

import pytest

from duplex_engine.errors import CodedError, SessionGone
from duplex_engine.model_plugins.contract import Epoch
from duplex_engine.model_plugins.scripted.plugin import ScriptedNative, ScriptedPlugin
from duplex_engine.testing.caller import Caller
from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore, run_story

UNITS = 20
UNIT_S = 0.08
CODE = "context_length_exceeded"
CHATTING = 'forever { listen 3; speak "still chatting" for 0.4 }'


async def is_told_and_dropped(caller: Caller) -> None:
    """One typed error, the session's last word, and nothing left open."""
    end = await caller.hears_the_end()
    assert (end.type, end["reason"]) == ("session.closed", CODE)
    (error,) = caller.all("error")
    assert error["code"] == CODE
    assert error["type"] == "invalid_request_error"
    assert len(caller.all("response.created")) == len(caller.all("response.done"))
    starts = caller.all("input_audio_buffer.speech_started")
    assert len(starts) == len(caller.all("input_audio_buffer.speech_stopped"))


@pytest.mark.parametrize("script", ["listen", CHATTING, 'listen 2; speak "talking and talking" for 9'])
@pytest.mark.parametrize("interrupt", ["response", "epoch"])
def test_a_native_call_that_is_too_long_ends_alone(script: str, interrupt: str) -> None:
    """30 units are sent to a context of 20, while the model listens, chats, or talks."""

    async def story() -> None:
        async with open_rig(context_units=UNITS, script=script, interrupt=interrupt, max_sessions=2) as rig:
            patience = {"extra_body": {"auto_response": True, "script": "listen"}}
            async with rig.caller("patient", session=patience) as patient, rig.caller("long") as long:
                await patient.speaks(4 * UNIT_S)
                with suppress(SessionGone):
                    await long.speaks(30 * UNIT_S)
                await is_told_and_dropped(long)
                assert rig.engine.ready
                assert rig.engine.snapshot().seats_taken == 1
                async with rig.caller("next", session=patience) as following:
                    for caller in (patient, following):
                        await caller.speaks(4 * UNIT_S)
                        await caller.hears("response.listen")
                        assert not caller.all("error")

    run_story(story)


@explore
async def test_a_turn_that_does_not_fit_any_more_ends_that_call_alone() -> None:
    script = 'forever { speak "an answer" for 0.4 }'
    async with open_rig(mode="turn", context_units=UNITS, script=script, max_sessions=2) as rig:
        async with rig.caller("patient") as patient, rig.caller("long") as long:
            await patient.appends(0.4)
            await patient.commits()
            await patient.hears("response.done", status="completed")
            await long.appends(1.0)
            await long.commits()
            await long.hears("response.done", status="completed")
            await long.appends(1.0)
            await long.commits()
            await long.hears("response.done", status="failed", reason=CODE)
            await is_told_and_dropped(long)
            async with rig.caller("next") as following:
                for caller in (patient, following):
                    await caller.appends(0.3)
                    await caller.commits()
                    await caller.hears("response.done", status="completed")


@pytest.mark.parametrize(("units", "fits"), [(UNITS - 1, True), (UNITS, False)])
def test_a_context_that_is_filled_exactly_is_too_full(units: int, fits: bool) -> None:
    async def story() -> None:
        async with open_rig(context_units=UNITS, script="listen") as rig, rig.caller() as caller:
            await caller.appends(units * UNIT_S)
            await caller.waits(5)
            assert caller.ended is not fits
            if not fits:
                await is_told_and_dropped(caller)

    run_story(story)


@explore
async def test_a_fresh_context_has_its_whole_room_again() -> None:
    """Where an interruption ends the context, only what came after it counts."""
    script = 'listen 8; speak "interrupted" for 9'
    async with open_rig(context_units=UNITS, interrupt="epoch", script=script) as rig, rig.caller() as caller:
        for _ in range(4):
            await caller.appends(8 * UNIT_S)
            await caller.hears("response.created")
            await caller.cancels()
            await caller.hears("response.done", status="cancelled")
        assert not caller.all("error")


class Forgetful(ScriptedNative):
    """Finds at once that its context is full, outside of any answer."""

    async def converse(self, epoch: Epoch) -> None:
        await epoch.next_unit()
        raise CodedError(CODE, "there is no room left")


@explore
async def test_no_second_try_is_made_when_there_is_no_room() -> None:
    plugin = ScriptedPlugin(script="listen")
    async with open_rig(Forgetful(plugin.options), max_sessions=1) as rig:
        async with rig.caller() as caller:
            with suppress(SessionGone):
                await caller.speaks(5.0)
            await is_told_and_dropped(caller)
            assert caller.heard[-1].at - rig.began_at < 0.1
