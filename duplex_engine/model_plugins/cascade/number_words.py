"""English words for numbers: cardinals, ordinals, years, decimals, single digits, times of day.

Pure. Owns arithmetic on numbers alone; where numbers stand in a text is the business of `speakable`.
"""

from typing import Final

TEENS: Final = (
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
)
ONES: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", *TEENS)
TENS: Final = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
SCALES: Final = ("", "thousand", "million", "billion", "trillion")
LARGEST: Final = 1000 ** len(SCALES) - 1
IRREGULAR_ORDINALS: Final = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}


def digits(number: str) -> str:
    """Digit by digit, as telephone numbers are read; "oh" for zero is left to those who know it is a year."""
    return " ".join(ONES[int(digit)] for digit in number)


def cardinal(number: int) -> str:
    """345 is "three hundred forty-five"; beyond the trillions digit by digit. Negative numbers begin with "minus"."""
    if number < 0:
        return f"minus {cardinal(-number)}"
    if number > LARGEST:
        return digits(str(number))
    if number == 0:
        return ONES[0]
    groups: list[str] = []
    for scale in SCALES:
        number, group = divmod(number, 1000)
        if group:
            groups.append(f"{_below_thousand(group)} {scale}".rstrip())
    return " ".join(reversed(groups))


def ordinal(number: int) -> str:
    """21 is "twenty-first"."""
    words = cardinal(number)
    start = max(words.rfind(" "), words.rfind("-")) + 1
    last = words[start:]
    if last in IRREGULAR_ORDINALS:
        return words[:start] + IRREGULAR_ORDINALS[last]
    return words[:-1] + "ieth" if last.endswith("y") else words + "th"


def year(number: int) -> str:
    """1999 is "nineteen ninety-nine", 2005 "two thousand five", 1905 "nineteen oh five", 1900 "nineteen hundred"."""
    century, rest = divmod(number, 100)
    if not 10 <= century <= 99 or number % 1000 < 10:
        return cardinal(number)
    if rest == 0:
        return f"{_below_hundred(century)} hundred"
    return f"{_below_hundred(century)} {'oh ' if rest < 10 else ''}{_below_hundred(rest)}"


def decimal(whole: str, fraction: str) -> str:
    """3.14 is "three point one four"."""
    return f"{cardinal(int(whole or '0'))} point {digits(fraction)}"


def plural(words: str) -> str:
    """The plural of number words: "nineties", "sixes"."""
    if words.endswith("y"):
        return words[:-1] + "ies"
    return words + ("es" if words.endswith("x") else "s")


def clock_time(hour: int, minute: int) -> str:
    """9:00 is "nine o'clock", 9:05 "nine oh five", 15:30 "fifteen thirty", 0:15 "zero fifteen"."""
    if minute == 0:
        return f"{_below_hundred(hour)} o'clock"
    return f"{_below_hundred(hour)} {'oh ' if minute < 10 else ''}{_below_hundred(minute)}"


def _below_hundred(number: int) -> str:
    if number < len(ONES):
        return ONES[number]
    tens, ones = divmod(number, 10)
    return TENS[tens] + (f"-{ONES[ones]}" if ones else "")


def _below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    words = [f"{ONES[hundreds]} hundred"] if hundreds else []
    return " ".join([*words, _below_hundred(rest)] if rest else words)
