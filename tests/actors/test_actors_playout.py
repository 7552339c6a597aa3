"""Pacing by media time, and cutting speech into frames with their words."""

import pytest
import trio
from actors_kit import on_virtual_clock
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from duplex_engine.actors.playout import Playout, cut_speech
from duplex_engine.conversation.facts import TextMark

RATE_HZ = 24_000


def sound(seconds: float) -> bytes:
    return bytes(2 * round(seconds * RATE_HZ))


async def test_unpaced_sound_is_due_at_once(autojump_clock: MockClock) -> None:
    playout = Playout(RATE_HZ)
    for _ in range(100):
        await playout.until_due()
        playout.advance(sound(1.0), "")
    assert trio.current_time() == 0.0


async def test_paced_sound_leaves_its_lead_before_it_is_due(autojump_clock: MockClock) -> None:
    playout, left = Playout(RATE_HZ, lead_s=0.5), []
    for _ in range(5):
        await playout.until_due()
        left.append(round(trio.current_time(), 6))
        playout.advance(sound(0.4), "")
    assert left == [0.0, 0.0, 0.3, 0.7, 1.1]


async def test_a_late_piece_moves_the_media_clock_instead_of_making_a_burst(autojump_clock: MockClock) -> None:
    playout, left = Playout(RATE_HZ, lead_s=0.1), []
    for pause_s in (0.0, 0.0, 5.0, 0.0, 0.0):
        await trio.sleep(pause_s)
        await playout.until_due()
        left.append(round(trio.current_time(), 6))
        playout.advance(sound(0.4), "")
    assert left == [0.0, 0.3, 5.3, 5.6, 6.0]


async def test_words_without_sound_take_no_time(autojump_clock: MockClock) -> None:
    playout = Playout(RATE_HZ, lead_s=0.0)
    assert playout.advance(sound(0.5), "one ") == TextMark(4, 500)
    assert playout.advance(b"", "two") == TextMark(7, 500)
    assert playout.advance(sound(0.25), "") == TextMark(7, 750)


async def test_everything_is_played_when_its_last_sample_is(autojump_clock: MockClock) -> None:
    playout = Playout(RATE_HZ, lead_s=5.0)
    await playout.until_played()
    assert trio.current_time() == 0.0, "there was nothing to play"
    for pause_s in (0.0, 3.0):
        await trio.sleep(pause_s)
        await playout.until_due()
        playout.advance(sound(0.5), "")
    await playout.until_played()
    assert trio.current_time() == 3.5, "the second piece came late"
    await playout.until_played()
    assert trio.current_time() == 3.5


async def test_unpaced_sound_counts_as_played_at_once(autojump_clock: MockClock) -> None:
    playout = Playout(RATE_HZ)
    await playout.until_due()
    playout.advance(sound(0.5), "")
    await playout.until_played()
    assert trio.current_time() == 0.0


@settings(max_examples=100, deadline=None)
@given(
    lead_s=st.floats(0.0, 2.0),
    pieces=st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 0.4)), min_size=1, max_size=20),
)
@on_virtual_clock
async def test_sound_is_never_ahead_of_its_time_by_more_than_the_lead(
    lead_s: float, pieces: list[tuple[float, float]]
) -> None:
    """I13, for a listener who starts to play with the first piece and waits when nothing is left."""
    playout = Playout(RATE_HZ, lead_s)
    played_until = 0.0
    for generating_s, seconds in pieces:
        await trio.sleep(generating_s)
        await playout.until_due()
        now = trio.current_time()
        played_until = max(played_until, now)
        assert played_until - now <= lead_s + 1e-3, "too early"
        playout.advance(sound(seconds), "")
        played_until += len(sound(seconds)) / (2 * RATE_HZ)


WORDS = st.text(alphabet="ab é.\n", max_size=60)


@given(pcm=st.binary(max_size=400).map(lambda half: half + half), text=WORDS, frame=st.integers(1, 60))
def test_cut_speech_loses_nothing_and_splits_no_word(pcm: bytes, text: str, frame: int) -> None:
    parts = cut_speech(pcm, text, 2 * frame)
    assert b"".join(part for part, _ in parts) == pcm
    assert "".join(words for _, words in parts) == text
    assert all(len(part) <= 2 * frame for part, _ in parts)
    assert all(len(part) == 2 * frame for part, _ in parts[:-1])
    said = ""
    for _, words in parts[:-1]:
        said += words
        assert not said or said.endswith(" "), "cut inside a word"


@given(pcm=st.binary(min_size=2, max_size=400), text=WORDS, frame=st.integers(1, 60))
def test_words_are_never_ahead_of_their_sound(pcm: bytes, text: str, frame: int) -> None:
    """Of what has been sent no more text is claimed than its share of the sound."""
    heard, said = 0, 0
    for part, words in cut_speech(pcm, text, 2 * frame):
        heard, said = heard + len(part), said + len(words)
        assert said * len(pcm) <= len(text) * heard + len(pcm)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("one two six ten", ["one ", "two ", "six ten"]),
        ("incomprehensible", ["", "", "incomprehensible"]),
        ("", ["", "", ""]),
        ("a b c d e f g h", ["a b c ", "d e ", "f g h"]),
    ],
)
def test_every_frame_has_the_words_that_are_over_by_its_end(text: str, parts: list[str]) -> None:
    assert [words for _, words in cut_speech(bytes(60), text, 20)] == parts
