"""Items and response options: what a client may put into them."""

import base64
import json

import pytest

from duplex_engine.errors import ProtocolViolation
from duplex_engine.protocol.codec import decode_command
from duplex_engine.protocol.commands import (
    AppendAudio,
    ClientCommand,
    CreateItem,
    CreateResponse,
    ResponseOptions,
)
from duplex_engine.protocol.formats import Encoding

PNG = b"\x89PNG\r\n\x1a\n a picture"
LONG = "A" * 4_000_001


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decode(kind: object, **fields: object) -> ClientCommand:
    return decode_command(json.dumps({"type": kind, **fields}))


def refused(kind: object, **fields: object) -> ProtocolViolation:
    with pytest.raises(ProtocolViolation) as caught:
        decode(kind, event_id="evt_1", **fields)
    assert caught.value.event_id == "evt_1"
    return caught.value


@pytest.mark.parametrize(
    ("response", "options", "unsupported"),
    [
        ({"modalities": ["text"]}, ResponseOptions(modalities=("text",)), ()),
        ({"modalities": 5, "output_modalities": ["audio"]}, ResponseOptions(modalities=("audio",)), ()),
        ({"modalities": []}, ResponseOptions(), ()),
        ({"output_audio_format": "g711_ulaw"}, ResponseOptions(output_encoding=Encoding.ULAW), ()),
        ({"response_format": "wav"}, ResponseOptions(output_encoding=Encoding.WAV), ()),
        (
            {"audio": {"output": {"format": {"type": "audio/pcm"}, "speed": 1.5}}},
            ResponseOptions(output_encoding=Encoding.PCM16, speed=1.5),
            (),
        ),
        ({"speed": 2, "metadata": {"a": "b"}}, ResponseOptions(speed=2, metadata={"a": "b"}), ()),
        ({"speed": True, "metadata": "x"}, ResponseOptions(), ()),
        ({"conversation": "none"}, ResponseOptions(in_history=False), ()),
        ({"conversation": "auto", "input": [], "id": "x", "prompt": {}}, ResponseOptions(), ()),
        ({"instructions": "Be brief."}, ResponseOptions(instructions="Be brief."), ("instructions",)),
        ({"instructions": None}, ResponseOptions(), ()),
        ({"voice": "v"}, ResponseOptions(voice="v"), ("voice",)),
        ({"audio": {"output": {"voice": "v"}}}, ResponseOptions(voice="v"), ("audio.output.voice",)),
        ({"temperature": 0.5}, ResponseOptions(temperature=0.5), ("temperature",)),
        ({"max_output_tokens": 9}, ResponseOptions(max_response_output_tokens=9), ("max_output_tokens",)),
        ({"max_output_tokens": "inf"}, ResponseOptions(), ("max_output_tokens",)),
        (
            {"tools": [{"type": "function"}], "tool_choice": "auto"},
            ResponseOptions(tools=({"type": "function"},), tool_choice="auto"),
            ("tools", "tool_choice"),
        ),
    ],
)
def test_response_options(response: dict[str, object], options: ResponseOptions, unsupported: tuple[str, ...]) -> None:
    assert decode("response.create", response=response) == CreateResponse(options=options, unsupported=unsupported)


def created(**item: object) -> CreateItem:
    command = decode("conversation.item.create", item=item, previous_item_id="root")
    assert type(command) is CreateItem
    assert command.previous_item_id == "root"
    return command


def test_item_defaults() -> None:
    first, second = created().item, created().item
    assert first["id"] != second["id"]
    assert isinstance(first["id"], str)
    assert len(first["id"]) == len("item_") + 32
    del first["id"], second["id"]
    assert first == second == {
        "object": "realtime.item", "type": "message", "status": "completed", "role": "user", "content": []
    }  # fmt: skip


def test_item_keeps_what_the_client_said() -> None:
    content = [{"type": "input_text", "text": "hi", "more": 1}]
    item = {"id": "mine", "type": "message", "role": "system", "status": "in_progress", "content": content, "x": 1}
    assert created(**item).item == {**item, "object": "realtime.item"}
    call = {"id": "f", "type": "function_call_output", "call_id": "c", "output": "{}"}
    assert created(**call).item == {**call, "object": "realtime.item", "status": "completed"}
    other = {"id": "f", "type": "mcp_call", "anything": [1]}
    assert created(**other).item == {**other, "object": "realtime.item", "status": "completed"}


CALL = {"type": "function_call", "name": "look", "call_id": "c", "arguments": ""}


@pytest.mark.parametrize(
    ("change", "param"),
    [({"name": None}, "item.name"), ({"call_id": ""}, "item.call_id"), ({"arguments": {}}, "item.arguments")],
)
def test_a_call_needs_its_parts(change: dict[str, object], param: str) -> None:
    assert created(**CALL).item["call_id"] == "c"
    with pytest.raises(ProtocolViolation) as refused:
        created(**{**CALL, **change})
    assert (refused.value.code, refused.value.param) == ("bad_event", param)


def test_audio_parts_become_appends_and_leave_their_transcript() -> None:
    command = created(
        content=[
            {"type": "input_audio", "audio": b64(b"ab"), "format": {"type": "pcm", "rate": 24000}, "transcript": "hi"},
            {"type": "input_text", "text": "and"},
            {"type": "audio", "data": b64(b"c"), "format": "ulaw", "sample_rate_hz": 8000},
        ]
    )
    assert command.audio == (
        AppendAudio(audio=b"ab", encoding=Encoding.PCM16, sample_rate_hz=24000, transcript="hi"),
        AppendAudio(audio=b"c", encoding=Encoding.ULAW, sample_rate_hz=8000),
    )
    assert command.item["content"] == [
        {"type": "input_audio", "transcript": "hi"},
        {"type": "input_text", "text": "and"},
        {"type": "audio", "transcript": ""},
    ]


def test_audio_of_an_assistant_item_is_not_input() -> None:
    command = created(role="assistant", content=[{"type": "output_audio", "audio": b64(b"ab"), "transcript": "hi"}])
    assert command.audio == ()
    assert command.item["content"] == [{"type": "output_audio", "transcript": "hi"}]


@pytest.mark.parametrize(
    ("part", "code", "tail"),
    [
        ({"type": "input_audio"}, "bad_event", ".data"),
        ({"type": "input_audio", "audio": "?"}, "bad_audio", ".audio"),
        ({"type": "input_audio", "audio": "AAAA", "format": "opus"}, "unsupported_audio_format", ".format"),
        ({"type": "input_audio", "audio": "AAAA", "sample_rate_hz": 1}, "bad_event", ".sample_rate_hz"),
        ({"type": "input_image"}, "invalid_image", ".image_url"),
        ({"type": "input_image", "image_url": "https://example.org/a.png"}, "invalid_image", ".image_url"),
        ({"type": "input_image", "image_url": "data:image/gif;base64,R0lG"}, "invalid_image", ".image_url"),
        ({"type": "input_image", "image_url": "data:image/png;base64,?"}, "invalid_image", ".image_url"),
        ({"type": "input_image", "image_url": f"data:image/png;base64,{LONG}"}, "invalid_image", ".image_url"),
    ],
)  # fmt: skip
def test_bad_parts(part: dict[str, object], code: str, tail: str) -> None:
    violation = refused("conversation.item.create", item={"content": [{"type": "input_text", "text": "x"}, part]})
    assert (violation.code, violation.param) == (code, "item.content[1]" + tail)


def test_only_the_user_shows_pictures() -> None:
    part = {"type": "input_image", "image_url": "data:image/png;base64," + b64(PNG)}
    assert created(content=[part]).item["content"] == [part]
    violation = refused("conversation.item.create", item={"role": "system", "content": [part]})
    assert (violation.code, violation.param) == ("invalid_image", "item.content[0].image_url")
