"""Chat requests on the connections of a rig: what is posted, and what comes back."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from server_rig import Caller, Rig, Talker

from duplex_engine.conversation.effects import Turn
from duplex_engine.conversation.facts import FunctionCall, Usage
from duplex_engine.model_plugins.contract import Epoch, Response, SessionPlan
from duplex_engine.model_plugins.scripted.plugin import ScriptedPlugin
from duplex_engine.protocol.capabilities import Capabilities
from duplex_engine.protocol.session_config import SessionConfig

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "Hello"}]


def turns(script: str = 'forever { speak "hello you there" for 0.4 }', **options: Any) -> Any:
    """A scripted turn model. A chat is a session of its own, so each hears the script from its beginning."""
    return ScriptedPlugin(**{"mode": "turn", "script": script, **options})


@attrs.frozen
class Reply:
    """A whole HTTP answer. `parts`: its chunks, if it came in chunks."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    parts: Sequence[bytes] = ()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error object, which has to be complete."""
        error = self.json["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        assert error["message"]
        assert error["code"]
        return dict(error)

    @property
    def message(self) -> dict[str, Any]:
        (choice,) = self.json["choices"]
        return dict(choice["message"])

    @property
    def lines(self) -> list[Any]:
        """The lines of a stream; its end is the string [DONE]."""
        *lines, rest = self.body.decode().split("\n\n")
        assert rest == ""
        assert all(line.startswith("data: ") for line in lines)
        return [line if line == "[DONE]" else json.loads(line) for line in (line[6:] for line in lines)]

    @property
    def deltas(self) -> list[dict[str, Any]]:
        """What the lines add to the answer."""
        return [
            choice["delta"]
            for line in self.lines
            if line != "[DONE]" and "choices" in line
            for choice in line["choices"]
        ]


def request(body: bytes, *headers: str, path: str = CHAT, method: str = "POST", json_type: bool = True) -> bytes:
    """The bytes of a request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: test", f"Content-Length: {len(body)}", *headers]
    lines += ["Content-Type: application/json"] if json_type else []
    return "\r\n".join([*lines, "", ""]).encode() + body


def asking(**fields: Any) -> bytes:
    """The bytes of a request for an answer to a short greeting, unless `fields` say something else."""
    return request(json.dumps({"model": "any", "messages": HELLO, **fields}).encode())


async def read_reply(caller: Caller) -> Reply:
    """The next answer on a connection."""
    head = await caller.read_head()
    status = int(head[0].split()[1])
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
    if headers.get("transfer-encoding") != "chunked":
        return Reply(status, headers, await caller.read(int(headers["content-length"])))
    parts = [part async for part in _chunks(caller)]
    return Reply(status, headers, b"".join(parts), parts)


async def read_chunk(caller: Caller) -> bytes:
    """The next chunk of an answer that comes in chunks; b"" at its end."""
    size = b""
    while not size.endswith(b"\r\n"):
        size += await caller.read(1)
    chunk = await caller.read(int(size, 16) + 2)
    return bytes(chunk[:-2])


async def _chunks(caller: Caller) -> Any:
    while chunk := await read_chunk(caller):
        yield chunk


async def ask(rig: Rig, **fields: Any) -> Reply:
    """The answer to one request, on a connection of its own."""
    caller = rig.connect()
    await caller.send(asking(**fields))
    return await read_reply(caller)


LOUD = base64.b64encode((np.sin(np.arange(24_000) * 0.2) * 12_000).astype("<i2").tobytes()).decode()
SOUND = {"type": "input_audio", "input_audio": {"data": LOUD, "format": "pcm16"}}
"""A second of noise, as a part of a message."""


@attrs.define
class Chatty(Talker):
    """Says what it is told, in writing or aloud, remembers what it was asked, and hears the same in every sound."""

    words: Sequence[str] = ("All ", "right.")
    reason: str = "stop"
    calls: Sequence[FunctionCall] = ()
    tools: bool = True
    configs: list[SessionConfig] = attrs.Factory(list)
    turns: list[Turn] = attrs.Factory(list)
    chat: bool = True

    def capabilities(self, max_sessions: int | None) -> Capabilities:
        return attrs.evolve(super().capabilities(max_sessions), chat=self.chat, tools=self.tools)

    def plan(self, config: SessionConfig) -> SessionPlan:
        self.configs.append(config)
        return SessionPlan()

    async def answer(self, epoch: Epoch, turn: Turn, response: Response) -> None:
        self.turns.append(turn)
        if turn.utterance is not None:
            await epoch.heard(f"{len(turn.utterance.samples()) / 16_000:.1f} s of sound", turn=turn)
        for word in self.words:
            await response.audio(b"\1\2" * 1_001, text=word)
        for call in self.calls:
            await response.call(call)
        response.finish(
            self.reason, Usage(input_text=20, input_audio=10, input_cached=4, output_text=5, output_audio=2)
        )

    @property
    def heard(self) -> list[tuple[str, str]]:
        """The history of the last turn that was answered."""
        return [(message.role, message.text) for message in self.turns[-1].history]
