"""A running server on a real port of this machine, and bare callers who write JSON to it and record all they hear.

Nothing of the product speaks for a caller: frames are made and read by hand (`transport_peer.py`).
"""

import base64
import itertools
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import numpy as np
import trio
from transport_peer import CLOSE, PING, PONG, TEXT, Peer, frame

from duplex_engine.config import EngineConfig, Limits, SessionLimits
from duplex_engine.conversation.effects import Turn
from duplex_engine.engine import Engine, open_engine
from duplex_engine.model_plugins.behaviours import NativeDuplex, TurnBased
from duplex_engine.model_plugins.contract import AudioUnit, Epoch, ModelPlugin, Response, UnitFormat
from duplex_engine.model_plugins.scripted.plugin import ScriptedPlugin
from duplex_engine.protocol.capabilities import Capabilities, TurnPolicy
from duplex_engine.server.app import serve
from duplex_engine.server.settings import ServeConfig

PATIENCE_S = 20.0
"""How long anything may take that has to happen."""
STRICT = "/v1/realtime?duplex=1&autostart=0"
GA = "/v1/realtime?model=any"
DELTA, WORDS, DONE = "response.output_audio.delta", "response.output_audio_transcript.delta", "response.done"
NATIVE: dict[str, Any] = {"extra_body": {"auto_response": True}}
VAD: dict[str, Any] = {"turn_detection": {"type": "server_vad"}}

Event = dict[str, Any]


class Line(Peer):  # type: ignore[misc]  # the hand-made peer has no annotations
    """A caller's end of a WebSocket: what it hears is recorded as it comes, in `heard`."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        super().__init__(stream)
        self.heard: list[Event] = []
        self.raw: list[bytes] = []
        self.farewell: tuple[int, str] | None = None
        self.over = trio.Event()
        self._place = 0
        self._came = trio.lowlevel.ParkingLot()
        self._numbers = itertools.count(1)
        self._one_at_a_time = trio.Lock()

    # --- what it says ---------------------------------------------------------------------------------------------

    async def say(self, kind: str, **fields: Any) -> str:
        """Give a command; returns its id."""
        event_id = f"evt_{next(self._numbers)}"
        await self.say_raw(json.dumps({"type": kind, "event_id": event_id, **fields}).encode())
        return event_id

    async def send(self, data: bytes) -> None:
        """Bytes as they are; pings are answered in between."""
        async with self._one_at_a_time:
            await super().send(data)

    async def say_raw(self, words: bytes) -> None:
        """A text message, whatever is in it."""
        await self.send(frame(TEXT, words))

    async def say_together(self, *commands: Mapping[str, Any]) -> None:
        """Several commands in one write."""
        await self.send(b"".join(frame(TEXT, json.dumps(command).encode()) for command in commands))

    async def append(self, seconds: float, *, loud: bool = True, **fields: Any) -> str:
        """Sound in one append: PCM16 at 16 kHz."""
        pcm = tone(seconds) if loud else bytes(2 * round(16_000 * seconds))
        return await self.say("input_audio_buffer.append", audio=b64(pcm), **fields)

    async def commit(self, **fields: Any) -> str:
        """End the turn, and ask for an answer unless `fields` say otherwise."""
        return await self.say("input_audio_buffer.commit", **{"response_create": True, **fields})

    async def ask(self) -> Event:
        """Speak for a second and ask for an answer; returns its `response.created`."""
        await self.append(1)
        await self.commit()
        return await self.until("response.created")

    # --- what it hears --------------------------------------------------------------------------------------------

    async def listen(self) -> None:
        """Record until the connection ends."""
        try:
            while True:
                opcode, payload = await self.next_frame()
                if opcode == PING:
                    await self.send(frame(PONG, payload))
                elif opcode == CLOSE:
                    self.farewell = int.from_bytes(payload[:2]), payload[2:].decode()
                    await self.send(frame(CLOSE, payload[:2]))
                elif opcode == TEXT:
                    self.raw.append(payload)
                    self.heard.append(json.loads(payload))
                self._came.unpark_all()
        except (EOFError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.over.set()
            self._came.unpark_all()

    async def until(self, kind: str, *, errors: bool = False, **match: Any) -> Event:
        """The next event of this type that matches, after the one waited for last. `errors`: may be there before it."""
        with trio.move_on_after(PATIENCE_S):
            while True:
                while self._place < len(self.heard):
                    event = self.heard[self._place]
                    self._place += 1
                    if event["type"] == kind and match.items() <= event.items():
                        return event
                    assert errors or event["type"] != "error", event
                assert not self.over.is_set(), f"the connection ended ({self.farewell}) before {kind} {match}"
                await self._came.park()
        raise AssertionError(f"no {kind} {match} within {PATIENCE_S:g} s, only {self.kinds[-20:]}")

    async def refused(self, code: str, *, event_id: str | None = None) -> Event:
        """The next error, which must be this one; returns what it says."""
        error: Event = (await self.until("error", errors=True))["error"]
        assert (error["code"], error.get("event_id")) == (code, event_id), error
        return error

    async def hang_up_of_server(self) -> tuple[int, str]:
        """Code and reason of the server's close frame, after which it has ended the connection."""
        with trio.fail_after(PATIENCE_S):
            await self.over.wait()
        assert self.farewell is not None, f"no close frame; last heard: {self.kinds[-3:]}"
        return self.farewell

    async def is_well(self) -> None:
        """The session still answers."""
        await self.say("session.heartbeat")
        await self.until("session.heartbeat_ack", errors=True)

    async def drop(self) -> None:
        """Lose the connection without a word to the other side."""
        linger = struct.pack("ii", 1, 0)
        self.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        await self.stream.aclose()
        await self.over.wait()

    # --- what it heard --------------------------------------------------------------------------------------------

    @property
    def kinds(self) -> list[str]:
        """The types of all events, in order."""
        return [event["type"] for event in self.heard]

    def all(self, *kinds: str, **match: Any) -> list[Event]:
        """All events of these types so far that match."""
        return [event for event in self.heard if event["type"] in kinds and match.items() <= event.items()]

    def of(self, response_id: str) -> list[Event]:
        """All events that carry this response's id, in order."""
        return [event for event in self.heard if event.get("response_id") == response_id]

    def sound(self, response_id: str) -> bytes:
        """All sound of a response so far."""
        return b"".join(base64.b64decode(event["delta"]) for event in self.all(DELTA, response_id=response_id))

    def words(self, response_id: str) -> str:
        """All words of a response so far."""
        return "".join(event["delta"] for event in self.all(WORDS, response_id=response_id))


@attrs.define(eq=False)
class House:
    """A running server, and those who call it."""

    engine: Engine
    port: int
    _nursery: trio.Nursery

    @property
    def seats(self) -> int:
        """Seats taken now."""
        return self.engine.snapshot().seats_taken

    async def dial(self, path: str = STRICT, *, offer: Sequence[str] = ()) -> Line:
        """A connection behind its upgrade."""
        line = Line(await trio.open_tcp_stream("127.0.0.1", self.port))
        status, line.headers = await line.upgrade(path, offer=offer)
        assert status.startswith("HTTP/1.1 101"), status
        self.read_by(line)
        return line

    async def dial_deaf(self) -> Line:
        """A connection behind its upgrade whose client reads no more, and whose buffer is small."""
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        line = Line(stream)
        await line.upgrade(STRICT)
        return line

    def read_by(self, line: Line) -> None:
        """From now on this caller reads."""
        self._nursery.start_soon(line.listen)

    async def open(self, session: Mapping[str, Any] | None = None, path: str = STRICT) -> Line:
        """A caller with an open session."""
        line = await self.dial(path)
        await line.say("session.update", session=session or {})
        await line.until("session.updated")
        return line

    async def script(self, script: str, *, path: str = STRICT, **session: Any) -> Line:
        """A caller whose model plays this script."""
        body = {"script": script, **session.get("extra_body", {})}
        return await self.open({**session, "extra_body": body}, path)

    async def until_seats(self, count: int, *, within_s: float = PATIENCE_S) -> None:
        """Wait until so many seats are taken."""
        await eventually(lambda: self.seats == count, within_s)

    async def until_slots_are_free(self) -> None:
        """Wait until no worker works for anybody; the step in hand may end first."""
        workers = self.engine.snapshot
        await eventually(lambda: all(worker.free_slots == worker.slots for worker in workers().workers.values()), 1)

    async def get(self, path: str, *, headers: Sequence[str] = ()) -> tuple[int, bytes]:
        """Status and body of a plain request."""
        caller = Peer(await trio.open_tcp_stream("127.0.0.1", self.port))
        head = [f"GET {path} HTTP/1.1", "Host: test", "Connection: close", *headers, "", ""]
        await caller.send("\r\n".join(head).encode())
        lines = await caller.read_head()
        lengths = [int(line.split(": ")[1]) for line in lines if line.lower().startswith("content-length")]
        body = await caller.read(lengths[0]) if lengths else b""
        await caller.stream.aclose()
        return int(lines[0].split()[1]), body


@asynccontextmanager
async def house(
    plugin: ModelPlugin | None = None,
    *,
    max_sessions: int | None = None,
    limits: SessionLimits | None = None,
    **settings: Any,
) -> AsyncIterator[House]:
    """A server for the block, on a free port; without a plugin it plays scripts turn by turn."""
    bounds = Limits(max_sessions=max_sessions, session=limits or SessionLimits())
    config = EngineConfig(plugin="", limits=bounds)
    with trio.fail_after(100):
        async with open_engine(config, plugin=plugin or turns()) as engine, trio.open_nursery() as nursery:
            (url,) = await nursery.start(partial(serve, engine, ServeConfig(port=0, **settings), signals=()))
            yield House(engine, int(url.rpartition(":")[2]), nursery)
            nursery.cancel_scope.cancel()


# --- models -------------------------------------------------------------------------------------------------------

SAY_SOMETHING = 'forever { speak "something to be said about everything" for 1 }'


def turns(**options: Any) -> ModelPlugin:
    """Plays scripts turn by turn, as fast as it can unless the script says `slow`."""
    return ScriptedPlugin(**{"mode": "turn", "script": SAY_SOMETHING, "step_ms": 1, **options})


def native(script: str = "listen", **options: Any) -> ModelPlugin:
    """Plays scripts natively, unit by unit."""
    return ScriptedPlugin(**{"mode": "native", "script": script, "step_ms": 1, **options})


@attrs.define(eq=False)
class Witness(NativeDuplex):
    """A model that only listens, and keeps every unit it hears."""

    rate_hz: int = 16_000
    name: str = "witness"
    units: list[AudioUnit] = attrs.Factory(list)
    came: trio.lowlevel.ParkingLot = attrs.Factory(trio.lowlevel.ParkingLot)

    def capabilities(self, max_sessions: int | None) -> Capabilities:
        return Capabilities(turn_policy=TurnPolicy.MODEL, chunk_period_ms=80, max_sessions=max_sessions or 10)

    def unit_format(self) -> UnitFormat:
        return UnitFormat(rate_hz=self.rate_hz, samples=self.rate_hz * 80 // 1000, output_rate_hz=24_000)

    async def warm_up(self, rehearsal: Any) -> None:
        """Nothing to warm."""

    async def converse(self, epoch: Epoch) -> None:
        while True:
            self.units.append(await epoch.next_unit())
            self.came.unpark_all()
            await epoch.listen()

    async def until_units(self, count: int) -> None:
        """Wait until so many units were heard."""
        with trio.fail_after(PATIENCE_S):
            while len(self.units) < count:
                await self.came.park()

    @property
    def samples(self) -> Any:
        """Everything heard, shape (n,)."""
        return np.concatenate([unit.samples for unit in self.units] or [np.zeros(0, np.float32)])


@attrs.define(eq=False)
class TurnWitness(TurnBased):
    """A model that answers every turn with a word, and keeps the turns it is offered."""

    rate_hz: int = 16_000
    name: str = "turn-witness"
    turns: list[Turn] = attrs.Factory(list)

    def capabilities(self, max_sessions: int | None) -> Capabilities:
        return Capabilities(
            turn_policy=TurnPolicy.TURN, text_only_turns=True, chunk_period_ms=80, max_sessions=max_sessions or 10
        )

    def unit_format(self) -> UnitFormat:
        return UnitFormat(rate_hz=self.rate_hz, samples=self.rate_hz * 80 // 1000, output_rate_hz=24_000)

    async def warm_up(self, rehearsal: Any) -> None:
        """Nothing to warm."""

    async def answer(self, epoch: Epoch, turn: Turn, response: Response) -> None:
        self.turns.append(turn)
        await response.audio(bytes(4800), text="yes")


async def eventually(holds: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    """Look every now and then, until it holds. Raises AssertionError when that takes too long."""
    for _ in range(int(within_s * 100)):
        if holds():
            return
        await trio.sleep(0.01)
    raise AssertionError(f"not within {within_s:g} s")


# --- sound --------------------------------------------------------------------------------------------------------


def b64(data: bytes) -> str:
    """Base64 text."""
    return base64.b64encode(data).decode()


def wave(seconds: float, rate_hz: int, hz: float = 440.0) -> Any:
    """A tone at a third of full scale, shape (n,), float64."""
    return np.sin(2 * np.pi * hz * np.arange(round(seconds * rate_hz)) / rate_hz) / 3


def tone(seconds: float, rate_hz: int = 16_000, hz: float = 440.0) -> bytes:
    """The same as PCM16."""
    return bytes((wave(seconds, rate_hz, hz) * 32_767).astype("<i2").tobytes())


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    """`data` in pieces of `size` bytes."""
    yield from (data[start : start + size] for start in range(0, len(data), size))


def numbers(events: Sequence[Event]) -> list[int]:
    """The sequence numbers of events that have one."""
    return [event["server_event_seq"] for event in events if "server_event_seq" in event]
