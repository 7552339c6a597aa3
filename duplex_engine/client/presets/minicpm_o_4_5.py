"""How a client opens a MiniCPM-o 4.5 session."""

from typing import Any

import attrs

from duplex_engine.client.config import SessionConfig

__all__ = ["create_duplex_session_config"]


def create_duplex_session_config(*, ref_audio: str | None = None, **overrides: Any) -> SessionConfig:
    """The session MiniCPM-o 4.5 is at its best with. `ref_audio`: data URL of the voice to speak with.

    `overrides` are fields of SessionConfig; `extra_body` is merged into the preset's, not put in its place.
    """
    extra_body = {"force_listen_count": 0, **overrides.pop("extra_body", {})}
    preset = SessionConfig(
        ref_audio=ref_audio,
        overlap_policy="listen_only",
        playback_commit_policy="ack_only",
        extra_body=extra_body,
    )
    return attrs.evolve(preset, **overrides)
