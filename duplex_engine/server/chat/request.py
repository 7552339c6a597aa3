"""A chat request as OpenAI's clients write it: what is asked, and the session that answers it.

Owns the options: which are taken, which are refused, and that all others are ignored. Pure. Never asks the model.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from duplex_engine.protocol.fields import is_number
from duplex_engine.protocol.wire_json import loads
from duplex_engine.server.chat.messages import Conversation, read_messages
from duplex_engine.server.chat.refusal import ChatRefused, unsupported, wrong

Json = Mapping[str, object]

TEXT, AUDIO = "text", "audio"
WAV, PCM16 = "wav", "pcm16"
HOTTEST: Final = 2.0


@attrs.frozen(kw_only=True)
class ChatRequest:
    """What is asked for. `session`: the Realtime session object that answers it. `speaks`: the answer is sound.

    `wav`: the sound is wrapped as a WAV file, else it is bare PCM16 at 24 kHz.
    """

    conversation: Conversation
    session: Json
    model: str | None = None
    stream: bool = False
    include_usage: bool = False
    speaks: bool = False
    wav: bool = False

    @property
    def tools(self) -> bool:
        """Whether functions may be called."""
        return bool(self.session.get("tools"))


def read_request(body: bytes) -> ChatRequest:
    """The request that a body says. Raises ChatRefused."""
    try:
        asked = loads(body)
    except ValueError as error:
        raise ChatRefused(400, f"the body is no JSON: {error}", None, "invalid_json") from None
    if not isinstance(asked, Mapping):
        raise ChatRefused(400, "the body must be a JSON object", None, "invalid_json")
    for name, (harmless, why) in REFUSED.items():
        if not harmless(asked.get(name)):
            raise unsupported(name, why)
    return _read(asked)


def _read(asked: Json) -> ChatRequest:
    stream = _switch(asked, "stream")
    speaks = _speaks(asked)
    wav, voice = _audio(asked, stream) if speaks else (False, None)
    conversation = read_messages(asked.get("messages"))
    tools = _tools(asked)
    session = {
        "model": _text(asked, "model"),
        "modalities": [TEXT, AUDIO] if speaks else [TEXT],
        "instructions": conversation.instructions,
        "voice": voice,
        "temperature": _temperature(asked),
        "max_response_output_tokens": _token_limit(asked),
        "tools": tools or None,
        "tool_choice": _tool_choice(asked, tools),
    }
    return ChatRequest(
        conversation=conversation,
        session={
            **{key: value for key, value in session.items() if value is not None},
            "turn_detection": None,
            "extra_body": {"auto_response": False},
        },
        model=_text(asked, "model"),
        stream=stream,
        include_usage=_switch(_object(asked, "stream_options"), "include_usage", "stream_options.include_usage"),
        speaks=speaks,
        wav=wav,
    )


# --- what is refused ---------------------------------------------------------------------------------------------


def _none_of(*values: object) -> Callable[[object], bool]:
    return lambda value: any(type(value) is type(harmless) and value == harmless for harmless in (None, *values))


def _plain_text(value: object) -> bool:
    return value is None or (isinstance(value, Mapping) and value.get("type") == TEXT)


REFUSED: Final[Mapping[str, tuple[Callable[[object], bool], str]]] = {
    "n": (_none_of(1), "can only be 1: ask again for another answer"),
    "logprobs": (_none_of(False), "are not known here; leave it out"),
    "top_logprobs": (_none_of(0), "are not known here; leave it out"),
    "logit_bias": (_none_of({}), "cannot be given here; leave it out"),
    "stop": (_none_of([], ""), "cannot be given here; leave it out, or stop reading"),
    "response_format": (_plain_text, "can only be text; ask for the form in a system message"),
    "functions": (_none_of([]), "are not taken; use tools"),
    "function_call": (_none_of("none", "auto"), "is not taken; use tool_choice"),
    "prediction": (_none_of(), "is not taken; leave it out"),
    "web_search_options": (_none_of(), "are not taken: there is no web search here"),
}
"""Options that would change the answer and cannot be had, with the values that do not; all other unknown ones are ignored."""


# --- options -----------------------------------------------------------------------------------------------------


def _text(asked: Json, name: str) -> str | None:
    value = asked.get(name)
    if value is None or (isinstance(value, str) and value):
        return value
    raise wrong(name, "a string that is not empty", value)


def _switch(asked: Json, name: str, param: str | None = None) -> bool:
    value = asked.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise wrong(param or name, "true or false", value)


def _object(asked: Json, name: str) -> Json:
    value = asked.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise wrong(name, "an object", value)
    return value


def _temperature(asked: Json) -> float | None:
    value = asked.get("temperature")
    if value is None or (is_number(value) and 0 <= value <= HOTTEST):
        return value
    raise wrong("temperature", f"a number from 0 to {HOTTEST:g}", value)


def _token_limit(asked: Json) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = asked.get(name)
        if value is not None:
            if type(value) is not int or value < 1:
                raise wrong(name, "a whole number of at least 1", value)
            return value
    return None


def _speaks(asked: Json) -> bool:
    value = asked.get("modalities")
    if value is None:
        return False
    if not isinstance(value, list) or not value or any(kind not in (TEXT, AUDIO) for kind in value):
        raise wrong("modalities", '["text"] or ["text", "audio"]', value)
    return AUDIO in value


def _audio(asked: Json, stream: bool) -> tuple[bool, str | None]:
    """Whether a WAV file is wanted, and the voice."""
    audio = _object(asked, "audio")
    chosen = audio.get("format")
    if chosen is None:
        chosen = PCM16 if stream else WAV
    if chosen not in (WAV, PCM16):
        raise wrong("audio.format", f"{WAV} or {PCM16}", chosen)
    if stream and chosen == WAV:
        raise unsupported("audio.format", f"of a stream can only be {PCM16}: a WAV file begins with its length")
    voice = audio.get("voice")
    if isinstance(voice, Mapping):
        voice = voice.get("id")
    if voice is not None and not isinstance(voice, str):
        raise wrong("audio.voice", "a string", voice)
    return chosen == WAV, voice


# --- tools -------------------------------------------------------------------------------------------------------


def _tools(asked: Json) -> list[dict[str, Any]]:
    """The functions in the form of a session."""
    tools = asked.get("tools")
    if tools is None:
        return []
    if not isinstance(tools, list):
        raise wrong("tools", "a list", tools)
    return [_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools)]


def _tool(tool: object, param: str) -> dict[str, Any]:
    if not isinstance(tool, Mapping):
        raise wrong(param, "an object", tool)
    if tool.get("type") != "function":
        raise wrong(f"{param}.type", "function", tool.get("type"))
    function = tool.get("function")
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(name, str) or not name:
        raise wrong(f"{param}.function", "an object with a name", function)
    for key, kind, expected in (("description", str, "a string"), ("parameters", Mapping, "an object")):
        value = function.get(key)
        if value is not None and not isinstance(value, kind):
            raise wrong(f"{param}.function.{key}", expected, value)
    return {**function, "type": "function"}


def _tool_choice(asked: Json, tools: list[dict[str, Any]]) -> object:
    choice = asked.get("tool_choice")
    if choice is None or choice in ("none", "auto"):
        return choice
    if choice == "required" and tools:
        return choice
    function = choice.get("function") if isinstance(choice, Mapping) and choice.get("type") == "function" else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if name is not None and name in [tool["name"] for tool in tools]:
        return {"type": "function", "name": name}
    raise wrong("tool_choice", "none, auto, required, or a function of tools", choice)
