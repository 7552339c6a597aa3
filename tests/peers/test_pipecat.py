"""Pipecat's OpenAI realtime service talks to the running server as it would to OpenAI.

It shows frames and items, but no events of the server; one it cannot read, and nearly every error, ends it.
"""

from peer_foreign import ANSWER, SPOKEN, TOOL, both, called_once, needs, one
from peer_record import Recorded

ENVIRONMENT = "pipecat"
pytestmark = needs(ENVIRONMENT)
record = both(ENVIRONMENT)
tool = one(ENVIRONMENT, "tool", TOOL)
pressed = one(ENVIRONMENT, "push_to_talk", f"repeat 2 {{ {SPOKEN.split('forever')[0]} }}")


def test_nothing_goes_wrong(record: Recorded) -> None:
    assert record.noted("error") == []
    kinds = [kind for note in record.noted("metrics") for kind in note["of"]]
    assert kinds.count("LLMUsageMetricsData") == 3


def test_speech_cuts_the_answer_off(record: Recorded) -> None:
    heard = [note for note in record.told if note["kind"] in ("user_started", "audio", "transcript")]
    kinds = [note["kind"] for note in heard]
    started = kinds.index("user_started")
    assert "audio" in kinds[:started]
    over = kinds.index("transcript")
    late = [note["at"] - heard[started]["at"] for note in heard[started:over] if note["kind"] == "audio"]
    assert all(seconds < 0.5 for seconds in late), "the player has stopped: this is a voice from the past"


def test_each_item_is_told(record: Recorded) -> None:
    states = {note["id"]: (note["role"], note["status"]) for note in record.noted("item")}
    begun, cut, asked, answer, written, last = states.values()
    assert (begun, asked, written) == (("user", "completed"), ("user", "completed"), ("system", "completed"))
    assert (cut, answer, last) == (("assistant", "incomplete"), ("assistant", "completed"), ("assistant", "completed"))


def test_its_context_is_what_was_said(record: Recorded) -> None:
    (context,) = record.noted("context")
    roles = [message["role"] for message in context["messages"]]
    assert roles == ["developer", "assistant", "user", "assistant", "user", "assistant"]
    texts = [message["content"] for message in context["messages"]]
    assert (texts[2], texts[4]) == ("What time is it?", "What time is it now?")
    assert all(text.strip() for text in texts)


def test_a_function_is_called_once_and_its_output_answered(tool: Recorded) -> None:
    called_once(tool)
    (context,) = tool.noted("context")
    assert context["messages"][-1] == {"role": "assistant", "content": ANSWER}


def test_turns_that_the_application_begins_and_ends(pressed: Recorded) -> None:
    """Each begins with a cancel, and the first has nothing to cancel: that is no reason to end."""
    assert pressed.noted("error") == []
    assert [note["text"] for note in pressed.noted("transcript")] == ["Tell me a story."] * 2
    states = {note["id"]: (note["role"], note["status"]) for note in pressed.noted("item")}
    assert list(states.values())[:3] == [("user", "completed"), ("assistant", "incomplete"), ("user", "completed")]
    (retrieved,) = pressed.noted("retrieved")
    assert retrieved["id"] in states
    assert "nobody" in retrieved["lost"], "an item that is not there is told to who asked for it, and ends nothing"
