"""What each field of a session object does, and which audio is refused."""

import attrs
import pytest
from protocol_sessions import (
    GA,
    STORED,
    STRICT,
    input_rate,
    opened,
    output_rate,
    patched,
)

from duplex_engine.errors import ConfigRejected
from duplex_engine.protocol.formats import AudioFormat, Encoding
from duplex_engine.protocol.session_config import (
    PlaybackPolicy,
    Profile,
)


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        ({}, {"model": "served"}),
        ({"model": "m"}, {"model": "m"}),
        ({"model": ""}, {"model": "served"}),
        ({"model": 5}, {"model": "served"}),
        ({"modalities": ["text"]}, {"modalities": ("text",)}),
        ({"output_modalities": ["audio"]}, {"modalities": ("audio",)}),
        ({"modalities": None, "output_modalities": ["text"]}, {"modalities": ("text",)}),
        ({"modalities": "text"}, {"modalities": ("text", "audio")}),
        ({"modalities": []}, {"modalities": ("text", "audio")}),
        ({"instructions": "Be kind."}, {"instructions": "Be kind."}),
        ({"instructions": 5}, {"instructions": None}),
        ({"initial_user_text": "Hello"}, {"initial_user_text": "Hello"}),
        ({"voice": "a", "audio": {"output": {"voice": "b"}}}, {"voice": "a"}),
        ({"audio": {"output": {"voice": "b"}}}, {"voice": "b"}),
        ({"ref_audio": "data:x"}, {"ref_audio": "data:x"}),
        ({"temperature": 0.5}, {"temperature": 0.5}),
        ({"temperature": True}, {"temperature": None}),
        ({"temperature": "hot"}, {"temperature": None}),
        ({"max_response_output_tokens": 9}, {"max_response_output_tokens": 9}),
        ({"max_output_tokens": 9}, {"max_response_output_tokens": 9}),
        ({"max_tokens": 9}, {"max_response_output_tokens": 9}),
        ({"max_output_tokens": "inf"}, {"max_response_output_tokens": None}),
        ({"max_output_tokens": "Unlimited", "max_tokens": 5}, {"max_response_output_tokens": None}),
        ({"max_output_tokens": 0, "max_tokens": 5}, {"max_response_output_tokens": 5}),
        ({"max_tokens": True}, {"max_response_output_tokens": None}),
        ({"speed": 1.5}, {"speed": 1.5}),
        ({"audio": {"output": {"speed": 0.8}}}, {"speed": 0.8}),
        ({"speed": 0}, {"speed": None}),
        ({"idle_timeout_s": 20}, {"idle_timeout_s": 20}),
        ({"idle_timeout_s": 0}, {"idle_timeout_s": 300}),
        ({"idle_timeout_s": -5}, {"idle_timeout_s": 300}),
        ({"idle_timeout_s": None}, {"idle_timeout_s": 300}),
        ({"overlap_short_ack_ms": 0}, {"overlap_short_ack_ms": 0}),
        ({"overlap_short_ack_ms": -1}, {"overlap_short_ack_ms": 0}),
        ({"overlap_short_ack_ms": 5, "extra_body": {"overlap_short_ack_ms": 6}}, {"overlap_short_ack_ms": 6}),
        ({"overlap_barge_in_ms": 1000}, {"overlap_barge_in_ms": 1000}),
        ({"overlap_silence_rms": 0.5}, {"overlap_silence_rms": 0.5}),
        ({"playback_commit_policy": "ack_only"}, {"playback_policy": PlaybackPolicy.ACK_ONLY}),
        ({"playback_commit_policy": "other"}, {"playback_policy": PlaybackPolicy.COMMIT_ALL_ON_DONE}),
        ({"playback_commit_policy": 5}, {"playback_policy": PlaybackPolicy.ADAPTIVE}),
        ({"extra_body": {"playback_commit_policy": "ack_only"}}, {"playback_policy": PlaybackPolicy.ACK_ONLY}),
        ({"tools": [{"type": "function"}]}, {"tools": ({"type": "function"},)}),
        ({"tools": ["function"]}, {"tools": ()}),
        ({"tool_choice": "auto"}, {"tool_choice": "auto"}),
        ({"tool_choice": 5}, {"tool_choice": None}),
        ({"metadata": {"a": "b"}}, {"metadata": {"a": "b"}}),
        ({"metadata": []}, {"metadata": {}}),
        ({"extra_body": {"a": 1}}, {"extra_body": {"a": 1}}),
        ({"extra_body": 5}, {"extra_body": {}}),
        (STORED, {"other": STORED}),
        ({"include": 5, "prompt": "p", "tracing": []}, {"other": {}}),
        ({"truncation": "disabled"}, {"other": {"truncation": "disabled"}}),
        ({"audio": {"input": {"transcription": {"a": 1}}}}, {"other": {"input_audio_transcription": {"a": 1}}}),
        ({"input_audio_noise_reduction": {"type": "n"}}, {"other": {"input_audio_noise_reduction": {"type": "n"}}}),
        ({"anything": [1], "use_tts_template": False}, {"other": {"anything": [1], "use_tts_template": False}}),
        ({"anything": None}, {"other": {}}),
        ({"id": "x", "session_id": "x", "object": "x", "type": "x", "epoch": 9, "resume_token": "x"}, {"other": {}}),
    ],
)  # fmt: skip
def test_fields(obj: dict[str, object], expected: dict[str, object]) -> None:
    config = opened(obj)
    assert {name: getattr(config, name) for name in expected} == expected
    assert attrs.evolve(config, **{name: getattr(opened({}), name) for name in [*expected, "extra_body"]}) == opened({})


@pytest.mark.parametrize(
    ("obj", "strict", "ga"),
    [
        ({}, ("pcm16", 16000), ("pcm16", 24000)),
        ({"input_audio_format": "PCM_F32LE"}, ("pcm_f32le", 16000), ("pcm_f32le", 24000)),
        ({"input_audio_format": "g711_ulaw"}, ("g711_ulaw", 8000), ("g711_ulaw", 8000)),
        ({"audio": {"input": {"format": {"type": "audio/pcma"}}}}, ("g711_alaw", 8000), ("g711_alaw", 8000)),
        ({"input_audio_format": "ulaw", "sample_rate_hz": 16000}, ("g711_ulaw", 16000), ("g711_ulaw", 16000)),
        ({"sample_rate_hz": 48000}, ("pcm16", 48000), ("pcm16", 48000)),
        ({"sample_rate": 44100.0}, ("pcm16", 44100), ("pcm16", 44100)),
        (input_rate(8000), ("pcm16", 8000), ("pcm16", 8000)),
        ({"audio": {"input": {"sample_rate": 8000}}}, ("pcm16", 8000), ("pcm16", 8000)),
        ({"audio": {"input": {"format": {"type": "audio/pcm", "rate": 32000}}}}, ("pcm16", 32000), ("pcm16", 32000)),
        ({"input_audio_format": {"rate": 9000}, **input_rate(8000)}, ("pcm16", 8000), ("pcm16", 8000)),
        ({"input_audio_format": {"type": "pcm", "rate": 9000}}, ("pcm16", 9000), ("pcm16", 9000)),
        ({"sample_rate_hz": 8000, "sample_rate": 9000, **input_rate(10000)}, ("pcm16", 8000), ("pcm16", 8000)),
        ({"sample_rate": 9000, **input_rate(10000)}, ("pcm16", 9000), ("pcm16", 9000)),
        ({"sample_rate_hz": "x", "sample_rate": 9000}, ("pcm16", 9000), ("pcm16", 9000)),
        ({"sample_rate_hz": 0}, ("pcm16", 16000), ("pcm16", 24000)),
        ({"sample_rate_hz": True}, ("pcm16", 16000), ("pcm16", 24000)),
        (
            {"input_audio_format": "f32le", "audio": {"input": {"format": {"type": "ulaw"}}}},
            ("pcm_f32le", 16000),
            ("pcm_f32le", 24000),
        ),
    ],
)  # fmt: skip
def test_input_format(obj: dict[str, object], strict: tuple[str, int], ga: tuple[str, int]) -> None:
    for profile, (name, rate_hz) in ((STRICT, strict), (GA, ga)):
        assert opened(obj, profile).input_format == AudioFormat(Encoding(name), rate_hz)


RESAMPLE = {"extra_body": {"resample_output": True}}


@pytest.mark.parametrize(
    ("obj", "encoding", "strict", "ga"),
    [
        ({}, "pcm16", None, 24000),
        ({"output_audio_format": "wav"}, "wav", None, 24000),
        ({"response_format": "pcm"}, "pcm16", None, 24000),
        (output_rate(16000), "pcm16", None, 16000),
        ({**output_rate(16000), **RESAMPLE}, "pcm16", 16000, 16000),
        ({"audio": {"output": {"format": {"type": "audio/pcm", "rate": 48000}}}, **RESAMPLE}, "pcm16", 48000, 48000),
        ({"output_audio_format": "pcm16", **output_rate(16000), **RESAMPLE}, "pcm16", 16000, 16000),
        (RESAMPLE, "pcm16", None, 24000),
        ({"output_audio_format": "g711_ulaw"}, "g711_ulaw", 8000, 8000),
        ({"audio": {"output": {"format": {"type": "audio/pcmu"}, "sample_rate_hz": 9000}}}, "g711_ulaw", 9000, 9000),
        ({"output_audio_format": "g711_alaw", **output_rate(16000)}, "g711_alaw", 8000, 16000),
    ],
)  # fmt: skip
def test_output_format(obj: dict[str, object], encoding: str, strict: int | None, ga: int) -> None:
    for profile, rate_hz in ((STRICT, strict), (GA, ga)):
        config = opened(obj, profile)
        assert (config.output_encoding.value, config.output_rate_hz) == (encoding, rate_hz)


@pytest.mark.parametrize(
    ("obj", "param"),
    [
        ({"input_audio_format": "opus"}, "input_audio_format"),
        ({"input_audio_format": "wav"}, "input_audio_format"),
        ({"input_audio_format": 5}, "input_audio_format"),
        ({"audio": {"input": {"format": {"type": "opus"}}}}, "audio.input.format.type"),
        ({"output_audio_format": "pcm_f32le"}, "output_audio_format"),
        ({"response_format": "json"}, "response_format"),
        ({"audio": {"output": {"format": "mp3"}}}, "audio.output.format"),
        ({"sample_rate_hz": 4000}, "sample_rate_hz"),
        ({"sample_rate_hz": 16000.5}, "sample_rate_hz"),
        ({"audio": {"input": {"format": {"type": "pcm", "rate": 200000}}}}, "audio.input.format.rate"),
        ({"audio": {"output": {"sample_rate_hz": 1}}}, "audio.output.sample_rate_hz"),
    ],
)
@pytest.mark.parametrize("profile", [STRICT, GA])
def test_unsupported_formats(obj: dict[str, object], param: str, profile: Profile) -> None:
    before = opened({}, profile)
    with pytest.raises(ConfigRejected) as at_opening:
        opened(obj, profile)
    with pytest.raises(ConfigRejected) as in_patch:
        patched(before, obj)
    for caught in (at_opening, in_patch):
        assert (caught.value.code, caught.value.param) == ("unsupported_audio_format", param)
