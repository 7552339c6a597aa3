"""Too much comes in, or too little is taken out: refused loudly, and memory stays bounded."""

from duplex_engine.actors.observations import OutputPurged
from duplex_engine.config import SessionLimits
from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore


@explore
async def test_input_beyond_the_limit_is_refused_and_the_rest_is_heard() -> None:
    limits = SessionLimits(input_bytes=4 * 16_000 * 10)
    async with open_rig(mode="turn", script='speak "heard you" for 1', limits=limits) as rig:
        async with rig.caller() as caller:
            event_ids = [await caller.appends(2.0) for _ in range(7)]
            refused = [await caller.hears("error", code="input_backpressure") for _ in range(2)]
            assert [error["event_id"] for error in refused] == event_ids[5:]
            await caller.commits()
            await caller.hears("response.done", status="completed")
            await caller.appends(2.0)
            assert len(caller.all("error")) == 2


@explore
async def test_a_native_model_that_stalls_is_not_fed_without_bound() -> None:
    limits = SessionLimits(input_bytes=4 * 16_000 * 4)
    async with open_rig(script="listen 1; wait 10; listen", limits=limits) as rig:
        async with rig.caller() as caller:
            await caller.speaks(6.0)
            await caller.hears("error", code="input_backpressure")
            await caller.waits(10)
            await caller.speaks(1.0)
            refused = len(caller.all("error"))
            await caller.speaks(1.0)
            assert len(caller.all("error")) == refused
            await caller.hears("response.listen")


@explore
async def test_more_commands_than_the_mailbox_takes_are_refused_one_by_one() -> None:
    limits = SessionLimits(mailbox_commands=10)
    async with open_rig(mode="turn", script='speak "hi" for 1', limits=limits) as rig:
        async with rig.caller() as caller:
            event_ids = await caller.sends_together(*({"type": "input_audio_buffer.clear"} for _ in range(15)))
            await caller.waits(1)
            refused = [error["event_id"] for error in caller.all("error", code="input_backpressure")]
            answered = len(caller.all("input_audio_buffer.cleared"))
            assert len(refused) + answered == 15
            assert refused == event_ids[15 - len(refused) :]


@explore
async def test_a_reader_that_stops_reading_is_told_and_dropped() -> None:
    limits = SessionLimits(output_events=60)
    async with open_rig(mode="turn", lead_s=0.2, script='speak "too much" for 20', limits=limits) as rig:
        async with rig.caller("slow") as slow, rig.caller("quick") as quick:
            for caller in (slow, quick):
                await caller.appends(1.0)
                await caller.commits()
            await slow.hears("response.output_audio.delta")
            slow.stops_reading()
            await slow.waits(15)
            slow.reads_on()
            await slow.hears("error", code="output_overflow")
            await slow.hears("response.done", status="failed", reason="output_overflow")
            end = await slow.hears_the_end()
            assert end["reason"] == "output_overflow"
            await quick.hears("response.done", status="completed")


@explore
async def test_sound_of_a_cancelled_answer_that_nobody_took_is_withdrawn() -> None:
    async with open_rig(mode="turn", script='speak "all at once" for 10; speak "fresh" for 0.4') as rig:
        async with rig.caller() as caller:
            caller.stops_reading()
            await caller.appends(1.0)
            await caller.commits()
            await caller.waits(1.0)
            await caller.cancels()
            await caller.waits(0.1)
            caller.reads_on()
            cancelled = await caller.hears("response.done", status="cancelled")
            assert caller.audio_ms(cancelled["response_id"]) < 1000
            await caller.appends(1.0)
            await caller.commits()
            await caller.hears("response.done", status="completed")
        assert any(isinstance(observation, OutputPurged) for observation in rig.observed)
