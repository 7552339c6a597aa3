"""The mailbox: bounded, counted in bytes, in order, and gone when the session is."""

import pytest
import trio
from actors_kit import on_virtual_clock
from hypothesis import given, settings
from hypothesis import strategies as st

from duplex_engine.actors.mailbox import STREAMED_FOR_ONE, Mailbox, input_bytes
from duplex_engine.errors import ProtocolViolation, SessionGone
from duplex_engine.protocol.commands import (
    AcknowledgeEvents,
    AppendAudio,
    ClientCommand,
    CommitAudio,
    CreateItem,
    CreateResponse,
)
from duplex_engine.protocol.formats import Encoding


@pytest.mark.parametrize(
    ("command", "size"),
    [
        (AppendAudio(audio=bytes(960)), 1_920),
        (AppendAudio(audio=bytes(960), encoding=Encoding.F32), 960),
        (AppendAudio(audio=bytes(960), encoding=Encoding.ULAW), 3_840),
        (AppendAudio(audio=b"", video_frames=(bytes(10), bytes(5))), 15),
        (CreateItem(item={}, audio=(AppendAudio(audio=bytes(960)), AppendAudio(audio=bytes(40)))), 2_000),
        (CommitAudio(), 0),
    ],
)
def test_input_is_counted_as_the_memory_it_will_take(command: ClientCommand, size: int) -> None:
    assert input_bytes(command) == size


async def test_a_full_mailbox_refuses_and_names_the_event() -> None:
    mailbox = Mailbox(2)
    first, second = CreateResponse(), CommitAudio()
    mailbox.put(first)
    mailbox.put(second)
    pending = mailbox.pending_bytes
    with pytest.raises(ProtocolViolation, match="2 commands are waiting already") as refusal:
        mailbox.put(CommitAudio(event_id="event-7"))
    assert (refusal.value.code, refusal.value.event_id) == ("input_backpressure", "event-7")
    assert mailbox.pending_bytes == pending, "what was refused is not counted"
    assert [await mailbox.take(), await mailbox.take()] == [first, second]
    mailbox.put(first)


async def test_what_comes_in_streams_may_be_many_and_leaves_room_for_the_rest() -> None:
    mailbox = Mailbox(2)
    for number in range(2 * STREAMED_FOR_ONE):
        mailbox.put(AppendAudio(audio=bytes(2)) if number % 2 else AcknowledgeEvents(server_event_seq=number))
    with pytest.raises(ProtocolViolation, match="128 commands are waiting already"):
        mailbox.put(AppendAudio(audio=bytes(2)))
    mailbox.put(CommitAudio())
    await mailbox.take()
    mailbox.put(AppendAudio(audio=bytes(2)))


async def test_a_closed_mailbox_says_that_the_session_is_gone() -> None:
    mailbox = Mailbox(2)
    mailbox.put(AppendAudio(audio=bytes(10)))
    mailbox.close()
    assert mailbox.pending_bytes == 0
    with pytest.raises(SessionGone):
        mailbox.put(CommitAudio())
    assert mailbox.pending_bytes == 0


MOVES = st.lists(st.one_of(st.integers(0, 50), st.sampled_from(["take", "give up", "step"])), max_size=40)


@settings(max_examples=200, deadline=None)
@given(schedule=st.random_module(), moves=MOVES)
@on_virtual_clock
async def test_bytes_are_counted_exactly_and_nothing_is_lost_when_the_taker_is_cancelled(
    schedule: object, moves: list[int | str]
) -> None:
    mailbox = Mailbox(2)
    put: list[ClientCommand] = []
    taken: list[ClientCommand] = []

    async def take(scope: trio.CancelScope) -> None:
        with scope:
            while True:
                taken.append(await mailbox.take())

    def waiting() -> list[ClientCommand]:
        return put[len(taken) :]

    async with trio.open_nursery() as nursery:
        taker: trio.CancelScope | None = None
        for move in moves:
            if move == "take" and taker is None:
                taker = trio.CancelScope()
                nursery.start_soon(take, taker)
            elif move == "give up" and taker is not None:
                taker.cancel()
                taker = None
            elif move == "step":
                await trio.lowlevel.checkpoint()
            elif isinstance(move, int):
                command = AppendAudio(audio=bytes(2 * move)) if move > 9 else CommitAudio()
                try:
                    mailbox.put(command)
                except ProtocolViolation:
                    assert waiting().count(command) >= 2
                else:
                    put.append(command)
            assert taken == put[: len(taken)], "a command was lost, or came out of order"
            assert mailbox.pending_bytes == sum(map(input_bytes, waiting()))
        nursery.cancel_scope.cancel()
    mailbox.close()
    assert mailbox.pending_bytes == 0
