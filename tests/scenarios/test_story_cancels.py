"""Cancels and creates at awkward moments: before, after, twice, and by the hundred."""

from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore

CREATE, CANCEL = {"type": "response.create"}, {"type": "response.cancel"}


@explore
async def test_a_cancel_that_follows_its_create_at_once() -> None:
    async with open_rig(mode="turn", script='wait 0.3; speak "unwanted" for 1; speak "wanted" for 1') as rig:
        async with rig.caller() as caller:
            await caller.appends(1.0)
            await caller.commits(response_create=False)
            await caller.sends_together(CREATE, CANCEL)
            created = await caller.hears("response.created")
            done = await caller.hears("response.done", status="cancelled")
            assert done.at == created.at
            assert caller.audio_ms(done["response_id"]) == 0
            await caller.appends(1.0)
            await caller.commits()
            await caller.hears("response.done", status="completed")


@explore
async def test_a_create_that_follows_a_cancel_at_once() -> None:
    """The answer that was cancelled has ended before the next command is looked at."""
    for interrupt in ("response", "epoch"):
        script = 'forever { speak "an answer" for 2 }'
        async with open_rig(mode="turn", lead_s=0.2, interrupt=interrupt, script=script) as rig:
            async with rig.caller() as caller:
                for _ in range(3):
                    await caller.appends(1.0)
                    await caller.commits()
                    await caller.hears("response.created")
                    await caller.waits(0.5)
                    await caller.appends(1.0)
                    await caller.commits(response_create=False)
                    await caller.sends_together(CANCEL, CREATE)
                    await caller.hears("response.done", status="cancelled")
                    await caller.hears("response.created")
                    await caller.hears("response.done", status="completed")
                assert not caller.all("error")


@explore
async def test_a_cancel_when_nothing_is_said_is_harmless() -> None:
    async with open_rig(mode="turn", script='speak "short" for 0.4; speak "again" for 0.4') as rig:
        async with rig.caller() as caller:
            first = await caller.cancels()
            await caller.hears("error", code="response_not_active", event_id=first)
            await caller.appends(1.0)
            second = await caller.cancels(response_id="resp_none")
            await caller.hears("error", code="response_not_active", event_id=second)
            await caller.commits()
            done = await caller.hears("response.done", status="completed")
            await caller.waits(1)
            for _ in range(2):
                late = await caller.cancels(response_id=done["response_id"])
                await caller.hears("error", code="response_not_active", event_id=late)
            await caller.appends(1.0)
            await caller.commits()
            await caller.hears("response.done", status="completed")
        assert {heard["epoch"] for heard in caller.all("input_audio_buffer.committed")} == {0}


@explore
async def test_a_second_create_is_refused_and_the_first_answer_goes_on() -> None:
    async with open_rig(mode="turn", lead_s=0.2, script='speak "first" for 2; speak "third" for 1') as rig:
        async with rig.caller() as caller:
            await caller.appends(1.0)
            await caller.commits(response_create=False)
            _, second = await caller.sends_together(CREATE, CREATE)
            created = await caller.hears("response.created")
            await caller.hears("error", code="response_already_active", event_id=second)
            await caller.hears("response.done", status="completed")
            assert caller.audio_ms(created["response_id"]) == 2000
            empty = await caller.asks()
            await caller.hears("error", code="response_create_without_input", event_id=empty)
            await caller.appends(1.0)
            await caller.commits(response_create=False)
            await caller.asks()
            await caller.hears("response.done", status="completed")


@explore
async def test_a_storm_of_cancels_ends_each_answer_once() -> None:
    async with open_rig(mode="turn", lead_s=0.2, script='forever { speak "again and again" for 2 }') as rig:
        async with rig.caller() as caller:
            for number in range(15):
                await caller.appends(1.0)
                await caller.commits()
                await caller.waits(0.013 * number)
                await caller.sends_together(CANCEL, CANCEL, {"type": "output_audio_buffer.clear"}, CANCEL)
            await caller.waits(1)
            await caller.appends(1.0)
            await caller.commits()
            await caller.hears("response.done", status="completed")
        assert len(caller.all("response.done", status="cancelled")) == 15
        assert len(caller.responses()) == 16


@explore
async def test_a_storm_of_barge_ins_over_a_native_model() -> None:
    async with open_rig(script='forever { listen 1; speak "never finished" for 3 }') as rig:
        async with rig.caller() as caller:
            for number in range(15):
                await caller.speaks(0.16)
                await caller.waits(0.017 * number)
                await caller.interrupts()
            await caller.speaks(0.3)
            await caller.hears("response.done", status="completed", within_s=10)


@explore
async def test_clearing_what_is_played_after_it_was_generated_frees_the_turn() -> None:
    script = 'speak "all at once" for 5; speak "{history}" for 1'
    async with open_rig(mode="turn", script=script) as rig:
        async with rig.caller(session={"playback_commit_policy": "ack_only"}) as caller:
            await caller.appends(1.0)
            await caller.commits()
            first = await caller.hears("response.done", status="completed")
            await caller.acks(2000, response_id=first["response_id"])
            await caller.sends("output_audio_buffer.clear")
            await caller.hears("output_audio_buffer.cleared")
            await caller.acks(5000, response_id=first["response_id"])
            await caller.appends(1.0)
            await caller.commits(response_create=False)
            await caller.asks()
            second = await caller.hears("response.done", status="completed")
        assert caller.transcript(second["response_id"]) == "assistant: all"
