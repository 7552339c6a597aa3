"""Logs: one line each, machine-readable on demand, and blind to secrets."""

import io
import json
from collections.abc import Iterator

import pytest
import structlog

from duplex_engine.server.logs import BLOT, set_up_logs


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def test_json_lines_carry_the_session_and_the_traceback() -> None:
    out = io.StringIO()
    set_up_logs("json", "info", out)
    log = structlog.get_logger().bind(session_id="duplex-1")
    log.info("session_opened", model="demo")
    try:
        local = "-".join(["private", "words"])
        raise ValueError(len(local))
    except ValueError:
        log.exception("broke")
    first, second = map(json.loads, out.getvalue().splitlines())
    assert (first["event"], first["level"], first["session_id"], first["model"]) == (
        "session_opened",
        "info",
        "duplex-1",
        "demo",
    )
    assert "ValueError: 13" in second["exception"]
    assert "private-words" not in second["exception"], "local variables may hold what people said"


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_secrets_are_blotted_out_whoever_logs_them(log_format: str) -> None:
    out = io.StringIO()
    set_up_logs(log_format, "debug", out)
    structlog.get_logger().debug("oops", api_key="S1", resume_token="S2", query="api_key=S3", authorization="Bearer S4")
    assert out.getvalue().count(BLOT) == 4
    assert not any(secret in out.getvalue() for secret in ("S1", "S2", "S3", "S4"))


def test_lines_below_the_level_are_not_written() -> None:
    out = io.StringIO()
    set_up_logs("text", "warning", out)
    structlog.get_logger().info("small_talk")
    structlog.get_logger().warning("trouble", session_id="duplex-2")
    (line,) = out.getvalue().splitlines()
    assert "trouble" in line
    assert "duplex-2" in line
