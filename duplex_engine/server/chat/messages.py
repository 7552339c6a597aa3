"""The messages of a chat request as instructions and conversation items.

Owns what a message may be made of. What an item may be in itself is known to `protocol/decode_items.py`, whether it fits
the conversation to the session. Never opens one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

import attrs

from duplex_engine.errors import ProtocolViolation
from duplex_engine.protocol.commands import AppendAudio, CreateItem
from duplex_engine.protocol.decode_items import read_create_item
from duplex_engine.server.chat.refusal import ChatRefused, unsupported, wrong
from duplex_engine.server.chat.sound import cut_sound, read_sound

MOST_MESSAGES: Final = 2048
INSTRUCTING: Final = ("system", "developer")

Json = Mapping[str, object]
Part = dict[str, object]


@attrs.frozen(kw_only=True)
class Line:
    """One message as items. `param`: its path in the request. `answered`: it is an answer, or has been answered."""

    param: str
    items: tuple[CreateItem, ...]
    answered: bool = False


@attrs.frozen
class Conversation:
    """What was said before the answer. `instructions` None: the model's own."""

    instructions: str | None
    lines: tuple[Line, ...]


def read_messages(messages: object) -> Conversation:
    """The conversation that `messages` tells. Raises ChatRefused."""
    if not isinstance(messages, list) or not messages:
        raise wrong("messages", "a list of at least one message", messages)
    if len(messages) > MOST_MESSAGES:
        raise ChatRefused(400, f"{len(messages)} messages; the limit is {MOST_MESSAGES}", "messages", "array_too_long")
    roles = [_role(message, f"messages[{index}]") for index, message in enumerate(messages)]
    if not {"user", "tool"}.intersection(roles):
        raise ChatRefused(400, "messages have no message of role user or tool to answer", "messages", "invalid_value")
    leading = next(index for index, role in enumerate(roles) if role not in INSTRUCTING)
    instructions = [
        part["text"]
        for index in range(leading)
        for part in _texts(messages[index].get("content"), f"messages[{index}].content", "text")
    ]
    last_answer = max((index for index, role in enumerate(roles) if role == "assistant"), default=-1)
    lines = (
        Line(
            param=f"messages[{index}]",
            items=tuple(READERS[roles[index]](messages[index], f"messages[{index}]")),
            answered=index <= last_answer,
        )
        for index in range(leading, len(messages))
    )
    return Conversation("\n\n".join(map(str, instructions)) or None, tuple(lines))


def _role(message: object, param: str) -> str:
    if not isinstance(message, Mapping):
        raise wrong(param, "an object", message)
    role = message.get("role")
    if not isinstance(role, str) or role not in READERS:
        raise wrong(f"{param}.role", f"one of {', '.join(READERS)}", role)
    return role


# --- messages by role --------------------------------------------------------------------------------------------


def _instruction(message: Json, param: str) -> Iterable[CreateItem]:
    return _message("system", _texts(message.get("content"), f"{param}.content", "input_text"), param)


def _user(message: Json, param: str) -> Iterable[CreateItem]:
    parts: list[Part] = []
    sounds: list[AppendAudio] = []
    param_of_content = f"{param}.content"
    for part, path in _parts(message.get("content"), param_of_content):
        kind = part.get("type")
        if kind == "text":
            parts += _text(part, path, "input_text")
        elif kind == "input_audio":
            sounds += cut_sound(read_sound(part.get("input_audio"), f"{path}.input_audio"))
        elif kind == "image_url":
            parts.append(_picture(part, path))
        else:
            raise wrong(f"{path}.type", "text, input_audio or image_url", kind)
    beside = [_message("user", [], param, sound) for sound in sounds[1:]]
    return [*_message("user", parts, param, *sounds[:1]), *chain(*beside)]


def _assistant(message: Json, param: str) -> Iterable[CreateItem]:
    if message.get("function_call") is not None:
        raise unsupported(f"{param}.function_call", "is not taken; use tool_calls")
    content, calls = message.get("content"), message.get("tool_calls")
    if content is None and message.get("audio") is not None:
        raise unsupported(f"{param}.audio", "cannot be looked up: answers are not kept; send its transcript as content")
    if content is None and not calls:
        raise wrong(f"{param}.content", "a string or a list of parts", content)
    said = [] if content is None else _texts(content, f"{param}.content", "output_text")
    return [*_message("assistant", said, param), *_calls(calls, f"{param}.tool_calls")]


def _tool(message: Json, param: str) -> Iterable[CreateItem]:
    call_id = message.get("tool_call_id")
    if not isinstance(call_id, str) or not call_id:
        raise wrong(f"{param}.tool_call_id", "the id of a tool call", call_id)
    output = "".join(str(part["text"]) for part in _texts(message.get("content"), f"{param}.content", "text"))
    return [_create({"type": "function_call_output", "call_id": call_id, "output": output}, param)]


def _calls(calls: object, param: str) -> Iterable[CreateItem]:
    if calls is None:
        return
    if not isinstance(calls, list):
        raise wrong(param, "a list", calls)
    for index, call in enumerate(calls):
        path = f"{param}[{index}]"
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(call, Mapping) or not isinstance(function, Mapping):
            raise wrong(path, "an object with id and function", call)
        yield _create(
            {
                "type": "function_call",
                "call_id": call.get("id"),
                "name": function.get("name"),
                "arguments": function.get("arguments"),
            },
            path,
        )


READERS: Final[Mapping[str, Callable[[Json, str], Iterable[CreateItem]]]] = {
    "system": _instruction,
    "developer": _instruction,
    "user": _user,
    "assistant": _assistant,
    "tool": _tool,
}


# --- parts -------------------------------------------------------------------------------------------------------


def _parts(content: object, param: str) -> list[tuple[Json, str]]:
    """The parts of a message, with their paths; a string is one part of text."""
    if isinstance(content, str):
        return [({"type": "text", "text": content}, param)]
    if not isinstance(content, list) or not all(isinstance(part, Mapping) for part in content):
        raise wrong(param, "a string or a list of parts", content)
    return [(part, f"{param}[{index}]") for index, part in enumerate(content)]


def _texts(content: object, param: str, kind: str) -> list[Part]:
    """The parts of a message that can only be text, as parts of this kind."""
    texts: list[Part] = []
    for part, path in _parts(content, param):
        if part.get("type") not in ("text", "refusal"):
            raise wrong(f"{path}.type", "text", part.get("type"))
        texts += _text(part, path, kind)
    return texts


def _text(part: Json, param: str, kind: str) -> Sequence[Part]:
    """One part; none when it is empty."""
    key = "refusal" if part.get("type") == "refusal" else "text"
    text = part.get(key)
    if not isinstance(text, str):
        raise wrong(f"{param}.{key}", "a string", text)
    return [{"type": kind, "text": text}] if text else []


def _picture(part: Json, param: str) -> Part:
    picture = part.get("image_url")
    url = picture.get("url") if isinstance(picture, Mapping) else picture
    if not isinstance(url, str):
        raise wrong(f"{param}.image_url.url", "a data URL", url)
    return {"type": "input_image", "image_url": url}


# --- items -------------------------------------------------------------------------------------------------------


def _message(role: str, parts: list[Part], param: str, sound: AppendAudio | None = None) -> Sequence[CreateItem]:
    """A message as an item; none when it says nothing."""
    if not parts and sound is None:
        return []
    message = _create({"type": "message", "role": role, "content": parts}, param)
    if sound is None:
        return [message]
    content = [*parts, {"type": "input_audio", "transcript": ""}]
    return [attrs.evolve(message, item={**message.item, "content": content}, audio=(sound,))]


def _create(item: Part, param: str) -> CreateItem:
    try:
        return read_create_item({"item": item}, None)
    except ProtocolViolation as violation:
        message = violation.message.replace("item.", f"{param}.", 1)
        code = "invalid_value" if violation.code == "bad_event" else violation.code
        raise ChatRefused(400, message, param, code) from None
