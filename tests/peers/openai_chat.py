"""Chat completions with OpenAI's Python client (`AsyncOpenAI().chat`), as it is installed: a program of its own.

python tests/peers/openai_chat.py {scripted,calling,cascade} http://127.0.0.1:8099 --record FILE
"""

import argparse
import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import openai
from openai import AsyncOpenAI
from peer_kit import DATA

CHATS_S = 80
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
SPOKEN: dict[str, Any] = {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}
STREAMED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
TOOLS = [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}}]

Record = dict[str, Any]


async def ask(client: AsyncOpenAI, **fields: Any) -> Any:
    """The answer as the client understood it: an object, or the list of its chunks."""
    asked: Any = {"model": "gpt-4o-audio-preview", "messages": QUESTION, **fields}
    answer = await client.chat.completions.create(**asked)
    if not asked.get("stream"):
        return answer.to_dict(mode="json")
    return [chunk.to_dict(mode="json") async for chunk in answer]


def recorded(name: str) -> Record:
    """A message that was spoken."""
    data = base64.b64encode((DATA / name).read_bytes()).decode()
    return {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}]}


async def refusals(client: AsyncOpenAI) -> list[Record]:
    """What the client raises for requests that cannot be answered."""
    raised = []
    for fields in ({"n": 2}, {"temperature": 9}, {"messages": []}):
        try:
            await ask(client, **fields)
        except openai.APIStatusError as error:
            kind = type(error).__name__
            raised.append({"kind": kind, "status": error.status_code, "code": error.code, "param": error.param})
    return raised


async def scripted(client: AsyncOpenAI) -> Record:
    """Everything that is answered alike by every model."""
    async with client.chat.completions.stream(model="any", messages=QUESTION) as stream:  # type: ignore[arg-type]
        helped = await stream.get_final_completion()
    chunks = await client.chat.completions.create(model="any", messages=QUESTION, stream=True)  # type: ignore[call-overload]
    first = await anext(chunks)
    await chunks.close()
    return {
        "models": [model.id async for model in client.models.list()],
        "whole": await ask(client),
        "stream": await ask(client, **STREAMED),
        "spoken": await ask(client, **SPOKEN),
        "spoken_stream": await ask(client, **{**SPOKEN, "audio": {"voice": "ash", "format": "pcm16"}}, **STREAMED),
        "helped": helped.to_dict(mode="json"),
        "left": first.to_dict(mode="json"),
        "refusals": await refusals(client),
    }


async def calling(client: AsyncOpenAI) -> Record:
    """A model that calls a function, and is told what came of it."""
    whole = await ask(client, tools=TOOLS)
    called = whole["choices"][0]["message"]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "a cat"} for call in called["tool_calls"]]
    return {
        "whole": whole,
        "stream": await ask(client, tools=TOOLS, **STREAMED),
        "told": await ask(client, tools=TOOLS, messages=[*QUESTION, called, *results]),
    }


async def cascade(client: AsyncOpenAI) -> Record:
    """The embedded voice: asked in writing and aloud, answering in words and aloud."""
    brief = [{"role": "system", "content": "You know all capitals."}, *QUESTION]
    heard = [recorded("what_time_is_it.wav"), {"role": "assistant", "content": "It is noon."}]
    return {
        "whole": await ask(client, messages=brief),
        "stream": await ask(client, **STREAMED),
        "spoken": await ask(client, **SPOKEN),
        "heard": await ask(client, messages=[*heard, recorded("how_do_you_say_grapefruit.wav")]),
        "short": await ask(client, messages=[{"role": "user", "content": "Count to one hundred."}], max_tokens=3),
    }


CHATS: dict[str, Callable[[AsyncOpenAI], Awaitable[Record]]] = {
    "scripted": scripted,
    "calling": calling,
    "cascade": cascade,
}


async def main(arguments: argparse.Namespace) -> None:
    """Ask everything, and leave the record."""
    async with asyncio.timeout(CHATS_S):
        async with AsyncOpenAI(api_key="any", base_url=f"{arguments.url}/v1", max_retries=0) as client:
            record = await CHATS[arguments.chats](client)
    arguments.record.write_text(json.dumps(record))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("chats", choices=CHATS)
    parser.add_argument("url")
    parser.add_argument("--record", type=Path, required=True)
    asyncio.run(main(parser.parse_args()))
