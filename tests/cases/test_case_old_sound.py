"""Sound of an answer that was interrupted, heard afterwards or in the next answer."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from case_server import house
from server_rig import SPEECH, Caller

from duplex_engine.actors.observations import InterruptionSettled
from duplex_engine.model_plugins.scripted.plugin import ScriptedPlugin
from duplex_engine.testing.caller import DELTA
from duplex_engine.testing.caller import Caller as Person
from duplex_engine.testing.rig import NATIVE, Rig, open_rig
from duplex_engine.testing.schedules import Ending, cancel_at_every_checkpoint, explore

Interrupt = Callable[[Person], Awaitable[object]]

WAYS: dict[str, Interrupt] = {
    "response.cancel": lambda caller: caller.cancels(),
    "barge_in": lambda caller: caller.interrupts(),
    "input.cancel": lambda caller: caller.sends("input.cancel"),
    "output_audio_buffer.clear": lambda caller: caller.sends("output_audio_buffer.clear"),
    "forced by an append": lambda caller: caller.appends(0.1, force_barge_in=True),
    "an append that interrupts": lambda caller: caller.appends(0.1, overlap_action="interrupt"),
    "a signal": lambda caller: caller.sends("turn.signal", event="barge_in"),
}
PACES = {"all at once": None, "at the pace of speaking": 0.2}
MOMENTS = ("before the first sound", "after the first sound", "in the middle")
INTERRUPTION_S = 0.05
"""From an interruption to the last byte of the old answer, on this machine, with a reader that reads."""


async def until(moment: str, caller: Person) -> None:
    """The moment of an answer that was just created."""
    if moment != "before the first sound":
        await caller.hears(DELTA)
    if moment == "in the middle":
        await caller.waits(0.7)


@pytest.mark.parametrize("pace", PACES)
@pytest.mark.parametrize("interrupt", ["response", "epoch"])
@pytest.mark.parametrize("way", WAYS)
def test_after_an_interruption_nothing_of_the_old_answer_is_heard(way: str, interrupt: str, pace: str) -> None:
    """Whose sound it is, and that each answer begins with its own first sample, is checked sample by sample."""

    @explore(examples=2)
    async def story() -> None:
        script = 'forever { listen 0.1; speak "an answer" for 2 }'
        # The pieces take their time, so that an answer without pacing is not over before anybody can interrupt it.
        async with open_rig(mode="turn", interrupt=interrupt, lead_s=PACES[pace], step_ms=60, script=script) as rig:
            async with rig.caller() as caller:
                for moment in MOMENTS:
                    await caller.appends(1.0)
                    await caller.commits()
                    old = await caller.hears("response.created")
                    await until(moment, caller)
                    said_at = trio.current_time()
                    await WAYS[way](caller)
                    done = await caller.hears("response.done", response_id=old["response_id"])
                    assert (done["status"], done.at) == ("cancelled", said_at)
                    await caller.sends("input_audio_buffer.clear")
                    await caller.appends(1.0)
                    await caller.commits()
                    new = await caller.hears("response.created")
                    await caller.hears("response.done", status="completed", response_id=new["response_id"])
                    assert caller.audio_ms(new["response_id"]) == 2000
                    late = [heard for heard in caller.all(DELTA, response_id=old["response_id"]) if heard.at > said_at]
                    assert not late
        assert len(settled(rig.observed)) == len(MOMENTS)
        assert max(settled(rig.observed)) <= INTERRUPTION_S

    story()


def settled(observed: list[object]) -> list[float]:
    """How long each interruption took, as the server reports it."""
    return [seen.seconds for seen in observed if isinstance(seen, InterruptionSettled)]


@explore(examples=5)
async def test_a_native_model_says_nothing_of_what_it_was_interrupted_in() -> None:
    for interrupt in ("response", "epoch"):
        script = 'forever { listen 4; speak "an answer" for 4 }'
        async with open_rig(interrupt=interrupt, script=script) as rig, rig.caller(session=NATIVE) as caller:
            for moment in MOMENTS:
                await caller.speaks(0.4)
                old = await caller.hears("response.created")
                await until(moment, caller)
                await caller.interrupts()
                await caller.hears("response.done", status="cancelled", response_id=old["response_id"])
                await caller.hears_nothing_of(DELTA, for_s=3, response_id=old["response_id"])
                await caller.speaks(0.8)
                new = await caller.hears("response.created")
                await caller.interrupts()
                await caller.hears("response.done", response_id=new["response_id"])


@explore
async def test_speech_over_ten_pieces_that_wait_withdraws_all_of_them() -> None:
    """The detector interrupts; the client had read nothing since the first piece."""
    script = 'speak "much at once" for 8; speak "fresh" for 0.4'
    session = {"turn_detection": {"type": "server_vad"}, "overlap_short_ack_ms": 0}
    async with open_rig(mode="turn", lead_s=5.0, script=script) as rig, rig.caller(session=session) as caller:
        await caller.speaks(1.2)
        await caller.is_silent(0.6)
        old = await caller.hears("response.created")
        caller.stops_reading()
        await caller.speaks(1.2)
        caller.reads_on()
        done = await caller.hears("response.done", response_id=old["response_id"])
        assert (done["status"], done["reason"]) == ("cancelled", "turn_detected")
        assert caller.audio_ms(old["response_id"]) < 4000
        await caller.is_silent(0.8)
        await caller.hears("response.done", status="completed")


@explore(examples=5)
async def test_whoever_loses_the_line_with_the_interruption_hears_nothing_old_when_they_are_back() -> None:
    options = {"resume": True, "lead_s": 2.0, "script": 'forever { speak "an answer" for 6 }'}
    async with open_rig(mode="turn", **options) as rig, rig.caller() as caller:
        for away_s in (0.0, 1.0, 10.0):
            await caller.appends(1.0)
            await caller.commits()
            old = await caller.hears("response.created")
            await caller.hears(DELTA)
            await caller.interrupts()
            caller.loses_the_line()
            known = len(caller.all(DELTA, response_id=old["response_id"]))
            await caller.waits(away_s)
            await caller.comes_back()
            await caller.hears("response.done", status="cancelled", response_id=old["response_id"])
            assert len(caller.all(DELTA, response_id=old["response_id"])) == known
            await caller.appends(1.0)
            await caller.commits()
            await caller.hears("response.done", status="completed")


@pytest.mark.parametrize("ending", [Ending.RESPONSE, Ending.EPOCH], ids=lambda ending: ending.value)
def test_no_step_of_an_answer_is_a_bad_moment_to_interrupt_it(ending: Ending) -> None:
    """Interrupted at every scheduling step of it; the next answer is whole and its own."""

    async def story(rig: Rig) -> None:
        async with rig.caller() as caller:
            for _ in range(2):
                await caller.appends(0.4)
                await caller.commits()
                await caller.hears("response.done")
            await caller.waits(1)

    script = 'forever { speak "an answer" for 0.32 }'
    assert cancel_at_every_checkpoint(lambda: open_rig(mode="turn", script=script), story, ending, schedules=1) > 20


# --- on real sockets ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["barge_in", "response.cancel", "output_audio_buffer.clear"])
async def test_how_long_old_sound_still_leaves_is_reported_and_bounded(word: str) -> None:
    """The answer is made as fast as the machine can; the client interrupts at its first piece."""
    plugin = ScriptedPlugin(mode="turn", step_ms=1, script='forever { speak "an answer that goes on" for 20 }')
    async with house(plugin) as server:
        caller = await server.call()
        await caller.open()
        for _ in range(5):
            response_id = (await caller.asks())["response_id"]
            await caller.hears(DELTA)
            sent_at = trio.current_time()
            await caller.say(word)
            while (event := await caller.next_event())["type"] != "response.done":
                assert event.get("response_id", response_id) == response_id
            assert event["response"]["status"] == "cancelled"
            assert trio.current_time() - sent_at < 1.0
            await says_nothing_of(response_id, caller)
        assert server.figure("interruption_seconds_count") == 5
        assert server.figure("interruption_seconds_sum") < 5 * INTERRUPTION_S


async def says_nothing_of(response_id: str, caller: Caller) -> None:
    """What was said before a heartbeat comes before its answer."""
    await caller.say("input_audio_buffer.append", audio=SPEECH)
    await caller.say("input_audio_buffer.clear")
    await caller.say("session.heartbeat")
    while (event := await caller.next_event())["type"] != "session.heartbeat_ack":
        assert event.get("response_id") != response_id, event
