"""Let the model call a function of this program: `tools.py URL "What is the weather in Oslo?"`."""

import json
import sys

import trio

from duplex_engine.client import DuplexClient

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def get_weather(city: str) -> str:
    """What the function says; a real one would look it up."""
    return json.dumps({"city": city, "temperature": 4, "condition": "light rain"})


async def ask(url: str, question: str, tool_choice: str = "auto") -> None:
    """Ask in writing, answer the model's calls, and print what it says then."""
    async with DuplexClient(url, model="cascade") as client:
        await client.send({"type": "session.update", "session": {"tools": [WEATHER], "tool_choice": tool_choice}})
        message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": question}]}
        await client.send({"type": "conversation.item.create", "item": message})
        await client.send({"type": "response.create"})
        async for event in client:
            if event.type == "response.function_call_arguments.done":
                call = event.raw
                print(f"{call['name']}({call['arguments']})")
                result = get_weather(**json.loads(str(call["arguments"])))
                output = {"type": "function_call_output", "call_id": call["call_id"], "output": result}
                await client.send({"type": "conversation.item.create", "item": output})
                await client.send({"type": "response.create"})
            elif event.type == "response.output_audio_transcript.done":
                print(event.raw["transcript"])
                break


if __name__ == "__main__":
    trio.run(ask, *sys.argv[1:])
