"""Who ends turns and who answers: detection, overlap policy, native sessions, in both profiles."""

import pytest
from protocol_sessions import (
    ABSENT,
    ALWAYS_ON,
    AUTO,
    CASCADE,
    DEFAULT,
    GA,
    IMPLIED,
    NATIVE,
    NESTED_NULL,
    NULL,
    SEMANTIC,
    STRICT,
    TURN,
    VAD,
    mirrored_policy,
    opened,
    patched,
)

from duplex_engine.errors import ConfigRejected
from duplex_engine.protocol.capabilities import Capabilities
from duplex_engine.protocol.session_config import (
    Profile,
    TurnDetection,
)


@pytest.mark.parametrize(
    ("capabilities", "auto_response", "strict", "ga"),
    [
        (NATIVE, None, False, True),
        (NATIVE, True, True, True),
        (NATIVE, False, False, False),
        (NATIVE, "true", False, False),
        (ALWAYS_ON, None, True, True),
        (ALWAYS_ON, False, True, True),
        (TURN, None, False, False),
        (TURN, False, False, False),
        (TURN, True, "refused", False),
        (CASCADE, True, False, False),
    ],
)
def test_native(capabilities: Capabilities, auto_response: object, strict: bool | str, ga: bool) -> None:
    obj = {} if auto_response is None else {"extra_body": {"auto_response": auto_response}}
    assert opened(obj, GA, capabilities).native is ga
    if strict == "refused":
        with pytest.raises(ConfigRejected) as caught:
            opened(obj, STRICT, capabilities)
        assert (caught.value.code, caught.value.param) == ("invalid_duplex_runtime_config", "extra_body.auto_response")
    else:
        assert opened(obj, STRICT, capabilities).native is strict


@pytest.mark.parametrize(
    ("profile", "capabilities", "obj", "detection"),
    [
        (STRICT, TURN, ABSENT, None),
        (STRICT, TURN, NULL, None),
        (STRICT, TURN, {"turn_detection": VAD}, DEFAULT),
        (STRICT, CASCADE, ABSENT, None),
        (STRICT, CASCADE, {**ABSENT, **AUTO}, IMPLIED),
        (STRICT, CASCADE, {**NULL, **AUTO}, IMPLIED),
        (STRICT, CASCADE, {**NESTED_NULL, **AUTO}, IMPLIED),
        (STRICT, CASCADE, {"turn_detection": VAD, **AUTO}, DEFAULT),
        (STRICT, NATIVE, {**ABSENT, **AUTO}, None),
        (STRICT, NATIVE, {"turn_detection": VAD, **AUTO}, DEFAULT),
        (GA, TURN, ABSENT, DEFAULT),
        (GA, TURN, NULL, None),
        (GA, TURN, NESTED_NULL, None),
        (GA, TURN, {**NULL, **AUTO}, None),
        (GA, CASCADE, {**NULL, **AUTO}, IMPLIED),
        (GA, CASCADE, {**ABSENT, **AUTO}, IMPLIED),
        (GA, NATIVE, ABSENT, None),
        (GA, NATIVE, {"turn_detection": VAD}, DEFAULT),
        (GA, NATIVE, SEMANTIC, None),
        (GA, TURN, SEMANTIC, TurnDetection(silence_duration_ms=300, said=SEMANTIC["turn_detection"])),
    ],
)
def test_opening_detection(
    profile: Profile, capabilities: Capabilities, obj: dict[str, object], detection: TurnDetection | None
) -> None:
    config = opened(obj, profile, capabilities)
    assert config.turn_detection == detection
    assert config.overlap_policy == ("listen_only" if detection is None else "barge_in_on_speech")


def test_the_nested_spelling_of_detection_wins() -> None:
    nested = {"audio": {"input": {"turn_detection": {**VAD, "threshold": 0.7}}}}
    assert opened({"turn_detection": None, **nested}).turn_detection == TurnDetection(threshold=0.7)
    assert opened({"turn_detection": VAD, "audio": {"input": {"turn_detection": None}}}).turn_detection is None
    assert opened({"turn_detection": VAD, "audio": {"input": {}}}).turn_detection == DEFAULT


@pytest.mark.parametrize(
    ("fields", "detection"),
    [
        ({"threshold": 1}, TurnDetection(threshold=1)),
        ({"threshold": 0.16}, TurnDetection(threshold=0.16)),
        ({"prefix_padding_ms": 0}, TurnDetection(prefix_padding_ms=0)),
        ({"silence_duration_ms": 0}, TurnDetection(silence_duration_ms=0)),
        ({"min_speech_duration_ms": 0}, TurnDetection(min_speech_duration_ms=32)),
        ({"min_speech_duration_ms": 200.5}, TurnDetection(min_speech_duration_ms=200.5)),
        ({"create_response": False}, TurnDetection(create_response=False)),
        ({"interrupt_response": True}, TurnDetection()),
        ({"threshold": None, "silence_duration_ms": None, "create_response": None}, TurnDetection()),
        ({"interrupt_response": None, "min_speech_duration_ms": None, "prefix_padding_ms": None}, TurnDetection()),
    ],
)
@pytest.mark.parametrize("profile", [STRICT, GA])
def test_detector_fields(fields: dict[str, object], detection: TurnDetection, profile: Profile) -> None:
    assert opened({"turn_detection": {**VAD, **fields}}, profile).turn_detection == detection


@pytest.mark.parametrize(
    ("value", "param"),
    [
        (5, ""),
        ("server_vad", ""),
        ([], ""),
        (False, ""),
        ({}, ".type"),
        ({"type": "none"}, ".type"),
        ({"type": ["server_vad"]}, ".type"),
        ({**VAD, "threshold": 0.15}, ".threshold"),
        ({**VAD, "threshold": 1.01}, ".threshold"),
        ({**VAD, "threshold": True}, ".threshold"),
        ({**VAD, "threshold": "0.5"}, ".threshold"),
        ({**VAD, "prefix_padding_ms": -1}, ".prefix_padding_ms"),
        ({**VAD, "silence_duration_ms": -0.5}, ".silence_duration_ms"),
        ({**VAD, "min_speech_duration_ms": []}, ".min_speech_duration_ms"),
        ({**VAD, "create_response": 1}, ".create_response"),
        ({**VAD, "interrupt_response": "no"}, ".interrupt_response"),
    ],
)
@pytest.mark.parametrize("profile", [STRICT, GA])
@pytest.mark.parametrize("nested", [True, False])
def test_unsupported_detection(value: object, param: str, profile: Profile, nested: bool) -> None:
    obj = {"audio": {"input": {"turn_detection": value}}} if nested else {"turn_detection": value}
    path = ("audio.input.turn_detection" if nested else "turn_detection") + param
    before = opened({}, profile)
    with pytest.raises(ConfigRejected) as at_opening:
        opened(obj, profile)
    with pytest.raises(ConfigRejected) as in_patch:
        patched(before, obj)
    for caught in (at_opening, in_patch):
        assert (caught.value.code, caught.value.param) == ("unsupported_turn_detection", path)


@pytest.mark.parametrize(
    "value",
    [
        {"type": "semantic_vad"},
        {**VAD, "idle_timeout_ms": 5000},
        {**VAD, "extra": 1},
        {**VAD, "interrupt_response": False},
    ],
)
def test_what_ga_takes_and_strict_refuses(value: dict[str, object]) -> None:
    assert opened({"turn_detection": value}, GA).turn_detection is not None
    with pytest.raises(ConfigRejected) as caught:
        opened({"turn_detection": value})
    assert caught.value.code == "unsupported_turn_detection"


@pytest.mark.parametrize(
    ("eagerness", "silence_ms"),
    [("low", 800), ("medium", 500), ("auto", 500), ("high", 300), (None, 500), ("other", 500), ([], 500)],
)
def test_semantic_detection_by_silence(eagerness: object, silence_ms: float) -> None:
    said = {"type": "semantic_vad", "eagerness": eagerness, "create_response": False, "interrupt_response": False}
    config = opened({"audio": {"input": {"turn_detection": said}}}, GA)
    assert config.turn_detection == TurnDetection(
        silence_duration_ms=silence_ms, create_response=False, interrupt_response=False, said=said
    )
    assert config.overlap_policy == "listen_only"


@pytest.mark.parametrize(
    ("profile", "obj", "policy", "interrupts"),
    [
        (STRICT, {"overlap_policy": "listen_only"}, "listen_only", None),
        (STRICT, {"overlap_policy": "whatever"}, "listen_only", None),
        (STRICT, {"overlap_policy": 5}, "listen_only", None),
        (STRICT, {"overlap_policy": "barge_in_on_speech", "turn_detection": VAD}, "barge_in_on_speech", True),
        (STRICT, {"overlap_policy": "barge_in_on_speech"}, "refused", None),
        (STRICT, {"overlap_policy": "listen_only", "turn_detection": VAD}, "refused", None),
        (STRICT, {"overlap_policy": "whatever", "turn_detection": VAD}, "refused", None),
        (STRICT, mirrored_policy("barge_in_on_speech"), "refused", None),
        (
            STRICT,
            {"overlap_policy": "listen_only", **mirrored_policy("barge_in_on_speech"), "turn_detection": VAD},
            "barge_in_on_speech",
            True,
        ),
        (STRICT, {"overlap_policy": "listen_only", **NULL, **AUTO}, "listen_only", False),
        (STRICT, {"overlap_policy": "barge_in_on_speech", **NULL, **AUTO}, "barge_in_on_speech", True),
        (GA, {"overlap_policy": "listen_only", "turn_detection": VAD}, "listen_only", False),
        (GA, {"overlap_policy": "barge_in_on_speech", "turn_detection": None}, "listen_only", None),
        (GA, {"turn_detection": {**VAD, "interrupt_response": False}}, "listen_only", False),
    ],
)  # fmt: skip
def test_overlap_policy(profile: Profile, obj: dict[str, object], policy: str, interrupts: bool | None) -> None:
    if policy == "refused":
        with pytest.raises(ConfigRejected) as caught:
            opened(obj, profile, CASCADE)
        assert (caught.value.code, caught.value.param) == ("unsupported_turn_detection", "overlap_policy")
        return
    config = opened(obj, profile, CASCADE)
    assert config.overlap_policy == policy
    assert (config.turn_detection and config.turn_detection.interrupt_response) == interrupts
