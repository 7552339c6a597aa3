"""From the text a language model writes to words that can be pronounced: no digits, symbols, markup or addresses.

Owns the rules of reading aloud, as one ordered table. Pure. The result is for the voice alone: a transcript keeps the
text as it was written.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Final

from duplex_engine.model_plugins.cascade.number_words import (
    LARGEST,
    cardinal,
    clock_time,
    decimal,
    digits,
    ordinal,
    plural,
    year,
)
from duplex_engine.model_plugins.cascade.vocabulary import (
    ABBREVIATIONS,
    CURRENCIES,
    DENOMINATORS,
    DOMAINS,
    LETTERS,
    MONTHS,
    OPERATORS,
    SHORT_MONTHS,
    SYMBOLS,
    UNITS,
)

Match = re.Match[str]
Rule = tuple[re.Pattern[str], str | Callable[[Match], str]]

NUMBER: Final = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)"
MOST_DIGITS: Final = len(str(LARGEST))
LONGEST_WORD: Final = 30
MONTH: Final = "|".join(MONTHS)


def speakable(text: str) -> str:
    """The text as plain English words with the punctuation that makes pauses; "" when nothing can be said."""
    text = unicodedata.normalize("NFKC", text)
    for pattern, replacement in RULES:
        text = pattern.sub(replacement, text)
    return _tidy(_latin(text))


# --- Numbers -------------------------------------------------------------------------------------------------------


def _whole(number: str) -> str:
    plain = number.replace(",", "")
    if len(plain) > MOST_DIGITS or (plain.startswith("0") and len(plain) > 1):
        return digits(plain)
    return cardinal(int(plain))


def _quantity(number: str, fraction: str | None) -> str:
    """The words of a number with a fraction of digits, or without."""
    if fraction is None:
        return _whole(number)
    plain = number.replace(",", "")
    return decimal(plain, fraction) if len(plain) <= MOST_DIGITS else f"{digits(plain)} point {digits(fraction)}"


def _standalone(match: Match) -> str:
    number = match["number"]
    if len(number) == 4 and "1100" <= number <= "2099" and number.isascii():
        return year(int(number))
    return _whole(number)


def _time(match: Match) -> str:
    hour, minute, half = int(match["hour"]), int(match["minute"] or 0), match["half"]
    words = cardinal(hour) if half and minute == 0 else clock_time(hour, minute)
    if match["second"]:
        words += f" and {cardinal(int(match['second']))} seconds"
    return words + (_half(half, match) if half else "")


def _half(half: str, match: Match) -> str:
    """ "AM" or "PM" spelled out; a full stop that ended both the abbreviation and a sentence stays."""
    # The letter A alone would be read as the article; after the number's last vowel it needs a pause to be heard.
    letters = ", ay M" if half[0] in "Aa" else " P M"
    rest = match.string[match.end() :].lstrip()
    ends_sentence = half.endswith(".") and (not rest or rest[0].isupper())
    return letters + ("." if ends_sentence else "")


def _calendar(month: int, day: int, year_number: int | None) -> str | None:
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    return f"{MONTHS[month - 1]} {ordinal(day)}" + (f", {year(year_number)}" if year_number is not None else "")


def _numeric_date(match: Match) -> str:
    words = _calendar(int(match["month"]), int(match["day"]), int(match["year"]))
    return words if words is not None else match.group()


def _day_of_month(match: Match) -> str:
    words = f"{match['month']} {ordinal(int(match['day']))}"
    return words + (f", {year(int(match['year']))}" if match["year"] else "")


def _money(match: Match) -> str:
    one, many, small_one, small_many = CURRENCIES[match["sign"]]
    whole, fraction, scale = match["whole"], match["fraction"], match["scale"]
    if scale or (fraction and len(fraction) != 2):
        return f"{_quantity(whole, fraction)} {f'{scale} ' if scale else ''}{many}"
    large, small = _whole(whole), int(fraction or 0)
    coins = f"{cardinal(small)} {small_one if small == 1 else small_many}"
    if large == "zero" and small:
        return coins
    notes = f"{large} {one if large == 'one' else many}"
    return f"{notes} and {coins}" if small else notes


def _measure(match: Match) -> str:
    one, many = UNITS[match["unit"]]
    words = _quantity(match["whole"], match["fraction"])
    return f"{words} {one if words == 'one' else many}"


def _fraction(match: Match) -> str:
    above, below = int(match["above"]), int(match["below"])
    if below < 2 or above >= below:
        words = f"{cardinal(above)} over {cardinal(below)}"
    else:
        part = ordinal(below)
        one, many = DENOMINATORS.get(below, (part, plural(part)))
        words = f"{cardinal(above)} {one if above == 1 else many}"
    return f"{_whole(match['whole'])} and {words}" if match["whole"] else words


def _decade(match: Match) -> str:
    century, decade = match["century"], match["decade"]
    words = plural(cardinal(int(decade))) if decade != "00" else "hundreds"
    return f"{cardinal(int(century))} {words}" if century else words


def _telephone(match: Match) -> str:
    groups = re.findall(r"\d+", match.group())
    return ", ".join(digits(group) for group in groups)


def _nth(match: Match) -> str:
    plain = match["number"].replace(",", "")
    return ordinal(int(plain)) if len(plain) <= MOST_DIGITS else digits(plain)


# --- Words ---------------------------------------------------------------------------------------------------------


def _address(match: Match) -> str:
    user = f"{match['user'].replace('.', ' dot ')} at " if match["user"] else ""
    return user + match["host"].removeprefix("www.").replace(".", " dot ")


def _expanded(match: Match) -> str:
    return ABBREVIATIONS[match.group()] + _stop_after(match)


def _stop_after(match: Match) -> str:
    """A full stop, when the abbreviation's own also ended the text."""
    return "." if match.group().endswith(".") and not match.string[match.end() :].strip() else ""


def _alternatives(words: Sequence[str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


def _rule(pattern: str, replacement: str | Callable[[Match], str], flags: int = 0) -> Rule:
    return re.compile(pattern, flags), replacement


LINES: Final = re.MULTILINE
HALF: Final = r"(?:[AaPp]\.\s?[Mm]\.|[AaPp][Mm]\b)"

RULES: Final[Sequence[Rule]] = (
    # Typography
    _rule(r"[‘’ʼ`´]", "'"),
    _rule(r"[“”«»]", '"'),
    _rule(r"[‐‑]", "-"),
    # Markup
    _rule(r"'''\w*\n?", " "),
    _rule(r"!?\[([^\]\n]*)\]\([^)\s]*\)", r"\1"),
    _rule(r"</?[A-Za-z][^<>]*>", " "),
    _rule(r"^[ \t]*(?:#+|>+|[-*•·])[ \t]+", "", LINES),
    _rule(r"^[ \t]*(\d{1,2})[.)][ \t]+", r"\1, ", LINES),
    _rule(r"^[ \t]*[-*_=]{3,}[ \t]*$", "", LINES),
    _rule(r"\*\*|__|~~|(?<![\w\s])\*|\*(?![\w\s])|(?<!\w)\*(?=\w)|(?<=[^\W\d])\*|(?<!\w)_|_(?!\w)", ""),
    _rule(r"(?<=[^\s.,;:!?])[ \t]*\n", ".\n"),
    _rule(r"\s*\|\s*", ", "),
    _rule(r"\s*—\s*|\s+[-–]+\s+(?=[^\d\s])|(?<=[^\d\s])\s+[-–]+\s+", ", "),
    # Addresses
    _rule(r"https?://(?:[^\s/@]*@)?(?P<host>[\w.-]*\w)(?::\d+)?(?:/[^\s)]*\w/?|/)?(?P<user>)", _address),
    _rule(
        rf"\b(?:(?P<user>[\w.+-]+)@)?(?P<host>(?:[\w-]+\.)+(?:{'|'.join(DOMAINS)}))\b(?:/[^\s)]*\w)?",
        _address,
    ),
    # Dates and times
    _rule(r"\b(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})\b", _numeric_date),
    _rule(r"(?<!\w)(?:\+?\d{1,2}[ .-])?\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}\b|\b\d{3}-\d{4}\b", _telephone),
    _rule(r"(?<=\d)[-–](?=[\d$€£¥])", " to "),
    _rule(r"\b(?P<month>\d{1,2})/(?P<day>\d{1,2})/(?P<year>\d{4})\b", _numeric_date),
    _rule(rf"\b(?P<hour>\d{{1,2}}):(?P<minute>\d\d)(?::(?P<second>\d\d))?(?:\s?(?P<half>{HALF}))?(?!\d)", _time),
    _rule(rf"\b(?P<hour>\d{{1,2}})(?P<minute>)(?P<second>)\s?(?P<half>{HALF})", _time),
    _rule(rf"\b({'|'.join(SHORT_MONTHS)})\.?(?=\s\d)", lambda match: SHORT_MONTHS[match[1]]),
    _rule(
        rf"\b(?P<month>{MONTH})\s(?P<day>[12]?\d|3[01])(?:st|nd|rd|th)?\b(?:,?\s(?P<year>\d{{4}})\b)?(?![,.]\d)",
        _day_of_month,
    ),
    _rule(
        rf"\b([12]?\d|3[01])(?:st|nd|rd|th)?\s(?=(?:of\s)?(?:{MONTH})\b)", lambda match: f"{ordinal(int(match[1]))} "
    ),
    _rule(r"(?:\b(?P<century>1\d|20)|')(?P<decade>\d0)'?s\b", _decade),
    # Quantities
    _rule(
        rf"(?P<sign>[$€£¥])\s?(?P<whole>{NUMBER})(?:\.(?P<fraction>\d+))?"
        r"(?:\s(?P<scale>hundred|thousand|million|billion|trillion)\b)?",
        _money,
    ),
    _rule(rf"\b(?P<number>{NUMBER})(?:st|nd|rd|th)\b", _nth),
    _rule(r"\b24/7\b", "twenty-four seven"),
    _rule(r"(?:\b(?P<whole>\d{1,3})[ ])?(?<![\d.,/])(?P<above>\d{1,3})[/⁄](?P<below>\d{1,3})(?![\d/])", _fraction),
    _rule(
        r"(?<=[\d)])\s*(?P<sign>[+−×*÷=<>x]|(?<=\s)-(?=\s))\s*(?=[\d(])", lambda match: f" {OPERATORS[match['sign']]} "
    ),
    _rule(r"(?<=\d):(?=\d)", " to "),
    _rule(r"(?<![\w.])[-−](?=\.?\d)", "minus "),
    _rule(
        rf"(?<![\w.])(?P<whole>{NUMBER})(?:\.(?P<fraction>\d+))?\s?(?P<unit>{_alternatives(tuple(UNITS))})(?!\w)",
        _measure,
    ),
    _rule(r"\d+(?:\.\d+){2,}", lambda match: " point ".join(map(_whole, match.group().split(".")))),
    _rule(
        rf"(?P<whole>{NUMBER})?\.(?P<fraction>\d+)",
        lambda match: f" {_quantity(match['whole'] or '0', match['fraction'])} ",
    ),
    # Words
    _rule(r"\bSt\.\s(?=[A-Z])", "Saint "),
    _rule(r"\bSt\.", lambda match: f"Street{_stop_after(match)}"),
    _rule(r"\bNo\.\s?(?=\d)", "number "),
    _rule(rf"\b(?P<half>{HALF})(?<![a-z])", lambda match: _half(match["half"], match).lstrip(" ,")),
    _rule(rf"(?<![\w.])(?:{_alternatives(tuple(ABBREVIATIONS))})(?!\w)", _expanded),
    _rule(r"(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])", " "),
    _rule(rf"(?P<number>{NUMBER})", _standalone),
    _rule(f"[{re.escape(''.join(SYMBOLS))}]", lambda match: SYMBOLS[match.group()]),
)


# --- Letters -------------------------------------------------------------------------------------------------------


def _latin(text: str) -> str:
    """The same words in the English alphabet: accents dropped, other scripts gone."""
    letters = "".join(LETTERS.get(letter, LETTERS.get(letter.lower(), letter)) for letter in text)
    bare = "".join(mark for mark in unicodedata.normalize("NFD", letters) if not unicodedata.combining(mark))
    return re.sub(r"[^A-Za-z' .,;:!?()-]", " ", bare)


def _tidy(text: str) -> str:
    """Single spaces, single punctuation marks, brackets as pauses, no word longer than a tongue can manage."""
    text = re.sub(r"\s*[()]+\s*", ", ", text)
    text = re.sub(r"(?<![A-Za-z])[-']+|[-']+(?![A-Za-z])", " ", text)
    text = re.sub(rf"([A-Za-z]{{{LONGEST_WORD}}})(?=[A-Za-z])", r"\1 ", text)
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r"\s+(?=[.,;:!?])", "", text)
    text = re.sub(r"(?<=[,;:!?])(?=[A-Za-z])", " ", text)
    text = re.sub(r"[.,;:!?]*([.!?])[.,;:!?]*", r"\1", text)
    text = re.sub(r"([,;:])[,;:]+", r"\1", text)
    return re.sub(r"^[\s.,;:!?]+", "", text).strip()
