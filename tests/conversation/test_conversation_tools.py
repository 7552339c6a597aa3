"""Functions: when calls are said, how their outputs come back, and what the history shows of both (3.8, 4.7)."""

import attrs
import pytest
from conversation_rig import (
    ANNOUNCED,
    CLOSED,
    GA,
    MODEL_DECIDES,
    NATIVE,
    STARTED,
    Rig,
    error_of,
    only,
    types,
)

from duplex_engine.config import SessionLimits
from duplex_engine.conversation.effects import DeliverOutput
from duplex_engine.conversation.facts import (
    FunctionCall,
    FunctionCalled,
    FunctionOutput,
    OutputsTaken,
    ResponseStatus,
)
from duplex_engine.protocol.commands import (
    BargeIn,
    CancelResponse,
    ClearInput,
    CreateItem,
    CreateResponse,
    DeleteItem,
    ResponseOptions,
)
from duplex_engine.protocol.events import FunctionArgumentsDone, OutputItemAdded, OutputItemDone, ResponseDone

ITEM = ["item.added", "item.created", "response.output_item.added"]
ARGUMENTS = ["response.function_call_arguments.delta", "response.function_call_arguments.done"]
CALL_ITEM = [*ITEM, *ARGUMENTS, "response.output_item.done", "item.done"]
CALL = ["response.created", *CALL_ITEM, "response.done", "rate_limits.updated"]
SILENT_END = ["response.content_part.done", *CLOSED]


def called(key=None, number=1):
    return FunctionCalled(FunctionCall("look", '{"at":"it"}', f"call_{number}"), key)


def gives(rig, number=1, output="42"):
    item = {
        "id": f"output_{number}",
        "type": "function_call_output",
        "status": "completed",
        "call_id": f"call_{number}",
        "output": output,
    }
    return rig.obey(CreateItem(item=item, event_id="o"))


def done_responses(said):
    return [event.response for event in said if isinstance(event, ResponseDone)]


# --- when a call is said ---------------------------------------------------------------------------------------------


def test_a_call_of_a_turn_is_said_when_its_answer_is_over():
    rig = Rig()
    turn = rig.asks()
    assert rig.learn(called(turn)) == []
    said = rig.ends(turn)
    assert types(said) == [*SILENT_END, *CALL]
    answer, call = done_responses(said)
    assert answer["output"][0]["content"] == []
    assert [item["type"] for item in call["output"]] == ["function_call"]
    assert call["usage"]["total_tokens"] == 0
    assert rig.machine.active_response_id is None
    gives(rig)
    assert types(rig.obey(CreateResponse())) == STARTED


def test_several_calls_are_said_in_their_order_and_stand_behind_their_answer():
    rig = Rig()
    turn = rig.asks()
    rig.speaks(turn, 400, "Two things.")
    rig.learn(called(turn, 1))
    rig.learn(called(turn, 2))
    rig.writes("And be quick.")
    said = rig.ends(turn)
    assert [event.call_id for event in said if isinstance(event, FunctionArgumentsDone)] == ["call_1", "call_2"]
    shown = [(message.role, message.call_id or message.text) for message in rig.machine.history()]
    assert shown == [
        ("assistant", "Two things."),
        ("assistant", "call_1"),
        ("assistant", "call_2"),
        ("user", "And be quick."),
    ]


def test_a_call_of_a_stock_client_is_an_item_of_its_answer():
    rig = Rig(GA)
    turn = rig.asks()
    rig.speaks(turn, 400, "One moment.")
    rig.learn(called(turn, 1))
    rig.learn(called(turn, 2))
    said = rig.ends(turn)
    assert types(said)[-len(CALL_ITEM) * 2 - 2 :] == [*CALL_ITEM, *CALL_ITEM, "response.done", "rate_limits.updated"]
    (response,) = done_responses(said)
    assert [item["type"] for item in response["output"]] == ["message", "function_call", "function_call"]
    ended = [event for event in said if isinstance(event, OutputItemDone)]
    assert [event.output_index for event in ended] == [0, 1, 2]
    assert [event.item["id"] for event in ended] == [item["id"] for item in response["output"]]
    added = [event for event in said if isinstance(event, OutputItemAdded)]
    assert [(event.output_index, event.item["status"]) for event in added] == [(1, "in_progress"), (2, "in_progress")]
    assert {event.response_id for event in [*added, *ended]} == {response["id"]}


@pytest.mark.parametrize("command", [BargeIn(), CancelResponse()])
@pytest.mark.parametrize("config", [None, GA])
def test_a_call_of_an_answer_that_was_stopped_is_not_said(command, config):
    rig = Rig(config) if config else Rig()
    turn = rig.asks()
    rig.learn(called(turn))
    said = rig.obey(command)
    assert not [event for event in said if isinstance(event, FunctionArgumentsDone)]
    assert error_of(gives(rig)).code == "invalid_function_call_output"


def test_a_call_of_an_answer_that_failed_is_not_said():
    rig = Rig()
    turn = rig.asks()
    rig.learn(called(turn))
    said = rig.ends(turn, ResponseStatus.FAILED, "engine_error", message="no")
    assert not [event for event in said if isinstance(event, FunctionArgumentsDone)]


def test_a_stock_client_hears_of_one_response_at_a_time():
    rig = Rig(attrs.evolve(GA, native=True), NATIVE)
    answer = rig.begins()
    assert rig.learn(called(answer)) == []
    said = rig.obey(CancelResponse())
    assert types(said)[-len(CALL) :] == CALL, "the model that made the call waits for what comes of it"
    cut, call = done_responses(said)
    assert (cut["status"], call["status"]) == ("cancelled", "completed")


def test_a_call_of_a_model_that_decides_is_said_at_once():
    rig = Rig(MODEL_DECIDES, NATIVE)
    answer = rig.begins()
    said = rig.learn(called(answer))
    assert types(said) == CALL
    assert rig.machine.active_response_id == rig.ids[answer]
    assert FunctionArgumentsDone not in map(type, rig.ends(answer))


def test_an_answer_outside_the_history_takes_its_calls_and_their_outputs_with_it():
    rig = Rig()
    rig.writes("Hi")
    rig.obey(CreateResponse(options=ResponseOptions(in_history=False)))
    turn = rig.offered
    rig.learn(called(turn))
    rig.ends(turn)
    assert types(gives(rig)) == ["item.added", "item.created", "item.done"]
    assert [message.text for message in rig.machine.history()] == ["Hi"]
    assert error_of(rig.obey(CreateResponse())).code == "response_create_without_input"


# --- what comes back -------------------------------------------------------------------------------------------------


def test_the_history_shows_the_call_and_its_output():
    rig = Rig()
    turn = rig.asks()
    rig.learn(called(turn))
    rig.ends(turn)
    gives(rig)
    call, output = rig.machine.history()
    assert (call.role, call.name, call.call_id, call.text) == ("assistant", "look", "call_1", '{"at":"it"}')
    assert (output.role, output.name, output.call_id, output.text) == ("tool", "look", "call_1", "42")


def test_an_output_is_delivered_to_a_model_that_decides():
    rig = Rig(MODEL_DECIDES, NATIVE)
    rig.learn(called())
    gives(rig)
    assert rig.effects[-1] == DeliverOutput(FunctionOutput("call_1", "look", "42"))
    assert rig.machine.busy


def test_outputs_that_no_model_takes_are_bounded():
    rig = Rig(MODEL_DECIDES, NATIVE, SessionLimits(function_outputs=2))
    for number in (1, 2, 3):
        rig.learn(called(number=number))
    gives(rig, 1)
    gives(rig, 2)
    error = error_of(gives(rig, 3))
    assert (error.code, error.param, error.event_id) == ("function_response_backlog", "item.output", "o")
    assert [message.role for message in rig.machine.history()].count("tool") == 2
    assert rig.learn(OutputsTaken(2)) == []
    assert types(gives(rig, 3)) == ["item.added", "item.created", "item.done"]


def test_a_turn_model_has_no_backlog_of_outputs():
    rig = Rig(limits=SessionLimits(function_outputs=1))
    for number in (1, 2):
        rig.learn(called(number=number))
        assert types(gives(rig, number)) == ["item.added", "item.created", "item.done"]


def test_clearing_the_sound_does_not_clear_what_is_owed_for_an_output():
    rig = Rig(MODEL_DECIDES, NATIVE)
    rig.learn(called())
    gives(rig)
    rig.obey(ClearInput())
    assert rig.obey(CreateResponse()) == []
    rig.learn(OutputsTaken(1))
    rig.obey(ClearInput())
    assert error_of(rig.obey(CreateResponse())).code == "response_create_without_input"


def test_the_output_of_a_call_that_was_deleted_belongs_to_nothing():
    rig = Rig()
    turn = rig.asks()
    rig.learn(called(turn))
    said = rig.ends(turn)
    rig.obey(DeleteItem(item_id=only(said, FunctionArgumentsDone).item_id))
    assert error_of(gives(rig)).param == "item.call_id"
    assert types(rig.obey(CreateResponse(event_id="c"))) != ANNOUNCED
