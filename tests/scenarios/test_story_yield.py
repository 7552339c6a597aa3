"""The model gives the floor back by itself: nothing is cancelled, nothing is lost."""

from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore


@explore
async def test_a_model_that_hears_overlapping_speech_yields_softly() -> None:
    async with open_rig(script='listen 1; speak "I could go on" for 9; listen 1; speak "yes?" for 0.4') as rig:
        async with rig.caller() as caller:
            await caller.speaks(0.1)
            first = await caller.hears("response.created")
            await caller.waits(1.0)
            await caller.speaks(0.2, force_listen=True)
            await caller.hears("response.listen", response_id=first["response_id"], reason="model_listen")
            await caller.hears("response.done", status="completed")
            await caller.speaks(0.4)
            await caller.hears("response.done", status="completed")
        assert not caller.all("response.done", status="cancelled")
        assert all(listen["epoch"] == 0 for listen in caller.all("response.listen"))


@explore
async def test_a_model_yields_in_the_middle_of_its_answer() -> None:
    async with open_rig(script='listen 1; speak "well" for 0.8; yield; speak "never mind" for 0.8') as rig:
        async with rig.caller() as caller:
            await caller.speaks(0.1)
            first = await caller.hears("response.created")
            await caller.hears("response.listen", reason="model_listen", response_id=first["response_id"])
            await caller.hears("response.done", status="completed")
            await caller.hears("response.done", status="completed")
        assert [caller.transcript(response) for response in caller.responses()] == ["well", "never mind"]
