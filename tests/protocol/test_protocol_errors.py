"""The code table says what the wire contract says, row by row."""

from duplex_engine.errors import AdmissionRefused, CodedError, ConfigRejected, ProtocolViolation
from duplex_engine.protocol.errors import (
    ERRORS,
    Consequence,
    ErrorType,
    error_event,
    error_from,
    error_type,
    retryable,
    rule_of,
)
from duplex_engine.protocol.events import UNSET


def words(text: str) -> list[str]:
    return text.split()


REQUEST_CODES = words("""
    bad_event bad_audio invalid_json unknown_event event_too_large config_timeout invalid_session_config
    invalid_duplex_runtime_config ref_audio_required unsupported_ref_audio_path unsupported_nemotron_duplex_mode
    invalid_sliding_window_config session_exists unknown_session session_closed invalid_session_resume
    session_resume_expired unsupported_session_resume invalid_resume_token session_resume_conflict invalid_event_ack
    unsupported_audio_format unsupported_turn_detection model_update_unsupported ref_audio_update_unsupported
    voice_update_after_audio_unsupported instructions_update_unsupported persona_update_unsupported
    voice_update_unsupported sliding_window_update_unsupported invalid_video_frames invalid_image
    invalid_input_modality unsupported input_audio_buffer_empty native_text_append_unsupported barge_in_unsupported
    response_already_active response_not_active response_create_without_input text_only_turn_unsupported
    unsupported_native_response_options missing_item_id item_not_found invalid_function_call_output
    playback_item_mismatch playback_item_not_found playback_ack_too_late invalid_voice context_length_exceeded
""")

SERVER_CODES = words("""
    timeout engine_error engine_dead invalid_argument failed_precondition not_found stale_fence internal_error
    runtime_resume_failed realtime_input_failed session_update_aborted commit_aborted
    nemotron_function_call_parse_error server_vad_unavailable function_call_parse_error
    runtime_touch_failed runtime_signal_failed
    runtime_abort_failed runtime_append_failed runtime_append_task_failed runtime_data_plane_stream_failed
    runtime_data_plane_text_without_audio prefill_unavailable model_path_unavailable warming_up draining
    model_unavailable
""")

RATE_CODES = words("""
    resource_exhausted engine_backpressure input_backpressure function_response_backlog output_overflow
""")


def test_types() -> None:
    expected = dict.fromkeys(REQUEST_CODES, ErrorType.REQUEST)
    expected |= dict.fromkeys(SERVER_CODES, ErrorType.SERVER)
    expected |= dict.fromkeys(RATE_CODES, ErrorType.RATE)
    assert {code: rule.type for code, rule in ERRORS.items()} == expected


def test_consequences() -> None:
    ends = words("""
        config_timeout session_exists resource_exhausted warming_up draining timeout prefill_unavailable
        model_path_unavailable invalid_session_resume session_resume_expired invalid_resume_token
        session_resume_conflict runtime_resume_failed engine_dead
    """)
    closes = words("""
        output_overflow realtime_input_failed model_unavailable runtime_append_task_failed
        runtime_data_plane_stream_failed context_length_exceeded
    """)
    expected = dict.fromkeys(ERRORS, Consequence.OPEN)
    expected |= dict.fromkeys(ends, Consequence.ENDS) | dict.fromkeys(closes, Consequence.CLOSES)
    assert {code: rule.consequence for code, rule in ERRORS.items()} == expected


def test_retrying() -> None:
    again = {code for code, rule in ERRORS.items() if rule.retryable is True}
    never = {code for code, rule in ERRORS.items() if rule.retryable is False}
    assert again == {"resource_exhausted", "warming_up", "draining", "timeout"}
    assert never == {code for code in ERRORS if code.startswith("runtime_") and code != "runtime_resume_failed"}
    assert (retryable("timeout"), retryable("runtime_touch_failed"), retryable("bad_event")) == (True, False, UNSET)


def test_a_code_of_a_plugin() -> None:
    assert rule_of("my_plugins_code").consequence is Consequence.OPEN
    assert error_type("my_plugins_code") == "invalid_request_error"


def test_the_event() -> None:
    error = error_event("playback_ack_too_late", "too late", event_id="evt_9", param="item_id").error
    assert (error.type, error.code, error.message) == ("invalid_request_error", "playback_ack_too_late", "too late")
    assert (error.event_id, error.param, error.retryable) == ("evt_9", "item_id", UNSET)
    bare = error_event("timeout", "slow").error
    assert (bare.event_id, bare.param, bare.retryable) == (UNSET, UNSET, True)
    assert error_event("timeout", "slow", retryable=False).error.retryable is False


def test_events_from_exceptions() -> None:
    violation = ProtocolViolation("bad_event", "broken", "audio", event_id="evt_1")
    assert error_from(violation) == error_event("bad_event", "broken", event_id="evt_1", param="audio")
    assert error_from(violation, "evt_2").error.event_id == "evt_2"
    rejected = ConfigRejected("unsupported_turn_detection", "no", "turn_detection")
    assert error_from(rejected, "evt_3") == error_event(
        "unsupported_turn_detection", "no", event_id="evt_3", param="turn_detection"
    )
    assert error_from(AdmissionRefused("draining", "going")).error.retryable is True
    assert error_from(AdmissionRefused("resource_exhausted", "full", retryable=False)).error.retryable is False
    assert error_from(CodedError("engine_dead", "gone")).error.type == "server_error"
