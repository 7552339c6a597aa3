"""A turn is committed while the model is still speaking: it is answered afterwards."""

from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore

SCRIPT = 'speak "first" for 4; speak "second" for 1'


@explore
async def test_a_deferred_turn_is_answered_when_the_answer_is_complete() -> None:
    async with open_rig(mode="turn", lead_s=0.2, script=SCRIPT) as rig:
        async with rig.caller() as caller:
            await caller.appends(1.0)
            await caller.commits()
            await caller.hears("response.created")
            await caller.speaks(1.6)
            await caller.commits()
            await caller.hears("input_audio_buffer.committed", overlap_deferred=True, response_create_deferred=True)
            await caller.hears("response.done", status="completed")
            await caller.hears("response.created")
            await caller.hears("response.done", status="completed")
        assert [caller.transcript(response) for response in caller.responses()] == ["first", "second"]
        assert rig.timeline.precedes("response.done r1 completed", "response.created r2")


@explore
async def test_a_deferred_turn_that_asked_for_no_answer_waits() -> None:
    async with open_rig(mode="turn", lead_s=0.2, script=SCRIPT) as rig:
        async with rig.caller() as caller:
            await caller.appends(1.0)
            await caller.commits()
            await caller.hears("response.created")
            await caller.speaks(1.6)
            await caller.commits(response_create=False)
            await caller.hears("response.done", status="completed")
            await caller.hears_nothing_of("response.created", for_s=3)
            await caller.asks()
            await caller.hears("response.done", status="completed")


@explore
async def test_a_cancel_of_the_answer_keeps_the_deferred_turn() -> None:
    """Also where the cancel ends the model's context: the turn waits for the next one."""
    for interrupt in ("response", "epoch"):
        async with open_rig(mode="turn", lead_s=0.2, interrupt=interrupt, script=SCRIPT) as rig:
            async with rig.caller() as caller:
                await caller.appends(1.0)
                await caller.commits()
                await caller.hears("response.created")
                await caller.speaks(1.6)
                await caller.commits()
                await caller.hears("input_audio_buffer.committed", overlap_deferred=True)
                await caller.cancels()
                await caller.hears("response.done", status="cancelled")
                await caller.hears("response.created")
                await caller.hears("response.done", status="completed")
