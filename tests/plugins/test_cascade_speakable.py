"""Reading aloud: the table of what is said for what is written, and what holds for any text."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duplex_engine.model_plugins.cascade.number_words import cardinal, ordinal, year
from duplex_engine.model_plugins.cascade.speakable import LONGEST_WORD, speakable

READINGS = [
    # Times
    ("It's 3:40 PM.", "It's three forty P M."),
    ("It's 12:05 AM now.", "It's twelve oh five, ay M now."),
    ("It is 9:00.", "It is nine o'clock."),
    ("At 9:00 a.m. sharp", "At nine, ay M sharp"),
    ("Until 5 p.m. Then we go.", "Until five P M. Then we go."),
    ("It's 3:40 p.m.", "It's three forty P M."),
    ("Meet at 3pm", "Meet at three P M"),
    ("15:30", "fifteen thirty"),
    ("3:40:12", "three forty and twelve seconds"),
    ("18:00-19:30", "eighteen o'clock to nineteen thirty"),
    # Dates
    ("Sunday, November 29, 2026.", "Sunday, November twenty-ninth, twenty twenty-six."),
    ("Nov. 29th", "November twenty-ninth"),
    ("the 3rd of May", "the third of May"),
    ("2026-11-29", "November twenty-ninth, twenty twenty-six"),
    ("11/29/2026", "November twenty-ninth, twenty twenty-six"),
    ("13/29/2026 is no date", "thirteen twenty-nine twenty twenty-six is no date"),
    ("the 1990s and '80s", "the nineteen nineties and eighties"),
    ("in 1905 and 2005", "in nineteen oh five and two thousand five"),
    # Money
    ("It costs $3.50.", "It costs three dollars and fifty cents."),
    ("$1.5 million", "one point five million dollars"),
    ("$1, $0.99 and €20", "one dollar, ninety-nine cents and twenty euros"),
    ("£1.01", "one pound and one penny"),
    ("$5-$10", "five dollars to ten dollars"),
    # Quantities
    ("5%", "five percent"),
    ("72°F or 20 °C", "seventy-two degrees Fahrenheit or twenty degrees Celsius"),
    ("1 km, 5.5 kg", "one kilometer, five point five kilograms"),
    ("384,400 kilometers", "three hundred eighty-four thousand four hundred kilometers"),
    ("3.14 and .5", "three point one four and zero point five"),
    ("version 1.2.3", "version one point two point three"),
    ("1/2 cup, 1 1/2 cups, 2/3", "one half cup, one and one half cups, two thirds"),
    ("½ cup", "one half cup"),
    ("24/7", "twenty-four seven"),
    ("5-10 minutes", "five to ten minutes"),
    ("-5 degrees", "minus five degrees"),
    ("2+2=4, 7 - 3 = 4, 6 × 7", "two plus two equals four, seven minus three equals four, six times seven"),
    ("555-1234", "five five five, one two three four"),
    ("(555) 123-4567", "five five five, one two three, four five six seven"),
    ("agent 007", "agent zero zero seven"),
    ("1st, 2nd, 3rd, 21st", "first, second, third, twenty-first"),
    ("No. 5", "number five"),
    ("No. Not yet.", "No. Not yet."),
    ("H2O and GPT4", "H two O and GPT four"),
    ("٣ apples", "three apples"),
    # Abbreviations and acronyms
    ("Dr. Smith vs. Mr. Jones", "Doctor Smith versus Mister Jones"),
    ("St. Louis, 12 Main St.", "Saint Louis, twelve Main Street."),
    ("e.g. this, etc.", "for example this, et cetera."),
    ("the U.S. and the US", "the U S and the U S"),
    ("NASA, the FBI and AI", "NASA, the FBI and AI"),
    ("AT&T", "AT and T"),
    # Markup, addresses, typography
    ("**Bold** and *slanted*, `code`", "Bold and slanted, code"),
    ("# Heading\n- one\n- two", "Heading. one. two"),
    ("1. First\n2. Second", "one, First. two, Second"),
    ("[a link](https://example.com/a) here", "a link here"),
    ("See https://www.example.com/path?x=1.", "See example dot com."),
    ("Mail me@example.com", "Mail me at example dot com"),
    ("😀 Hello 😀", "Hello"),
    ("“Quoted” — and (maybe) more…", "Quoted, and, maybe, more."),
    ("pêche, naïve, Straße", "peche, naive, Strasse"),
    ("Wait... what?!", "Wait. what!"),
    # Nothing to say
    ("", ""),
    ("   \n", ""),
    ("...", ""),
    ("日本語", ""),
    ("🎉🎉", ""),
]


@pytest.mark.parametrize(("written", "said"), READINGS, ids=[written for written, _ in READINGS])
def test_reading(written: str, said: str) -> None:
    assert speakable(written) == said


TEXT = (
    st.text() | st.text(alphabet="0123456789.,:;/-+$€%°'\"()[]*_#&@ \nAPMapmkxst") | st.from_regex(r"[\w\s.:/-]{0,40}")
)


@given(TEXT)
def test_any_text_becomes_words_and_pauses(text: str) -> None:
    said = speakable(text)
    assert re.fullmatch(r"[A-Za-z' .,;:!?-]*", said)
    assert said == said.strip()
    assert all(len(word) <= LONGEST_WORD for word in re.findall(r"[A-Za-z]+", said))


@given(st.integers(0, 10**18))
def test_any_number_can_be_said(number: int) -> None:
    assert speakable(f"It is {number}.").startswith("It is ")
    assert len(speakable(f"It is {number}.").split()) > 2


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"),
        (13, "thirteen"),
        (40, "forty"),
        (345, "three hundred forty-five"),
        (1_000_001, "one million one"),
        (-7, "minus seven"),
        (10**15 - 1, "nine hundred ninety-nine trillion " + cardinal(999_999_999_999)),
    ],
)
def test_cardinals(number: int, words: str) -> None:
    assert cardinal(number) == words


@pytest.mark.parametrize(
    ("number", "words"),
    [(1, "first"), (12, "twelfth"), (20, "twentieth"), (22, "twenty-second"), (100, "one hundredth"), (0, "zeroth")],
)
def test_ordinals(number: int, words: str) -> None:
    assert ordinal(number) == words


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1900, "nineteen hundred"),
        (1066, "ten sixty-six"),
        (2000, "two thousand"),
        (2010, "twenty ten"),
        (476, "four hundred seventy-six"),
    ],
)
def test_years(number: int, words: str) -> None:
    assert year(number) == words
