"""Clients of the realtime protocol who die: at sixteen moments, in five manners.

Owns what one client does up to its death. How many there are, and what is left behind, is `churn.py`.
"""

import base64
import json
import random
import socket
import struct
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import attrs
import trio
from wire import LeanSocket, masked, upgrade_request

HOST = "127.0.0.1"
STRICT, GA = "/v1/realtime?duplex=1&autostart=0", "/v1/realtime?autostart=0"
RESUME_REFUSALS = {"invalid_resume_token", "session_resume_expired", "session_resume_conflict"}
SOUND = base64.b64encode(bytes(range(256)) * 40).decode()


def event(kind: str, **fields: object) -> bytes:
    """A frame's text."""
    return json.dumps({"type": kind, **fields}).encode()


OPEN = event("session.update", session={})
APPEND = event("input_audio_buffer.append", audio=SOUND)
WORDS = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "tell me everything"}]}
ASK = (APPEND, event("conversation.item.create", item=WORDS), event("response.create"))
CLOSE = event("session.close")


class Client:
    """One connection, and what it knows of its session."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.socket = LeanSocket(stream)
        self.session_id = self.token = ""
        self.seq = 0
        self._events: deque[dict[str, Any]] = deque()

    async def hears(self, *kinds: str) -> dict[str, Any]:
        """The next event of one of these kinds. Raises EOFError when the server hangs up."""
        while True:
            while self._events:
                heard = self._events.popleft()
                self.seq = heard.get("server_event_seq", self.seq)
                if heard["type"] in kinds:
                    return heard
            self._events.extend(map(json.loads, await self.socket.receive()))

    async def opens(self) -> None:
        """Open a session."""
        await self.socket.send(OPEN)
        created = await self.hears("session.created", "error")
        if created["type"] == "error":
            raise EOFError(created["error"]["code"])
        self.session_id, self.token = created["session"]["id"], created.get("resume_token", "")

    def claim(self) -> bytes:
        """The frame by which another connection takes this session over."""
        return event(
            "session.resume",
            session_id=self.session_id,
            resume_token=self.token,
            last_received_server_event_seq=self.seq,
        )


# --- how they die ------------------------------------------------------------------------------------------------


async def reset(stream: trio.SocketStream, rng: random.Random) -> None:
    """Like a machine that lost its power, and its peer finds out."""
    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def hang_up(stream: trio.SocketStream, rng: random.Random) -> None:
    """Close without a word."""


async def half_close(stream: trio.SocketStream, rng: random.Random) -> None:
    """Say nothing any more, but listen until the server has had enough."""
    await stream.send_eof()
    await drain(stream, 1.0)


async def close_politely(stream: trio.SocketStream, rng: random.Random) -> None:
    """Send a close frame and wait for the answer."""
    await stream.send_all(masked(b"\x03\xe8", opcode=8))
    await drain(stream, 1.0)


async def go_deaf(stream: trio.SocketStream, rng: random.Random) -> None:
    """Stop reading for a while, then go."""
    await trio.sleep(rng.uniform(0, 0.3))
    await reset(stream, rng)


async def drain(stream: trio.SocketStream, seconds: float) -> None:
    """Read until the server hangs up."""
    with trio.move_on_after(seconds):
        while await stream.receive_some(65536):
            pass


MANNERS = (reset, hang_up, half_close, close_politely, go_deaf)


# --- when they die -----------------------------------------------------------------------------------------------


@attrs.define
class Cycle:
    """One cycle: connections that are brought to a moment, and then die. `resumes` counts the answers to resuming."""

    port: int
    rng: random.Random
    deaths: Counter[str]
    resumes: Counter[str]
    clients: list[Client] = attrs.Factory(list)

    async def run(self, moment: str) -> None:
        """Live up to the moment, and die."""
        try:
            await MOMENTS[moment](self)
        finally:
            while self.clients:
                await self.die(self.clients.pop())

    async def die(self, client: Client) -> None:
        """In a random manner."""
        manner = self.rng.choice(MANNERS)
        self.deaths[manner.__name__] += 1
        stream = client.socket.stream
        try:
            await manner(stream, self.rng)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the server was quicker
        stream.socket.close()

    async def dials(self) -> Client:
        """A TCP connection."""
        client = Client(await trio.open_tcp_stream(HOST, self.port))
        self.clients.append(client)
        return client

    async def upgrades(self, target: str | None = None) -> Client:
        """A WebSocket."""
        client = await self.dials()
        await client.socket.upgrade(upgrade_request(HOST, self.port, target or self.rng.choice((STRICT, GA))))
        return client

    async def opens(self, target: str | None = None) -> Client:
        """A session."""
        client = await self.upgrades(target)
        await client.opens()
        return client

    async def asks(self, target: str | None = None) -> Client:
        """A session that owes an answer, or gives one."""
        client = await self.opens(target)
        await client.socket.send(*ASK)
        if self.rng.random() < 0.7:
            await client.hears("response.created")
            if self.rng.random() < 0.7:
                await client.hears("response.output_audio.delta")
        return client

    def part(self, data: bytes) -> bytes:
        """Some of it, never all."""
        return data[: self.rng.randrange(1, len(data))]

    # --- moments ----------------------------------------------------------------------------------------------

    async def connecting(self) -> None:
        await self.dials()

    async def half_a_request(self) -> None:
        client = await self.dials()
        await client.socket.stream.send_all(self.part(upgrade_request(HOST, self.port, STRICT)))

    async def upgraded(self) -> None:
        await self.upgrades()

    async def half_a_first_frame(self) -> None:
        client = await self.upgrades()
        await client.socket.stream.send_all(self.part(masked(OPEN)))

    async def opening(self) -> None:
        client = await self.dials()
        request = upgrade_request(HOST, self.port, self.rng.choice((STRICT, GA)))
        await client.socket.stream.send_all(request + masked(OPEN))
        await trio.sleep(self.rng.choice((0, 0.002, 0.02)))

    async def opened(self) -> None:
        await self.opens()

    async def half_an_append(self) -> None:
        client = await self.opens()
        await client.socket.stream.send_all(self.part(masked(APPEND)))

    async def asking(self) -> None:
        client = await self.opens()
        await client.socket.send(*ASK)

    async def answered(self) -> None:
        await self.asks()
        await trio.sleep(self.rng.uniform(0, 0.1))

    async def closing(self) -> None:
        client = await self.asks()
        await client.socket.send(CLOSE)

    async def closed(self) -> None:
        client = await self.asks()
        await client.socket.send(CLOSE)
        await client.hears("session.closed")

    async def half_a_close_frame(self) -> None:
        client = await self.asks()
        await client.socket.stream.send_all(self.part(masked(b"\x03\xe8", opcode=8)))

    async def resuming(self) -> None:
        claim = await self._claim(dead=True)
        client = await self.upgrades(STRICT)
        await client.socket.send(claim)

    async def resumed(self) -> None:
        await self._resumes(await self._claim(dead=True))

    async def taken_over(self) -> None:
        await self._resumes(await self._claim(dead=False))

    async def rivals(self) -> None:
        claim = await self._claim(dead=self.rng.random() < 0.5)
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(self._resumes, claim)

    async def _claim(self, *, dead: bool) -> bytes:
        client = await self.asks(STRICT)
        if dead:
            self.clients.remove(client)
            await self.die(client)
        return client.claim()

    async def _resumes(self, claim: bytes) -> None:
        client = await self.upgrades(STRICT)
        await client.socket.send(claim)
        answer = await client.hears("session.resumed", "session.resync_required", "error")
        code = answer["error"]["code"] if answer["type"] == "error" else answer["type"]
        assert code == "session.resumed" or code in RESUME_REFUSALS, f"a resume was answered with {answer}"
        self.resumes[code] += 1


MOMENTS: Mapping[str, Callable[[Cycle], Awaitable[None]]] = {
    moment.__name__: moment
    for moment in (
        Cycle.connecting,
        Cycle.half_a_request,
        Cycle.upgraded,
        Cycle.half_a_first_frame,
        Cycle.opening,
        Cycle.opened,
        Cycle.half_an_append,
        Cycle.asking,
        Cycle.answered,
        Cycle.closing,
        Cycle.closed,
        Cycle.half_a_close_frame,
        Cycle.resuming,
        Cycle.resumed,
        Cycle.taken_over,
        Cycle.rivals,
    )
}
