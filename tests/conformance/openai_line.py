"""The call of line 25, made by OpenAI's Python client as it is installed: a program of its own.

python tests/conformance/openai_line.py ga http://127.0.0.1:8099 --record FILE, with tests/peers on PYTHONPATH.
"""

import asyncio

import openai_call
from openai_call import SERVER_VAD, Call, conversation, session

TOOL = {
    "type": "function",
    "name": "lookup",
    "description": "What the time is in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


async def ga(url: str, call: Call) -> None:
    """A spoken turn talked over by a second one, a tool called and answered, another spoken turn, and a written one."""
    async with conversation(url, call) as talk:
        await talk.configure({**session(SERVER_VAD), "tools": [TOOL]})
        first = await talk.ask("what_time_is_it.wav")
        await call.plays(first["response_id"], 1.0, openai_call.RATE_HZ)
        second = await talk.talk_over(first, "how_do_you_say_grapefruit.wav")
        await call.hears("response.done", response_id=second["response_id"])

        await talk.ask("what_time_is_it.wav")
        asked = await call.hears("response.function_call_arguments.done")
        await call.hears("response.done", response_id=asked["response_id"])
        output = {"type": "function_call_output", "call_id": str(asked["call_id"]), "output": '{"time": "noon"}'}
        await talk.line.conversation.item.create(item=output)
        await talk.line.response.create()
        told = await call.hears("response.created")
        await call.hears("response.done", response_id=told["response_id"])

        again = await talk.ask("what_time_is_it.wav")
        await call.hears("response.done", response_id=again["response_id"])

        content = [{"type": "input_text", "text": "In writing, please."}]
        await talk.line.conversation.item.create(item={"type": "message", "role": "user", "content": content})
        await talk.line.response.create(response={"output_modalities": ["text"]})
        written = await call.hears("response.created")
        await call.hears("response.done", response_id=written["response_id"])


if __name__ == "__main__":
    openai_call.CALLS["ga"] = ga
    asyncio.run(openai_call.main(openai_call.arguments()))
