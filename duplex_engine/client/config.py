"""What a client chooses before it connects: audio formats, the session, reconnecting, credentials.

Owns these values and the session object they are sent as. Never talks to a server.
"""

import random
from collections.abc import Mapping

import attrs
from attrs import validators

from duplex_engine.protocol.formats import Encoding

__all__ = ["AudioFormat", "Credentials", "ReconnectPolicy", "SessionConfig"]

_CLIENT_ENCODINGS = frozenset({Encoding.PCM16, Encoding.F32})


@attrs.frozen
class AudioFormat:
    """A PCM format on the wire: encoding name (`pcm16` or `pcm_f32le`) and sample rate in Hz; always mono."""

    encoding: str
    sample_rate_hz: int = attrs.field(validator=validators.gt(0))

    @property
    def wire_encoding(self) -> Encoding:
        """The encoding as the protocol knows it. Raises ValueError for one that the client cannot carry."""
        for encoding in _CLIENT_ENCODINGS:
            if encoding.value == self.encoding:
                return encoding
        names = ", ".join(sorted(encoding.value for encoding in _CLIENT_ENCODINGS))
        raise ValueError(f"audio encoding {self.encoding!r} is not one of {names}")

    @property
    def bytes_per_sample(self) -> int:
        """Bytes of one sample. Raises ValueError for an unknown encoding."""
        return self.wire_encoding.sample_bytes

    def duration_ms(self, byte_count: int) -> float:
        """Milliseconds that `byte_count` bytes last."""
        return byte_count * 1000 / (self.sample_rate_hz * self.bytes_per_sample)

    def byte_count(self, duration_ms: float) -> int:
        """Bytes of the whole samples nearest to `duration_ms` milliseconds."""
        return round(self.sample_rate_hz * duration_ms / 1000) * self.bytes_per_sample


@attrs.frozen(kw_only=True)
class SessionConfig:
    """A session as its client wants it, for any model; what only one model knows goes into `extra_body`.

    None means: not sent, the server's default holds. `turn_detection` is always sent; with `auto_response` a null
    leaves the end of turns to the model, or to the detector that the model brings along.
    """

    modalities: tuple[str, ...] = ("audio", "text")
    input_audio: AudioFormat = AudioFormat("pcm16", 16_000)
    output_audio: AudioFormat = AudioFormat("pcm16", 24_000)
    instructions: str | None = None
    ref_audio: str | None = None
    voice: str | None = None
    auto_response: bool = True
    temperature: float | None = None
    overlap_policy: str | None = None
    playback_commit_policy: str | None = None
    turn_detection: Mapping[str, object] | None = None
    idle_timeout_s: float | None = None
    extra_body: Mapping[str, object] = attrs.Factory(dict)

    def to_session_payload(self, *, model: str) -> dict[str, object]:
        """The `session` object of the opening `session.update`. An empty `model` leaves the choice to the server."""
        payload: dict[str, object] = {"model": model} if model else {}
        payload |= {
            "modalities": list(self.modalities),
            "input_audio_format": self.input_audio.encoding,
            "output_audio_format": self.output_audio.encoding,
            "sample_rate_hz": self.input_audio.sample_rate_hz,
            "audio": {
                "input": {"sample_rate_hz": self.input_audio.sample_rate_hz},
                "output": {"sample_rate_hz": self.output_audio.sample_rate_hz},
            },
            "turn_detection": self.turn_detection,
        }
        for name in _SENT_WHEN_SET:
            value = getattr(self, name)
            if value is not None:
                payload[name] = value
        payload["extra_body"] = {"auto_response": self.auto_response, **self.extra_body}
        return payload


_SENT_WHEN_SET = (
    "instructions",
    "ref_audio",
    "voice",
    "temperature",
    "overlap_policy",
    "playback_commit_policy",
    "idle_timeout_s",
)


@attrs.frozen
class ReconnectPolicy:
    """How often and how soon a lost connection is tried again: jittered exponential backoff, bounds in seconds."""

    max_attempts: int = 5
    backoff_s: tuple[float, float] = (0.25, 4.0)

    def delay(self, attempt: int) -> float:
        """Seconds to wait before attempt number `attempt`, counted from 0."""
        low, high = self.backoff_s
        ceiling = min(high, low * 2.0 ** max(0, attempt))
        return random.uniform(low, max(low, ceiling))


DEFAULT_RECONNECT = ReconnectPolicy()


@attrs.frozen(kw_only=True)
class Credentials:
    """All it takes to continue a session in another process. Whoever holds the token owns the session: keep it secret.

    `last_server_event_seq` is the highest event number seen; the server replays what came after it. The token is spent
    by the first successful resume, and leaving the client's block closes the session: to hand it over, let the other
    process resume first, which cuts the holder off.
    """

    session_id: str = attrs.field(validator=validators.min_len(1))
    resume_token: str = attrs.field(validator=validators.min_len(1), repr=False)
    last_server_event_seq: int = attrs.field(default=0, validator=validators.ge(0))
