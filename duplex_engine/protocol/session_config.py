"""The Realtime `session` object and our `SessionConfig`, in both directions (wire contract 2.4 to 2.7, 6.1, 12.4).

Owns defaults, aliases, bounds, rejection codes and the echo. Never looks at a running session: live values for the
echo are passed in.
"""

from collections.abc import Mapping
from enum import Enum

import attrs

from duplex_engine.protocol.formats import AudioFormat, Encoding


class Profile(Enum):
    """How a connection speaks (wire contract 0.5): `strict` as the reference, `ga` as OpenAI's Realtime API."""

    STRICT = "strict"
    GA = "ga"


class PlaybackPolicy(Enum):
    """What may enter the history (8.2). ADAPTIVE: everything on done, until the first acknowledgement turns it ack-only."""

    ACK_ONLY = "ack_only"
    COMMIT_ALL_ON_DONE = "commit_all_on_done"
    ADAPTIVE = "adaptive"


@attrs.frozen(kw_only=True)
class TurnDetection:
    """Effective server voice detection (6.1). `said` is what the client sent, for the echo (`semantic_vad` in `ga`)."""

    threshold: float = 0.5
    prefix_padding_ms: float = 300.0
    silence_duration_ms: float = 500.0
    min_speech_duration_ms: float = 96.0
    create_response: bool = True
    interrupt_response: bool = True
    said: Mapping[str, object] | None = None


@attrs.frozen(kw_only=True)
class SessionConfig:
    """The complete effective configuration of a session, validated.

    `native`: the model decides (2.5, D-26). `output_rate_hz`: the rate that pcm16/wav/g711 output is resampled to, None
    for the model's own. `other`: keys that are stored and echoed only. `voice_given` and such are not kept: None = unset.
    """

    profile: Profile = Profile.STRICT
    model: str = ""
    native: bool = False
    modalities: tuple[str, ...] = ("text", "audio")
    instructions: str | None = None
    initial_user_text: str | None = None
    voice: str | None = None
    ref_audio: str | None = None
    input_format: AudioFormat = AudioFormat(Encoding.PCM16, 16_000)
    output_encoding: Encoding = Encoding.PCM16
    output_rate_hz: int | None = None
    temperature: float | None = None
    max_response_output_tokens: int | None = None
    speed: float | None = None
    idle_timeout_s: float = 300.0
    turn_detection: TurnDetection | None = None
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
