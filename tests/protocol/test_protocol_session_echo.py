"""The public session object is complete, effective and discreet."""

import json

from protocol_sessions import (
    CASCADE,
    DUPLEX_CLIENT,
    FACTS,
    GA,
    RICH,
    echo,
    opened,
    patched,
)

from duplex_engine.protocol.session_config import (
    SessionFacts,
)


def test_the_echo_of_the_reference_client() -> None:
    session = echo(opened(DUPLEX_CLIENT, capabilities=CASCADE), CASCADE)
    assert len(session["capabilities"]) == 40
    detection = {
        "type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 300, "silence_duration_ms": 450,
        "min_speech_duration_ms": 96, "create_response": True, "interrupt_response": True,
    }  # fmt: skip
    del session["capabilities"]
    assert session == {
        "id": FACTS.id, "object": "realtime.session", "type": "realtime", "model": "demo-duplex", "state": "open",
        "turn_state": "idle", "epoch": 0, "turn_id": 0, "active_request_id": None, "active_response_id": None,
        "active_response_turn_id": None, "modalities": ["audio", "text"], "output_modalities": ["audio", "text"],
        "instructions": None, "voice": None, "response_format": "pcm", "temperature": None, "max_tokens": None,
        "max_output_tokens": "inf", "speed": None, "idle_timeout_s": 300, "overlap_policy": "barge_in_on_speech",
        "overlap_short_ack_ms": 700, "overlap_barge_in_ms": 1200, "overlap_silence_rms": 0.003,
        "playback_commit_policy": "commit_all_on_done",
        "playback": {"generated_ms": 0, "sent_ms": 0, "played_ms": 0, "committed_ms": 0},
        "input_audio_format": "pcm16", "sample_rate_hz": 16000, "output_audio_format": "pcm16",
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": 16000}, "sample_rate_hz": 16000, "turn_detection": detection,
                "transcription": None, "noise_reduction": None,
            },
            "output": {
                "format": {"type": "audio/pcm", "rate": 24000}, "sample_rate_hz": 24000, "voice": None, "speed": 1.0,
            },
        },
        "turn_detection": detection, "input_audio_transcription": None, "tracing": None,
    }  # fmt: skip


def test_the_echo_shows_live_values() -> None:
    facts = SessionFacts(
        id="duplex-1",
        state="closing",
        turn_state="assistant_generating",
        epoch=3,
        turn_id=2,
        active_response_id="resp-1",
        active_response_turn_id=1,
        playback_policy="ack_only",
        playback={"generated_ms": 4, "sent_ms": 3, "played_ms": 2, "committed_ms": 1},
        native_rate_hz=22_050,
    )
    session = echo(opened({}), facts=facts)
    assert session["playback"] == facts.playback
    assert session["playback_commit_policy"] == "ack_only"
    assert session["audio"]["output"]["sample_rate_hz"] == 22_050
    for name in ("state", "turn_state", "epoch", "turn_id", "active_response_id", "active_response_turn_id"):
        assert session[name] == getattr(facts, name)


def test_the_echo_hides_what_is_secret_large_or_ours() -> None:
    obj = {
        "id": "mine", "session_id": "mine", "object": "mine", "type": "mine", "state": "mine", "turn_state": "mine",
        "epoch": 99, "capabilities": "mine", "playback": "mine", "resume_token": "mine", "incarnation": 99,
        "attachment_generation": 99, "active_response_id": "mine", "extra_body": {"key": "mine"}, "ref_audio": "ä" * 9,
    }  # fmt: skip
    session = echo(opened(obj))
    assert "mine" not in json.dumps(session)
    assert "99" not in json.dumps(session)
    assert session["ref_audio"] == {"bytes": 18}
    assert not {"session_id", "resume_token", "incarnation", "attachment_generation", "extra_body"} & set(session)


def test_the_echo_stays_complete_over_patches() -> None:
    config = patched(opened(RICH), {"voice": "b"})
    session = echo(config)
    assert session["voice"] == session["audio"]["output"]["voice"] == "b"
    assert session["turn_detection"]["type"] == "server_vad"
    assert session["turn_detection"] == session["audio"]["input"]["turn_detection"]
    for key in ("include", "prompt", "tracing", "tools", "tool_choice", "metadata", "anything"):
        assert session[key] == RICH[key]
    assert session["input_audio_transcription"] == session["audio"]["input"]["transcription"] == {"model": "w"}
    assert session["input_audio_noise_reduction"] == session["audio"]["input"]["noise_reduction"] == {"type": "n"}
    assert (session["max_tokens"], session["max_output_tokens"], session["idle_timeout_s"]) == (9, 9, 20)


def test_the_echo_in_ga() -> None:
    said = {"type": "semantic_vad", "eagerness": "low"}
    config = opened({"audio": {"input": {"turn_detection": said, "format": {"type": "audio/pcmu"}}}}, GA)
    session = echo(config)
    effective = {**said, "create_response": True, "interrupt_response": True}
    assert session["audio"]["input"]["turn_detection"] == session["turn_detection"] == effective
    assert session["audio"]["input"]["format"] == {"type": "audio/pcmu", "rate": 8000}
    assert session["audio"]["output"]["format"] == {"type": "audio/pcm", "rate": 24000}
    assert (session["tools"], session["tool_choice"]) == ([], "auto")
    assert echo(opened({"output_audio_format": "wav"}))["response_format"] == "wav"


def test_what_configurations_say_about_events() -> None:
    assert opened({}).numbered
    assert opened({}).duplex_events
    assert not opened({}, GA).numbered
    assert not opened({}, GA).duplex_events
    assert opened({"extra_body": {"resumable": True}}, GA).numbered
    assert opened({"extra_body": {"duplex_events": True}}, GA).duplex_events
    assert not opened({"modalities": ["text"]}).speaks
