"""The command line: `python -m duplex_engine.server`.

Owns the flags, the exit codes and how failures are told to a person. Everything it starts is `open_engine` and `serve`.
Exit codes: 0 stopped as asked, 1 the engine failed, 2 it could not start as told (a setting, a port, missing weights).
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Final

import trio

from duplex_engine import __version__
from duplex_engine.engine import Engine, open_engine
from duplex_engine.errors import ConfigRejected, DuplexError, ServiceFailed
from duplex_engine.model_plugins.contract import ModelPlugin
from duplex_engine.model_plugins.registry import known_plugins, load_plugin
from duplex_engine.server.app import serve
from duplex_engine.server.console import Console, console
from duplex_engine.server.logs import set_up_logs
from duplex_engine.server.metrics import Metrics
from duplex_engine.server.settings import LOG_FORMATS, LOG_LEVELS, ServeConfig, load_config, merged, read_file, to_toml

PROG: Final = "python -m duplex_engine.server"
KEY_VARIABLE: Final = "DUPLEX_ENGINE_API_KEY"
STOPPED, FAILED, NOT_STARTED = 0, 1, 2

EPILOG: Final = f"""\
settings:
  Flags win over {KEY_VARIABLE}, which wins over the file of --config, which wins over the defaults. The file is TOML
  and takes every setting, limits of sessions included; --print-config prints it with the values in force.
  Unknown keys are errors.

examples:
  {PROG}                               a spoken conversation with the embedded voice
  {PROG} --llm light --port 9000       with the smaller language model
  {PROG} --plugin scripted --option script='listen 2; speak "hello" for 1'
  {PROG} --host 0.0.0.0 --api-key SECRET --tls-cert cert.pem --tls-key key.pem
  {PROG} --print-config > engine.toml

stopping:
  The first Ctrl-C or SIGTERM closes the door and gives running conversations --drain-grace seconds; a second one ends
  everything at once. Exit codes: 0 stopped as asked, 1 the engine failed, 2 it could not start as told.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server until it is stopped; the exit code."""
    flags = parser().parse_args(arguments)
    try:
        config = configure(flags, os.environ)
        if flags.print_config:
            print(to_toml(config))
            return STOPPED
        set_up_logs(config.log_format, config.log_level)
        return trio.run(run, config, plugin_of(config), console(config, sys.stdout))
    except KeyboardInterrupt:
        return STOPPED
    except DuplexError as error:
        return _tell(error.message if isinstance(error, ConfigRejected) else str(error), NOT_STARTED)


async def run(config: ServeConfig, plugin: ModelPlugin, teller: Console) -> int:
    """Open the engine and serve it until it is stopped; the exit code."""
    metrics = Metrics()
    observers = (metrics.observe, teller.observe)
    ready = False
    try:
        async with open_engine(config.engine, plugin=plugin, observers=observers, wait_ready=False) as engine:
            teller.introduce(engine)
            async with trio.open_nursery() as nursery:
                urls = await nursery.start(partial(_serve_alone, nursery.cancel_scope, engine, config, metrics))
                teller.listening(urls)
                await engine.wait_ready()
                ready = True
                teller.ready(urls, config)
    except ServiceFailed as error:
        return _tell(str(error), FAILED if ready else NOT_STARTED)
    return STOPPED


async def _serve_alone(
    everything: trio.CancelScope,
    engine: Engine,
    config: ServeConfig,
    metrics: Metrics,
    *,
    task_status: trio.TaskStatus[tuple[str, ...]],
) -> None:
    await serve(engine, config, metrics=metrics, task_status=task_status)
    everything.cancel(reason="stopped")


def _tell(message: str, code: int) -> int:
    print(f"{PROG}: {message}", file=sys.stderr)
    return code


# --- settings ----------------------------------------------------------------------------------------------------


def configure(flags: argparse.Namespace, environment: Mapping[str, str]) -> ServeConfig:
    """Defaults, file, environment and flags, in rising order. Raises ConfigRejected."""
    settings: Mapping[str, object] = read_file(flags.config) if flags.config else {}
    if key := environment.get(KEY_VARIABLE):
        settings = merged(settings, {"api_key": key})
    settings = merged(settings, _said(flags))
    if flags.llm is not None and settings.get("plugin", ServeConfig().plugin) == "cascade":
        settings = merged(settings, {"options": {"llm": flags.llm}})
    return load_config(settings)


def _said(flags: argparse.Namespace) -> dict[str, object]:
    """The settings that flags spell, without those that were not given."""
    given = {name: getattr(flags, name) for name in SETTING_FLAGS}
    # By identity: port 0 and a grace of 0 s are equal to False, but they were said.
    settings: dict[str, object] = {
        name: value for name, value in given.items() if value is not None and value is not False
    }
    if flags.option:
        settings["options"] = dict(flags.option)
    if flags.max_sessions is not None:
        settings["limits"] = {"max_sessions": flags.max_sessions}
    return settings


def plugin_of(config: ServeConfig) -> ModelPlugin:
    """The configured plugin. Raises ConfigRejected, with the command to run when its packages are missing."""
    try:
        return load_plugin(config.plugin, config.options)
    except (ImportError, AttributeError) as error:
        extras = metadata.metadata("duplex-engine").get_all("Provides-Extra") or []
        remedy = f"; run: pip install 'duplex-engine[{config.plugin}]'" if config.plugin in extras else ""
        message = f"plugin {config.plugin!r} cannot be imported: {error}{remedy}"
        raise ConfigRejected("invalid_argument", message, "plugin") from error


def option(text: str) -> tuple[str, object]:
    """A plugin's setting from `key=value`; a value that JSON reads as a number or a boolean is one, else it is text."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not key=value")
    try:
        meant = json.loads(value, parse_constant=str)
    except ValueError:
        return key, value
    return key, meant if isinstance(meant, bool | int | float) else value


SETTING_FLAGS: Final = (
    "plugin",
    "host",
    "port",
    "api_key",
    "allow_anonymous",
    "tls_cert",
    "tls_key",
    "log_format",
    "log_level",
    "drain_grace_s",
)
"""Flags that are settings of the same name."""


def parser() -> argparse.ArgumentParser:
    """All flags."""
    default = ServeConfig()
    flags = argparse.ArgumentParser(
        prog=PROG,
        description="A server for full-duplex speech over /v1/realtime. Without arguments: the embedded voice, on this "
        "machine only.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    flags.add_argument("--version", action="version", version=f"duplex-engine {__version__}")
    flags.add_argument("--config", type=Path, metavar="FILE", help="a TOML file with settings")
    flags.add_argument("--print-config", action="store_true", help="print the settings in force as TOML, and stop")
    _add_model_flags(flags, default)
    _add_network_flags(flags, default)
    _add_operation_flags(flags, default)
    return flags


def _add_model_flags(flags: argparse.ArgumentParser, default: ServeConfig) -> None:
    model = flags.add_argument_group("model")
    installed = ", ".join(known_plugins())
    says = f"which model answers: {installed}, or package.module:Class (default {default.plugin})"
    model.add_argument("--plugin", metavar="NAME", help=says)
    says = "a setting of the plugin; may be repeated"
    model.add_argument("--option", action="append", type=option, metavar="KEY=VALUE", help=says)
    says = "language model of the embedded voice: default, light, a name, or a GGUF file (other plugins ignore it)"
    model.add_argument("--llm", metavar="NAME", help=says)
    says = "conversations at once (default: what the plugin says)"
    model.add_argument("--max-sessions", type=int, metavar="N", help=says)


def _add_network_flags(flags: argparse.ArgumentParser, default: ServeConfig) -> None:
    network = flags.add_argument_group("network")
    network.add_argument("--host", metavar="ADDRESS", help=f"address to listen on (default {default.host})")
    says = f"port for WebSocket and HTTP, 0 for any free one (default {default.port})"
    network.add_argument("--port", type=int, metavar="N", help=says)
    says = f"key that callers must present; better given as {KEY_VARIABLE}, which other users cannot see"
    network.add_argument("--api-key", metavar="KEY", help=says)
    says = "serve everybody who can reach an address of this machine, without a key"
    network.add_argument("--allow-anonymous", action="store_true", help=says)
    network.add_argument("--tls-cert", metavar="FILE", help="certificate chain (PEM); with it only TLS is spoken")
    network.add_argument("--tls-key", metavar="FILE", help="private key of the certificate (PEM)")


def _add_operation_flags(flags: argparse.ArgumentParser, default: ServeConfig) -> None:
    operation = flags.add_argument_group("operation")
    says = f"seconds that running conversations get when the server is stopped (default {default.drain_grace_s:g})"
    operation.add_argument("--drain-grace", dest="drain_grace_s", type=float, metavar="S", help=says)
    says = f"how logs look: text or json lines, on standard error (default {default.log_format})"
    operation.add_argument("--log-format", choices=LOG_FORMATS, help=says)
    operation.add_argument(
        "--log-level", choices=LOG_LEVELS, help=f"the least worth a line (default {default.log_level})"
    )
