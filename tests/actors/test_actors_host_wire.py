"""Frames between a process host and its child survive however the pipe cuts them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from duplex_engine.actors.host.wire import Crashed, Load, Loaded, Loading, PipeMessage, Refused, Unpacker, pack
from duplex_engine.model_plugins.contract import Work

TEXTS = st.text(max_size=20)
MESSAGES = st.one_of(
    st.builds(Load, TEXTS, st.dictionaries(TEXTS, st.integers()), st.tuples(TEXTS), st.integers(0, 19)),
    st.builds(Loading, TEXTS, st.floats(0, 1)),
    st.builds(Loaded),
    st.builds(Refused, TEXTS),
    st.builds(Crashed, TEXTS, TEXTS),
    st.builds(Work, resets=st.tuples(st.integers()), items=st.tuples(st.tuples(st.integers(), st.integers(), TEXTS))),
)


@given(messages=st.lists(MESSAGES, max_size=5), cuts=st.lists(st.integers(1, 200), max_size=20))
def test_messages_arrive_whole_and_in_order(messages: list[PipeMessage], cuts: list[int]) -> None:
    sent = b"".join(map(pack, messages))
    unpacker = Unpacker()
    received: list[PipeMessage] = []
    for cut in cuts:
        received += unpacker.push(sent[:cut])
        sent = sent[cut:]
    received += unpacker.push(sent)
    assert received == messages


def test_an_array_can_be_written_to_after_the_buffer_moved_on() -> None:
    unpacker = Unpacker()
    (work,) = unpacker.push(pack(Work(items=((0, 1, np.arange(10)),))))
    list(unpacker.push(b"\0" * 7))
    assert isinstance(work, Work)
    sound = work.items[0][2]
    sound += 1  # type: ignore[operator]
    np.testing.assert_array_equal(sound, np.arange(1, 11))  # type: ignore[arg-type]
