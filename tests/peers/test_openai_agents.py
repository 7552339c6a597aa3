"""OpenAI's agents SDK talks to the running server as it would to OpenAI, with everything as it has it by default."""

from peer_foreign import ANSWER, TOOL, both, called_once_on_the_wire, needs, one
from peer_record import Recorded

ENVIRONMENT = "openai-agents"
pytestmark = needs(ENVIRONMENT)
record = both(ENVIRONMENT)
tool = one(ENVIRONMENT, "tool", TOOL)


def history(record: Recorded) -> list[tuple[str, str, str]]:
    """Who said what, as the client has it in the end, and whether all of it."""
    items = record.noted("history")[-1]["items"]
    return [(item["role"], item["status"], text_of(item["content"])) for item in items]


def text_of(content: list[dict[str, str]]) -> str:
    return "".join(part.get("transcript") or part.get("text") or "" for part in content)


def test_the_session_keeps_its_promises(record: Recorded) -> None:
    record.checks_out()
    assert record.noted("error") == record.noted("exception") == []
    assert len(record.noted("usage")) == len(record.responses()) == 3


def test_its_session_is_agreed_to_and_echoed(record: Recorded) -> None:
    *_, echo = record.all("session.updated")
    hears = echo["audio"]["input"]
    assert hears["turn_detection"] == {"type": "semantic_vad", "create_response": True, "interrupt_response": True}
    assert hears["transcription"] == {"model": "gpt-4o-mini-transcribe"}
    assert hears["format"] == {"type": "audio/pcm", "rate": 24_000}
    assert (echo["tracing"], echo["audio"]["output"]["voice"]) == ("auto", "ash")


def test_speech_cuts_the_answer_off(record: Recorded) -> None:
    cut, answer, _ = record.responses()
    done = record.one("response.done", id=cut)
    assert (done["status"], done["reason"]) == ("cancelled", "turn_detected")
    record.has_no_sound_after_done(cut)
    (interrupted, *_) = record.noted("audio_interrupted")
    assert interrupted["item_id"] == f"item_{cut}"
    assert record.one("conversation.item.truncated", item_id=f"item_{cut}")["audio_end_ms"] > 0
    assert done.at - interrupted["at"] < 0.5, "the player has stopped: what comes now is a voice from the past"
    assert record.one("response.done", id=answer)["status"] == "completed"


def test_its_history_is_what_was_said_and_heard(record: Recorded) -> None:
    told = history(record)
    assert [(role, status) for role, status, _ in told] == [
        ("user", "completed"),
        ("assistant", "incomplete"),
        ("user", "completed"),
        ("assistant", "completed"),
        ("user", "completed"),
        ("assistant", "completed"),
    ]
    cut, answer, written = record.responses()
    assert record.transcript(cut).startswith(told[1][2])
    assert [text for _, _, text in told[2:]] == [
        "What time is it?",
        record.transcript(answer),
        "What time is it now?",
        record.transcript(written),
    ]
    assert record.transcript(answer).strip()
    assert record.transcript(written).strip()


def test_it_plays_what_it_is_sent(record: Recorded) -> None:
    for response_id in record.responses()[1:]:
        played = sum(note["bytes"] for note in record.noted("audio") if note["item_id"] == f"item_{response_id}")
        assert played == len(record.audio(response_id)) > 0


def test_a_function_is_called_once_and_its_output_answered(tool: Recorded) -> None:
    called_once_on_the_wire(tool)
    assert [(note["name"], note["output"]) for note in tool.noted("tool_end")] == [("weather", ANSWER)]
    (kept,) = [item for item in tool.noted("history")[-1]["items"] if item["type"] == "function_call"]
    assert (kept["status"], kept["output"]) == ("completed", ANSWER)
