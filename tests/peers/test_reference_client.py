"""The reference client of the duplex protocol, unmodified, talks to the running server: turns, barge-in, a clean end."""

import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from peer_record import Recorded, run_call
from peer_server import Server, serving

from duplex_engine.testing.marks import MarkReader

PEERS = Path(sys.prefix) / "peers"
SCRIPT = """
listen 25; speak "You will not hear the end of this answer." for 8
listen 12; speak "Nor of this one, because you will talk over it." for 8
listen 45; speak "But of this." for 1.2
listen
"""

LONG_SCRIPT = """
listen 25; speak "This answer outlives two connections, and not a word of it is lost or said twice." for 4
listen
"""

pytestmark = pytest.mark.skipif(
    not (PEERS / "vllm_omni" / "clients" / "duplex.py").exists(),
    reason=f"the reference client is not in {PEERS}; `make test` unpacks it there (tests/peers/install.py)",
)


def run(name: str, server: Server, folder: Path) -> Recorded:
    """One call of the reference client, after which nobody is left on the line."""
    environment = {**os.environ, "PYTHONPATH": str(PEERS)}
    record = run_call("reference_call.py", name, server.websocket_url, folder=folder, environment=environment)
    server.wait_empty()
    return record


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """A call with a model that decides by itself when to speak."""
    folder = tmp_path_factory.mktemp("native")
    with serving(folder, "--plugin", "scripted", "--option", f"script={SCRIPT}") as server:
        yield run("native", server, folder)


@pytest.fixture(scope="module")
def dropped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """A call whose connection is lost twice in mid-answer."""
    folder = tmp_path_factory.mktemp("dropped")
    options = ("--option", f"script={LONG_SCRIPT}", "--option", "resume=true")
    with serving(folder, "--plugin", "scripted", *options) as server:
        yield run("dropped", server, folder)


@pytest.fixture(scope="module")
def embedded(cascade: Server, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A call with the embedded voice, with everything as the client has it by default."""
    return run("cascade", cascade, tmp_path_factory.mktemp("embedded"))


def test_a_native_session_keeps_its_promises(native: Recorded) -> None:
    native.checks_out()
    assert len(native.responses()) == 3
    assert native.one("session.closed")["reason"] == "client_close"


def test_a_cancel_of_the_client_ends_the_answer_at_once(native: Recorded) -> None:
    first = native.responses()[0]
    done = native.one("response.done", response_id=first)
    assert (done["status"], done["reason"]) == ("cancelled", "client_cancelled")
    assert 0 <= done.at - native.moves["cancel"] < 1
    assert 1000 <= native.audio_ms(first) < 3000
    native.has_no_sound_after_done(first)


def test_speech_ends_the_answer_at_once(native: Recorded) -> None:
    second = native.responses()[1]
    done = native.one("response.done", response_id=second)
    assert (done["status"], done["reason"]) == ("cancelled", "turn_detected")
    started = native.all("input_audio_buffer.speech_started")[-1]
    assert native.moves["talk over"] < started.at <= done.at < started.at + 1
    assert 1000 <= native.audio_ms(second) < 4000
    native.has_no_sound_after_done(second)


def test_the_answer_after_a_barge_in_is_heard_whole(native: Recorded) -> None:
    third = native.responses()[2]
    assert native.one("response.done", response_id=third)["status"] == "completed"
    assert native.transcript(third) == "But of this."
    assert native.audio_ms(third) == 1200


def test_every_sample_is_of_its_answer(native: Recorded) -> None:
    reader = MarkReader()
    for response_id in native.responses():
        reader.hear(response_id, native.audio(response_id))


def test_all_that_was_played_is_acknowledged(native: Recorded) -> None:
    played = {heard["item_id"]: heard["played_ms"] for heard in native.all("playback.acknowledged")}
    assert played == {f"item_{response_id}": native.audio_ms(response_id) for response_id in native.responses()}


def test_the_client_comes_back_by_itself_and_misses_nothing(dropped: Recorded) -> None:
    dropped.checks_out()
    assert len(dropped.all("connection.resumed")) == 2
    (answer,) = dropped.responses()
    assert dropped.one("response.done", response_id=answer)["status"] == "completed"
    assert dropped.transcript(answer) == LONG_SCRIPT.split('"')[1]
    assert dropped.audio_ms(answer) == 4000
    MarkReader().hear(answer, dropped.audio(answer))
    assert dropped.one("session.closed")["reason"] == "client_close"


def test_heartbeats_are_answered_on_every_connection(dropped: Recorded) -> None:
    moments = [0.0, *sorted(at for move, at in dropped.moves.items() if move.startswith("drop")), float("inf")]
    beats = [heard.at for heard in dropped.all("session.heartbeat_ack")]
    for begin, end in itertools.pairwise(moments):
        assert [at for at in beats if begin < at < end]


@pytest.mark.cascade
@pytest.mark.timeout(240)
def test_the_embedded_voice_understands_and_speaks(embedded: Recorded) -> None:
    embedded.checks_out()
    transcribed = embedded.all("conversation.item.input_audio_transcription.completed")
    *times, fruit = [str(heard["transcript"]) for heard in transcribed]
    assert times == ["What time is it?"] * 2
    assert "grapefruit in French" in fruit
    whole, _, last = embedded.responses()
    assert embedded.one("response.done", response_id=whole)["status"] == "completed"
    for response_id in (whole, last):
        assert embedded.audio_ms(response_id) >= 500
        assert embedded.transcript(response_id).strip()
        assert embedded.loudness(response_id) > 0.01


@pytest.mark.cascade
@pytest.mark.timeout(240)
def test_the_embedded_voice_stops_when_it_is_talked_over(embedded: Recorded) -> None:
    cut = embedded.responses()[1]
    done = embedded.one("response.done", response_id=cut)
    assert (done["status"], done["reason"]) == ("cancelled", "turn_detected")
    assert done.at > embedded.moves["talk over"]
    assert embedded.audio(cut)
    embedded.has_no_sound_after_done(cut)
    heard = embedded.one("conversation.item.done", id=f"item_{cut}")
    assert embedded.transcript(cut).startswith(str(heard["transcript"]))
