"""The house is full: newcomers are refused with a reason, and a seat that is left is taken again."""

import pytest
import trio
import trio.testing

from duplex_engine.errors import AdmissionRefused
from duplex_engine.testing.rig import Rig, open_rig
from duplex_engine.testing.schedules import explore


async def turned_away(rig: Rig) -> AdmissionRefused:
    with pytest.raises(AdmissionRefused) as caught:
        await rig.engine.start_session()
    return caught.value


@explore
async def test_one_too_many_is_refused_and_comes_in_when_somebody_leaves() -> None:
    async with open_rig(mode="turn", script='forever { speak "hello" for 1 }', max_sessions=2) as rig:
        async with rig.caller("a") as a:
            async with rig.caller("b") as b:
                refusal = await turned_away(rig)
                assert refusal.code == "resource_exhausted"
                assert refusal.retryable
                assert "limit=2" in refusal.message
                await b.closes()
                async with rig.caller("c") as c:
                    for caller in (a, c):
                        await caller.appends(1.0)
                        await caller.commits()
                        await caller.hears("response.done", status="completed")


@explore
async def test_a_seat_is_free_at_the_instant_of_the_last_word() -> None:
    async with open_rig(mode="turn", script='speak "hello" for 9', lead_s=0.2, max_sessions=1) as rig:
        for number in range(5):
            async with rig.caller(f"caller{number}") as caller:
                await caller.appends(1.0)
                await caller.commits()
                await caller.hears("response.created")
                await caller.closes()


@explore
async def test_a_slot_of_a_worker_is_reused_clean() -> None:
    """The scripted worker dies when a slot is let again without a reset; here four callers share two slots."""
    async with open_rig(mode="turn", script='forever { speak "hello" for 0.4 }', max_sessions=2) as rig:
        for number in range(4):
            async with rig.caller(f"caller{number}") as caller:
                for _ in range(2):
                    await caller.appends(1.0)
                    await caller.commits()
                    await caller.hears("response.done", status="completed")
                    await caller.waits(0.5)


@explore
async def test_callers_who_leave_while_being_seated_leave_nothing_behind() -> None:
    async with open_rig(mode="turn", script='speak "hello" for 1', max_sessions=1) as rig:
        for _ in range(5):
            with trio.move_on_after(0) as scope:
                await rig.engine.start_session()
            assert scope.cancelled_caught
            await trio.testing.wait_all_tasks_blocked()
        async with rig.caller() as caller:
            await caller.appends(1.0)
            await caller.commits()
            await caller.hears("response.done", status="completed")
