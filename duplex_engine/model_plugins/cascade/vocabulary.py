"""What is written shorter than it is said: months, abbreviations, units, currencies, operators, symbols.

Tables alone, keyed by how a thing is written. `speakable` reads them.
"""

from collections.abc import Mapping
from typing import Final

MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
SHORT_MONTHS: Final = {name[:3]: name for name in MONTHS} | {"Sept": "September"}

ABBREVIATIONS: Final[Mapping[str, str]] = {
    "Dr.": "Doctor",
    "Mr.": "Mister",
    "Mrs.": "Missus",
    "Ms.": "Miz",
    "Prof.": "Professor",
    "Gen.": "General",
    "Gov.": "Governor",
    "Sen.": "Senator",
    "Rev.": "Reverend",
    "Lt.": "Lieutenant",
    "Jr.": "Junior",
    "Sr.": "Senior",
    "Inc.": "Incorporated",
    "Ltd.": "Limited",
    "Ave.": "Avenue",
    "Blvd.": "Boulevard",
    "Rd.": "Road",
    "Mt.": "Mount",
    "Ft.": "Fort",
    "approx.": "approximately",
    "dept.": "department",
    "est.": "established",
    "e.g.": "for example",
    "i.e.": "that is",
    "etc.": "et cetera",
    "vs.": "versus",
    "vs": "versus",
    "a.k.a.": "also known as",
    "w/": "with",
    "Ph.D.": "P H D",
    "PhD": "P H D",
    "U.S.": "U S",
    "U.S.A.": "U S ay",
    "U.K.": "U K",
    "US": "U S",
    "IT": "I T",
}

UNITS: Final[Mapping[str, tuple[str, str]]] = {
    "km/h": ("kilometer per hour", "kilometers per hour"),
    "mph": ("mile per hour", "miles per hour"),
    "km": ("kilometer", "kilometers"),
    "cm": ("centimeter", "centimeters"),
    "mm": ("millimeter", "millimeters"),
    "m": ("meter", "meters"),
    "mi": ("mile", "miles"),
    "ft": ("foot", "feet"),
    "kg": ("kilogram", "kilograms"),
    "mg": ("milligram", "milligrams"),
    "g": ("gram", "grams"),
    "lb": ("pound", "pounds"),
    "lbs": ("pound", "pounds"),
    "oz": ("ounce", "ounces"),
    "l": ("liter", "liters"),
    "L": ("liter", "liters"),
    "ml": ("milliliter", "milliliters"),
    "mL": ("milliliter", "milliliters"),
    "ms": ("millisecond", "milliseconds"),
    "s": ("second", "seconds"),
    "sec": ("second", "seconds"),
    "min": ("minute", "minutes"),
    "h": ("hour", "hours"),
    "hr": ("hour", "hours"),
    "hrs": ("hour", "hours"),
    "kB": ("kilobyte", "kilobytes"),
    "KB": ("kilobyte", "kilobytes"),
    "MB": ("megabyte", "megabytes"),
    "GB": ("gigabyte", "gigabytes"),
    "TB": ("terabyte", "terabytes"),
    "Hz": ("hertz", "hertz"),
    "kHz": ("kilohertz", "kilohertz"),
    "MHz": ("megahertz", "megahertz"),
    "GHz": ("gigahertz", "gigahertz"),
    "W": ("watt", "watts"),
    "kW": ("kilowatt", "kilowatts"),
    "kWh": ("kilowatt hour", "kilowatt hours"),
    "%": ("percent", "percent"),
    "°C": ("degree Celsius", "degrees Celsius"),
    "°F": ("degree Fahrenheit", "degrees Fahrenheit"),
    "°": ("degree", "degrees"),
}

CURRENCIES: Final[Mapping[str, tuple[str, str, str, str]]] = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "€": ("euro", "euros", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
    "¥": ("yen", "yen", "sen", "sen"),
}

DENOMINATORS: Final = {2: ("half", "halves"), 4: ("quarter", "quarters")}

OPERATORS: Final[Mapping[str, str]] = {
    "+": "plus",
    "-": "minus",
    "−": "minus",
    "×": "times",
    "*": "times",
    "x": "times",
    "÷": "divided by",
    "/": "divided by",
    "=": "equals",
    "<": "is less than",
    ">": "is greater than",
}

SYMBOLS: Final[Mapping[str, str]] = {
    "&": " and ",
    "@": " at ",
    "%": " percent ",
    "°": " degrees ",
    "+": " plus ",
    "=": " equals ",
    "#": " number ",
}

DOMAINS: Final = ("com", "org", "net", "edu", "gov", "io", "dev", "ai", "co", "uk", "de", "fr", "eu", "info")
"""Endings by which an address is known without its scheme."""

LETTERS: Final[Mapping[str, str]] = {"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th"}
"""Letters that no decomposition brings back to the English alphabet, in lower case."""
