"""The epoch scope: offers, answers alive, and waiting for input all end with it, at the same instant of the clock."""

import attrs
import numpy as np
import pytest
import trio
from actors_kit import (
    UNIT,
    Model,
    RememberingFloor,
    conversing,
    joined,
    new_epoch,
    new_turn,
    sound,
    under_schedules,
)
from trio.testing import MockClock

from duplex_engine.actors.epoch import Epoch
from duplex_engine.config import SessionLimits
from duplex_engine.conversation.effects import Turn, Utterance
from duplex_engine.conversation.facts import (
    Fact,
    FunctionOutput,
    ModelListened,
    OutputsTaken,
    ResponseAudio,
    ResponseEnded,
    ResponseOpened,
    ResponseStatus,
    UserHeard,
)
from duplex_engine.errors import EpochOver, LeaseLost
from duplex_engine.model_plugins.contract import AudioUnit

CANCELLED, COMPLETED, FAILED = ResponseStatus.CANCELLED, ResponseStatus.COMPLETED, ResponseStatus.FAILED


def endings(floor: RememberingFloor) -> list[tuple[object, ResponseStatus, str]]:
    return [(f.key, f.status, f.reason) for f in floor.facts(ResponseEnded) if isinstance(f, ResponseEnded)]


async def listen_for_ever(epoch: Epoch) -> None:
    await trio.sleep_forever()


async def answer_turns(epoch: Epoch) -> None:
    """One second of sound for every turn."""
    while True:
        turn = await epoch.next_turn()
        async with epoch.response(turn) as response:
            for _ in range(10):
                await response.audio(sound(0.1))
                await trio.sleep(0.1)


# --- its end ------------------------------------------------------------------------------------------------------


async def test_ending_takes_no_time_and_ends_what_is_inside(autojump_clock: MockClock) -> None:
    left: list[str] = []

    async def converse(epoch: Epoch) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(answer_turns, epoch)
                await epoch.next_unit()
        finally:
            left.append("converse")

    async with conversing(converse) as (epoch, floor):
        turn, waiting = new_turn(), new_turn()
        epoch.offer(turn)
        epoch.offer(waiting)
        await trio.sleep(0.55)
        await joined(epoch.end("barge_in"))
        assert trio.current_time() == 0.55
        assert left == ["converse"]
        assert epoch.over.is_set()
        assert set(endings(floor)) == {(turn, CANCELLED, "barge_in"), (waiting, CANCELLED, "barge_in")}
        await joined(epoch.end("again"))
        assert len(endings(floor)) == 2


async def test_an_epoch_that_ended_refuses_whoever_still_holds_it(autojump_clock: MockClock) -> None:
    async with conversing(listen_for_ever) as (epoch, floor):
        await trio.sleep(1.0)
        await joined(epoch.end("over"))
        for use in (
            epoch.next_unit,
            lambda: epoch.next_unit(continuing=True),
            epoch.next_turn,
            epoch.overhear,
            epoch.listen,
            lambda: epoch.heard("late"),
            lambda: epoch.response().__aenter__(),
        ):
            with pytest.raises(EpochOver):
                await use()
        assert floor.said == []


async def test_a_crash_fails_the_offers_that_nobody_answered(autojump_clock: MockClock) -> None:
    async def converse(epoch: Epoch) -> None:
        await trio.sleep(1.0)
        raise LeaseLost("talker", "gone")

    floor = RememberingFloor()
    epoch, turn = new_epoch(floor), new_turn()
    epoch.offer(turn)
    with pytest.raises(LeaseLost):
        await epoch.run(Model(converse))
    assert endings(floor) == [(turn, FAILED, "engine_error")]


async def test_a_model_that_stops_conversing_has_failed(autojump_clock: MockClock) -> None:
    async def converse(epoch: Epoch) -> None:
        pass

    with pytest.raises(EpochOver, match=r"model\.converse returned; it has to run until it is cancelled"):
        await new_epoch(RememberingFloor()).run(Model(converse))


async def test_an_answer_fails_when_its_model_crashes_beside_it(autojump_clock: MockClock) -> None:
    async def crash() -> None:
        await trio.sleep(0.55)
        raise ValueError

    async def converse(epoch: Epoch) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(crash)
            await answer_turns(epoch)

    async with conversing(converse) as (epoch, floor):
        turn = new_turn()
        epoch.offer(turn)
        await epoch.over.wait()
        assert endings(floor) == [(turn, FAILED, "internal_error")]


async def test_an_epoch_ended_before_it_started_loses_its_offers_and_can_still_start(autojump_clock: MockClock) -> None:
    floor = RememberingFloor()
    epoch, early, late = new_epoch(floor), new_turn(), new_turn()
    epoch.offer(early)
    await joined(epoch.end("client_cancelled"))
    assert endings(floor) == [(early, CANCELLED, "client_cancelled")]
    assert not epoch.over.is_set()
    epoch.offer(late)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(epoch.run, Model(answer_turns))
        await trio.sleep(2.0)
        await joined(epoch.end("over"))
    assert endings(floor)[1:] == [(late, COMPLETED, "stop")]


async def test_a_session_that_leaves_cuts_its_epoch_without_waiting(autojump_clock: MockClock) -> None:
    floor = RememberingFloor()
    epoch, turn = new_epoch(floor), new_turn()
    epoch.offer(turn)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(epoch.run, Model(answer_turns))
        await trio.sleep(0.55)
        nursery.cancel_scope.cancel()
        epoch.cut("session_closed")
    assert endings(floor) == [(turn, CANCELLED, "session_closed")]


# --- interruptions ------------------------------------------------------------------------------------------------


async def test_an_interruption_ends_every_answer_and_the_context_survives(autojump_clock: MockClock) -> None:
    contexts: list[str] = []

    async def converse(epoch: Epoch) -> None:
        contexts.append("begun")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer_turns, epoch)
            nursery.start_soon(answer_turns, epoch)

    async with conversing(converse) as (epoch, floor):
        turns = [new_turn() for _ in range(4)]
        for turn in turns:
            epoch.offer(turn)
        await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(0.55)
        await joined(epoch.interrupt("turn_detected"))
        assert trio.current_time() == 0.55
        assert set(endings(floor)) == {(turn, CANCELLED, "turn_detected") for turn in turns}
        assert len(endings(floor)) == 4
        following = new_turn()
        epoch.offer(following)
        await trio.sleep(2.0)
        assert endings(floor)[4:] == [(following, COMPLETED, "stop")]
    assert contexts == ["begun"]


@under_schedules(200)
async def test_every_offer_gets_exactly_one_terminal_whenever_it_is_withdrawn() -> None:
    """An interruption may come before the plugin saw the turn, between that and its answer, or in the answer."""
    async with conversing(answer_turns) as (epoch, floor):
        turns = [new_turn() for _ in range(3)]
        for steps, turn in enumerate(turns):
            epoch.offer(turn)
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            await joined(epoch.interrupt("barge_in"))
        last = new_turn()
        epoch.offer(last)
        await trio.sleep(2.0)
        assert [ending[:2] for ending in endings(floor)] == [*((turn, CANCELLED) for turn in turns), (last, COMPLETED)]
        for turn in turns:
            facts = [fact for _, fact in floor.said if getattr(fact, "key", None) is turn]
            assert isinstance(facts[-1], ResponseEnded), "something was said after the terminal"
            assert [isinstance(fact, ResponseOpened) for fact in facts[1:]].count(True) == 0


@attrs.define
class PromotingFloor(RememberingFloor):
    """Offers the next turn as soon as an answer has ended, like a conversation in which one was deferred."""

    deferred: list[Turn] = attrs.Factory(list)
    epoch: Epoch | None = None

    def learn(self, fact: Fact) -> None:
        super().learn(fact)
        if isinstance(fact, ResponseEnded) and self.deferred:
            assert self.epoch is not None
            self.epoch.offer(self.deferred.pop())


async def test_an_interruption_spares_what_is_offered_because_of_it(autojump_clock: MockClock) -> None:
    """Also before the model has looked at the turn that is taken back."""
    first, second = new_turn(), new_turn()
    async with conversing(answer_turns, floor := PromotingFloor(deferred=[second])) as (epoch, _):
        floor.epoch = epoch
        epoch.offer(first)
        await joined(epoch.interrupt("client_cancelled"))
        await trio.sleep(2)
    assert endings(floor) == [(first, CANCELLED, "client_cancelled"), (second, COMPLETED, "stop")]


async def test_a_model_that_hears_units_hears_the_turn_it_is_offered(autojump_clock: MockClock) -> None:
    """It has to listen up to the last unit, and answers or not on that one; what is taken back is not heard."""
    heard: list[bool] = []

    async def hear(epoch: Epoch) -> None:
        while True:
            unit = await epoch.next_unit(continuing=True)
            heard.append(unit.force_listen)
            await epoch.listen()

    samples = np.ones(5 * UNIT.samples // 2, np.float32)
    turns = [attrs.evolve(new_turn(), utterance=Utterance(chunks=[samples], over=True)) for _ in range(2)]
    floor = RememberingFloor(native=False, hears_units=True)
    async with conversing(hear, floor) as (epoch, _):
        epoch.offer(turns[0])
        await joined(epoch.interrupt("client_cancelled"))
        epoch.offer(turns[1])
        await trio.sleep(1)
    assert heard == [True, True, False]
    assert endings(floor) == [(turns[0], CANCELLED, "client_cancelled"), (turns[1], COMPLETED, "stop")]
    assert len(floor.facts(ModelListened)) == 2


async def test_a_withdrawn_offer_that_is_answered_all_the_same_says_nothing(autojump_clock: MockClock) -> None:
    entered: list[bool] = []

    async def converse(epoch: Epoch) -> None:
        turn = await epoch.next_turn()
        await trio.sleep(1.0)
        async with epoch.response(turn) as response:
            entered.append(True)
            response.finish("stop")
            await response.audio(sound(0.1))
            entered.append(False)
        await trio.sleep_forever()

    async with conversing(converse) as (epoch, floor):
        turn = new_turn()
        epoch.offer(turn)
        await trio.sleep(0.5)
        await joined(epoch.interrupt("client_cancelled"))
        assert endings(floor) == [(turn, CANCELLED, "client_cancelled")]
        await trio.sleep(1.0)
        assert entered == [True]
        assert len(floor.said) == 1


async def test_a_turn_stays_offered_until_it_is_answered(autojump_clock: MockClock) -> None:
    seen: list[Turn] = []

    async def converse(epoch: Epoch) -> None:
        seen.append(await epoch.next_turn())
        seen.append(await epoch.next_turn())
        async with epoch.response(seen[-1]):
            pass
        seen.append(await epoch.next_turn())

    async with conversing(converse) as (epoch, _):
        first, second = new_turn(), new_turn()
        epoch.offer(first)
        epoch.offer(second)
        await epoch.over.wait()
    assert seen == [first, first, second]


# --- input --------------------------------------------------------------------------------------------------------


async def test_units_are_taken_as_they_come(autojump_clock: MockClock) -> None:
    units: list[tuple[float, AudioUnit]] = []

    async def converse(epoch: Epoch) -> None:
        while True:
            units.append((trio.current_time(), await epoch.next_unit()))

    async with conversing(converse) as (epoch, floor):
        await trio.sleep(1.0)
        feed(epoch, floor, 2.5, video_frames=(b"picture",), force_listen=True)
        await trio.testing.wait_all_tasks_blocked()
        assert floor.units_taken == 2
        assert [unit.samples.shape for _, unit in units] == [(UNIT.samples,)] * 2
        assert [(unit.force_listen, unit.silent, unit.last) for _, unit in units] == [(True, False, False)] * 2
        assert [unit.video_frames for _, unit in units] == [(), (b"picture",)]
        feed(epoch, floor, 0.5)
        await trio.testing.wait_all_tasks_blocked()
        assert floor.units_taken == 3


async def test_input_survives_a_restart(autojump_clock: MockClock) -> None:
    floor, heard = RememberingFloor(), []

    async def converse(epoch: Epoch) -> None:
        heard.append(float((await epoch.next_unit()).samples[0]))
        await trio.sleep_forever()

    for _ in range(2):
        async with conversing(converse, floor) as (epoch, _):
            if not heard:
                floor.intake.push(np.repeat(np.float32([1, 2]), UNIT.samples))
                epoch.fed()
            await trio.sleep(1.0)
            await joined(epoch.end("barge_in"))
    assert heard == [1.0, 2.0]


async def test_silence_continues_on_a_grid_that_real_input_anchors(autojump_clock: MockClock) -> None:
    units: list[tuple[float, bool]] = []

    async def converse(epoch: Epoch) -> None:
        while True:
            unit = await epoch.next_unit(continuing=True)
            units.append((round(trio.current_time(), 6), unit.silent))
            assert not unit.silent or not unit.samples.any()

    async with conversing(converse) as (epoch, floor):
        await trio.sleep(0.23)
        feed(epoch, floor, 1)
        await trio.sleep(0.27)
        feed(epoch, floor, 1)
        await trio.sleep(0.15)
    assert units == [
        (0.1, True),
        (0.2, True),
        (0.23, False),
        (0.33, True),
        (0.43, True),
        (0.5, False),
        (0.6, True),
    ]


@pytest.mark.parametrize(("native", "bound"), [(True, 6), (False, 3)])
async def test_silence_is_bounded_and_the_model_is_told(native: bool, bound: int, autojump_clock: MockClock) -> None:
    units: list[AudioUnit] = []

    async def converse(epoch: Epoch) -> None:
        async with epoch.response():
            while True:
                units.append(await epoch.next_unit(continuing=True))
        await trio.sleep_forever()

    limits = SessionLimits(silence_units_native=6, silence_units_turn=3)
    async with conversing(converse, RememberingFloor(native=native, limits=limits)) as (_, floor):
        await trio.sleep(10.0)
        assert [unit.last for unit in units[:bound]] == [False] * (bound - 1) + [True]
        assert len(units) <= bound + 1
        assert [ending[1:] for ending in endings(floor)] == [(ResponseStatus.INCOMPLETE, "continuation_limit")]
        assert floor.said[-1][0] == pytest.approx(0.1 * (bound + 1))


async def test_silence_is_counted_for_each_answer(autojump_clock: MockClock) -> None:
    async def converse(epoch: Epoch) -> None:
        for _ in range(3):
            async with epoch.response() as response:
                while not (await epoch.next_unit(continuing=True)).last:
                    await response.audio(sound(0.1))
                response.yields("continuation_limit")
        await trio.sleep_forever()

    limits = SessionLimits(silence_units_native=6)
    async with conversing(converse, RememberingFloor(limits=limits)) as (_, floor):
        await trio.sleep(10.0)
        assert [ending[1] for ending in endings(floor)] == [COMPLETED] * 3
        assert len(floor.facts(ResponseAudio)) == 3 * 5


# --- listening along ----------------------------------------------------------------------------------------------


async def test_overhearing_wakes_for_every_change_and_tells_the_newest(autojump_clock: MockClock) -> None:
    heard: list[Utterance] = []

    async def converse(epoch: Epoch) -> None:
        while True:
            heard.append(await epoch.overhear())
            await trio.sleep(1.0)

    async with conversing(converse) as (epoch, _):
        first, second, third = Utterance(), Utterance(), Utterance()
        await trio.sleep(0.5)
        epoch.overheard(first)
        await trio.testing.wait_all_tasks_blocked()
        epoch.overheard(second)
        epoch.overheard(third)
        await trio.sleep(5.0)
    assert [utterance is first or utterance is third for utterance in heard] == [True, True]
    assert heard[0] is first


async def test_listening_and_hearing_are_told(autojump_clock: MockClock) -> None:
    async def converse(epoch: Epoch) -> None:
        await epoch.listen("buffering")
        await epoch.heard("hello", final=False)

    floor = RememberingFloor()
    with pytest.raises(EpochOver):
        await new_epoch(floor).run(Model(converse))
    assert [fact for _, fact in floor.said] == [ModelListened("buffering"), UserHeard("hello", None, False)]


def feed(epoch: Epoch, floor: RememberingFloor, units: float, **marks: object) -> None:
    floor.intake.push(np.zeros(round(units * UNIT.samples), np.float32), **marks)  # type: ignore[arg-type]
    epoch.fed()


# --- outputs of functions -----------------------------------------------------------------------------------------


def output(number: int) -> FunctionOutput:
    return FunctionOutput(f"call_{number}", "look", str(number))


async def collect(epoch: Epoch, taken: list[tuple[float, AudioUnit]]) -> None:
    while True:
        unit = await epoch.next_unit()
        taken.append((trio.current_time(), unit))


async def test_outputs_ride_on_the_next_unit_of_sound(autojump_clock: MockClock) -> None:
    taken: list[tuple[float, AudioUnit]] = []
    floor = RememberingFloor()
    async with conversing(lambda epoch: collect(epoch, taken), floor) as (epoch, _):
        await trio.sleep(1.0)
        floor.outputs += [output(1), output(2)]
        floor.intake.push(np.zeros(2 * UNIT.samples, np.float32))
        epoch.fed()
        await trio.sleep(5.0)
    assert [(unit.silent, list(unit.function_outputs)) for _, unit in taken] == [
        (False, [output(1), output(2)]),
        (False, []),
    ]
    assert floor.facts(OutputsTaken) == [OutputsTaken(2)]
    assert floor.outputs == []


async def test_an_output_is_worth_a_unit_of_silence_and_spoils_no_sound(autojump_clock: MockClock) -> None:
    taken: list[tuple[float, AudioUnit]] = []
    floor = RememberingFloor()
    async with conversing(lambda epoch: collect(epoch, taken), floor) as (epoch, _):
        floor.intake.push(np.ones(3 * UNIT.samples // 2, np.float32))
        epoch.fed()
        await trio.sleep(1.0)
        floor.outputs.append(output(1))
        epoch.fed()
        await trio.sleep(1.0)
        floor.intake.push(np.ones(UNIT.samples // 2, np.float32))
        epoch.fed()
        await trio.sleep(1.0)
    assert [(at, unit.silent, len(unit.function_outputs)) for at, unit in taken] == [
        (0.0, False, 0),
        (1.0, True, 1),
        (2.0, False, 0),
    ]
    assert taken[-1][1].samples.all(), "the unit that was begun is not cut by the silence"


async def test_a_new_epoch_gets_the_outputs_that_the_old_one_did_not_take(autojump_clock: MockClock) -> None:
    taken: list[tuple[float, AudioUnit]] = []
    floor = RememberingFloor()
    async with conversing(listen_for_ever, floor) as (epoch, _):
        floor.outputs.append(output(1))
        epoch.fed()
        await trio.sleep(1.0)
        await joined(epoch.end("client_cancelled"))
    async with conversing(lambda epoch: collect(epoch, taken), floor):
        await trio.sleep(1.0)
    assert [list(unit.function_outputs) for _, unit in taken] == [[output(1)]]
