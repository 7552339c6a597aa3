"""The client's session object to a `SessionConfig`: at the opening, and as a patch (wire contract 2.4 to 2.6, 12.4).

Owns what settings mean together and what is refused. Both functions are pure: what is refused has changed nothing.
"""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from duplex_engine.config import SessionLimits
from duplex_engine.errors import ConfigRejected, LocalProtocolError
from duplex_engine.protocol.capabilities import Capabilities
from duplex_engine.protocol.events import UNSET
from duplex_engine.protocol.formats import G711_RATE_HZ, INPUT_ENCODINGS, OUTPUT_ENCODINGS, AudioFormat, Encoding
from duplex_engine.protocol.session_detection import (
    BARGE_IN,
    LISTEN,
    couple_policy,
    given_detection,
    is_native,
    opening_detection,
    read_detection,
)
from duplex_engine.protocol.session_echo import public_session
from duplex_engine.protocol.session_fields import (
    OPENING_SETTINGS,
    OVERLAP_POLICY,
    SETTINGS,
    changes,
    declared_audio,
    stored,
)
from duplex_engine.protocol.session_values import Profile, SessionConfig, SessionFacts
from duplex_engine.protocol.sizes import ECHO_BYTES, METADATA_BYTES
from duplex_engine.protocol.wire_json import dumps

INPUT_RATE_HZ: Final = {Profile.STRICT: 16_000, Profile.GA: 24_000}
GA_OUTPUT_RATE_HZ: Final = 24_000
ECHOES: Final = 4
"""Session objects that must fit into the waiting output of one session: an opening alone says it twice."""
SMALLEST_ROOM_BYTES: Final = 64 * 1024
DEFAULT_LIMITS: Final = SessionLimits()

Json = Mapping[str, object]


def open_config(
    obj: Json,
    *,
    profile: Profile,
    capabilities: Capabilities,
    default_model: str,
    limits: SessionLimits = DEFAULT_LIMITS,
) -> SessionConfig:
    """The configuration that a session object opens a session with. Raises ConfigRejected."""
    model = obj.get("model")
    extra_body = _extra_body(obj, {})
    detection, ignored = opening_detection(obj, extra_body, profile=profile, capabilities=capabilities)
    policy, detection = couple_policy(_asked_policy(obj), detection, profile=profile)
    config = SessionConfig(
        profile=profile,
        model=model if isinstance(model, str) and model else default_model,
        native=is_native(extra_body, profile=profile, capabilities=capabilities),
        turn_detection=detection,
        ignored_turn_detection=ignored,
        overlap_policy=policy,
        input_format=AudioFormat(Encoding.PCM16, INPUT_RATE_HZ[profile]),
        extra_body=extra_body,
        other=stored(obj, {}),
        **changes(obj, SETTINGS + OPENING_SETTINGS),
    )
    return _bounded(_with_audio(config, obj), capabilities, limits)


def patch_config(
    config: SessionConfig, patch: Json, *, capabilities: Capabilities, limits: SessionLimits = DEFAULT_LIMITS
) -> SessionConfig:
    """The configuration after a `session.update`; keys that the patch omits stay. Raises ConfigRejected."""
    _refuse_fixed(config, patch)
    extra_body = _extra_body(patch, config.extra_body)
    detection, ignored = config.turn_detection, config.ignored_turn_detection
    given, param = given_detection(patch)
    if given is None:
        detection = ignored = None
    elif given is not UNSET:
        detection, ignored = read_detection(given, param, profile=config.profile, capabilities=capabilities)
    policy, detection = couple_policy(_asked_policy(patch), detection, profile=config.profile)
    after = attrs.evolve(
        config,
        native=is_native(extra_body, profile=config.profile, capabilities=capabilities),
        turn_detection=detection,
        ignored_turn_detection=ignored,
        overlap_policy=policy,
        extra_body=extra_body,
        other=stored(patch, config.other),
        **changes(patch, SETTINGS),
    )
    return _bounded(_with_audio(after, patch), capabilities, limits)


def _refuse_fixed(config: SessionConfig, patch: Json) -> None:
    model = patch.get("model")
    if config.profile is Profile.STRICT and isinstance(model, str) and model != config.model:
        raise ConfigRejected(
            "model_update_unsupported", f"this session speaks with {config.model!r}; open another one", "model"
        )
    if isinstance(patch.get("ref_audio"), str):
        raise ConfigRejected(
            "ref_audio_update_unsupported", "ref_audio is taken when a session opens; open another one", "ref_audio"
        )


def _extra_body(session: Json, before: Json) -> Json:
    given = session.get("extra_body")
    return {**before, **given} if isinstance(given, Mapping) else before


def _asked_policy(session: Json) -> str | None:
    asked: Any = changes(session, (OVERLAP_POLICY,)).get("overlap_policy")
    return None if asked is None else BARGE_IN if asked == BARGE_IN else LISTEN


def _with_audio(config: SessionConfig, session: Json) -> SessionConfig:
    output_encoding, declared_hz = _output(config, session)
    return attrs.evolve(
        config,
        input_format=_input(config, session),
        output_encoding=output_encoding,
        declared_output_rate_hz=declared_hz,
        output_rate_hz=_output_rate(config, output_encoding, declared_hz),
    )


def _input(config: SessionConfig, session: Json) -> AudioFormat:
    before = config.input_format
    encoding, rate_hz = declared_audio(
        session,
        ("input_audio_format", "audio.input.format"),
        ("sample_rate_hz", "sample_rate", "audio.input.sample_rate_hz", "audio.input.sample_rate"),
        INPUT_ENCODINGS,
    )
    encoding = encoding or before.encoding
    if rate_hz is None and encoding.telephone is not before.encoding.telephone:
        rate_hz = G711_RATE_HZ if encoding.telephone else INPUT_RATE_HZ[config.profile]
    return AudioFormat(encoding, rate_hz or before.rate_hz)


def _output(config: SessionConfig, session: Json) -> tuple[Encoding, int | None]:
    """The output encoding and the declared rate; a rate declared for a telephone is not one for the others."""
    before = config.output_encoding
    encoding, rate_hz = declared_audio(
        session,
        ("output_audio_format", "response_format", "audio.output.format"),
        ("audio.output.sample_rate_hz", "audio.output.sample_rate"),
        OUTPUT_ENCODINGS,
    )
    encoding = encoding or before
    flat = any(session.get(key) is not None for key in ("output_audio_format", "response_format"))
    if flat and encoding.telephone and config.profile is Profile.STRICT:
        return encoding, None
    if rate_hz is None and encoding.telephone is before.telephone:
        rate_hz = config.declared_output_rate_hz
    return encoding, rate_hz


def _output_rate(config: SessionConfig, encoding: Encoding, declared_hz: int | None) -> int | None:
    if encoding.telephone:
        return declared_hz or G711_RATE_HZ
    if config.profile is Profile.GA:
        return declared_hz or GA_OUTPUT_RATE_HZ
    return declared_hz if config.extra_body.get("resample_output") is True else None


def _bounded(config: SessionConfig, capabilities: Capabilities, limits: SessionLimits) -> SessionConfig:
    """What is echoed with every session object must be expressible, and fit into a frame and the session's output."""
    try:
        echo = public_session(config, SessionFacts(id=""), capabilities)
        size, metadata_size = len(dumps([[[[echo]]]])), len(dumps(config.metadata))  # as deep as inside an event
    except LocalProtocolError as error:
        raise ConfigRejected("invalid_session_config", f"the session object is {error}") from None
    room = min(max(limits.output_bytes // ECHOES, SMALLEST_ROOM_BYTES), ECHO_BYTES)
    if size > room:
        raise ConfigRejected(
            "invalid_session_config", f"the session object takes {size} bytes in every echo; the limit is {room}"
        )
    if metadata_size > METADATA_BYTES:
        raise ConfigRejected(
            "invalid_session_config", f"metadata takes {metadata_size} bytes; the limit is {METADATA_BYTES}", "metadata"
        )
    return config
