"""A scripted server for client tests: real WebSocket frames over in-memory streams, one script per connection."""

import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import attrs
import trio
import trio.testing
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_server_stream
from wsproto.utilities import LocalProtocolError

from duplex_engine.protocol.wire_json import b64encode

Event = dict[str, Any]
SESSION_ID = "duplex-" + "5f0c" * 8


@attrs.define
class Session:
    """What survives a connection: numbers, the journal, the current token."""

    seq: int = 0
    journal: list[Event] = attrs.Factory(list)
    generation: int = 1
    token: str = "token-1"
    chunk_period_ms: int = 80

    def public(self) -> Event:
        return {
            "id": SESSION_ID,
            "object": "realtime.session",
            "model": "scripted",
            "capabilities": {"chunk_period_ms": self.chunk_period_ms},
        }

    def rotate(self) -> str:
        self.generation += 1
        self.token = f"token-{self.generation}"
        return self.token


class Line:
    """The server's end of one connection."""

    def __init__(self, session: Session, ws: WebSocketConnection, stream: trio.abc.Stream, path: str) -> None:
        self.session, self.ws, self.stream, self.path = session, ws, stream, path
        self.received: list[Event] = []
        self.times: list[float] = []
        self.acknowledged: list[int] = []
        self.headers: dict[str, str] = {}

    async def receive(self, kind: str | None = None) -> Event:
        """The next client event that is no acknowledgement (or the next of `kind`); raises ConnectionClosed."""
        while True:
            event = json.loads(await self.ws.get_message())
            if event["type"] == "session.event_ack":
                self.acknowledged.append(event["server_event_seq"])
                continue
            self.received.append(event)
            self.times.append(trio.current_time())
            if kind is None or event["type"] == kind:
                return event

    async def send(self, event: Event) -> None:
        await self.ws.send_message(json.dumps(event))

    def number(self, kind: str, **fields: Any) -> Event:
        """A numbered event, kept in the journal."""
        self.session.seq += 1
        event = {"type": kind, "event_id": f"event_{self.session.seq}", "server_event_seq": self.session.seq, **fields}
        self.session.journal.append(event)
        return event

    async def say(self, kind: str, **fields: Any) -> Event:
        event = self.number(kind, **fields)
        await self.send(event)
        return event

    async def open(self) -> Event:
        """Take the opening `session.update` and create the session."""
        update = await self.receive("session.update")
        session = self.session
        created = {"type": "session.created", "session": session.public(), "attachment_generation": 1}
        await self.send(created | {"resume_token": session.token})
        await self.say("session.updated", session=session.public())
        return update

    async def resume(self) -> Event:
        """Take a `session.resume`, rotate the token and replay what was missed."""
        request = await self.receive("session.resume")
        assert request["resume_token"] == self.session.token
        token = self.session.rotate()
        await self.send(
            {
                "type": "session.resumed",
                "session_id": SESSION_ID,
                "session": self.session.public(),
                "attachment_generation": self.session.generation,
                "resume_token": token,
            }
        )
        for event in self.session.journal:
            if event["server_event_seq"] > request["last_received_server_event_seq"]:
                await self.send(event)
        return request

    async def respond(self, response_id: str, *chunks: bytes, text: str = "", rate: int = 24_000) -> None:
        """The body of a response: created, speak, then the chunks."""
        await self.say("response.created", response_id=response_id, response={"id": response_id})
        await self.say("response.speak", response_id=response_id, item_id=f"item_{response_id}", metadata={})
        for chunk in chunks:
            await self.audio(response_id, chunk, rate=rate)
        if text:
            await self.say("response.output_audio_transcript.delta", response_id=response_id, delta=text)

    async def audio(self, response_id: str, chunk: bytes, *, rate: int = 24_000, **metadata: Any) -> None:
        await self.say(
            "response.output_audio.delta",
            response_id=response_id,
            item_id=f"item_{response_id}",
            delta=b64encode(chunk),
            format="pcm16",
            sample_rate_hz=rate,
            metadata=metadata,
        )

    async def done(self, response_id: str, status: str = "completed", **more: Any) -> None:
        await self.say("response.done", response_id=response_id, response={"id": response_id, "status": status, **more})

    async def serve_until_closed(self) -> Event:
        """Ignore everything until `session.close`, then end the session as a server does."""
        request = await self.receive("session.close")
        await self.say("session.closed", session_id=SESSION_ID, reason="client_close", event={})
        await self.ws.aclose(1000, "client_close")
        return request

    async def cut(self) -> None:
        """The cable is pulled."""
        await trio.aclose_forcefully(self.stream)


Script = Callable[[Line], Awaitable[None]]


class Peer:
    """Hands each new connection to the next script; the last script serves all further ones."""

    def __init__(self, nursery: trio.Nursery, *scripts: Script, pair: Any = trio.testing.memory_stream_pair) -> None:
        self.session = Session()
        self.lines: list[Line] = []
        self.attempts: list[float] = []
        self.urls: list[str] = []
        self._nursery, self._scripts, self._pair = nursery, list(scripts), pair

    async def connect(self, url: str) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        self.urls.append(url)
        self.attempts.append(trio.current_time())
        script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
        client_end, server_end = self._pair()
        self._nursery.start_soon(self._serve, server_end, script)
        return client_end

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.urls[-1]).query))

    async def _serve(self, stream: trio.abc.Stream, script: Script) -> None:
        async with trio.open_nursery() as nursery:
            request = await wrap_server_stream(nursery, stream, max_message_size=2**24)
            ws = await request.accept()
            line = Line(self.session, ws, stream, request.path)
            line.headers = {name.decode().lower(): value.decode() for name, value in request.headers}
            self.lines.append(line)
            try:
                await script(line)
            except* (ConnectionClosed, LocalProtocolError, trio.ClosedResourceError, trio.BrokenResourceError):
                # The script's own connection went away.
                pass
            await trio.aclose_forcefully(stream)
            nursery.cancel_scope.cancel()


async def refuse(_: str) -> trio.abc.Stream:
    await trio.lowlevel.checkpoint()
    raise ConnectionRefusedError(111, "Connection refused")


async def serve_quietly(line: Line) -> None:
    """Open the session and close it when asked."""
    await line.open()
    await line.serve_until_closed()
