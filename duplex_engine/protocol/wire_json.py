"""JSON and base64 as the wire writes them: compact, UTF-8, finite numbers, standard alphabet with padding.

Owns the choice of library: orjson and pybase64 where installed, the standard library otherwise, with the same results.
Never knows a message: `decode.py` and `encode.py` do.
"""

import base64
import json
import math
from collections.abc import Mapping
from typing import NoReturn

from duplex_engine.errors import LocalProtocolError

try:
    import orjson
except ImportError:  # the light client runs without it
    orjson = None  # type: ignore[assignment]

try:
    import pybase64
except ImportError:
    pybase64 = None  # type: ignore[assignment]


def loads(text: str | bytes | bytearray) -> object:
    """The JSON value of `text`. Raises ValueError for what is no JSON: NaN, infinities and lone surrogates included."""
    if orjson is not None:
        return orjson.loads(text)
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite_float, parse_int=_finite_int)
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def dumps(value: object) -> bytes:
    """Compact UTF-8 JSON. Raises LocalProtocolError for what JSON cannot say: we never build such a message."""
    try:
        if orjson is not None:
            return orjson.dumps(value, default=_plain)
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain)
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise LocalProtocolError(f"not expressible as JSON: {error}") from error


def b64encode(data: bytes) -> str:
    """Standard base64 with padding."""
    if pybase64 is not None:
        return pybase64.b64encode_as_string(data)
    return base64.b64encode(data).decode("ascii")


def b64decode(text: str) -> bytes:
    """The bytes of standard base64 with padding. Raises ValueError for anything else, white space included."""
    if pybase64 is not None:
        return pybase64.b64decode(text, validate=True)
    if len(text) % 4:
        raise ValueError("base64 without its padding")
    data = base64.b64decode(text, validate=True)
    if len(data) < 3 * (len(text) // 4) - 2:
        raise ValueError("base64 with too much padding")
    return data


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits} is infinite")
    return number


def _finite_int(digits: str) -> int | float:
    """Integers beyond 64 bits become floats, as orjson has them."""
    if len(digits) < 19:
        return int(digits)
    number = _finite_float(digits)
    exact = int(digits)
    return exact if -(2**63) <= exact < 2**64 else number
