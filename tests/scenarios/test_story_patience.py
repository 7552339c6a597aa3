"""Nobody says anything for a long time."""

from duplex_engine.config import SessionLimits
from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore

LIMITS = SessionLimits(idle_ttl_s=30.0)


@explore
async def test_an_idle_session_expires_with_a_reason_and_frees_its_seat() -> None:
    async with open_rig(script="listen", limits=LIMITS, max_sessions=1) as rig:
        async with rig.caller("first") as first:
            await first.speaks(0.2)
            end = await first.hears_the_end()
            assert end.type == "session.expired"
            assert end["reason"] == "idle_ttl_expired"
            async with rig.caller("second") as second:
                await second.speaks(0.2)
                await second.hears("response.listen")


@explore
async def test_a_heartbeat_keeps_a_session_alive() -> None:
    async with open_rig(script="listen", limits=LIMITS) as rig:
        async with rig.caller() as caller:
            for _ in range(5):
                await caller.waits(25)
                await caller.sends("session.heartbeat")
                await caller.hears("session.heartbeat_ack")
            assert not caller.ended


@explore
async def test_a_long_answer_is_no_idleness() -> None:
    async with open_rig(mode="turn", lead_s=1, unit_ms=500, script='speak "long" for 40', limits=LIMITS) as rig:
        async with rig.caller() as caller:
            await caller.appends(1.0)
            await caller.commits()
            await caller.hears("response.done", within_s=120, status="completed")
            assert not caller.ended


@explore
async def test_an_answer_that_is_long_in_coming_is_no_idleness() -> None:
    async with open_rig(mode="turn", script='wait 100; speak "at last" for 1', limits=LIMITS) as rig:
        async with rig.caller() as caller:
            await caller.appends(1.0)
            await caller.commits()
            await caller.hears("response.done", within_s=120, status="completed")
