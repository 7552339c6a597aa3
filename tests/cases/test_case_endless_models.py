"""Kind: a model that never says its word for the end keeps an answer open, or keeps everybody waiting for one."""

import pytest

from duplex_engine.config import SessionLimits
from duplex_engine.protocol.session_config import Profile
from duplex_engine.testing.caller import Caller
from duplex_engine.testing.rig import NATIVE, open_rig
from duplex_engine.testing.schedules import explore, run_story

BOUNDED = SessionLimits(answer_s=3.0, silence_units_native=20)
SPEAK_FOR_EVER = 'listen 2; speak "on and on and on" for 100000; speak "at last" for 0.4'
DETECTED = {"turn_detection": {"type": "server_vad"}, "sample_rate_hz": 16000}


def unpaired(caller: Caller) -> int:
    """Starts of speech that have no stop yet."""
    starts = len(caller.all("input_audio_buffer.speech_started"))
    return starts - len(caller.all("input_audio_buffer.speech_stopped"))


# --- it speaks for ever --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("obedient", [True, False])
@pytest.mark.parametrize("interrupt", ["response", "epoch"])
def test_a_native_model_that_never_stops_is_stopped_in_silence(obedient: bool, interrupt: str) -> None:
    async def story() -> None:
        options = {"obedient": obedient, "interrupt": interrupt, "script": SPEAK_FOR_EVER}
        async with open_rig(limits=BOUNDED, **options) as rig, rig.caller() as caller:
            await caller.appends(1.0)
            await caller.commits()
            answer = await caller.hears("response.created")
            await caller.hears("response.listen", reason="continuation_limit")
            await caller.hears("response.done", response_id=answer["response_id"])
            assert len(caller.all("response.done", response_id=answer["response_id"])) == 1
            assert caller.audio_ms(answer["response_id"]) <= 13 * 80 + 20 * 80
            await caller.appends(0.4)
            following = await caller.hears("response.created")
            await caller.hears("response.done", response_id=following["response_id"])

    run_story(story)


@pytest.mark.parametrize("profile", list(Profile))
@pytest.mark.parametrize("lead_s", [None, 0.2], ids=["unpaced", "paced"])
def test_a_native_model_that_never_stops_over_a_talking_caller_is_stopped(
    profile: Profile, lead_s: float | None
) -> None:
    """There is no silence that could be counted: real input keeps coming."""

    async def story() -> None:
        async with open_rig(limits=BOUNDED, lead_s=lead_s, script=SPEAK_FOR_EVER) as rig:
            async with rig.caller(profile=profile) as caller:
                await caller.speaks(5.0)
                answer = await caller.hears("response.created")
                done = await caller.hears("response.done", status="incomplete", within_s=10)
                assert done["reason"] == "max_output_tokens"
                assert done["response_id"] == answer["response_id"]
                assert len(caller.all("response.done", response_id=answer["response_id"])) == 1

    run_story(story)


@pytest.mark.parametrize("session", [{}, DETECTED], ids=["push-to-talk", "detected"])
@pytest.mark.parametrize("profile", list(Profile))
@pytest.mark.parametrize("lead_s", [None, 0.2], ids=["unpaced", "paced"])
def test_a_turn_model_that_never_stops_is_stopped(
    session: dict[str, object], profile: Profile, lead_s: float | None
) -> None:
    async def story() -> None:
        async with open_rig(mode="turn", limits=BOUNDED, lead_s=lead_s, script=SPEAK_FOR_EVER) as rig:
            async with rig.caller(session=session, profile=profile) as caller:
                await caller.speaks(1.6)
                if "turn_detection" in session:
                    await caller.is_silent(0.8)
                else:
                    await caller.commits()
                answer = await caller.hears("response.created")
                done = await caller.hears("response.done")
                assert (done["status"], done["reason"]) == ("incomplete", "max_output_tokens")
                assert done["response_id"] == answer["response_id"]
                assert done.at - answer.at <= 3.0 + 1e-6
                assert caller.audio(answer["response_id"])
                await caller.waits(5)
                await caller.speaks(1.6)
                if "turn_detection" in session:
                    await caller.is_silent(0.8)
                else:
                    await caller.commits()
                await caller.hears("response.done", status="completed")
                assert len(caller.all("response.done")) == 2

    run_story(story)


@explore
async def test_a_turn_model_that_thinks_for_ever_is_stopped_and_the_deferred_turn_is_answered() -> None:
    script = 'wait 100000; speak "at last" for 1'
    async with open_rig(mode="turn", limits=BOUNDED, script=script) as rig, rig.caller() as caller:
        await caller.appends(1.0)
        await caller.commits()
        first = await caller.hears("response.created")
        await caller.waits(1.0)
        await caller.appends(1.0)
        await caller.commits()
        await caller.hears("response.done", response_id=first["response_id"], status="incomplete")
        second = await caller.hears("response.created")
        await caller.hears("response.done", response_id=second["response_id"], status="completed")
        assert caller.transcript(second["response_id"]) == "at last"


# --- it listens for ever -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", [NATIVE, {**NATIVE, **DETECTED}], ids=["no detection", "detection"])
def test_a_native_model_that_never_speaks_says_so_and_the_session_expires(session: dict[str, object]) -> None:
    async def story() -> None:
        limits = SessionLimits(idle_ttl_s=30.0)
        async with open_rig(script="listen", limits=limits) as rig, rig.caller(session=session) as caller:
            await caller.speaks(2.0)
            await caller.commits()
            await caller.is_silent(4.0)
            listens = caller.all("response.listen")
            assert 2 <= len(listens) <= 8, "about one a second, and one after the commit"
            assert unpaired(caller) == 0
            end = await caller.hears_the_end()
            assert (end.type, end["reason"]) == ("session.expired", "idle_ttl_expired")
            assert not caller.all("response.created")

    run_story(story)


@explore
async def test_speech_that_nobody_ever_ends_is_ended_with_the_session() -> None:
    async with open_rig(script="listen", limits=SessionLimits(idle_ttl_s=30.0)) as rig, rig.caller() as caller:
        await caller.speaks(2.0)
        assert unpaired(caller) == 1
        await caller.hears_the_end()
        assert unpaired(caller) == 0


# --- a model that decides by itself, in a session that asks for its answers -----------------------------------------


@pytest.mark.parametrize("session", [{}, DETECTED, {"extra_body": {"auto_response": False}}], ids=str)
@pytest.mark.parametrize("interrupt", ["response", "epoch"])
def test_a_native_model_answers_turns_when_it_is_asked(session: dict[str, object], interrupt: str) -> None:
    async def story() -> None:
        script = 'forever { listen 3; speak "here I am" for 0.4 }'
        async with open_rig(script=script, interrupt=interrupt) as rig, rig.caller(session=session) as caller:
            for _ in range(2):
                await caller.speaks(1.6)
                if "turn_detection" in session:
                    await caller.is_silent(0.8)
                else:
                    await caller.commits()
                answer = await caller.hears("response.created")
                await caller.hears("response.done", response_id=answer["response_id"], status="completed")
                assert caller.transcript(answer["response_id"]) == "here I am"
                await caller.waits(2.0)
            assert len(caller.responses()) == 2

    run_story(story)


@explore
async def test_a_native_model_that_is_asked_and_only_listens_ends_the_answer_it_was_asked_for() -> None:
    async with open_rig(script="listen") as rig, rig.caller(session={}) as caller:
        await caller.appends(1.0)
        await caller.commits()
        answer = await caller.hears("response.created")
        await caller.hears("response.listen", response_id=answer["response_id"])
        done = await caller.hears("response.done", status="completed", response_id=answer["response_id"])
        assert done.at - answer.at < 1.0
        await caller.appends(1.0)
        await caller.commits()
        await caller.hears("response.created")
        await caller.hears("response.done", status="completed")


@pytest.mark.parametrize("interrupt", ["response", "epoch"])
def test_a_native_model_hears_nothing_of_a_turn_that_was_cancelled(interrupt: str) -> None:
    """It takes 100 units of the first turn before it would speak; the second turn is too short for that."""

    async def story() -> None:
        script = 'forever { listen 30; speak "late" for 0.4 }'
        async with open_rig(script=script, interrupt=interrupt) as rig, rig.caller(session={}) as caller:
            await caller.appends(2.0)
            await caller.sends_together(
                {"type": "input_audio_buffer.commit", "response_create": True}, {"type": "response.cancel"}
            )
            await caller.hears("response.done", status="cancelled", reason="client_cancelled")
            await caller.waits(1.0)
            await caller.appends(2.0)
            await caller.commits()
            second = await caller.hears("response.created")
            await caller.hears("response.done", response_id=second["response_id"], status="completed")
            assert not caller.audio(second["response_id"])

    run_story(story)


@explore
async def test_a_session_that_turns_to_asking_in_mid_call_is_answered() -> None:
    async with open_rig(script='forever { listen 3; speak "here" for 0.4 }') as rig, rig.caller() as caller:
        await caller.speaks(0.4)
        await caller.hears("response.done", status="completed")
        await caller.sends("session.update", session={"extra_body": {"auto_response": False}})
        await caller.hears("session.updated")
        await caller.appends(1.0)
        await caller.commits()
        await caller.hears("response.done", status="completed")
