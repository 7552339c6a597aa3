"""What the model wrote is either spoken or called, however the text was cut; and what is offered is checked."""

import itertools
import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duplex_engine.model_plugins.cascade.calls import CLOSING, OPENING, AnswerReader, BrokenCall, Call, CallReader

OFFERED = ("look_up", "wave")
WORDS = st.text(st.sampled_from("abc <>/_.,\n"), max_size=12).filter(lambda words: OPENING not in words)
VALUES = st.text() | st.integers() | st.booleans() | st.none() | st.just("</tool_call")
ARGUMENTS = st.dictionaries(st.sampled_from(["city", "day"]), VALUES, max_size=2)


def _call(name: str, arguments: dict[str, object]) -> Call:
    return Call(name, json.dumps(arguments, ensure_ascii=False))


CALLS = st.builds(_call, st.sampled_from(OFFERED), ARGUMENTS)
PARTS = st.lists(WORDS | CALLS, max_size=4)


def written(part: str | Call) -> str:
    if isinstance(part, str):
        return part
    return f'{OPENING}\n{{"name": "{part.name}", "arguments": {part.arguments}}}\n{CLOSING}'


def cut(text: str, places: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[start:end] for start, end in itertools.pairwise(edges)]


def read(pieces: list[str]) -> list[str | Call]:
    reader = CallReader(OFFERED)
    parts = [part for piece in pieces for part in reader.push(piece)]
    return [*parts, *reader.finish()]


@given(PARTS, st.lists(st.integers(0, 500)))
def test_calls_are_never_words_and_words_stay(parts: list[str | Call], places: list[int]) -> None:
    text = "".join(map(written, parts))
    got = read(cut(text, places))
    assert [part for part in got if isinstance(part, Call)] == [part for part in parts if isinstance(part, Call)]
    words = "".join(part for part in got if isinstance(part, str))
    kept = "".join(part for part in parts if isinstance(part, str))
    assert "".join(words.split()) == "".join(kept.split())
    if not any(isinstance(part, Call) for part in parts):
        assert words == kept


@given(CALLS, st.data())
def test_a_call_that_was_cut_off_is_neither_spoken_nor_made(call: Call, data: st.DataObject) -> None:
    text = f"One moment. {written(call)}"
    begun = text.index(OPENING)
    end = data.draw(st.integers(begun + 2, text.rindex("}") - 1))
    reader, spoken = CallReader(OFFERED), list[str | Call]()
    with suppress(BrokenCall):
        for letter in text[:end]:
            spoken += reader.push(letter)
        spoken += reader.finish()
    assert "".join(map(str, spoken)).rstrip() == "One moment."


BROKEN = [
    ('<tool_call>{"name": "dance", "arguments": {}}</tool_call>', "not among the functions offered"),
    ("<tool_call>look_up()</tool_call>", "not written as a call"),
    ("<tool_call>[1]</tool_call>", "not written as a call"),
    ('<tool_call>{"arguments": {}}</tool_call>', "not written as a call"),
    ('<tool_call>{"name": "wave", "arguments": "x"}</tool_call>', "no object"),
    ('<tool_call>{"name": "wa', "not written as a call"),
]


@pytest.mark.parametrize(("text", "cause"), BROKEN)
def test_a_call_that_cannot_be_made(text: str, cause: str) -> None:
    with pytest.raises(BrokenCall, match=cause) as refusal:
        read([text])
    assert refusal.value.code == "function_call_parse_error"


def test_a_call_whose_end_is_missing_is_made_if_it_is_whole() -> None:
    assert read(['<tool_call>{"name": "wave"}']) == [Call("wave", "{}")]
    assert read(['<tool_call>{"name": "wave"}\n</tool_']) == [Call("wave", "{}")]


def test_words_before_a_call_are_whole_clauses_and_a_call_is_made_once() -> None:
    reader, wave = AnswerReader(OFFERED), Call("wave", "{}")
    parts = [part for letter in f"I see, one moment\n{written(wave) * 2}" for part in reader.push(letter)]
    parts += reader.finish(cut_off=False)
    assert "".join(part for part in parts if isinstance(part, str)) == "I see, one moment"
    assert parts[-1] == wave
    assert parts.count(wave) == 1
    assert reader.in_circles
    assert reader.finish(cut_off=True) == []
