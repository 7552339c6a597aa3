"""How a client opens a PersonaPlex session."""

from typing import Any

import attrs

from duplex_engine.client.config import AudioFormat, SessionConfig

__all__ = ["create_duplex_session_config"]


def create_duplex_session_config(*, voice: str = "NATF2.pt", persona: str = "", **overrides: Any) -> SessionConfig:
    """The session PersonaPlex expects: 24 kHz float audio in, a bundled `voice`, and a `persona` in words.

    `overrides` are fields of SessionConfig.
    """
    preset = SessionConfig(
        input_audio=AudioFormat("pcm_f32le", 24_000),
        output_audio=AudioFormat("pcm16", 24_000),
        voice=voice,
        instructions=persona,
    )
    return attrs.evolve(preset, **overrides)
