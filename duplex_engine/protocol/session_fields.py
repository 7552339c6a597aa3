"""The session object field by field: where each setting is written, what it may be, what null does (wire contract 2.4).

Owns the table. A value of the wrong type counts as not given, except for audio formats, which are errors. Never decides
what settings mean together.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from duplex_engine.errors import ConfigRejected, ProtocolViolation
from duplex_engine.protocol.events import UNSET
from duplex_engine.protocol.fields import MODALITIES, at, declared_format, is_name, is_number, sample_rate
from duplex_engine.protocol.formats import Encoding
from duplex_engine.protocol.session_values import DEFAULT_IDLE_TIMEOUT_S, PlaybackPolicy

Json = Mapping[str, object]
Read = Callable[[object], object]

ENDLESS: Final = frozenset({"inf", "infinity", "unlimited"})


@attrs.frozen
class Setting:
    """A setting: its name in `SessionConfig`, and its spellings, the first one given with a right value wins.

    `read` returns UNSET for a value of the wrong type. `reset`: what null makes of it; UNSET: null changes nothing.
    """

    name: str
    paths: tuple[str, ...]
    read: Read
    reset: object = UNSET


def _text(value: object) -> object:
    return value if isinstance(value, str) else UNSET


def _texts(value: object) -> object:
    fits = isinstance(value, list | tuple) and 0 < len(value) <= MODALITIES and all(map(is_name, value))
    return tuple(value) if fits else UNSET  # type: ignore[arg-type]


def _objects(value: object) -> object:
    fits = isinstance(value, list | tuple) and all(isinstance(entry, Mapping) for entry in value)
    return tuple(value) if fits else UNSET  # type: ignore[arg-type]


def _object(value: object) -> object:
    return value if isinstance(value, Mapping) else UNSET


def _list(value: object) -> object:
    return value if isinstance(value, list) else UNSET


def _text_or_object(value: object) -> object:
    return value if isinstance(value, str | Mapping) else UNSET


def _number(value: object) -> object:
    return value if is_number(value) else UNSET


def _from_zero(value: object) -> object:
    return max(value, 0) if is_number(value) else UNSET


def _above_zero(value: object) -> object:
    return value if is_number(value) and value > 0 else UNSET


def _idle_timeout(value: object) -> object:
    if not is_number(value):
        return UNSET
    return value if value > 0 else DEFAULT_IDLE_TIMEOUT_S


def _token_limit(value: object) -> object:
    if isinstance(value, str):
        return None if value.lower() in ENDLESS else UNSET
    return value if type(value) is int and value > 0 else UNSET


def _playback_policy(value: object) -> object:
    if not isinstance(value, str):
        return UNSET
    return PlaybackPolicy.ACK_ONLY if value == "ack_only" else PlaybackPolicy.COMMIT_ALL_ON_DONE


def _mirrored(name: str) -> tuple[str, str]:
    return f"extra_body.{name}", name


SETTINGS: Final = (
    Setting("modalities", ("modalities", "output_modalities"), _texts),
    Setting("instructions", ("instructions",), _text),
    Setting("voice", ("voice", "audio.output.voice"), _text),
    Setting("temperature", ("temperature",), _number, None),
    Setting(
        "max_response_output_tokens",
        ("max_response_output_tokens", "max_output_tokens", "max_tokens"),
        _token_limit,
        None,
    ),
    Setting("speed", ("speed", "audio.output.speed"), _above_zero, None),
    Setting("idle_timeout_s", ("idle_timeout_s",), _idle_timeout, DEFAULT_IDLE_TIMEOUT_S),
    Setting("overlap_short_ack_ms", _mirrored("overlap_short_ack_ms"), _from_zero),
    Setting("overlap_barge_in_ms", _mirrored("overlap_barge_in_ms"), _from_zero),
    Setting("overlap_silence_rms", _mirrored("overlap_silence_rms"), _from_zero),
    Setting("playback_policy", _mirrored("playback_commit_policy"), _playback_policy),
    Setting("tools", ("tools",), _objects, ()),
    Setting("tool_choice", ("tool_choice",), _text_or_object, None),
    Setting("metadata", ("metadata",), _object, {}),
)
"""Settings that may come and change on their own."""

OPENING_SETTINGS: Final = (
    Setting("initial_user_text", ("initial_user_text",), _text),
    Setting("ref_audio", ("ref_audio",), _text),
)
"""Settings of the opening object alone."""

OVERLAP_POLICY: Final = Setting("overlap_policy", _mirrored("overlap_policy"), _text)

STORED: Final = (
    Setting("include", ("include",), _list, None),
    Setting("prompt", ("prompt",), _object, None),
    Setting("tracing", ("tracing",), _text_or_object, None),
    Setting("truncation", ("truncation",), _text_or_object, None),
    Setting("input_audio_transcription", ("input_audio_transcription", "audio.input.transcription"), _object, None),
    Setting(
        "input_audio_noise_reduction", ("input_audio_noise_reduction", "audio.input.noise_reduction"), _object, None
    ),
)
"""Settings that are kept and echoed, and mean nothing here."""

READ_ELSEWHERE: Final = frozenset(
    {
        "model",
        "audio",
        "input_audio_format",
        "sample_rate_hz",
        "sample_rate",
        "output_audio_format",
        "response_format",
        "turn_detection",
        "extra_body",
    }
)
SERVER_OWNED: Final = frozenset(
    {
        "id",
        "session_id",
        "object",
        "type",
        "state",
        "turn_state",
        "turn_id",
        "epoch",
        "capabilities",
        "playback",
        "active_request_id",
        "active_response_id",
        "active_response_turn_id",
        "resume_token",
        "attachment_generation",
        "incarnation",
        "event_id",
    }
)
"""Keys that a client cannot set and never gets echoed (D-05, D-32)."""

KNOWN: Final = (
    READ_ELSEWHERE
    | SERVER_OWNED
    | {path for setting in (*SETTINGS, *OPENING_SETTINGS, *STORED, OVERLAP_POLICY) for path in setting.paths}
)


def changes(session: Json, settings: tuple[Setting, ...]) -> dict[str, Any]:
    """The settings that a session object gives, by name."""
    values = ((setting.name, _value(session, setting)) for setting in settings)
    return {name: value for name, value in values if value is not UNSET}


def stored(session: Json, before: Json) -> Json:
    """The keys that are kept for the echo alone, after this object; null removes one."""
    unknown = {key: value for key, value in session.items() if key not in KNOWN}
    after = {**before, **changes(session, STORED), **unknown}
    return {key: value for key, value in after.items() if value is not None}


def _value(session: Json, setting: Setting) -> object:
    value: object = UNSET
    for path in setting.paths:
        given = at(session, path)
        if given is None:
            value = setting.reset
        elif given is not UNSET and (right := setting.read(given)) is not UNSET:
            return right
    return value


def declared_audio(
    session: Json, formats: tuple[str, ...], rates: tuple[str, ...], allowed: frozenset[Encoding]
) -> tuple[Encoding | None, int | None]:
    """The encoding and the rate in Hz that a session object declares for one direction, None where it does not.

    `rates` come before the rates inside the formats. Raises ConfigRejected `unsupported_audio_format`.
    """
    encoding: Encoding | None = None
    beside: list[tuple[object, str]] = []
    try:
        for path in formats:
            value = at(session, path)
            named, rate, rate_path = declared_format(None if value is UNSET else value, allowed=allowed, param=path)
            encoding = encoding or named
            beside.append((rate, rate_path))
        for rate, path in [(at(session, path), path) for path in rates] + beside:
            if is_number(rate) and rate > 0:
                return encoding, sample_rate(rate, path)
    except ProtocolViolation as violation:
        raise ConfigRejected("unsupported_audio_format", violation.message, violation.param) from None
    return encoding, None
