"""The caller sends nothing while a native model speaks: silence is fed in its place, but not for ever."""

import itertools

from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore


@explore
async def test_an_answer_goes_on_at_its_pace_without_any_input() -> None:
    async with open_rig(script='listen 1; speak "going on" for 4') as rig:
        async with rig.caller() as caller:
            await caller.speaks(0.1)
            created = await caller.hears("response.created")
            done = await caller.hears("response.done", status="completed")
        deltas = caller.all("response.output_audio.delta")
        assert len(deltas) == 50
        assert all(abs(later.at - earlier.at - 0.08) < 1e-6 for earlier, later in itertools.pairwise(deltas))
        assert 3.9 <= done.at - created.at <= 4.2


@explore
async def test_a_model_that_never_stops_is_told_to_yield() -> None:
    async with open_rig(script='listen 1; speak "for ever" for 1000; listen 1; speak "sorry" for 0.4') as rig:
        async with rig.caller() as caller:
            await caller.speaks(0.1)
            created = await caller.hears("response.created")
            await caller.hears("response.listen", reason="continuation_limit", model_listen=False)
            await caller.hears("response.done")
            assert caller.audio_ms(created["response_id"]) <= 64 * 80
            await caller.speaks(0.2)
            await caller.hears("response.done", status="completed")


@explore
async def test_a_model_that_does_not_yield_is_cut() -> None:
    async with open_rig(obedient=False, script='listen 1; speak "for ever" for 1000') as rig:
        async with rig.caller() as caller:
            await caller.speaks(0.1)
            await caller.hears("response.created")
            await caller.hears("response.listen", reason="continuation_limit")
            await caller.hears("response.done")
            await caller.hears_nothing_of("response.output_audio.delta", for_s=2)
        assert len(caller.all("response.done")) == 1


@explore
async def test_real_input_goes_before_silence() -> None:
    async with open_rig(script='listen 1; speak "hearing you" for 12') as rig:
        async with rig.caller() as caller:
            await caller.speaks(0.1)
            await caller.hears("response.created")
            await caller.speaks(12.5)
            await caller.hears("response.done", status="completed")
        assert not caller.all("response.listen", reason="continuation_limit")
