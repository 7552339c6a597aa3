"""The model's worker dies, hangs, or cannot compute something, in the middle of an answer."""

from duplex_engine.testing.caller import Caller
from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore


async def asks_aloud(caller: Caller) -> None:
    await caller.appends(1.0)
    await caller.commits()


@explore
async def test_a_crash_fails_the_answer_and_the_next_turn_is_answered_after_the_restart() -> None:
    async with open_rig(mode="turn", lead_s=0.2, script='speak "cut off" for 1; crash; speak "again" for 1') as rig:
        async with rig.caller() as caller:
            await asks_aloud(caller)
            failed = await caller.hears("response.done", status="failed", reason="engine_error")
            assert caller.audio_ms(failed["response_id"]) == 1000
            assert len(caller.all("error", code="engine_error")) == 1
            await asks_aloud(caller)
            done = await caller.hears("response.done", status="completed")
            assert caller.transcript(done["response_id"]) == "again"


@explore
async def test_a_native_model_goes_on_with_a_fresh_context_after_a_crash() -> None:
    async with open_rig(script='listen 2; speak "cut" for 1; crash; listen 2; speak "back" for 1') as rig:
        async with rig.caller() as caller:
            await caller.speaks(0.3)
            await caller.hears("response.done", status="failed", reason="engine_error")
            await caller.speaks(1.0)
            done = await caller.hears("response.done", status="completed")
            assert caller.transcript(done["response_id"]) == "back"


@explore
async def test_a_worker_that_hangs_is_ended_by_its_deadline() -> None:
    script = 'speak "stuck" for 1; hang; speak "again" for 1'
    async with open_rig(mode="turn", lead_s=0.2, step_timeout_s=3.0, script=script) as rig:
        async with rig.caller() as caller:
            await asks_aloud(caller)
            failed = await caller.hears("response.done", status="failed", reason="engine_error")
            last_sound = caller.all("response.output_audio.delta")[-1]
            assert 2.9 < failed.at - last_sound.at < 3.3
            await asks_aloud(caller)
            await caller.hears("response.done", status="completed")


@explore
async def test_a_hanging_step_can_be_interrupted_at_once() -> None:
    script = 'speak "stuck" for 1; hang; speak "too early" for 1; speak "again" for 1'
    async with open_rig(mode="turn", lead_s=0.2, step_timeout_s=3.0, script=script) as rig:
        async with rig.caller() as caller:
            await asks_aloud(caller)
            await caller.hears("response.created")
            await caller.waits(2.0)
            await caller.cancels()
            await caller.hears("response.done", status="cancelled")
            await asks_aloud(caller)
            await caller.hears("response.done", within_s=10, status="failed")  # the worker was still hanging
            await asks_aloud(caller)
            await caller.hears("response.done", status="completed")


@explore
async def test_one_bad_item_fails_one_answer_only() -> None:
    own = {"extra_body": {"script": 'speak "doomed" for 1; fail "cannot compute"; speak "better" for 1'}}
    async with open_rig(mode="turn", lead_s=0.2, script='speak "untouched" for 4') as rig:
        async with rig.caller("lucky") as lucky, rig.caller("unlucky", session=own) as unlucky:
            await asks_aloud(lucky)
            await asks_aloud(unlucky)
            await unlucky.hears("response.done", status="failed", reason="engine_error")
            await asks_aloud(unlucky)
            await unlucky.hears("response.done", status="completed")
            await lucky.hears("response.done", status="completed")
            assert lucky.audio_ms(lucky.responses()[0]) == 4000
        assert not lucky.all("error")


@explore
async def test_a_typed_failure_keeps_its_code() -> None:
    script = 'speak "hm" for 0.4; fail invalid_image "I cannot see that"; speak "fine" for 0.4'
    async with open_rig(mode="turn", script=script) as rig:
        async with rig.caller() as caller:
            await asks_aloud(caller)
            error = await caller.hears("error", code="invalid_image")
            assert "cannot see" in str(error["message"])
            await caller.hears("response.done", status="failed", reason="invalid_image")
            await asks_aloud(caller)
            await caller.hears("response.done", status="completed")


@explore
async def test_sessions_on_other_workers_notice_nothing() -> None:
    """The timeline of a session is the same, whether or not a worker it does not use dies."""
    timelines = []
    for script in ('speak "boom" for 0.4; crash', 'speak "fine" for 0.4'):
        neighbour = {"extra_body": {"script": script, "worker": "other"}}
        async with open_rig(mode="turn", lead_s=0.2, script='speak "calm" for 3', workers=("voice", "other")) as rig:
            async with rig.caller("calm") as calm, rig.caller("neighbour", session=neighbour) as other:
                await asks_aloud(other)
                await asks_aloud(calm)
                await calm.hears("response.done", status="completed")
            timelines.append([(heard.type, round(heard.at - rig.began_at, 6)) for heard in calm.heard])
    assert timelines[0] == timelines[1]


@explore
async def test_steps_slower_than_real_time_make_the_answer_late_and_not_wrong() -> None:
    async with open_rig(mode="turn", lead_s=0.2, script='slow 2; speak "so slow" for 1.6') as rig:
        async with rig.caller() as caller:
            await asks_aloud(caller)
            created = await caller.hears("response.created")
            done = await caller.hears("response.done", status="completed")
            assert 3.1 < done.at - created.at < 3.4
            assert caller.audio_ms(created["response_id"]) == 1600
