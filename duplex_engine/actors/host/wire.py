"""Frames on the pipe between a process host and its child: a length, then a pickled message.

Owns the framing and the messages. Both ends are our own processes on an inherited socket, so pickle is safe here and
carries whatever payload a plugin chose. Never waits: reading and writing is the caller's.
"""

import pickle
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from duplex_engine.errors import DuplexError
from duplex_engine.model_plugins.contract import Result, Work

LENGTH: Final = struct.Struct("<Q")


@attrs.frozen
class Load:
    """Parent to child: import this stepper, build it with these arguments, load it.

    `path`: where the parent finds modules. `nice`: priority to add.
    """

    stepper: str
    arguments: Mapping[str, object]
    path: Sequence[str]
    nice: int


@attrs.frozen
class Loading:
    """Child to parent: progress of loading."""

    what: str
    fraction: float


@attrs.frozen
class Loaded:
    """Child to parent: ready to step."""


@attrs.frozen
class Refused:
    """Child to parent: the stepper cannot be loaded here, and trying again would not help; the child ends."""

    cause: str


@attrs.frozen
class Stepped:
    """Child to parent: the results of the step that was asked for."""

    results: tuple[Result, ...]


@attrs.frozen
class Crashed:
    """Child to parent: the stepper raised; the child ends."""

    cause: str
    traceback: str


PipeMessage = Load | Work | Loading | Loaded | Refused | Stepped | Crashed


class RemoteError(DuplexError):
    """What a stepper raised for one item, in words: exceptions of any class might not survive the pipe."""


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
            body = self._buffer[LENGTH.size : end]
            del self._buffer[:end]
            yield pickle.loads(body)
