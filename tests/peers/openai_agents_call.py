"""Calls of OpenAI's agents SDK (`RealtimeRunner`), as it is installed: a program of its own environment.

python tests/peers/openai_agents_call.py {spoken,tool} http://127.0.0.1:8099 --sounds FOLDER --record FILE
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agents import function_tool
from agents.realtime import RealtimeAgent, RealtimeModelConfig, RealtimeRunner, RealtimeSession, RealtimeSessionEvent
from foreign_kit import SLOWLY, Microphone, Notes, main


async def open_session(agent: RealtimeAgent, url: str, speed: float = 1.0) -> RealtimeSession:
    """A session with the server at `url`, ws://127.0.0.1:8099 for instance; enter it."""
    config: RealtimeModelConfig = {
        "url": f"{url}/v1/realtime?model=cascade",
        "api_key": "any",
        "initial_model_settings": {"audio": {"output": {"speed": speed}}},
    }
    return await RealtimeRunner(agent).run(model_config=config)


@asynccontextmanager
async def conversation(notes: Notes, agent: RealtimeAgent) -> AsyncIterator[tuple[RealtimeSession, Microphone]]:
    """A session with a microphone that is on, for the block."""
    async with await open_session(agent, notes.url.replace("http", "ws", 1), SLOWLY) as session:
        listening = asyncio.create_task(_listen(session, notes))
        microphone = Microphone(session.send_audio)
        speaking = asyncio.create_task(microphone.run())
        await notes.until("event", type="session.updated")
        yield session, microphone
        speaking.cancel()
        await session.close()
        await listening


async def _listen(session: RealtimeSession, notes: Notes) -> None:
    async for event in session:
        _note(event, notes)


def _note(event: RealtimeSessionEvent, notes: Notes) -> None:
    match event.type:
        case "raw_model_event":
            if event.data.type == "raw_server_event":
                notes.hear(event.data.data)
            elif event.data.type == "exception":
                notes.note("exception", what=repr(event.data.exception))
            elif event.data.type == "usage":
                notes.note("usage", tokens=event.data.usage.total_tokens)
        case "audio":
            notes.note("audio", item_id=event.item_id, bytes=len(event.audio.data))
        case "audio_interrupted":
            notes.note("audio_interrupted", item_id=event.item_id)
        case "history_updated":
            notes.note("history", items=[item.model_dump() for item in event.history])
        case "tool_end":
            notes.note("tool_end", name=event.tool.name, output=event.output)
        case "error":
            notes.note("error", what=repr(event.error))


async def spoken(notes: Notes) -> None:
    """An answer talked over, the next one heard to its end, and one to a written question."""
    agent = RealtimeAgent(name="Dee", instructions="You are a helpful assistant.")
    async with conversation(notes, agent) as (session, microphone):
        notes.does("ask")
        microphone.say(notes.recording("how_do_you_say_grapefruit"))
        await notes.until_played(1.0)
        notes.does("talk over")
        microphone.say(notes.recording("what_time_is_it"))
        await notes.until("audio_interrupted")
        await notes.until("event", type="response.done")
        await notes.until("event", type="response.done")
        notes.does("write")
        await session.send_message("What time is it now?")
        await notes.until("event", type="response.done")


async def tool(notes: Notes) -> None:
    """A spoken question for which a function is called, and the answer that its output makes possible."""

    @function_tool
    def weather(city: str) -> str:
        """What the weather is like in a city."""
        notes.note("executed", city=city)
        return f"It is raining in {city}."

    agent = RealtimeAgent(name="Dee", instructions="You are a helpful assistant.", tools=[weather])
    async with conversation(notes, agent) as (_, microphone):
        microphone.say(notes.recording("what_time_is_it"))
        await notes.until("tool_end")
        await notes.until_played(0.5)
        await notes.until("event", type="response.done")


if __name__ == "__main__":
    main({"spoken": spoken, "tool": tool})
