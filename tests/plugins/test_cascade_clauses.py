"""Cutting answers into clauses while they are being written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duplex_engine.model_plugins.cascade.clauses import ClauseSplitter


def cut(*pieces: str) -> list[str]:
    splitter = ClauseSplitter()
    clauses = [clause for piece in pieces for clause in splitter.push(piece)]
    return [*clauses, *splitter.finish()]


CUTS = [
    (["It's 3:40 PM."], "one sentence"),
    (["I'm doing well, ", "thank you! ", "How about you?"], "the first clause ends at a comma"),
    (["Sure! ", "Here's a joke for you. ", "Why not?"], "a short first sentence"),
    (["Yes, it is. ", "Really."], "one word before a comma is too little"),
    (["Sure, I can. ", "Skies are blue because the air scatters the light, ", "as it does."], "later ones wait for a comma"),
    (["Dr. Smith lives ", "at 5.5 Main St. in St. Louis, ", "at 3 p.m. as J. K. Rowling."], "nothing that looks like an end"),
    (["1. Take two ", "eggs\n", "2. Beat them"], "list numbers stay with their entries"),
    (["He said \"yes.\" ", "Then he left."], "quotes stay with their sentence"),
    (["One two three ", "four five six seven eight nine ten eleven."], "a first clause without any pause"),
    (["One two at the ninth ", "ten eleven."], "not after an article or preposition"),
    (["Just past 3:40 PM ", "on that day."], "a time stays whole"),
    (["Hello. ", "I like green tea, ", "coffee, milk, and a great lot of juice, ", "no more. "], "later clauses are longer"),
]  # fmt: skip


@pytest.mark.parametrize(("clauses", "_why"), CUTS, ids=[why for _, why in CUTS])
def test_places_to_pause(clauses: list[str], _why: str) -> None:
    assert cut("".join(clauses)) == clauses


@pytest.mark.parametrize(("clauses", "_why"), CUTS, ids=[why for _, why in CUTS])
def test_the_same_places_when_it_comes_letter_by_letter(clauses: list[str], _why: str) -> None:
    # The first clause may then be given out before its trailing space.
    assert [clause.strip() for clause in cut(*"".join(clauses))] == [clause.strip() for clause in clauses]


def test_a_first_sentence_does_not_wait_for_what_follows() -> None:
    assert ClauseSplitter().push("Hello there.") == ["Hello there."]


@pytest.mark.parametrize("text", ["It costs 3.", "See Dr.", "I mean e.g.", "Well, J."])
def test_a_full_stop_that_may_end_nothing_waits(text: str) -> None:
    assert ClauseSplitter().push(text) == []


def test_nothing_comes_of_nothing() -> None:
    splitter = ClauseSplitter()
    assert splitter.push("") == []
    assert splitter.finish() == []


WRITING = st.lists(
    st.sampled_from(
        ["Hello", " ", ". ", ", ", ".", "3.14", "Dr.", "\n", " and", " the", "!", "1.", '"', " it's", " PM", "…"]
    )
    | st.text(max_size=5)
)


@given(WRITING)
def test_the_clauses_are_the_text(pieces: list[str]) -> None:
    assert "".join(cut(*pieces)) == "".join(pieces)


@given(WRITING)
def test_no_clause_is_empty(pieces: list[str]) -> None:
    assert all(cut(*pieces))


@given(st.integers(0, 999_999), st.integers(0, 99_999), st.text(alphabet="ab ,.", max_size=40))
def test_no_number_is_cut(whole: int, fraction: int, rest: str) -> None:
    number = f"{whole}.{fraction}"
    assert any(number in clause for clause in cut(*f"That makes {number} of them {rest}"))
