"""The web page at `/`, as it is served: whole, alone, and allowed nothing but what is in it."""

import base64
import hashlib
import re

import pytest

from duplex_engine.protocol.handshake import KEY_SUBPROTOCOL, REALTIME_PATH, SUBPROTOCOL
from duplex_engine.server import page

PAGE = page.HTML.decode()
POLICY = dict(rule.partition(" ")[::2] for rule in page.POLICY.split("; "))


def test_it_asks_nobody_else_for_anything() -> None:
    assert re.findall(r"""(?:src|href)=["']?([^"'> ]*)""", PAGE) == ["data:,"]
    assert "http://" not in PAGE
    assert "https://" not in PAGE


@pytest.mark.parametrize("element", ["script", "style"])
def test_its_policy_lets_it_run_what_is_in_it_alone(element: str) -> None:
    (text,) = re.findall(f"<{element}[^>]*>(.*?)</{element}>", PAGE, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    allowed = POLICY[f"{element}-src"].split()
    assert allowed[0] == f"'sha256-{digest}'"
    assert set(allowed[1:]) <= {"blob:"}
    assert "unsafe" not in page.POLICY
    assert not re.search(r"\son\w+=|\sstyle=", PAGE), "an attribute would be refused"


def test_its_policy_lets_it_reach_this_server_alone() -> None:
    assert POLICY["default-src"] == "'none'"
    assert POLICY["connect-src"] == "'self'"
    assert (POLICY["frame-ancestors"], POLICY["form-action"], POLICY["base-uri"]) == ("'none'",) * 3


def test_it_says_the_words_that_the_server_understands() -> None:
    assert f'"{REALTIME_PATH.removeprefix("/")}"' in PAGE
    assert f'["{SUBPROTOCOL}", `{KEY_SUBPROTOCOL}' in PAGE
