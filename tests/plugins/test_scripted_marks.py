"""Marked sound: what is rendered can be read back, and a foreign sample is noticed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duplex_engine.model_plugins.scripted.speech import MARKS, marked_pcm, pieces
from duplex_engine.testing.marks import SHORTEST, Marked, MarkReader, WrongMark, decode

marks = st.integers(0, MARKS - 1)
answers = st.integers(1, 4095)
starts = st.integers(0, 90 * 60 * 24_000)
counts = st.integers(SHORTEST, 200)


@given(marks, answers, starts, counts)
def test_a_piece_says_whose_it_is(mark: int, answer: int, start: int, count: int) -> None:
    assert decode(marked_pcm(mark, answer, start, count)) == Marked(mark, answer, start, count)


@given(marks, answers, starts, counts, st.data())
def test_one_wrong_sample_is_noticed(mark: int, answer: int, start: int, count: int, data: st.DataObject) -> None:
    pcm = bytearray(marked_pcm(mark, answer, start, count))
    at = 2 * data.draw(st.integers(0, count - 1))
    pcm[at] ^= data.draw(st.integers(1, 255))
    try:
        assert decode(bytes(pcm)).count == count
    except WrongMark:
        return
    pytest.fail("a damaged piece was accepted")


@given(st.lists(st.integers(SHORTEST, 100), min_size=1))
def test_a_response_cut_anywhere_is_followed(sizes: list[int]) -> None:
    reader, position = MarkReader(), 0
    for size in sizes:
        reader.hear("r1", marked_pcm(7, 1, position, size))
        position += size
    assert reader.mark == 7
    assert reader.samples("r1") == position


@pytest.mark.parametrize(
    ("response_id", "pcm", "message"),
    [
        ("r1", marked_pcm(7, 1, 150, 50), "expected"),
        ("r1", marked_pcm(8, 1, 100, 50), "expected"),
        ("r1", marked_pcm(7, 2, 100, 50), "expected"),
        ("r1", bytes(100), "no block begins"),
        ("r2", marked_pcm(8, 2, 0, 50), "a session with mark 7"),
        ("r2", marked_pcm(7, 2, 8, 50), "first sample"),
        ("r2", marked_pcm(7, 1, 0, 50), "repeats"),
    ],
)
def test_sound_that_does_not_belong_is_noticed(response_id: str, pcm: bytes, message: str) -> None:
    reader = MarkReader()
    reader.hear("r1", marked_pcm(7, 1, 0, 100))
    with pytest.raises(WrongMark, match=message):
        reader.hear(response_id, pcm)


@given(
    st.lists(st.text("ab", min_size=1, max_size=9), min_size=1).map(" ".join), st.integers(1, 999), st.integers(1, 99)
)
def test_pieces_give_the_answer_back(text: str, samples: int, size: int) -> None:
    cut = list(pieces(text, samples, size))
    assert "".join(piece.text for piece in cut) == text
    assert sum(piece.count for piece in cut) == samples
    assert all(piece.text == "" or piece.text.endswith(" ") for piece in cut[:-1])
    assert b"".join(marked_pcm(3, 1, piece.start, piece.count) for piece in cut) == marked_pcm(3, 1, 0, samples)
