"""Server events as a client sees them: thin typed views over the received object.

Owns the classes that client programs match on and the reading of single fields. Never changes an event and never
rejects one: what a view cannot find is None, and a type without a class of its own is a plain `DuplexEvent`.
"""

from collections.abc import Mapping

import attrs

from duplex_engine.client.errors import DuplexProtocolError
from duplex_engine.protocol.wire_json import b64decode

__all__ = [
    "AudioDelta",
    "ConnectionResumed",
    "DuplexEvent",
    "ErrorEvent",
    "ListenDecision",
    "ResponseCreated",
    "ResponseDone",
    "SessionClosed",
    "SessionCreated",
    "SessionExpired",
    "SessionResumed",
    "SessionUpdated",
    "SpeakDecision",
    "TextDelta",
    "TranscriptDelta",
    "wrap_event",
]


def _text(fields: Mapping[str, object], key: str) -> str | None:
    value = fields.get(key)
    return value if isinstance(value, str) else None


def _object(fields: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = fields.get(key)
    return value if isinstance(value, dict) else {}


def _whole(fields: Mapping[str, object], key: str) -> int | None:
    value = fields.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


@attrs.frozen
class DuplexEvent:
    """Any server event; `raw` is the received JSON object."""

    raw: Mapping[str, object]

    @property
    def type(self) -> str:
        """The event's type, empty if it has none."""
        return _text(self.raw, "type") or ""

    @property
    def event_id(self) -> str | None:
        """The server's id of this event."""
        return _text(self.raw, "event_id")

    @property
    def session_id(self) -> str | None:
        """The session it belongs to, where the event says so."""
        return _text(self.raw, "session_id")

    @property
    def response_id(self) -> str | None:
        """The response it belongs to: `response_id`, else `response.id`."""
        return _text(self.raw, "response_id") or _text(_object(self.raw, "response"), "id")

    @property
    def item_id(self) -> str | None:
        """The conversation item it belongs to."""
        return _text(self.raw, "item_id")

    @property
    def server_event_seq(self) -> int | None:
        """Its number in the session, for events that have one."""
        return _whole(self.raw, "server_event_seq")

    @property
    def sample_rate_hz(self) -> int | None:
        """Sample rate of the audio in this event, in Hz."""
        rate = _whole(self.raw, "sample_rate_hz")
        return rate if rate is not None and rate > 0 else None

    @property
    def audio(self) -> bytes | None:
        """Decoded audio of this event (`delta`, else `audio`); None if there is none or it is not base64."""
        encoded = _text(self.raw, "delta") or _text(self.raw, "audio")
        if not encoded:
            return None
        try:
            return b64decode(encoded)
        except ValueError:
            return None

    @property
    def text(self) -> str | None:
        """The words in this event: `text`, else `delta`, else `transcript`."""
        for key in ("text", "delta", "transcript"):
            value = _text(self.raw, key)
            if value is not None:
                return value
        return None


class SessionUpdated(DuplexEvent):
    """The session after a change, complete."""

    __slots__ = ()

    @property
    def session(self) -> Mapping[str, object]:
        """The public session object."""
        return _object(self.raw, "session")


class SessionCreated(DuplexEvent):
    """The session exists."""

    __slots__ = ()

    @property
    def session(self) -> Mapping[str, object]:
        """The public session object."""
        return _object(self.raw, "session")

    @property
    def resume_token(self) -> str | None:
        """The credential for resuming, if the session can be resumed."""
        return _text(self.raw, "resume_token")


class SessionResumed(SessionCreated):
    """The session continues on a new connection; missed events follow."""

    __slots__ = ()


class SessionClosed(DuplexEvent):
    """The session ended as asked."""

    __slots__ = ()


class SessionExpired(DuplexEvent):
    """The server ended the session by itself."""

    __slots__ = ()


class ResponseCreated(DuplexEvent):
    """A response exists; it may still turn out to be silent."""

    __slots__ = ()


class ResponseDone(DuplexEvent):
    """A response is over."""

    __slots__ = ()

    @property
    def response(self) -> Mapping[str, object]:
        """The response object with its status and output."""
        return _object(self.raw, "response")


class AudioDelta(DuplexEvent):
    """A piece of audio."""

    __slots__ = ()


class TranscriptDelta(DuplexEvent):
    """A piece of the words that are being spoken."""

    __slots__ = ()


class TextDelta(DuplexEvent):
    """A piece of text that is not spoken."""

    __slots__ = ()


class ListenDecision(DuplexEvent):
    """The model listens. With a response id it has yielded that response; without, nothing ends."""

    __slots__ = ()


class SpeakDecision(DuplexEvent):
    """The model begins to speak."""

    __slots__ = ()


class ConnectionResumed(DuplexEvent):
    """Made by the client itself: the connection had dropped and the session was resumed on a new one."""

    __slots__ = ()


class ErrorEvent(DuplexEvent):
    """A refusal. The nested form is the protocol's; the flat one comes from in front of it."""

    __slots__ = ()

    @property
    def code(self) -> str | None:
        """The error code."""
        return _text(_object(self.raw, "error") or self.raw, "code")

    @property
    def message(self) -> str:
        """The explanation for people."""
        nested = _text(_object(self.raw, "error"), "message")
        return nested or _text(self.raw, "error") or f"error event without a message: {dict(self.raw)!r}"

    @property
    def related_event_id(self) -> str | None:
        """Id of the client event that was refused."""
        return _text(_object(self.raw, "error"), "event_id")

    def to_exception(self) -> DuplexProtocolError:
        """The same as an exception."""
        error = _object(self.raw, "error")
        retryable = error.get("retryable")
        return DuplexProtocolError(
            code=self.code or "unspecified",
            message=self.message,
            param=_text(error, "param"),
            type=_text(error, "type") or "server_error",
            event_id=self.related_event_id,
            retryable=retryable if isinstance(retryable, bool) else None,
            raw=self.raw,
        )


_VIEWS: dict[str, type[DuplexEvent]] = {
    "session.created": SessionCreated,
    "session.resumed": SessionResumed,
    "session.updated": SessionUpdated,
    "session.closed": SessionClosed,
    "session.expired": SessionExpired,
    "response.created": ResponseCreated,
    "response.done": ResponseDone,
    "response.output_audio.delta": AudioDelta,
    "response.output_audio_transcript.delta": TranscriptDelta,
    "response.text.delta": TextDelta,
    "response.output_text.delta": TextDelta,
    "response.listen": ListenDecision,
    "response.speak": SpeakDecision,
    "connection.resumed": ConnectionResumed,
    "error": ErrorEvent,
}


def wrap_event(raw: Mapping[str, object]) -> DuplexEvent:
    """The typed view of a received object."""
    return _VIEWS.get(_text(raw, "type") or "", DuplexEvent)(raw)
