"""What the language model is given to read: a system prompt with the clock in it, and as much history as fits.

Owns the words of the system prompt and the budget of the history. Pure: the time comes from the caller. Never counts
tokens: the budget is in characters, small enough that reading all of it again takes seconds, not minutes.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Protocol

from duplex_engine.model_plugins.cascade.payloads import ChatMessage, Prompt

PERSONA: Final = "You are Dee, a friendly voice assistant. You are talking with a person."
MANNER: Final = "Answer in one or two short, plain sentences, the way people speak. Never use lists, code or markdown."
HISTORY_CHARACTERS: Final = 1500
TRIM_MESSAGES: Final = 4
ROLES: Final = frozenset({"system", "user", "assistant"})


class Said(Protocol):
    """One message of the history (`conversation.effects.Message` is one)."""

    @property
    def role(self) -> str: ...

    @property
    def text(self) -> str: ...


class Style(Protocol):
    """How a session wants to be answered (`plan.CascadePlan` is one). `instructions` None: the assistant's own."""

    @property
    def instructions(self) -> str | None: ...

    @property
    def temperature(self) -> float: ...

    @property
    def max_tokens(self) -> int: ...


def local_time() -> datetime:
    """The time of day where the server runs."""
    return datetime.now().astimezone()


def compose(style: Style, history: Sequence[Said], words: str | None, now: datetime | None = None) -> Prompt:
    """The prompt that answers `words` (None: the last thing said is in the history). `now` None: the local time."""
    said = [*trimmed(history), *([ChatMessage("user", words)] if words else [])]
    return Prompt(
        messages=(system_message(style.instructions, now or local_time()), *said),
        temperature=style.temperature,
        max_tokens=style.max_tokens,
    )


def compose_prelude(style: Style, history: Sequence[Said], now: datetime | None = None) -> Prompt:
    """What every prompt for this history begins with, to be read ahead while the user is still speaking."""
    return Prompt(messages=(system_message(style.instructions, now or local_time()), *trimmed(history)), max_tokens=0)


def system_message(instructions: str | None, now: datetime) -> ChatMessage:
    """Who the assistant is, how it answers, and last, because it changes each minute, what time it is.

    What was read before a change has not to be read again, so the clock stands behind everything that stays.
    """
    who = instructions.strip() if instructions and instructions.strip() else PERSONA
    return ChatMessage("system", f"{who} {MANNER} {clock(now)}")


def clock(now: datetime) -> str:
    """The date and the time in words that a small model repeats correctly."""
    hour = now.hour % 12 or 12
    half = "AM" if now.hour < 12 else "PM"
    return f"Today is {now:%A, %B} {now.day}, {now.year}. The time now: it's {hour}:{now.minute:02} {half}."


def trimmed(history: Sequence[Said]) -> Sequence[ChatMessage]:
    """The newest part of the history that fits the budget, as chat messages.

    The oldest messages go four at a time: the rest then begins alike for several turns and is not read again.
    """
    messages = [
        ChatMessage(said.role, said.text.strip()) for said in history if said.role in ROLES and said.text.strip()
    ]
    first = 0
    while first < len(messages) - 1 and sum(len(message.content) for message in messages[first:]) > HISTORY_CHARACTERS:
        first = min(first + TRIM_MESSAGES, len(messages) - 1)
    return messages[first:]
