"""Somebody talks over the answer: it stops at once, and what they say is answered."""

from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore

DETECTED = {"turn_detection": {"type": "server_vad"}, "extra_body": {"auto_response": True}}


@explore
async def test_a_native_answer_is_cut_at_the_instant_somebody_barges_in() -> None:
    async with open_rig(
        script='listen 25; speak "a long first answer" for 6; listen 12; speak "second" for 0.8'
    ) as rig:
        async with rig.caller() as caller:
            await caller.speaks(2.0)
            first = await caller.hears("response.created")
            await caller.waits(1.5)
            await caller.interrupts()
            await caller.hears("response.done", status="cancelled", reason="barge_in")
            await caller.speaks(1.0)
            second = await caller.hears("response.created")
            await caller.hears("response.done", status="completed")
        assert 1000 <= caller.audio_ms(first["response_id"]) <= 1600
        assert caller.audio_ms(second["response_id"]) == 800
        assert caller.transcript(second["response_id"]) == "second"
        rig.timeline.expect("""
            2.08  response.created r1
            3.58  response.done r1 cancelled
            4.62  response.created r2
            5.43  response.done r2 completed, session.closed client_close
        """)


@explore
async def test_lasting_speech_over_an_answer_of_a_turn_model_is_a_barge_in() -> None:
    async with open_rig(mode="turn", lead_s=0.2, script='speak "first" for 8; speak "second" for 1') as rig:
        async with rig.caller(session=DETECTED) as caller:
            await caller.speaks(1.2)
            await caller.is_silent(1.0)
            first = await caller.hears("response.created")
            await caller.is_silent(1.0)
            await caller.speaks(2.0)
            await caller.hears("response.done", status="cancelled", reason="turn_detected")
            await caller.is_silent(1.0)
            await caller.hears("response.created")
            await caller.is_silent(1.5)
            await caller.hears("response.done", status="completed")
        cut = caller.all("response.done", response_id=first["response_id"])[0]
        began = caller.all("input_audio_buffer.speech_started")[1]
        assert began.at < cut.at < began.at + 1.0


@explore
async def test_an_answer_that_is_complete_and_still_playing_is_cleared() -> None:
    async with open_rig(mode="turn", script='speak "all at once" for 5') as rig:
        async with rig.caller() as caller:
            await caller.appends(1.0)
            await caller.commits()
            answer = await caller.hears("response.done", status="completed")
            await caller.waits(1.0)
            await caller.interrupts()
            await caller.hears("output_audio_buffer.cleared", response_id=answer["response_id"])
            await caller.hears_nothing_of("response.output_audio.delta", for_s=5)
        assert not caller.all("response.done", status="cancelled")


@explore
async def test_a_model_without_barge_in_refuses_it_and_obeys_a_cancel() -> None:
    async with open_rig(barge_in=False, script='listen 1; speak "on and on" for 9') as rig:
        async with rig.caller() as caller:
            await caller.speaks(0.2)
            await caller.hears("response.created")
            event_id = await caller.interrupts()
            await caller.hears("error", code="barge_in_unsupported", event_id=event_id)
            await caller.waits(0.5)
            assert not caller.all("response.done")
            await caller.cancels()
            await caller.hears("response.done", status="cancelled", reason="client_cancelled")
