"""Calls of OpenAI's Python client (`AsyncOpenAI().realtime`), as it is installed: a program of its own.

python tests/peers/openai_call.py {scripted,cascade} http://127.0.0.1:8099 --record FILE
"""

import argparse
import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI
from openai.resources.realtime.realtime import AsyncRealtimeConnection, AsyncRealtimeConnectionManager
from peer_kit import Call, Microphone, recording

from duplex_engine.testing.caller import Heard

CALL_S = 50
RATE_HZ = 24_000
PCM = {"type": "audio/pcm", "rate": RATE_HZ}
SERVER_VAD = {
    "type": "server_vad",
    "threshold": 0.5,
    "prefix_padding_ms": 300,
    "silence_duration_ms": 500,
    "idle_timeout_ms": None,
    "create_response": True,
    "interrupt_response": True,
}
SEMANTIC_VAD = {"type": "semantic_vad", "eagerness": "high", "create_response": True, "interrupt_response": True}
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Name of the city"}},
    "required": ["city"],
}
TOOLS = [
    {"type": "function", "name": "get_weather", "description": "The current weather in a city.", "parameters": CITY},
    {"type": "function", "name": "get_time", "description": "The current time of day."},
]
METADATA = {"topic": "greeting", "client_event_id": "evt_mine"}


def session(detection: dict[str, Any], speed: float = 1.0) -> dict[str, Any]:
    """A session object as applications and agent frameworks send it."""
    return {
        "type": "realtime",
        "model": "gpt-realtime",
        "instructions": "You are a helpful assistant.",
        "output_modalities": ["audio"],
        "audio": {
            "input": {
                "format": PCM,
                "noise_reduction": {"type": "near_field"},
                "transcription": {"model": "gpt-4o-mini-transcribe"},
                "turn_detection": detection,
            },
            "output": {"format": PCM, "voice": "marin", "speed": speed},
        },
        "tools": [],
        "tool_choice": "auto",
        "max_output_tokens": "inf",
        "truncation": "auto",
        "tracing": None,
    }


class Conversation:
    """One connection of the client, with a microphone that is on and a record of all events."""

    def __init__(self, line: AsyncRealtimeConnection, call: Call, microphone: Microphone) -> None:
        self.line = line
        self.call = call
        self.microphone = microphone

    async def configure(self, session: dict[str, Any]) -> None:
        """Choose, and wait until it is agreed."""
        await self.line.session.update(session=session)
        await self.call.hears("session.updated")

    async def ask(self, name: str) -> Heard:
        """Ask a recorded question; returns the answer's `response.created`."""
        self.call.does(f"ask {name}")
        await self.microphone.say(recording(name, RATE_HZ))
        return await self.call.hears("response.created")

    async def talk_over(self, response: Heard, name: str) -> Heard:
        """Ask the next question over an answer, and take back what was not played; returns its `response.created`."""
        response_id = response["response_id"]
        asking = asyncio.create_task(self.ask(name))
        await self.call.hears("input_audio_buffer.speech_started")
        played_ms = 500
        await self.line.conversation.item.truncate(
            item_id=f"item_{response_id}", content_index=0, audio_end_ms=played_ms
        )
        await self.call.hears("conversation.item.truncated")
        await self.call.hears("response.done", id=response_id)
        await self.line.conversation.item.retrieve(item_id=f"item_{response_id}")
        await self.call.hears("conversation.item.retrieved")
        return await asking

    async def answer_the_call(self, output: str) -> None:
        """Say what came of the function that the model calls, as soon as it does, and hear what it says then."""
        made = await self.call.hears("response.function_call_arguments.done")
        item = {"type": "function_call_output", "call_id": str(made["call_id"]), "output": output}
        await self.line.conversation.item.create(item=item)
        await self.line.response.create()
        created = await self.call.hears("response.created")
        await self.call.hears("response.done", response_id=created["response_id"])

    async def write(self, text: str) -> None:
        """Write instead of speaking, and hear the answer."""
        content = [{"type": "input_text", "text": text}]
        await self.line.conversation.item.create(item={"type": "message", "role": "user", "content": content})
        await self.line.response.create(response={"metadata": METADATA})
        created = await self.call.hears("response.created")
        await self.call.hears("response.done", response_id=created["response_id"])


def connect(url: str) -> AsyncRealtimeConnectionManager:
    """A connection to the server at `url`, http://127.0.0.1:8099 for instance; enter it."""
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="any")
    return client.realtime.connect(model="gpt-realtime")


@asynccontextmanager
async def conversation(url: str, call: Call) -> AsyncIterator[Conversation]:
    """A connection for the block."""
    async with connect(url) as line, asyncio.TaskGroup() as tasks:

        async def append(pcm: bytes) -> None:
            await line.input_audio_buffer.append(audio=base64.b64encode(pcm).decode())

        listening = tasks.create_task(_record(line, call))
        microphone = Microphone(append, RATE_HZ)
        speaking = tasks.create_task(microphone.run())
        await call.hears("session.created")
        await call.hears("session.updated")
        yield Conversation(line, call, microphone)
        speaking.cancel()
        await line.close()
        await listening


async def _record(line: AsyncRealtimeConnection, call: Call) -> None:
    async for event in line:
        call.hear(json.loads(event.to_json(exclude_unset=True)))


async def scripted(url: str, call: Call) -> None:
    """Both ways to detect turns: an answer talked over, one heard to its end, and one to a written question."""
    async with conversation(url, call) as talk:
        await talk.configure(session(SERVER_VAD))
        first = await talk.ask("what_time_is_it.wav")
        await call.plays(first["response_id"], 1.0, RATE_HZ)
        second = await talk.talk_over(first, "how_do_you_say_grapefruit.wav")
        await call.hears("response.done", response_id=second["response_id"])
        await talk.configure(session(SEMANTIC_VAD))
        third = await talk.ask("what_time_is_it.wav")
        await call.hears("response.done", response_id=third["response_id"])
        await talk.write("Say hello.")


async def cascade(url: str, call: Call) -> None:
    """The embedded voice: an answer talked over, the next question answered, a written one as well."""
    async with conversation(url, call) as talk:
        await talk.configure(session(SEMANTIC_VAD, speed=0.5))  # an answer that lasts
        first = await talk.ask("what_time_is_it.wav")
        await call.plays(first["response_id"], 0.5, RATE_HZ)
        second = await talk.talk_over(first, "how_do_you_say_grapefruit.wav")
        await call.plays(second["response_id"], 1.0, RATE_HZ)
        await talk.line.response.cancel()
        await call.hears("response.done", response_id=second["response_id"])
        await talk.configure(session(SERVER_VAD, speed=1.0))
        await talk.write("What time is it?")


async def tools(url: str, call: Call) -> None:
    """A question that has to be answered with the help of a function, and one that must not."""
    brief = {**session(SERVER_VAD), "tools": TOOLS, "max_output_tokens": 40}  # the light model does not stop by itself
    async with conversation(url, call) as talk:
        await talk.configure({**brief, "tool_choice": "required"})
        content = [{"type": "input_text", "text": "What is the weather in Oslo?"}]
        await talk.line.conversation.item.create(item={"type": "message", "role": "user", "content": content})
        await talk.line.response.create()
        await talk.answer_the_call("light rain, 4 degrees")
        await talk.configure({**brief, "tool_choice": "none"})
        await talk.write("Say hello.")


CALLS: dict[str, Callable[[str, Call], Awaitable[None]]] = {"scripted": scripted, "cascade": cascade, "tools": tools}


async def main(arguments: argparse.Namespace) -> None:
    """Make the call, and leave its record whatever comes of it."""
    call = Call()
    try:
        async with asyncio.timeout(CALL_S):
            await CALLS[arguments.call](arguments.url, call)
    finally:
        call.write(arguments.record)


def arguments() -> argparse.Namespace:
    """Which call to make, where, and where to leave its record."""
    parser = argparse.ArgumentParser()
    parser.add_argument("call", choices=CALLS)
    parser.add_argument("url")
    parser.add_argument("--record", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(arguments()))
