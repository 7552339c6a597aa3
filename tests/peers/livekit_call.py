"""Calls of LiveKit's OpenAI plugin (`RealtimeModel`), as it is installed and without a room.

What LiveKit's agent does with a session is done here: it plays what comes, and when the user begins to speak it cancels
the answer and says how much of it was played. `livekit_agent_call.py` has the agent itself.

python tests/peers/livekit_call.py {spoken,awkward} http://127.0.0.1:8099 --sounds FOLDER --record FILE
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from foreign_kit import RATE_HZ, SLOWLY, Microphone, Notes, main
from livekit import rtc
from livekit.agents import llm
from livekit.plugins.openai.realtime import RealtimeModel, RealtimeSession

SOUND = ["text", "audio"]


class Agent:
    """What listens to one session."""

    def __init__(self, session: RealtimeSession, notes: Notes) -> None:
        self.session = session
        self._notes = notes
        self._playing: set[asyncio.Task[None]] = set()
        session.on("openai_server_event_received", notes.hear)
        session.on("generation_created", self._play)
        session.on("input_speech_started", lambda _: notes.note("speech_started"))
        session.on("input_audio_transcription_completed", self._note_transcript)
        session.on("metrics_collected", lambda metrics: notes.note("metrics", of=metrics.type))
        session.on("error", lambda error: notes.note("error", what=repr(error.error)))

    async def hear_sound(self, pcm: bytes) -> None:
        """The user's microphone."""
        self.session.push_audio(rtc.AudioFrame(pcm, RATE_HZ, 1, len(pcm) // 2))

    async def write(self, text: str) -> llm.GenerationCreatedEvent:
        """The user writes; returns the answer, once it has begun."""
        context = self.session.chat_ctx
        context.add_message(role="user", content=text)
        await self.session.update_chat_ctx(context)
        return await self.session.generate_reply()

    def _note_transcript(self, transcript: llm.InputTranscriptionCompleted) -> None:
        self._notes.note("transcript", text=transcript.transcript, final=transcript.is_final)

    def _play(self, generation: llm.GenerationCreatedEvent) -> None:
        task = asyncio.create_task(self._play_all(generation))
        self._playing.add(task)
        task.add_done_callback(self._playing.discard)

    async def _play_all(self, generation: llm.GenerationCreatedEvent) -> None:
        self._notes.note("generation", asked_for=generation.user_initiated)
        async for message in generation.message_stream:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._play_sound(message))
                text = "".join([delta async for delta in message.text_stream])
            self._notes.note("said", item_id=message.message_id, text=text, modalities=await message.modalities)

    async def _play_sound(self, message: llm.MessageGeneration) -> None:
        async for frame in message.audio_stream:
            self._notes.note("audio", item_id=message.message_id, bytes=len(frame.data.cast("B")))


def realtime_model(url: str, http: aiohttp.ClientSession, speed: float = 1.0) -> RealtimeModel:
    """The model behind the server at `url`, http://127.0.0.1:8099 for instance, for an `AgentSession`."""
    return RealtimeModel(model="cascade", base_url=f"{url}/v1", api_key="any", speed=speed, http_session=http)


@asynccontextmanager
async def conversation(notes: Notes) -> AsyncIterator[tuple[Agent, Microphone]]:
    """A session with a microphone that is on, for the block."""
    async with aiohttp.ClientSession() as http:
        model = realtime_model(notes.url, http, SLOWLY)
        agent = Agent(model.session(), notes)
        microphone = Microphone(agent.hear_sound)
        await agent.session.update_instructions("You are a helpful assistant.")
        speaking = asyncio.create_task(microphone.run())
        await notes.until("event", type="session.updated")
        yield agent, microphone
        speaking.cancel()
        context = [(item.role, item.text_content) for item in agent.session.chat_ctx.items if item.type == "message"]
        notes.note("context", messages=context)
        await agent.session.aclose()
        await model.aclose()


async def spoken(notes: Notes) -> None:
    """An answer talked over, the next one heard to its end, and one to a written question."""
    async with conversation(notes) as (agent, microphone):
        notes.does("ask")
        microphone.say(notes.recording("how_do_you_say_grapefruit"))
        await notes.until_played(1.0)
        notes.does("talk over")
        microphone.say(notes.recording("what_time_is_it"))
        await notes.until("speech_started")
        agent.session.interrupt()
        agent.session.truncate(message_id=notes.last("audio")["item_id"], modalities=SOUND, audio_end_ms=900)
        await notes.until("said")
        await notes.until("said")
        notes.does("write")
        await agent.write("What time is it now?")
        await notes.until("said")


async def awkward(notes: Notes) -> None:
    """Moments at which agents ask and cancel: too early, too late, and before anything was played."""
    async with conversation(notes) as (agent, _):
        session = agent.session
        await agent.write("Tell me a story.")
        try:
            await session.generate_reply()
        except llm.RealtimeError as error:
            notes.note("refused", code=error.code)
        await notes.until("audio")
        session.interrupt()
        session.truncate(message_id=notes.last("audio")["item_id"], modalities=SOUND, audio_end_ms=0)
        await notes.until("event", type="conversation.item.deleted")
        session.generate_reply().cancel()
        await agent.write("What time is it now?")
        await notes.until("said", text="A short answer.")


if __name__ == "__main__":
    main({"spoken": spoken, "awkward": awkward})
