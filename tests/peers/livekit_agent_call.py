"""Calls of LiveKit's `AgentSession`, as it is installed, with a microphone and a loudspeaker instead of a room.

The server ends the user's turns (`realtime_llm`), and may be interrupted from the first word on (by default LiveKit
waits three seconds, until an echo canceller has learnt its room).

python tests/peers/livekit_agent_call.py {spoken,tool} http://127.0.0.1:8099 --sounds FOLDER --record FILE
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from foreign_kit import RATE_HZ, SLOWLY, Microphone, Notes, main
from livekit import rtc
from livekit.agents import Agent, AgentSession, voice
from livekit.agents.llm import function_tool
from livekit.agents.voice import io
from livekit_call import realtime_model


class Ear(io.AudioInput):
    """What the agent hears."""

    def __init__(self) -> None:
        super().__init__(label="microphone")
        self._frames: asyncio.Queue[rtc.AudioFrame] = asyncio.Queue()

    async def hear(self, pcm: bytes) -> None:
        """Sound of the user."""
        self._frames.put_nowait(rtc.AudioFrame(pcm, RATE_HZ, 1, len(pcm) // 2))

    async def __anext__(self) -> rtc.AudioFrame:
        return await self._frames.get()


class Loudspeaker(io.AudioOutput):
    """Plays what the agent says, at the pace of speaking, and tells how far it came."""

    def __init__(self, notes: Notes) -> None:
        super().__init__(label="loudspeaker", capabilities=io.AudioOutputCapabilities(pause=False), sample_rate=RATE_HZ)
        self._notes = notes
        self._seconds = 0.0
        self._began_at = 0.0
        self._end: asyncio.TimerHandle | None = None

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        """More to play."""
        await super().capture_frame(frame)
        if not self._seconds:
            self._began_at = time.monotonic()
            self.on_playback_started(created_at=time.time())
        self._seconds += frame.duration
        self._notes.note("audio", bytes=len(frame.data.cast("B")))

    def flush(self) -> None:
        """No more will come."""
        super().flush()
        if self._seconds:
            left = self._began_at + self._seconds - time.monotonic()
            self._end = asyncio.get_running_loop().call_later(max(left, 0), self._finish, self._seconds, False)

    def clear_buffer(self) -> None:
        """Be silent at once."""
        if self._seconds:
            self._finish(min(time.monotonic() - self._began_at, self._seconds), True)

    def _finish(self, position: float, interrupted: bool) -> None:
        if self._end is not None:
            self._end.cancel()
        self._end, self._seconds = None, 0.0
        self._notes.note("played", seconds=position, interrupted=interrupted)
        self.on_playback_finished(playback_position=position, interrupted=interrupted)


@asynccontextmanager
async def conversation(notes: Notes, agent: Agent) -> AsyncIterator[tuple[AgentSession, Microphone]]:
    """A session with a microphone that is on, for the block."""
    async with aiohttp.ClientSession() as http:
        session: AgentSession = AgentSession(
            llm=realtime_model(notes.url, http, SLOWLY),
            turn_handling={"turn_detection": "realtime_llm"},
            aec_warmup_duration=None,
        )
        ear = Ear()
        session.input.audio, session.output.audio = ear, Loudspeaker(notes)
        session.on("error", lambda event: notes.note("error", what=repr(event.error)))
        session.on("user_input_transcribed", lambda event: notes.note("transcript", text=event.transcript))
        session.on("conversation_item_added", lambda event: _note_item(event, notes))
        await session.start(agent, record=False)
        agent.realtime_llm_session.on("openai_server_event_received", notes.hear)
        microphone = Microphone(ear.hear)
        speaking = asyncio.create_task(microphone.run())
        yield session, microphone
        speaking.cancel()
        await session.aclose()


def _note_item(event: voice.ConversationItemAddedEvent, notes: Notes) -> None:
    item = event.item
    if item.type == "message":
        notes.note("item", role=item.role, text=item.text_content, interrupted=item.interrupted)


async def spoken(notes: Notes) -> None:
    """An answer talked over, the next one heard to its end, and one to a written question."""
    agent = Agent(instructions="You are a helpful assistant.")
    async with conversation(notes, agent) as (session, microphone):
        microphone.say(notes.recording("how_do_you_say_grapefruit"))
        await notes.until_played(1.0)
        microphone.say(notes.recording("what_time_is_it"))
        await notes.until("played", interrupted=True)
        await notes.until("played", interrupted=False)
        await session.generate_reply(user_input="What time is it now?")


async def tool(notes: Notes) -> None:
    """A spoken question for which a function is called, and the answer that its output makes possible."""

    @function_tool
    async def weather(city: str) -> str:
        """What the weather is like in a city."""
        notes.note("executed", city=city)
        return f"It is raining in {city}."

    agent = Agent(instructions="You are a helpful assistant.", tools=[weather])
    async with conversation(notes, agent) as (_, microphone):
        microphone.say(notes.recording("what_time_is_it"))
        await notes.until("item", role="assistant")


if __name__ == "__main__":
    main({"spoken": spoken, "tool": tool})
