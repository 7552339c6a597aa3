"""Reading single fields of a client's message, with the errors that explain what was wrong.

Owns what a number, a rate, a format is (wire contract 0.4, 5.1, D-30). JSON null means "not given" everywhere. Never
knows which message a field belongs to.
"""

from collections.abc import Mapping
from typing import Final, TypeGuard

from duplex_engine.errors import ProtocolViolation
from duplex_engine.protocol.events import UNSET, Absent
from duplex_engine.protocol.formats import MAX_RATE_HZ, MIN_RATE_HZ, Encoding, parse_encoding
from duplex_engine.protocol.sizes import NAME_CHARACTERS

LARGEST_NUMBER: Final = 2**53
"""Beyond it JSON's numbers are no exact integers, and ours no JSON."""
A_NUMBER: Final = "a finite number of at most 2**53"
MODALITIES: Final = 8
"""Longest list of modalities; there are three."""
A_NAME: Final = f"a string of at most {NAME_CHARACTERS} characters"

_SHOWN_CHARACTERS: Final = 60


def shown(value: object) -> str:
    """A short rendering for error messages; safe for values of any size and depth."""
    if isinstance(value, str):
        return repr(value if len(value) <= _SHOWN_CHARACTERS else value[:_SHOWN_CHARACTERS] + "…")
    if value is None or isinstance(value, int | float):
        return {"None": "null", "True": "true", "False": "false"}.get(str(value), str(value))
    return "an object" if isinstance(value, Mapping) else "a list"


def wrong(param: str, expected: str, value: object) -> ProtocolViolation:
    """The violation for a field of the wrong kind."""
    return ProtocolViolation("bad_event", f"{param} must be {expected}, not {shown(value)}", param)


def at(source: Mapping[str, object], path: str) -> object | Absent:
    """The value at a dotted path, UNSET where it or an object on the way is absent."""
    value: object = source
    for key in path.split("."):
        if not isinstance(value, Mapping):
            return UNSET
        value = value.get(key, UNSET)
    return value


def is_number(value: object) -> TypeGuard[float]:
    """Whether this is a JSON number (booleans are not) that counts something: finite, and exact as an integer."""
    return type(value) in (int, float) and -LARGEST_NUMBER <= value <= LARGEST_NUMBER  # type: ignore[operator]


def number(event: Mapping[str, object], key: str) -> float | None:
    """A number, ints kept as ints. Raises ProtocolViolation `bad_event` for anything else."""
    value = event.get(key)
    if value is None:
        return None
    if not is_number(value):
        raise wrong(key, A_NUMBER, value)
    return value


def boolean(event: Mapping[str, object], key: str) -> bool | None:
    """A boolean. Raises ProtocolViolation `bad_event` for anything else."""
    value = event.get(key)
    if value is None or value is True or value is False:
        return value
    raise wrong(key, "true or false", value)


def string(event: Mapping[str, object], key: str) -> str | None:
    """A string. Raises ProtocolViolation `bad_event` for anything else."""
    value = event.get(key)
    if value is None or type(value) is str:
        return value
    raise wrong(key, "a string", value)


def name(event: Mapping[str, object], key: str) -> str | None:
    """A string that names something. Raises ProtocolViolation `bad_event` for anything else, or a longer one."""
    value = string(event, key)
    if value is not None and not is_name(value):
        raise wrong(key, A_NAME, value)
    return value


def is_name(value: object) -> bool:
    """Whether this is a string that is short enough to name something."""
    return type(value) is str and len(value) <= NAME_CHARACTERS


def sample_rate(value: object, param: str) -> int | None:
    """An integral sample rate in Hz within bounds. Raises ProtocolViolation `bad_event` for anything else."""
    if type(value) is int and MIN_RATE_HZ <= value <= MAX_RATE_HZ:
        return value
    if value is None:
        return None
    if type(value) is float and value.is_integer() and MIN_RATE_HZ <= value <= MAX_RATE_HZ:
        return int(value)
    raise wrong(param, f"an integral rate from {MIN_RATE_HZ} to {MAX_RATE_HZ} Hz", value)


def declared_format(value: object, *, allowed: frozenset[Encoding], param: str) -> tuple[Encoding | None, object, str]:
    """What a format field declares: encoding or None, the rate beside it (unchecked, None if absent), and its path.

    A format is a name, or an object with `type` or `format`, and `rate`, `sample_rate_hz` or `sample_rate`.
    Raises ProtocolViolation `unsupported_audio_format`.
    """
    if value is None:
        return None, None, param
    if not isinstance(value, Mapping):
        return _encoding(value, allowed, param), None, param
    name_key = "type" if value.get("type") is not None else "format"
    rate_key = next((key for key in ("rate", "sample_rate_hz", "sample_rate") if value.get(key) is not None), "rate")
    name = value.get(name_key)
    encoding = None if name is None else _encoding(name, allowed, f"{param}.{name_key}")
    return encoding, value.get(rate_key), f"{param}.{rate_key}"


def _encoding(name: object, allowed: frozenset[Encoding], param: str) -> Encoding:
    if not isinstance(name, str) or len(name) > _SHOWN_CHARACTERS:
        raise ProtocolViolation("unsupported_audio_format", f"{shown(name)} is not the name of an audio format", param)
    return parse_encoding(name, allowed=allowed, param=param)
