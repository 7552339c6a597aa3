"""The life of a model's context: restarted by an interruption, restarted after a failure, given up after too many."""

from contextlib import suppress

from duplex_engine.errors import SessionGone
from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore


@explore
async def test_an_interruption_of_the_epoch_gives_the_model_a_fresh_context() -> None:
    """Where the context survives the script goes on; where it does not it starts again."""
    for interrupt, expected in (("response", ["one", "two"]), ("epoch", ["one", "one"])):
        script = 'listen 1; speak "one of many long answers" for 4; listen 1; speak "two of them" for 1.6'
        async with open_rig(script=script, interrupt=interrupt) as rig:
            async with rig.caller() as caller:
                await caller.speaks(0.1)
                await caller.hears("response.created")
                await caller.waits(1.0)
                await caller.cancels()
                await caller.hears("response.done", status="cancelled")
                await caller.speaks(0.2)
                await caller.hears("response.created")
                await caller.waits(1.2)
            assert [caller.transcript(response).split(" ")[0] for response in caller.responses()] == expected


@explore
async def test_an_always_speaking_model_begins_again_after_each_cancel() -> None:
    async with open_rig(interrupt="epoch", script='forever { speak "always talking" for 5 }') as rig:
        async with rig.caller() as caller:
            for _ in range(3):
                await caller.hears("response.created")
                await caller.waits(0.7)
                await caller.cancels()
                await caller.hears("response.done", status="cancelled")
            await caller.hears("response.created")
        assert [done["reason"] for done in caller.all("response.done")] == ["client_cancelled"] * 3 + ["session_closed"]


@explore
async def test_input_that_was_not_heard_survives_a_restart() -> None:
    async with open_rig(script='listen 1; fail "first"; listen 10; speak "ten units later" for 0.4') as rig:
        async with rig.caller() as caller:
            await caller.appends(11 * 0.08)
            await caller.hears("response.done", status="completed")


@explore
async def test_a_model_that_keeps_failing_ends_the_session_with_a_reason() -> None:
    async with open_rig(script='forever { listen 1; fail "broken" }') as rig:
        async with rig.caller() as caller:
            with suppress(SessionGone):
                await caller.speaks(5.0)
            end = await caller.hears_the_end()
            assert (end.type, end["reason"]) == ("session.closed", "model_unavailable")
            assert len(caller.all("error", code="model_unavailable")) == 1
            async with rig.caller(session={"extra_body": {"auto_response": True, "script": "listen"}}) as other:
                await other.speaks(0.2)
                await other.hears("response.listen")


@explore
async def test_failures_that_lie_far_apart_are_forgiven() -> None:
    async with open_rig(script='repeat 6 { listen 1; fail "now and then" }; listen 1; speak "fine" for 0.4') as rig:
        async with rig.caller() as caller:
            for _ in range(6):
                await caller.speaks(0.1)
                await caller.waits(30)
            await caller.speaks(0.1)
            await caller.hears("response.done", status="completed")


@explore
async def test_cancelled_contexts_do_not_count_as_failures() -> None:
    async with open_rig(interrupt="epoch", script='speak "again and again" for 5') as rig:
        async with rig.caller() as caller:
            for _ in range(8):
                await caller.hears("response.created")
                await caller.waits(0.2)
                await caller.cancels()
                await caller.hears("response.done", status="cancelled")
            await caller.hears("response.created")
            assert not caller.all("error")


@explore
async def test_new_instructions_hold_from_the_next_turn_on() -> None:
    script = 'forever { speak "told: {instructions}" for 1 }'
    async with open_rig(mode="turn", lead_s=0.2, script=script) as rig:
        async with rig.caller(session={"instructions": "be kind"}) as caller:
            await caller.appends(1.0)
            await caller.commits()
            first = await caller.hears("response.created")
            await caller.waits(0.5)
            await caller.sends("session.update", session={"instructions": "be brief"})
            updated = await caller.hears("session.updated")
            assert updated["instructions"] == "be brief"
            await caller.hears("response.done", status="completed")
            await caller.appends(1.0)
            await caller.commits()
            second = await caller.hears("response.created")
            await caller.hears("response.done", status="completed")
        assert caller.transcript(first["response_id"]) == "told: be kind"
        assert caller.transcript(second["response_id"]) == "told: be brief"
