"""A request for an answer that comes at a bad moment, or fails, and leaves the floor taken for good."""

import pytest

from duplex_engine.protocol.session_config import Profile
from duplex_engine.testing.caller import Caller
from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore, run_story

CREATE = {"type": "response.create"}
ASK = 'forever { speak "an answer" for 0.4 }'


async def gets_an_answer(caller: Caller) -> None:
    """The floor is free: a question is answered to its end."""
    await caller.appends(1.0)
    await caller.commits(response_create=False)
    await caller.asks()
    created = await caller.hears("response.created")
    await caller.hears("response.done", status="completed", response_id=created["response_id"])
    assert caller.audio(created["response_id"])


@explore
async def test_a_second_request_is_refused_by_its_name_and_the_next_one_is_answered() -> None:
    script = 'wait 0.3; speak "first" for 2; speak "third" for 1'
    async with open_rig(mode="turn", lead_s=0.2, script=script) as rig, rig.caller() as caller:
        await caller.appends(1.0)
        await caller.commits(response_create=False)
        await caller.sends("response.create", event_id="a")
        await caller.sends("response.create", event_id="b")
        first = await caller.hears("response.created")
        await caller.hears("error", code="response_already_active", event_id="b")
        await caller.hears("response.output_audio.delta", response_id=first["response_id"])
        late = await caller.asks()
        await caller.hears("error", code="response_already_active", event_id=late)
        await caller.hears("response.done", status="completed", response_id=first["response_id"])
        assert caller.audio_ms(first["response_id"]) == 2000
        await gets_an_answer(caller)
        assert len(caller.responses()) == 2


REFUSED = [
    ({}, "response_create_without_input"),
    ({"temperature": 1.0}, "unsupported_native_response_options"),
    ({"tools": [{"type": "function", "name": "f"}]}, "unsupported_native_response_options"),
    ({"instructions": "sing"}, "unsupported_native_response_options"),
    ({"output_audio_format": "flac"}, "unsupported_audio_format"),
    ({"audio": {"output": {"format": {"type": "audio/opus"}}}}, "unsupported_audio_format"),
]


REFUSALS = [(*refused, False) for refused in REFUSED] + [(*refused, True) for refused in REFUSED[1:]]
"""Options, the code, and whether a turn waits that could be answered."""


@pytest.mark.parametrize(("options", "code", "waiting"), REFUSALS, ids=[f"{row[0]} {row[2]}" for row in REFUSALS])
def test_a_refused_request_leaves_the_floor_free(options: dict[str, object], code: str, waiting: bool) -> None:
    async def story() -> None:
        async with open_rig(mode="turn", script=ASK) as rig, rig.caller() as caller:
            if waiting:
                await caller.appends(1.0)
                await caller.commits(response_create=False)
            for _ in range(2):
                refused = await caller.asks(**options)
                await caller.hears("error", code=code, event_id=refused)
            assert not caller.responses()
            await gets_an_answer(caller)
            assert len(caller.responses()) == 1

    run_story(story)


FAILURES = {
    "the model fails": ('fail server_error "no"', "failed"),
    "the worker cannot compute": ('speak "a" for 0.1; fail "no"', "failed"),
    "the worker dies": ("crash", "failed"),
    "the worker hangs": ("hang", "failed"),
    "the model says nothing": ("yield", "completed"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_request_whose_answer_fails_leaves_the_floor_free(failure: str) -> None:
    said, status = FAILURES[failure]

    @explore(examples=5)
    async def story() -> None:
        script = f'{said}; speak "an answer" for 0.4'
        async with open_rig(mode="turn", step_timeout_s=0.5, script=script) as rig, rig.caller() as caller:
            await caller.appends(1.0)
            await caller.commits()
            await caller.hears("response.done", status=status)
            if status == "completed":
                return
            await gets_an_answer(caller)

    story()


@explore
async def test_a_request_that_is_cancelled_before_its_first_sound_leaves_the_floor_free() -> None:
    for interrupt in ("response", "epoch"):
        async with open_rig(
            mode="turn", interrupt=interrupt, script='forever { listen 0.3; speak "a" for 0.4 }'
        ) as rig:
            async with rig.caller() as caller:
                for way in ("response.cancel", "barge_in", "input.cancel", "output_audio_buffer.clear"):
                    await caller.appends(1.0)
                    await caller.commits()
                    await caller.hears("response.created")
                    await caller.waits(0.1)
                    await caller.sends(way)
                    done = await caller.hears("response.done", status="cancelled")
                    assert caller.audio_ms(done["response_id"]) == 0
                    await gets_an_answer(caller)
                assert not caller.all("error")


@explore
async def test_an_answer_that_is_not_acknowledged_holds_the_floor_no_longer_than_it_plays() -> None:
    async with open_rig(mode="turn", script='forever { speak "an answer" for 1 }') as rig:
        async with rig.caller(session={"playback_commit_policy": "ack_only"}) as caller:
            await caller.appends(1.0)
            await caller.commits()
            first = await caller.hears("response.done", status="completed")
            await caller.appends(1.0)
            await caller.commits(response_create=False)
            early = await caller.asks()
            await caller.hears("error", code="response_already_active", event_id=early)
            await caller.acks(1000, response_id=first["response_id"])
            await caller.asks()
            await caller.hears("response.done", status="completed")
            await caller.waits(10)
            await gets_an_answer(caller)


@explore
async def test_a_native_model_refuses_a_request_without_input_and_goes_on() -> None:
    async with open_rig(script='listen 6; speak "by itself" for 0.8; listen 4; speak "again" for 0.8') as rig:
        async with rig.caller() as caller:
            for _ in range(2):
                refused = await caller.asks()
                await caller.hears("error", code="response_create_without_input", event_id=refused)
            await caller.speaks(0.64)
            first = await caller.hears("response.created")
            late = await caller.asks()
            await caller.hears("error", code="response_already_active", event_id=late)
            await caller.hears("response.done", status="completed", response_id=first["response_id"])
            await caller.speaks(0.64)
            await caller.hears("response.done", status="completed")
        assert len(caller.responses()) == 2


@explore
async def test_other_clients_read_of_the_running_answer_in_their_own_words() -> None:
    async with open_rig(mode="turn", script='forever { listen 0.3; speak "an answer" for 0.4 }') as rig:
        async with rig.caller(profile=Profile.GA, session={"turn_detection": None}) as caller:
            await caller.appends(1.0)
            await caller.commits()
            first = await caller.hears("response.created")
            await caller.sends("response.create", event_id="b")
            await caller.hears("error", code="conversation_already_has_active_response", event_id="b")
            await caller.hears("response.done", status="completed", response_id=first["response_id"])
            await gets_an_answer(caller)
