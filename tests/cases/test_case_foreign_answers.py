"""Kind: somebody hears what was meant for the caller before, or is told of it."""

import json
import re

import pytest
import trio
from server_rig import Talker, rigged

from duplex_engine.testing.caller import Caller
from duplex_engine.testing.rig import Rig, open_rig
from duplex_engine.testing.schedules import run_story

ANSWERS = ("response.", "conversation.", "input_audio_buffer.", "output_audio_buffer.", "error")
IDS = re.compile(r'"((?:resp|item|event|duplex)[_-][0-9a-f]{8}[0-9a-z_]*)"')


def ids(caller: Caller) -> set[str]:
    """Every id the server gave to this caller."""
    return set(IDS.findall(json.dumps([heard.event for heard in caller.heard])))


async def leaves(rig: Rig, caller: Caller, how: str) -> None:
    """Leave in mid-answer, and be gone when this returns."""
    match how:
        case "hangs up":
            caller.hangs_up()
        case "says goodbye":
            await caller.sends("session.close")
        case "stays deaf":
            caller.stops_reading()
        case "is thrown out":
            rig.handles[-1].end("by the house")
    await rig.handles[-1].over.wait()


@pytest.mark.parametrize("how", ["hangs up", "says goodbye", "stays deaf", "is thrown out"])
@pytest.mark.parametrize("moment", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("mode", ["turn", "native"])
@pytest.mark.parametrize("interrupt", ["response", "epoch"])
def test_the_next_caller_hears_nothing_of_the_former(how: str, moment: float, mode: str, interrupt: str) -> None:
    """One seat; the first caller leaves while the answer is thought of, begun, or in full swing."""

    async def story() -> None:
        script = 'listen 1; wait 0.1; speak "a very long answer" for 60; listen'
        async with open_rig(mode=mode, script=script, interrupt=interrupt, max_sessions=1) as rig:
            async with rig.caller("first") as first:
                await first.appends(1.0)
                await first.commits()
                await first.waits(moment)
                await leaves(rig, first, how)
                first.reads_on()
                async with rig.caller("second") as second:
                    await second.sends("session.update", session={"metadata": {"who": "second"}})
                    await second.waits(3.0)
                    assert not [heard.event for heard in second.heard if heard.type.startswith(ANSWERS)]
                    assert not ids(first) & ids(second)
                    assert first.mark is None or first.mark != second.mark

    run_story(story)


@pytest.mark.parametrize("politely", [True, False])
async def test_on_a_socket_the_next_caller_hears_nothing_of_the_former(autojump_clock: object, politely: bool) -> None:
    async with rigged(Talker(pieces=300), max_sessions=1) as rig:
        first = await rig.call()
        created = await first.open()
        await first.asks()
        await first.hears("response.output_audio.delta")
        if politely:
            await first.say("session.close")
            await first.hears("session.closed")
        else:
            await first.stream.aclose()
            await rig.settles()
        second = await rig.call()
        await second.say("session.update", session={})
        with trio.move_on_after(3):
            while True:
                event = await second.next_event()
                assert event["type"] in ("session.created", "session.updated"), event
                assert event["session"]["id"] != created["session"]["id"]
