"""The response scope: nothing is said after it was ended, and it ends with exactly one terminal."""

from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio
from actors_kit import RememberingFloor, conversing, joined, new_turn, sound, under_schedules
from trio.testing import MockClock

from duplex_engine.actors.epoch import Epoch
from duplex_engine.actors.response import Response
from duplex_engine.conversation.facts import (
    FunctionCall,
    FunctionCalled,
    ResponseAudio,
    ResponseEnded,
    ResponseOpened,
    ResponseStatus,
    ResponseText,
    TextMark,
    Usage,
)
from duplex_engine.errors import ConfigRejected, DuplexError, LeaseLost, ResponseOver, StepFailed
from duplex_engine.protocol.sizes import ANSWER_BYTES

Answering = Callable[[Response], Awaitable[None]]


async def answer_once(answering: Answering, floor: RememberingFloor | None = None) -> RememberingFloor:
    """What is said when a model answers once, and then listens for ever."""

    async def converse(epoch: Epoch) -> None:
        try:
            async with epoch.response() as response:
                await answering(response)
        finally:
            done.set()
        await trio.sleep_forever()

    done = trio.Event()
    async with conversing(converse, floor) as (_, floor):
        await done.wait()
    return floor


def ending_of(floor: RememberingFloor) -> ResponseEnded:
    (ending,) = floor.facts(ResponseEnded)
    assert isinstance(ending, ResponseEnded)
    return ending


# --- how an answer ends -------------------------------------------------------------------------------------------


async def test_an_answer_is_opened_said_and_ended(autojump_clock: MockClock) -> None:
    async def answering(response: Response) -> None:
        await response.audio(sound(0.1), text="hello ")
        await response.text("world")
        await response.call(FunctionCall("wave", "{}", "call-1"))

    floor = await answer_once(answering)
    facts = [fact for _, fact in floor.said]
    key = facts[0].key  # type: ignore[union-attr]
    assert facts == [
        ResponseOpened(key),
        ResponseAudio(key, sound(0.1), "hello ", TextMark(6, 100)),
        ResponseText(key, "world"),
        FunctionCalled(FunctionCall("wave", "{}", "call-1"), key),
        ResponseEnded(key=key, status=ResponseStatus.COMPLETED, reason="stop"),
    ]


async def test_words_that_would_not_fit_into_the_last_event_end_the_answer(autojump_clock: MockClock) -> None:
    words = '"' * (ANSWER_BYTES // 4 - 2)  # each of them takes two bytes, and two stand around them

    async def answering(response: Response) -> None:
        await response.text(words)
        await response.audio(sound(0.1), text=words)
        await response.call(FunctionCall("f", "{}", "call-1"))

    floor = await answer_once(answering)
    assert (len(floor.facts(ResponseText)), len(floor.facts(ResponseAudio))) == (1, 1)
    assert not floor.facts(FunctionCalled)
    assert (ending_of(floor).status, ending_of(floor).reason) == (ResponseStatus.INCOMPLETE, "max_output_tokens")


async def test_a_long_piece_is_said_in_frames_and_an_exact_mark_belongs_to_its_last(autojump_clock: MockClock) -> None:
    async def answering(response: Response) -> None:
        await response.audio(sound(0.5), text="one two three four five", mark=TextMark(23, 480))

    floor = await answer_once(answering)
    said = [(len(f.pcm) / 48_000, f.text, f.mark) for f in floor.facts(ResponseAudio) if isinstance(f, ResponseAudio)]
    assert said == [
        (0.2, "one two ", TextMark(8, 200)),
        (0.2, "three four ", TextMark(19, 400)),
        (0.1, "five", TextMark(23, 480)),
    ]


async def test_frames_never_split_a_sample(autojump_clock: MockClock) -> None:
    async def answering(response: Response) -> None:
        await response.audio(bytes(20_000))

    floor = RememberingFloor(unit_format=attrs.evolve(RememberingFloor().unit_format, output_rate_hz=8_003))
    await answer_once(answering, floor)
    assert all(len(fact.pcm) % 2 == 0 for fact in floor.facts(ResponseAudio) if isinstance(fact, ResponseAudio))


async def test_pacing_is_the_floors(autojump_clock: MockClock) -> None:
    async def answering(response: Response) -> None:
        await response.audio(sound(1.0))

    floor = await answer_once(answering, RememberingFloor(lead_s=0.3))
    assert [round(at, 6) for at, fact in floor.said if isinstance(fact, ResponseAudio)] == [0.0, 0.0, 0.1, 0.3, 0.5]


async def test_a_paced_answer_can_last_until_it_has_been_played(autojump_clock: MockClock) -> None:
    async def answering(response: Response) -> None:
        await response.audio(sound(1.0))
        await response.played_out()

    floor = await answer_once(answering, RememberingFloor(lead_s=0.3))
    assert [round(at, 6) for at, fact in floor.said if isinstance(fact, ResponseEnded)] == [1.0]


@pytest.mark.parametrize(
    ("conclude", "ending"),
    [
        (lambda r: None, {"status": ResponseStatus.COMPLETED, "reason": "stop"}),
        (
            lambda r: r.finish("length", Usage(output_text=7)),
            {"reason": "length", "usage": Usage(output_text=7)},
        ),
        (lambda r: r.yields("model_listen"), {"yielded": True, "listen_reason": "model_listen"}),
        (
            lambda r: (r.yields("silence_or_noise"), r.finish("stop", Usage(input_audio=3))),
            {"yielded": True, "listen_reason": "silence_or_noise", "usage": Usage(input_audio=3)},
        ),
        (
            lambda r: (r.finish("stop", Usage(input_audio=3)), r.finish("tool_calls")),
            {"reason": "tool_calls", "usage": Usage(input_audio=3)},
        ),
    ],
)
async def test_a_model_says_why_it_ends(
    conclude: Callable[[Response], object], ending: dict[str, object], autojump_clock: MockClock
) -> None:
    async def answering(response: Response) -> None:
        conclude(response)

    found = attrs.asdict(ending_of(await answer_once(answering)), recurse=False)
    assert found["status"] is ResponseStatus.COMPLETED
    assert {name: found[name] for name in ending} == ending


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (LeaseLost("talker", "out of memory"), "engine_error", "worker 'talker' was lost: out of memory"),
        (StepFailed("talker", "nan"), "engine_error", "worker 'talker' could not compute this item: nan"),
        (
            ConfigRejected("image_too_large", "the image is too large", "item"),
            "image_too_large",
            "the image is too large",
        ),
        (ValueError("secret path"), "internal_error", "the model's code failed with ValueError"),
        (DuplexError("oops"), "internal_error", "the model's code failed with DuplexError"),
        (
            ExceptionGroup("", [ExceptionGroup("", [LeaseLost("talker", "gone")]), ValueError()]),
            "engine_error",
            "worker 'talker' was lost: gone",
        ),
    ],
)
async def test_an_answer_whose_code_raises_has_failed(
    error: Exception, code: str, message: str, autojump_clock: MockClock
) -> None:
    async def answering(response: Response) -> None:
        response.yields()
        raise error

    ending = ending_of(await answer_once(answering))
    assert (ending.status, ending.reason, ending.message) == (ResponseStatus.FAILED, code, message)
    assert not ending.yielded


async def test_an_answer_that_its_own_model_gives_up_has_failed(autojump_clock: MockClock) -> None:
    async def converse(epoch: Epoch) -> None:
        with trio.move_on_after(1.0):
            async with epoch.response() as response:
                await response.text("well")
                await trio.sleep_forever()
        await trio.sleep_forever()

    async with conversing(converse) as (_, floor):
        await trio.sleep(2.0)
        ending = ending_of(floor)
        assert (ending.status, ending.reason) == (ResponseStatus.FAILED, "internal_error")


# --- being ended --------------------------------------------------------------------------------------------------


async def test_ending_takes_no_time_and_the_code_after_the_block_goes_on(autojump_clock: MockClock) -> None:
    went_on: list[float] = []

    async def converse(epoch: Epoch) -> None:
        async with epoch.response() as response:
            responses.append(response)
            await response.audio(sound(0.1))
            await trio.sleep(100.0)
        went_on.append(trio.current_time())
        await trio.sleep_forever()

    responses: list[Response] = []
    async with conversing(converse) as (_, floor):
        await trio.sleep(1.0)
        await responses[0].end("client_cancelled")
        assert trio.current_time() == 1.0
        assert ending_of(floor) == ResponseEnded(
            key=responses[0], status=ResponseStatus.CANCELLED, reason="client_cancelled"
        )
        await responses[0].end("again")
        await trio.sleep(1.0)
        assert went_on == [1.0]
        assert ending_of(floor).reason == "client_cancelled"


async def test_what_is_concluded_after_the_cut_changes_nothing(autojump_clock: MockClock) -> None:
    """The code of a cut answer runs on to its next checkpoint; until then it must not speak for the answer."""

    async def answering(response: Response) -> None:
        response.cut("barge_in")
        response.yields()
        response.finish("stop", Usage(output_text=1))

    ending = ending_of(await answer_once(answering))
    assert (ending.status, ending.reason, ending.yielded) == (ResponseStatus.CANCELLED, "barge_in", False)


async def test_a_failure_after_the_cut_changes_nothing(autojump_clock: MockClock) -> None:
    async def answering(response: Response) -> None:
        response.cut("barge_in")
        raise ValueError

    assert ending_of(await answer_once(answering)).reason == "barge_in"


async def test_a_response_used_after_its_block_is_refused(autojump_clock: MockClock) -> None:
    async def answering(response: Response) -> None:
        leaked.append(response)

    leaked: list[Response] = []
    floor = await answer_once(answering)
    before = list(floor.said)
    for use in (
        lambda: leaked[0].audio(sound(0.1)),
        lambda: leaked[0].text("late"),
        lambda: leaked[0].call(FunctionCall("wave", "{}", "call-1")),
    ):
        with pytest.raises(ResponseOver):
            await use()
    with pytest.raises(ResponseOver):
        leaked[0].yields()
    with pytest.raises(ResponseOver):
        leaked[0].finish()
    assert floor.said == before


async def test_a_leaked_response_is_refused_from_the_cut_on(autojump_clock: MockClock) -> None:
    """Whoever holds a response outside its block is not cancelled with it, so the response itself refuses."""

    async def converse(epoch: Epoch) -> None:
        async with epoch.response() as response:
            leaked.append(response)
            await trio.sleep_forever()
        await trio.sleep_forever()

    leaked: list[Response] = []
    async with conversing(converse) as (_, floor):
        await trio.sleep(1.0)
        leaked[0].cut("barge_in")
        with pytest.raises(ResponseOver):
            await leaked[0].text("late")
        assert floor.facts(ResponseText) == []


@under_schedules(400)
async def test_nothing_is_said_after_the_cut() -> None:
    """Check, act, yield: whatever the order of tasks, no fact of an answer follows the moment it was cut."""
    cut_at: list[int] = []

    async def speak(response: Response, pieces: int) -> None:
        for piece in range(pieces):
            await response.audio(sound(0.02), text=f"{piece} ")
            await response.text("x")

    async def converse(epoch: Epoch) -> None:
        while True:
            turn = await epoch.next_turn()
            async with epoch.response(turn) as response, trio.open_nursery() as nursery:
                nursery.start_soon(speak, response, 3)
                nursery.start_soon(speak, response, 5)
                await speak(response, 4)

    async def cut(epoch: Epoch, floor: RememberingFloor) -> None:
        for _ in range(6):
            await trio.lowlevel.checkpoint()
        before = trio.current_time()
        for response in epoch._alive:
            response.cut("barge_in")
        cut_at.append(len(floor.said))
        await joined(epoch.interrupt("barge_in"))
        assert trio.current_time() == before

    async with conversing(converse) as (epoch, floor):
        turn, next_turn = new_turn(), new_turn()
        epoch.offer(turn)
        await cut(epoch, floor)
        epoch.offer(next_turn)
        await trio.testing.wait_all_tasks_blocked()
        late = [fact for _, fact in floor.said[cut_at[0] :] if fact.key is turn and not isinstance(fact, ResponseEnded)]  # type: ignore[union-attr]
        assert late == []
        endings = [fact for fact in floor.facts(ResponseEnded) if isinstance(fact, ResponseEnded)]
        assert [ending.key for ending in endings] == [turn, next_turn]
        assert [ending.status for ending in endings] == [ResponseStatus.CANCELLED, ResponseStatus.COMPLETED]
        said = [
            fact for _, fact in floor.said if isinstance(fact, ResponseAudio | ResponseText) and fact.key is next_turn
        ]
        assert len(said) == 24, "the next answer is whole"
