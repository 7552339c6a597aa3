"""What is checked of every row of `error_table.py`: the error, what follows it, and that a neighbour does not notice."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing
from error_table import Row, Scene, Then
from server_rig import DUPLEX, Caller, Rig

from duplex_engine.server.connection import receive_caller


async def meet(rig: Rig, row: Row) -> None:
    """A client provokes the error of this row, beside a neighbour in the middle of an answer."""
    async with trio.open_nursery() as beside:
        neighbour = Scene(rig, beside, await rig.call())
        theirs = await neighbour.caller.open(dict(row.neighbour))
        *asking, answered = row.next_turn
        for step in asking:
            await neighbour.take(step)
        async with calling(rig, deaf=row.deaf) as caller:
            scene = Scene(rig, beside, caller, theirs=theirs)
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
