"""A client's frame to a `ClientCommand` (wire contract, section 3).

Owns the aliases of types and fields, what makes a single message legal in itself, and the error that names what is not.
A refused frame raises `ProtocolViolation` and nothing else, whatever it holds. Never looks at a session.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import attrs
from cattrs import Converter
from cattrs.errors import ClassValidationError

from duplex_engine.errors import LocalProtocolError, ProtocolViolation
from duplex_engine.protocol.commands import (
    REFUSED_SIGNALS,
    AcknowledgeEvents,
    AcknowledgePlayback,
    AppendText,
    BargeIn,
    CancelInput,
    CancelResponse,
    ClearInput,
    ClearOutputAudio,
    ClientCommand,
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
from duplex_engine.protocol.decode_append import read_append
from duplex_engine.protocol.decode_items import read_create_item
from duplex_engine.protocol.decode_options import read_create_response
from duplex_engine.protocol.fields import A_NAME, A_NUMBER, boolean, is_name, is_number, shown, string, wrong
from duplex_engine.protocol.sizes import MESSAGE_CHARACTERS
from duplex_engine.protocol.wire_json import dumps, loads

FRAME_LIMIT_BYTES: Final = 15 * 1024 * 1024
"""Longest frame of a client, as UTF-8."""
SPARE_LEVELS: Final = 32
"""Levels of nesting that our events put around what a client sent."""

Event = Mapping[str, object]
Reader = Callable[[Event, str | None], ClientCommand]
Command = TypeVar("Command", bound=attrs.AttrsInstance)


def decode_command(frame: str | bytes) -> ClientCommand:
    """The command a frame holds. Raises ProtocolViolation, with the client's `event_id` wherever one can be read."""
    event = parse_frame(frame)
    event_id = event.get("event_id")
    if type(event_id) is not str:
        event_id = None
    elif not is_name(event_id):
        raise wrong("event_id", A_NAME, event_id)
    try:
        return _reader(event.get("type"))(event, event_id)
    except ProtocolViolation as violation:
        violation.event_id = event_id
        raise


def parse_frame(frame: str | bytes) -> dict[str, Any]:
    """The JSON object of a frame. Raises ProtocolViolation `event_too_large`, `invalid_json` or `bad_event`."""
    if len(frame) * 4 > FRAME_LIMIT_BYTES:
        _check_size(frame)
    try:
        event = loads(frame)
    except ValueError as error:
        raise ProtocolViolation("invalid_json", f"the frame is not JSON: {error}") from None
    if type(event) is not dict:
        raise ProtocolViolation("bad_event", f"a frame must hold one JSON object, not {shown(event)}")
    return event


def session_object(event: Event) -> Event:
    """The session object of a `session.update`: its `session`, or without one everything else it says (2.1)."""
    session = event.get("session")
    if isinstance(session, Mapping):
        return session
    return {key: value for key, value in event.items() if key not in ("type", "event_id", "session")}


def _check_size(frame: str | bytes) -> None:
    size = len(frame.encode("utf-8", "surrogatepass")) if isinstance(frame, str) else len(frame)
    if size > FRAME_LIMIT_BYTES:
        raise ProtocolViolation("event_too_large", f"the frame has {size} bytes; the limit is {FRAME_LIMIT_BYTES}")


def _reader(kind: object) -> Reader:
    if type(kind) is not str:
        raise ProtocolViolation("bad_event", f"type must be a string, not {shown(kind)}", "type")
    reader = _READERS.get(kind)
    if reader is None:
        raise ProtocolViolation("unknown_event", f"no event has the type {shown(kind)}", "type")
    return reader


# --- plain messages: cattrs, strict about types ------------------------------------------------------------------


def _expect(expected: str, right: Callable[[object], bool]) -> Callable[[object, object], Any]:
    def structure(value: object, _: object) -> object:
        if not right(value):
            raise ValueError(expected)
        return value

    return structure


def _strict_converter() -> Converter:
    converter = Converter()
    converter.register_structure_hook(str, _expect(A_NAME, is_name))
    converter.register_structure_hook(bool, _expect("true or false", lambda value: type(value) is bool))
    converter.register_structure_hook(int, _expect("an integer", lambda value: type(value) is int))
    converter.register_structure_hook(float, _expect(A_NUMBER, is_number))
    return converter


_converter: Final = _strict_converter()


def _structure(command: type[Command], event: Event, event_id: str | None, code: str = "bad_event") -> Command:
    """The command whose fields are named as in `event`; null counts as absent, unknown fields are ignored."""
    names = [field.name for field in attrs.fields(command)]
    given = {name: event[name] for name in names if event.get(name) is not None}
    given["event_id"] = event_id
    try:
        return _converter.structure(given, command)
    except ClassValidationError as error:
        raise _explained(error, given, code) from None


def _explained(error: ClassValidationError, given: Event, code: str) -> ProtocolViolation:
    cause, note = error.group_exceptions()[0][0]
    if note.name not in given:
        return ProtocolViolation(code, f"{note.name} is missing", note.name)
    return ProtocolViolation(code, f"{note.name} must be {cause}, not {shown(given[note.name])}", note.name)


def _plain(command: type[ClientCommand]) -> Reader:
    def read(event: Event, event_id: str | None) -> ClientCommand:
        return _structure(command, event, event_id)

    return read


# --- messages with rules of their own ----------------------------------------------------------------------------


def _read_update(event: Event, event_id: str | None) -> UpdateSession:
    session = session_object(event)
    _refuse_deep(session, "session")
    return UpdateSession(session=session, event_id=event_id)


def _read_resume(event: Event, event_id: str | None) -> ResumeSession:
    command = _structure(ResumeSession, event, event_id, "invalid_session_resume")
    for param, legal in (
        ("session_id", command.session_id),
        ("resume_token", command.resume_token),
        ("last_received_server_event_seq", command.last_received_server_event_seq >= 0),
    ):
        if not legal:
            raise ProtocolViolation("invalid_session_resume", f"{param} is empty or negative", param)
    return command


def _read_event_ack(event: Event, event_id: str | None) -> AcknowledgeEvents:
    command = _structure(AcknowledgeEvents, event, event_id, "invalid_event_ack")
    if command.server_event_seq < 0:
        raise ProtocolViolation("invalid_event_ack", "server_event_seq is negative", "server_event_seq")
    return command


def _read_close(event: Event, event_id: str | None) -> CloseSession:
    """A long goodbye is cut, not refused."""
    reason = string(event, "reason") or "client_close"
    return CloseSession(reason=reason[:MESSAGE_CHARACTERS], event_id=event_id)


def _read_text(event: Event, event_id: str | None) -> AppendText:
    text = string(event, "text")
    if text is None:
        raise ProtocolViolation("bad_event", "text is missing", "text")
    return AppendText(text=text, event_id=event_id)


def _read_commit(event: Event, event_id: str | None) -> CommitAudio:
    """The alias `input.commit` asks for a response unless it says otherwise."""
    asked = boolean(event, "response_create")
    if asked is None:
        asked = boolean(event, "create_response")
    if asked is None:
        asked = event.get("type") == "input.commit"
    return CommitAudio(response_create=asked, is_speech=boolean(event, "is_speech"), event_id=event_id)


def _read_truncate(event: Event, event_id: str | None) -> TruncateItem:
    command = _structure(TruncateItem, event, event_id)
    if command.item_id and event.get("audio_end_ms") is None:
        raise ProtocolViolation("bad_event", "audio_end_ms is missing", "audio_end_ms")
    for param, value in (("audio_end_ms", command.audio_end_ms), ("content_index", command.content_index)):
        if value < 0:
            raise wrong(param, "at least 0", value)
    return command


def _read_playback_ack(event: Event, event_id: str | None) -> AcknowledgePlayback:
    if event.get("committed_ms") is None:
        event = {**event, "committed_ms": event.get("played_ms")}
    return _structure(AcknowledgePlayback, event, event_id)


def _read_signal(event: Event, event_id: str | None) -> ClientCommand:
    name = _structure(SignalTurn, event, event_id).event
    payload = event.get("payload")
    if payload is not None and not isinstance(payload, Mapping):
        raise wrong("payload", "an object", payload)
    if name in REFUSED_SIGNALS:
        raise ProtocolViolation("bad_event", f"the signal {name!r} is not taken; send session.close instead", "event")
    reader = _SIGNALS.get(name)
    if reader is None:
        return SignalTurn(event=name, event_id=event_id)
    if reader is _read_update:
        return reader({"session": payload or {}}, event_id)
    beside = {key: value for key, value in event.items() if key not in ("event", "payload")}
    return reader({**beside, **(payload or {})}, event_id)


def _read_create_item(event: Event, event_id: str | None) -> ClientCommand:
    _refuse_deep(event.get("item"), "item")
    return read_create_item(event, event_id)


def _read_create_response(event: Event, event_id: str | None) -> ClientCommand:
    _refuse_deep(event.get("response"), "response")
    return read_create_response(event, event_id)


def _refuse_deep(value: object, param: str) -> None:
    """What we store we must be able to say again, inside our own events."""
    for _ in range(SPARE_LEVELS):
        value = [value]
    try:
        dumps(value)
    except LocalProtocolError:
        raise ProtocolViolation("bad_event", f"{param} is nested too deeply", param) from None


_SIGNALS: Final[dict[str, Reader]] = {
    "input.cancel": _plain(CancelInput),
    "barge_in": _plain(BargeIn),
    "response.cancel": _plain(CancelResponse),
    "output_audio_buffer.clear": _plain(ClearOutputAudio),
    "session.update": _read_update,
    "conversation.item.create": _read_create_item,
    "conversation.item.delete": _plain(DeleteItem),
    "conversation.item.truncate": _read_truncate,
    "conversation.item.retrieve": _plain(RetrieveItem),
    "playback_ack": _read_playback_ack,
}

_READERS: Final[dict[str, Reader]] = {
    "session.update": _read_update,
    "session.resume": _read_resume,
    "session.event_ack": _read_event_ack,
    "session.heartbeat": _plain(Heartbeat),
    "session.close": _read_close,
    "close": _read_close,
    "close_session": _read_close,
    "input_audio_buffer.append": read_append,
    "input_audio_buffer.commit": _read_commit,
    "input.commit": _read_commit,
    "input_audio_buffer.clear": _plain(ClearInput),
    "input.cancel": _plain(CancelInput),
    "response.create": _read_create_response,
    "response.cancel": _plain(CancelResponse),
    "barge_in": _plain(BargeIn),
    "output_audio_buffer.clear": _plain(ClearOutputAudio),
    "conversation.item.create": _read_create_item,
    "conversation.item.delete": _plain(DeleteItem),
    "conversation.item.truncate": _read_truncate,
    "conversation.item.retrieve": _plain(RetrieveItem),
    "playback.ack": _read_playback_ack,
    "audio.playback_ack": _read_playback_ack,
    "turn.signal": _read_signal,
    "signal_turn": _read_signal,
    "input.text.append": _read_text,
    "input_text.append": _read_text,
    "push_text": _read_text,
}
