"""The public session object: complete and effective, flat and nested spelling alike (wire contract 2.7, D-05, D-07).

Owns its keys. Never shows `extra_body`, credentials, or reference audio (only its size).
"""

from collections.abc import Mapping
from typing import Any, Final

from duplex_engine.protocol.capabilities import Capabilities
from duplex_engine.protocol.formats import Encoding
from duplex_engine.protocol.session_values import Profile, SessionConfig, SessionFacts, TurnDetection

MEDIA_TYPES: Final = {
    Encoding.PCM16: "audio/pcm",
    Encoding.F32: "audio/pcm_f32le",
    Encoding.ULAW: "audio/pcmu",
    Encoding.ALAW: "audio/pcma",
    Encoding.WAV: "audio/wav",
}
SILENT_LEDGER: Final = {"generated_ms": 0, "sent_ms": 0, "played_ms": 0, "committed_ms": 0}

JsonDict = dict[str, Any]


def public_session(config: SessionConfig, facts: SessionFacts, capabilities: Capabilities) -> JsonDict:
    """The session object of `session.created`, `session.updated` and `session.resumed`."""
    detection = _detection(config)
    session = {
        "id": facts.id,
        "object": "realtime.session",
        "type": "realtime",
        "model": config.model,
        **_live(facts),
        **_settings(config),
        "playback_commit_policy": facts.playback_policy,
        "capabilities": capabilities.to_wire(),
        "input_audio_format": config.input_format.encoding.value,
        "sample_rate_hz": config.input_format.rate_hz,
        "output_audio_format": config.output_encoding.value,
        "audio": {"input": _audio_input(config, detection), "output": _audio_output(config, facts)},
        "turn_detection": detection,
        "input_audio_transcription": config.other.get("input_audio_transcription"),
        "tracing": config.other.get("tracing"),
        **_when_set(config),
    }
    return {**config.other, **session}


def _live(facts: SessionFacts) -> JsonDict:
    return {
        "state": facts.state,
        "turn_state": facts.turn_state,
        "epoch": facts.epoch,
        "turn_id": facts.turn_id,
        "active_request_id": None,
        "active_response_id": facts.active_response_id,
        "active_response_turn_id": facts.active_response_turn_id,
        "playback": dict(facts.playback) or SILENT_LEDGER,
    }


def _settings(config: SessionConfig) -> JsonDict:
    limit = config.max_response_output_tokens
    return {
        "modalities": list(config.modalities),
        "output_modalities": list(config.modalities),
        "instructions": config.instructions,
        "voice": config.voice,
        "response_format": "wav" if config.output_encoding is Encoding.WAV else "pcm",
        "temperature": config.temperature,
        "max_tokens": limit,
        "max_output_tokens": "inf" if limit is None else limit,
        "speed": config.speed,
        "idle_timeout_s": _plain(config.idle_timeout_s),
        "overlap_policy": config.overlap_policy,
        "overlap_short_ack_ms": _plain(config.overlap_short_ack_ms),
        "overlap_barge_in_ms": _plain(config.overlap_barge_in_ms),
        "overlap_silence_rms": config.overlap_silence_rms,
    }


def _when_set(config: SessionConfig) -> JsonDict:
    ga = config.profile is Profile.GA
    optional = {
        "tools": list(config.tools) or ([] if ga else None),
        "tool_choice": config.tool_choice or ("auto" if ga else None),
        "metadata": dict(config.metadata) or None,
        "initial_user_text": config.initial_user_text,
        "ref_audio": None if config.ref_audio is None else {"bytes": len(config.ref_audio.encode(errors="replace"))},
    }
    return {key: value for key, value in optional.items() if value is not None}


def _audio_input(config: SessionConfig, detection: Mapping[str, object] | None) -> JsonDict:
    format_ = config.input_format
    return {
        "format": {"type": MEDIA_TYPES[format_.encoding], "rate": format_.rate_hz},
        "sample_rate_hz": format_.rate_hz,
        "turn_detection": detection,
        "transcription": config.other.get("input_audio_transcription"),
        "noise_reduction": config.other.get("input_audio_noise_reduction"),
    }


def _audio_output(config: SessionConfig, facts: SessionFacts) -> JsonDict:
    rate_hz = config.output_rate_hz or facts.native_rate_hz
    return {
        "format": {"type": MEDIA_TYPES[config.output_encoding], "rate": rate_hz},
        "sample_rate_hz": rate_hz,
        "voice": config.voice,
        "speed": 1.0 if config.speed is None else config.speed,
    }


def _detection(config: SessionConfig) -> JsonDict | None:
    detection = config.turn_detection
    if detection is None:
        return None if config.ignored_turn_detection is None else dict(config.ignored_turn_detection)
    switches = {
        "create_response": detection.create_response,
        "interrupt_response": detection.interrupt_response,
    }
    return {**(_described(detection) if detection.said is None else detection.said), **switches}


def _described(detection: TurnDetection) -> JsonDict:
    return {
        "type": "server_vad",
        "threshold": detection.threshold,
        "prefix_padding_ms": _plain(detection.prefix_padding_ms),
        "silence_duration_ms": _plain(detection.silence_duration_ms),
        "min_speech_duration_ms": _plain(detection.min_speech_duration_ms),
    }


def _plain(number: float) -> float:
    """Whole numbers without a fraction, as clients write them."""
    return int(number) if number == int(number) else number
