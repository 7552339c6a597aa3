"""What we send is what the vocabulary says: every event and every command, key by key."""

import base64
import json
import typing
from collections.abc import Sequence
from typing import Any, get_args

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duplex_engine.errors import LocalProtocolError
from duplex_engine.protocol import commands, events
from duplex_engine.protocol.codec import SentCommand, decode_command, encode_command, encode_event
from duplex_engine.protocol.commands import AppendAudio, CommitAudio, UpdateSession
from duplex_engine.protocol.encode import PlainCommand
from duplex_engine.protocol.events import (
    UNSET,
    ErrorDetail,
    ErrorEvent,
    OutputAudioDelta,
    ResponseListen,
    ServerEvent,
    SessionCreated,
)
from duplex_engine.protocol.formats import INPUT_ENCODINGS, Encoding
from duplex_engine.protocol.ids import EventIds, new_item_id

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INTS = st.integers(-(2**53), 2**53)
FLOATS = st.floats(-(2**53), 2**53)
JSON = st.recursive(
    st.none() | st.booleans() | INTS | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=4)


def values(hint: Any) -> st.SearchStrategy[Any]:
    by_hint: dict[Any, st.SearchStrategy[Any]] = {
        str: TEXT,
        int: INTS,
        float: FLOATS | INTS,
        bool: st.booleans(),
        bytes: st.binary(max_size=40),
        type(None): st.none(),
        events.Absent: st.just(UNSET),
        events.JsonObject: OBJECTS,
        Sequence[events.JsonObject]: st.lists(OBJECTS, max_size=3).map(tuple),
        ErrorDetail: st.deferred(lambda: messages(ErrorDetail)),
    }
    if hint in by_hint:
        return by_hint[hint]
    return st.one_of([values(option) for option in get_args(hint)])


def messages(cls: Any) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(cls)
    return st.builds(cls, **{field.name: values(hints[field.name]) for field in attrs.fields(cls)})


def expected_json(event: Any) -> dict[str, Any]:
    fields = {field.name: getattr(event, field.name) for field in attrs.fields(type(event))}
    if type(event) is OutputAudioDelta:
        fields["delta"] = base64.b64encode(fields.pop("audio")).decode()
    if type(event) is ErrorEvent:
        fields["error"] = expected_json(fields["error"])
    plain: dict[str, Any] = json.loads(
        json.dumps({name: value for name, value in fields.items() if value is not UNSET})
    )
    return plain


@pytest.mark.parametrize("cls", get_args(ServerEvent), ids=lambda cls: cls.TYPE)
@given(data=st.data())
def test_every_event_says_its_fields_and_nothing_else(cls: Any, data: st.DataObject) -> None:
    event = data.draw(messages(cls))
    seq = data.draw(st.none() | st.integers(1, 2**53))
    said = json.loads(encode_event(event, event_id="event_1", seq=seq))
    head = {"type": cls.TYPE, "event_id": "event_1"} | ({} if seq is None else {"server_event_seq": seq})
    assert said == {**head, **expected_json(event)}
    assert list(said)[: len(head)] == list(head)


def test_event_types_are_distinct() -> None:
    types = [cls.TYPE for cls in get_args(ServerEvent)]
    assert len(set(types)) == len(types)


def test_the_json_is_compact_and_ordered() -> None:
    created = SessionCreated(session={"id": "duplex-1", "voice": None}, resume_token="t")
    assert encode_event(created, event_id="event_1", seq=None) == (
        b'{"type":"session.created","event_id":"event_1","session":{"id":"duplex-1","voice":null},"resume_token":"t"}'
    )
    listen = ResponseListen(session_id="s", epoch=0, response={"status": "listening"})
    assert encode_event(listen, event_id="event_2", seq=3) == (
        b'{"type":"response.listen","event_id":"event_2","server_event_seq":3,"session_id":"s","epoch":0,'
        b'"response":{"status":"listening"}}'
    )
    delta = OutputAudioDelta(response_id="r", item_id="item_r", audio=b"\1\2", format="pcm16", sample_rate_hz=24000)
    assert encode_event(delta, event_id="event_3", seq=4) == (
        b'{"type":"response.output_audio.delta","event_id":"event_3","server_event_seq":4,"response_id":"r",'
        b'"item_id":"item_r","output_index":0,"content_index":0,"delta":"AQI=","format":"pcm16",'
        b'"sample_rate_hz":24000}'
    )


def test_what_json_cannot_say_is_our_fault() -> None:
    event = SessionCreated(session={"a": object()})
    with pytest.raises(LocalProtocolError, match="object"):
        encode_event(event, event_id="event_1", seq=None)


def legal(command: Any) -> bool:
    match command:
        case commands.ResumeSession(session_id=session_id, resume_token=token, last_received_server_event_seq=seq):
            return bool(session_id and token) and seq >= 0
        case commands.AcknowledgeEvents(server_event_seq=seq):
            return seq >= 0
        case commands.CloseSession(reason=reason):
            return bool(reason)
        case commands.TruncateItem(audio_end_ms=end, content_index=index):
            return end >= 0 and index >= 0
        case commands.SignalTurn(event=name):
            return name.startswith("x_")
        case _:
            return True


@pytest.mark.parametrize("cls", get_args(PlainCommand), ids=lambda cls: cls.TYPE)
@given(data=st.data())
def test_plain_commands_survive_the_wire(cls: Any, data: st.DataObject) -> None:
    command = data.draw(plain_commands(cls))
    assert decode_command(encode_command(command)) == command


def plain_commands(cls: Any) -> st.SearchStrategy[Any]:
    if cls is UpdateSession:
        return st.builds(cls, session=OBJECTS, event_id=st.none() | TEXT)
    if cls is commands.SignalTurn:
        return st.builds(cls, event=TEXT.map("x_".__add__), event_id=st.none() | TEXT)
    return messages(cls).filter(legal)


APPENDS = st.builds(
    AppendAudio,
    audio=st.binary(min_size=1, max_size=40),
    encoding=st.none() | st.sampled_from(sorted(INPUT_ENCODINGS, key=lambda encoding: encoding.value)),
    sample_rate_hz=st.none() | st.integers(8000, 192000),
    speech=st.none() | st.booleans(),
    overlap_silence_rms=st.none() | FLOATS,
    duration_ms=st.none() | st.integers(0, 10_000),
    audio_start_ms=st.none() | INTS,
    audio_end_ms=st.none() | FLOATS,
    video_frames=st.lists(st.binary(max_size=9).map(b"\xff\xd8".__add__), max_size=2).map(tuple),
    transcript=st.none() | TEXT.filter(bool),
    overlap_action=st.none() | TEXT.filter(bool),
    force_barge_in=st.booleans(),
    force_listen=st.booleans(),
    event_id=st.none() | TEXT,
)


@given(APPENDS)
def test_appends_survive_the_wire(command: AppendAudio) -> None:
    assert decode_command(encode_command(command)) == command


def test_a_sent_append_says_only_what_is_known() -> None:
    command = AppendAudio(
        audio=b"\0\1", encoding=Encoding.PCM16, sample_rate_hz=16000, duration_ms=80, audio_end_ms=160, event_id="evt_1"
    )
    assert json.loads(encode_command(command)) == {
        "type": "input_audio_buffer.append", "event_id": "evt_1", "audio": "AAE=", "format": "pcm16",
        "sample_rate_hz": 16000, "duration_ms": 80, "audio_end_ms": 160,
    }  # fmt: skip
    assert "audio" not in json.loads(encode_command(AppendAudio(video_frames=(b"\xff\xd8",))))


def test_commit_without_an_answer() -> None:
    assert encode_command(CommitAudio()) == b'{"type":"input_audio_buffer.commit","response_create":false}'


def test_all_sent_commands_are_covered() -> None:
    assert set(get_args(SentCommand)) == {*get_args(PlainCommand), AppendAudio}


def test_ids() -> None:
    ids = EventIds()
    made = {ids() for _ in range(1000)} | {EventIds()()}
    assert len(made) == 1001
    assert all(len(name) == len("event_") + 32 and int(name[6:], 16) for name in made)
    assert EventIds("0" * 16)() == "event_" + "1".zfill(32)
    assert new_item_id() != new_item_id()
