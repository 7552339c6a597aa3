"""Which functions a session may offer, and what the model reads and may write of them."""

import json
from contextlib import suppress
from datetime import datetime
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duplex_engine.conversation.effects import Message
from duplex_engine.errors import ConfigRejected
from duplex_engine.model_plugins.cascade.payloads import ChatMessage
from duplex_engine.model_plugins.cascade.plan import CALL_TOKENS, MAX_TOKENS, CascadePlan, plan_session
from duplex_engine.model_plugins.cascade.prompt import (
    ANSWER_WITH_IT,
    HISTORY_CHARACTERS,
    compose,
    compose_prelude,
    trimmed,
)
from duplex_engine.model_plugins.cascade.tools import (
    MOST_CHARACTERS,
    MOST_TOOLS,
    WORDS_ALONE,
    Tools,
    answer_grammar,
    read_tools,
)
from duplex_engine.protocol.commands import ResponseOptions
from duplex_engine.protocol.session_config import SessionConfig

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "name": "get_weather", "description": "The weather in a city.", "parameters": CITY}
CLOCK = {"type": "function", "name": "get_time"}
NOON = datetime(2026, 11, 29, 12, 0)
BOTH = read_tools((WEATHER, CLOCK), None)


def names(tools: Tools) -> list[str]:
    return [tool.name for tool in tools.offered]


# --- what is offered --------------------------------------------------------------------------------------------------


CHOICES: list[tuple[Any, list[str], tuple[str, ...]]] = [
    (None, ["get_weather", "get_time"], ()),
    ("auto", ["get_weather", "get_time"], ()),
    ("none", [], ()),
    ("required", ["get_weather", "get_time"], ("get_weather", "get_time")),
    ({"type": "function", "name": "get_time"}, ["get_weather", "get_time"], ("get_time",)),
    ({"type": "function", "function": {"name": "get_time"}}, ["get_weather", "get_time"], ("get_time",)),
]


@pytest.mark.parametrize(("choice", "offered", "forced"), CHOICES)
def test_choices(choice: object, offered: list[str], forced: tuple[str, ...]) -> None:
    tools = read_tools((WEATHER, CLOCK), choice)
    assert (names(tools), tools.forced) == (offered, forced)
    assert BOTH.chosen(None, choice) == tools
    assert read_tools((WEATHER, CLOCK), "none").chosen(None, choice) == tools


def test_both_spellings_of_a_function_mean_the_same() -> None:
    nested = {"type": "function", "function": {key: WEATHER[key] for key in ("name", "description", "parameters")}}
    assert read_tools((nested,), None) == read_tools((WEATHER,), None)


def with_city(schema: object) -> dict[str, Any]:
    """A function with this schema of its only argument."""
    return {**CLOCK, "parameters": {"type": "object", "properties": {"city": schema}}}


def test_schemas_of_every_kind_are_taken() -> None:
    inner = {"type": ["string", "null"], "enum": ["Oslo", None]}
    schema = {
        **with_city({"$ref": "#/$defs/City"})["parameters"],
        "$defs": {"City": {"anyOf": [inner, {"items": True}]}},
    }
    assert names(read_tools(({**CLOCK, "parameters": schema},), None)) == ["get_time"]


CITY_ITEMS = "tools[0].parameters.properties.city.anyOf[1].items.type"
REFUSED: list[tuple[list[dict[str, Any]], Any, str]] = [
    ([{"type": "mcp", "server_label": "x"}], None, "tools[0].type"),
    ([CLOCK, {"type": "function"}], None, "tools[1].name"),
    ([{"type": "function", "name": "with space"}], None, "tools[0].name"),
    ([{**CLOCK, "parameters": "none"}], None, "tools[0].parameters"),
    ([{**CLOCK, "parameters": {"type": "string"}}], None, "tools[0].parameters"),
    ([with_city({"type": "strng"})], None, "tools[0].parameters.properties.city.type"),
    ([with_city({"type": ["string", 3]})], None, "tools[0].parameters.properties.city.type"),
    ([with_city("string")], None, "tools[0].parameters.properties.city"),
    ([with_city({"$ref": "#/$defs/City"})], None, "tools[0].parameters.properties.city.$ref"),
    ([with_city({"anyOf": [True, {"items": {"type": "x"}}]})], None, CITY_ITEMS),
    ([CLOCK, CLOCK], None, "tools"),
    ([{**CLOCK, "name": f"f{number}"} for number in range(MOST_TOOLS + 1)], None, "tools"),
    ([{**CLOCK, "description": "x" * MOST_CHARACTERS}], None, "tools"),
    ([CLOCK], "sometimes", "tool_choice"),
    ([CLOCK], {"type": "function", "name": "get_weather"}, "tool_choice"),
    ([], {"type": "function", "name": "get_weather"}, "tool_choice"),
    ([CLOCK], {"type": "mcp"}, "tool_choice"),
]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["object", "string", "#/properties/a"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["type", "properties", "items", "anyOf", "$ref", "$defs", "a"]), inner, max_size=3
        )
    ),
    max_leaves=12,
)


@given(parameters=JSON, choice=JSON)
def test_whatever_a_client_offers_is_taken_or_refused(parameters: object, choice: object) -> None:
    with suppress(ConfigRejected):
        tools = read_tools(({**CLOCK, "parameters": parameters},), choice)
        assert not tools.offered or answer_grammar(tools)


@pytest.mark.parametrize(("tools", "choice", "param"), REFUSED)
def test_what_cannot_be_offered(tools: list[dict[str, Any]], choice: object, param: str) -> None:
    with pytest.raises(ConfigRejected) as refusal:
        plan_session(SessionConfig(tools=tuple(tools), tool_choice=choice))
    assert (refusal.value.code, refusal.value.param) == ("invalid_duplex_runtime_config", param)


def test_a_call_has_room_where_functions_are_offered() -> None:
    may, chose = plan(), plan_session(SessionConfig(tools=(CLOCK,), max_response_output_tokens=7))
    assert compose(may, [QUESTION], None, NOON).max_tokens == CALL_TOKENS
    assert compose(may, [QUESTION, called(1), output(1, "rain")], None, NOON).max_tokens == MAX_TOKENS
    assert compose(chose, [QUESTION], None, NOON).max_tokens == 7
    assert may.for_response(ResponseOptions(max_response_output_tokens=9)).call_tokens == 9


def test_one_answer_may_choose_for_itself() -> None:
    plan = plan_session(SessionConfig(tools=(CLOCK,)))
    assert plan.for_response(ResponseOptions()) is plan
    assert names(plan.for_response(ResponseOptions(tools=(WEATHER,))).tools) == ["get_weather"]
    assert plan.for_response(ResponseOptions(tool_choice="required")).tools.forced == ("get_time",)
    assert names(plan.for_response(ResponseOptions(tools=())).tools) == []
    broken = ResponseOptions(tools=({"type": "mcp"},))
    assert plan.for_response(broken).tools == plan.tools, "what cannot be had is left out"


# --- what the model reads ----------------------------------------------------------------------------------------------


def said(role: str, text: str, call_id: str | None = None, name: str | None = None) -> Message:
    return Message(role=role, text=text, item_id="item", call_id=call_id, name=name)


def called(number: int, name: str = "get_weather", arguments: str = '{"city": "Oslo"}') -> Message:
    return said("assistant", arguments, f"call_{number}", name)


def output(number: int, text: str, name: str = "get_weather") -> Message:
    return said("tool", text, f"call_{number}", name)


def plan(tools: Tools = BOTH) -> CascadePlan:
    return CascadePlan(tools=tools)


QUESTION = said("user", "What is the weather in Oslo?")


def test_the_model_reads_what_it_may_call() -> None:
    content = compose(plan(), [QUESTION], None, NOON).messages[0].content
    lines = content.split("<tools>\n")[-1].split("\n</tools>")[0].splitlines()
    assert [json.loads(line)["function"]["name"] for line in lines] == ["get_weather", "get_time"]
    assert json.loads(lines[0])["function"]["parameters"] == CITY
    assert content.endswith("12:00 PM."), "what changes stands last"


def test_who_may_call_nothing_reads_nothing_of_it() -> None:
    prompt = compose(plan(read_tools((WEATHER,), "none")), [QUESTION], None, NOON)
    assert "tool" not in prompt.messages[0].content
    assert prompt.grammar is None


def test_what_is_read_ahead_is_how_the_prompt_begins() -> None:
    history = [QUESTION, called(1), output(1, "rain"), said("assistant", "It rains.")]
    ahead = compose_prelude(plan(), history, NOON).messages
    assert compose(plan(), history, "And now?", NOON).messages[: len(ahead)] == ahead


def test_calls_and_outputs_are_told_in_their_order() -> None:
    history = [
        QUESTION,
        said("assistant", "One moment."),
        called(1),
        called(2, "get_time", ""),
        output(1, "rain"),
        output(2, "noon", "get_time"),
        said("assistant", "It rains, and it is noon."),
    ]
    assert list(trimmed(history)) == [
        ChatMessage("user", QUESTION.text),
        ChatMessage(
            "assistant",
            "One moment.\n"
            '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n'
            '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>',
        ),
        ChatMessage("user", "<tool_response>\nrain\n</tool_response>\n<tool_response>\nnoon\n</tool_response>"),
        ChatMessage("assistant", "It rains, and it is noon."),
    ]


def test_an_output_is_answered_in_words() -> None:
    prompt = compose(plan(), [QUESTION, called(1), output(1, "rain")], None, NOON)
    assert prompt.messages[-1].content.endswith(f"</tool_response>\n{ANSWER_WITH_IT}")
    assert prompt.grammar == WORDS_ALONE
    assert "get_weather" not in prompt.messages[0].content


def test_a_model_that_chains_may_call_another_function_then() -> None:
    chaining = attrs.evolve(plan(), chains=True)
    history = [QUESTION, called(1), output(1, "rain")]
    prompt = compose(chaining, history, None, NOON)
    assert prompt.grammar == answer_grammar(BOTH.without(["get_weather"]))
    both = [QUESTION, called(1), called(2, "get_time", "{}"), output(1, "rain"), output(2, "noon", "get_time")]
    assert compose(chaining, both, None, NOON).grammar == WORDS_ALONE


def test_a_forced_call_is_not_forced_again_by_its_output() -> None:
    forced = CascadePlan(tools=read_tools((WEATHER, CLOCK), "required"), chains=True)
    assert compose(forced, [QUESTION], None, NOON).grammar == answer_grammar(forced.tools)
    history = [QUESTION, called(1), output(1, "rain")]
    assert compose(forced, history, None, NOON).grammar == answer_grammar(BOTH.without(["get_weather"]))
    assert compose(forced, history, "And in Rome?", NOON).grammar == answer_grammar(forced.tools)


def test_an_output_is_not_longer_than_the_history_may_be_and_does_not_stay_without_its_call() -> None:
    long = output(1, "x" * 9 * HISTORY_CHARACTERS)
    assert len(trimmed([QUESTION, called(1), long])[-1].content) < HISTORY_CHARACTERS + 100
    filler = [said("user", "a" * 300), said("assistant", "b" * 300)]
    history = [QUESTION, *filler, called(1), output(1, "c" * 300), *filler, *filler]
    kept = trimmed(history)
    assert not kept[0].content.startswith("<tool_response>")


# --- what the model may write -------------------------------------------------------------------------------------------


def test_the_grammar_names_what_may_be_called() -> None:
    free, forced = answer_grammar(BOTH), answer_grammar(read_tools((WEATHER, CLOCK), "required"))
    named = answer_grammar(attrs.evolve(BOTH, forced=("get_time",)))
    assert 'start: TEXT? ("\\n"? call (' in free
    assert "start: call\n" in forced
    assert "start: call\n" in named
    assert "get_weather" not in named
    schema = json.loads(free.split("arguments_0: %json ")[1].splitlines()[0])
    assert schema["properties"] == CITY["properties"]
    assert schema["additionalProperties"] is False
