"""OpenAI's Python client talks to the running server as it would to OpenAI: detection, barge-in, truncation, text."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from openai.types.realtime import RealtimeServerEvent
from peer_record import Recorded, run_call
from peer_server import Server, serving
from pydantic import BaseModel, ValidationError

from duplex_engine.testing.marks import MarkReader

RATE_HZ = 24_000
SCRIPT = """
listen 0.2; hear "What time is it?"; speak "An answer that is long enough to be talked over by anybody." for 6
forever { listen 0.2; hear "I beg your pardon?"; speak "A short answer." for 1.2 }
"""


def schemas() -> dict[str, type[BaseModel]]:
    """What the client's own types say about each type of event."""
    union = get_args(get_args(RealtimeServerEvent)[0])
    return {name: model for model in union for name in get_args(model.model_fields["type"].annotation)}


def faults(record: Recorded) -> list[str]:
    """Events that a strict reader of the client's types would refuse."""
    known, found = schemas(), []
    for heard in record.heard:
        if heard.type not in known:
            found.append(f"unknown type {heard.type}")
            continue
        try:
            known[heard.type].model_validate(heard.event, strict=True)
        except ValidationError as error:
            found.append(f"{heard.type}: {error}")
    return found


def run(name: str, server: Server, folder: Path) -> Recorded:
    """One call of OpenAI's client, after which nobody is left on the line."""
    record = run_call("openai_call.py", name, server.url, folder=folder)
    server.wait_empty()
    return record


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """A call with a model of committed turns."""
    folder = tmp_path_factory.mktemp("turns")
    options = ("mode=turn", "lead_s=0.4", f"script={SCRIPT}")
    with serving(folder, "--plugin", "scripted", *(f"--option={option}" for option in options)) as server:
        yield run("scripted", server, folder)


@pytest.fixture(scope="module")
def embedded(cascade: Server, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A call with the embedded voice."""
    return run("cascade", cascade, tmp_path_factory.mktemp("embedded"))


@pytest.fixture(
    scope="module", params=["scripted", pytest.param("embedded", marks=[pytest.mark.cascade, pytest.mark.timeout(240)])]
)
def record(request: pytest.FixtureRequest) -> Recorded:
    """Both calls, one after the other."""
    recorded: Recorded = request.getfixturevalue(request.param)
    return recorded


def test_the_client_s_own_types_accept_every_event(record: Recorded) -> None:
    record.checks_out()
    assert faults(record) == []
    assert all(heard.event["event_id"] for heard in record.heard)
    assert len({heard.event["event_id"] for heard in record.heard}) == len(record.heard)
    assert not [heard for heard in record.heard if "server_event_seq" in heard.event]
    assert {heard["sample_rate_hz"] for heard in record.all("response.output_audio.delta")} == {RATE_HZ}


def test_the_whole_session_is_echoed(record: Recorded) -> None:
    by_itself, *chosen = record.all("session.updated")
    assert by_itself["model"] == "gpt-realtime"
    for echo in chosen:
        audio = echo["audio"]
        assert audio["input"]["format"] == audio["output"]["format"] == {"type": "audio/pcm", "rate": RATE_HZ}
        assert audio["input"]["transcription"] == {"model": "gpt-4o-mini-transcribe"}
        assert audio["input"]["noise_reduction"] == {"type": "near_field"}
        assert audio["output"]["voice"] == "marin"
        assert (echo["output_modalities"], echo["truncation"]) == (["audio"], "auto")
        detection = audio["input"]["turn_detection"]
        assert (detection["create_response"], detection["interrupt_response"]) == (True, True)
    kinds = [echo["audio"]["input"]["turn_detection"]["type"] for echo in chosen]
    assert sorted(kinds) == ["semantic_vad", "server_vad"]


def test_speech_cuts_the_answer_off(record: Recorded) -> None:
    cut = record.responses()[0]
    done = record.one("response.done", id=cut)
    assert (done["status"], done["reason"]) == ("cancelled", "turn_detected")
    assert item_of(done)["status"] == "incomplete"
    record.has_no_sound_after_done(cut)
    assert record.audio(cut)
    started = record.all("input_audio_buffer.speech_started")[1]
    assert started.at < done.at < started.at + 2


def test_what_was_not_played_is_taken_back(record: Recorded) -> None:
    cut = record.responses()[0]
    truncated = record.one("conversation.item.truncated", item_id=f"item_{cut}")
    assert truncated["audio_end_ms"] == 500
    retrieved = record.one("conversation.item.retrieved")["item"]
    assert isinstance(retrieved, dict)
    assert retrieved == item_of(record.one("response.done", id=cut))
    assert record.transcript(cut).startswith(retrieved["content"][0]["transcript"])
    assert len(retrieved["content"][0]["transcript"]) < len(record.transcript(cut))


def test_every_answer_says_what_it_cost(record: Recorded) -> None:
    for done in record.all("response.done"):
        usage = done["usage"]
        assert isinstance(usage, dict)
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
        assert {"text_tokens", "audio_tokens"} <= usage["input_token_details"].keys()
        assert {"text_tokens", "audio_tokens"} <= usage["output_token_details"].keys()


def test_metadata_comes_back_with_the_answer_that_was_asked_for(record: Recorded) -> None:
    *spoken, written = record.responses()
    metadata = {"topic": "greeting", "client_event_id": "evt_mine"}
    for event_type in ("response.created", "response.done"):
        assert record.one(event_type, id=written)["metadata"] == metadata
        assert all(record.one(event_type, id=response_id)["metadata"] == {} for response_id in spoken)
    assert record.one("response.done", id=written)["status"] == "completed"
    assert record.audio(written)
    assert record.transcript(written).strip()


def test_each_turn_of_the_script_is_answered(scripted: Recorded) -> None:
    ends = [done["status"] for done in scripted.all("response.done")]
    assert ends == ["cancelled", "completed", "completed", "completed"]
    transcribed = scripted.all("conversation.item.input_audio_transcription.completed")
    assert [heard["transcript"] for heard in transcribed] == ["What time is it?", *["I beg your pardon?"] * 2]
    reader = MarkReader()
    for response_id in scripted.responses():
        reader.hear(response_id, scripted.audio(response_id))
    for response_id in scripted.responses()[1:]:
        assert len(scripted.audio(response_id)) == 2 * RATE_HZ * 1.2
        assert scripted.transcript(response_id) == "A short answer."


@pytest.mark.cascade
@pytest.mark.timeout(240)
def test_the_embedded_voice_understands_and_speaks(embedded: Recorded) -> None:
    transcribed = embedded.all("conversation.item.input_audio_transcription.completed")
    times, fruit = [str(heard["transcript"]) for heard in transcribed]
    assert times == "What time is it?"
    assert "grapefruit in French" in fruit
    for response_id in embedded.responses()[1:]:
        assert embedded.transcript(response_id).strip()
        assert embedded.loudness(response_id) > 0.01


@pytest.mark.cascade
@pytest.mark.timeout(240)
def test_the_embedded_voice_calls_functions(cascade: Server, tmp_path: Path) -> None:
    record = run("tools", cascade, tmp_path)
    assert faults(record) == []
    assert not record.all("error")
    (made,) = record.all("response.function_call_arguments.done")
    assert (made["name"], made["arguments"]) == ("get_weather", '{"city": "Oslo"}')
    asked, rain, hello = record.all("response.done")
    message, call = asked["output"]  # type: ignore[misc]
    assert (message["content"], call["type"], call["status"]) == ([], "function_call", "completed")
    assert not record.audio(str(asked["id"]))
    assert "rain" in record.transcript(str(rain["id"]))
    for done in (rain, hello):
        assert item_of(done)["content"]
        assert record.audio(str(done["id"]))


def item_of(done: Any) -> dict[str, Any]:
    """The item of an answer that is done."""
    (item,) = done["output"]
    return item
