"""Who ends the user's turn: `turn_detection`, `overlap_policy` and `auto_response` (wire contract 2.5, 6.1, 6.2, 12.4).

Owns what a detector description may say and how it is coupled with the overlap policy. Never hears anything.
"""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from duplex_engine.errors import ConfigRejected
from duplex_engine.protocol.capabilities import Capabilities
from duplex_engine.protocol.events import UNSET
from duplex_engine.protocol.fields import at, is_number, shown
from duplex_engine.protocol.session_values import Profile, TurnDetection

LISTEN: Final = "listen_only"
BARGE_IN: Final = "barge_in_on_speech"

MIN_THRESHOLD: Final = 0.15
SHORTEST_SPEECH_MS: Final = 32.0
IMPLIED_SILENCE_MS: Final = 450.0
"""Silence that ends a turn for a model's own detector; a detector the client describes defaults to 500."""
SEMANTIC_SILENCE_MS: Final = {"low": 800.0, "medium": 500.0, "auto": 500.0, "high": 300.0}
"""`semantic_vad` as silence: the less eager, the longer."""

DURATIONS: Final = ("prefix_padding_ms", "silence_duration_ms", "min_speech_duration_ms")
SWITCHES: Final = ("create_response", "interrupt_response")
KNOWN: Final = frozenset({"type", "threshold", *DURATIONS, *SWITCHES})

Json = Mapping[str, object]


def given_detection(session: Json) -> tuple[object, str]:
    """What a session object says about detection (UNSET, None or anything), and where; the nested spelling wins."""
    nested = at(session, "audio.input.turn_detection")
    if nested is not UNSET:
        return nested, "audio.input.turn_detection"
    return session.get("turn_detection", UNSET), "turn_detection"


def is_native(extra_body: Json, *, profile: Profile, capabilities: Capabilities) -> bool:
    """Whether the model itself starts answers (D-26). Raises ConfigRejected where it cannot and was asked to."""
    asked = extra_body.get("auto_response")
    if capabilities.native:
        return not capabilities.client_commit or asked is True or (asked is None and profile is Profile.GA)
    if asked is True and profile is Profile.STRICT and not capabilities.detects_turns:
        raise ConfigRejected(
            "invalid_duplex_runtime_config",
            "this model answers committed turns only; leave auto_response out and commit, or use turn_detection",
            "extra_body.auto_response",
        )
    return False


def opening_detection(
    session: Json, extra_body: Json, *, profile: Profile, capabilities: Capabilities
) -> tuple[TurnDetection | None, Json | None]:
    """The detector a session starts with, and a description that has no effect. Raises ConfigRejected."""
    value, param = given_detection(session)
    if value is not UNSET and value is not None:
        return read_detection(value, param, profile=profile, capabilities=capabilities)
    if capabilities.native:
        return None, None
    if capabilities.detects_turns and extra_body.get("auto_response") is True:
        return TurnDetection(silence_duration_ms=IMPLIED_SILENCE_MS, implied=True), None
    if value is UNSET and profile is Profile.GA:
        return TurnDetection(), None
    return None, None


def read_detection(
    value: object, param: str, *, profile: Profile, capabilities: Capabilities
) -> tuple[TurnDetection | None, Json | None]:
    """A detector description, or None and the description where it has no effect. Raises ConfigRejected."""
    if not isinstance(value, Mapping):
        raise _refused(param, "an object or null", value)
    lenient = profile is Profile.GA
    if lenient and value.get("type") == "semantic_vad":
        if capabilities.native:
            return None, dict(value)
        eagerness = value.get("eagerness")
        silence_ms = SEMANTIC_SILENCE_MS.get(eagerness if isinstance(eagerness, str) else "auto", 500.0)
        return TurnDetection(silence_duration_ms=silence_ms, said=dict(value), **_switches(value, param, lenient)), None
    if value.get("type") != "server_vad":
        raise _refused(f"{param}.type", "server_vad", value.get("type"))
    unknown = sorted(key for key in value if key not in KNOWN)
    if unknown and not lenient:
        raise ConfigRejected(
            "unsupported_turn_detection", f"{param} has no field {shown(unknown[0])}", f"{param}.{unknown[0]}"[:200]
        )
    return TurnDetection(**_numbers(value, param), **_switches(value, param, lenient)), None


def couple_policy(
    asked: str | None, detection: TurnDetection | None, *, profile: Profile
) -> tuple[str, TurnDetection | None]:
    """The overlap policy in force, and the detector as it then is; `asked` is the client's word, if any.

    Detection means that speech interrupts, no detection that it does not. In `strict` a contradiction is refused, but
    for a detector the client did not describe: it then only ends turns.
    """
    strict = profile is Profile.STRICT
    if detection is None:
        if asked == BARGE_IN and strict:
            raise ConfigRejected(
                "unsupported_turn_detection", f"{BARGE_IN} needs turn_detection of type server_vad", "overlap_policy"
            )
        return LISTEN, None
    if asked == LISTEN and strict and not detection.implied:
        raise ConfigRejected(
            "unsupported_turn_detection", f"{LISTEN} contradicts turn_detection; set one of the two", "overlap_policy"
        )
    if asked == LISTEN or (asked == BARGE_IN and detection.implied):
        detection = attrs.evolve(detection, interrupt_response=asked == BARGE_IN)
    return (BARGE_IN if detection.interrupt_response else LISTEN), detection


def _numbers(value: Json, param: str) -> dict[str, Any]:
    given: dict[str, Any] = {}
    threshold = value.get("threshold")
    if threshold is not None:
        if not is_number(threshold) or not MIN_THRESHOLD < threshold <= 1:
            raise _refused(f"{param}.threshold", f"a number above {MIN_THRESHOLD} and up to 1", threshold)
        given["threshold"] = threshold
    for key in DURATIONS:
        duration = value.get(key)
        if duration is not None:
            if not is_number(duration) or duration < 0:
                raise _refused(f"{param}.{key}", "a number of at least 0", duration)
            given[key] = max(duration, SHORTEST_SPEECH_MS) if key == "min_speech_duration_ms" else duration
    return given


def _switches(value: Json, param: str, lenient: bool) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for key in SWITCHES:
        switch = value.get(key)
        if switch is None:
            continue
        if not isinstance(switch, bool):
            raise _refused(f"{param}.{key}", "true or false", switch)
        if key == "interrupt_response" and not switch and not lenient:
            raise _refused(f"{param}.{key}", "true", switch)
        given[key] = switch
    return given


def _refused(param: str, expected: str, value: object) -> ConfigRejected:
    return ConfigRejected("unsupported_turn_detection", f"{param} must be {expected}, not {shown(value)}", param)
