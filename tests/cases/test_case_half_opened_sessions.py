"""Kind: whoever leaves while a session is still being opened, in whatever way, leaves a seat or a slot taken behind it."""

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from error_table import Clumsy
from server_rig import Caller, Rig, rigged

from duplex_engine.errors import AdmissionRefused, CodedError
from duplex_engine.model_plugins.scripted.plugin import ScriptedPlugin
from duplex_engine.server.connection import receive_caller
from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore, run_story

SLOW_TO_OPEN = 'wait 0.3; listen 1; speak "good morning" for 0.4'
"""A context that takes 300 ms before it hears anything."""
MOMENTS = (0.0, 0.05, 0.2999, 0.3, 0.35)
"""When clients leave, in seconds after they have asked for their session."""


@explore
async def test_clients_that_vanish_while_their_context_is_opened_leave_seat_and_slot() -> None:
    async with open_rig(script=SLOW_TO_OPEN, max_sessions=1) as rig:
        for moment in MOMENTS:
            async with rig.caller(f"gone after {moment}") as gone:
                await gone.waits(moment)
                gone.hangs_up()
                await rig.handles[-1].over.wait()
            assert rig.engine.snapshot().seats_taken == 0
        async with rig.caller("stays") as caller:
            await caller.speaks(0.4)
            await caller.hears("response.done", status="completed")


@explore
async def test_goodbyes_while_the_context_is_opened_leave_seat_and_slot() -> None:
    async with open_rig(script=SLOW_TO_OPEN, max_sessions=1) as rig:
        for moment in MOMENTS:
            async with rig.caller() as caller:
                await caller.waits(moment)
                await caller.closes()
                assert rig.engine.snapshot().seats_taken == 0
        async with rig.caller("stays") as caller:
            await caller.speaks(0.4)
            await caller.hears("response.done", status="completed")


@explore
async def test_an_opening_that_is_cancelled_or_times_out_rolls_back() -> None:
    async with open_rig(script=SLOW_TO_OPEN, max_sessions=1) as rig:
        for deadline in MOMENTS:
            with trio.move_on_after(deadline):
                async with rig.engine.open_session({"extra_body": {"auto_response": True}}):
                    await trio.sleep_forever()
            await trio.testing.wait_all_tasks_blocked()
            assert rig.engine.snapshot().seats_taken == 0
        async with rig.caller() as caller:
            await caller.speaks(0.4)
            await caller.hears("response.done", status="completed")


@pytest.mark.parametrize("step", range(1, 6))
def test_an_opening_that_is_cancelled_at_any_step_rolls_back(step: int) -> None:
    """The opener is cancelled after one, two, ... steps of the scheduler."""

    async def story() -> None:
        async with open_rig(script=SLOW_TO_OPEN, max_sessions=1) as rig:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(rig.engine.start_session, {"extra_body": {"auto_response": True}}))
                for _ in range(step):
                    await trio.lowlevel.cancel_shielded_checkpoint()
                nursery.cancel_scope.cancel()
            await rig.settles()
            async with rig.caller() as caller:
                await caller.speaks(0.4)
                await caller.hears("response.done", status="completed")

    run_story(story)


@explore
async def test_a_session_that_nobody_comes_for_is_undone() -> None:
    async with open_rig(script=SLOW_TO_OPEN, max_sessions=1) as rig:
        handle = await rig.engine.start_session()
        await handle.over.wait()
        async with rig.caller() as caller:
            await caller.speaks(0.4)
            await caller.hears("response.done", status="completed")


@explore
async def test_refused_configurations_take_no_seat() -> None:
    async with open_rig(mode="turn", script='speak "hello" for 0.4', max_sessions=1) as rig:
        for session in ({"input_audio_format": "opus"}, {"turn_detection": 7}, {"extra_body": {"script": "sing"}}):
            with pytest.raises(CodedError):
                await rig.engine.start_session(session)
            assert rig.engine.snapshot().seats_taken == 0
        async with rig.caller() as caller:
            with pytest.raises(AdmissionRefused):
                await rig.engine.start_session()
            await caller.closes()
        async with rig.caller():
            pass


@explore
async def test_openings_before_the_model_is_warm_take_no_seat() -> None:
    script = 'crash; speak "well again" for 0.4'
    async with open_rig(mode="turn", script=script, step_ms=500, max_sessions=2) as rig:
        async with rig.caller() as caller:
            await caller.appends(1.0)
            await caller.commits()
            await caller.hears("response.done", status="failed")
            with pytest.raises(AdmissionRefused) as refusal:
                await rig.engine.start_session()
            assert refusal.value.code == "warming_up"
            assert rig.engine.snapshot().seats_taken == 1
            await rig.engine.wait_ready()
            async with rig.caller():
                pass


# --- through the server, over real sockets -------------------------------------------------------------------------


def reset(caller: Caller) -> None:
    caller.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    caller.stream.socket.close()


@asynccontextmanager
async def on_a_port(rig: Rig) -> AsyncIterator[Any]:
    """The rig behind a real listener for the block: a function that makes callers."""

    async def connect() -> Caller:
        caller = Caller(await trio.open_tcp_stream("127.0.0.1", port))
        status, _ = await caller.upgrade("/v1/realtime?duplex=1&autostart=0")
        assert "101" in status
        return caller

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(partial(trio.serve_listeners, partial(receive_caller, rig.reception), listeners))
        yield connect
        nursery.cancel_scope.cancel()


async def settles(rig: Rig) -> None:
    """Wait until nobody is left; real connections take their time."""
    for _ in range(1000):
        if not (rig.seats or rig.reception.connections):
            return
        await trio.sleep(0.005)
    raise AssertionError(f"{rig.seats} seats and {rig.reception.connections} connections are left")


SILENT = {"extra_body": {"auto_response": True}}


@pytest.mark.parametrize("politely", [True, False], ids=["closes", "resets"])
async def test_sockets_that_end_in_mid_opening_leave_no_seat(politely: bool) -> None:
    plugin = ScriptedPlugin(script='wait 0.05; listen 1; speak "good morning" for 0.1')
    async with rigged(plugin, max_sessions=1) as rig, on_a_port(rig) as connect:
        for patience_s in (0, 0.001, 0.01, 0.04, 0.06):
            caller = await connect()
            await caller.say("session.update", session=SILENT)
            await trio.sleep(patience_s)
            if politely:
                await caller.stream.aclose()
            else:
                reset(caller)
            await settles(rig)
        await (await connect()).open(SILENT)


async def test_openings_that_the_server_refuses_leave_no_seat() -> None:
    async with rigged(Clumsy(), max_sessions=1) as rig, on_a_port(rig) as connect:
        for session in ({"instructions": "opening"}, {"output_audio_format": "opus"}):
            caller = await connect()
            await caller.say("session.update", session=session)
            assert (await caller.next_event())["type"] == "error"
            await caller.farewell()
            await settles(rig)
        await (await connect()).open()
