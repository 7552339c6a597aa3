"""The server: one port for HTTP and WebSocket in front of an engine, and the way it stops.

Owns the listeners, the nursery of connections and the order of the end: door shut, sessions drained while their
connections still listen, connections ended. Never knows what a connection says (`connection.py`).
"""

import signal
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import structlog
import trio

from duplex_engine.engine import Engine
from duplex_engine.errors import ConfigRejected
from duplex_engine.server.connection import receive_caller
from duplex_engine.server.metrics import Metrics
from duplex_engine.server.reception import Reception
from duplex_engine.server.settings import ServeConfig, check_consistency

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
LAST_WORDS_S: Final = 2.0
"""How long connections may live on after the last session has ended."""

log = structlog.get_logger()


async def serve(
    engine: Engine,
    config: ServeConfig,
    *,
    metrics: Metrics | None = None,
    signals: Iterable[signal.Signals] = STOP_SIGNALS,
    task_status: trio.TaskStatus[tuple[str, ...]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `engine` until the first of `signals`, then drain; a second one ends at once. Returns after that.

    Reports the URLs it listens on once it does, which may be before the engine is ready: callers get 503 until then.
    Raises ConfigRejected when it cannot listen. `metrics`: the object whose `observe` was given to the engine.
    """
    check_consistency(config)
    reception = Reception(engine, config, metrics or Metrics())
    listeners = await open_listeners(config)
    async with trio.open_nursery() as chores:
        chores.start_soon(reception.metrics.watch_loop_lag)
        chores.start_soon(reception.watch_warmth)
        with catching(signals) as caught:
            chores.start_soon(_obey_signals, caught, reception, chores.cancel_scope)
            await _receive_callers(reception, listeners, partial(task_status.started, _urls(listeners, config)))
        chores.cancel_scope.cancel(reason="served")


async def open_listeners(config: ServeConfig) -> list[trio.abc.Listener[trio.abc.Stream]]:
    """Listen on the configured address. Raises ConfigRejected when that is impossible."""
    context = _tls_context(config)
    try:
        plain = await trio.open_tcp_listeners(config.port, host=config.host)
    except OSError as error:
        where = f"{config.host} port {config.port}"
        raise ConfigRejected(
            "invalid_argument", f"cannot listen on {where}: {error.strerror}; choose another with --port", "port"
        ) from error
    if context is None:
        return list(plain)
    return [trio.SSLListener(listener, context, https_compatible=True) for listener in plain]


def _tls_context(config: ServeConfig) -> ssl.SSLContext | None:
    if config.tls_cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(config.tls_cert, config.tls_key)
    except OSError as error:
        files = f"{config.tls_cert} and {config.tls_key}"
        raise ConfigRejected("invalid_argument", f"cannot use {files} for TLS: {error}", "tls_cert") from error
    return context


def _urls(listeners: Iterable[trio.abc.Listener[trio.abc.Stream]], config: ServeConfig) -> tuple[str, ...]:
    scheme = "https" if config.tls else "http"
    return tuple(f"{scheme}://{_address(listener)}" for listener in listeners)


def _address(listener: trio.abc.Listener[trio.abc.Stream]) -> str:
    if isinstance(listener, trio.SSLListener):
        listener = listener.transport_listener
    assert isinstance(listener, trio.SocketListener)
    host, port = listener.socket.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@contextmanager
def catching(signals: Iterable[signal.Signals]) -> Iterator[AsyncIterator[int] | None]:
    """These signals as an iterator for the block; None, and nothing touched, when there are none to catch."""
    chosen = tuple(signals)
    if not chosen:
        yield None
        return
    with trio.open_signal_receiver(*chosen) as received:
        yield received


async def _obey_signals(caught: AsyncIterator[int] | None, reception: Reception, everything: trio.CancelScope) -> None:
    if caught is None:
        return
    async for number in caught:
        name = signal.Signals(number).name
        if reception.leaving:
            log.warning("ending_at_once", signal=name)
            everything.cancel(reason="second signal")
        log.info("stopping", signal=name, grace_s=reception.config.drain_grace_s)
        reception.stop.set()


async def _receive_callers(
    reception: Reception, listeners: list[trio.abc.Listener[trio.abc.Stream]], listening: partial[None]
) -> None:
    async with trio.open_nursery() as connections:
        async with trio.open_nursery() as door:
            receive = partial(receive_caller, reception)
            await door.start(partial(trio.serve_listeners, receive, listeners, handler_nursery=connections))
            listening()
            await reception.stop.wait()
            door.cancel_scope.cancel(reason="stopping")
        await reception.engine.drain(reception.config.drain_grace_s)
        connections.cancel_scope.deadline = trio.current_time() + LAST_WORDS_S
