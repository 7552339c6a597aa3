"""The scripted plugin on a bare epoch: what each statement makes the model do."""

import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import attrs
import numpy as np
import pytest
import trio

from duplex_engine.actors.epoch import Epoch
from duplex_engine.actors.host.inline import InlineHost
from duplex_engine.actors.observations import ignore
from duplex_engine.actors.service import Service
from duplex_engine.audio.intake import UnitIntake
from duplex_engine.config import SessionLimits
from duplex_engine.conversation.effects import Message, Turn
from duplex_engine.conversation.facts import (
    Fact,
    FunctionCalled,
    FunctionOutput,
    ModelListened,
    ResponseAudio,
    ResponseEnded,
    ResponseOpened,
    ResponseStatus,
    UserHeard,
)
from duplex_engine.errors import ConfigRejected
from duplex_engine.model_plugins.contract import EpochCause, HostKind, UnitFormat
from duplex_engine.model_plugins.registry import load_plugin
from duplex_engine.model_plugins.scripted.plugin import NOTICE, ScriptedPlugin
from duplex_engine.protocol.session_config import SessionConfig
from duplex_engine.testing.marks import MarkReader

LIMITS = SessionLimits()


@attrs.define(eq=False)
class OpenFloor:
    """A floor that writes down what the model did, and when."""

    unit_format: UnitFormat
    native: bool
    intake: UnitIntake
    hears_units: bool = False
    limits: SessionLimits = LIMITS
    lead_s: float | None = None
    late_s: float = 0.0
    endless: bool = False
    outputs: list[FunctionOutput] = attrs.Factory(list)
    facts: list[tuple[float, Fact]] = attrs.Factory(list)
    messages: Sequence[Message] = ()

    def learn(self, fact: Fact) -> None:
        self.facts.append((round(trio.current_time(), 3), fact))

    def history(self) -> Sequence[Message]:
        return self.messages

    def input_taken(self) -> None:
        pass

    def of(self, kind: type[Fact]) -> list[Fact]:
        return [fact for _, fact in self.facts if type(fact) is kind]


@attrs.frozen
class Story:
    """An epoch being played on a floor."""

    floor: OpenFloor
    epoch: Epoch

    def feed(self, units: int, **marks: bool) -> None:
        samples = np.zeros(units * self.floor.unit_format.samples, np.float32)
        self.floor.intake.push(samples, **marks)
        self.epoch.fed()

    def turn(self) -> None:
        self.epoch.offer(Turn(utterance=None, item_id=None, history=()))


@asynccontextmanager
async def playing(script: str, **options: object) -> AsyncIterator[Story]:
    """The script, played by an epoch of its own."""
    plugin = ScriptedPlugin(script=script, **{"mode": "native", **options})
    native = plugin.options.mode == "native"
    config = SessionConfig(native=native, instructions="be brief")
    floor = OpenFloor(
        plugin.unit_format(), native, UnitIntake(plugin.unit_format().samples), lead_s=plugin.options.lead_s
    )
    service = Service(plugin, 4, {HostKind.INLINE: InlineHost()}, LIMITS, ignore)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service.run)
        await service.wait_ready()
        epoch = Epoch(floor, service, plugin.plan(config), plugin.remember(LIMITS), EpochCause.OPENED)
        nursery.start_soon(_suppressing(epoch.run), plugin)
        yield Story(floor, epoch)
        nursery.cancel_scope.cancel()


def _suppressing(run: Callable[..., object]) -> Callable[..., object]:
    async def quietly(plugin: object) -> None:
        try:
            await run(plugin)  # type: ignore[misc]
        except Exception as error:
            raise AssertionError(f"the epoch failed: {error}") from error

    return quietly


def ends(floor: OpenFloor) -> list[tuple[ResponseStatus, str]]:
    return [(fact.status, fact.reason) for fact in floor.of(ResponseEnded)]  # type: ignore[attr-defined]


async def test_a_native_script_hears_units_and_speaks_unit_by_unit(autojump_clock: object) -> None:
    async with playing('listen 2; speak "one two three four" for 0.4') as story:
        began = trio.current_time()
        story.feed(3)
        await trio.sleep(5)
        floor = story.floor
    assert len(floor.of(ModelListened)) == 2
    audio = [fact for _, fact in floor.facts if isinstance(fact, ResponseAudio)]
    assert [len(fact.pcm) // 2 for fact in audio] == [1920] * 5
    assert "".join(fact.text for fact in audio) == "one two three four"
    times = [at - began for at, fact in floor.facts if isinstance(fact, ResponseAudio)]
    assert np.allclose(np.diff(times), 0.08)
    assert ends(floor) == [(ResponseStatus.COMPLETED, "stop")]


async def test_the_sound_is_marked_from_its_first_sample(autojump_clock: object) -> None:
    async with playing('speak "a" for 0.3; listen 1; speak "b" for 0.3') as story:
        await trio.sleep(1)
        story.feed(1)
        await trio.sleep(1)
        reader = MarkReader()
        for _, fact in story.floor.facts:
            if isinstance(fact, ResponseAudio):
                reader.hear(str(id(fact.key)), fact.pcm)
    assert len(story.floor.of(ResponseEnded)) == 2


async def test_each_turn_gets_the_next_answer(autojump_clock: object) -> None:
    script = 'hear "hi"; speak "a" for 0.1; call f {"x": 1}; speak "b" for 0.1; listen 2; speak "c" for 0.1'
    async with playing(script, mode="turn") as story:
        answers = []
        for _ in range(4):
            story.turn()
            await trio.sleep(1)
            answers.append("".join(fact.text for _, fact in story.floor.facts if isinstance(fact, ResponseAudio)))
        await trio.sleep(5)
        answers.append("".join(fact.text for _, fact in story.floor.facts if isinstance(fact, ResponseAudio)))
    assert answers == ["a", "ab", "ab", "ab", "abc"]
    assert [fact.text for fact in story.floor.of(UserHeard)] == ["hi"]  # type: ignore[attr-defined]
    assert [fact.call.name for fact in story.floor.of(FunctionCalled)] == ["f"]  # type: ignore[attr-defined]
    assert ends(story.floor) == [(ResponseStatus.COMPLETED, "stop")] * 4


FAILURES = [
    ('speak "a" for 0.1; fail "flawed"; speak "b" for 0.1', "engine_error", 2),
    ('speak "a" for 0.1; fail invalid_image "flawed"; speak "b" for 0.1', "invalid_image", 2),
    ('fail "flawed"; speak "b" for 0.1', "engine_error", 1),
    ('speak "a" for 0.1; crash; wait 9; speak "b" for 0.1', "engine_error", 2),
    ('speak "a" for 0.1; crash voice; speak "b" for 0.1', "engine_error", 2),
    ('speak "a" for 0.1; hang; speak "b" for 0.1', "engine_error", 2),
]


@pytest.mark.parametrize(("script", "code", "opened"), FAILURES, ids=[script for script, _, _ in FAILURES])
async def test_an_answer_fails_and_the_next_turn_is_answered(
    script: str, code: str, opened: int, autojump_clock: object
) -> None:
    async with playing(script, mode="turn") as story:
        story.turn()
        await trio.sleep(8)
        story.turn()
        await trio.sleep(8)
    assert ends(story.floor) == [(ResponseStatus.FAILED, code), (ResponseStatus.COMPLETED, "stop")]
    assert "".join(fact.text for _, fact in story.floor.facts if isinstance(fact, ResponseAudio))[-1] == "b"


async def test_another_worker_can_be_told_to_die(autojump_clock: object) -> None:
    script = 'speak "a" for 0.1; crash ears; speak "b" for 0.1'
    async with playing(script, mode="turn", workers=("voice", "ears")) as story:
        story.turn()
        await trio.sleep(0.1)
        story.turn()
        await trio.sleep(1)
    assert ends(story.floor) == [(ResponseStatus.COMPLETED, "stop")] * 2


async def test_a_failed_item_leaves_a_native_context_alone(autojump_clock: object) -> None:
    async with playing('speak "a" for 0.1; fail "flawed"; wait 1; listen 1; speak "b" for 0.1') as story:
        await trio.sleep(1)
        story.feed(1)
        await trio.sleep(1)
    assert ends(story.floor) == [(ResponseStatus.FAILED, "engine_error"), (ResponseStatus.COMPLETED, "stop")]


async def test_a_model_yields(autojump_clock: object) -> None:
    async with playing('speak "a" for 0.1; yield; wait 9') as story:
        await trio.sleep(1)
        (end,) = story.floor.of(ResponseEnded)
    assert isinstance(end, ResponseEnded)
    assert (end.status, end.yielded, end.listen_reason) == (ResponseStatus.COMPLETED, True, "model_listen")


async def test_a_forced_listen_makes_a_native_model_yield(autojump_clock: object) -> None:
    async with playing('speak "a" for 5') as story:
        await trio.sleep(1)
        story.feed(1, force_listen=True)
        await trio.sleep(0.1)
        (end,) = story.floor.of(ResponseEnded)
    assert isinstance(end, ResponseEnded)
    assert end.yielded


async def test_an_obedient_model_yields_when_the_silence_gets_too_long(autojump_clock: object) -> None:
    async with playing('speak "a" for 60') as story:
        await trio.sleep(61)
        (end,) = story.floor.of(ResponseEnded)
    assert isinstance(end, ResponseEnded)
    assert (end.yielded, end.listen_reason) == (True, "continuation_limit")


async def test_a_stubborn_model_is_cut(autojump_clock: object) -> None:
    async with playing('speak "a" for 60', obedient=False) as story:
        await trio.sleep(61)
        assert ends(story.floor) == [(ResponseStatus.INCOMPLETE, "continuation_limit")]


async def test_slow_steps_are_slower_than_real_time(autojump_clock: object) -> None:
    async with playing('slow 2; speak "a" for 0.8; speak "b" for 0.8', mode="turn") as story:
        began = trio.current_time()
        story.turn()
        await trio.sleep(5)
        assert story.floor.facts[-1][0] == pytest.approx(began + 1.6)
        story.turn()
        await trio.sleep(1.5)
        assert len(story.floor.of(ResponseEnded)) == 1


async def test_a_script_can_say_what_it_knows(autojump_clock: object) -> None:
    async with playing('speak "{instructions}; {history}" for 0.1', mode="turn") as story:
        story.floor.messages = (
            Message(role="user", text="hi", item_id="1"),
            Message(role="assistant", text="ho", item_id="2"),
        )
        story.turn()
        await trio.sleep(1)
    said = "".join(fact.text for _, fact in story.floor.facts if isinstance(fact, ResponseAudio))
    assert said == "be brief; user: hi | assistant: ho"


async def test_an_interrupted_answer_is_left_and_the_script_goes_on(autojump_clock: object) -> None:
    async with playing('speak "a" for 5; wait 2; crash; listen 1; speak "b" for 0.1') as story:
        await trio.sleep(1)
        for over in story.epoch.interrupt("test"):
            await over.wait()
        story.feed(1)
        await trio.sleep(1)
    assert ends(story.floor) == [(ResponseStatus.CANCELLED, "test"), (ResponseStatus.COMPLETED, "stop")]
    assert len(story.floor.of(ResponseOpened)) == 2


REFUSED = [
    ({"mode": "loud"}, "mode"),
    ({"unit_ms": 0}, "unit_ms"),
    ({"step_ms": -1}, "step_ms"),
    ({"lead_s": "much"}, "lead_s"),
    ({"host": "cloud"}, "host"),
    ({"workers": ()}, "workers"),
    ({"workers": ("a", "a")}, "workers"),
    ({"interrupt": "everything"}, "interrupt"),
    ({"script": "sing"}, "script"),
    ({"script": "crash nobody"}, "script"),
    ({"script": "hang", "host": "thread"}, "script"),
    ({"volume": 11}, "options"),
]


@pytest.mark.parametrize(("options", "param"), REFUSED, ids=[str(options) for options, _ in REFUSED])
def test_wrong_options_are_refused_by_name(options: dict[str, object], param: str) -> None:
    with pytest.raises(ConfigRejected) as caught:
        load_plugin("scripted", options)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("extra_body", "param"),
    [
        ({"script": "sing"}, "extra_body.script"),
        ({"script": 5}, "extra_body.script"),
        ({"mark": -1}, "extra_body.mark"),
        ({"mark": True}, "extra_body.mark"),
        ({"worker": "nobody"}, "extra_body.worker"),
    ],
)
def test_wrong_session_options_are_refused_by_name(extra_body: dict[str, object], param: str) -> None:
    with pytest.raises(ConfigRejected) as caught:
        ScriptedPlugin().plan(SessionConfig(extra_body=extra_body))
    assert caught.value.param == param


def test_it_says_that_it_is_no_model() -> None:
    plugin = ScriptedPlugin()
    assert plugin.capabilities(None).test_only
    assert plugin.capabilities(None).max_sessions == 1000
    assert [model["notice"] for model in plugin.describe()] == [NOTICE]


def test_sessions_get_different_marks() -> None:
    plugin = ScriptedPlugin()
    assert len({plugin.remember(LIMITS).mark for _ in range(5)}) == 5
    assert math.isinf(plugin.plan(SessionConfig(extra_body={"script": "listen"})).script[0].count)  # type: ignore[union-attr]
