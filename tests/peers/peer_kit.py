"""What the calls of foreign clients share: recordings, a microphone that is never off, and a record of the call.

Runs in the caller's own process, on asyncio, because that is what those clients are made of. The test that started the
process reads the record from a file (`peer_record.py`).
"""

import asyncio
import base64
import json
import time
import wave
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import numpy as np
import soxr

from duplex_engine.testing.caller import Heard

RATE_HZ = 16_000
CHUNK_S = 0.08
ROOM_LOUDNESS = 0.0008
"""RMS of a quiet room, far below what counts as speech."""
DELTA = "response.output_audio.delta"
DATA = Path(__file__).parents[1] / "data"


def recording(name: str, rate_hz: int = RATE_HZ) -> bytes:
    """A recorded question as PCM16 at `rate_hz`."""
    with wave.open(str(DATA / name)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, RATE_HZ)
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    return soxr.resample(samples, RATE_HZ, rate_hz).astype("<i2").tobytes()


class Microphone:
    """Sends sound at the pace of speaking, without a pause: what is to be said, else the noise of the room.

    `send` is given each chunk of PCM16 at `rate_hz`.
    """

    def __init__(self, send: Callable[[bytes], Awaitable[None]], rate_hz: int = RATE_HZ) -> None:
        self._send = send
        self._chunk = 2 * round(rate_hz * CHUNK_S)
        noise = np.random.default_rng(7).normal(0, ROOM_LOUDNESS * 32767, rate_hz)
        self._room = noise.astype("<i2").tobytes()
        self._said = b""
        self._silent = asyncio.Event()

    async def say(self, pcm: bytes) -> None:
        """Say this after what is being said; returns when it is said."""
        self._said += pcm
        self._silent.clear()
        await self._silent.wait()

    async def run(self) -> None:
        """Send for ever."""
        due = time.monotonic()
        while True:
            chunk, self._said = self._said[: self._chunk], self._said[self._chunk :]
            await self._send(chunk + self._room[: self._chunk - len(chunk)])
            if not self._said:
                self._silent.set()
            due += CHUNK_S
            await asyncio.sleep(due - time.monotonic())


class Call:
    """Everything that was heard of a call, with its time, and what the caller did."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self._began_at = time.monotonic()
        self._moves: list[tuple[float, str]] = []
        self._position = 0
        self._came = asyncio.Event()

    def hear(self, event: Mapping[str, object]) -> None:
        """An event of the server has come."""
        self.heard.append(Heard(self._now(), event))
        self._came.set()
        self._came = asyncio.Event()

    def does(self, move: str) -> None:
        """Note what the caller does now."""
        self._moves.append((self._now(), move))

    async def hears(self, event_type: str, **match: object) -> Heard:
        """The next event of this type that matches, after the one that was waited for last."""
        while True:
            while self._position < len(self.heard):
                heard = self.heard[self._position]
                self._position += 1
                if heard.type == event_type and heard.matches(match):
                    return heard
            await self._came.wait()

    async def plays(self, response_id: object, seconds: float, rate_hz: int) -> None:
        """Wait until so much sound of a response has come, and as long as playing it takes."""
        first = await self._first_sound(response_id)
        while len(self.audio(response_id)) < 2 * rate_hz * seconds:
            await self._came.wait()
        await asyncio.sleep(first.at + seconds - self._now())

    def audio(self, response_id: object) -> bytes:
        """All sound of a response so far."""
        deltas = (heard for heard in self.heard if heard.type == DELTA and heard.event["response_id"] == response_id)
        return b"".join(base64.b64decode(str(delta.event["delta"])) for delta in deltas)

    def write(self, path: Path) -> None:
        """Leave the record for the test."""
        heard = [{"at": heard.at, "event": heard.event} for heard in self.heard]
        path.write_text(json.dumps({"heard": heard, "moves": self._moves}))

    async def _first_sound(self, response_id: object) -> Heard:
        while True:
            for heard in self.heard:
                if heard.type == DELTA and heard.event["response_id"] == response_id:
                    return heard
            await self._came.wait()

    def _now(self) -> float:
        return time.monotonic() - self._began_at
