"""What the tests of session objects share: kinds of models, the reference client, short ways to open and patch."""

import json
from collections.abc import Mapping
from typing import Any

from duplex_engine.protocol.capabilities import Capabilities, TurnPolicy
from duplex_engine.protocol.session_config import (
    Profile,
    SessionConfig,
    SessionFacts,
    TurnDetection,
    open_config,
    patch_config,
    public_session,
)

STRICT, GA = Profile.STRICT, Profile.GA
TURN = Capabilities(turn_policy=TurnPolicy.TURN)
CASCADE = Capabilities(turn_policy=TurnPolicy.TURN, detects_turns=True)
NATIVE = Capabilities(turn_policy=TurnPolicy.MODEL)
ALWAYS_ON = Capabilities(turn_policy=TurnPolicy.MODEL, client_commit=False, barge_in=False)
AUTO = {"extra_body": {"auto_response": True}}
VAD = {"type": "server_vad"}
FACTS = SessionFacts(id="duplex-" + "0" * 32)

DUPLEX_CLIENT = {
    "model": "demo-duplex",
    "modalities": ["audio", "text"],
    "input_audio_format": "pcm16",
    "output_audio_format": "pcm16",
    "sample_rate_hz": 16000,
    "audio": {"input": {"sample_rate_hz": 16000}, "output": {"sample_rate_hz": 24000}},
    "turn_detection": None,
    "extra_body": {"auto_response": True},
}
"""What the reference client sends."""


STORED = {"include": ["x"], "prompt": {"id": "p"}, "tracing": "auto"}


def input_rate(rate_hz: int) -> dict[str, object]:
    return {"audio": {"input": {"sample_rate_hz": rate_hz}}}


def output_rate(rate_hz: int) -> dict[str, object]:
    return {"audio": {"output": {"sample_rate_hz": rate_hz}}}


def mirrored_policy(policy: str) -> dict[str, object]:
    return {"extra_body": {"overlap_policy": policy}}


def opened(obj: Mapping[str, object], profile: Profile = STRICT, capabilities: Capabilities = TURN) -> SessionConfig:
    return open_config(obj, profile=profile, capabilities=capabilities, default_model="served")


def patched(config: SessionConfig, patch: Mapping[str, object], capabilities: Capabilities = TURN) -> SessionConfig:
    return patch_config(config, patch, capabilities=capabilities)


def echo(config: SessionConfig, capabilities: Capabilities = TURN, facts: SessionFacts = FACTS) -> dict[str, Any]:
    session: dict[str, Any] = json.loads(json.dumps(public_session(config, facts, capabilities)))
    return session


RICH = {
    "instructions": "Be kind.",
    "voice": "a",
    "temperature": 0.5,
    "max_output_tokens": 9,
    "speed": 1.5,
    "idle_timeout_s": 20,
    "tools": [{"type": "function"}],
    "tool_choice": "auto",
    "metadata": {"a": "b"},
    "include": ["x"],
    "prompt": {"id": "p"},
    "tracing": "auto",
    "input_audio_transcription": {"model": "w"},
    "input_audio_noise_reduction": {"type": "n"},
    "turn_detection": VAD,
    "sample_rate_hz": 8000,
    "extra_body": {"a": 1, "b": 2},
    "anything": 1,
}

IMPLIED = TurnDetection(silence_duration_ms=450, implied=True)
DEFAULT = TurnDetection()
ABSENT: dict[str, object] = {}
NULL: dict[str, object] = {"turn_detection": None}
NESTED_NULL: dict[str, object] = {"audio": {"input": {"turn_detection": None}}}
SEMANTIC = {"turn_detection": {"type": "semantic_vad", "eagerness": "high"}}
