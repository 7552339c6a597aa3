"""`conversation.item.create`: an item as a client writes it to one that can be stored (wire contract 3.8).

Owns the defaults of an item and what makes it legal in itself. Whether the model takes it is not asked here.
"""

from collections.abc import Mapping
from typing import Final

from duplex_engine.errors import ProtocolViolation
from duplex_engine.protocol.commands import AppendAudio, CreateItem
from duplex_engine.protocol.decode_append import decode_audio, decode_picture
from duplex_engine.protocol.fields import declared_format, name, sample_rate, wrong
from duplex_engine.protocol.formats import INPUT_ENCODINGS
from duplex_engine.protocol.ids import new_item_id

ROLES: Final = frozenset({"user", "assistant", "system"})
AUDIO_PARTS: Final = ("input_audio", "audio")
SPOKEN_PARTS: Final = (*AUDIO_PARTS, "output_audio")
TEXT_PARTS: Final = ("input_text", "text", "output_text")

JsonDict = dict[str, object]


def read_create_item(event: Mapping[str, object], event_id: str | None) -> CreateItem:
    """The command that `event` says. Raises ProtocolViolation with the codes of 3.8 and the path of the culprit."""
    given = event.get("item")
    if not isinstance(given, Mapping):
        raise wrong("item", "an object", given)
    item = _with_defaults(given)
    audio: tuple[AppendAudio, ...] = ()
    if item["type"] == "message":
        item["role"], (item["content"], audio) = _role(given), _content(given, _role(given))
    elif item["type"] == "function_call_output":
        _check_function_output(item)
    elif item["type"] == "function_call":
        _check_function_call(item)
    return CreateItem(item=item, audio=audio, previous_item_id=name(event, "previous_item_id"), event_id=event_id)


def _with_defaults(given: Mapping[str, object]) -> JsonDict:
    item: JsonDict = dict(given)
    for key, default in (("id", ""), ("object", "realtime.item"), ("type", "message"), ("status", "completed")):
        try:
            item[key] = name(given, key) or default
        except ProtocolViolation as violation:
            violation.param = f"item.{key}"
            raise
    item["id"] = item["id"] or new_item_id()
    return item


def _role(given: Mapping[str, object]) -> str:
    role = given.get("role")
    if role is None:
        return "user"
    if not isinstance(role, str) or role not in ROLES:
        raise wrong("item.role", "user, assistant or system", role)
    return role


def _content(given: Mapping[str, object], role: str) -> tuple[list[JsonDict], tuple[AppendAudio, ...]]:
    content = given.get("content")
    if content is None:
        return [], ()
    if not isinstance(content, list) or not all(isinstance(part, Mapping) for part in content):
        raise wrong("item.content", "a list of objects", content)
    parts: list[JsonDict] = []
    appends: list[AppendAudio] = []
    for index, part in enumerate(content):
        path = f"item.content[{index}]"
        kind = part.get("type")
        if role == "user" and kind in AUDIO_PARTS:
            appends.append(_audio_part(part, path))
        parts.append(_stored_part(part, role, path))
    return parts, tuple(appends)


def _stored_part(part: Mapping[str, object], role: str, path: str) -> JsonDict:
    """The part as the history keeps it: pictures checked, texts are texts, audio reduced to its transcript."""
    kind = part.get("type")
    if kind == "input_image":
        _check_picture(part, role, path)
    elif kind in TEXT_PARTS and not isinstance(part.get("text"), str):
        raise wrong(f"{path}.text", "a string", part.get("text"))
    elif kind in SPOKEN_PARTS:
        transcript = part.get("transcript")
        return {"type": kind, "transcript": transcript if isinstance(transcript, str) else ""}
    return dict(part)


def _audio_part(part: Mapping[str, object], path: str) -> AppendAudio:
    key = "audio" if part.get("audio") is not None else "data"
    text = part.get(key)
    if not isinstance(text, str):
        raise wrong(f"{path}.{key}", "base64 text", text)
    encoding, beside, beside_path = declared_format(part.get("format"), allowed=INPUT_ENCODINGS, param=f"{path}.format")
    rate_hz = sample_rate(part.get("sample_rate_hz"), f"{path}.sample_rate_hz")
    transcript = part.get("transcript")
    return AppendAudio(
        audio=decode_audio(text, f"{path}.{key}"),
        encoding=encoding,
        sample_rate_hz=sample_rate(beside, beside_path) if rate_hz is None else rate_hz,
        transcript=transcript if isinstance(transcript, str) and transcript else None,
    )


def _check_picture(part: Mapping[str, object], role: str, path: str) -> None:
    path += ".image_url"
    if role != "user":
        raise ProtocolViolation("invalid_image", f"only a user's message has pictures, not one of role {role}", path)
    url = part.get("image_url")
    head, comma, text = url.partition(",") if isinstance(url, str) else ("", "", "")
    if not comma or not head.startswith("data:image/") or not head.endswith(";base64"):
        raise ProtocolViolation("invalid_image", "a picture must be a data URL: data:image/jpeg;base64,…", path)
    try:
        decode_picture(text)
    except ValueError as error:
        raise ProtocolViolation("invalid_image", f"the picture: {error}", path) from None


def _check_function_output(item: Mapping[str, object]) -> None:
    call_id, output = item.get("call_id"), item.get("output")
    if not isinstance(call_id, str) or not call_id:
        raise ProtocolViolation("invalid_function_call_output", "call_id is missing", "item.call_id")
    if not isinstance(output, str):
        raise ProtocolViolation("invalid_function_call_output", "output must be a string", "item.output")


def _check_function_call(item: Mapping[str, object]) -> None:
    """A call that was made earlier, told by a client that brings its history along."""
    for key in ("name", "call_id", "arguments"):
        value = item.get(key)
        if not isinstance(value, str) or not (value or key == "arguments"):
            raise wrong(f"item.{key}", "a string" if key == "arguments" else "a string that is not empty", value)
