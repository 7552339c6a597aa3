"""Whole calls on the virtual clock: a frame out for each one in, cancels, neighbours, lateness, and who is let in."""

from typing import Any

import numpy as np
import pytest
import structlog
import trio
from personaplex_calls import FRAME_S, Call, Slow, calling, exchange, noise
from personaplex_kit import Tiny
from trio.testing import MockClock

from duplex_engine.actors.observations import InputDropped, StepTimed
from duplex_engine.errors import AdmissionRefused, ConfigRejected
from duplex_engine.model_plugins.contract import Work
from duplex_engine.model_plugins.personaplex.load import TickLoad
from duplex_engine.model_plugins.personaplex.questions import Begin, Hear, Measure, Opening
from duplex_engine.model_plugins.personaplex.stepper import PersonaPlexStepper
from duplex_engine.protocol.commands import BargeIn, CancelResponse, ClearOutputAudio, UpdateSession
from duplex_engine.protocol.events import (
    ErrorEvent,
    OutputAudioDelta,
    ResponseCreated,
    ResponseDone,
    SessionClosed,
    SessionLagging,
    TurnEvent,
)

FRAME_BYTES = 2 * 1920


async def alone(tiny: Tiny, frames: int, seed: int = 0, **session: Any) -> Call:
    """The same call with nobody else there."""
    async with exchange(tiny) as (engine, _), calling(engine, **session) as call:
        await call.says(noise(frames, seed))
        await trio.sleep(1)
    return call


async def test_a_frame_is_said_for_each_one_heard(autojump_clock: MockClock, tiny: Tiny) -> None:
    call = await alone(tiny, 60)
    assert len(call.sound) >= 60 * FRAME_BYTES
    assert {len(event.audio) for event in call.all(OutputAudioDelta)} == {FRAME_BYTES}
    assert len(call.all(ResponseCreated)) == 1, "one answer, without an end"
    assert call.words


@pytest.mark.parametrize("interruption", [CancelResponse(), ClearOutputAudio()], ids=["cancel", "clear"])
async def test_a_cancel_begins_the_conversation_anew(autojump_clock: MockClock, tiny: Tiny, interruption: Any) -> None:
    fresh = await alone(tiny, 20)
    async with exchange(tiny) as (engine, _), calling(engine) as call:
        await call.says(noise(30, seed=5))
        call.session.send(interruption)
        await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(0.01)
        before = len(call.all(OutputAudioDelta))
        await call.says(noise(20))
        after = call.all(OutputAudioDelta)[before:]
    (done, _) = call.all(ResponseDone)
    assert done.response["status"] == "cancelled"
    first, second = (event.response_id for event in call.all(ResponseCreated))
    assert {event.response_id for event in after} == {second}
    assert first != second
    assert all(event.metadata["epoch"] == 1 for event in after)
    said = b"".join(event.audio for event in after)
    assert fresh.sound.startswith(said[: 15 * FRAME_BYTES]), "voice and persona are as at first, the rest is forgotten"


async def test_a_cancel_may_keep_the_context(autojump_clock: MockClock, tiny: Tiny) -> None:
    uncut = await alone(tiny, 40)
    async with exchange(tiny) as (engine, _):
        async with calling(engine, extra_body={"cancel_policy": "keep_context"}) as call:
            await call.says(noise(40)[:20])
            call.session.send(CancelResponse())
            await call.says(noise(40)[20:])
            await trio.sleep(0.2)
    assert call.all(ResponseDone)[0].response["status"] == "cancelled"
    assert len(call.all(ResponseCreated)) == 2
    tail = call.sound[-10 * FRAME_BYTES :]
    assert tail in uncut.sound, "it goes on where it was"


async def test_input_does_not_interrupt(autojump_clock: MockClock, tiny: Tiny) -> None:
    async with exchange(tiny) as (engine, _), calling(engine) as call:
        await call.says(noise(5))
        call.session.send(BargeIn())
        await trio.sleep(0.1)
    (error,) = call.all(ErrorEvent)
    assert error.error.code == "barge_in_unsupported"


async def test_neighbours_change_nothing(autojump_clock: MockClock, tiny: Tiny) -> None:
    """Other seeds, personas and voices, coming and going in the middle: every call is what it is alone, bit for bit."""
    sessions: list[dict[str, Any]] = [
        {"extra_body": {"text_temperature": 0.7, "audio_temperature": 0.8, "seed": 1}},
        {"extra_body": {"text_temperature": 0.7, "audio_temperature": 0.8, "seed": 2}, "instructions": "Sing."},
        {"voice": "NATM1.pt"},
        {"instructions": ""},
    ]
    expected = [await alone(tiny, 40, seed=number, **session) for number, session in enumerate(sessions)]
    heard: dict[int, Call] = {}

    async def talk(engine: Any, number: int) -> None:
        await trio.sleep(0.35 * number)
        async with calling(engine, **sessions[number]) as call:
            await call.says(noise(40, seed=number))
            await trio.sleep(0.5)
        heard[number] = call

    async with exchange(tiny) as (engine, _), trio.open_nursery() as nursery:
        for number in range(len(sessions)):
            nursery.start_soon(talk, engine, number)
    length = 30 * FRAME_BYTES
    for number, call in enumerate(expected):
        assert heard[number].words[:20] == call.words[:20]
        assert heard[number].sound[:length] == call.sound[:length], f"call {number}"


async def test_a_silent_client_is_waited_for(autojump_clock: MockClock, tiny: Tiny) -> None:
    async with exchange(tiny) as (engine, _), calling(engine) as call:
        await call.says(noise(5))
        await trio.sleep(60)
        said = len(call.all(OutputAudioDelta))
        assert 5 + 50 <= said <= 5 + 70, "silence of ours goes on for a while only"
        await call.says(noise(5))
        await trio.sleep(0.05)
        assert len(call.all(OutputAudioDelta)) >= said + 5
        assert len(call.all(ResponseCreated)) == 1


async def test_a_burst_is_cut_to_what_may_wait(autojump_clock: MockClock, tiny: Tiny) -> None:
    async with exchange(tiny, max_backlog_ms=400) as (engine, seen), calling(engine) as call:
        await call.says(noise(5))
        call.session.append(noise(50).tobytes())
        await trio.sleep(2)
        dropped = sum(observation.units for observation in seen if isinstance(observation, InputDropped))
        assert dropped == 45
        said = len(call.all(OutputAudioDelta))
        await call.says(noise(3))
        assert len(call.all(OutputAudioDelta)) <= said + 4, "latency has come back by itself"
        assert not call.all(SessionLagging), "nothing waited for a second"


async def test_who_comes_later_is_stepped_with_those_who_are_there(autojump_clock: MockClock, tiny: Tiny) -> None:
    async with exchange(tiny) as (engine, seen), trio.open_nursery() as nursery:

        async def talk(offset_s: float) -> None:
            await trio.sleep(offset_s)
            async with calling(engine) as call:
                await call.says(noise(60))

        for offset_s in (0.0, 1.037, 1.061):
            nursery.start_soon(talk, offset_s)
        await trio.sleep(2.0)
        settled = len(seen)
        await trio.sleep(2.0)
        together = [each.items for each in seen[settled:] if isinstance(each, StepTimed) and each.items]
    assert set(together) == {3}, "three calls, one step a frame"
    assert abs(len(together) - 2.0 / FRAME_S) <= 1


async def test_nobody_is_let_in_when_frames_take_too_long(autojump_clock: MockClock, tiny: Tiny) -> None:
    async with exchange(tiny, plugin=Slow) as (engine, _):
        async with calling(engine) as call:
            await call.says(noise(40))
            with pytest.raises(AdmissionRefused, match="takes 7") as refusal:
                async with engine.open_session({}):
                    pytest.fail("the device is full")
            assert (refusal.value.code, refusal.value.retryable) == ("resource_exhausted", True)
            await call.says(noise(2))
        async with engine.open_session({}):
            pass


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"voice": "NATF9"}, "invalid_voice", "voice"),
    ({"voice": "../NATF2.pt"}, "invalid_voice", "voice"),
    ({"instructions": "x" * 1001}, "invalid_duplex_runtime_config", "instructions"),
    ({"temperature": 2.5}, "invalid_duplex_runtime_config", "temperature"),
    *(
        ({"extra_body": {key: value}}, "invalid_duplex_runtime_config", f"extra_body.{key}")
        for key, values in {
            "text_temperature": (-0.1, "hot", True, float("nan")),
            "audio_temperature": (2.1, []),
            "text_top_k": (0, 251, 2.5, True),
            "audio_top_k": (-1, "all"),
            "seed": (-1, 2**63, 1.5),
            "cancel_policy": ("never", 1, {}),
            "personaplex_prefill_slots": (1,),
            "personaplex_model_path": ("/",),
            "native_duplex": (True,),
        }.items()
        for value in values
    ),
]


@pytest.mark.parametrize(("session", "code", "param"), REFUSED, ids=str)
async def test_a_session_that_cannot_be_had_is_refused(
    autojump_clock: MockClock, tiny: Tiny, session: dict[str, Any], code: str, param: str
) -> None:
    async with exchange(tiny) as (engine, _):
        with pytest.raises(ConfigRejected) as refusal:
            async with engine.open_session(session):
                pytest.fail("this cannot be")
        assert (refusal.value.code, refusal.value.param) == (code, param)
        assert engine.snapshot().seats_taken == 0


UPDATES: list[tuple[dict[str, Any], str | None]] = [
    ({"instructions": "Be brief."}, "persona_update_unsupported"),
    ({"voice": "NATM1"}, "voice_update_unsupported"),
    ({"extra_body": {"seed": 9}}, "invalid_duplex_runtime_config"),
    ({"extra_body": {"cancel_policy": "keep_context"}}, "invalid_duplex_runtime_config"),
    ({"metadata": {"a": "b"}}, None),
    ({"output_audio_format": "g711_ulaw"}, None),
    ({"voice": "NATF2.pt"}, None),
]


@pytest.mark.parametrize(("patch", "code"), UPDATES, ids=str)
async def test_what_a_context_was_built_with_stays(
    autojump_clock: MockClock, tiny: Tiny, patch: dict[str, Any], code: str | None
) -> None:
    async with exchange(tiny) as (engine, _), calling(engine) as call:
        call.session.send(UpdateSession(session=patch))
        await trio.sleep(0.1)
        await call.says(noise(3))
    assert [error.error.code for error in call.all(ErrorEvent)] == ([] if code is None else [code])
    assert call.sound


P = 0.08
BEATS: list[tuple[str, float, float, int, float]] = [
    ("on the beat", 10.08, 10.0, 0, 10.08),
    ("a little late", 10.095, 10.0, 0, 10.095),
    ("between two beats", 10.13, 10.0, 0, 10.16),
    ("a little late, but stepped for this beat", 10.095, 10.08, 0, 10.16),
    ("more are waiting", 10.13, 10.08, 1, 10.13),
    ("the leader is silent", 10.3, 10.0, 0, 10.3),
]


@pytest.mark.parametrize(("now", "mine", "behind", "due"), [row[1:] for row in BEATS], ids=[row[0] for row in BEATS])
def test_everybody_follows_who_is_there_longest(now: float, mine: float, behind: int, due: float) -> None:
    load = TickLoad(0.06, P)
    load.ticked("leader", 10.0, 10.02)
    load.ticked("me", mine, mine + 0.02)
    assert load.due("me", now, behind=behind) == pytest.approx(due)
    assert load.due("leader", now, behind=behind) == now
    load.left("leader")
    assert load.due("me", now, behind=behind) == now, "now I am"


def test_a_newcomer_waits_for_the_next_beat() -> None:
    load = TickLoad(0.06, P)
    assert load.due("first", 3.0, behind=0) == 3.0
    load.ticked("first", 10.0, 10.02)
    assert load.due("second", 10.05, behind=0) == pytest.approx(10.08)


def test_a_load_is_judged_by_its_newest_ticks() -> None:
    load = TickLoad(0.06, P)
    for number in range(19):
        load.ticked("me", number, number + 1.0)
    assert load.overloaded is None, "too few to tell"
    load.ticked("me", 19, 20.0)
    assert load.overloaded
    for number in range(100):
        load.ticked("me", number, number + 0.03)
    assert load.overloaded is None
    assert np.isclose(load.p95_s, 0.03)
    load.left("me")
    assert load.p95_s == 0, "nobody is there any more"


async def test_a_client_is_told_when_the_beginning_is_forgotten(autojump_clock: MockClock, narrow: Tiny) -> None:
    async with exchange(narrow, persona="") as (engine, _), calling(engine) as call:
        await call.says(noise(60))
        (rolled,) = call.all(TurnEvent)
        said_before = call.events.index(rolled)
    assert (rolled.event, rolled.epoch) == ("context_rolled", 0)
    prompt = narrow.snapshot(persona="").positions
    said = sum(isinstance(event, OutputAudioDelta) for event in call.events[:said_before])
    assert said == narrow.model.sizes.context - prompt


async def test_a_prompt_that_fills_the_window_ends_the_session_and_nobody_else(
    autojump_clock: MockClock, tiny: Tiny
) -> None:
    async with exchange(tiny) as (engine, _), calling(engine) as neighbour:
        async with calling(engine, instructions="word " * 150) as call:
            await neighbour.says(noise(30))
            assert call.all(SessionClosed)
        assert call.all(ErrorEvent)
        assert len(neighbour.all(OutputAudioDelta)) >= 29


async def test_the_device_is_judged_before_anybody_calls(autojump_clock: MockClock, tiny: Tiny) -> None:
    for limit_ms, verdict in ((0.001, "device_too_slow"), (10_000.0, "frame_measured")):
        with structlog.testing.capture_logs() as logs:
            async with exchange(tiny, admit_below_ms=limit_ms, seats=2):
                pass
        (judged,) = [line for line in logs if "frame_ms" in line]
        assert judged["event"] == verdict
        assert 0 < judged["frame_ms"] < 5_000


async def test_measuring_leaves_no_trace(autojump_clock: MockClock, tiny: Tiny) -> None:
    stepper = PersonaPlexStepper(checkpoint=str(tiny.folder), slots=2)
    stepper.load(lambda *_: None)
    opening = Opening(voice="NATF2", persona=(), text_temperature=0, audio_temperature=0)
    frames = [Hear(frame.tobytes()) for frame in noise(5)]

    def talk() -> list[object]:
        said: list[object] = []
        opens: tuple[tuple[int, dict[str, object]], ...] = ((0, {"opening": opening}),)
        for ticket, question in enumerate([Begin(), *frames]):
            work = Work(resets=(0,) if opens else (), opens=opens, items=((0, ticket, question),))
            results = list(stepper.step(work))
            opens = ()
            said += [result.outcome.unwrap() for result in results]
        return said[1:]

    before = talk()
    (measured,) = stepper.step(Work(items=((0, 9, Measure(3)),)))
    assert isinstance(measured.outcome.unwrap(), float)
    assert talk() == before
