"""`input_audio_buffer.append` and the audio and pictures inside items: base64 media to bytes (wire contract 3.3, 5).

Owns the hot path of decoding: an append arrives every 80 ms from every client. A sample split over two appends is
legal, so byte counts are not checked here.
"""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from duplex_engine.errors import ProtocolViolation
from duplex_engine.protocol.commands import AppendAudio
from duplex_engine.protocol.fields import boolean, declared_format, is_number, name, number, sample_rate, string, wrong
from duplex_engine.protocol.formats import INPUT_ENCODINGS, Encoding
from duplex_engine.protocol.sizes import TRANSCRIPT_CHARACTERS
from duplex_engine.protocol.wire_json import b64decode

PICTURE_CHARACTERS: Final = 4_000_000
"""Longest base64 text of one picture."""
PICTURES_PER_APPEND: Final = 2
PICTURE_HEADERS: Final = (b"\xff\xd8", b"\x89PNG")
"""JPEG and PNG, recognised by their first bytes."""
SPEECH_PROBABILITY: Final = 0.5
"""From here on a client's probability means speech."""

PLAIN_FIELDS: Final = frozenset(
    {"type", "event_id", "audio", "format", "sample_rate_hz", "duration_ms", "audio_end_ms", "is_speech"}
)
"""What an ordinary append consists of; only others are searched for more."""

Event = Mapping[str, object]

_COMMON_FORMATS: Final = {encoding.value: encoding for encoding in INPUT_ENCODINGS}


def read_append(event: Event, event_id: str | None) -> AppendAudio:
    """The append that `event` says. Raises ProtocolViolation with the codes of 3.3."""
    plain = PLAIN_FIELDS.issuperset(event)
    pictures = () if plain else _pictures(event)
    encoding, rate_hz = _format(event)
    append = AppendAudio(
        audio=_audio(event, bool(pictures)),
        encoding=encoding,
        sample_rate_hz=rate_hz,
        speech=boolean(event, "is_speech"),
        duration_ms=_duration(event),
        audio_end_ms=number(event, "audio_end_ms"),
        video_frames=pictures,
        event_id=event_id,
    )
    return append if plain else attrs.evolve(append, **_rare_fields(event, append.speech))


def _rare_fields(event: Event, speech: bool | None) -> dict[str, Any]:
    floor = number(event, "overlap_silence_rms")
    if speech is None:
        speech = boolean(event, "speech")
    vad = event.get("vad")
    if vad is not None:
        verdict, vad_floor = _detector_verdict(vad)
        speech = verdict if speech is None else speech
        floor = vad_floor if floor is None else floor
    if speech is None:
        speech = _spoken(number(event, "speech_probability"))
    return {
        "speech": speech,
        "overlap_silence_rms": floor,
        "audio_start_ms": number(event, "audio_start_ms"),
        "transcript": _hint(event, "transcript") or _hint(event, "text"),
        "overlap_action": name(event, "overlap_action") or name(event, "overlap"),
        "force_barge_in": boolean(event, "force_barge_in") or False,
        "force_listen": boolean(event, "force_listen") or False,
    }


def _hint(event: Event, key: str) -> str | None:
    text = string(event, key)
    if text is not None and len(text) > TRANSCRIPT_CHARACTERS:
        raise wrong(key, f"a string of at most {TRANSCRIPT_CHARACTERS} characters", text)
    return text


def decode_audio(text: str, param: str) -> bytes:
    """Base64 audio, at least one byte. Raises ProtocolViolation `bad_audio`."""
    try:
        data = b64decode(text)
    except ValueError as error:
        raise ProtocolViolation("bad_audio", f"{param} is not base64: {error}", param) from None
    if not data:
        raise ProtocolViolation("bad_audio", f"{param} is empty", param)
    return data


def _audio(event: Event, pictured: bool) -> bytes:
    key = "audio"
    text = event.get(key)
    if text is None:
        key = "delta"
        text = event.get(key)
    if type(text) is str:
        return decode_audio(text, key) if text or not pictured else b""
    if text is not None:
        raise wrong(key, "base64 text", text)
    if not pictured:
        raise ProtocolViolation("bad_event", "an append needs audio or video_frames", "audio")
    return b""


def _format(event: Event) -> tuple[Encoding | None, int | None]:
    key = "format" if event.get("format") is not None else "input_audio_format"
    value = event.get(key)
    encoding = _COMMON_FORMATS.get(value) if type(value) is str else None
    beside: object = None
    param = key
    if encoding is None and value is not None:
        encoding, beside, param = declared_format(value, allowed=INPUT_ENCODINGS, param=key)
    for rate_key in ("sample_rate_hz", "sample_rate"):
        rate_hz = sample_rate(event.get(rate_key), rate_key)
        if rate_hz is not None:
            return encoding, rate_hz
    return encoding, sample_rate(beside, param)


def _duration(event: Event) -> float | None:
    key = "duration_ms" if event.get("duration_ms") is not None else "audio_duration_ms"
    duration_ms = number(event, key)
    if duration_ms is not None and duration_ms < 0:
        raise wrong(key, "at least 0", duration_ms)
    return duration_ms


def _spoken(probability: float | None) -> bool | None:
    return None if probability is None else probability >= SPEECH_PROBABILITY


def _detector_verdict(vad: object) -> tuple[bool | None, float | None]:
    if not isinstance(vad, Mapping):
        raise wrong("vad", "an object", vad)
    try:
        floor = number(vad, "silence_rms")
        verdict = boolean(vad, "is_speech")
        probability = number(vad, "speech_probability")
        if probability is None:
            probability = number(vad, "probability")
    except ProtocolViolation as violation:
        violation.param = f"vad.{violation.param}"
        raise
    return (_spoken(probability) if verdict is None else verdict), floor


def _pictures(event: Event) -> tuple[bytes, ...]:
    slices = event.get("max_slice_nums")
    if slices is not None and (not is_number(slices) or slices != 1):
        raise ProtocolViolation("invalid_video_frames", "max_slice_nums can only be 1 or null", "max_slice_nums")
    frames = event.get("video_frames")
    if frames is None:
        return ()
    if not isinstance(frames, list):
        raise ProtocolViolation("invalid_video_frames", "video_frames must be a list", "video_frames")
    given = [(index, frame) for index, frame in enumerate(frames) if frame is not None]
    if len(given) > PICTURES_PER_APPEND:
        raise ProtocolViolation(
            "invalid_video_frames", f"{len(given)} frames; an append takes {PICTURES_PER_APPEND}", "video_frames"
        )
    return tuple(_picture(frame, f"video_frames[{index}]") for index, frame in given)


def _picture(text: object, param: str) -> bytes:
    if not isinstance(text, str) or text.startswith("data:"):
        raise ProtocolViolation("invalid_video_frames", f"{param} must be bare base64", param)
    try:
        return decode_picture(text)
    except ValueError as error:
        raise ProtocolViolation("invalid_video_frames", f"{param}: {error}", param) from None


def decode_picture(text: str) -> bytes:
    """The bytes of a base64 JPEG or PNG, checked by its header. Raises ValueError saying what is wrong."""
    if len(text) > PICTURE_CHARACTERS:
        raise ValueError(f"{len(text)} characters; the limit is {PICTURE_CHARACTERS}")
    data = b64decode(text)
    if not data.startswith(PICTURE_HEADERS):
        raise ValueError("neither JPEG nor PNG")
    return data
