"""The code table of `error` events (wire contract 4.9, D-36): whose fault, what becomes of the connection, try again?

Owns the table, the shape of the event, and what `ga` calls a code. Whatever the table says, an error before a session is
open ends the connection: that is the handshake's business.
"""

from enum import Enum
from typing import Final

import attrs

from duplex_engine.errors import AdmissionRefused, CodedError, ProtocolViolation
from duplex_engine.protocol.events import UNSET, Absent, ErrorDetail, ErrorEvent
from duplex_engine.protocol.sizes import MESSAGE_CHARACTERS, NAME_CHARACTERS


class ErrorType(Enum):
    """Whose fault it was; the value is the wire's `error.type`."""

    REQUEST = "invalid_request_error"
    SERVER = "server_error"
    RATE = "rate_limit_error"


class Consequence(Enum):
    """What becomes of the connection of an open session: it goes on, its socket ends, or the session ends with it."""

    OPEN = "open"
    ENDS = "ends"
    CLOSES = "closes"


@attrs.frozen
class ErrorRule:
    """A row of the table. `retryable` None: the event does not say."""

    type: ErrorType = ErrorType.REQUEST
    consequence: Consequence = Consequence.OPEN
    retryable: bool | None = None


_I, _S, _R = ErrorType.REQUEST, ErrorType.SERVER, ErrorType.RATE
_OPEN, _ENDS, _CLOSES = Consequence.OPEN, Consequence.ENDS, Consequence.CLOSES

UNKNOWN: Final = ErrorRule()
"""What a code means that is not in the table, such as a plugin's own: the request was wrong, the session goes on."""

ERRORS: Final[dict[str, ErrorRule]] = {
    # frames
    "bad_event": ErrorRule(),
    "bad_audio": ErrorRule(),
    "invalid_json": ErrorRule(),
    "unknown_event": ErrorRule(),
    "event_too_large": ErrorRule(),
    "invalid_event_ack": ErrorRule(),
    "unsupported_audio_format": ErrorRule(),
    "invalid_video_frames": ErrorRule(),
    "invalid_image": ErrorRule(),
    "invalid_input_modality": ErrorRule(),
    "unsupported": ErrorRule(),
    "native_text_append_unsupported": ErrorRule(),
    "missing_item_id": ErrorRule(),
    "item_not_found": ErrorRule(),
    "invalid_function_call_output": ErrorRule(),
    # opening and admission
    "config_timeout": ErrorRule(_I, _ENDS),
    "invalid_session_config": ErrorRule(),
    "session_exists": ErrorRule(_I, _ENDS),
    "resource_exhausted": ErrorRule(_R, _ENDS, True),
    "warming_up": ErrorRule(_S, _ENDS, True),
    "draining": ErrorRule(_S, _ENDS, True),
    "timeout": ErrorRule(_S, _ENDS, True),
    "invalid_voice": ErrorRule(),
    "prefill_unavailable": ErrorRule(_S, _ENDS),
    "model_path_unavailable": ErrorRule(_S, _ENDS),
    # resuming
    "invalid_session_resume": ErrorRule(_I, _ENDS),
    "session_resume_expired": ErrorRule(_I, _ENDS),
    "invalid_resume_token": ErrorRule(_I, _ENDS),
    "session_resume_conflict": ErrorRule(_I, _ENDS),
    "unsupported_session_resume": ErrorRule(),
    "runtime_resume_failed": ErrorRule(_S, _ENDS),
    # configuration
    "unsupported_turn_detection": ErrorRule(),
    "invalid_duplex_runtime_config": ErrorRule(),
    "ref_audio_required": ErrorRule(),
    "unsupported_ref_audio_path": ErrorRule(),
    "unsupported_nemotron_duplex_mode": ErrorRule(),
    "invalid_sliding_window_config": ErrorRule(),
    "model_update_unsupported": ErrorRule(),
    "ref_audio_update_unsupported": ErrorRule(),
    "voice_update_after_audio_unsupported": ErrorRule(),
    "instructions_update_unsupported": ErrorRule(),
    "persona_update_unsupported": ErrorRule(),
    "voice_update_unsupported": ErrorRule(),
    "sliding_window_update_unsupported": ErrorRule(),
    "session_update_aborted": ErrorRule(_S),
    # turns and responses
    "input_backpressure": ErrorRule(_R),
    "input_audio_buffer_empty": ErrorRule(),
    "commit_aborted": ErrorRule(_S),
    "barge_in_unsupported": ErrorRule(),
    "response_already_active": ErrorRule(),
    "response_not_active": ErrorRule(),
    "response_create_without_input": ErrorRule(),
    "text_only_turn_unsupported": ErrorRule(),
    "unsupported_native_response_options": ErrorRule(),
    "context_length_exceeded": ErrorRule(_I, _CLOSES),
    "function_response_backlog": ErrorRule(_R),
    "nemotron_function_call_parse_error": ErrorRule(_S),
    "function_call_parse_error": ErrorRule(_S),
    "playback_item_mismatch": ErrorRule(),
    "playback_item_not_found": ErrorRule(),
    "playback_ack_too_late": ErrorRule(),
    "server_vad_unavailable": ErrorRule(_S),
    # the session and the engine
    "unknown_session": ErrorRule(),
    "session_closed": ErrorRule(),
    "output_overflow": ErrorRule(_R, _CLOSES),
    "internal_error": ErrorRule(_S),
    "realtime_input_failed": ErrorRule(_S, _CLOSES),
    "model_unavailable": ErrorRule(_S, _CLOSES),
    "engine_error": ErrorRule(_S),
    "engine_dead": ErrorRule(_S, _ENDS),
    "engine_backpressure": ErrorRule(_R),
    "invalid_argument": ErrorRule(_S),
    "failed_precondition": ErrorRule(_S),
    "not_found": ErrorRule(_S),
    "stale_fence": ErrorRule(_S),
    "runtime_touch_failed": ErrorRule(_S, _OPEN, False),
    "runtime_signal_failed": ErrorRule(_S, _OPEN, False),
    "runtime_abort_failed": ErrorRule(_S, _OPEN, False),
    "runtime_append_failed": ErrorRule(_S, _OPEN, False),
    "runtime_append_task_failed": ErrorRule(_S, _CLOSES, False),
    "runtime_data_plane_stream_failed": ErrorRule(_S, _CLOSES, False),
    "runtime_data_plane_text_without_audio": ErrorRule(_S, _OPEN, False),
}

ANY: Final = ""
GA_CODES: Final[dict[tuple[str, str], str]] = {
    ("response_already_active", ANY): "conversation_already_has_active_response",
    ("response_not_active", ANY): "response_cancel_not_active",
    ("input_audio_buffer_empty", ANY): "input_audio_buffer_commit_empty",
    ("item_not_found", "conversation.item.delete"): "item_delete_invalid_item_id",
    ("item_not_found", "conversation.item.retrieve"): "item_retrieve_invalid_item_id",
    ("item_not_found", "conversation.item.truncate"): "item_truncate_invalid_item_id",
    # An item that could be read has nothing wrong with it but an id that is in use.
    ("bad_event", "conversation.item.create"): "item_create_duplicate_item_id",
}
"""What `ga` calls a code, by the command that was refused (ANY: whichever): its clients go by these names."""


def rule_of(code: str) -> ErrorRule:
    """The row of a code."""
    return ERRORS.get(code, UNKNOWN)


def error_type(code: str) -> str:
    """The wire's `error.type` of a code."""
    return rule_of(code).type.value


def retryable(code: str) -> bool | Absent:
    """The wire's `error.retryable` of a code, UNSET where the event does not say."""
    says = rule_of(code).retryable
    return UNSET if says is None else says


def ends_session(code: str) -> bool:
    """Whether a failure with this code leaves nothing that a session could go on with."""
    return rule_of(code).consequence is Consequence.CLOSES


def error_event(
    code: str,
    message: str,
    *,
    event_id: str | None = None,
    param: str | None = None,
    retryable: bool | None = None,
) -> ErrorEvent:
    """The `error` event. `event_id`: the client's own id of what was refused. `retryable` None: as the table says."""
    says = rule_of(code).retryable if retryable is None else retryable
    return ErrorEvent(
        error=ErrorDetail(
            type=error_type(code),
            code=code,
            message=_short(message),
            event_id=UNSET if event_id is None else event_id,
            param=UNSET if param is None else param[:NAME_CHARACTERS],
            retryable=UNSET if says is None else says,
        )
    )


def error_details(code: str, message: str) -> dict[str, str]:
    """The error of a failed answer, as `ga` says it inside `response.done`."""
    return {"type": error_type(code), "code": code, "message": _short(message)}


def _short(message: str) -> str:
    return message if len(message) <= MESSAGE_CHARACTERS else f"{message[:MESSAGE_CHARACTERS]}…"


def error_from(error: CodedError, event_id: str | None = None) -> ErrorEvent:
    """The `error` event for an exception; its own `event_id` and `retryable` count where it has them."""
    if event_id is None and isinstance(error, ProtocolViolation):
        event_id = error.event_id
    says = error.retryable if isinstance(error, AdmissionRefused) else None
    return error_event(error.code, error.message, event_id=event_id, param=error.param, retryable=says)


def in_ga(event: ErrorEvent, command_type: str) -> ErrorEvent:
    """The same in the words of `ga`; `command_type`: of the command that was refused once it had been read."""
    error = event.error
    name = GA_CODES.get((error.code, command_type)) or GA_CODES.get((error.code, ANY), error.code)
    return ErrorEvent(error=attrs.evolve(error, code=name))
