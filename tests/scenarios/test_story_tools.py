"""Functions: a model calls one, the client says what came of it, the model goes on with that."""

from collections.abc import Sequence

from duplex_engine.config import SessionLimits
from duplex_engine.testing.caller import Caller, Heard
from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore

ARGUMENTS_DONE = "response.function_call_arguments.done"
ASKED = 'call weather {"city": "Oslo"}; await; speak "It is {output} there" for 0.5'
CALL_EVENTS = [
    "response.created",
    "conversation.item.added",
    "conversation.item.created",
    "response.output_item.added",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_item.done",
    "conversation.item.done",
    "response.done",
    "rate_limits.updated",
]


def output_of(call: Heard, output: str) -> dict[str, object]:
    """The command that answers a call."""
    item = {"type": "function_call_output", "call_id": call["call_id"], "output": output}
    return {"type": "conversation.item.create", "item": item}


def kinds(heard: Sequence[Heard]) -> list[str]:
    return [event.type for event in heard]


async def asks_something(caller: Caller) -> None:
    await caller.appends(0.8)
    await caller.commits()


# --- a model of turns -----------------------------------------------------------------------------------------------


@explore
async def test_a_turn_is_answered_by_a_call_and_its_output_in_words() -> None:
    async with open_rig(mode="turn", script=ASKED) as rig:
        async with rig.caller() as caller:
            await asks_something(caller)
            call = await caller.hears(ARGUMENTS_DONE, name="weather")
            assert call["arguments"] == '{"city": "Oslo"}'
            await caller.sends_together(output_of(call, "rainy"), {"type": "response.create"})
            await caller.hears("response.speak")
            done = await caller.hears("response.done", status="completed")
            assert caller.transcript(done["response_id"]) == "It is rainy there"
            assert not caller.all("error")
            empty, made, spoken = caller.responses()
            assert (made, spoken) == (call["response_id"], done["response_id"])
        of_empty = [heard for heard in caller.heard if heard.event.get("response_id") == empty]
        assert not [kind for kind in kinds(of_empty) if "audio" in kind]
        (item,) = caller.all("response.done", response_id=empty)[0]["output"]  # type: ignore[misc]
        assert item["content"] == []
        began = kinds(caller.heard).index("response.function_call_arguments.delta") - 4
        assert kinds(caller.heard)[began : began + len(CALL_EVENTS)] == CALL_EVENTS
        assert caller.heard[began - 2].event["response_id"] == empty, "the answer was over before the call was said"


@explore
async def test_words_come_before_the_call_that_was_made_with_them() -> None:
    script = 'speak "One moment" for 0.4; call look_up; call look_up {"again": true}; await; speak "{output}" for 0.4'
    async with open_rig(mode="turn", script=script) as rig:
        async with rig.caller() as caller:
            await asks_something(caller)
            spoken = await caller.hears("response.done", status="completed")
            first = await caller.hears(ARGUMENTS_DONE)
            second = await caller.hears(ARGUMENTS_DONE)
            assert caller.transcript(spoken["response_id"]) == "One moment"
            assert first["call_id"] != second["call_id"]
            both = (output_of(first, "nothing"), output_of(second, "a book"))
            await caller.sends_together(*both, {"type": "response.create"})
            await caller.hears("response.speak")
            done = await caller.hears("response.done", status="completed")
            assert caller.transcript(done["response_id"]) == "a book"


@explore
async def test_who_cuts_in_before_the_call_is_said_has_prevented_it() -> None:
    script = 'speak "Let me look that up for you" for 4; call look_up; speak "As you like" for 0.4'
    async with open_rig(mode="turn", script=script, lead_s=0.2) as rig:
        async with rig.caller() as caller:
            await asks_something(caller)
            await caller.hears("response.speak")
            await caller.waits(1.0)
            await caller.interrupts()
            await caller.hears("response.done", status="cancelled")
            await asks_something(caller)
            await caller.hears("response.done", status="completed")
        assert not caller.all(ARGUMENTS_DONE)


@explore
async def test_who_speaks_between_call_and_output_is_answered_and_the_output_too() -> None:
    script = 'call look_up; await; speak "Just talking" for 4; speak "{output}" for 0.4'
    async with open_rig(mode="turn", script=script, lead_s=0.2) as rig:
        async with rig.caller() as caller:
            await asks_something(caller)
            call = await caller.hears(ARGUMENTS_DONE)
            await asks_something(caller)
            await caller.hears("response.speak")
            await caller.waits(0.5)
            await caller.interrupts()
            await caller.hears("response.done", status="cancelled")
            await caller.sends_together(output_of(call, "late but true"), {"type": "response.create"})
            done = await caller.hears("response.done", status="completed")
            assert caller.transcript(done["response_id"]) == "late but true"


@explore
async def test_outputs_of_calls_that_nobody_made_or_that_are_answered_change_nothing() -> None:
    async with open_rig(mode="turn", script=ASKED) as rig:
        async with rig.caller() as caller:
            await asks_something(caller)
            call = await caller.hears(ARGUMENTS_DONE)
            stranger = {"type": "function_call_output", "call_id": "call_of_another", "output": "x"}
            refused = await caller.sends("conversation.item.create", item=stranger)
            error = await caller.hears("error", code="invalid_function_call_output", event_id=refused)
            assert error["param"] == "item.call_id"
            again = output_of(call, "sunny")
            await caller.sends_together(output_of(call, "foggy"), again)
            error = await caller.hears("error", code="invalid_function_call_output")
            assert error["param"] == "item.output"
            await caller.asks()
            done = await caller.hears("response.done", status="completed")
            assert caller.transcript(done["response_id"]) == "It is foggy there"


# --- a model that decides by itself ----------------------------------------------------------------------------------


@explore
async def test_a_model_goes_on_by_itself_when_it_gets_the_output() -> None:
    async with open_rig(mode="native", script=f"listen 2; {ASKED}") as rig:
        async with rig.caller() as caller:
            await caller.appends(0.3)
            call = await caller.hears(ARGUMENTS_DONE, name="weather")
            await caller.waits(3.0)
            await caller.sends_together(output_of(call, "sunny"), {"type": "response.create"})
            spoken = await caller.hears("response.speak")
            done = await caller.hears("response.done", response_id=spoken["response_id"])
            assert caller.transcript(done["response_id"]) == "It is sunny there"
            assert not caller.all("error")


@explore
async def test_a_call_is_said_in_the_middle_of_what_the_model_says() -> None:
    script = (
        'listen 1; speak "I am looking" for 1; call look_up; speak "still looking" for 1; await; speak "{output}" for 1'
    )
    async with open_rig(mode="native", script=script) as rig:
        async with rig.caller() as caller:
            await caller.appends(0.3)
            spoken = await caller.hears("response.speak")
            call = await caller.hears(ARGUMENTS_DONE)
            await caller.sends_together(output_of(call, "found it"))
            over = await caller.hears("response.done", response_id=spoken["response_id"])
            assert call.at <= over.at
            await caller.hears("response.speak")
            await caller.hears("response.speak")
            await caller.hears("response.done", status="completed")
            texts = {caller.transcript(response_id) for response_id in caller.responses()}
            assert "found it" in texts


@explore
async def test_sound_that_is_cleared_does_not_take_an_output_with_it() -> None:
    async with open_rig(mode="native", script=f"listen 2; {ASKED}", step_ms=200) as rig:
        async with rig.caller() as caller:
            await caller.appends(0.3)
            call = await caller.hears(ARGUMENTS_DONE)
            await caller.sends_together(output_of(call, "windy"), {"type": "input_audio_buffer.clear"})
            await caller.hears("input_audio_buffer.cleared")
            spoken = await caller.hears("response.speak")
            done = await caller.hears("response.done", response_id=spoken["response_id"])
            assert caller.transcript(done["response_id"]) == "It is windy there"


@explore
async def test_an_output_that_waits_survives_a_model_that_fails() -> None:
    script = 'listen 2; call look_up; wait 1; crash; await; speak "{output}" for 0.4'
    async with open_rig(mode="native", script=script) as rig:
        async with rig.caller() as caller:
            await caller.appends(0.3)
            call = await caller.hears(ARGUMENTS_DONE)
            await caller.sends_together(output_of(call, "kept"))
            await caller.hears("error")
            spoken = await caller.hears("response.speak")
            done = await caller.hears("response.done", response_id=spoken["response_id"])
            assert caller.transcript(done["response_id"]) == "kept"


@explore
async def test_more_outputs_than_a_model_takes_are_refused_and_can_be_sent_later() -> None:
    script = 'listen 1; call f; call f; call f; wait 2; speak "go on" for 0.4; await; speak "{output}" for 0.4'
    async with open_rig(mode="native", script=script, limits=SessionLimits(function_outputs=2)) as rig:
        async with rig.caller() as caller:
            await caller.appends(0.3)
            calls = [await caller.hears(ARGUMENTS_DONE) for _ in range(3)]
            await caller.sends_together(*(output_of(call, f"number {n}") for n, call in enumerate(calls)))
            error = await caller.hears("error", code="function_response_backlog")
            assert error["param"] == "item.output"
            await caller.hears("response.speak")
            await caller.sends_together(output_of(calls[2], "the last"))
            await caller.hears("response.speak")
            await caller.hears("response.done", status="completed")
            texts = {caller.transcript(response_id) for response_id in caller.responses()}
            assert "the last" in texts


@explore
async def test_who_cuts_in_while_a_function_runs_leaves_its_output_welcome() -> None:
    script = 'listen 2; speak "I will find out for you" for 4; listen 1; speak "and {output}" for 0.4'
    async with open_rig(mode="native", script=f"listen 1; call look_up; {script}", lead_s=0.2) as rig:
        async with rig.caller() as caller:
            await caller.appends(0.5)
            call = await caller.hears(ARGUMENTS_DONE)
            await caller.hears("response.speak")
            await caller.waits(1.0)
            await caller.interrupts()
            await caller.hears("response.done", status="cancelled")
            await caller.sends_together(output_of(call, "here it is"))
            await caller.hears("conversation.item.done")
            await caller.appends(0.3)
            spoken = await caller.hears("response.speak")
            done = await caller.hears("response.done", response_id=spoken["response_id"])
            assert caller.transcript(done["response_id"]) == "and here it is"


@explore
async def test_who_asks_a_model_that_decides_turn_by_turn_gets_the_output_told() -> None:
    async with open_rig(mode="native", script=f"listen 1; {ASKED}") as rig:
        async with rig.caller(session={}) as caller:
            await asks_something(caller)
            call = await caller.hears(ARGUMENTS_DONE)
            await caller.sends_together(output_of(call, "misty"), {"type": "response.create"})
            spoken = await caller.hears("response.speak")
            done = await caller.hears("response.done", response_id=spoken["response_id"])
            assert caller.transcript(done["response_id"]) == "It is misty there"
            assert not caller.all("error")
