"""What the language model is given to read: a system prompt with the clock in it, and as much history as fits.

Owns the words of the system prompt and the budget of the history. Pure: the time comes from the caller. Never counts
tokens: the budget is in characters, small enough that reading all of it again takes seconds, not minutes.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Final, Protocol

from duplex_engine.model_plugins.cascade.calls import CLOSING, OPENING
from duplex_engine.model_plugins.cascade.payloads import ChatMessage, Prompt
from duplex_engine.model_plugins.cascade.tools import WORDS_ALONE, Tool, Tools, answer_grammar

PERSONA: Final = "You are Dee, a friendly voice assistant. You are talking with a person."
MANNER: Final = "Answer in one or two short, plain sentences, the way people speak. Never use lists, code or markdown."
HISTORY_CHARACTERS: Final = 1500
TRIM_MESSAGES: Final = 4
TOOL: Final = "tool"
ROLES: Final = frozenset({"system", "user", "assistant"})


TOOLS: Final = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{signatures}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""
"""Word for word as the default model was trained."""
ANSWER_WITH_IT: Final = "Answer my question with this in one short sentence."
"""Without it, models this small describe the output, or make the call again."""


class Said(Protocol):
    """One message of the history (`conversation.effects.Message` is one): words, a call, or the output of a call."""

    @property
    def role(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def call_id(self) -> str | None: ...

    @property
    def name(self) -> str | None: ...


class Style(Protocol):
    """How a session wants to be answered (`plan.CascadePlan` is one). `instructions` None: the assistant's own."""

    @property
    def instructions(self) -> str | None: ...

    @property
    def temperature(self) -> float: ...

    @property
    def max_tokens(self) -> int: ...

    @property
    def call_tokens(self) -> int: ...

    @property
    def tools(self) -> Tools: ...

    @property
    def chains(self) -> bool: ...


def local_time() -> datetime:
    """The time of day where the server runs."""
    return datetime.now().astimezone()


def compose(style: Style, history: Sequence[Said], words: str | None, now: datetime | None = None) -> Prompt:
    """The prompt that answers `words` (None: the last thing said is in the history). `now` None: the local time."""
    messages = [*trimmed(history), *([ChatMessage("user", words)] if words else [])]
    answers_output = not words and bool(history) and history[-1].role == TOOL
    if answers_output:
        messages[-1] = ChatMessage("user", f"{messages[-1].content}\n{ANSWER_WITH_IT}")
    tools = _left(style, history) if answers_output else style.tools
    offered = style.tools.offered if tools.offered else ()
    return Prompt(
        messages=(system_message(style.instructions, now or local_time(), offered), *messages),
        temperature=style.temperature,
        max_tokens=style.call_tokens if tools.offered else style.max_tokens,
        grammar=_grammar(tools, history),
    )


def compose_prelude(style: Style, history: Sequence[Said], now: datetime | None = None) -> Prompt:
    """What every prompt for this history begins with, to be read ahead while the user is still speaking."""
    system = system_message(style.instructions, now or local_time(), style.tools.offered)
    return Prompt(messages=(system, *trimmed(history)), max_tokens=0)


def _grammar(tools: Tools, history: Sequence[Said]) -> str | None:
    if tools.offered:
        return answer_grammar(tools)
    # A model that sees calls in the history makes some itself.
    return WORDS_ALONE if any(said.call_id for said in history) else None


def _left(style: Style, history: Sequence[Said]) -> Tools:
    """What may be called when the output of a function is answered."""
    return style.tools.without(called_last(history)) if style.chains else Tools()


def called_last(history: Sequence[Said]) -> frozenset[str]:
    """Functions that were called since the user last said something: nobody needs the same answer twice."""
    names: set[str] = set()
    for said in reversed(history):
        if said.role == "user":
            break
        if said.call_id is not None and said.role == "assistant":
            names.add(said.name or "")
    return frozenset(names)


def system_message(instructions: str | None, now: datetime, tools: Sequence[Tool] = ()) -> ChatMessage:
    """Who the assistant is, how it answers, what it can call, and last, because it changes each minute, what time it is.

    What was read before a change has not to be read again, so the clock stands behind everything that stays.
    """
    who = instructions.strip() if instructions and instructions.strip() else PERSONA
    if not tools:
        return ChatMessage("system", f"{who} {MANNER} {clock(now)}")
    listed = TOOLS.format(signatures="\n".join(tool.signature for tool in tools))
    return ChatMessage("system", f"{who} {MANNER}\n\n{listed}\n\n{clock(now)}")


def clock(now: datetime) -> str:
    """The date and the time in words that a small model repeats correctly."""
    hour = now.hour % 12 or 12
    half = "AM" if now.hour < 12 else "PM"
    return f"Today is {now:%A, %B} {now.day}, {now.year}. The time now: it's {hour}:{now.minute:02} {half}."


def trimmed(history: Sequence[Said]) -> Sequence[ChatMessage]:
    """The newest part of the history that fits the budget, as chat messages.

    The oldest messages go four at a time: the rest then begins alike for several turns and is not read again. An output
    does not stay without its call.
    """
    shown = [said for said in history if said.call_id or (said.role in ROLES and said.text.strip())]
    messages = [_message(said) for said in shown]
    first = 0
    while first < len(messages) - 1 and sum(len(message.content) for message in messages[first:]) > HISTORY_CHARACTERS:
        first = min(first + TRIM_MESSAGES, len(messages) - 1)
    while first < len(messages) - 1 and shown[first].role == TOOL:
        first += 1
    return _joined(shown[first:], messages[first:])


def _message(said: Said) -> ChatMessage:
    text = said.text.strip()
    if said.role == TOOL:
        return ChatMessage("user", f"<tool_response>\n{_shortened(text)}\n</tool_response>")
    if said.call_id is not None:
        call = f'{{"name": {json.dumps(said.name or "")}, "arguments": {text or "{}"}}}'
        return ChatMessage("assistant", f"{OPENING}\n{call}\n{CLOSING}")
    return ChatMessage(said.role, text)


def _shortened(output: str) -> str:
    return output if len(output) <= HISTORY_CHARACTERS else f"{output[:HISTORY_CHARACTERS]} …"


def _joined(shown: Sequence[Said], messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    """Words and the calls made with them are one message, and so are outputs that came together."""
    joined: list[ChatMessage] = []
    for place, (said, message) in enumerate(zip(shown, messages, strict=True)):
        before = shown[place - 1] if place else None
        if before is not None and before.role == said.role and (said.role == TOOL or said.call_id is not None):
            joined[-1] = ChatMessage(message.role, f"{joined[-1].content}\n{message.content}")
        else:
            joined.append(message)
    return joined
