"""A short "mm-hm" over the answer leaves it alone."""

from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore

DETECTED = {"turn_detection": {"type": "server_vad"}, "extra_body": {"auto_response": True}}


@explore
async def test_a_short_sound_over_the_answer_is_an_acknowledgement() -> None:
    async with open_rig(mode="turn", lead_s=0.2, script='speak "a long answer" for 5; speak "unwanted" for 1') as rig:
        async with rig.caller(session=DETECTED) as caller:
            await caller.speaks(1.0)
            await caller.is_silent(1.6)
            answer = await caller.hears("response.created")
            await caller.speaks(0.4)
            await caller.is_silent(5.0)
            await caller.hears("response.done", response_id=answer["response_id"], status="completed")
        assert len(caller.responses()) == 1
        assert caller.audio_ms(answer["response_id"]) == 5000
        assert caller.all("overlap.decision", action="listen")
        assert not caller.all("overlap.decision", action="barge_in")


@explore
async def test_a_short_commit_during_the_answer_is_an_acknowledgement() -> None:
    async with open_rig(mode="turn", lead_s=0.2, script='speak "a long answer" for 3; speak "unwanted" for 1') as rig:
        async with rig.caller() as caller:
            await caller.appends(1.0)
            await caller.commits()
            await caller.hears("response.created")
            await caller.waits(1.0)
            await caller.speaks(0.4)
            await caller.commits()
            committed = await caller.hears("input_audio_buffer.committed", overlap_ack=True)
            assert committed["no_response"] is True
            await caller.hears("response.done", status="completed")
            await caller.hears_nothing_of("response.created", for_s=5)


@explore
async def test_words_that_only_say_go_on_are_an_acknowledgement() -> None:
    async with open_rig(mode="turn", lead_s=0.2, script='speak "a long answer" for 3') as rig:
        async with rig.caller() as caller:
            await caller.appends(1.0)
            await caller.commits()
            await caller.hears("response.created")
            await caller.waits(0.5)
            await caller.appends(0.2, transcript="Okay.")
            await caller.hears("overlap.decision", action="listen", reason="short_ack_transcript")
            await caller.hears("response.done", status="completed")
