"""Media in the form the wire wants it, with the standard library alone: WAV files, data URLs, pace, pictures, units.

Owns reading, writing and cutting. Never records, plays or resamples.
"""

import sys
import wave
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import trio

from duplex_engine.protocol.wire_json import b64decode, b64encode

__all__ = [
    "DUPLEX_FIRST_UNIT_MS",
    "DUPLEX_UNIT_MS",
    "PCM16_BYTES_PER_SAMPLE",
    "PCM16_SAMPLE_RATE",
    "Clip",
    "Pace",
    "audio_data_url",
    "chunk_period_ms",
    "duplex_unit_boundary_ms",
    "has_residual_model_unit",
    "image_data_url",
    "read_clip",
    "read_pcm16_wav",
    "reference_audio_data_url",
    "write_pcm16_wav",
]

PCM16_SAMPLE_RATE = 16_000
PCM16_BYTES_PER_SAMPLE = 2
DUPLEX_FIRST_UNIT_MS = 1000
DUPLEX_UNIT_MS = 1000
_LOUDNESS_WINDOW_MS = 20
_SPEECH_OF_PEAK = 0.1


class Pace:
    """Speaking pace on trio's clock, without drift: each position is measured from the start, not from the last one."""

    def __init__(self) -> None:
        self._start_s = trio.current_time()

    async def until(self, media_ms: float) -> None:
        """Wait until `media_ms` milliseconds have passed since the start; at once if they have."""
        await trio.sleep_until(self._start_s + media_ms / 1000)


@attrs.frozen
class Clip:
    """A mono recording: PCM16 little-endian samples and their rate in Hz."""

    pcm16: bytes = attrs.field(repr=False)
    sample_rate_hz: int

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return len(self.pcm16) / (self.sample_rate_hz * PCM16_BYTES_PER_SAMPLE)

    def speech_bounds_s(self) -> tuple[float, float]:
        """Where sound begins and ends, in seconds, by loudness: the silence around a recording is nobody's speech.

        Windows of 20 ms count from a tenth of the loudest one's RMS. A silent clip is speech from end to end.
        """
        samples = array("h")
        samples.frombytes(self.pcm16[: len(self.pcm16) // 2 * 2])
        if sys.byteorder == "big":
            samples.byteswap()
        window = max(1, self.sample_rate_hz * _LOUDNESS_WINDOW_MS // 1000)
        powers = [
            sum(sample * sample for sample in samples[start : start + window]) / window
            for start in range(0, len(samples), window)
        ]
        floor = max(powers, default=0) * _SPEECH_OF_PEAK**2
        loud = [index for index, power in enumerate(powers) if power >= floor > 0]
        if not loud:
            return 0.0, self.duration_s
        window_s = window / self.sample_rate_hz
        return loud[0] * window_s, min(self.duration_s, (loud[-1] + 1) * window_s)


class VideoTrack:
    """Which pictures go with which audio: picture *k* with the chunk that completes unit *k*; the last one repeats."""

    def __init__(self, frames: Sequence[str], stacked: Sequence[str | None]) -> None:
        self.sent = 0
        self._frames = frames
        self._stacked = stacked

    def due(self, audio_end_ms: float) -> list[str] | None:
        """The pictures for a chunk that ends at `audio_end_ms`, None if there are none."""
        if not self._frames or audio_end_ms < duplex_unit_boundary_ms(self.sent):
            return None
        index = min(self.sent, len(self._frames) - 1)
        composite = self._stacked[index] if index < len(self._stacked) else None
        self.sent += 1
        return [self._frames[index]] if composite is None else [self._frames[index], composite]


def duplex_unit_boundary_ms(unit_index: int) -> int:
    """Audio in milliseconds after which unit `unit_index` (from 0) of a model with one-second units is complete."""
    return DUPLEX_FIRST_UNIT_MS + max(0, unit_index) * DUPLEX_UNIT_MS


def chunk_period_ms(events: Sequence[Mapping[str, object]], *, default: int = 1000) -> int:
    """Length of a model unit in milliseconds, from the last of `events` whose session object tells it."""
    for event in reversed(events):
        session = event.get("session")
        capabilities = session.get("capabilities") if isinstance(session, dict) else None
        period = capabilities.get("chunk_period_ms") if isinstance(capabilities, dict) else None
        if isinstance(period, int) and not isinstance(period, bool) and period > 0:
            return period
    return default


def has_residual_model_unit(pcm16: bytes, *, chunk_period_ms: int) -> bool:
    """Whether `pcm16` (16 kHz mono) ends inside a model unit."""
    unit_bytes = PCM16_SAMPLE_RATE * PCM16_BYTES_PER_SAMPLE * chunk_period_ms // 1000
    return unit_bytes > 0 and len(pcm16) % unit_bytes != 0


def audio_data_url(data: bytes | Path, *, mime: str = "audio/wav") -> str:
    """Audio bytes, or a file's, as a data URL: for `ref_audio`."""
    return _data_url(data, mime)


def image_data_url(data: bytes | Path, *, mime: str = "image/jpeg") -> str:
    """Image bytes, or a file's, as a data URL: for `video_frames`."""
    return _data_url(data, mime)


def reference_audio_data_url(path: str | None) -> str | None:
    """A local reference recording as a data URL. Raises FileNotFoundError."""
    if path is None:
        return None
    recording = Path(path).expanduser().resolve()
    if not recording.is_file():
        raise FileNotFoundError(f"there is no reference recording at {recording}")
    return audio_data_url(recording)


def picture_bytes(picture: str) -> bytes:
    """The file behind a picture given as base64 or as a data URL. Raises ValueError if it is neither."""
    try:
        return b64decode(picture.partition(";base64,")[2] if picture.startswith("data:") else picture)
    except ValueError as error:
        raise ValueError(f"a video frame is neither base64 nor a base64 data URL: {picture[:40]!r}") from error


def read_pcm16_wav(path: Path, *, sample_rate_hz: int = PCM16_SAMPLE_RATE) -> bytes:
    """The samples of a mono PCM16 WAV file at exactly this rate. Raises ValueError for any other file."""
    clip = read_clip(path)
    if clip.sample_rate_hz != sample_rate_hz:
        raise ValueError(f"{path} has {clip.sample_rate_hz} Hz, not {sample_rate_hz} Hz")
    return clip.pcm16


def read_clip(path: Path) -> Clip:
    """A mono PCM16 WAV file at whatever rate it has. Raises OSError, or ValueError naming what is wrong with it."""
    try:
        with wave.open(str(path), "rb") as file:
            if file.getnchannels() != 1:
                raise ValueError(f"{path} has {file.getnchannels()} channels; mix it down to mono")
            if file.getsampwidth() != PCM16_BYTES_PER_SAMPLE:
                raise ValueError(f"{path} has {8 * file.getsampwidth()}-bit samples; convert it to 16 bits")
            return Clip(file.readframes(file.getnframes()), file.getframerate())
    except (wave.Error, EOFError) as error:
        raise ValueError(f"{path} is no PCM WAV file: {error}") from error


def write_pcm16_wav(path: Path, pcm16: bytes, *, sample_rate_hz: int) -> None:
    """Write mono PCM16 samples as a WAV file."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(PCM16_BYTES_PER_SAMPLE)
        file.setframerate(sample_rate_hz)
        file.writeframes(pcm16)


def _data_url(data: bytes | Path, mime: str) -> str:
    payload = data.read_bytes() if isinstance(data, Path) else data
    return f"data:{mime};base64,{b64encode(payload)}"
