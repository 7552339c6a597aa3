"""The child process of a process host: imports a stepper, loads it, steps it until the parent hangs up.

Run as `python -m duplex_engine.actors.host.child FD`. Single-threaded, knows no event loop. Ends when the pipe closes,
so it cannot outlive its parent.
"""

import os
import socket
import sys
import traceback
from collections.abc import Iterator
from importlib import import_module
from typing import cast

from duplex_engine.actors.host.wire import Crashed, Load, Loaded, Loading, PipeMessage, Stepped, Unpacker, pack
from duplex_engine.model_plugins.contract import Stepper, Work


def serve(pipe: socket.socket) -> None:
    """Obey the parent until it hangs up; a stepper that raises ends the child after saying so."""
    try:
        stepper: Stepper | None = None
        for message in received(pipe):
            if isinstance(message, Load):
                stepper = load(pipe, message)
                pipe.sendall(pack(Loaded()))
            elif isinstance(message, Work) and stepper is not None:
                pipe.sendall(pack(Stepped(tuple(stepper.step(message)))))
    except (BrokenPipeError, ConnectionResetError):
        return
    except Exception as error:
        pipe.sendall(pack(Crashed(str(error) or type(error).__name__, traceback.format_exc())))
        raise


def load(pipe: socket.socket, message: Load) -> Stepper:
    """Build and load the stepper that `message` names."""
    module, _, name = message.stepper.partition(":")
    stepper = cast("type[Stepper]", getattr(import_module(module), name))(**message.arguments)
    stepper.load(lambda what, fraction: pipe.sendall(pack(Loading(what, fraction))))
    return stepper


def received(pipe: socket.socket) -> Iterator[PipeMessage]:
    """Messages from the parent until it hangs up."""
    unpacker = Unpacker()
    while data := pipe.recv(1 << 20):
        yield from unpacker.push(data)


if __name__ == "__main__":
    # The pipe alone decides when this process ends: a Ctrl-C meant for the server must not cut a drain short.
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as inherited:
        serve(inherited)
    os._exit(0)
