"""What a frame of a client means, and what a broken one is answered with."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duplex_engine.errors import ProtocolViolation
from duplex_engine.protocol.codec import FRAME_LIMIT_BYTES, decode_command, session_object
from duplex_engine.protocol.commands import (
    AcknowledgeEvents,
    AcknowledgePlayback,
    AppendAudio,
    AppendText,
    BargeIn,
    CancelInput,
    CancelResponse,
    ClearInput,
    ClearOutputAudio,
    ClientCommand,
    CloseSession,
    CommitAudio,
    CreateResponse,
    DeleteItem,
    Heartbeat,
    ResumeSession,
    RetrieveItem,
    SignalTurn,
    TruncateItem,
    UpdateSession,
)
from duplex_engine.protocol.formats import Encoding

JPEG = b"\xff\xd8\xff\xe0 a picture"
PNG = b"\x89PNG\r\n\x1a\n a picture"


def pcm16_at(rate_hz: int) -> dict[str, object]:
    return {"encoding": Encoding.PCM16, "sample_rate_hz": rate_hz}


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decode(kind: object, **fields: object) -> ClientCommand:
    return decode_command(json.dumps({"type": kind, **fields}))


def refused(kind: object, **fields: object) -> ProtocolViolation:
    with pytest.raises(ProtocolViolation) as caught:
        decode(kind, event_id="evt_1", **fields)
    assert caught.value.event_id == "evt_1"
    return caught.value


def append(**fields: object) -> AppendAudio:
    command = decode("input_audio_buffer.append", **{"audio": b64(b"\1\2"), **fields})
    assert type(command) is AppendAudio
    return command


@pytest.mark.parametrize(
    ("kind", "fields", "command"),
    [
        ("session.heartbeat", {}, Heartbeat()),
        ("session.event_ack", {"server_event_seq": 7}, AcknowledgeEvents(server_event_seq=7)),
        ("session.close", {}, CloseSession(reason="client_close")),
        ("session.close", {"reason": "bye"}, CloseSession(reason="bye")),
        ("session.close", {"reason": None}, CloseSession(reason="client_close")),
        ("close", {}, CloseSession()),
        ("close_session", {"reason": "bye"}, CloseSession(reason="bye")),
        (
            "session.resume",
            {"session_id": "s", "resume_token": "t", "incarnation": 3},
            ResumeSession(session_id="s", resume_token="t"),
        ),
        (
            "session.resume",
            {"session_id": "s", "resume_token": "t", "last_received_server_event_seq": 41},
            ResumeSession(session_id="s", resume_token="t", last_received_server_event_seq=41),
        ),
        ("input_audio_buffer.commit", {}, CommitAudio(response_create=False)),
        ("input_audio_buffer.commit", {"final": True}, CommitAudio(response_create=False)),
        ("input_audio_buffer.commit", {"response_create": True}, CommitAudio(response_create=True)),
        ("input_audio_buffer.commit", {"create_response": True}, CommitAudio(response_create=True)),
        (
            "input_audio_buffer.commit",
            {"response_create": False, "create_response": True},
            CommitAudio(response_create=False),
        ),
        ("input_audio_buffer.commit", {"is_speech": False}, CommitAudio(is_speech=False)),
        ("input.commit", {}, CommitAudio(response_create=True)),
        ("input.commit", {"create_response": False}, CommitAudio(response_create=False)),
        ("input_audio_buffer.clear", {}, ClearInput()),
        ("input.cancel", {}, CancelInput()),
        ("response.cancel", {}, CancelResponse()),
        ("response.cancel", {"response_id": "r"}, CancelResponse(response_id="r")),
        ("response.cancel", {"response_id": None}, CancelResponse()),
        ("barge_in", {}, BargeIn()),
        ("output_audio_buffer.clear", {"response_id": "r"}, ClearOutputAudio(response_id="r")),
        ("conversation.item.delete", {"item_id": "i"}, DeleteItem(item_id="i")),
        ("conversation.item.delete", {}, DeleteItem(item_id="")),
        ("conversation.item.retrieve", {"item_id": "i"}, RetrieveItem(item_id="i")),
        ("conversation.item.truncate", {}, TruncateItem(item_id="")),
        (
            "conversation.item.truncate",
            {"item_id": "i", "audio_end_ms": 1500.5, "content_index": 1},
            TruncateItem(item_id="i", audio_end_ms=1500.5, content_index=1),
        ),
        ("playback.ack", {"played_ms": 640}, AcknowledgePlayback(played_ms=640, committed_ms=640)),
        (
            "audio.playback_ack",
            {"played_ms": 640, "committed_ms": 600.5, "response_id": "r", "item_id": "item_r", "truncate": True},
            AcknowledgePlayback(played_ms=640, committed_ms=600.5, response_id="r", item_id="item_r", truncate=True),
        ),
        ("playback.ack", {"played_ms": 9, "committed_ms": None}, AcknowledgePlayback(played_ms=9, committed_ms=9)),
        ("input.text.append", {"text": "x"}, AppendText(text="x")),
        ("input_text.append", {"text": "x"}, AppendText(text="x")),
        ("push_text", {"text": "x"}, AppendText(text="x")),
        ("response.create", {}, CreateResponse()),
        ("response.create", {"response": None}, CreateResponse()),
        ("session.update", {"session": {"model": "m"}}, UpdateSession(session={"model": "m"})),
        ("session.update", {"model": "m", "voice": "v"}, UpdateSession(session={"model": "m", "voice": "v"})),
        ("session.update", {"session": 5, "voice": "v"}, UpdateSession(session={"voice": "v"})),
        ("turn.signal", {"event": "user_started"}, SignalTurn(event="user_started")),
        ("signal_turn", {"event": "anything", "payload": {"a": 1}}, SignalTurn(event="anything")),
        ("turn.signal", {"event": "input.cancel"}, CancelInput()),
        ("turn.signal", {"event": "barge_in", "payload": None}, BargeIn()),
        ("turn.signal", {"event": "response.cancel", "response_id": "r"}, CancelResponse(response_id="r")),
        ("turn.signal", {"event": "response.cancel", "payload": {"response_id": "r"}}, CancelResponse(response_id="r")),
        ("turn.signal", {"event": "output_audio_buffer.clear"}, ClearOutputAudio()),
        ("turn.signal", {"event": "session.update", "payload": {"voice": "v"}}, UpdateSession(session={"voice": "v"})),
        ("turn.signal", {"event": "session.update"}, UpdateSession(session={})),
        ("turn.signal", {"event": "conversation.item.delete", "payload": {"item_id": "i"}}, DeleteItem(item_id="i")),
        ("turn.signal", {"event": "conversation.item.retrieve", "item_id": "i"}, RetrieveItem(item_id="i")),
        (
            "turn.signal",
            {"event": "conversation.item.truncate", "payload": {"item_id": "i", "audio_end_ms": 3}},
            TruncateItem(item_id="i", audio_end_ms=3),
        ),
        (
            "turn.signal",
            {"event": "playback_ack", "payload": {"played_ms": 5, "response_id": "r"}},
            AcknowledgePlayback(played_ms=5, committed_ms=5, response_id="r"),
        ),
    ],
)
def test_each_type_and_alias(kind: str, fields: dict[str, object], command: ClientCommand) -> None:
    assert decode(kind, **fields) == command


def test_the_clients_event_id_travels_with_the_command() -> None:
    assert decode("session.heartbeat", event_id="evt_9").event_id == "evt_9"
    assert decode("turn.signal", event="input.cancel", event_id="evt_9") == CancelInput(event_id="evt_9")
    assert decode("session.update", session={"voice": "v"}, event_id="evt_9").event_id == "evt_9"
    assert decode("session.heartbeat", event_id=5).event_id is None


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {}),
        ({"format": "PCM_F32LE"}, {"encoding": Encoding.F32}),
        ({"input_audio_format": "ulaw"}, {"encoding": Encoding.ULAW}),
        ({"format": "audio/pcma"}, {"encoding": Encoding.ALAW}),
        ({"format": {"type": "audio/pcm", "rate": 24000}}, pcm16_at(24000)),
        ({"format": {"format": "pcm16", "sample_rate": 8000}}, pcm16_at(8000)),
        ({"format": {"rate": 24000}}, {"sample_rate_hz": 24000}),
        ({"format": {"type": "s16le", "rate": 9000}, "sample_rate": 8e3}, pcm16_at(8000)),
        ({"sample_rate_hz": 44100, "sample_rate": 5}, {"sample_rate_hz": 44100}),
        ({"is_speech": True, "speech": False}, {"speech": True}),
        ({"speech": False}, {"speech": False}),
        ({"is_speech": None, "vad": {"is_speech": True, "speech_probability": 0.1}}, {"speech": True}),
        ({"vad": {"speech_probability": 0.5}}, {"speech": True}),
        ({"vad": {"probability": 0.49, "silence_rms": 0.01}}, {"speech": False, "overlap_silence_rms": 0.01}),
        ({"vad": {}, "speech_probability": 0.7}, {"speech": True}),
        ({"is_speech": False, "vad": {"is_speech": True}}, {"speech": False}),
        ({"overlap_silence_rms": 0.2, "vad": {"silence_rms": 0.1}}, {"overlap_silence_rms": 0.2}),
        ({"duration_ms": 80}, {"duration_ms": 80}),
        ({"audio_duration_ms": 79.5}, {"duration_ms": 79.5}),
        ({"audio_start_ms": 1, "audio_end_ms": 81}, {"audio_start_ms": 1, "audio_end_ms": 81}),
        ({"text": "hi"}, {"transcript": "hi"}),
        ({"transcript": "a", "text": "b"}, {"transcript": "a"}),
        ({"overlap": "ack"}, {"overlap_action": "ack"}),
        ({"overlap_action": "drop", "overlap": "ack"}, {"overlap_action": "drop"}),
        ({"force_barge_in": True, "force_listen": True}, {"force_barge_in": True, "force_listen": True}),
        ({"video_frames": [None, b64(JPEG), b64(PNG)]}, {"video_frames": (JPEG, PNG)}),
        ({"video_frames": [], "max_slice_nums": 1}, {}),
        ({"unknown": [1]}, {}),
    ],
)  # fmt: skip
def test_append_fields(fields: dict[str, object], expected: dict[str, Any]) -> None:
    assert append(**fields) == AppendAudio(audio=b"\1\2", **expected)


def test_append_takes_delta_for_audio_and_pictures_alone() -> None:
    assert decode("input_audio_buffer.append", delta=b64(b"abc")) == AppendAudio(audio=b"abc")
    pictures_alone = decode("input_audio_buffer.append", video_frames=[b64(PNG)])
    assert pictures_alone == AppendAudio(video_frames=(PNG,))
    assert decode("input_audio_buffer.append", audio="", video_frames=[b64(PNG)]) == pictures_alone


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"audio": None}, "bad_event", "audio"),
        ({"audio": 5}, "bad_event", "audio"),
        ({"audio": ""}, "bad_audio", "audio"),
        ({"audio": "AAA"}, "bad_audio", "audio"),
        ({"audio": "AA A="}, "bad_audio", "audio"),
        ({"audio": "ä==="}, "bad_audio", "audio"),
        ({"audio": None, "delta": "?"}, "bad_audio", "delta"),
        ({"format": "opus"}, "unsupported_audio_format", "format"),
        ({"format": "wav"}, "unsupported_audio_format", "format"),
        ({"format": 5}, "unsupported_audio_format", "format"),
        ({"format": {"type": "opus"}}, "unsupported_audio_format", "format.type"),
        ({"input_audio_format": "x" * 500}, "unsupported_audio_format", "input_audio_format"),
        ({"format": {"type": "pcm", "rate": 7999}}, "bad_event", "format.rate"),
        ({"sample_rate_hz": 7999}, "bad_event", "sample_rate_hz"),
        ({"sample_rate_hz": 192001}, "bad_event", "sample_rate_hz"),
        ({"sample_rate_hz": 16000.5}, "bad_event", "sample_rate_hz"),
        ({"sample_rate_hz": True}, "bad_event", "sample_rate_hz"),
        ({"sample_rate": "16000"}, "bad_event", "sample_rate"),
        ({"duration_ms": True}, "bad_event", "duration_ms"),
        ({"duration_ms": -1}, "bad_event", "duration_ms"),
        ({"audio_duration_ms": "80"}, "bad_event", "audio_duration_ms"),
        ({"audio_start_ms": []}, "bad_event", "audio_start_ms"),
        ({"audio_end_ms": {}}, "bad_event", "audio_end_ms"),
        ({"is_speech": 1}, "bad_event", "is_speech"),
        ({"speech": "yes"}, "bad_event", "speech"),
        ({"vad": 1}, "bad_event", "vad"),
        ({"vad": {"probability": "1"}}, "bad_event", "vad.probability"),
        ({"vad": {"silence_rms": False}}, "bad_event", "vad.silence_rms"),
        ({"speech_probability": True}, "bad_event", "speech_probability"),
        ({"overlap_silence_rms": "0"}, "bad_event", "overlap_silence_rms"),
        ({"transcript": 1}, "bad_event", "transcript"),
        ({"overlap_action": 1}, "bad_event", "overlap_action"),
        ({"force_listen": 1}, "bad_event", "force_listen"),
        ({"video_frames": "x"}, "invalid_video_frames", "video_frames"),
        ({"video_frames": [b64(PNG)] * 3}, "invalid_video_frames", "video_frames"),
        ({"video_frames": [b64(PNG), 5]}, "invalid_video_frames", "video_frames[1]"),
        ({"video_frames": ["data:image/png;base64," + b64(PNG)]}, "invalid_video_frames", "video_frames[0]"),
        ({"video_frames": ["????"]}, "invalid_video_frames", "video_frames[0]"),
        ({"video_frames": [b64(b"GIF89a")]}, "invalid_video_frames", "video_frames[0]"),
        ({"video_frames": [b64(JPEG) + "A" * 4_000_000]}, "invalid_video_frames", "video_frames[0]"),
        ({"max_slice_nums": 2}, "invalid_video_frames", "max_slice_nums"),
        ({"max_slice_nums": True}, "invalid_video_frames", "max_slice_nums"),
    ],
)
def test_append_refusals(fields: dict[str, object], code: str, param: str) -> None:
    violation = refused("input_audio_buffer.append", **{"audio": b64(b"\1\2"), **fields})
    assert (violation.code, violation.param) == (code, param)
    assert len(violation.message) < 200


@pytest.mark.parametrize(
    ("kind", "fields", "code", "param"),
    [
        (None, {}, "bad_event", "type"),
        (5, {}, "bad_event", "type"),
        (["session.update"], {}, "bad_event", "type"),
        ("session.upgrade", {}, "unknown_event", "type"),
        ("x" * 1000, {}, "unknown_event", "type"),
        ("session.event_ack", {}, "invalid_event_ack", "server_event_seq"),
        ("session.event_ack", {"server_event_seq": -1}, "invalid_event_ack", "server_event_seq"),
        ("session.event_ack", {"server_event_seq": 1.0}, "invalid_event_ack", "server_event_seq"),
        ("session.event_ack", {"server_event_seq": True}, "invalid_event_ack", "server_event_seq"),
        ("session.resume", {}, "invalid_session_resume", "session_id"),
        ("session.resume", {"session_id": "s"}, "invalid_session_resume", "resume_token"),
        ("session.resume", {"session_id": "", "resume_token": "t"}, "invalid_session_resume", "session_id"),
        ("session.resume", {"session_id": "s", "resume_token": 5}, "invalid_session_resume", "resume_token"),
        (
            "session.resume",
            {"session_id": "s", "resume_token": "t", "last_received_server_event_seq": -1},
            "invalid_session_resume",
            "last_received_server_event_seq",
        ),
        ("session.close", {"reason": 5}, "bad_event", "reason"),
        ("input_audio_buffer.commit", {"response_create": "yes"}, "bad_event", "response_create"),
        ("input_audio_buffer.commit", {"create_response": 1}, "bad_event", "create_response"),
        ("input_audio_buffer.commit", {"is_speech": 0}, "bad_event", "is_speech"),
        ("response.cancel", {"response_id": 5}, "bad_event", "response_id"),
        ("response.create", {"response": []}, "bad_event", "response"),
        (
            "response.create",
            {"response": {"output_audio_format": "opus"}},
            "unsupported_audio_format",
            "response.output_audio_format",
        ),
        (
            "response.create",
            {"response": {"audio": {"output": {"format": {"type": "pcm_f32le"}}}}},
            "unsupported_audio_format",
            "response.audio.output.format.type",
        ),
        ("conversation.item.truncate", {"item_id": "i"}, "bad_event", "audio_end_ms"),
        ("conversation.item.truncate", {"item_id": "i", "audio_end_ms": -1}, "bad_event", "audio_end_ms"),
        ("conversation.item.truncate", {"item_id": "i", "audio_end_ms": True}, "bad_event", "audio_end_ms"),
        (
            "conversation.item.truncate",
            {"item_id": "i", "audio_end_ms": 1, "content_index": 0.5},
            "bad_event",
            "content_index",
        ),
        (
            "conversation.item.truncate",
            {"item_id": "i", "audio_end_ms": 1, "content_index": -1},
            "bad_event",
            "content_index",
        ),
        ("playback.ack", {}, "bad_event", "played_ms"),
        ("playback.ack", {"played_ms": True}, "bad_event", "played_ms"),
        ("playback.ack", {"played_ms": "1"}, "bad_event", "played_ms"),
        ("playback.ack", {"played_ms": 1, "committed_ms": False}, "bad_event", "committed_ms"),
        ("playback.ack", {"played_ms": 1, "item_id": 1}, "bad_event", "item_id"),
        ("playback.ack", {"played_ms": 1, "truncate": 1}, "bad_event", "truncate"),
        ("turn.signal", {}, "bad_event", "event"),
        ("turn.signal", {"event": 5}, "bad_event", "event"),
        ("turn.signal", {"event": "close"}, "bad_event", "event"),
        ("turn.signal", {"event": "timeout"}, "bad_event", "event"),
        ("turn.signal", {"event": "barge_in", "payload": []}, "bad_event", "payload"),
        ("turn.signal", {"event": "conversation.item.create"}, "bad_event", "item"),
        ("input.text.append", {}, "bad_event", "text"),
        ("input.text.append", {"text": 5}, "bad_event", "text"),
        ("conversation.item.create", {}, "bad_event", "item"),
        ("conversation.item.create", {"item": []}, "bad_event", "item"),
        ("conversation.item.create", {"item": {}, "previous_item_id": 1}, "bad_event", "previous_item_id"),
        ("conversation.item.create", {"item": {"id": 5}}, "bad_event", "item.id"),
        ("conversation.item.create", {"item": {"role": "tool"}}, "bad_event", "item.role"),
        ("conversation.item.create", {"item": {"content": "text"}}, "bad_event", "item.content"),
        ("conversation.item.create", {"item": {"content": ["text"]}}, "bad_event", "item.content"),
        (
            "conversation.item.create",
            {"item": {"content": [{"type": "input_text"}]}},
            "bad_event",
            "item.content[0].text",
        ),
        (
            "conversation.item.create",
            {"item": {"type": "function_call_output", "output": "x"}},
            "invalid_function_call_output",
            "item.call_id",
        ),
        (
            "conversation.item.create",
            {"item": {"type": "function_call_output", "call_id": "c", "output": {}}},
            "invalid_function_call_output",
            "item.output",
        ),
    ],
)
def test_refusals(kind: object, fields: dict[str, object], code: str, param: str) -> None:
    violation = refused(kind, **fields)
    assert (violation.code, violation.param) == (code, param)
    assert len(violation.message) < 200


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("", "invalid_json"),
        ("{", "invalid_json"),
        (b"\xff\xfe", "invalid_json"),
        ('{"type":"playback.ack","played_ms":NaN}', "invalid_json"),
        ('{"type":"playback.ack","played_ms":Infinity}', "invalid_json"),
        ('{"type":"playback.ack","played_ms":1e999}', "invalid_json"),
        ("[" * 100_000, "invalid_json"),
        ("[]", "bad_event"),
        ("null", "bad_event"),
        ('"text"', "bad_event"),
        ("{}", "bad_event"),
    ],
)
def test_frames_that_hold_no_event(frame: str | bytes, code: str) -> None:
    with pytest.raises(ProtocolViolation) as caught:
        decode_command(frame)
    assert caught.value.code == code


def frame_of(size: int, filler: str) -> str:
    head, tail = '{"type":"session.heartbeat","x":"', '"}'
    return head + filler * ((size - len(head) - len(tail)) // len(filler.encode())) + tail


def test_the_frame_limit_counts_utf8_bytes() -> None:
    assert decode_command(frame_of(FRAME_LIMIT_BYTES, "a")) == Heartbeat()
    for frame in (frame_of(FRAME_LIMIT_BYTES + 1, "a"), frame_of(FRAME_LIMIT_BYTES + 4, "\u20ac")):
        with pytest.raises(ProtocolViolation) as caught:
            decode_command(frame)
        assert caught.value.code == "event_too_large"


@pytest.mark.parametrize("kind", ["session.update", "conversation.item.create", "response.create", "turn.signal"])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_what_could_not_be_echoed_is_refused(kind: str, opening: str) -> None:
    deep = opening * 240 + "1" + {"[": "]", '{"a":': "}"}[opening] * 240
    field = {"session.update": "session", "conversation.item.create": "item", "response.create": "response"}.get(kind)
    body = f'"{field}":{{"metadata":{deep}}}' if field else f'"event":"session.update","payload":{{"x":{deep}}}'
    with pytest.raises(ProtocolViolation) as caught:
        decode_command(f'{{"type":"{kind}","event_id":"evt_1",{body}}}')
    assert (caught.value.code, caught.value.event_id) == ("bad_event", "evt_1")


def test_session_object_is_the_whole_event_without_a_session() -> None:
    assert session_object({"type": "t", "event_id": "e", "session": {"a": 1}, "b": 2}) == {"a": 1}
    assert session_object({"type": "t", "event_id": "e", "b": 2, "session": None}) == {"b": 2}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
TYPES = [
    "session.update", "session.resume", "session.event_ack", "session.close", "input_audio_buffer.append",
    "input_audio_buffer.commit", "response.create", "response.cancel", "conversation.item.create",
    "conversation.item.truncate", "playback.ack", "turn.signal", "push_text",
]  # fmt: skip
FIELDS = [
    "event_id", "session", "audio", "delta", "format", "sample_rate_hz", "is_speech", "vad", "video_frames", "item",
    "item_id", "response", "played_ms", "committed_ms", "audio_end_ms", "content_index", "event", "payload", "text",
    "server_event_seq", "max_slice_nums", "duration_ms", "previous_item_id", "reason",
]  # fmt: skip


def outcome(frame: str | bytes) -> ClientCommand | ProtocolViolation:
    try:
        return decode_command(frame)
    except ProtocolViolation as violation:
        return violation


@given(st.sampled_from(TYPES) | JSON, st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=8))
def test_any_object_is_a_command_or_a_violation(kind: object, fields: dict[str, object]) -> None:
    event_id = fields.get("event_id")
    assert outcome(json.dumps({"type": kind, **fields})).event_id == (event_id if isinstance(event_id, str) else None)


@given(JSON.map(json.dumps) | st.text() | st.binary())
def test_any_frame_is_a_command_or_a_violation(frame: str | bytes) -> None:
    answer = outcome(frame)
    assert isinstance(answer, ProtocolViolation)
    assert answer.code in ("invalid_json", "bad_event", "unknown_event")
