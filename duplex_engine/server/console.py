"""What the person who starts the server sees: the models and their licences, loading progress, the URL, how to stop.

Owns the words. Text goes to a terminal or a pipe, with a bar on a terminal; with JSON logs the facts are log lines.
Never starts anything.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, TextIO

import structlog

from duplex_engine import __version__
from duplex_engine.actors.observations import LoadProgressed, Observation
from duplex_engine.engine import Engine
from duplex_engine.server.settings import ServeConfig

BAR_CELLS: Final = 24
LINE_EVERY: Final = 0.25
"""Without a terminal: a line for each quarter of a worker's loading."""

log = structlog.get_logger()


class Console(Protocol):
    """Where the start-up is told."""

    def introduce(self, engine: Engine) -> None:
        """Which models will answer."""

    def observe(self, observation: Observation) -> None:
        """An observer for `open_engine`: shows loading progress."""

    def listening(self, urls: Sequence[str]) -> None:
        """The port is open; callers are told to wait."""

    def ready(self, urls: Sequence[str], config: ServeConfig) -> None:
        """Conversations can begin."""


def console(config: ServeConfig, out: TextIO) -> Console:
    """The console that suits the log format."""
    return LogConsole() if config.log_format == "json" else TextConsole(out)


class TextConsole:
    """Words for people."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._bar = out.isatty()
        self._fractions: dict[str, float] = {}
        self._loading = True

    def introduce(self, engine: Engine) -> None:
        """Name, models, licences."""
        self._say(f"duplex-engine {__version__}, plugin {engine.plugin.name}")
        for model in engine.plugin.describe():
            self._say(f"  {describe_model(model)}")

    def observe(self, observation: Observation) -> None:
        """A bar on a terminal, else a line now and then."""
        if self._loading and isinstance(observation, LoadProgressed):
            before = self._fractions.get(observation.worker, -1.0)
            self._fractions[observation.worker] = observation.fraction
            if self._bar:
                self._draw(observation.what)
            elif observation.fraction // LINE_EVERY > before // LINE_EVERY:
                self._say(f"loading {observation.worker}: {observation.what} ({observation.fraction:.0%})")

    def listening(self, urls: Sequence[str]) -> None:
        """Worth a line, since loading may take a while."""
        self._say(f"listening on {' and '.join(urls)}, loading the models")

    def ready(self, urls: Sequence[str], config: ServeConfig) -> None:
        """The URL and how to stop."""
        if self._bar and self._fractions:
            self._say("")
        self._loading = False
        for url in urls:
            self._say(f"ready on {url} (WebSocket: {url.replace('http', 'ws', 1)}/v1/realtime)")
        grace = f"running conversations get {config.drain_grace_s:g} s"
        self._say(f"Ctrl-C or SIGTERM stops it, {grace}; a second one ends it at once.")

    def _draw(self, what: str) -> None:
        done = sum(self._fractions.values()) / len(self._fractions)
        full = round(done * BAR_CELLS)
        self._out.write(f"\r\x1b[K[{'#' * full}{'.' * (BAR_CELLS - full)}] {done:4.0%} {what}")
        self._out.flush()

    def _say(self, line: str) -> None:
        print(line, file=self._out, flush=True)


class LogConsole:
    """The same for machines."""

    def introduce(self, engine: Engine) -> None:
        """One line."""
        models = [dict(model) for model in engine.plugin.describe()]
        name = engine.plugin.name
        log.info("starting", version=__version__, plugin=name, models=models, test_only=engine.capabilities.test_only)

    def observe(self, observation: Observation) -> None:
        """One line for each report."""
        if isinstance(observation, LoadProgressed):
            log.info("loading", worker=observation.worker, what=observation.what, fraction=observation.fraction)

    def listening(self, urls: Sequence[str]) -> None:
        """One line."""
        log.info("listening", urls=list(urls))

    def ready(self, urls: Sequence[str], config: ServeConfig) -> None:
        """One line."""
        log.info("ready", urls=list(urls), drain_grace_s=config.drain_grace_s)


def describe_model(model: Mapping[str, object]) -> str:
    """One line about a model in use: its role and name first, then whatever else its plugin says."""
    head = " ".join(str(model[key]) for key in ("role", "name") if key in model)
    rest = ", ".join(f"{key} {value}" for key, value in model.items() if key not in ("role", "name"))
    return f"{head} ({rest})" if rest else head
