"""Every error code that a client can meet: whose fault it says it is, which frame it names, and that nothing else suffers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from error_table import MIB, NOT_YET, TABLE, Row, Scene, Then, turns
from server_rig import DUPLEX, Caller, Rig, rigged
from trio.abc import Clock

from duplex_engine.protocol.errors import ERRORS
from duplex_engine.server.connection import receive_caller


@pytest.mark.parametrize("row", TABLE, ids=str)
async def test_an_error_says_what_was_wrong_and_touches_nothing_else(autojump_clock: Clock, row: Row) -> None:
    async with rigged(row.plugin(), max_sessions=row.seats, session=row.limits) as rig, trio.open_nursery() as beside:
        neighbour = Scene(rig, beside, await rig.call())
        await neighbour.caller.open(dict(row.neighbour))
        *asking, answered = row.next_turn
        for step in asking:
            await neighbour.take(step)
        async with calling(rig, deaf=row.deaf) as caller:
            scene = Scene(rig, beside, caller)
            if row.session is not None:
                await caller.open(dict(row.session))
            for step in (*row.before, *([] if row.offence is None else [row.offence])):
                await scene.take(step)
            check_error(row, await scene.until("error"))
            await FOLLOWED_BY[row.then](scene, row)
        for step in (answered, *row.next_turn):
            await neighbour.take(step)
        check_unharmed(neighbour)
        beside.cancel_scope.cancel()


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


@asynccontextmanager
async def calling(rig: Rig, *, deaf: bool) -> AsyncIterator[Caller]:
    """A caller behind its upgrade; what is written to a deaf one waits until it reads."""
    if not deaf:
        yield await rig.call()
        return
    async with trio.open_nursery() as nursery:
        ours, theirs = trio.testing.lockstep_stream_pair()
        nursery.start_soon(receive_caller, rig.reception, theirs)
        caller = Caller(ours)
        await caller.upgrade(DUPLEX)
        yield caller


def check_error(row: Row, event: dict[str, Any]) -> None:
    """The error is what the row says."""
    assert event["event_id"]
    error = event["error"]
    assert (error["code"], error["type"]) == (row.code, row.type)
    assert error["message"].strip()
    assert error.get("event_id") == (row.offence["event_id"] if isinstance(row.offence, dict) else None)
    assert error.get("param") == row.param
    assert error.get("retryable") == row.retryable


async def goes_on(scene: Scene, row: Row, errors: int = 1) -> None:
    """What was going on ends as it would have, the next turn is answered, and nothing of all that was lost."""
    if scene.kinds.count("response.created") > scene.kinds.count("response.done"):
        await scene.until("response.done")
    for step in (*row.after, *row.next_turn):
        await scene.take(step)
    assert scene.said[-1]["response"]["status"] == "completed"
    assert scene.kinds.count("error") == errors
    check_numbers(scene)


async def ends(scene: Scene, row: Row) -> None:
    """The connection is closed and leaves nothing behind."""
    assert await scene.caller.farewell() == (row.close_code, row.code)
    await scene.rig.settles()
    assert (scene.rig.seats, scene.rig.reception.connections) == (1, 1)


async def closes(scene: Scene, row: Row) -> None:
    """Every answer ends, the session says its last word, and the connection is closed."""
    assert (await scene.until("session.closed"))["reason"] == row.code
    assert scene.kinds.count("response.created") == scene.kinds.count("response.done")
    check_numbers(scene)
    await ends(scene, row)


FOLLOWED_BY = {Then.GOES_ON: goes_on, Then.ENDS: ends, Then.CLOSES: closes}


def check_unharmed(neighbour: Scene) -> None:
    """Two turns were answered in full, and no error was heard of."""
    assert "error" not in neighbour.kinds
    done = [event["response"] for event in neighbour.said if event["type"] == "response.done"]
    assert [response["status"] for response in done] == ["completed", "completed"]
    first, second = [response["output"][0]["content"][0]["audio_duration_ms"] for response in done]
    assert first == second > 0
    check_numbers(neighbour)


def check_numbers(scene: Scene) -> None:
    """No event is missing; the first one was `session.updated`."""
    numbers = [event["server_event_seq"] for event in scene.said if "server_event_seq" in event]
    assert numbers == list(range(2, 2 + len(numbers)))
