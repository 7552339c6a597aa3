"""Callers beyond the limit who wait for ever without a word, and seats that are never free again."""

import gc
import sys

import pytest
import trio
import trio.testing
from case_server import House, house, resets
from server_rig import Caller, Talker
from transport_peer import TEXT, close_frame, frame

from duplex_engine.actors.session import Session
from duplex_engine.config import SessionLimits
from duplex_engine.model_plugins.scripted.plugin import ScriptedPlugin
from duplex_engine.server.transport import FrameSocket

ANSWER_S = 1.0
"""Within this a caller has to know what becomes of them."""
CYCLES = 1000
SETTLED_CYCLES = 200
"""After so many, whatever is kept for good has been made."""
KEPT_BLOCKS = 4000
"""Pieces of memory that may be there in the end and were not before: Trio keeps up to a thousand timers that are over,
of three pieces each. A single call is made of many hundreds."""


async def is_refused(server: House) -> None:
    """One more caller is told why not, at once, and the connection is closed in order."""
    caller = await server.call()
    with trio.fail_after(ANSWER_S):
        await caller.say("session.update", session={}, event_id="evt_mine")
        event = await caller.next_event()
    error = event["error"]
    assert (event["type"], error["type"], error["code"]) == ("error", "rate_limit_error", "resource_exhausted")
    assert error["message"].endswith("limit=1")
    assert (error["retryable"], error["event_id"]) == (True, "evt_mine")
    assert (await caller.farewell())[0] == 1013
    await caller.stream.aclose()


async def goes_politely(caller: Caller) -> None:
    await caller.say("session.close")
    await caller.hears("session.closed")
    await caller.farewell()


async def closes_the_socket(caller: Caller) -> None:
    await caller.send(close_frame())
    await caller.stream.aclose()


async def hangs_up(caller: Caller) -> None:
    await caller.stream.aclose()


async def is_reset(caller: Caller) -> None:
    resets(caller)


async def is_reset_in_a_frame(caller: Caller) -> None:
    await caller.send(frame(TEXT, b"x" * 5_000)[:2_000])
    resets(caller)


async def is_reset_in_an_answer(caller: Caller) -> None:
    await caller.asks()
    await caller.hears("response.output_audio.delta")
    resets(caller)


async def breaks_the_protocol(caller: Caller) -> None:
    await caller.send(b"\xff\xff\xff\xff")
    await caller.stream.aclose()


ENDS = [
    goes_politely,
    closes_the_socket,
    hangs_up,
    is_reset,
    is_reset_in_a_frame,
    is_reset_in_an_answer,
    breaks_the_protocol,
]


@pytest.mark.parametrize("ends", ENDS, ids=lambda ends: ends.__name__)
async def test_one_too_many_is_told_at_once_and_the_seat_is_free_once_its_caller_is_gone(ends) -> None:  # type: ignore[no-untyped-def]
    async with house(Talker(), max_sessions=1) as server:
        for _ in range(2):
            talking = await server.call()
            await talking.open()
            await is_refused(server)
            await is_refused(server)
            await ends(talking)
            with trio.fail_after(ANSWER_S):
                await server.settles()
            patient = await server.call()
            with trio.fail_after(ANSWER_S):
                await patient.open()
            resets(patient)
            await server.settles()


async def test_a_seat_is_kept_for_a_caller_who_can_come_back_and_no_longer() -> None:
    plugin = ScriptedPlugin(mode="turn", resume=True)
    async with house(plugin, max_sessions=1, session=SessionLimits(disconnect_grace_s=0.3)) as server:
        talking = await server.call()
        await talking.open()
        resets(talking)
        while server.connections > 0:
            await trio.lowlevel.checkpoint()
        await is_refused(server)
        with trio.fail_after(5):
            await server.settles()
        await (await server.call()).open()


async def test_whoever_says_nothing_at_all_costs_no_seat() -> None:
    async with house(Talker(), max_sessions=1) as server:
        silent = [await server.call() for _ in range(5)] + [await server.connect() for _ in range(5)]
        talking = await server.call()
        with trio.fail_after(ANSWER_S):
            await talking.open()
        assert server.seats == 1
        for caller in silent:
            resets(caller)


async def test_a_refused_caller_who_does_not_answer_the_goodbye_is_let_go() -> None:
    async with house(Talker(), max_sessions=1, write_deadline_s=0.3) as server:
        talking = await server.call()
        await talking.open()
        stubborn = await server.call()
        await stubborn.say("session.update", session={})
        assert (await stubborn.next_event())["error"]["code"] == "resource_exhausted"
        with trio.fail_after(5):
            while server.connections != 1:
                await trio.lowlevel.checkpoint()
        await talking.say("session.heartbeat")
        await talking.hears("session.heartbeat_ack")


@pytest.mark.timeout(240)
async def test_a_thousand_callers_who_are_cut_off_leave_nothing_behind() -> None:
    """Sessions, tasks, connections and memory, on one seat that each of them needs."""
    async with house(Talker(), max_sessions=1) as server:
        await trio.testing.wait_all_tasks_blocked()
        tasks = trio.lowlevel.current_statistics().tasks_living
        blocks: list[int] = []
        for number in range(1, CYCLES + 1):
            caller = await server.call()
            if number % 3:
                await caller.open()
            if number % 3 == 2:
                await caller.asks()
            resets(caller)
            await server.settles()
            if number in (SETTLED_CYCLES, CYCLES):
                del caller
                await trio.testing.wait_all_tasks_blocked()
                gc.collect()
                assert not [thing for thing in gc.get_objects() if isinstance(thing, Session | FrameSocket)]
                blocks.append(sys.getallocatedblocks())
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert blocks[1] - blocks[0] < KEPT_BLOCKS
        await (await server.call()).open()
