"""Every error code that a client can meet: whose fault it says it is, which frame it names, and that nothing else suffers."""

import pytest
import trio
from error_checks import goes_on, meet
from error_table import MIB, NOT_YET, TABLE, Row, Scene, turns
from server_rig import rigged
from trio.abc import Clock

from duplex_engine.protocol.errors import ERRORS


@pytest.mark.parametrize("row", TABLE, ids=str)
async def test_an_error_says_what_was_wrong_and_touches_nothing_else(autojump_clock: Clock, row: Row) -> None:
    async with rigged(row.plugin(), max_sessions=row.seats, session=row.limits) as rig:
        await meet(rig, row)


def test_no_code_is_forgotten() -> None:
    met = {row.code for row in TABLE}
    assert met | NOT_YET.keys() == ERRORS.keys()
    assert met & NOT_YET.keys() == set()


async def test_two_megabytes_of_reference_audio_are_taken_and_not_echoed(autojump_clock: Clock) -> None:
    async with rigged(turns()) as rig, trio.open_nursery() as beside:
        scene = Scene(rig, beside, await rig.call())
        url = "data:audio/wav;base64," + "A" * 2 * MIB
        created = await scene.caller.open({"ref_audio": url})
        assert created["session"]["ref_audio"] == {"bytes": len(url)}
        await goes_on(scene, Row("", plugin=turns), errors=0)
