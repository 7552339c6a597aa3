"""Frames on the pipe between a process host and its child: a length, then a pickled message.

Owns the framing and the five messages. Both ends are our own processes on an inherited socket, so pickle is safe here
and carries whatever payload a plugin chose. Never waits: reading and writing is the caller's.
"""

import pickle
import struct
from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from duplex_engine.model_plugins.contract import Result, Work

LENGTH: Final = struct.Struct("<Q")


@attrs.frozen
class Load:
    """Parent to child: import this stepper, build it with these arguments, load it."""

    stepper: str
    arguments: Mapping[str, object]


@attrs.frozen
class Loading:
    """Child to parent: progress of loading."""

    what: str
    fraction: float


@attrs.frozen
class Loaded:
    """Child to parent: ready to step."""


@attrs.frozen
class Stepped:
    """Child to parent: the results of the step that was asked for."""

    results: tuple[Result, ...]


@attrs.frozen
class Crashed:
    """Child to parent: the stepper raised; the child ends."""

    cause: str
    traceback: str


PipeMessage = Load | Work | Loading | Loaded | Stepped | Crashed


def pack(message: PipeMessage) -> bytes:
    """One frame."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body


class Unpacker:
    """Cuts received bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def push(self, data: bytes) -> Iterator[PipeMessage]:
        """Messages that `data` completes."""
        self._buffer += data
        while len(self._buffer) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._buffer)
            end = LENGTH.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[LENGTH.size : end])
            del self._buffer[:end]
            yield pickle.loads(body)
