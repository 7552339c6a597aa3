"""A session's configuration as values: what `session_parse.py` reads and `session_echo.py` shows.

Owns the types and their defaults. Never parses, never formats.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

import attrs

from duplex_engine.protocol.formats import AudioFormat, Encoding


class Profile(Enum):
    """How a connection speaks (wire contract 0.5): `strict` as the reference, `ga` as OpenAI's Realtime API."""

    STRICT = "strict"
    GA = "ga"


class PlaybackPolicy(Enum):
    """What may enter the history (8.2). ADAPTIVE: everything on done until the first acknowledgement, then ack-only."""

    ACK_ONLY = "ack_only"
    COMMIT_ALL_ON_DONE = "commit_all_on_done"
    ADAPTIVE = "adaptive"


@attrs.frozen(kw_only=True)
class TurnDetection:
    """Effective server voice detection (6.1), times in milliseconds.

    `said`: what the client sent, for the echo (`semantic_vad` in `ga`). `implied`: the model's own detector, which the
    client did not describe.
    """

    threshold: float = 0.5
    prefix_padding_ms: float = 300.0
    silence_duration_ms: float = 500.0
    min_speech_duration_ms: float = 96.0
    create_response: bool = True
    interrupt_response: bool = True
    said: Mapping[str, object] | None = None
    implied: bool = False


DEFAULT_INPUT: Final = AudioFormat(Encoding.PCM16, 16_000)
DEFAULT_IDLE_TIMEOUT_S: Final = 300.0


@attrs.frozen(kw_only=True)
class SessionConfig:
    """The complete effective configuration of a session, validated.

    `native`: the model decides (2.5, D-26). `output_rate_hz`: the rate that pcm16/wav/g711 output is resampled to, None
    for the model's own; `declared_output_rate_hz`: the one the client named, in force or not. `other`: keys that are
    stored and echoed only. `ignored_turn_detection`: a description without effect here, for the echo (`semantic_vad` on
    a model that decides itself). None always means not set.
    """

    profile: Profile = Profile.STRICT
    model: str = ""
    native: bool = False
    modalities: tuple[str, ...] = ("text", "audio")
    instructions: str | None = None
    initial_user_text: str | None = None
    voice: str | None = None
    ref_audio: str | None = None
    input_format: AudioFormat = DEFAULT_INPUT
    output_encoding: Encoding = Encoding.PCM16
    output_rate_hz: int | None = None
    declared_output_rate_hz: int | None = None
    temperature: float | None = None
    max_response_output_tokens: int | None = None
    speed: float | None = None
    idle_timeout_s: float = DEFAULT_IDLE_TIMEOUT_S
    turn_detection: TurnDetection | None = None
    ignored_turn_detection: Mapping[str, object] | None = None
    overlap_policy: str = "listen_only"
    overlap_short_ack_ms: float = 700.0
    overlap_barge_in_ms: float = 1200.0
    overlap_silence_rms: float = 0.003
    playback_policy: PlaybackPolicy = PlaybackPolicy.ADAPTIVE
    tools: tuple[Mapping[str, object], ...] = ()
    tool_choice: object = None
    metadata: Mapping[str, object] = attrs.Factory(dict)
    extra_body: Mapping[str, object] = attrs.Factory(dict)
    other: Mapping[str, object] = attrs.Factory(dict)

    @property
    def speaks(self) -> bool:
        """Whether answers have audio."""
        return "audio" in self.modalities

    @property
    def duplex_events(self) -> bool:
        """Whether the client sees the duplex tier of events (12.4 row 17)."""
        return self.profile is Profile.STRICT or self.extra_body.get("duplex_events") is True

    @property
    def numbered(self) -> bool:
        """Whether events carry sequence numbers: in `strict`, and in `ga` for a client that wants to resume."""
        return self.profile is Profile.STRICT or self.extra_body.get("resumable") is True


@attrs.frozen(kw_only=True)
class SessionFacts:
    """Live values that the public session object shows beside the configuration (2.7)."""

    id: str
    state: str = "open"
    turn_state: str = "idle"
    epoch: int = 0
    turn_id: int = 0
    active_response_id: str | None = None
    active_response_turn_id: int | None = None
    playback_policy: str = "commit_all_on_done"
    playback: Mapping[str, int] = attrs.Factory(dict)
    native_rate_hz: int = 24_000
