"""The service: workers kept running, the plugin rehearsed through the production path, and readiness that says so."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from actors_kit import UNIT, Crash, Echo, sound, worker_spec
from trio.testing import MockClock

from duplex_engine.actors.host.inline import InlineHost
from duplex_engine.actors.observations import LoadProgressed, Observation, WorkerLost, WorkerStarted
from duplex_engine.actors.service import WARM_UP_LIMIT_S, Service
from duplex_engine.actors.supervisor import sole_exception
from duplex_engine.config import SessionLimits
from duplex_engine.conversation.effects import Turn
from duplex_engine.errors import LeaseLost, ServiceFailed
from duplex_engine.model_plugins.behaviours import NativeDuplex, TurnBased
from duplex_engine.model_plugins.contract import Epoch, HostKind, Rehearsal, Response, UnitFormat, Work, WorkerSpec
from duplex_engine.protocol.capabilities import Capabilities, TurnPolicy


@attrs.define(eq=False)
class Native(NativeDuplex):
    """Asks every one of its workers about every unit, and answers the second one."""

    specs: Sequence[WorkerSpec]
    questions: list[object] = attrs.Factory(list)
    name: str = "native"

    def capabilities(self, max_sessions: int | None) -> Capabilities:
        return Capabilities(turn_policy=TurnPolicy.MODEL)

    def unit_format(self) -> UnitFormat:
        return UNIT

    def workers(self, max_sessions: int) -> Sequence[WorkerSpec]:
        return self.specs

    async def converse(self, epoch: Epoch) -> None:
        async with epoch.lease("ear") as ear, epoch.lease("mouth") as mouth:
            for number in range(100):
                unit = await epoch.next_unit()
                question = self.questions.pop(0) if self.questions else Echo(unit.samples.shape)
                await ear.step(question)
                await mouth.step(Echo(number))
                if number == 1:
                    async with epoch.response() as response:
                        await response.audio(sound(0.1))


class Bare(Native):
    """Has no workers to rehearse with."""

    async def warm_up(self, rehearsal: Rehearsal) -> None:
        pass


class Endless(Native):
    """Never stops rehearsing."""

    async def warm_up(self, rehearsal: Rehearsal) -> None:
        await trio.sleep_forever()


@attrs.define(eq=False)
class TurnModel(TurnBased):
    """Asks its worker about a turn."""

    specs: Sequence[WorkerSpec]
    name: str = "turn"

    def capabilities(self, max_sessions: int | None) -> Capabilities:
        return Capabilities(turn_policy=TurnPolicy.TURN)

    def unit_format(self) -> UnitFormat:
        return UNIT

    def workers(self, max_sessions: int) -> Sequence[WorkerSpec]:
        return self.specs

    async def answer(self, epoch: Epoch, turn: Turn, response: Response) -> None:
        assert turn.utterance is not None
        async with epoch.lease("ear") as ear:
            await response.audio(sound(0.1), text=str(await ear.step(Echo(turn.utterance.samples().shape))))


class Devices:
    """Two workers and what they were asked."""

    def __init__(self, slots: int = 2, **fields: object) -> None:
        self.ear: list[Work] = []
        self.mouth: list[Work] = []
        self.specs = (
            worker_spec(name="ear", slots=slots, steps=self.ear, **fields),
            worker_spec(name="mouth", slots=slots, steps=self.mouth),
        )


@asynccontextmanager
async def serving(plugin: Native | TurnModel) -> AsyncIterator[tuple[Service, list[Observation]]]:
    seen: list[Observation] = []
    service = Service(plugin, 2, {HostKind.INLINE: InlineHost()}, SessionLimits(), seen.append)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(service.run)
            yield service, seen
            nursery.cancel_scope.cancel()
    except ExceptionGroup as group:
        raise sole_exception(group) from None


async def crash(service: Service, worker: str) -> None:
    with pytest.raises(LeaseLost):
        async with service.lease(worker, {}, 1.0) as lease:
            await lease.step(Crash())


async def test_ready_means_loaded_and_rehearsed_through_the_production_path(autojump_clock: MockClock) -> None:
    devices = Devices()
    async with serving(Native(devices.specs)) as (service, seen):
        assert not service.ready
        await service.wait_ready()
        assert service.ready
        asked = [payload.value for work in devices.ear for _, _, payload in work.items]  # type: ignore[attr-defined]
        assert asked == [(UNIT.samples,)] * 4, "a few units of silence"
        assert len([work for work in devices.mouth if work.items]) == 4
        await trio.sleep(1.0)
        assert [worker.free_slots for worker in service.workers.values()] == [2, 2]
        assert {(o.worker, o.fraction) for o in seen if isinstance(o, LoadProgressed)} == {("ear", 1.0), ("mouth", 1.0)}


async def test_a_turn_model_is_rehearsed_with_a_silent_turn(autojump_clock: MockClock) -> None:
    devices = Devices()
    async with serving(TurnModel(devices.specs)) as (service, _):
        await service.wait_ready()
        asked = [payload.value for work in devices.ear for _, _, payload in work.items]  # type: ignore[attr-defined]
        assert asked == [(UNIT.rate_hz // 2,)]


async def test_a_service_without_workers_is_ready_at_once(autojump_clock: MockClock) -> None:
    async with serving(Bare(())) as (service, _):
        await service.wait_ready()


async def test_a_crash_is_restarted_and_rehearsed_again_before_newcomers_are_let_in(autojump_clock: MockClock) -> None:
    devices = Devices()
    async with serving(Native(devices.specs)) as (service, seen):
        await service.wait_ready()
        before, mouth = len(devices.ear), service.workers["mouth"]
        await crash(service, "ear")
        assert not service.ready
        assert mouth.ready, "the other worker notices nothing"
        began = trio.current_time()
        await service.wait_ready()
        assert trio.current_time() - began > 0.1
        assert sum(len(work.items) for work in devices.ear[before:]) == 1 + 4
        lives = [(type(o), o.worker) for o in seen if isinstance(o, WorkerStarted | WorkerLost) and o.worker == "mouth"]
        assert lives == [(WorkerStarted, "mouth")]


async def test_sessions_that_take_their_slots_back_are_the_rehearsal(autojump_clock: MockClock) -> None:
    devices = Devices()
    async with serving(Native(devices.specs)) as (service, _):
        await service.wait_ready()
        await crash(service, "ear")
        before = len(devices.mouth)
        async with service.lease("ear", {}, 5.0) as lease:
            await service.wait_ready()
            await lease.step(Echo("a session"))
            await trio.sleep(1.0)
        assert len(devices.mouth) == before


async def test_a_rehearsal_after_a_restart_that_fails_stops_nobody(autojump_clock: MockClock) -> None:
    devices = Devices()
    plugin = Native(devices.specs)
    async with serving(plugin) as (service, _):
        await service.wait_ready()
        plugin.questions.append(Crash())
        await crash(service, "ear")
        await service.wait_ready()
        async with service.lease("ear", {}, 5.0) as lease:
            assert await lease.step(Echo("fine")) == ({}, 0, "fine")


async def test_a_first_rehearsal_that_fails_fails_the_service(autojump_clock: MockClock) -> None:
    async def serve() -> None:
        async with serving(Native(Devices().specs, questions=[Crash("no memory")])) as (service, _):
            await service.wait_ready()

    with pytest.raises(ServiceFailed, match="the rehearsal of 'native' failed: worker 'ear' was lost: no memory"):
        await serve()


async def test_a_rehearsal_that_never_ends_is_cut_off(autojump_clock: MockClock) -> None:
    async with serving(Endless(Devices().specs)) as (service, _):
        await service.wait_ready()
        assert trio.current_time() == WARM_UP_LIMIT_S


async def test_a_worker_that_crashes_too_often_fails_the_service(autojump_clock: MockClock) -> None:
    async def serve() -> None:
        async with serving(Native(Devices().specs)) as (service, _):
            for _ in range(4):
                await service.wait_ready()
                await crash(service, "ear")
            await trio.sleep_forever()

    with pytest.raises(ServiceFailed, match="worker 'ear' failed more than 3 times in 60 s, at last: device on fire"):
        await serve()


async def test_a_worker_that_cannot_be_loaded_fails_the_service_at_once(autojump_clock: MockClock) -> None:
    refusing = WorkerSpec(
        name="ear",
        stepper="actors_steppers:HostedStepper",
        arguments={"loading": "refuse"},
        host=HostKind.INLINE,
    )

    async def serve() -> None:
        async with serving(Native((refusing,))) as (service, _):
            await service.wait_ready()

    with pytest.raises(ServiceFailed, match="run `make weights`"):
        await serve()
    assert trio.current_time() == 0.0


async def test_a_worker_that_is_not_declared_cannot_be_leased(autojump_clock: MockClock) -> None:
    async with serving(Native(Devices().specs)) as (service, _):
        with pytest.raises(LeaseLost, match=r"declares no such worker; it has \['ear', 'mouth'\]"):
            service.lease("nose", {}, 1.0)
