"""What the calls of clients with an environment of their own share: a microphone that is never off, and a record.

Runs inside that environment, which has neither this project nor its libraries: standard library only.
"""

import argparse
import asyncio
import json
import random
import time
from array import array
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

CALL_S = 40
RATE_HZ = 24_000
CHUNK_S = 0.04
SLOWLY = 0.5
"""How fast the assistant speaks, so that it can be talked over."""
ROOM_LOUDNESS = 0.0008
"""RMS of a quiet room, far below what counts as speech."""

Fact = Mapping[str, Any]


class Microphone:
    """Sends sound at the pace of speaking, without a pause: what is to be said, else the noise of the room.

    `send` is given each chunk of PCM16 at 24 kHz.
    """

    def __init__(self, send: Callable[[bytes], Awaitable[object]]) -> None:
        self._send = send
        self._chunk = 2 * round(RATE_HZ * CHUNK_S)
        noise = random.Random(7)
        self._room = array("h", (round(noise.gauss(0, ROOM_LOUDNESS * 32767)) for _ in range(self._chunk))).tobytes()
        self._said = b""

    def say(self, pcm: bytes) -> None:
        """Say this after what is being said."""
        self._said += pcm

    async def run(self) -> None:
        """Send for ever."""
        due = time.monotonic()
        while True:
            chunk, self._said = self._said[: self._chunk], self._said[self._chunk :]
            await self._send(chunk + self._room[: self._chunk - len(chunk)])
            due += CHUNK_S
            await asyncio.sleep(due - time.monotonic())


class Notes:
    """What came of a call, with its time: the server's events, what the client made of them, what the caller did.

    A note is a mapping with a `kind`. Events of the server, where the client shows them, are kept beside.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.url: str = arguments.url
        self._sounds: Path = arguments.sounds
        self._began_at = time.monotonic()
        self._heard: list[Fact] = []
        self._notes: list[Fact] = []
        self._moves: list[tuple[float, str]] = []
        self._position = 0
        self._came = asyncio.Event()

    def recording(self, name: str) -> bytes:
        """A recorded question as PCM16 at 24 kHz."""
        return (self._sounds / f"{name}.pcm").read_bytes()

    def hear(self, event: Fact) -> None:
        """An event of the server has come."""
        self._heard.append({"at": self._now(), "event": event})
        self.note("event", type=event["type"])

    def note(self, kind: str, **facts: Any) -> None:
        """The client told its application something."""
        self._notes.append({"at": self._now(), "kind": kind, **facts})
        self._came.set()

    def does(self, move: str) -> None:
        """Note what the caller does now."""
        self._moves.append((self._now(), move))

    def last(self, kind: str) -> Fact:
        """The newest note of this kind."""
        return next(note for note in reversed(self._notes) if note["kind"] == kind)

    async def until(self, kind: str, **match: Any) -> Fact:
        """The next note of this kind that matches, after the one that was waited for last."""
        while True:
            while self._position < len(self._notes):
                note = self._notes[self._position]
                self._position += 1
                if note["kind"] == kind and all(note.get(key) == value for key, value in match.items()):
                    return note
            self._came.clear()
            await self._came.wait()

    async def until_played(self, seconds: float, kind: str = "audio") -> None:
        """Until so much sound of the newest answer has come, from the next note of this kind on."""
        left = 2 * RATE_HZ * seconds
        while left > 0:
            left -= (await self.until(kind))["bytes"]

    def write(self, path: Path) -> None:
        """Leave the record for the test."""
        path.write_text(json.dumps({"heard": self._heard, "told": self._notes, "moves": self._moves}))

    def _now(self) -> float:
        return time.monotonic() - self._began_at


def main(calls: Mapping[str, Callable[[Notes], Awaitable[None]]]) -> None:
    """Make the call that the command line names, and leave its record whatever comes of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("call", choices=calls)
    parser.add_argument("url")
    parser.add_argument("--sounds", type=Path, required=True)
    parser.add_argument("--record", type=Path, required=True)
    arguments = parser.parse_args()
    asyncio.run(_call(calls[arguments.call], arguments))


async def _call(call: Callable[[Notes], Awaitable[None]], arguments: argparse.Namespace) -> None:
    notes = Notes(arguments)
    try:
        async with asyncio.timeout(CALL_S):
            await call(notes)
    finally:
        notes.write(arguments.record)
