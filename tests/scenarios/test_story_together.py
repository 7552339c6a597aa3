"""Several people at once: everybody hears the answers to their own questions, and nothing else."""

import trio

from duplex_engine.testing.caller import Caller
from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore


def marked(mark: int) -> dict[str, object]:
    return {"extra_body": {"auto_response": True, "mark": mark}}


@explore
async def test_two_native_sessions_never_mix() -> None:
    """Every sample says whose it is; the callers' readers check each of them."""
    async with open_rig(script='forever { listen 5; speak "for you alone" for 1.2 }') as rig:
        async with rig.caller("ann", marked(11)) as ann, rig.caller("bob", marked(22)) as bob:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ann.speaks, 12.0)
                nursery.start_soon(bob.speaks, 12.0)
            for caller, mark in ((ann, 11), (bob, 22)):
                assert len(caller.all("response.done", status="completed")) >= 6
                assert caller.mark == mark


@explore(examples=8)
async def test_eight_callers_who_interrupt_each_hear_only_their_own() -> None:
    async def call(caller: Caller, delay: float) -> None:
        await caller.waits(delay)
        for _ in range(3):
            await caller.appends(1.0)
            await caller.commits()
            await caller.hears("response.created")
            await caller.waits(0.4 + delay)
            await caller.interrupts()
            await caller.hears("response.done", status="cancelled")
        await caller.appends(1.0)
        await caller.commits()
        await caller.hears("response.done", status="completed")

    async with open_rig(mode="turn", lead_s=0.2, script='forever { speak "for you alone" for 2 }') as rig:
        async with trio.open_nursery() as nursery:

            async def visit(number: int) -> None:
                async with rig.caller(f"caller{number}") as caller:
                    await call(caller, 0.037 * number)

            for number in range(8):
                nursery.start_soon(visit, number)
        assert len({caller.mark for caller in rig.callers}) == 8


@explore
async def test_a_crash_of_one_session_s_worker_is_nobody_else_s_business() -> None:
    doomed = {"extra_body": {"script": 'speak "doomed" for 1; crash', "worker": "second"}}
    async with open_rig(mode="turn", lead_s=0.2, script='speak "calm" for 4', workers=("first", "second")) as rig:
        async with rig.caller("calm") as calm, rig.caller("doomed", session=doomed) as other:
            for caller in (calm, other):
                await caller.appends(1.0)
                await caller.commits()
            await other.hears("response.done", status="failed")
            done = await calm.hears("response.done", status="completed")
            assert calm.audio_ms(done["response_id"]) == 4000
        assert not calm.all("error")
