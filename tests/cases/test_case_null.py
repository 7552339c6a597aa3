"""A null that is taken for a missing key, or a missing key for a null."""

from collections.abc import Mapping
from typing import Any

import pytest

from duplex_engine.protocol.session_config import Profile
from duplex_engine.testing.caller import Caller
from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore, run_story

VAD = {"type": "server_vad"}
ANSWERS = 'forever { speak "an answer" for 0.4 }'
COMMITTED = "input_audio_buffer.committed"


def flat(detection: object) -> dict[str, object]:
    return {"turn_detection": detection}


def nested(detection: object) -> dict[str, object]:
    return {"audio": {"input": {"turn_detection": detection}}}


async def updated(caller: Caller, session: Mapping[str, object]) -> dict[str, Any]:
    """The session object after an update that is accepted."""
    tag = str(len(caller.said))
    await caller.sends("session.update", session={**session, "include": [tag]})
    echo = (await caller.hears("session.updated", include=[tag]))["session"]
    assert isinstance(echo, dict)
    return echo


async def detects(caller: Caller) -> bool:
    """Whether speech and then silence are a turn without a word of the client."""
    known = len(caller.all(COMMITTED))
    await caller.appends(1.2)
    await caller.appends(4.0, loudness=0.0)
    await caller.waits(2)
    return len(caller.all(COMMITTED)) > known


SPELLINGS = [flat, nested]


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("on", SPELLINGS)
@pytest.mark.parametrize("off", SPELLINGS)
def test_null_ends_detection_in_either_spelling_and_a_missing_key_does_not(on: Any, off: Any, profile: Profile) -> None:
    @explore(examples=3)
    async def story() -> None:
        async with open_rig(mode="turn", script=ANSWERS) as rig:
            async with rig.caller(session=flat(None), profile=profile) as caller:
                assert not await detects(caller)
                await caller.sends("input_audio_buffer.clear")
                echo = await updated(caller, on(VAD))
                assert (
                    echo["turn_detection"]["type"] == echo["audio"]["input"]["turn_detection"]["type"] == "server_vad"
                )
                assert await detects(caller)
                for unrelated in ({}, {"instructions": "x"}, {"audio": {"input": {}}}, {"audio": None}):
                    echo = await updated(caller, unrelated)
                    assert echo["turn_detection"]["type"] == "server_vad"
                assert await detects(caller)
                echo = await updated(caller, off(None))
                assert echo["turn_detection"] is None
                assert echo["audio"]["input"]["turn_detection"] is None
                answers, starts = len(caller.responses()), len(caller.all("input_audio_buffer.speech_stopped"))
                assert not await detects(caller)
                assert len(caller.responses()) == answers
                assert len(caller.all("input_audio_buffer.speech_stopped")) == starts
                for unrelated in ({}, {"metadata": {"a": "b"}}, {"audio": {"input": {}}}):
                    assert (await updated(caller, unrelated))["turn_detection"] is None
                await caller.commits()
                await caller.hears("response.done", status="completed")

    story()


@pytest.mark.parametrize("profile", Profile)
def test_the_nested_spelling_wins_even_when_it_says_null(profile: Profile) -> None:
    async def story() -> None:
        async with open_rig(mode="turn", script=ANSWERS) as rig:
            async with rig.caller(session={**flat(VAD), **nested(None)}, profile=profile) as caller:
                assert not await detects(caller)
                assert (await updated(caller, {**flat(None), **nested(VAD)}))["turn_detection"] is not None
                assert await detects(caller)

    run_story(story)


@explore
async def test_null_in_the_middle_of_speech_leaves_the_turn_to_the_client() -> None:
    """Speech that the detector had begun to hear is ended by the client's commit alone."""
    async with open_rig(mode="turn", script=ANSWERS) as rig, rig.caller(session=flat(VAD)) as caller:
        await caller.speaks(0.8)
        await caller.hears("input_audio_buffer.speech_started")
        await updated(caller, flat(None))
        await caller.is_silent(2.0)
        assert not caller.all(COMMITTED)
        await caller.commits()
        await caller.hears("response.done", status="completed")
        started = len(caller.all("input_audio_buffer.speech_started"))
        assert len(caller.all("input_audio_buffer.speech_stopped")) == started


@explore
async def test_null_while_an_answer_is_given_stops_speech_from_interrupting_it() -> None:
    async with open_rig(mode="turn", lead_s=0.2, script='forever { speak "an answer" for 4 }') as rig:
        async with rig.caller(session=flat(VAD)) as caller:
            await caller.speaks(1.2)
            await caller.is_silent(0.8)
            first = await caller.hears("response.created")
            await updated(caller, flat(None))
            await caller.speaks(2.0)
            await caller.hears("response.done", status="completed", response_id=first["response_id"])


CLEARED = [
    ("metadata", {"a": "b"}, None, ("metadata",)),
    ("tools", [{"type": "function", "name": "f"}], None, ("tools",)),
    ("tool_choice", "required", None, ("tool_choice",)),
    ("temperature", 0.3, None, ("temperature",)),
    ("max_response_output_tokens", 20, None, ("max_tokens",)),
    ("speed", 1.5, None, ("speed",)),
    ("idle_timeout_s", 20, 300, ("idle_timeout_s",)),
    ("tracing", "auto", None, ("tracing",)),
    ("prompt", {"id": "p"}, None, ("prompt",)),
    ("truncation", "disabled", None, ("truncation",)),
    ("input_audio_transcription", {"model": "m"}, None, ("audio", "input", "transcription")),
    ("input_audio_noise_reduction", {"type": "near_field"}, None, ("audio", "input", "noise_reduction")),
    ("unheard_of", {"by": "us"}, None, ("unheard_of",)),
]
"""Key, a value, what it is after null, and where the echo has it."""


def shown(echo: Mapping[str, Any], place: tuple[str, ...]) -> Any:
    value: Any = echo
    for key in place:
        value = value.get(key)
    return value


@pytest.mark.parametrize(("key", "value", "reset", "place"), CLEARED, ids=[case[0] for case in CLEARED])
def test_null_resets_a_setting_and_a_missing_key_keeps_it(key: str, value: Any, reset: Any, place: Any) -> None:
    async def story() -> None:
        async with open_rig(mode="turn", script=ANSWERS) as rig, rig.caller() as caller:
            await updated(caller, {key: value})
            assert shown(await updated(caller, {}), place) == value
            assert shown(await updated(caller, {key: None}), place) == reset
            assert shown(await updated(caller, {}), place) == reset
            assert not caller.all("error")

    run_story(story)


KEPT = ("instructions", "voice", "modalities", "model", "input_audio_format", "sample_rate_hz", "output_audio_format")
KEPT_OBJECTS = ("audio", "extra_body", "overlap_policy", "playback_commit_policy", "overlap_short_ack_ms")


@pytest.mark.parametrize("key", [*KEPT, *KEPT_OBJECTS])
def test_null_leaves_alone_what_cannot_be_without_a_value(key: str) -> None:
    chosen = {
        "instructions": "be brief",
        "voice": "one",
        "modalities": ["audio"],
        "input_audio_format": "g711_ulaw",
        "output_audio_format": "g711_alaw",
        "extra_body": {"mark": 7},
        "overlap_short_ack_ms": 100,
        **flat(VAD),
    }

    async def story() -> None:
        async with open_rig(mode="turn", script=ANSWERS) as rig, rig.caller(session=chosen, marks=False) as caller:
            before = await updated(caller, {})
            after = await updated(caller, {key: None})
            assert {**after, "include": 0} == {**before, "include": 0}

    run_story(story)


def test_null_clears_what_the_next_answer_would_carry() -> None:
    async def story() -> None:
        async with open_rig(mode="turn", script=ANSWERS) as rig:
            async with rig.caller(session={"metadata": {"a": "b"}}) as caller:
                for metadata in ({"a": "b"}, {}):
                    await caller.appends(1.0)
                    await caller.commits()
                    created = (await caller.hears("response.created"))["response"]
                    assert isinstance(created, Mapping)
                    assert {**created["metadata"], "epoch": 0} == {**metadata, "epoch": 0}
                    await caller.hears("response.done")
                    await updated(caller, {"metadata": None})

    run_story(story)


PAUSES: list[dict[str, Any]] = [
    {"type": "session.heartbeat"},
    {"type": "input_audio_buffer.append", "format": None, "sample_rate_hz": None, "is_speech": None, "vad": None}
    | dict.fromkeys(("speech", "speech_probability", "overlap_silence_rms", "duration_ms", "audio_duration_ms"))
    | dict.fromkeys(("audio_start_ms", "audio_end_ms", "video_frames", "max_slice_nums", "transcript", "text"))
    | dict.fromkeys(("overlap_action", "overlap", "force_barge_in", "force_listen", "delta", "input_audio_format")),
    {"type": "input_audio_buffer.commit", "final": None, "response_create": None, "create_response": None}
    | {"is_speech": None},
    {"type": "response.create", "response": None},
    {
        "type": "response.create",
        "response": dict.fromkeys(("modalities", "metadata", "instructions", "tools", "voice")),
    },
    {"type": "response.cancel", "response_id": None},
    {"type": "conversation.item.create", "previous_item_id": None}
    | {"item": {"id": None, "role": None, "status": None, "object": None, "type": None, "content": None}},
    {"type": "playback.ack", "played_ms": 0, "committed_ms": None, "response_id": None, "item_id": None},
    {"type": "output_audio_buffer.clear", "response_id": None},
    {"type": "turn.signal", "event": "user_started", "payload": None},
    {"type": "session.update", "session": {}, "event_id": None},
    {"type": "session.close", "reason": None},
]


def test_a_null_in_an_optional_field_of_a_command_is_as_if_it_were_not_there() -> None:
    def bare(command: Mapping[str, Any]) -> dict[str, Any]:
        kept = {key: value for key, value in command.items() if value is not None}
        return {key: bare(value) if isinstance(value, dict) else value for key, value in kept.items()}

    told: list[list[tuple[str, object]]] = []

    async def story() -> None:
        async with open_rig(mode="turn", lead_s=0.2, script=ANSWERS) as rig:
            for strip in (bare, dict):
                async with rig.caller() as caller:
                    sound = {"audio": caller._sound(1.0, 0.1)}
                    for command in PAUSES:
                        filled = {**command, **sound} if command["type"].endswith("append") else command
                        await caller.sends_together(strip(filled))
                        await caller.waits(0.3)
                told.append([(heard.type, heard["code"] if heard.type == "error" else None) for heard in caller.heard])

    run_story(story)
    assert told[0] == told[1]
    assert any(kind == "response.created" for kind, _ in told[0])
