"""Somebody types instead of speaking."""

from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore


@explore
async def test_a_typed_message_is_answered_aloud_when_asked() -> None:
    async with open_rig(mode="turn", script='speak "{history}" for 1; speak "{history}" for 1') as rig:
        async with rig.caller() as caller:
            await caller.types("Say it shorter.")
            await caller.hears("conversation.item.done")
            await caller.hears_nothing_of("response.created", for_s=1)
            await caller.asks()
            first = await caller.hears("response.done", status="completed")
            await caller.waits(2)
            await caller.types("Shorter!")
            await caller.asks()
            second = await caller.hears("response.done", status="completed")
        assert caller.transcript(first["response_id"]) == "user: Say it shorter."
        assert caller.transcript(second["response_id"]) == (
            "user: Say it shorter. | assistant: user: Say it shorter. | user: Shorter!"
        )


@explore
async def test_a_native_model_that_takes_no_text_says_so() -> None:
    async with open_rig(script="listen") as rig:
        async with rig.caller() as caller:
            await caller.types("Can you read?")
            await caller.hears("conversation.item.done")
            event_id = await caller.asks()
            await caller.hears("error", code="text_only_turn_unsupported", event_id=event_id)
            await caller.speaks(0.2)
            await caller.hears("response.listen")
