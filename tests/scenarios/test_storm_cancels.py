"""A storm of cancels: many callers at once who let nobody finish, by every means and at random moments.

Every record is checked by the rig: no event of a response after its terminal, none missing, none twice.
"""

import random
from collections import Counter

import pytest
import trio

from duplex_engine.testing.caller import Caller
from duplex_engine.testing.rig import Rig, open_rig
from duplex_engine.testing.schedules import explore
from duplex_engine.testing.storm import SCRIPTS, SESSIONS, Storm

CUT_OFF = {"client_cancelled", "barge_in", "output_audio_buffer_clear", "turn_detected"}


async def break_loose(mode: str, sessions: int, cuts: int, *, losses: float = 0.0, **options: object) -> None:
    """`sessions` callers at once in one engine, each of whom tries `cuts` times to cut an answer off.

    `losses`: how often a line fails on the way to that, and the caller comes back.
    """
    async with open_rig(mode=mode, script=SCRIPTS[mode], max_sessions=sessions, **options) as rig:
        async with trio.open_nursery() as nursery:
            for number in range(sessions):
                nursery.start_soon(call, rig, mode, number, cuts, losses)
    reasons = Counter(reason for caller in rig.callers for reason in cut_off(caller))
    assert reasons.keys() >= CUT_OFF, reasons
    assert sum(reasons.values()) > sessions * cuts / 6, reasons
    assert not any(caller.all("error", code="internal_error") for caller in rig.callers)


async def call(rig: Rig, mode: str, number: int, cuts: int, losses: float) -> None:
    rng = random.Random(random.random())
    await trio.sleep(rng.random())
    async with rig.caller(f"caller{number}", SESSIONS[mode][number % len(SESSIONS[mode])]) as caller:
        storm = Storm(caller, rng, losses)
        await storm.rages(cuts)
        await storm.leaves()


def cut_off(caller: Caller) -> list[object]:
    """Why each answer that was cut off was."""
    return [done["reason"] for done in caller.all("response.done", status="cancelled") if done["reason"] in CUT_OFF]


@pytest.mark.timeout(300)
@explore(examples=1)
async def test_a_hundred_callers_cut_off_a_hundred_answers_each() -> None:
    await break_loose("turn", 100, 100, lead_s=0.2)


@explore(examples=4)
async def test_a_storm_over_answers_that_are_not_paced() -> None:
    await break_loose("turn", 8, 25)


@explore(examples=4)
async def test_a_storm_over_contexts_that_end_with_their_answers() -> None:
    await break_loose("turn", 8, 25, lead_s=0.2, interrupt="epoch")


@explore(examples=4)
async def test_a_storm_over_a_native_model() -> None:
    await break_loose("native", 8, 25)


@explore(examples=4)
async def test_a_storm_over_a_native_model_whose_context_ends() -> None:
    await break_loose("native", 8, 25, interrupt="epoch")


@explore(examples=4)
async def test_a_storm_in_which_lines_fail_as_well() -> None:
    await break_loose("turn", 8, 25, losses=0.3, lead_s=0.2, resume=True)


@explore(examples=4)
async def test_a_storm_over_a_native_model_in_which_lines_fail_as_well() -> None:
    await break_loose("native", 8, 25, losses=0.3, resume=True)
