"""What a client may say (wire contract, section 3): one frozen class per message, fields named as on the wire.

Owns the vocabulary and what makes a single message legal in itself; audio arrives here already base64-decoded. Never
looks at a session's state: whether a legal message fits the moment is the conversation machine's question.
`protocol/codec.py` turns JSON into these classes.
"""

from collections.abc import Mapping
from typing import ClassVar, Final

import attrs

from duplex_engine.protocol.formats import Encoding


@attrs.frozen(kw_only=True)
class UpdateSession:
    """`session.update`: opens a session as the first frame, changes it later. `session` is the client's own object."""

    TYPE: ClassVar[str] = "session.update"
    session: Mapping[str, object]
    event_id: str | None = None


@attrs.frozen(kw_only=True)
class ResumeSession:
    """`session.resume`: first frame of a connection that wants an existing session back."""

    TYPE: ClassVar[str] = "session.resume"
    session_id: str
    resume_token: str
    last_received_server_event_seq: int = 0
    event_id: str | None = None


@attrs.frozen(kw_only=True)
class AcknowledgeEvents:
    """`session.event_ack`: everything up to and including this sequence number has been processed."""

    TYPE: ClassVar[str] = "session.event_ack"
    server_event_seq: int
    event_id: str | None = None


@attrs.frozen(kw_only=True)
class Heartbeat:
    """`session.heartbeat`: renews the session's idle lease."""

    TYPE: ClassVar[str] = "session.heartbeat"
    event_id: str | None = None


@attrs.frozen(kw_only=True)
class CloseSession:
    """`session.close`: stop everything, free the seat, say `session.closed`."""

    TYPE: ClassVar[str] = "session.close"
    reason: str = "client_close"
    event_id: str | None = None


@attrs.frozen(kw_only=True)
class AppendAudio:
    """`input_audio_buffer.append`: mono audio and, on models with sight, up to two pictures.

    `audio` holds encoded bytes in `encoding` at `sample_rate_hz`; None for either means the session's default.
    `speech` is the client's own verdict after the priorities of 3.3 (is_speech, vad, speech_probability), or None.
    """

    TYPE: ClassVar[str] = "input_audio_buffer.append"
    audio: bytes = b""
    encoding: Encoding | None = None
    sample_rate_hz: int | None = None
    speech: bool | None = None
    overlap_silence_rms: float | None = None
    duration_ms: float | None = None
    audio_start_ms: float | None = None
    audio_end_ms: float | None = None
    video_frames: tuple[bytes, ...] = ()
    transcript: str | None = None
    overlap_action: str | None = None
    force_barge_in: bool = False
    force_listen: bool = False
    event_id: str | None = None


@attrs.frozen(kw_only=True)
class CommitAudio:
    """`input_audio_buffer.commit`: the user's turn ends here. `response_create` asks for an answer."""

    TYPE: ClassVar[str] = "input_audio_buffer.commit"
    response_create: bool = False
    is_speech: bool | None = None
    event_id: str | None = None


@attrs.frozen(kw_only=True)
class ClearInput:
    """`input_audio_buffer.clear`: forget audio that has not been answered."""

    TYPE: ClassVar[str] = "input_audio_buffer.clear"
    event_id: str | None = None


@attrs.frozen(kw_only=True)
class CancelInput:
    """`input.cancel`: forget the input and stop the assistant."""

    TYPE: ClassVar[str] = "input.cancel"
    event_id: str | None = None


@attrs.frozen(kw_only=True)
class ResponseOptions:
    """What one `response.create` may choose for itself; None means the session's value."""

    modalities: tuple[str, ...] | None = None
    output_encoding: Encoding | None = None
    speed: float | None = None
    metadata: Mapping[str, object] = attrs.Factory(dict)
    in_history: bool = True
    instructions: str | None = None
    voice: str | None = None
    temperature: float | None = None
    max_response_output_tokens: int | None = None
    tools: tuple[Mapping[str, object], ...] | None = None
    tool_choice: object = None


@attrs.frozen(kw_only=True)
class CreateResponse:
    """`response.create`: answer now. `unsupported` names non-null options that the `strict` profile refuses (3.6)."""

    TYPE: ClassVar[str] = "response.create"
    options: ResponseOptions = attrs.Factory(ResponseOptions)
    unsupported: tuple[str, ...] = ()
    event_id: str | None = None


@attrs.frozen(kw_only=True)
class CancelResponse:
    """`response.cancel`: stop generation and playback of the response."""

    TYPE: ClassVar[str] = "response.cancel"
    response_id: str | None = None
    event_id: str | None = None


@attrs.frozen(kw_only=True)
class BargeIn:
    """`barge_in`: the user cuts in; clears the input and stops the assistant."""

    TYPE: ClassVar[str] = "barge_in"
    event_id: str | None = None


@attrs.frozen(kw_only=True)
class ClearOutputAudio:
    """`output_audio_buffer.clear`: stop playing, and generating if that is still going on."""

    TYPE: ClassVar[str] = "output_audio_buffer.clear"
    response_id: str | None = None
    event_id: str | None = None


@attrs.frozen(kw_only=True)
class CreateItem:
    """`conversation.item.create`. `item` is the client's object with the defaults of 3.8 filled in.

    `audio`: its audio parts, decoded and in order, as the appends they stand for; in `item` they keep their transcript
    alone. Pictures have been checked. `previous_item_id` is an item id, "root", or None for the end.
    """

    TYPE: ClassVar[str] = "conversation.item.create"
    item: Mapping[str, object]
    audio: tuple[AppendAudio, ...] = ()
    previous_item_id: str | None = None
    event_id: str | None = None


@attrs.frozen(kw_only=True)
class DeleteItem:
    """`conversation.item.delete`; an empty `item_id` is answered with `missing_item_id`."""

    TYPE: ClassVar[str] = "conversation.item.delete"
    item_id: str = ""
    event_id: str | None = None


@attrs.frozen(kw_only=True)
class RetrieveItem:
    """`conversation.item.retrieve`."""

    TYPE: ClassVar[str] = "conversation.item.retrieve"
    item_id: str = ""
    event_id: str | None = None


@attrs.frozen(kw_only=True)
class TruncateItem:
    """`conversation.item.truncate`: of this answer only `audio_end_ms` were heard, for good."""

    TYPE: ClassVar[str] = "conversation.item.truncate"
    item_id: str = ""
    audio_end_ms: float = 0.0
    content_index: int = 0
    event_id: str | None = None


@attrs.frozen(kw_only=True)
class AcknowledgePlayback:
    """`playback.ack`: cumulative milliseconds of a response that were heard, and that may enter the history."""

    TYPE: ClassVar[str] = "playback.ack"
    played_ms: float
    committed_ms: float
    response_id: str | None = None
    item_id: str | None = None
    truncate: bool = False
    event_id: str | None = None


@attrs.frozen(kw_only=True)
class SignalTurn:
    """`turn.signal` with a name that maps to no other command; the codec resolves the mapped ones (3.11)."""

    TYPE: ClassVar[str] = "turn.signal"
    event: str
    event_id: str | None = None


@attrs.frozen(kw_only=True)
class AppendText:
    """`input.text.append`: streaming text, which no model takes; always answered with an error (5.5)."""

    TYPE: ClassVar[str] = "input.text.append"
    text: str
    event_id: str | None = None


REFUSED_SIGNALS: Final = frozenset({"close", "timeout"})
"""Signals that would end a session behind its own back (D-14)."""

ClientCommand = (
    UpdateSession
    | ResumeSession
    | AcknowledgeEvents
    | Heartbeat
    | CloseSession
    | AppendAudio
    | CommitAudio
    | ClearInput
    | CancelInput
    | CreateResponse
    | CancelResponse
    | BargeIn
    | ClearOutputAudio
    | CreateItem
    | DeleteItem
    | RetrieveItem
    | TruncateItem
    | AcknowledgePlayback
    | SignalTurn
    | AppendText
)
