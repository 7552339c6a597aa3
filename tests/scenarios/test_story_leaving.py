"""Somebody leaves in the middle of an answer: with a word, without one, or before anything began."""

from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore

SCRIPT = 'forever { speak "a long answer" for 8 }'


@explore
async def test_a_close_while_speaking_ends_the_answer_first() -> None:
    async with open_rig(mode="turn", lead_s=0.2, script=SCRIPT) as rig:
        async with rig.caller() as caller:
            await caller.appends(1.0)
            await caller.commits()
            await caller.hears("response.created")
            await caller.waits(1.0)
            await caller.sends("session.close", reason="enough")
            end = await caller.hears_the_end()
            assert end["reason"] == "enough"
            done = caller.all("response.done", status="cancelled", reason="session_closed")
            assert len(done) == 1
            assert done[0].at == end.at


@explore
async def test_a_close_while_a_native_model_speaks() -> None:
    async with open_rig(script='listen 1; speak "a long answer" for 8') as rig:
        async with rig.caller() as caller:
            await caller.speaks(0.1)
            await caller.hears("response.created")
            await caller.waits(0.5)
            await caller.closes()
        assert caller.all("response.done", status="cancelled", reason="session_closed")


@explore
async def test_a_lost_client_frees_its_seat_and_the_next_caller_hears_nothing_of_it() -> None:
    async with open_rig(mode="turn", lead_s=0.2, script=SCRIPT, max_sessions=1) as rig:
        async with rig.caller("lost") as lost:
            await lost.appends(1.0)
            await lost.commits()
            await lost.hears("response.output_audio.delta")
            lost.hangs_up()
            await rig.handles[0].over.wait()
            async with rig.caller("next") as following:
                await following.hears_nothing_of("response.created", for_s=5)
                assert not following.all("response.output_audio.delta")
        assert rig.handles[0].ending_reason == "disconnect"


@explore
async def test_a_resumable_session_waits_for_its_client_and_then_expires() -> None:
    async with open_rig(script="listen", resume=True) as rig:
        async with rig.caller() as caller:
            await caller.speaks(0.2)
            caller.hangs_up()
            await caller.waits(29)
            assert not rig.handles[0].over.is_set()
            await caller.waits(2)
            assert rig.handles[0].over.is_set()
        assert rig.handles[0].ending_reason == "disconnect_grace_expired"


@explore
async def test_a_session_that_nobody_ever_attends_is_given_up() -> None:
    async with open_rig(script="listen", max_sessions=1) as rig:
        handle = await rig.engine.start_session()
        await handle.over.wait()
        assert handle.ending_reason == "open_abandoned"


@explore
async def test_nothing_is_said_after_the_last_word() -> None:
    async with open_rig(mode="turn", lead_s=0.2, script=SCRIPT) as rig:
        async with rig.caller() as caller:
            await caller.appends(1.0)
            await caller.sends_together(
                {"type": "input_audio_buffer.commit", "response_create": True},
                {"type": "session.close"},
                {"type": "session.heartbeat"},
                {"type": "response.create"},
            )
            await caller.hears_the_end()
        assert not caller.all("session.heartbeat_ack")
