"""The embedded voice calls functions: in turns that are typed and spoken, told under many schedules."""

from cascade_quick import QuickCascade

from duplex_engine.testing.caller import Caller, Heard
from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore

TOOLS = [{"type": "function", "name": "look"}, {"type": "function", "name": "wave"}]
SESSION = {"tools": TOOLS}
DETECTED = {"tools": TOOLS, "turn_detection": {"type": "server_vad"}, "extra_body": {"auto_response": True}}
ARGUMENTS_DONE = "response.function_call_arguments.done"


async def types(caller: Caller, text: str) -> None:
    await caller.types(text)
    await caller.asks()


def output_of(call: Heard, output: str) -> dict[str, object]:
    item = {"type": "function_call_output", "call_id": call["call_id"], "output": output}
    return {"type": "conversation.item.create", "item": item}


@explore
async def test_a_question_is_answered_by_a_call_and_the_output_in_words() -> None:
    async with open_rig(QuickCascade()) as rig:
        async with rig.caller(session=SESSION) as caller:
            await types(caller, "look")
            call = await caller.hears(ARGUMENTS_DONE, name="look")
            assert call["arguments"] == '{"at": "it"}'
            await caller.sends_together(output_of(call, "found"), {"type": "response.create"})
            await caller.hears("response.speak")
            done = await caller.hears("response.done", status="completed")
            assert caller.transcript(done["response_id"]) == "All right then, here it is."
            assert not caller.all("error")
        of_empty = [heard.type for heard in caller.heard if heard.event.get("response_id") == caller.responses()[0]]
        assert not [kind for kind in of_empty if "audio" in kind or kind == "response.speak"]


@explore
async def test_words_before_calls_are_spoken_and_calls_are_not() -> None:
    async with open_rig(QuickCascade()) as rig:
        async with rig.caller(session=SESSION) as caller:
            await types(caller, "look and wave")
            spoken = await caller.hears("response.done", status="completed")
            looked, waved = await caller.hears(ARGUMENTS_DONE), await caller.hears(ARGUMENTS_DONE)
            assert caller.transcript(spoken["response_id"]) == "One moment, please."
            assert caller.audio(spoken["response_id"])
            assert (looked["name"], waved["name"]) == ("look", "wave")
            assert looked["call_id"] != waved["call_id"]
            both = (output_of(looked, "a"), output_of(waved, "b"))
            await caller.sends_together(*both, {"type": "response.create"})
            await caller.hears("response.speak")
            await caller.hears("response.done", status="completed")
            assert not caller.all("error")


@explore
async def test_a_model_that_goes_in_circles_is_stopped() -> None:
    async with open_rig(QuickCascade()) as rig:
        async with rig.caller(session=SESSION) as caller:
            await types(caller, "look for ever")
            await caller.hears(ARGUMENTS_DONE, name="look", within_s=1.0)
            await caller.hears("response.done", status="completed")
        assert len(caller.all(ARGUMENTS_DONE)) == 1


@explore
async def test_a_call_of_what_was_not_offered_fails_the_answer_and_nothing_else() -> None:
    async with open_rig(QuickCascade()) as rig:
        async with rig.caller(session=SESSION) as caller:
            await types(caller, "dance")
            error = await caller.hears("error", code="function_call_parse_error")
            assert "dance" in str(error["message"])
            await caller.hears("response.done", status="failed")
            await types(caller, "Are you there?")
            await caller.hears("response.done", status="completed")
        assert not caller.all(ARGUMENTS_DONE)


@explore
async def test_who_cuts_in_on_the_words_has_prevented_the_call() -> None:
    async with open_rig(QuickCascade()) as rig:
        async with rig.caller(session=SESSION) as caller:
            await types(caller, "look and wave")
            await caller.hears("response.speak")
            await caller.interrupts()
            await caller.hears("response.done", status="cancelled")
            await caller.waits(2.0)
        assert not caller.all(ARGUMENTS_DONE)


@explore
async def test_nothing_is_called_while_the_user_only_pauses() -> None:
    async with open_rig(QuickCascade()) as rig:
        async with rig.caller(session=DETECTED) as caller:
            await caller.speaks(0.8)
            await caller.is_silent(0.32)  # long enough for a draft with its call, too short for the end of a turn
            await caller.speaks(0.8)
            assert not caller.all(ARGUMENTS_DONE)
            await caller.is_silent(1.2)
            await caller.hears(ARGUMENTS_DONE, name="look")
        assert len(caller.all(ARGUMENTS_DONE)) == 1


@explore
async def test_functions_may_change_from_the_next_turn_on() -> None:
    async with open_rig(QuickCascade()) as rig:
        async with rig.caller(session={}) as caller:
            await types(caller, "look")
            await caller.hears("response.done", status="failed")
            await caller.sends("session.update", session={"tools": TOOLS, "tool_choice": "auto"})
            await caller.hears("session.updated")
            await types(caller, "look")
            await caller.hears(ARGUMENTS_DONE, name="look")
            refused = await caller.sends("session.update", session={"tools": [{"type": "mcp"}]})
            error = await caller.hears("error", event_id=refused)
            assert (error["code"], error["param"]) == ("invalid_duplex_runtime_config", "tools[0].type")
