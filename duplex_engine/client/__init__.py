"""The light client: one duplex session from a Trio program, without numpy, torch or a model anywhere near.

Owns the public names. `DuplexClient` is the way in; `python -m duplex_engine.client talk` shows it at work.
"""

from duplex_engine.client.client import DuplexClient
from duplex_engine.client.collector import (
    EventCollector,
    acknowledge_collected_playback,
    wait_for_condition,
)
from duplex_engine.client.config import AudioFormat, Credentials, ReconnectPolicy, SessionConfig
from duplex_engine.client.errors import (
    DuplexClientError,
    DuplexConnectionError,
    DuplexProtocolError,
    DuplexSessionClosedError,
    DuplexSessionLostError,
)
from duplex_engine.client.events import (
    AudioDelta,
    ConnectionResumed,
    DuplexEvent,
    ErrorEvent,
    ListenDecision,
    ResponseCreated,
    ResponseDone,
    SessionClosed,
    SessionCreated,
    SessionExpired,
    SessionResumed,
    SessionUpdated,
    SpeakDecision,
    TextDelta,
    TranscriptDelta,
)
from duplex_engine.client.media import (
    DUPLEX_FIRST_UNIT_MS,
    DUPLEX_UNIT_MS,
    PCM16_BYTES_PER_SAMPLE,
    PCM16_SAMPLE_RATE,
    audio_data_url,
    chunk_period_ms,
    duplex_unit_boundary_ms,
    has_residual_model_unit,
    image_data_url,
    read_pcm16_wav,
    reference_audio_data_url,
    write_pcm16_wav,
)
from duplex_engine.client.playback import PlaybackClock
from duplex_engine.client.responses import ResponseHandle
from duplex_engine.client.streams import Stream
from duplex_engine.client.transport import ConnectFn, WebSocketTransport, build_realtime_url

__all__ = [
    "DUPLEX_FIRST_UNIT_MS",
    "DUPLEX_UNIT_MS",
    "PCM16_BYTES_PER_SAMPLE",
    "PCM16_SAMPLE_RATE",
    "AudioDelta",
    "AudioFormat",
    "ConnectFn",
    "ConnectionResumed",
    "Credentials",
    "DuplexClient",
    "DuplexClientError",
    "DuplexConnectionError",
    "DuplexEvent",
    "DuplexProtocolError",
    "DuplexSessionClosedError",
    "DuplexSessionLostError",
    "ErrorEvent",
    "EventCollector",
    "ListenDecision",
    "PlaybackClock",
    "ReconnectPolicy",
    "ResponseCreated",
    "ResponseDone",
    "ResponseHandle",
    "SessionClosed",
    "SessionConfig",
    "SessionCreated",
    "SessionExpired",
    "SessionResumed",
    "SessionUpdated",
    "SpeakDecision",
    "Stream",
    "TextDelta",
    "TranscriptDelta",
    "WebSocketTransport",
    "acknowledge_collected_playback",
    "audio_data_url",
    "build_realtime_url",
    "chunk_period_ms",
    "duplex_unit_boundary_ms",
    "has_residual_model_unit",
    "image_data_url",
    "read_pcm16_wav",
    "reference_audio_data_url",
    "wait_for_condition",
    "write_pcm16_wav",
]
