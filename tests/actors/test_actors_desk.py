"""The desk: seats are taken without waiting or refused with a reason, and come back with the last word of a session."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from actors_kit import UNIT, NoLender, under_schedules
from trio.testing import MockClock

from duplex_engine.actors.desk import Desk
from duplex_engine.actors.handle import SessionHandle
from duplex_engine.actors.observations import Observation, SeatRefused, SessionEnded, SessionOpened
from duplex_engine.config import SessionLimits
from duplex_engine.errors import AdmissionRefused, ConfigRejected, SessionGone
from duplex_engine.model_plugins.behaviours import NativeDuplex
from duplex_engine.model_plugins.contract import Epoch, SessionPlan, UnitFormat
from duplex_engine.protocol.capabilities import Capabilities, TurnPolicy
from duplex_engine.protocol.commands import Heartbeat
from duplex_engine.protocol.session_config import SessionConfig

ABANDONED_AFTER_S = 10.0


@attrs.define(eq=False)
class Listener(NativeDuplex):
    """Listens for ever."""

    name: str = "listener"

    def capabilities(self, max_sessions: int | None) -> Capabilities:
        return Capabilities(turn_policy=TurnPolicy.MODEL, max_sessions=max_sessions or 2)

    def unit_format(self) -> UnitFormat:
        return UNIT

    def plan(self, config: SessionConfig) -> SessionPlan:
        if config.model == "refused":
            raise ConfigRejected("invalid_session_config", "no such voice", "voice")
        return SessionPlan()

    async def converse(self, epoch: Epoch) -> None:
        while True:
            await epoch.next_unit()


class House:
    """A desk with two seats, and what it told its observer."""

    def __init__(self, nursery: trio.Nursery) -> None:
        plugin = Listener()
        self.ready = True
        self.seen: list[Observation] = []
        self.desk = Desk(
            nursery,
            plugin,
            plugin.capabilities(None),
            NoLender(),
            SessionLimits(),
            self.seen.append,
            lambda: self.ready,
        )

    async def open(self, **config: object) -> SessionHandle:
        return await self.desk.open(SessionConfig(native=True, **config))  # type: ignore[arg-type]

    async def refusal(self) -> str:
        seats = self.desk.seats_taken
        with pytest.raises(AdmissionRefused) as refused:
            await self.open()
        assert refused.value.retryable
        assert self.seen[-1] == SeatRefused(refused.value.code)
        assert self.desk.seats_taken == seats
        return refused.value.code

    @property
    def living(self) -> int:
        return sum(isinstance(o, SessionOpened) - isinstance(o, SessionEnded) for o in self.seen)


@asynccontextmanager
async def opened_house() -> AsyncIterator[House]:
    async with trio.open_nursery() as nursery:
        yield House(nursery)
        nursery.cancel_scope.cancel()


async def test_seats_are_limited_and_free_again_with_the_last_word(autojump_clock: MockClock) -> None:
    async with opened_house() as house:
        first, second = await house.open(), await house.open()
        assert first.id != second.id
        assert await house.refusal() == "resource_exhausted"
        first.end("client_close")
        await first.over.wait()
        assert (house.desk.seats_taken, house.living) == (1, 1)
        with pytest.raises(SessionGone):
            first.submit(Heartbeat())
        await house.open()
        assert trio.current_time() == 0.0


async def test_nobody_is_seated_before_the_model_is_warm(autojump_clock: MockClock) -> None:
    async with opened_house() as house:
        house.ready = False
        assert await house.refusal() == "warming_up"
        house.ready = True
        await house.open()


async def test_a_configuration_that_the_plugin_refuses_takes_no_seat(autojump_clock: MockClock) -> None:
    async with opened_house() as house:
        with pytest.raises(ConfigRejected, match="no such voice"):
            await house.open(model="refused")
        assert house.desk.seats_taken == 0
        assert house.seen == []


async def test_a_session_that_nobody_attaches_to_is_abandoned(autojump_clock: MockClock) -> None:
    async with opened_house() as house:
        handle = await house.open()
        await handle.over.wait()
        assert trio.current_time() == ABANDONED_AFTER_S
        assert handle.ending_reason == "open_abandoned"
        assert house.desk.seats_taken == 0


@under_schedules(100)
async def test_an_opener_that_is_cancelled_leaves_nothing_behind() -> None:
    """I10: whenever the openers go away, seats taken are sessions alive, and in the end there are none."""

    async def open_and_forget(steps: int) -> None:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as opener:
                opener.start_soon(cancel_after, steps, scope)
                await house.open()

    async with opened_house() as house:
        async with trio.open_nursery() as nursery:
            for steps in (0, 1):
                nursery.start_soon(open_and_forget, steps)
        await trio.testing.wait_all_tasks_blocked()
        assert house.desk.seats_taken == house.living
        await trio.sleep(ABANDONED_AFTER_S + 1)
        assert (house.desk.seats_taken, house.living) == (0, 0)


async def cancel_after(steps: int, scope: trio.CancelScope) -> None:
    for _ in range(steps):
        await trio.lowlevel.checkpoint()
    scope.cancel()


async def test_a_drain_waits_for_those_who_leave_by_themselves(autojump_clock: MockClock) -> None:
    async with opened_house() as house, trio.open_nursery() as nursery:
        handle = await house.open()
        nursery.start_soon(house.desk.drain, 9.0)
        await trio.sleep(3.0)
        assert await house.refusal() == "draining"
        handle.end("client_close")
    assert trio.current_time() == 3.0


async def test_a_drain_ends_the_rest_when_the_grace_is_over(autojump_clock: MockClock) -> None:
    async with opened_house() as house:
        handles = [await house.open(), await house.open()]
        await house.desk.drain(4.0)
        assert trio.current_time() == 4.0
        assert [handle.ending_reason for handle in handles] == ["shutdown", "shutdown"]
        assert house.desk.seats_taken == 0


async def test_a_second_drain_may_shorten_the_first(autojump_clock: MockClock) -> None:
    async with opened_house() as house, trio.open_nursery() as nursery:
        await house.open()
        nursery.start_soon(house.desk.drain, 9.0)
        await trio.sleep(1.0)
        await house.desk.drain(1.0)
        assert trio.current_time() == 2.0
    assert trio.current_time() == 2.0


@under_schedules(50)
async def test_whoever_comes_while_the_house_closes_is_refused_or_sent_home() -> None:
    async def come(after: int) -> None:
        for _ in range(after):
            await trio.lowlevel.checkpoint()
        try:
            await house.open()
        except AdmissionRefused as refused:
            refusals.append(refused.code)

    refusals: list[str] = []
    async with opened_house() as house:
        async with trio.open_nursery() as nursery:
            for after in range(2):
                nursery.start_soon(come, after)
            await trio.lowlevel.checkpoint()
            await house.desk.drain(0.0)
        assert set(refusals) <= {"draining"}
        assert (house.desk.seats_taken, house.living) == (0, 0)
