"""What a plugin may ask of the engine for one session: endless answers, a bounded backlog, another kind of interruption."""

import math
from typing import Any

import attrs
import numpy as np
import pytest
import trio
from trio.testing import MockClock

from duplex_engine.actors.inlet import Inlet
from duplex_engine.actors.observations import InputAged, InputDropped, Observation
from duplex_engine.config import EngineConfig, Limits, SessionLimits
from duplex_engine.conversation.effects import Feed
from duplex_engine.engine import EmbeddedSession, open_engine
from duplex_engine.errors import AdmissionRefused
from duplex_engine.model_plugins.behaviours import NativeDuplex
from duplex_engine.model_plugins.contract import Epoch, EpochCause, SessionPlan, UnitFormat
from duplex_engine.protocol.capabilities import Capabilities, Interrupt, TurnPolicy
from duplex_engine.protocol.commands import CancelResponse
from duplex_engine.protocol.events import ResponseDone
from duplex_engine.protocol.session_config import SessionConfig

UNIT = UnitFormat(rate_hz=1000, samples=80, output_rate_hz=1000)
SILENT = bytes(2 * 80)


@attrs.define
class Parrot(NativeDuplex):
    """Says one unit for each it hears, in one answer. `causes`: of the lives of its context."""

    session: SessionPlan = attrs.Factory(SessionPlan)
    full: str | None = None
    name: str = "parrot"
    causes: list[EpochCause] = attrs.Factory(list)
    answers: int = 0

    def capabilities(self, max_sessions: int | None) -> Capabilities:
        return Capabilities(
            turn_policy=TurnPolicy.MODEL,
            client_commit=False,
            interrupt=Interrupt.EPOCH,
            chunk_period_ms=80,
            max_sessions=max_sessions or 2,
        )

    def unit_format(self) -> UnitFormat:
        return UNIT

    def plan(self, config: SessionConfig) -> SessionPlan:
        return self.session

    def overloaded(self) -> str | None:
        return self.full

    async def converse(self, epoch: Epoch) -> None:
        self.causes.append(epoch.cause)
        while True:
            async with epoch.response() as response:
                self.answers += 1
                while True:
                    await epoch.next_unit()
                    await response.audio(SILENT, text="a ")


def limits(**session: Any) -> EngineConfig:
    return EngineConfig(limits=Limits(session=SessionLimits(**session)))


async def talk(session: EmbeddedSession, seconds: float) -> None:
    for _ in range(round(seconds / 0.08)):
        session.append(SILENT)
        await trio.sleep(0.08)


@pytest.mark.parametrize(("endless", "answers"), [(True, 1), (False, 3)])
async def test_an_endless_answer_has_no_bound_on_its_time(
    autojump_clock: MockClock, endless: bool, answers: int
) -> None:
    parrot = Parrot(SessionPlan(endless=endless))
    async with open_engine(limits(answer_s=10.0), plugin=parrot) as engine:
        rehearsed = parrot.answers
        async with engine.open_session({"sample_rate_hz": 8000}) as session:
            await talk(session, 25)
    assert parrot.answers - rehearsed == answers


@pytest.mark.parametrize(
    ("interrupt", "lives"),
    [(None, [EpochCause.OPENED, EpochCause.INTERRUPTED]), (Interrupt.RESPONSE, [EpochCause.OPENED])],
)
async def test_a_plan_says_what_an_interruption_ends(
    autojump_clock: MockClock, interrupt: Interrupt | None, lives: list[EpochCause]
) -> None:
    parrot = Parrot(SessionPlan(interrupt=interrupt))
    async with open_engine(limits(), plugin=parrot) as engine:
        parrot.causes.clear()
        async with engine.open_session({"sample_rate_hz": 8000}) as session:
            with session.events() as events:
                await talk(session, 1)
                session.send(CancelResponse())
                async for event in events:
                    if isinstance(event, ResponseDone):
                        break
                await talk(session, 1)
            assert parrot.causes == lives
            assert parrot.answers >= 2, "it goes on speaking"


async def test_who_is_overloaded_takes_nobody_else(autojump_clock: MockClock) -> None:
    parrot = Parrot()
    async with open_engine(limits(), plugin=parrot) as engine:
        async with engine.open_session({}):
            parrot.full = "a step takes 70 ms of 80"
            with pytest.raises(AdmissionRefused, match="70 ms") as refusal:
                async with engine.open_session({}):
                    pytest.fail("there was no room")
        assert (refusal.value.code, refusal.value.retryable) == ("resource_exhausted", True)
        assert engine.snapshot().seats_taken == 0


def new_inlet(seen: list[Observation]) -> Inlet:
    return Inlet("duplex-0", UNIT, SessionLimits(lag_notice_ms=100), seen.append)


def numbered(*units: int) -> Feed:
    return Feed(np.repeat(np.array(units, np.float32), UNIT.samples))


@pytest.mark.parametrize(
    ("max_backlog_s", "left"), [(math.inf, [1, 2, 3, 4, 5]), (0.24, [3, 4, 5]), (0.08, [5]), (0.01, [5])]
)
async def test_the_oldest_input_is_dropped_beyond_the_backlog(
    autojump_clock: MockClock, max_backlog_s: float, left: list[int]
) -> None:
    seen: list[Observation] = []
    inlet = new_inlet(seen)
    assert inlet.take_in(numbered(1, 2, 3), answering=False, max_backlog_s=max_backlog_s)
    inlet.take_in(numbered(4, 5), answering=False, max_backlog_s=max_backlog_s)
    taken = []
    while (unit := inlet.intake.unit()) is not None:
        inlet.taken()
        taken.append(int(unit[0]))
    assert taken == left
    dropped = sum(observation.units for observation in seen if isinstance(observation, InputDropped))
    assert dropped == 5 - len(left)
    assert len([observation for observation in seen if isinstance(observation, InputAged)]) == len(left)


async def test_what_was_dropped_is_in_the_next_notice(autojump_clock: MockClock) -> None:
    inlet = new_inlet([])
    inlet.take_in(numbered(1, 2, 3, 4), answering=False, max_backlog_s=0.16)
    assert inlet.lag_ms() is None
    await trio.sleep(0.5)
    assert inlet.lag_ms() == (500, 160)


async def test_a_unit_says_how_many_wait_behind_it(autojump_clock: MockClock) -> None:
    behind: list[int] = []

    class Slow(Parrot):
        async def converse(self, epoch: Epoch) -> None:
            await trio.sleep(1)
            while True:
                behind.append((await epoch.next_unit()).behind)

    async with open_engine(limits(), plugin=Slow()) as engine:
        async with engine.open_session({"sample_rate_hz": 8000, "input_audio_format": "pcm_f32le"}) as session:
            behind.clear()
            session.append(np.zeros(2000 * 8, np.float32).tobytes())
            await trio.sleep(2)
    assert behind
    assert behind == list(reversed(range(len(behind))))


@pytest.mark.parametrize(("late_s", "silent"), [(0.0, 10), (0.08, 0)])
async def test_a_unit_that_is_a_little_late_is_waited_for(
    autojump_clock: MockClock, late_s: float, silent: int
) -> None:
    heard: list[bool] = []

    class Eager(Parrot):
        def unit_format(self) -> UnitFormat:
            return UnitFormat(rate_hz=8000, samples=640, output_rate_hz=1000)

        async def converse(self, epoch: Epoch) -> None:
            while True:
                heard.append((await epoch.next_unit(continuing=True)).silent)

    async with open_engine(limits(), plugin=Eager(SessionPlan(late_s=late_s))) as engine:
        async with engine.open_session({"input_audio_format": "pcm_f32le", "sample_rate_hz": 8000}) as session:
            session.append(np.zeros(640, np.float32).tobytes())
            await trio.testing.wait_all_tasks_blocked()
            heard.clear()
            for _ in range(11):
                await trio.sleep(0.09)
                session.append(np.zeros(640, np.float32).tobytes())
            assert sum(heard) >= silent
            assert (sum(heard) == 0) == (silent == 0)
