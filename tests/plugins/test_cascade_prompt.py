"""What the language model is given to read."""

from datetime import datetime

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duplex_engine.conversation.effects import Message
from duplex_engine.model_plugins.cascade.payloads import ChatMessage
from duplex_engine.model_plugins.cascade.prompt import (
    HISTORY_CHARACTERS,
    PERSONA,
    TRIM_MESSAGES,
    clock,
    compose,
    compose_prelude,
    system_message,
    trimmed,
)
from duplex_engine.model_plugins.cascade.tools import Tools

NOON = datetime(2026, 11, 29, 12, 0)


@attrs.frozen
class AsIs:
    instructions: str | None = None
    temperature: float = 0.0
    max_tokens: int = 50
    call_tokens: int = 60
    tools: Tools = attrs.Factory(Tools)
    chains: bool = False


def said(role: str, text: str) -> Message:
    return Message(role=role, text=text, item_id="item")


@pytest.mark.parametrize(
    ("hour", "minute", "words"),
    [(0, 5, "12:05 AM"), (9, 0, "9:00 AM"), (12, 30, "12:30 PM"), (15, 40, "3:40 PM"), (23, 59, "11:59 PM")],
)
def test_the_clock(hour: int, minute: int, words: str) -> None:
    assert (
        clock(datetime(2026, 11, 29, hour, minute))
        == f"Today is Sunday, November 29, 2026. The time now: it's {words}."
    )


def test_what_changes_stands_last() -> None:
    early, late = (system_message(None, datetime(2026, 11, 29, 15, minute)).content for minute in (40, 41))
    assert early[: early.index("3:40")] == late[: late.index("3:41")]


def test_instructions_take_the_place_of_the_persona() -> None:
    content = system_message("You are a pirate.", NOON).content
    assert content.startswith("You are a pirate. ")
    assert PERSONA not in content
    assert clock(NOON) in content
    assert system_message("  ", NOON) == system_message(None, NOON)


def test_a_prompt() -> None:
    history = [said("user", "Hello."), said("assistant", "Hi!"), said("user", "")]
    prompt = compose(AsIs(temperature=0.4), history, "What time is it?", NOON)
    assert prompt.messages[1:] == (
        ChatMessage("user", "Hello."),
        ChatMessage("assistant", "Hi!"),
        ChatMessage("user", "What time is it?"),
    )
    assert (prompt.temperature, prompt.max_tokens) == (0.4, 50)


def test_a_text_turn_is_in_the_history_already() -> None:
    prompt = compose(AsIs(), [said("user", "What time is it?")], None, NOON)
    assert prompt.messages[1:] == (ChatMessage("user", "What time is it?"),)


def test_without_a_clock_it_is_now() -> None:
    assert "Today is" in compose(AsIs(), [], "Hello").messages[0].content


def test_the_prelude_is_how_every_prompt_begins() -> None:
    history = [said("user", "Hello."), said("assistant", "Hi!")]
    prelude = compose_prelude(AsIs(), history, NOON)
    prompt = compose(AsIs(), history, "And now?", NOON)
    assert prompt.messages[: len(prelude.messages)] == prelude.messages
    assert prelude.max_tokens == 0


HISTORY = st.lists(
    st.builds(said, st.sampled_from(["user", "assistant"]), st.text(min_size=1, max_size=600)), max_size=30
)


@given(HISTORY)
def test_history_fits_and_is_the_newest_part(history: list[Message]) -> None:
    kept = trimmed(history)
    everything = [ChatMessage(message.role, message.text.strip()) for message in history if message.text.strip()]
    assert list(kept) == everything[len(everything) - len(kept) :]
    assert len(kept) <= 1 or sum(len(message.content) for message in kept) <= HISTORY_CHARACTERS
    assert bool(kept) == bool(everything)


def test_the_beginning_stays_the_same_for_some_turns() -> None:
    history = [said("user" if number % 2 == 0 else "assistant", f"{number} " + "x" * 97) for number in range(60)]
    beginnings = {trimmed(history[:length])[0] for length in range(20, 60)}
    assert len(beginnings) <= 40 / TRIM_MESSAGES + 1
