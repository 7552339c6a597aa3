"""What a `session.update` changes, what it cannot change, and that nothing else can happen."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_sessions import (
    ALWAYS_ON,
    AUTO,
    CASCADE,
    DUPLEX_CLIENT,
    FACTS,
    GA,
    IMPLIED,
    NATIVE,
    RICH,
    SEMANTIC,
    STRICT,
    TURN,
    VAD,
    echo,
    opened,
    patched,
)

from duplex_engine.config import SessionLimits
from duplex_engine.errors import ConfigRejected
from duplex_engine.protocol.capabilities import Capabilities
from duplex_engine.protocol.formats import AudioFormat, Encoding
from duplex_engine.protocol.session_config import (
    PlaybackPolicy,
    Profile,
    SessionConfig,
    TurnDetection,
    open_config,
    patch_config,
    public_session,
)


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({}, {}),
        ({"instructions": "Be brief."}, {"instructions": "Be brief."}),
        ({"instructions": None, "voice": None, "modalities": None}, {}),
        ({"temperature": None}, {"temperature": None}),
        ({"max_tokens": None}, {"max_response_output_tokens": None}),
        ({"max_tokens": "inf"}, {"max_response_output_tokens": None}),
        ({"speed": None, "idle_timeout_s": None}, {"speed": None, "idle_timeout_s": 300}),
        ({"tools": None, "tool_choice": None}, {"tools": (), "tool_choice": None}),
        ({"metadata": None}, {"metadata": {}}),
        ({"extra_body": {"b": 3, "c": 4}}, {"extra_body": {"a": 1, "b": 3, "c": 4}}),
        ({"extra_body": None}, {}),
        ({"turn_detection": None}, {"turn_detection": None, "overlap_policy": "listen_only"}),
        ({"turn_detection": {**VAD, "threshold": 0.9}}, {"turn_detection": TurnDetection(threshold=0.9)}),
        ({"overlap_policy": "barge_in_on_speech"}, {}),
        ({"input_audio_format": "ulaw"}, {"input_format": AudioFormat(Encoding.ULAW, 8000)}),
        ({"sample_rate_hz": 48000}, {"input_format": AudioFormat(Encoding.PCM16, 48000)}),
        ({"input_audio_format": "f32le"}, {"input_format": AudioFormat(Encoding.F32, 8000)}),
        ({"playback_commit_policy": "ack_only"}, {"playback_policy": PlaybackPolicy.ACK_ONLY}),
        ({"initial_user_text": "late", "ref_audio": None, "model": "served"}, {}),
        ({"session_id": "x", "type": "realtime"}, {}),
    ],
)
def test_patches(patch: dict[str, object], expected: dict[str, Any]) -> None:
    before = opened(RICH)
    assert patched(before, patch) == attrs.evolve(before, **expected)


@pytest.mark.parametrize(
    "key",
    ["include", "prompt", "tracing", "input_audio_transcription", "input_audio_noise_reduction", "anything"],
)
def test_null_clears_stored_keys(key: str) -> None:
    before = opened(RICH)
    after = patched(before, {key: None})
    assert dict(after.other) == {name: value for name, value in before.other.items() if name != key}


def test_telephone_rates_do_not_outlive_the_telephone() -> None:
    telephone = opened({"input_audio_format": "g711_ulaw", "output_audio_format": "g711_ulaw"}, GA)
    plain = patched(telephone, {"input_audio_format": "pcm16", "output_audio_format": "pcm16"})
    assert plain.input_format == AudioFormat(Encoding.PCM16, 24000)
    assert plain.output_rate_hz == 24000
    declared = opened({"audio": {"output": {"format": {"type": "audio/pcm", "rate": 16000}}}}, GA)
    assert declared.output_rate_hz == 16000
    assert patched(declared, {"audio": {"output": {"format": {"type": "audio/pcmu"}}}}).output_rate_hz == 8000
    assert patched(declared, {"voice": "v"}).output_rate_hz == 16000


def test_a_declared_output_rate_comes_into_force_when_asked_for() -> None:
    config = opened(DUPLEX_CLIENT, capabilities=CASCADE)
    assert config.output_rate_hz is None
    assert patched(config, {"extra_body": {"resample_output": True}}, CASCADE).output_rate_hz == 24000


def test_what_a_patch_cannot_change() -> None:
    config = opened({"model": "m"})
    for patch, code, param in (
        ({"model": "other"}, "model_update_unsupported", "model"),
        ({"ref_audio": "data:x"}, "ref_audio_update_unsupported", "ref_audio"),
        ({"overlap_policy": "barge_in_on_speech"}, "unsupported_turn_detection", "overlap_policy"),
        (AUTO, "invalid_duplex_runtime_config", "extra_body.auto_response"),
    ):
        with pytest.raises(ConfigRejected) as caught:
            patched(config, patch)
        assert (caught.value.code, caught.value.param) == (code, param)


def test_ga_ignores_another_model_name() -> None:
    assert patched(opened({"model": "m"}, GA), {"model": "gpt-realtime"}).model == "m"


def test_null_detection_in_a_patch_is_push_to_talk() -> None:
    config = opened(DUPLEX_CLIENT, capabilities=CASCADE)
    assert config.turn_detection == IMPLIED
    assert patched(config, {"voice": "v"}, CASCADE).turn_detection == IMPLIED
    assert patched(config, {"turn_detection": None}, CASCADE).turn_detection is None
    quiet = patched(config, {"overlap_policy": "listen_only"}, CASCADE)
    assert quiet.turn_detection == attrs.evolve(IMPLIED, interrupt_response=False)
    assert patched(quiet, {"overlap_policy": "barge_in_on_speech"}, CASCADE).turn_detection == IMPLIED


def test_semantic_detection_on_a_native_model_is_echoed_until_it_is_replaced() -> None:
    config = opened(SEMANTIC, GA, NATIVE)
    assert echo(config)["audio"]["input"]["turn_detection"] == SEMANTIC["turn_detection"]
    assert echo(patched(config, {"voice": "v"}, NATIVE))["turn_detection"] == SEMANTIC["turn_detection"]
    assert echo(patched(config, {"turn_detection": None}, NATIVE))["turn_detection"] is None


def test_the_session_object_must_fit_its_echoes() -> None:
    limits = SessionLimits(output_bytes=800_000)
    big = {"instructions": "x" * 224_000}
    refused: list[Callable[[], SessionConfig]] = [
        lambda: open_config(big, profile=STRICT, capabilities=TURN, default_model="m", limits=limits),
        lambda: patch_config(SessionConfig(), big, capabilities=TURN, limits=limits),
        lambda: opened({"anything": "\ud800"}),
    ]
    for make in refused:
        with pytest.raises(ConfigRejected) as caught:
            make()
        assert caught.value.code == "invalid_session_config"
    assert opened({"ref_audio": "x" * 2_000_000}).ref_audio is not None
    assert opened({**big, "extra_body": {"x": "y" * 2_000_000}}).instructions is not None


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
JSON = st.recursive(
    SCALARS | st.sampled_from(["server_vad", "semantic_vad", "pcm"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def objects(*keys: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(keys), JSON)


STRUCTURED = st.fixed_dictionaries(
    {},
    optional={
        "turn_detection": objects("type", "threshold", "silence_duration_ms", "create_response", "eagerness"),
        "audio": st.fixed_dictionaries(
            {},
            optional={
                "input": objects("format", "sample_rate_hz", "turn_detection", "transcription"),
                "output": objects("format", "sample_rate_hz", "voice", "speed"),
            },
        ),
        "extra_body": objects("auto_response", "overlap_policy", "resample_output", "x"),
    },
)
SESSIONS = st.builds(
    lambda plain, structured: {**plain, **structured},
    objects(*RICH, *DUPLEX_CLIENT, "ref_audio", "overlap_policy", "output_modalities", "id", "x"),
    STRUCTURED,
)


def outcome(change: Callable[[], SessionConfig]) -> SessionConfig | None:
    try:
        return change()
    except ConfigRejected:
        return None


@given(SESSIONS, SESSIONS, st.sampled_from([STRICT, GA]), st.sampled_from([TURN, CASCADE, NATIVE, ALWAYS_ON]))
def test_any_object_is_a_configuration_or_rejected(
    obj: dict[str, object], patch: dict[str, object], profile: Profile, capabilities: Capabilities
) -> None:
    before = outcome(lambda: opened(obj, profile, capabilities)) or opened({}, profile, capabilities)
    after = outcome(lambda: patched(before, patch, capabilities)) or before
    assert patched(after, {}, capabilities) == after
    for config in (before, after):
        session = public_session(config, FACTS, capabilities)
        assert session["id"] == FACTS.id
        assert 8_000 <= config.input_format.rate_hz <= 192_000
