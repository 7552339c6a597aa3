"""LiveKit's OpenAI plugin talks to the running server as it would to OpenAI, with everything as it has it by default."""

from peer_foreign import ANSWER, SPOKEN, TOOL, both, called_once_on_the_wire, needs, one
from peer_record import Recorded

ENVIRONMENT = "livekit"
pytestmark = needs(ENVIRONMENT)
record = both(ENVIRONMENT)
AGENT = "livekit_agent_call.py"
agent = one(ENVIRONMENT, "spoken", SPOKEN, AGENT)
tool = one(ENVIRONMENT, "tool", TOOL, AGENT)
awkward = one(ENVIRONMENT, "awkward", SPOKEN)


def said(record: Recorded) -> list[str]:
    """What the client made of each answer."""
    return [note["text"] for note in record.noted("said")]


def test_the_session_keeps_its_promises(record: Recorded) -> None:
    record.checks_out()
    assert record.noted("error") == []
    metrics = [note["of"] for note in record.noted("metrics")]
    assert metrics.count("stt_metrics") == 2
    assert metrics.count("realtime_model_metrics") >= len(record.responses()) == 3


def test_its_session_is_agreed_to_and_echoed(record: Recorded) -> None:
    *_, echo = record.all("session.updated")
    assert echo["instructions"] == "You are a helpful assistant."
    assert echo["output_modalities"] == ["audio"]
    detection = echo["audio"]["input"]["turn_detection"]
    assert (detection["type"], detection["eagerness"]) == ("semantic_vad", "medium")
    assert echo["audio"]["input"]["noise_reduction"] is None


def test_its_cancel_and_its_truncation_cut_the_answer_off(record: Recorded) -> None:
    cut, answer, _ = record.responses()
    done = record.one("response.done", id=cut)
    assert (done["status"], done["reason"]) == ("cancelled", "client_cancelled")
    record.has_no_sound_after_done(cut)
    assert done.at - record.noted("speech_started")[1]["at"] < 0.5
    assert record.one("conversation.item.truncated", item_id=f"item_{cut}")["audio_end_ms"] <= 900
    assert record.one("response.done", id=answer)["status"] == "completed"


def test_it_takes_answers_for_what_they_are(record: Recorded) -> None:
    asked_for = [note["asked_for"] for note in record.noted("generation")]
    assert asked_for == [False, False, True], "the answer it has asked for is told by the metadata it has sent"
    assert said(record) == [record.transcript(response_id) for response_id in record.responses()]
    assert all(note["modalities"] == ["audio", "text"] for note in record.noted("said"))
    for response_id in record.responses()[1:]:
        played = sum(note["bytes"] for note in record.noted("audio") if note["item_id"] == f"item_{response_id}")
        assert played == len(record.audio(response_id)) > 0


def test_its_context_is_in_order(record: Recorded) -> None:
    (context,) = record.noted("context")
    assert [role for role, _ in context["messages"]] == ["user", "assistant"] * 3
    asked = [text.strip() for role, text in context["messages"] if role == "user"]
    assert asked[1:] == ["What time is it?", "What time is it now?"]
    assert [text for role, text in context["messages"] if role == "assistant"] == said(record)


def test_a_function_is_called_once_and_its_output_answered(tool: Recorded) -> None:
    called_once_on_the_wire(tool)
    assert [note["text"] for note in tool.noted("item") if note["role"] == "assistant"] == [ANSWER]


def test_asking_and_cancelling_at_bad_moments_harms_nothing(awkward: Recorded) -> None:
    assert [note["code"] for note in awkward.noted("refused")] == ["conversation_already_has_active_response"]
    early, late = awkward.all("error")
    assert early["code"] == "conversation_already_has_active_response"
    assert late["code"] == "response_cancel_not_active"
    assert len(awkward.noted("error")) == 1, "the cancel that came too late is none to it"
    unheard, given_up, answer = awkward.responses()
    assert awkward.one("conversation.item.deleted")["item_id"] == f"item_{unheard}"
    ends = {response_id: awkward.one("response.done", id=response_id)["status"] for response_id in awkward.responses()}
    assert ends == {unheard: "cancelled", given_up: "cancelled", answer: "completed"}
    assert not awkward.audio(given_up)
    assert awkward.transcript(answer) == "A short answer."


def test_its_agent_converses(agent: Recorded) -> None:
    agent.checks_out("response_cancel_not_active")  # it cancels twice, and knows that
    assert agent.noted("error") == []
    said = [(note["role"], note["text"], note["interrupted"]) for note in agent.noted("item")]
    (_, cut, _) = said.pop(1)
    assert "An answer that is long enough".startswith(cut.strip())
    assert said == [
        ("user", "Tell me a story.", False),
        ("user", "What time is it?", False),
        ("assistant", "A short answer.", False),
        ("user", "What time is it now?", False),
        ("assistant", "A short answer.", False),
    ]
    assert [note["interrupted"] for note in agent.noted("played")] == [True, False, False]
    statuses = [done["status"] for done in agent.all("response.done")]
    assert statuses == ["cancelled", "completed", "completed"]
