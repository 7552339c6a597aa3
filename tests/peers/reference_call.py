"""Calls of the reference client, `vllm_omni.clients.duplex.DuplexClient`, as it is installed: a program of its own.

python tests/peers/reference_call.py {native,cascade} ws://127.0.0.1:8099 --record FILE, with the client on PYTHONPATH.
"""

import argparse
import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import websockets
from peer_kit import Call, Microphone, recording
from vllm_omni.clients.duplex import (
    DuplexClient,
    DuplexConnectionError,
    EventCollector,
    ResponseHandle,
    SessionConfig,
    acknowledge_collected_playback,
    chunk_period_ms,
)

CALL_S = 50
OUTPUT_RATE_HZ = 24_000
SERVER_VAD = {"type": "server_vad", "silence_duration_ms": 400}


class Conversation:
    """One session of the client, with a microphone that is on and a record of all events."""

    def __init__(self, client: DuplexClient, call: Call, collector: EventCollector, microphone: Microphone) -> None:
        self.client = client
        self.call = call
        self.collector = collector
        self.microphone = microphone
        self._responses = client.responses()

    async def answer(self) -> ResponseHandle:
        """The next answer that is spoken; decisions to listen are passed over."""
        async for response in self._responses:
            if response.decision == "speak":
                return response
        raise AssertionError("the session ended without another answer")

    async def listen_to(self, response: ResponseHandle, *, rate_hz: int, at_least_s: float) -> None:
        """Play an answer, acknowledging as it goes, until so much of it was heard."""
        async for _ in response.audio():
            await self.client.ack_playback(response.played_ms, response_id=response.response_id)
            if response.played_ms >= at_least_s * 1000:
                break
        await self.call.plays(response.response_id, at_least_s, rate_hz)


@asynccontextmanager
async def conversation(url: str, call: Call, config: SessionConfig, **options: Any) -> AsyncIterator[Conversation]:
    """A session for the block, ended by the client's own way to end it."""
    collector = EventCollector()
    async with DuplexClient(url, model="any", config=config, **options) as client, asyncio.TaskGroup() as tasks:
        assert client.session_id is not None
        assert re.fullmatch("duplex-[0-9a-f]{32}", client.session_id), client.session_id
        capabilities = client.session_info["capabilities"]
        assert isinstance(capabilities, dict)
        assert len(capabilities) == 40
        assert chunk_period_ms([{"session": client.session_info}], default=-1) == 80
        listening = tasks.create_task(_record(client, call, collector))
        microphone = Microphone(partial(_append, client))
        speaking = tasks.create_task(microphone.run())
        yield Conversation(client, call, collector, microphone)
        speaking.cancel()
        call.does("close")
        await client.close()
        await listening


async def _append(client: DuplexClient, chunk: bytes) -> None:
    try:
        await client.append_audio(chunk)
    except DuplexConnectionError:
        pass  # this client does not keep what is said while it reconnects


async def _record(client: DuplexClient, call: Call, collector: EventCollector) -> None:
    async for event in client.events():  # ends quietly when the session was closed as asked
        collector.add(event)
        call.hear(event.raw)


async def native(url: str, call: Call) -> None:
    """The model decides: an answer cut off by the client, one talked over, one heard to its end."""
    async with conversation(url, call, SessionConfig(turn_detection=SERVER_VAD)) as talk:
        await talk.microphone.say(recording("what_time_is_it.wav"))
        await talk.client.commit()
        first = await talk.answer()
        await talk.listen_to(first, rate_hz=OUTPUT_RATE_HZ, at_least_s=1.0)
        call.does("cancel")
        await talk.client.cancel_response()
        await call.hears("response.done", response_id=first.response_id)

        second = await talk.answer()
        await talk.listen_to(second, rate_hz=OUTPUT_RATE_HZ, at_least_s=1.0)
        call.does("talk over")
        await talk.microphone.say(recording("how_do_you_say_grapefruit.wav"))
        await call.hears("response.done", response_id=second.response_id)

        third = await talk.answer()
        async for _ in third.audio():
            pass
        await third.wait(10)
        call.does("acknowledge all")
        await acknowledge_collected_playback(talk.client, talk.collector)
        for response in (first, second, third):
            await call.hears("playback.acknowledged", item_id=f"item_{response.response_id}")


async def dropped(url: str, call: Call) -> None:
    """The connection is torn twice in the middle of an answer, without a close frame; the client resumes by itself."""
    connections: list[websockets.ClientConnection] = []

    async def connect(address: str) -> websockets.ClientConnection:
        connections.append(await websockets.connect(address, max_size=None))
        return connections[-1]

    options = {"connect": connect, "heartbeat_interval_s": 0.2}
    async with conversation(url, call, SessionConfig(), **options) as talk:
        await talk.microphone.say(recording("what_time_is_it.wav"))
        answer = await talk.answer()
        for seconds in (0.5, 1.5):
            await call.plays(answer.response_id, seconds, OUTPUT_RATE_HZ)
            call.does(f"drop at {seconds}")
            connections[-1].transport.abort()
            await call.hears("connection.resumed")
        async for _ in answer.audio():
            await talk.client.ack_playback(answer.played_ms, response_id=answer.response_id)
        await answer.wait(20)
        assert len(connections) == 3


async def cascade(url: str, call: Call) -> None:
    """The embedded voice with the client's defaults: a whole turn, then an answer talked over by the next question."""
    async with conversation(url, call, SessionConfig()) as talk:
        await talk.microphone.say(recording("what_time_is_it.wav"))
        first = await talk.answer()
        async for _ in first.audio():
            await talk.client.ack_playback(first.played_ms, response_id=first.response_id)
        await first.wait(20)
        await acknowledge_collected_playback(talk.client, talk.collector)

        await talk.client.send({"type": "session.update", "session": {"speed": 0.5}})  # an answer that lasts
        await talk.microphone.say(recording("what_time_is_it.wav"))
        second = await talk.answer()
        call.does("talk over")
        await talk.microphone.say(recording("how_do_you_say_grapefruit.wav"))
        await call.hears("response.done", response_id=second.response_id)
        third = await talk.answer()
        await talk.listen_to(third, rate_hz=22_050, at_least_s=1.0)


async def opening(url: str, call: Call) -> None:
    """A session that is opened and closed."""
    async with conversation(url, call, SessionConfig()):
        pass


CALLS: dict[str, Callable[[str, Call], Awaitable[None]]] = {
    "native": native,
    "dropped": dropped,
    "cascade": cascade,
    "opening": opening,
}


async def main(arguments: argparse.Namespace) -> None:
    """Make the call, and leave its record whatever comes of it."""
    call = Call()
    try:
        async with asyncio.timeout(CALL_S):
            await CALLS[arguments.call](arguments.url, call)
    finally:
        call.write(arguments.record)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("call", choices=CALLS)
    parser.add_argument("url")
    parser.add_argument("--record", type=Path, required=True)
    asyncio.run(main(parser.parse_args()))
