"""Chat requests as they are read: what is taken, what it becomes, and what is refused with which words."""

import base64
import io
import json
import wave
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duplex_engine.protocol.commands import AppendAudio, CreateItem
from duplex_engine.protocol.formats import Encoding
from duplex_engine.server.chat.messages import MOST_MESSAGES
from duplex_engine.server.chat.refusal import ChatRefused
from duplex_engine.server.chat.request import ChatRequest, read_request

HELLO = {"role": "user", "content": "Hello"}
PUSH_TO_TALK = {"turn_detection": None, "extra_body": {"auto_response": False}}
FUNCTION = {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}, "strict": True}
TOOL = {"type": "function", "function": FUNCTION}
PNG = "data:image/png;base64,iVBORw0KGgo="
PCM = np.arange(8, dtype="<i2").tobytes()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def wav(pcm: bytes, rate_hz: int = 16_000, channels: int = 1, width: int = 2) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((channels, width, rate_hz, 0, "NONE", ""))
        out.writeframes(pcm)
    return file.getvalue()


def sound(data: bytes, format_: object = "wav") -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": b64(data), "format": format_}}


def read(**fields: Any) -> ChatRequest:
    return read_request(json.dumps({"messages": [HELLO], **fields}).encode())


def said(*messages: Any) -> list[dict[str, Any]]:
    """The items that messages become, without what all items have."""
    lines = read(messages=list(messages)).conversation.lines
    found = [dict(item.item) for line in lines for item in line.items]
    common = ("id", "object", "status")
    return [{key: value for key, value in item.items() if key not in common} for item in found]


def refusal(body: bytes | None = None, **fields: Any) -> ChatRefused:
    with pytest.raises(ChatRefused) as refused:
        read(**fields) if body is None else read_request(body)
    return refused.value


# --- options -----------------------------------------------------------------------------------------------------


def test_the_least_request() -> None:
    asked = read()
    assert (asked.model, asked.stream, asked.include_usage, asked.speaks, asked.wav) == (None, *[False] * 4)
    assert asked.session == {"modalities": ["text"], **PUSH_TO_TALK}
    assert asked.conversation.instructions is None


OPTIONS = [
    ({"model": "gpt-4o"}, {"model": "gpt-4o"}),
    ({"temperature": 0.5}, {"temperature": 0.5}),
    ({"max_tokens": 9}, {"max_response_output_tokens": 9}),
    ({"max_completion_tokens": 7, "max_tokens": 9}, {"max_response_output_tokens": 7}),
    ({"modalities": ["audio", "text"]}, {"modalities": ["text", "audio"]}),
    (
        {"modalities": ["text", "audio"], "audio": {"voice": "alloy"}},
        {"modalities": ["text", "audio"], "voice": "alloy"},
    ),
    ({"modalities": ["audio"], "audio": {"voice": {"id": "v"}}}, {"modalities": ["text", "audio"], "voice": "v"}),
    ({"modalities": ["text"], "audio": {"voice": "alloy", "format": "wav"}}, {}),
    ({"tools": [TOOL]}, {"tools": [{"type": "function", **FUNCTION}]}),
    ({"tools": []}, {}),
    ({"tool_choice": "none"}, {"tool_choice": "none"}),
    (
        {"tools": [TOOL], "tool_choice": "required"},
        {"tools": [{"type": "function", **FUNCTION}], "tool_choice": "required"},
    ),
    (
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "look"}}},
        {"tools": [{"type": "function", **FUNCTION}], "tool_choice": {"type": "function", "name": "look"}},
    ),
    ({"top_p": 0.3, "seed": 4, "user": "me", "presence_penalty": 1, "store": True, "whatever": [{}]}, {}),
    ({"n": 1, "logprobs": False, "top_logprobs": 0, "logit_bias": {}, "stop": []}, {}),
    ({"response_format": {"type": "text"}, "functions": [], "function_call": "auto"}, {}),
    ({"parallel_tool_calls": False, "stream_options": {"include_usage": True}}, {}),
    (dict.fromkeys(("n", "stop", "tools", "tool_choice", "audio", "stream", "temperature")), {}),
]


@pytest.mark.parametrize(("fields", "session"), OPTIONS, ids=lambda value: json.dumps(value)[:60])
def test_options_become_a_session(fields: dict[str, Any], session: dict[str, Any]) -> None:
    assert read(**fields).session == {"modalities": ["text"], **PUSH_TO_TALK, **session}


@pytest.mark.parametrize(
    ("fields", "wrapped"),
    [
        ({}, True),
        ({"audio": {"format": "pcm16"}}, False),
        ({"audio": {"format": "wav"}}, True),
        ({"stream": True}, False),
        ({"stream": True, "audio": {"format": "pcm16"}}, False),
    ],
)
def test_sound_is_wrapped_unless_it_is_streamed(fields: dict[str, Any], wrapped: bool) -> None:
    assert read(modalities=["text", "audio"], **fields).wav is wrapped


INVALID, UNSUPPORTED = "invalid_value", "unsupported_parameter"
REFUSED = [
    ({"n": 2}, "n", UNSUPPORTED),
    ({"n": 1.0}, "n", UNSUPPORTED),
    ({"logprobs": True}, "logprobs", UNSUPPORTED),
    ({"top_logprobs": 3}, "top_logprobs", UNSUPPORTED),
    ({"logit_bias": {"5": 1}}, "logit_bias", UNSUPPORTED),
    ({"stop": ["\n"]}, "stop", UNSUPPORTED),
    ({"stop": "x"}, "stop", UNSUPPORTED),
    ({"response_format": {"type": "json_object"}}, "response_format", UNSUPPORTED),
    ({"functions": [FUNCTION]}, "functions", UNSUPPORTED),
    ({"function_call": {"name": "look"}}, "function_call", UNSUPPORTED),
    ({"prediction": {"type": "content"}}, "prediction", UNSUPPORTED),
    ({"web_search_options": {}}, "web_search_options", UNSUPPORTED),
    ({"model": 5}, "model", INVALID),
    ({"model": ""}, "model", INVALID),
    ({"stream": "yes"}, "stream", INVALID),
    ({"stream_options": True}, "stream_options", INVALID),
    ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage", INVALID),
    ({"temperature": "hot"}, "temperature", INVALID),
    ({"temperature": True}, "temperature", INVALID),
    ({"temperature": 2.1}, "temperature", INVALID),
    ({"temperature": -1}, "temperature", INVALID),
    ({"max_tokens": 0}, "max_tokens", INVALID),
    ({"max_tokens": True}, "max_tokens", INVALID),
    ({"max_completion_tokens": 1.5}, "max_completion_tokens", INVALID),
    ({"modalities": "audio"}, "modalities", INVALID),
    ({"modalities": []}, "modalities", INVALID),
    ({"modalities": ["text", "video"]}, "modalities", INVALID),
    ({"modalities": [{}]}, "modalities", INVALID),
    ({"modalities": ["audio"], "audio": "alloy"}, "audio", INVALID),
    ({"modalities": ["audio"], "audio": {"format": "mp3"}}, "audio.format", INVALID),
    ({"modalities": ["audio"], "audio": {"format": ["wav"]}}, "audio.format", INVALID),
    ({"modalities": ["audio"], "audio": {"voice": 5}}, "audio.voice", INVALID),
    ({"modalities": ["audio"], "audio": {"format": "wav"}, "stream": True}, "audio.format", UNSUPPORTED),
    ({"tools": {}}, "tools", INVALID),
    ({"tools": ["look"]}, "tools[0]", INVALID),
    ({"tools": [{"type": "custom"}]}, "tools[0].type", INVALID),
    ({"tools": [TOOL, {"type": "function"}]}, "tools[1].function", INVALID),
    ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function", INVALID),
    ({"tools": [{"type": "function", "function": {"name": "x", "parameters": []}}]}, "tools[0].function.parameters", INVALID),
    ({"tool_choice": "required"}, "tool_choice", INVALID),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "touch"}}}, "tool_choice", INVALID),
    ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools"}}, "tool_choice", INVALID),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param", "code"), REFUSED, ids=lambda value: json.dumps(value)[:60])
def test_refused_options(fields: dict[str, Any], param: str, code: str) -> None:
    refused = refusal(**fields)
    assert (refused.status, refused.param, refused.code) == (400, param, code)
    assert refused.message.startswith(param)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"hello"', b"nonsense", b'{"n": NaN}', b"\xff", b"[" * 100_000])
def test_what_is_no_object(body: bytes) -> None:
    refused = refusal(body)
    assert (refused.status, refused.param, refused.code) == (400, None, "invalid_json")


# --- messages ----------------------------------------------------------------------------------------------------


def message(role: str, kind: str, *texts: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts]}


def parts(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text} for text in texts]


def test_instructions_are_what_comes_first() -> None:
    asked = read(
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": parts("Rhyme.", "", "Sing.")},
            HELLO,
            {"role": "developer", "content": "Now shout."},
        ]
    )
    assert asked.session["instructions"] == "Be brief.\n\nRhyme.\n\nSing."
    assert [line.param for line in asked.conversation.lines] == ["messages[2]", "messages[3]"]
    assert asked.conversation.lines[1].items[0].item["role"] == "system"


def test_a_conversation_becomes_items() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at":"me"}'}}
    assert said(
        {"role": "user", "name": "Ada", "content": "Hi"},
        {"role": "assistant", "content": parts("Well,", "hello.")},
        {"role": "user", "content": [*parts("See?"), {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}}]},
        {"role": "assistant", "content": "Wait.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": parts("4", "2")},
        {"role": "assistant", "content": None, "tool_calls": [{**call, "id": "call_2"}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "user", "content": ""},
    ) == [
        message("user", "input_text", "Hi"),
        message("assistant", "output_text", "Well,", "hello."),
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "See?"}, {"type": "input_image", "image_url": PNG}],
        },
        message("assistant", "output_text", "Wait."),
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"at":"me"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "42"},
        {"type": "function_call", "call_id": "call_2", "name": "look", "arguments": '{"at":"me"}'},
        message("assistant", "output_text", "No."),
    ]  # fmt: skip


def items(*content: Any) -> tuple[CreateItem, ...]:
    (line,) = read(messages=[{"role": "user", "content": list(content)}]).conversation.lines
    return line.items


def spoken(*content: Any) -> CreateItem:
    (item,) = items(*content)
    return item


def test_sound_becomes_appends() -> None:
    first, second = items(sound(wav(PCM, 8_000)), *parts("And?"), sound(PCM, "pcm16"))
    assert first.audio == (AppendAudio(audio=PCM, encoding=Encoding.PCM16, sample_rate_hz=8_000),)
    assert second.audio == (AppendAudio(audio=PCM, encoding=Encoding.PCM16, sample_rate_hz=24_000),)
    heard = {"type": "input_audio", "transcript": ""}
    assert first.item["content"] == [{"type": "input_text", "text": "And?"}, heard]
    assert second.item["content"] == [heard]
    assert first.item["id"] != second.item["id"]


def test_long_sound_is_cut_so_that_nobody_waits_while_it_is_decoded() -> None:
    pcm = np.arange(24_000 * 25, dtype="<u2").tobytes()
    pieces = [append.audio for item in items(sound(pcm, "pcm16")) for append in item.audio]
    assert [len(piece) for piece in pieces] == [480_000, 480_000, 240_000]
    assert b"".join(pieces) == pcm


def test_a_file_that_was_streamed_has_no_lengths() -> None:
    file = wav(PCM)
    assert spoken(sound(file[:40] + b"\xff\xff\xff\xff" + file[44:])).audio == spoken(sound(file)).audio


def test_chunks_that_say_something_else_are_passed_over() -> None:
    file = wav(PCM)
    assert spoken(sound(file[:36] + b"LIST\x03\0\0\0abc\0" + file[36:])).audio == spoken(sound(file)).audio


def test_channels_are_mixed_and_half_a_frame_is_dropped() -> None:
    (append,) = spoken(sound(wav(PCM + b"\0\0", channels=2))).audio
    assert np.frombuffer(append.audio, "<i2").tolist() == [0, 2, 4, 6]


def test_what_was_answered_is_told_from_what_was_not() -> None:
    messages = [HELLO, {"role": "assistant", "content": "Hi"}, HELLO, {"role": "system", "content": "x"}, HELLO]
    lines = read(messages=messages).conversation.lines
    assert [line.answered for line in lines] == [True, True, False, False, False]


CALL = {"id": "c", "function": {"name": "f", "arguments": ""}}
CONTENT = "messages[0].content"
BAD_MESSAGES = [
    ("hello", "messages", INVALID),
    ([], "messages", INVALID),
    (["hello"], "messages[0]", INVALID),
    ([{}], "messages[0].role", INVALID),
    ([{"role": "function"}], "messages[0].role", INVALID),
    ([{"role": ["user"]}], "messages[0].role", INVALID),
    ([{"role": "system", "content": "x"}], "messages", INVALID),
    ([{"role": "assistant", "content": "x"}], "messages", INVALID),
    ([{"role": "user"}], CONTENT, INVALID),
    ([{"role": "user", "content": 5}], CONTENT, INVALID),
    ([{"role": "user", "content": ["x"]}], CONTENT, INVALID),
    ([{"role": "user", "content": [{}]}], f"{CONTENT}[0].type", INVALID),
    ([{"role": "user", "content": [{"type": "file"}]}], f"{CONTENT}[0].type", INVALID),
    ([{"role": "user", "content": [{"type": "text"}]}], f"{CONTENT}[0].text", INVALID),
    ([{"role": "user", "content": [{"type": "image_url"}]}], f"{CONTENT}[0].image_url.url", INVALID),
    ([{"role": "user", "content": [{"type": "image_url", "image_url": "http://x/y.png"}]}], "messages[0]", "invalid_image"),
    ([{"role": "user", "content": [{"type": "input_audio"}]}], f"{CONTENT}[0].input_audio", INVALID),
    ([{"role": "user", "content": [sound(PCM, "mp3")]}], f"{CONTENT}[0].input_audio.format", "unsupported_audio_format"),
    ([{"role": "user", "content": [sound(PCM, {})]}], f"{CONTENT}[0].input_audio.format", "unsupported_audio_format"),
    ([{"role": "user", "content": [sound(b"", "pcm16")]}], f"{CONTENT}[0].input_audio.data", "bad_audio"),
    ([{"role": "user", "content": [sound(b"RIFF....")]}], f"{CONTENT}[0].input_audio.data", "bad_audio"),
    ([{"role": "user", "content": [sound(wav(PCM, width=1))]}], f"{CONTENT}[0].input_audio.data", "bad_audio"),
    ([{"role": "user", "content": [sound(wav(PCM, 500))]}], f"{CONTENT}[0].input_audio.data", "bad_audio"),
    ([{"role": "user", "content": [sound(wav(PCM, channels=9))]}], f"{CONTENT}[0].input_audio.data", "bad_audio"),
    ([HELLO, {"role": "system", "content": [sound(PCM)]}], "messages[1].content[0].type", INVALID),
    ([HELLO, {"role": "assistant"}], "messages[1].content", INVALID),
    ([HELLO, {"role": "assistant", "tool_calls": []}], "messages[1].content", INVALID),
    ([HELLO, {"role": "assistant", "content": "x", "tool_calls": {}}], "messages[1].tool_calls", INVALID),
    ([HELLO, {"role": "assistant", "tool_calls": [{"id": "c"}]}], "messages[1].tool_calls[0]", INVALID),
    ([HELLO, {"role": "assistant", "tool_calls": [{**CALL, "id": ""}]}], "messages[1].tool_calls[0]", INVALID),
    ([HELLO, {"role": "assistant", "function_call": {}}], "messages[1].function_call", UNSUPPORTED),
    ([HELLO, {"role": "assistant", "audio": {"id": "audio_1"}}], "messages[1].audio", UNSUPPORTED),
    ([HELLO, {"role": "tool", "content": "x"}], "messages[1].tool_call_id", INVALID),
    ([HELLO, {"role": "tool", "tool_call_id": "c"}], "messages[1].content", INVALID),
    ([HELLO] * (MOST_MESSAGES + 1), "messages", "array_too_long"),
]  # fmt: skip


@pytest.mark.parametrize(("messages", "param", "code"), BAD_MESSAGES, ids=lambda value: json.dumps(value)[:60])
def test_refused_messages(messages: object, param: str, code: str) -> None:
    refused = refusal(messages=messages)
    assert (refused.status, refused.param, refused.code) == (400, param, code)
    assert refused.to_wire()["error"] == {
        "message": refused.message,
        "type": "invalid_request_error",
        "param": param,
        "code": code,
    }


# --- anything ----------------------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    [
        "user",
        "assistant",
        "system",
        "tool",
        "text",
        "audio",
        "wav",
        "pcm16",
        "function",
        "input_audio",
        "image_url",
        PNG,
    ]
)
KEYS = (
    "role content type text input_audio data format tool_calls id function name arguments image_url url tool_call_id "
    "audio voice include_usage parameters"
)
OPTION_NAMES = (
    "messages model stream stream_options temperature max_tokens modalities audio tools tool_choice n stop "
    "response_format logprobs functions"
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(-1e9, 1e9) | WORDS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS.split()), inner, max_size=6),
    max_leaves=20,
)
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": WORDS}, optional={"content": JSON, "tool_calls": JSON, "tool_call_id": JSON}),
    max_size=4,
)


def outcome(body: bytes) -> int:
    """What reading leads to, as an HTTP status; nothing else may be raised."""
    try:
        read_request(body)
    except ChatRefused as refused:
        json.dumps(refused.to_wire())
        return refused.status
    return 200


@given(st.dictionaries(st.sampled_from(OPTION_NAMES.split()), JSON, max_size=6), MESSAGES)
def test_nothing_but_the_refusal_is_raised(fields: dict[str, Any], messages: list[Any]) -> None:
    for body in ({"messages": [HELLO], **fields}, {**fields, "messages": messages}):
        assert outcome(json.dumps(body).encode()) in (200, 400)


@given(st.binary(max_size=200))
def test_noise_is_refused(body: bytes) -> None:
    assert outcome(body) == 400


@given(st.binary(max_size=80), st.integers(0, 60), st.sampled_from(["wav", "pcm16"]))
def test_no_sound_makes_anything_else_be_raised(noise: bytes, place: int, format_: str) -> None:
    for data in (noise, wav(PCM)[:place] + noise):
        content = [sound(data, format_)]
        assert outcome(json.dumps({"messages": [{"role": "user", "content": content}]}).encode()) in (200, 400)
