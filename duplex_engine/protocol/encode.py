"""Server events and client commands to frames: compact JSON (wire contract, sections 3 and 4).

Owns the order of keys and what is left out. `event_id` and `server_event_seq` come from the caller: the journal, or the
attachment for greetings and notices.
"""

from collections.abc import Callable
from typing import Any, Final, get_args

import attrs
from cattrs import Converter
from cattrs.gen import make_dict_unstructure_fn, override

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
    CloseSession,
    CommitAudio,
    DeleteItem,
    Heartbeat,
    ResumeSession,
    RetrieveItem,
    SignalTurn,
    TruncateItem,
    UpdateSession,
)
from duplex_engine.protocol.events import UNSET, ErrorDetail, OutputAudioDelta, ServerEvent
from duplex_engine.protocol.wire_json import b64encode, dumps

Fields = Callable[[Any], dict[str, Any]]

PlainCommand = (
    UpdateSession
    | ResumeSession
    | AcknowledgeEvents
    | Heartbeat
    | CloseSession
    | CommitAudio
    | ClearInput
    | CancelInput
    | CancelResponse
    | BargeIn
    | ClearOutputAudio
    | DeleteItem
    | RetrieveItem
    | TruncateItem
    | AcknowledgePlayback
    | SignalTurn
    | AppendText
)
"""Commands whose JSON has exactly their fields."""

SentCommand = PlainCommand | AppendAudio
"""Commands that a client of ours can send as objects; the rest it writes as JSON."""


def encode_event(event: ServerEvent, *, event_id: str, seq: int | None) -> bytes:
    """The frame of `event`: type, event_id, server_event_seq (absent when `seq` is None), then its fields."""
    if type(event) is OutputAudioDelta:
        return _encode_audio_delta(event, event_id, seq)
    head: dict[str, Any] = {"type": event.TYPE, "event_id": event_id}
    if seq is not None:
        head["server_event_seq"] = seq
    head.update(_EVENT_FIELDS[type(event)](event))
    return dumps(head)


def encode_command(command: SentCommand) -> bytes:
    """The frame of a client's command; fields that are None are absent."""
    head: dict[str, Any] = {"type": command.TYPE}
    if command.event_id is not None:
        head["event_id"] = command.event_id
    if type(command) is AppendAudio:
        head.update(_append_fields(command))
    else:
        head.update(_COMMAND_FIELDS[type(command)](command))
    return dumps(head)


def _encode_audio_delta(event: OutputAudioDelta, event_id: str, seq: int | None) -> bytes:
    """The hot path of encoding: no field of it needs a look but `metadata`."""
    frame: dict[str, Any] = {"type": event.TYPE, "event_id": event_id}
    if seq is not None:
        frame["server_event_seq"] = seq
    frame["response_id"] = event.response_id
    frame["item_id"] = event.item_id
    frame["output_index"] = event.output_index
    frame["content_index"] = event.content_index
    frame["delta"] = b64encode(event.audio)
    frame["format"] = event.format
    frame["sample_rate_hz"] = event.sample_rate_hz
    if event.metadata is not UNSET:
        frame["metadata"] = event.metadata
    return dumps(frame)


def _append_fields(command: AppendAudio) -> dict[str, Any]:
    fields = {
        "audio": b64encode(command.audio) if command.audio else None,
        "format": None if command.encoding is None else command.encoding.value,
        "sample_rate_hz": command.sample_rate_hz,
        "duration_ms": command.duration_ms,
        "audio_start_ms": command.audio_start_ms,
        "audio_end_ms": command.audio_end_ms,
        "is_speech": command.speech,
        "overlap_silence_rms": command.overlap_silence_rms,
        "video_frames": [b64encode(frame) for frame in command.video_frames] or None,
        "transcript": command.transcript,
        "overlap_action": command.overlap_action,
        "force_barge_in": command.force_barge_in or None,
        "force_listen": command.force_listen or None,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _as_it_is(value: object) -> object:
    return value


def _fields_of(union: object, absent: object, without: tuple[str, ...] = ()) -> dict[type, Fields]:
    """For each class of the union, a function to the dict of its fields, less those that default to `absent` and do."""
    converter = Converter()
    return {cls: _fields_of_class(cls, converter, absent, without) for cls in get_args(union)}


def _fields_of_class(cls: Any, converter: Converter, absent: object, without: tuple[str, ...]) -> Fields:
    rules: dict[str, Any] = {
        field.name: override(
            omit=field.name in without or None,
            omit_if_default=field.default is absent,
            unstruct_hook=_error_detail if field.type is ErrorDetail else _as_it_is,
        )
        for field in attrs.fields(cls)
    }
    return make_dict_unstructure_fn(cls, converter, **rules)


_error_detail: Final[Fields] = _fields_of_class(ErrorDetail, Converter(), UNSET, ())
_EVENT_FIELDS: Final = _fields_of(ServerEvent, UNSET)
_COMMAND_FIELDS: Final = _fields_of(PlainCommand, None, without=("event_id",))
