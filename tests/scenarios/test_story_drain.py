"""The house closes: newcomers are refused, who is inside may finish, and then everybody has to go."""

import pytest
import trio

from duplex_engine.errors import AdmissionRefused
from duplex_engine.testing.rig import Rig, open_rig
from duplex_engine.testing.schedules import explore


@explore
async def test_a_drain_ends_as_soon_as_everybody_has_left() -> None:
    async with open_rig(mode="turn", lead_s=0.2, script='speak "let me finish" for 3') as rig:
        async with rig.caller() as caller, trio.open_nursery() as nursery:
            await caller.appends(1.0)
            await caller.commits()
            await caller.hears("response.created")
            nursery.start_soon(rig.engine.drain, 60)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(AdmissionRefused) as refused:
                await rig.engine.start_session()
            assert refused.value.code == "draining"
            assert not rig.engine.ready
            await caller.hears("response.done", status="completed")
            end = await caller.closes()
            assert end["reason"] == "client_close"
        assert trio.current_time() - rig.began_at < 10


@explore
async def test_at_the_deadline_answers_end_and_everybody_gets_a_last_word() -> None:
    async with open_rig(mode="turn", lead_s=0.2, script='speak "for ages" for 100') as rig:
        async with rig.caller("talking") as talking, rig.caller("idle") as idle:
            await talking.appends(1.0)
            await talking.commits()
            await talking.hears("response.created")
            began = trio.current_time()
            await rig.engine.drain(10)
            assert trio.current_time() - began == pytest.approx(10)
            for caller in (talking, idle):
                end = await caller.hears_the_end()
                assert (end.type, end["reason"]) == ("session.closed", "shutdown")
            assert talking.all("response.done", status="cancelled")


@explore(examples=40)
async def test_a_turn_committed_as_the_house_closes_is_no_failure() -> None:
    """Whoever of the two is first: the answer is cancelled with the session, or never begun."""
    async with open_rig(mode="turn", lead_s=0.2, script='speak "for ages" for 100') as rig:
        async with rig.caller() as caller, trio.open_nursery() as nursery:
            await caller.appends(1.0)
            nursery.start_soon(rig.engine.drain, 0)
            await caller.commits()
            await caller.hears_the_end()
        assert {done["reason"] for done in caller.all("response.done")} <= {"session_closed"}
        assert not caller.all("error")


@explore
async def test_leaving_the_engine_ends_everybody() -> None:
    opened: list[Rig] = []

    async def crash() -> None:
        async with open_rig(mode="turn", lead_s=0.2, script='speak "for ages" for 100') as rig:
            opened.append(rig)
            with (await rig.engine.start_session()).attach():
                raise KeyError("the program has a bug of its own")

    with pytest.raises(KeyError, match="a bug of its own"):
        await crash()
    assert opened[0].engine.snapshot().seats_taken == 0
