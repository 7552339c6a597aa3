"""What the server may say (wire contract, section 4): one frozen class per event, fields named as on the wire.

Owns the vocabulary. `event_id` and `server_event_seq` are not fields: the journal gives each event both when it is
appended. A field whose value is `UNSET` is absent from the JSON; a field whose value is None is sent as null.
`protocol/codec.py` writes the JSON.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import ClassVar, Final, Literal

import attrs


class Unset(Enum):
    """Marks an optional field as absent from the JSON."""

    UNSET = "unset"

    def __bool__(self) -> bool:
        return False


UNSET: Final = Unset.UNSET
Absent = Literal[Unset.UNSET]
JsonObject = Mapping[str, object]


@attrs.frozen(kw_only=True)
class SessionCreated:
    TYPE: ClassVar[str] = "session.created"
    session: JsonObject
    attachment_generation: int | Absent = UNSET
    resume_token: str | Absent = UNSET


@attrs.frozen(kw_only=True)
class SessionUpdated:
    TYPE: ClassVar[str] = "session.updated"
    session: JsonObject


@attrs.frozen(kw_only=True)
class SessionResumed:
    TYPE: ClassVar[str] = "session.resumed"
    session_id: str
    session: JsonObject
    attachment_generation: int
    resume_token: str


@attrs.frozen(kw_only=True)
class SessionReplaced:
    TYPE: ClassVar[str] = "session.replaced"
    session_id: str
    attachment_generation: int


@attrs.frozen(kw_only=True)
class ResyncRequired:
    TYPE: ClassVar[str] = "session.resync_required"
    session_id: str
    reason: str


@attrs.frozen(kw_only=True)
class HeartbeatAcknowledged:
    TYPE: ClassVar[str] = "session.heartbeat_ack"
    session_id: str


@attrs.frozen(kw_only=True)
class SessionLagging:
    """Input waits too long (design decision: a notice, never an error)."""

    TYPE: ClassVar[str] = "session.lagging"
    session_id: str
    input_age_ms: int
    dropped_ms: int


@attrs.frozen(kw_only=True)
class SessionClosed:
    TYPE: ClassVar[str] = "session.closed"
    session_id: str
    reason: str
    event: JsonObject = attrs.Factory(dict)


@attrs.frozen(kw_only=True)
class SessionExpired:
    TYPE: ClassVar[str] = "session.expired"
    session_id: str
    reason: str


@attrs.frozen(kw_only=True)
class TurnEvent:
    TYPE: ClassVar[str] = "turn.event"
    session_id: str
    event: str
    turn_state: str
    epoch: int


@attrs.frozen(kw_only=True)
class SpeechStarted:
    TYPE: ClassVar[str] = "input_audio_buffer.speech_started"
    audio_start_ms: int
    item_id: str


@attrs.frozen(kw_only=True)
class SpeechStopped:
    TYPE: ClassVar[str] = "input_audio_buffer.speech_stopped"
    audio_end_ms: int
    item_id: str


@attrs.frozen(kw_only=True)
class InputCommitted:
    TYPE: ClassVar[str] = "input_audio_buffer.committed"
    previous_item_id: str | None
    item_id: str
    event: JsonObject


@attrs.frozen(kw_only=True)
class InputCleared:
    TYPE: ClassVar[str] = "input_audio_buffer.cleared"


@attrs.frozen(kw_only=True)
class ItemAdded:
    TYPE: ClassVar[str] = "conversation.item.added"
    previous_item_id: str | None
    item: JsonObject


@attrs.frozen(kw_only=True)
class ItemCreated:
    TYPE: ClassVar[str] = "conversation.item.created"
    previous_item_id: str | None
    item: JsonObject


@attrs.frozen(kw_only=True)
class ItemDone:
    TYPE: ClassVar[str] = "conversation.item.done"
    previous_item_id: str | None
    item: JsonObject


@attrs.frozen(kw_only=True)
class ItemRetrieved:
    TYPE: ClassVar[str] = "conversation.item.retrieved"
    item: JsonObject


@attrs.frozen(kw_only=True)
class ItemDeleted:
    TYPE: ClassVar[str] = "conversation.item.deleted"
    item_id: str
    event: JsonObject = attrs.Factory(dict)


@attrs.frozen(kw_only=True)
class ItemTruncated:
    TYPE: ClassVar[str] = "conversation.item.truncated"
    item_id: str
    content_index: int
    audio_end_ms: int
    event: JsonObject = attrs.Factory(dict)


@attrs.frozen(kw_only=True)
class TranscriptionDelta:
    TYPE: ClassVar[str] = "conversation.item.input_audio_transcription.delta"
    item_id: str
    content_index: int
    delta: str


@attrs.frozen(kw_only=True)
class TranscriptionCompleted:
    TYPE: ClassVar[str] = "conversation.item.input_audio_transcription.completed"
    item_id: str
    content_index: int
    transcript: str
    usage: JsonObject | Absent = UNSET


@attrs.frozen(kw_only=True)
class ResponseCreated:
    TYPE: ClassVar[str] = "response.created"
    response_id: str
    response: JsonObject
    vllm_omni: JsonObject | Absent = UNSET


@attrs.frozen(kw_only=True)
class OutputItemAdded:
    TYPE: ClassVar[str] = "response.output_item.added"
    response_id: str
    item: JsonObject
    output_index: int = 0


@attrs.frozen(kw_only=True)
class OutputItemDone:
    TYPE: ClassVar[str] = "response.output_item.done"
    response_id: str
    item: JsonObject
    output_index: int = 0


@attrs.frozen(kw_only=True)
class ContentPartAdded:
    TYPE: ClassVar[str] = "response.content_part.added"
    response_id: str
    item_id: str
    part: JsonObject
    output_index: int = 0
    content_index: int = 0


@attrs.frozen(kw_only=True)
class ContentPartDone:
    TYPE: ClassVar[str] = "response.content_part.done"
    response_id: str
    item_id: str
    part: JsonObject
    output_index: int = 0
    content_index: int = 0


@attrs.frozen(kw_only=True)
class ResponseSpeak:
    TYPE: ClassVar[str] = "response.speak"
    response_id: str
    item_id: str
    metadata: JsonObject
    output_index: int = 0
    content_index: int = 0


@attrs.frozen(kw_only=True)
class OutputAudioDelta:
    """`audio` holds encoded bytes in `format`; the codec writes them as base64 under the key `delta`."""

    TYPE: ClassVar[str] = "response.output_audio.delta"
    response_id: str
    item_id: str
    audio: bytes
    format: str
    sample_rate_hz: int
    metadata: JsonObject | Absent = UNSET
    output_index: int = 0
    content_index: int = 0


@attrs.frozen(kw_only=True)
class OutputAudioDone:
    TYPE: ClassVar[str] = "response.output_audio.done"
    response_id: str
    item_id: str
    output_index: int = 0
    content_index: int = 0


@attrs.frozen(kw_only=True)
class TranscriptDelta:
    TYPE: ClassVar[str] = "response.output_audio_transcript.delta"
    response_id: str
    item_id: str
    delta: str
    metadata: JsonObject | Absent = UNSET
    output_index: int = 0
    content_index: int = 0


@attrs.frozen(kw_only=True)
class TranscriptDone:
    TYPE: ClassVar[str] = "response.output_audio_transcript.done"
    response_id: str
    item_id: str
    transcript: str
    output_index: int = 0
    content_index: int = 0


@attrs.frozen(kw_only=True)
class OutputTextDelta:
    TYPE: ClassVar[str] = "response.output_text.delta"
    response_id: str
    item_id: str
    delta: str
    output_index: int = 0
    content_index: int = 0


@attrs.frozen(kw_only=True)
class OutputTextDone:
    TYPE: ClassVar[str] = "response.output_text.done"
    response_id: str
    item_id: str
    text: str
    output_index: int = 0
    content_index: int = 0


@attrs.frozen(kw_only=True)
class FunctionArgumentsDelta:
    TYPE: ClassVar[str] = "response.function_call_arguments.delta"
    response_id: str
    item_id: str
    call_id: str
    delta: str
    output_index: int = 0


@attrs.frozen(kw_only=True)
class FunctionArgumentsDone:
    TYPE: ClassVar[str] = "response.function_call_arguments.done"
    response_id: str
    item_id: str
    call_id: str
    name: str
    arguments: str
    output_index: int = 0


@attrs.frozen(kw_only=True)
class ResponseListen:
    """Standalone without `response_id`: the model listened. With it: the model yielded, terminals follow."""

    TYPE: ClassVar[str] = "response.listen"
    session_id: str
    epoch: int
    response: JsonObject
    response_id: str | Absent = UNSET


@attrs.frozen(kw_only=True)
class ResponseDone:
    TYPE: ClassVar[str] = "response.done"
    response_id: str
    response: JsonObject
    vllm_omni: JsonObject | Absent = UNSET


@attrs.frozen(kw_only=True)
class RateLimitsUpdated:
    TYPE: ClassVar[str] = "rate_limits.updated"
    rate_limits: Sequence[JsonObject] = ()


@attrs.frozen(kw_only=True)
class OutputAudioCleared:
    TYPE: ClassVar[str] = "output_audio_buffer.cleared"
    response_id: str | Absent | None = UNSET


@attrs.frozen(kw_only=True)
class OverlapDecided:
    TYPE: ClassVar[str] = "overlap.decision"
    session_id: str
    epoch: int
    policy: str
    action: str
    reason: str
    metadata: JsonObject


@attrs.frozen(kw_only=True)
class PlaybackAcknowledged:
    TYPE: ClassVar[str] = "playback.acknowledged"
    event: JsonObject


@attrs.frozen(kw_only=True)
class ErrorDetail:
    """The inside of an `error` event (4.9)."""

    type: str
    code: str
    message: str
    event_id: str | Absent = UNSET
    param: str | Absent = UNSET
    retryable: bool | Absent = UNSET


@attrs.frozen(kw_only=True)
class ErrorEvent:
    TYPE: ClassVar[str] = "error"
    error: ErrorDetail


ServerEvent = (
    SessionCreated
    | SessionUpdated
    | SessionResumed
    | SessionReplaced
    | ResyncRequired
    | HeartbeatAcknowledged
    | SessionLagging
    | SessionClosed
    | SessionExpired
    | TurnEvent
    | SpeechStarted
    | SpeechStopped
    | InputCommitted
    | InputCleared
    | ItemAdded
    | ItemCreated
    | ItemDone
    | ItemRetrieved
    | ItemDeleted
    | ItemTruncated
    | TranscriptionDelta
    | TranscriptionCompleted
    | ResponseCreated
    | OutputItemAdded
    | OutputItemDone
    | ContentPartAdded
    | ContentPartDone
    | ResponseSpeak
    | OutputAudioDelta
    | OutputAudioDone
    | TranscriptDelta
    | TranscriptDone
    | OutputTextDelta
    | OutputTextDone
    | FunctionArgumentsDelta
    | FunctionArgumentsDone
    | ResponseListen
    | ResponseDone
    | RateLimitsUpdated
    | OutputAudioCleared
    | OverlapDecided
    | PlaybackAcknowledged
    | ErrorEvent
)
