"""Ordinary turns: push-to-talk and detected ends of speech."""

from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore

DETECTED = {"turn_detection": {"type": "server_vad"}, "extra_body": {"auto_response": True}}


@explore
async def test_a_spoken_turn_is_detected_and_answered() -> None:
    async with open_rig(mode="turn", script='hear "what time is it"; speak "time for tea" for 2') as rig:
        async with rig.caller(session=DETECTED) as caller:
            await caller.is_silent(0.4)
            await caller.speaks(1.2)
            await caller.is_silent(1.0)
            await caller.hears("input_audio_buffer.speech_started")
            await caller.hears("input_audio_buffer.speech_stopped")
            await caller.hears("input_audio_buffer.committed")
            await caller.hears("response.created")
            await caller.hears("conversation.item.input_audio_transcription.completed", transcript="what time is it")
            done = await caller.hears("response.done", status="completed")
            assert caller.transcript(done["response_id"]) == "time for tea"
            assert caller.audio_ms(done["response_id"]) == 2000


@explore
async def test_a_response_is_told_in_its_order() -> None:
    async with open_rig(mode="turn", script='speak "hello" for 0.4') as rig:
        async with rig.caller() as caller:
            await caller.appends(1.0)
            await caller.commits()
            await caller.hears("rate_limits.updated")
        told = [heard.type for heard in caller.heard]
        started = told.index("response.created")
        skeleton = [kind for kind in told[started:] if not kind.endswith(".delta") and not kind.startswith("session.")]
        assert skeleton == [
            "response.created",
            "conversation.item.added",
            "conversation.item.created",
            "response.output_item.added",
            "response.content_part.added",
            "response.speak",
            "response.output_audio.done",
            "response.output_audio_transcript.done",
            "response.content_part.done",
            "response.output_item.done",
            "conversation.item.done",
            "response.done",
            "rate_limits.updated",
        ]


@explore
async def test_commands_take_effect_in_the_order_they_were_sent() -> None:
    async with open_rig(mode="turn", script='forever { speak "yes" for 0.2 }') as rig:
        async with rig.caller() as caller:
            await caller.appends(1.0)
            await caller.sends_together(
                {"type": "session.heartbeat"},
                {"type": "input_audio_buffer.commit"},
                {"type": "conversation.item.create", "item": {"id": "t1", "content": []}},
                {"type": "session.update", "session": {"metadata": {"a": "1"}}},
                {"type": "response.create"},
            )
            await caller.hears("response.done", status="completed")
        told = [heard.type for heard in caller.heard]
        order = ("session.heartbeat_ack", "input_audio_buffer.committed", "response.created")
        assert sorted(order, key=told.index) == list(order)
        assert caller.all("response.created", a="1")
