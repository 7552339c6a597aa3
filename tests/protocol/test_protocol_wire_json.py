"""Both sets of libraries read and write the same."""

import importlib.util
import json
import sys
from collections.abc import Mapping
from types import MappingProxyType, ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duplex_engine.errors import LocalProtocolError
from duplex_engine.protocol import wire_json


def light_wire_json() -> ModuleType:
    """A second copy of the module, loaded as if orjson and pybase64 were not installed."""
    spec = importlib.util.find_spec("duplex_engine.protocol.wire_json")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "orjson", None)
        patch.setitem(sys.modules, "pybase64", None)
        spec.loader.exec_module(module)
    return module


LIGHT = light_wire_json()
BOTH = pytest.mark.parametrize("library", [wire_json, LIGHT], ids=["fast", "light"])

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


def test_the_light_copy_is_light() -> None:
    assert LIGHT.orjson is None
    assert LIGHT.pybase64 is None
    assert "orjson" in sys.modules


@given(JSON)
def test_same_json(value: object) -> None:
    fast, light = wire_json.dumps(value), LIGHT.dumps(value)
    assert wire_json.loads(light) == LIGHT.loads(fast) == wire_json.loads(fast) == value


@given(st.binary())
def test_same_base64(data: bytes) -> None:
    assert wire_json.b64encode(data) == LIGHT.b64encode(data)
    assert wire_json.b64decode(LIGHT.b64encode(data)) == LIGHT.b64decode(wire_json.b64encode(data)) == data


@BOTH
@pytest.mark.parametrize(
    "text",
    ["", "{", "NaN", "-Infinity", "1e999", "[1e400]", "9" * 400, '"\\ud800"', b'"\xff"', "\ufeff{}", "[" * 5000],
)
def test_no_json(library: ModuleType, text: str | bytes) -> None:
    with pytest.raises(ValueError):
        library.loads(text)


@BOTH
def test_long_integers_are_floats(library: ModuleType) -> None:
    assert library.loads(str(2**64)) == 2.0**64
    assert type(library.loads(str(2**64))) is float
    assert library.loads(str(2**64 - 1)) == 2**64 - 1
    assert library.loads(str(-(2**63))) == -(2**63)


@BOTH
@pytest.mark.parametrize("text", ["Q", "QQ", "QQ=", "Q Q==", "QQ==\n", "QQ==QQ==", "Q===", "QUJD====", "ä===", "QQ-_"])
def test_no_base64(library: ModuleType, text: str) -> None:
    with pytest.raises(ValueError):
        library.b64decode(text)


@BOTH
def test_any_mapping_is_an_object(library: ModuleType) -> None:
    view: Mapping[str, object] = MappingProxyType({"a": (1, "ä")})
    assert library.dumps(view) == json.dumps({"a": [1, "ä"]}, separators=(",", ":"), ensure_ascii=False).encode()


@BOTH
@pytest.mark.parametrize("value", [object(), {1, 2}, "\ud800", b"bytes"])
def test_what_cannot_be_said(library: ModuleType, value: object) -> None:
    with pytest.raises(LocalProtocolError):
        library.dumps({"a": value})
