"""The script language: what each statement means, and what a mistake is told."""

import contextlib
import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duplex_engine.model_plugins.scripted.script import (
    Call,
    Crash,
    Fail,
    Hang,
    Hear,
    Listen,
    Repeat,
    ScriptError,
    Slow,
    Speak,
    Storyline,
    Wait,
    Yield,
    parse,
    unrolled,
)

MEANINGS = [
    ("listen 2", (Listen(2.0),)),
    ("listen", (Listen(math.inf),)),
    ('speak "a b" for 1.5', (Speak("a b", 1.5),)),
    ('speak "say \\"hi\\"; # no comment" for 1', (Speak('say "hi"; # no comment', 1.0),)),
    ("wait 0.25", (Wait(0.25),)),
    ('hear "ja"', (Hear("ja"),)),
    ("yield", (Yield(),)),
    ("fail", (Fail("as the script says"),)),
    ('fail "broken"', (Fail("broken"),)),
    ('fail engine_error "broken"', (Fail("broken", "engine_error"),)),
    ("hang", (Hang(),)),
    ("crash", (Crash(),)),
    ("crash voice-2", (Crash("voice-2"),)),
    ("slow 1.5", (Slow(1.5),)),
    ("call look_up", (Call("look_up", "{}"),)),
    ('call look_up {"a": {"b": [1, "}"]}}', (Call("look_up", '{"a": {"b": [1, "}"]}}'),)),
    ("repeat 2 { wait 1; yield }", (Repeat(2, (Wait(1.0), Yield())),)),
    ("forever { listen 1 }", (Repeat(math.inf, (Listen(1.0),)),)),
    ("forever {\n  listen 1\n  repeat 2 { wait 1 }\n}", (Repeat(math.inf, (Listen(1.0), Repeat(2, (Wait(1.0),)))),)),
    ("", ()),
    (" ;; \n # nothing\n", ()),
    ("listen 1 # two units\nlisten 2;listen 3", (Listen(1.0), Listen(2.0), Listen(3.0))),
]

MISTAKES = [
    ("sing", 1, 1, "no statement 'sing'"),
    ("listen 1\n  sing", 2, 3, "no statement 'sing'"),
    ("listen 1 listen 2", 1, 9, "not go on with 'listen'"),
    ("speak hello for 2", 1, 6, "the words in quotes, not 'hello'"),
    ('speak "a"', 1, 10, "'for SECONDS', not the end of the script"),
    ('speak "a" for\nlisten', 1, 14, "a number of seconds, not the end of the line"),
    ('speak "a for 2', 1, 7, "not written as in JSON"),
    ("wait soon", 1, 5, "a number of seconds, not 'soon'"),
    ("wait -1", 1, 5, "a number of seconds, not '-1'"),
    ("repeat 1.5 { wait 1 }", 1, 11, "a whole number, not 1.5"),
    ("repeat 2 wait 1", 1, 9, "a block in '{' and '}', not 'wait'"),
    ("repeat 2 { wait 1", 1, 18, "'}' is missing"),
    ("wait 1 }", 1, 8, "no block that this '}' could end"),
    ("forever { wait 1 }", 1, 19, "needs a speak or a listen"),
    ("forever { repeat 0 { listen 1 } }", 1, 34, "needs a speak or a listen"),
    ("call f {broken}", 1, 9, "not written as in JSON"),
    ("5", 1, 1, "a statement, not '5'"),
]


@pytest.mark.parametrize(("source", "script"), MEANINGS, ids=[source for source, _ in MEANINGS])
def test_what_a_script_means(source: str, script: object) -> None:
    assert parse(source) == script


@pytest.mark.parametrize(("source", "line", "column", "message"), MISTAKES, ids=[mistake[0] for mistake in MISTAKES])
def test_a_mistake_names_its_place(source: str, line: int, column: int, message: str) -> None:
    with pytest.raises(ScriptError) as caught:
        parse(source)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert message in str(caught.value)


@given(st.text(alphabet='spealitnforcrh {};"\n#0123.', max_size=60))
def test_nothing_but_script_errors_comes_out_of_any_text(source: str) -> None:
    with contextlib.suppress(ScriptError):
        assert isinstance(parse(source), tuple)


def test_loops_are_played_as_often_as_they_say() -> None:
    played = list(itertools.islice(unrolled(parse("repeat 2 { listen 1 }; forever { listen 2; listen 3 }")), 6))
    assert [statement.count for statement in played if isinstance(statement, Listen)] == [1, 1, 2, 3, 2, 3]


def test_what_is_left_of_an_answer_can_be_skipped() -> None:
    story = Storyline(parse('speak "a" for 1; wait 1; crash; listen 2; wait 3'))
    assert story.take() == Speak("a", 1.0)
    story.skip_answer()
    assert story.peek() == Listen(2.0)
    story.skip_answer()
    assert story.take() == Listen(2.0)
    story.skip_answer()
    assert story.take() is None
