"""Kind: a change of the session is said to be in force, and nothing follows it; or it is refused, and something does."""

from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from duplex_engine.errors import ConfigRejected
from duplex_engine.model_plugins.cascade.plan import plan_session, replan_session
from duplex_engine.model_plugins.contract import ModelPlugin, SessionPlan
from duplex_engine.model_plugins.scripted.options import ScriptedPlan
from duplex_engine.model_plugins.scripted.plugin import ScriptedNative, ScriptedPlugin, ScriptedTurns
from duplex_engine.protocol.session_config import Profile, SessionConfig
from duplex_engine.protocol.session_fields import SETTINGS
from duplex_engine.testing.caller import Caller
from duplex_engine.testing.rig import NATIVE, open_rig
from duplex_engine.testing.schedules import explore, run_story

ECHO = 'forever { listen 2; speak "told: {instructions}" for 0.8 }'
MODES = ["native", "turn"]


async def asks(caller: Caller) -> str:
    """One question; returns the words of the answer."""
    await caller.appends(0.4)
    await caller.commits()
    created = await caller.hears("response.created")
    await caller.hears("response.done", response_id=created["response_id"])
    await caller.waits(1.0)
    return caller.transcript(created["response_id"])


async def updates(caller: Caller, **session: object) -> Mapping[str, Any]:
    """A change that is accepted; returns the session as it is then said to be."""
    event_id = await caller.sends("session.update", session=session)
    updated = await caller.hears("session.updated")
    assert not caller.all("error", event_id=event_id)
    told = updated.event["session"]
    assert isinstance(told, Mapping)
    return told


# --- instructions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_accepted_instructions_are_followed_from_the_next_answer_on(mode: str) -> None:
    async def story() -> None:
        session = {"instructions": "A", **(NATIVE if mode == "native" else {})}
        async with open_rig(mode=mode, script=ECHO) as rig, rig.caller(session=session) as caller:
            await caller.hears("session.updated")
            assert await asks(caller) == "told: A"
            for instructions in ("B", "B", "C"):
                told = await updates(caller, instructions=instructions)
                assert told["instructions"] == instructions
                assert await asks(caller) == f"told: {instructions}"
            told = await updates(caller, metadata={"about": "something else"})
            assert told["instructions"] == "C"
            assert await asks(caller) == "told: C"

    run_story(story)


@explore
async def test_an_answer_that_was_announced_keeps_what_it_was_asked_under() -> None:
    """The change comes in the same breath as the question, before the model has looked at either."""
    async with open_rig(mode="turn", script=ECHO) as rig, rig.caller(session={"instructions": "A"}) as caller:
        await caller.hears("session.updated")
        await caller.appends(0.4)
        await caller.sends_together(
            {"type": "input_audio_buffer.commit", "response_create": True},
            {"type": "session.update", "session": {"instructions": "B"}},
        )
        first = await caller.hears("response.created")
        updated = await caller.hears("session.updated")
        assert caller.heard.index(first) < caller.heard.index(updated)
        await caller.hears("response.done")
        assert caller.transcript(first["response_id"]) == "told: A"
        await caller.waits(1.0)
        assert await asks(caller) == "told: B"


class _Settled:
    """Takes instructions until something was heard, and then no others."""

    def replan(
        self, plan: SessionPlan, config: SessionConfig, patch: Mapping[str, object], *, started: bool
    ) -> SessionPlan:
        assert isinstance(plan, ScriptedPlan)
        if started and (config.instructions or "") != plan.instructions:
            raise ConfigRejected("instructions_update_unsupported", "it was told already", "instructions")
        return super().replan(plan, config, patch, started=started)  # type: ignore[misc,no-any-return]


class SettledNative(_Settled, ScriptedNative):
    pass


class SettledTurns(_Settled, ScriptedTurns):
    pass


def settled(mode: str) -> ModelPlugin:
    options = ScriptedPlugin(mode=mode, script=ECHO).options
    return SettledNative(options) if mode == "native" else SettledTurns(options)


@pytest.mark.parametrize("mode", MODES)
def test_refused_instructions_leave_the_old_ones_in_force_and_in_the_echo(mode: str) -> None:
    async def story() -> None:
        session = {"instructions": "A", **(NATIVE if mode == "native" else {})}
        async with open_rig(settled(mode)) as rig, rig.caller(session=session) as caller:
            await caller.hears("session.updated")
            await caller.sends("input_audio_buffer.append", audio="?")
            await caller.hears("error", code="bad_audio")
            await caller.sends("session.update", session={"instructions": "B"})
            assert (await caller.hears("session.updated"))["instructions"] == "B"
            assert await asks(caller) == "told: B"
            refused = await caller.sends("session.update", session={"instructions": "C", "metadata": {"x": "y"}})
            error = await caller.hears("error", code="instructions_update_unsupported", event_id=refused)
            assert error["param"] == "instructions"
            assert not any(heard["instructions"] == "C" for heard in caller.all("session.updated"))
            for harmless in ({"instructions": "B"}, {"temperature": 0.5}):
                await caller.sends("session.update", session=harmless)
                told = (await caller.hears("session.updated")).event["session"]
                assert isinstance(told, Mapping)
                assert told["instructions"] == "B"
                assert "metadata" not in told
            assert await asks(caller) == "told: B"

    run_story(story)


# --- everything else that answers show -----------------------------------------------------------------------------


@pytest.mark.parametrize("profile", list(Profile))
def test_modalities_hold_from_the_next_answer_on(profile: Profile) -> None:
    async def story() -> None:
        script = 'forever { speak "spoken or written" for 0.8 }'
        async with open_rig(mode="turn", script=script) as rig, rig.caller(session={}, profile=profile) as caller:
            await caller.hears("session.updated")
            for modalities, sounds in ((["text"], False), (["text", "audio"], True), (["text"], False)):
                told = await updates(caller, modalities=modalities, turn_detection=None)
                assert told["modalities"] == told["output_modalities"] == modalities
                await caller.appends(0.8)
                await caller.commits()
                created = await caller.hears("response.created")
                assert created["modalities"] == modalities
                done = await caller.hears("response.done")
                assert bool(caller.audio(created["response_id"])) is sounds
                assert "spoken or written" in str(done.event)
                await caller.waits(1.0)

    run_story(story)


@explore
async def test_output_formats_hold_from_the_next_answer_on() -> None:
    script = 'forever { speak "hello" for 0.8 }'
    async with open_rig(mode="turn", script=script) as rig, rig.caller(marks=False) as caller:
        await caller.hears("session.updated")
        for patch, name, rate_hz, size in (
            ({"output_audio_format": "g711_ulaw"}, "g711_ulaw", 8_000, 6_400),
            ({"audio": {"output": {"format": {"type": "audio/pcma"}}}}, "g711_alaw", 8_000, 6_400),
            ({"response_format": "pcm"}, "pcm16", 24_000, 38_400),
            ({"audio": {"output": {"sample_rate_hz": 16_000}}}, "pcm16", 24_000, 38_400),
            ({"extra_body": {"resample_output": True}}, "pcm16", 16_000, 25_600),
        ):
            told = await updates(caller, **patch)
            assert told["output_audio_format"] == name
            assert told["audio"]["output"]["format"]["rate"] == rate_hz
            await asks(caller)
            deltas = caller.all("response.output_audio.delta", response_id=caller.responses()[-1])
            assert {(heard["format"], heard["sample_rate_hz"]) for heard in deltas} == {(name, rate_hz)}
            assert sum(len(heard.pcm) for heard in deltas) == size


@explore
async def test_metadata_holds_from_the_next_answer_on() -> None:
    async with open_rig(mode="turn", script=ECHO) as rig, rig.caller() as caller:
        await caller.hears("session.updated")
        for metadata in ({"who": "me"}, {"who": "you"}, None):
            told = await updates(caller, metadata=metadata)
            assert told.get("metadata") == metadata
            await asks(caller)
            created = caller.all("response.created")[-1].event["response"]
            assert isinstance(created, Mapping)
            assert created["metadata"] == {**(metadata or {}), "epoch": 0}


@explore
async def test_the_voice_changes_before_it_is_heard_and_not_after() -> None:
    async with open_rig(mode="turn", script=ECHO) as rig, rig.caller(session={"voice": "alto"}) as caller:
        await caller.hears("session.updated")
        assert (await updates(caller, voice="bass"))["voice"] == "bass"
        await asks(caller)
        assert (await updates(caller, voice="bass"))["voice"] == "bass", "the same again is no change"
        refused = await caller.sends("session.update", session={"audio": {"output": {"voice": "alto"}}})
        await caller.hears("error", code="voice_update_after_audio_unsupported", event_id=refused)
        await caller.sends("session.update", session={"temperature": 0.5})
        assert (await caller.hears("session.updated"))["voice"] == "bass"


# --- how input is heard --------------------------------------------------------------------------------------------


@explore
async def test_the_floor_of_silence_holds_at_once() -> None:
    async with open_rig(mode="turn", script=ECHO) as rig, rig.caller() as caller:
        await caller.hears("session.updated")
        await updates(caller, overlap_silence_rms=0.2)
        await caller.appends(0.4)
        await caller.hears("response.listen", reason="silence_or_noise")
        await updates(caller, overlap_silence_rms=0.05)
        await caller.appends(0.4)
        await caller.hears("input_audio_buffer.speech_started")


@explore
async def test_the_length_of_a_short_acknowledgement_holds_at_once() -> None:
    script = 'forever { speak "a long answer" for 8 }'
    async with open_rig(mode="turn", lead_s=0.2, script=script) as rig, rig.caller() as caller:
        await caller.hears("session.updated")
        await caller.appends(1.0)
        await caller.commits()
        await caller.hears("response.created")
        for short_ack_ms, flag in ((1000, "overlap_ack"), (100, "overlap_deferred")):
            await updates(caller, overlap_short_ack_ms=short_ack_ms)
            await caller.appends(0.4)
            await caller.commits(response_create=False)
            committed = await caller.hears("input_audio_buffer.committed")
            assert committed[flag] is True


@explore
async def test_detection_and_with_it_the_overlap_policy_hold_at_once() -> None:
    script = 'forever { speak "an answer" for 0.8 }'
    async with open_rig(mode="turn", script=script) as rig, rig.caller() as caller:
        await caller.hears("session.updated")
        told = await updates(caller, turn_detection={"type": "server_vad", "silence_duration_ms": 200})
        assert told["overlap_policy"] == "barge_in_on_speech"
        await caller.speaks(0.8)
        await caller.is_silent(0.4)
        await caller.hears("response.done", status="completed")
        told = await updates(caller, turn_detection=None)
        assert told["turn_detection"] is None
        assert told["overlap_policy"] == "listen_only"
        await caller.waits(1.0)
        await caller.speaks(0.8)
        await caller.is_silent(0.8)
        assert len(caller.responses()) == 1


@explore
async def test_the_playback_policy_holds_at_once() -> None:
    script = 'forever { speak "an answer" for 4 }'
    async with open_rig(mode="turn", script=script) as rig, rig.caller() as caller:
        await caller.hears("session.updated")
        for policy, gated in (("ack_only", True), ("commit_all_on_done", False)):
            assert (await updates(caller, playback_commit_policy=policy))["playback_commit_policy"] == policy
            await caller.appends(1.0)
            await caller.commits()
            await caller.hears("response.done", status="completed")
            await caller.types("and more")
            asked = await caller.asks()
            if gated:
                await caller.hears("error", code="response_already_active", event_id=asked)
                await caller.acks(4000)
            else:
                await caller.hears("response.created")
                await caller.hears("response.done", status="completed")


# --- what only the model can do ------------------------------------------------------------------------------------

CHANGES: dict[str, object] = {
    "instructions": "Be brief.",
    "temperature": 1.0,
    "max_response_output_tokens": 7,
    "speed": 1.5,
    "modalities": ("text",),
}
"""What the embedded voice follows, each with a value that is not its default."""
REFUSED = {"voice": "bass"}
OF_THE_ENGINE = {
    "idle_timeout_s",
    "overlap_short_ack_ms",
    "overlap_barge_in_ms",
    "overlap_silence_rms",
    "playback_policy",
    "metadata",
}
TOOLS = {"tools", "tool_choice"}


@pytest.mark.parametrize(("name", "value"), CHANGES.items())
def test_the_embedded_voice_follows_what_it_accepts(name: str, value: object) -> None:
    before = plan_session(SessionConfig())
    changed = attrs.evolve(SessionConfig(), **{name: value})
    assert replan_session(before, changed) != before


@pytest.mark.parametrize(("name", "value"), REFUSED.items())
def test_the_embedded_voice_refuses_what_it_cannot_follow(name: str, value: object) -> None:
    changed = attrs.evolve(SessionConfig(), **{name: value})
    with pytest.raises(ConfigRejected):
        replan_session(plan_session(SessionConfig()), changed)


def test_no_setting_is_forgotten_here() -> None:
    told_apart = CHANGES.keys() | REFUSED.keys() | OF_THE_ENGINE | TOOLS
    assert {setting.name for setting in SETTINGS} == told_apart
