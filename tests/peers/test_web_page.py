"""The server's own page holds a conversation: its script runs, unchanged, in as much of a browser as it needs."""

from collections.abc import Iterator

import pytest
from javascript_kit import RATE_HZ, needs_packages, run_node, telling
from peer_record import Recorded

pytestmark = needs_packages

KEY = "correct-horse"
SILENT_S = 0.3
"""At once, on a machine that has other things to do; who waited for the interruption would need 0.7 s."""
SCRIPT = """
listen 0.2; hear "What time is it?"; speak "An answer that is long enough to be talked over by anybody." for 6
listen 0.2; hear "How do you say grapefruit?"; speak "A short answer." for 1.2
listen 0.1; speak "Hello to you." for 1
listen 0.1; speak "Once upon a time there was a king who had three daughters." for 6
listen 0.1; speak "As you like." for 1
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """A call from the page of a server that wants a key."""
    folder = tmp_path_factory.mktemp("page")
    flags = ("--experimental-websocket", "--no-warnings")
    with telling(folder, "--api-key", KEY, script=SCRIPT) as server:
        yield run_node("page_call.mjs", "scripted", server, folder, key=KEY, node=flags)


def test_the_conversation_is_a_clean_one(page: Recorded) -> None:
    page.checks_out()
    ends = [done["status"] for done in page.all("response.done")]
    assert ends == ["cancelled", "completed", "completed", "cancelled", "completed"]
    assert {heard["sample_rate_hz"] for heard in page.all("response.output_audio.delta")} == {RATE_HZ}


def test_it_says_what_is_going_on(page: Recorded) -> None:
    states = page.notes["states"]
    assert states[:5] == ["not connected", "connecting"] * 2 + ["not connected"], "without a key, and with a wrong one"
    assert states[5:7] == ["connecting", "listening"]
    assert set(states[6:-1]) == {"hearing you", "listening", "thinking", "speaking"}
    assert states[-1] == "not connected"
    assert page.notes["trouble"] == ""


def test_it_falls_silent_at_once_when_the_user_speaks(page: Recorded) -> None:
    started = page.all("input_audio_buffer.speech_started")[2]
    assert 0 <= page.moves["fall silent"] - started.at < SILENT_S
    assert page.notes["kept"], "it may turn out to be nothing"
    assert page.notes["left"] == 0, "it was an interruption: the rest is dropped"


def test_it_plays_on_when_it_was_nothing(page: Recorded) -> None:
    assert page.notes["playing"]
    assert page.moves["play on"] < page.moves["fall silent"]
    assert page.notes["states"].count("hearing you") == 3


def test_it_plays_an_answer_to_its_end(page: Recorded) -> None:
    assert page.notes["playingOn"], "sound comes faster than it is played"


def test_it_says_what_was_heard(page: Recorded) -> None:
    cut, second, third, *_ = page.responses()
    acknowledged = {
        answer: [heard["played_ms"] for heard in page.all("playback.acknowledged", item_id=f"item_{answer}")]
        for answer in (cut, second, third)
    }
    for milliseconds in acknowledged.values():
        assert milliseconds == sorted(milliseconds)
    sent_ms = len(page.audio(cut)) // 2 * 1000 / RATE_HZ
    assert 1000 < acknowledged[cut][-1] < sent_ms
    assert (acknowledged[second][-1], acknowledged[third][-1]) == (1200, 1000)


def test_words_interrupt_as_well(page: Recorded) -> None:
    story = page.responses()[3]
    done = page.one("response.done", id=story)
    assert (done["status"], done["reason"]) == ("cancelled", "client_cancelled")
    assert 0 < len(page.audio(story)) < 2 * RATE_HZ * 3


def test_it_shows_both_sides(page: Recorded) -> None:
    cut, story = (page.transcript(page.responses()[index]) for index in (0, 3))
    assert page.notes["said"] == [
        ["user", "What time is it?"],
        ["assistant cut", cut],
        ["user", "How do you say grapefruit?"],
        ["assistant", "A short answer."],
        ["user", "Say hello."],
        ["assistant", "Hello to you."],
        ["user", "Tell me a story."],
        ["assistant cut", story],
        ["user", "That will do."],
        ["assistant", "As you like."],
    ]
