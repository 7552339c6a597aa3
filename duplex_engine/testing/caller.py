"""A caller: somebody who talks to a session, over any line, and forgets nothing that was said.

Owns what a scripted person does (speak, be silent, commit, interrupt, acknowledge, hang up), and the record of
everything heard with its virtual time. Speaks and hears the wire's JSON, so that a caller in the same process sees what
one behind a socket sees.
"""

import base64
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import attrs
import numpy as np
import trio
import trio.testing

from duplex_engine.testing.marks import MarkReader

CHUNK_S = 0.08
VOICE_LOUDNESS = 0.1
PATIENCE_S = 60.0
LAST_WORDS = ("session.closed", "session.expired")
DELTA = "response.output_audio.delta"


class NotHeard(AssertionError):
    """What a caller waited for did not come."""


class Line(Protocol):
    """A connection between one caller and the engine."""

    async def send(self, *frames: bytes) -> None:
        """Say these frames, together. Raises SessionGone when the session has ended."""

    async def listen(
        self, deliver: Callable[[bytes], None], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Deliver every frame of the server; returns when the session, or the line, is over."""

    def stop_reading(self) -> None:
        """Take nothing any more, like a peer whose receive window is full."""

    def read_on(self) -> None:
        """Take everything again."""

    def lose(self) -> None:
        """Drop the connection without a word, to come back."""

    def come_back(self, seen: int) -> None:
        """Resume the session, having heard all up to the event numbered `seen`."""

    def hang_up(self) -> None:
        """Drop the line without a word."""


@attrs.frozen
class Heard:
    """One event of the server. `at`: seconds of the run's clock; `event`: its JSON."""

    at: float
    event: Mapping[str, object]

    @property
    def type(self) -> str:
        """The event's `type`."""
        return str(self.event["type"])

    def __getitem__(self, key: str) -> object:
        """The value of `key`: at the event's top level, else the first one further inside. Raises KeyError.

        Of an `error` event everything is looked up in its `error`, so that `event_id` is the refused command's.
        """
        error = self.event.get("error")
        if error is None and key in self.event:
            return self.event[key]
        for mapping in _levels(error if isinstance(error, Mapping) else self.event):
            if key in mapping:
                return mapping[key]
        raise KeyError(f"there is no {key!r} anywhere in {self.event}")

    def matches(self, wanted: Mapping[str, object]) -> bool:
        """Whether every wanted key has the wanted value."""
        try:
            return all(self[key] == value for key, value in wanted.items())
        except KeyError:
            return False

    @property
    def pcm(self) -> bytes:
        """The sound of an audio delta."""
        return base64.b64decode(str(self.event["delta"]))


@attrs.frozen
class Said:
    """One command of the caller."""

    at: float
    command: Mapping[str, object]


class Caller:
    """Somebody on the line. Opened by `Rig.caller`; every method takes the time it would take a person.

    `heard`, `said`: everything so far. `prompt`: it was always read at once. `absent`: the line is, or was, down for a
    while. `hung_up`: it was dropped for good.
    """

    def __init__(self, name: str, line: Line, *, rate_hz: int = 16_000, marks: MarkReader | None = None) -> None:
        self.name = name
        self.heard: list[Heard] = []
        self.said: list[Said] = []
        self.hung_up = False
        self.prompt = True
        self.absent = False
        self._line = line
        self._rate_hz = rate_hz
        self._marks = marks
        self._came = trio.lowlevel.ParkingLot()
        self._by_type: dict[str, list[Heard]] = {}
        self._position = 0
        self._numbers = itertools.count(1)
        self._over = False

    # --- what was heard -----------------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Whether the session's last word has been heard."""
        return bool(self.heard) and self.heard[-1].type in LAST_WORDS

    @property
    def mark(self) -> int | None:
        """The mark in all sound so far (see `marks.py`); None before the first sound, or where nobody reads marks."""
        return None if self._marks is None else self._marks.mark

    def all(self, event_type: str, **match: object) -> list[Heard]:
        """Every event of this type so far, that matches."""
        return [heard for heard in self._by_type.get(event_type, ()) if heard.matches(match)]

    def responses(self) -> list[str]:
        """Ids of all responses so far, oldest first."""
        return [str(heard["response_id"]) for heard in self.all("response.created")]

    def audio(self, response_id: object) -> bytes:
        """All sound of a response so far."""
        return b"".join(heard.pcm for heard in self.all(DELTA, response_id=response_id))

    def transcript(self, response_id: object) -> str:
        """All words of a response so far."""
        deltas = self.all("response.output_audio_transcript.delta", response_id=response_id)
        return "".join(str(heard["delta"]) for heard in deltas)

    def audio_ms(self, response_id: object) -> int:
        """How much sound of a response came so far, in milliseconds, as its deltas say."""
        deltas = self.all(DELTA, response_id=response_id)
        return int(str(deltas[-1]["audio_duration_ms"])) if deltas else 0

    async def hears(self, event_type: str, *, within_s: float = PATIENCE_S, **match: object) -> Heard:
        """The next event of this type that matches, after the one that was waited for last.

        `match`: keys of the event, wherever they stand in it (`status="cancelled"`). Raises NotHeard when none comes
        within `within_s`.
        """
        with trio.move_on_after(within_s):
            while True:
                for position in range(self._position, len(self.heard)):
                    heard = self.heard[position]
                    if heard.type == event_type and heard.matches(match):
                        self._position = position + 1
                        return heard
                if self._over:
                    break
                await self._came.park()
        raise NotHeard(
            f"{self.name} waited for {event_type} {match or ''} in vain; since then came "
            f"{[heard.type for heard in self.heard[self._position :]]}"
        )

    def catches_up(self) -> None:
        """Forget what was not waited for: `hears` goes on with what comes from now on."""
        self._position = len(self.heard)

    async def hears_nothing_of(self, event_type: str, *, for_s: float, **match: object) -> None:
        """Wait, and see that no such event comes. Raises AssertionError."""
        known = len(self.heard)
        await trio.sleep(for_s)
        for heard in self.heard[known:]:
            assert not (heard.type == event_type and heard.matches(match)), f"{self.name} heard {heard.event}"

    async def hears_the_end(self, *, within_s: float = PATIENCE_S) -> Heard:
        """The session's last word."""
        with trio.move_on_after(within_s):
            while not self._over:
                await self._came.park()
        assert self.ended, f"{self.name} heard no last word; the last event was {self.heard[-1].event}"
        return self.heard[-1]

    # --- what a person does -------------------------------------------------------------------------------------

    async def speaks(self, seconds: float, **fields: object) -> None:
        """Speak at the pace of a person. `fields` go into every append."""
        await self._sounds(seconds, VOICE_LOUDNESS, fields)

    async def is_silent(self, seconds: float, **fields: object) -> None:
        """Send silence, at the pace of a person."""
        await self._sounds(seconds, 0.0, fields)

    async def waits(self, seconds: float) -> None:
        """Send nothing."""
        await trio.sleep(seconds)

    async def appends(self, seconds: float, *, loudness: float = VOICE_LOUDNESS, **fields: object) -> str:
        """Send sound all at once."""
        return await self.sends("input_audio_buffer.append", audio=self._sound(seconds, loudness), **fields)

    async def commits(self, *, response_create: bool = True, **fields: object) -> str:
        """End the turn, and by default ask for an answer."""
        return await self.sends("input_audio_buffer.commit", response_create=response_create, **fields)

    async def asks(self, **response: object) -> str:
        """Ask for an answer."""
        return await self.sends("response.create", response=response)

    async def cancels(self, **fields: object) -> str:
        """Stop the answer."""
        return await self.sends("response.cancel", **fields)

    async def interrupts(self) -> str:
        """Cut in."""
        return await self.sends("barge_in")

    async def acks(self, played_ms: float, **fields: object) -> str:
        """Say how much of an answer was heard."""
        return await self.sends("playback.ack", played_ms=played_ms, **fields)

    async def types(self, text: str, **item: object) -> str:
        """Write a message instead of speaking."""
        message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}], **item}
        return await self.sends("conversation.item.create", item=message)

    async def closes(self) -> Heard:
        """Say goodbye and hear the last word."""
        await self.sends("session.close")
        return await self.hears_the_end()

    def stops_reading(self) -> None:
        """Take nothing from the line any more; from now on times say when something was read, not when it was said."""
        self.prompt = False
        self._line.stop_reading()

    def reads_on(self) -> None:
        """Take everything that came in the meantime, and what follows."""
        self._line.read_on()

    def loses_the_line(self) -> None:
        """Be cut off, without a word; from now on times say when something was read, not when it was said."""
        self.prompt, self.absent = False, True
        self._line.lose()

    async def comes_back(self) -> None:
        """Resume the session behind the last event that was heard, and hear the rest."""
        numbers = (heard.event.get("server_event_seq") for heard in self.heard)
        self._line.come_back(max((number for number in numbers if isinstance(number, int)), default=0))
        await trio.testing.wait_all_tasks_blocked()

    def hangs_up(self) -> None:
        """Drop the line without a word."""
        self.hung_up = True
        self._line.hang_up()

    async def sends(self, command_type: str, **fields: object) -> str:
        """Send a command; returns its `event_id`."""
        return (await self.sends_together({"type": command_type, **fields}))[0]

    async def sends_together(self, *commands: Mapping[str, object]) -> list[str]:
        """Send several commands in one go; returns their `event_id`s."""
        stamped = [{"event_id": f"evt_{self.name}_{next(self._numbers)}", **command} for command in commands]
        self.said.extend(Said(trio.current_time(), command) for command in stamped)
        await self._line.send(*(json.dumps(command).encode() for command in stamped))
        return [str(command["event_id"]) for command in stamped]

    async def sends_raw(self, frame: bytes, *, event_id: str | None = None) -> None:
        """Send something that may not be a command at all. `event_id`: the one that can be read in it."""
        self.said.append(Said(trio.current_time(), {"type": None, "event_id": event_id}))
        await self._line.send(frame)

    async def _sounds(self, seconds: float, loudness: float, fields: Mapping[str, object]) -> None:
        begun = trio.current_time()
        for count in range(round(seconds / CHUNK_S)):
            await trio.sleep_until(begun + (count + 1) * CHUNK_S)  # a recorder sends what it has heard
            await self.appends(CHUNK_S, loudness=loudness, **fields)

    def _sound(self, seconds: float, loudness: float) -> str:
        times = np.arange(round(seconds * self._rate_hz)) / self._rate_hz
        tone = np.sin(2 * np.pi * 220 * times) * loudness * np.sqrt(2) * 32767
        return base64.b64encode(tone.astype("<i2").tobytes()).decode()

    # --- for the rig --------------------------------------------------------------------------------------------

    async def listens(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hear everything until the line is over."""
        try:
            await self._line.listen(self._deliver, task_status=task_status)
        finally:
            self._over = True
            self._came.unpark_all()

    def record(self, heard: Heard) -> None:
        """Keep an event."""
        self.heard.append(heard)
        self._by_type.setdefault(heard.type, []).append(heard)

    def _deliver(self, frame: bytes) -> None:
        heard = Heard(trio.current_time(), json.loads(frame))
        self.record(heard)
        if self._marks is not None and heard.type == DELTA:
            self._marks.hear(str(heard["response_id"]), heard.pcm)
        self._came.unpark_all()


def _levels(event: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """The event and all objects inside it, outer ones first."""
    level: list[object] = [event]
    while level:
        inner: list[object] = []
        for value in level:
            if isinstance(value, Mapping):
                yield value
                inner.extend(value.values())
            elif isinstance(value, list):
                inner.extend(value)
        level = inner
