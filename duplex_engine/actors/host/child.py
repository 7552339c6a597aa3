"""The child process of a process host: imports a stepper, loads it, steps it until the parent hangs up.

Run as `python -m duplex_engine.actors.host.child FD NAME`. Knows no event loop. Ends when the pipe closes, and when its
parent dies, whatever its stepper is doing.
"""

import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import cast

import attrs
from outcome import Error, capture

from duplex_engine.actors.host.wire import (
    Crashed,
    Load,
    Loaded,
    Loading,
    PipeMessage,
    Refused,
    RemoteError,
    Stepped,
    Unpacker,
    pack,
)
from duplex_engine.errors import DuplexError
from duplex_engine.model_plugins.contract import Result, Stepper, Work

ORPHAN_LOOK_S = 0.1


def live(pipe: socket.socket) -> bool:
    """Serve until the parent hangs up. False when the stepper raised, which the parent has been told."""
    life = capture(serve, pipe)
    if isinstance(life, Error) and not isinstance(life.error, BrokenPipeError | ConnectionResetError):
        crash = Crashed(words(life.error), "".join(traceback.format_exception(life.error)))
        with suppress(OSError):
            pipe.sendall(pack(crash))
        return False
    return True


def serve(pipe: socket.socket) -> None:
    """Load what the parent's first message names, then step."""
    messages = received(pipe)
    try:
        stepper = load(pipe, cast("Load", next(messages)))
    except DuplexError as refusal:
        pipe.sendall(pack(Refused(words(refusal))))
        return
    pipe.sendall(pack(Loaded()))
    for message in messages:
        pipe.sendall(pack(Stepped(tuple(portable(result) for result in stepper.step(cast("Work", message))))))
    stepper.close()


def load(pipe: socket.socket, message: Load) -> Stepper:
    """Build and load the stepper that `message` names."""
    os.nice(message.nice)
    sys.path[:] = message.path
    module, _, name = message.stepper.partition(":")
    stepper = cast("type[Stepper]", getattr(import_module(module), name))(**message.arguments)
    stepper.load(lambda what, fraction: pipe.sendall(pack(Loading(what, fraction))))
    return stepper


def received(pipe: socket.socket) -> Iterator[PipeMessage]:
    """Messages from the parent until it hangs up."""
    unpacker = Unpacker()
    while data := pipe.recv(1 << 20):
        yield from unpacker.push(data)


def portable(result: Result) -> Result:
    """The result with its error, if it is one, in words."""
    if not isinstance(result.outcome, Error):
        return result
    error = RemoteError(words(result.outcome.error))
    error.add_note("".join(traceback.format_exception(result.outcome.error)))
    return attrs.evolve(result, outcome=Error(error))


def words(error: BaseException) -> str:
    """What an exception says."""
    return str(error) or type(error).__name__


def end_orphan(pipe: socket.socket, parent: int) -> None:
    """When the parent has hung up because it died, end at once; one that lives sees to our end itself."""
    hang_up = select.poll()
    hang_up.register(pipe, 0)
    hang_up.poll()
    while os.getppid() == parent:
        threading.Event().wait(ORPHAN_LOOK_S)
    os._exit(1)


if __name__ == "__main__":
    # The pipe alone decides when this process ends: a Ctrl-C meant for the server must not cut a drain short.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as inherited:
        inherited.set_inheritable(False)
        threading.Thread(target=end_orphan, args=[inherited, os.getppid()], daemon=True).start()
        fine = live(inherited)
    os._exit(0 if fine else 1)
