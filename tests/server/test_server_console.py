"""What the person who starts the server sees."""

import io

import pytest
import structlog
from server_rig import Talker

from duplex_engine.actors.observations import LoadProgressed, WorkerStarted
from duplex_engine.config import EngineConfig
from duplex_engine.engine import open_engine
from duplex_engine.server.console import BAR_CELLS, LogConsole, TextConsole, console, describe_model
from duplex_engine.server.settings import ServeConfig

URLS = ["http://127.0.0.1:8099"]
LOADING = [
    LoadProgressed("language", "reading weights", 0.0),
    LoadProgressed("voice", "reading weights", 0.0),
    LoadProgressed("language", "reading weights", 0.1),
    LoadProgressed("language", "reading weights", 0.6),
    LoadProgressed("language", "warming up", 1.0),
    LoadProgressed("voice", "ready", 1.0),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_each_quarter_of_the_loading_is_a_line() -> None:
    out = io.StringIO()
    teller = TextConsole(out)
    for observation in [*LOADING, WorkerStarted("voice", 1.0)]:
        teller.observe(observation)
    assert out.getvalue().splitlines() == [
        "loading language: reading weights (0%)",
        "loading voice: reading weights (0%)",
        "loading language: reading weights (60%)",
        "loading language: warming up (100%)",
        "loading voice: ready (100%)",
    ]


def test_on_a_terminal_there_is_one_bar_for_all_workers() -> None:
    out = Terminal()
    teller = TextConsole(out)
    for observation in LOADING:
        teller.observe(observation)
    teller.ready(URLS, ServeConfig())
    bars = out.getvalue().split("\r\x1b[K")
    assert bars[4].startswith(f"[{'#' * 7}{'.' * (BAR_CELLS - 7)}]  30% reading weights")
    assert bars[-1].startswith(f"[{'#' * BAR_CELLS}] 100% ready\nready on")


def test_restarts_of_a_worker_do_not_bring_the_bar_back() -> None:
    out = io.StringIO()
    teller = TextConsole(out)
    teller.ready(URLS, ServeConfig())
    before = out.getvalue()
    teller.observe(LoadProgressed("voice", "reading weights", 0.5))
    assert out.getvalue() == before


def test_ready_says_where_and_how_to_stop() -> None:
    out = io.StringIO()
    TextConsole(out).ready(["https://127.0.0.1:1"], ServeConfig(drain_grace_s=3))
    first, second = out.getvalue().splitlines()
    assert first == "ready on https://127.0.0.1:1 (WebSocket: wss://127.0.0.1:1/v1/realtime)"
    assert "Ctrl-C" in second
    assert "3 s" in second


def test_a_model_is_one_line() -> None:
    assert describe_model({"licence": "MIT", "name": "n", "role": "voice", "version": 2}) == (
        "voice n (licence MIT, version 2)"
    )
    assert describe_model({"name": "n"}) == "n"


async def test_with_json_logs_the_same_facts_are_log_lines() -> None:
    teller = console(ServeConfig(log_format="json"), io.StringIO())
    assert isinstance(teller, LogConsole)
    with structlog.testing.capture_logs() as logs:
        async with open_engine(EngineConfig(plugin=""), plugin=Talker()) as engine:
            teller.introduce(engine)
        teller.observe(LOADING[3])
        teller.listening(URLS)
        teller.ready(URLS, ServeConfig())
    assert [line["event"] for line in logs] == ["starting", "loading", "listening", "ready"]
    assert logs[1]["fraction"] == pytest.approx(0.6)


async def test_the_models_are_introduced_with_their_licences() -> None:
    class Described(Talker):
        def describe(self) -> list[dict[str, object]]:  # type: ignore[override]
            return [{"role": "voice", "name": "nobody", "licence": "CC0"}]

    out = io.StringIO()
    async with open_engine(EngineConfig(plugin=""), plugin=Described()) as engine:
        console(ServeConfig(), out).introduce(engine)
    first, second = out.getvalue().splitlines()
    assert first.endswith("plugin talker")
    assert second == "  voice nobody (licence CC0)"
