"""Values that are legal JSON and that nobody expects, which crash whatever reckons with them or says them back."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from duplex_engine.protocol.session_config import Profile
from duplex_engine.testing.caller import DELTA, Caller
from duplex_engine.testing.rig import NATIVE, open_rig
from duplex_engine.testing.schedules import run_story

NUMBERS = (1e300, -1e300, 1e19, 2**63, 2**53 + 2, -(2**63), 2**53, -1, -0.0, 5e-324, 0.1)
DEEP: Any = json.loads("[" * 100 + "]" * 100)
DEEP_OBJECT: Any = json.loads('{"a":' * 100 + "1" + "}" * 100)
OTHERS = (True, "7", "", [], {}, DEEP, DEEP_OBJECT, "\x00", "\u202e\U0001f600")

Word = Mapping[str, Any]


def places(value: Any, sound: str) -> Iterator[Sequence[Word]]:
    """Every place of a command where a number stands, or where anything may."""
    append = {"type": "input_audio_buffer.append", "audio": sound}
    times = ("duration_ms", "audio_duration_ms", "audio_start_ms", "audio_end_ms")
    for key in ("sample_rate_hz", "sample_rate", "speech_probability", "overlap_silence_rms", "max_slice_nums", *times):
        yield {**append, key: value, "is_speech": True}, {**append, key: value}
    for key in ("format", "vad", "video_frames", "transcript", "overlap_action", "force_barge_in", "is_speech"):
        yield ({**append, key: value},)
    yield ({**append, "format": {"type": "pcm16", "rate": value}},)
    yield ({**append, "vad": {"speech_probability": value, "silence_rms": value}},)
    for key in ("response_create", "is_speech", "final"):
        yield append, {"type": "input_audio_buffer.commit", key: value}
    for key in SETTINGS:
        yield ({"type": "session.update", "session": {key: value}},)
    for key in ("type", "threshold", "prefix_padding_ms", "silence_duration_ms", "min_speech_duration_ms", "other"):
        yield ({"type": "session.update", "session": {"turn_detection": {"type": "server_vad", key: value}}},)
    for key in ("response_id", "event_id"):
        yield ({"type": "response.cancel", key: value},)
    for key in (
        "modalities",
        "speed",
        "metadata",
        "conversation",
        "max_output_tokens",
        "tools",
        "audio",
        "temperature",
    ):
        yield append, {"type": "input_audio_buffer.commit"}, {"type": "response.create", "response": {key: value}}
    for key in ("played_ms", "committed_ms", "response_id", "item_id", "truncate"):
        yield ({"type": "playback.ack", "played_ms": 1, key: value},)
    for key in ("item_id", "audio_end_ms", "content_index"):
        yield ({"type": "conversation.item.truncate", "item_id": "LAST", "audio_end_ms": 1, key: value},)
    for key in ("id", "type", "role", "status", "content", "note", "call_id", "output"):
        yield ({"type": "conversation.item.create", "item": {"content": [], "note": 1, key: value}},)
    for kind, key in (("input_audio", "sample_rate_hz"), ("input_text", "text"), ("input_image", "image_url")):
        part = {"type": kind, "audio": sound, key: value}
        yield ({"type": "conversation.item.create", "item": {"content": [part]}},)
    yield ({"type": "session.event_ack", "server_event_seq": value},)
    yield ({"type": "turn.signal", "event": "user_started", "payload": value},)
    yield ({"type": value},)


SETTINGS = (
    "model",
    "modalities",
    "instructions",
    "voice",
    "ref_audio",
    "input_audio_format",
    "sample_rate_hz",
    "output_audio_format",
    "temperature",
    "max_tokens",
    "speed",
    "idle_timeout_s",
    "turn_detection",
    "overlap_policy",
    "overlap_short_ack_ms",
    "overlap_barge_in_ms",
    "overlap_silence_rms",
    "playback_commit_policy",
    "tools",
    "tool_choice",
    "metadata",
    "include",
    "tracing",
    "input_audio_transcription",
    "audio",
    "extra_body",
    "unheard_of",
)
SOUND = "AAAg" * 1600
CALM: Word = {
    "turn_detection": None,
    "input_audio_format": "pcm16",
    "sample_rate_hz": 16_000,
    "output_audio_format": "pcm16",
    "idle_timeout_s": None,
    "modalities": ["audio", "text"],
    "playback_commit_policy": "commit_all_on_done",
    "overlap_silence_rms": 0.003,
}
"""What a session needs for the next question, whatever was chosen before."""


async def says(caller: Caller, words: Sequence[Word]) -> None:
    """Say it, and see that the session lives, has not stumbled and has named what it refused."""
    answers = caller.responses()
    last = f"item_{answers[-1]}" if answers else "item_none"
    for word in words:
        await caller.sends_together({key: last if value == "LAST" else value for key, value in word.items()})
    await caller.sends("session.heartbeat")
    await caller.hears("session.heartbeat_ack")
    assert not caller.all("error", code="internal_error"), words


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("value", [*NUMBERS, *OTHERS], ids=lambda value: str(value)[:20])
def test_no_value_in_any_place_crashes_a_session_with_or_without_an_answer(value: Any, profile: Profile) -> None:
    async def story() -> None:
        async with open_rig(mode="turn", step_ms=1, script='forever { speak "an answer" for 60 }') as rig:
            async with rig.caller(session={"turn_detection": None}, profile=profile, marks=False) as caller:
                for words in places(value, SOUND):
                    await says(caller, words)
                await caller.sends("input.cancel")
                await caller.sends("session.update", session=CALM)
                await caller.appends(1.0)
                await caller.commits()
                await caller.hears(DELTA)
                for words in places(value, SOUND):
                    await says(caller, words)
            rig.callers.clear()  # what holds of sense need not hold of nonsense

    run_story(story)


@pytest.mark.parametrize("value", [*NUMBERS, *OTHERS], ids=lambda value: str(value)[:20])
def test_no_value_in_any_place_crashes_a_native_session(value: Any) -> None:
    async def story() -> None:
        async with open_rig(script='forever { listen 2; speak "an answer" for 0.8 }') as rig:
            async with rig.caller(session=NATIVE, marks=False) as caller:
                for words in places(value, SOUND):
                    await says(caller, words)
            rig.callers.clear()  # what holds of sense need not hold of nonsense

    run_story(story)
