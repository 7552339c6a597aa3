"""Calls of pipecat's `OpenAIRealtimeLLMService`, as it is installed, in a pipeline without a transport.

python tests/peers/pipecat_call.py {spoken,tool,push_to_talk} http://127.0.0.1:8099 --sounds FOLDER --record FILE
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from foreign_kit import RATE_HZ, SLOWLY, Microphone, Notes, main
from pipecat.adapters.schemas.direct_function import DirectFunction
from pipecat.frames import frames
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.llm_service import FunctionCallParams
from pipecat.services.openai.realtime import events
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.workers.runner import WorkerRunner

NOTED = {
    frames.TTSStartedFrame: "voice_started",
    frames.TTSStoppedFrame: "voice_stopped",
    frames.UserStartedSpeakingFrame: "user_started",
    frames.UserStoppedSpeakingFrame: "user_stopped",
    frames.InterruptionFrame: "interruption",
    frames.LLMFullResponseEndFrame: "response_end",
}


class Watcher(FrameProcessor):
    """Notes what goes past a place of the pipeline."""

    def __init__(self, notes: Notes) -> None:
        super().__init__()
        self._notes = notes

    async def process_frame(self, frame: frames.Frame, direction: FrameDirection) -> None:
        """Note the frame, and pass it on."""
        await super().process_frame(frame, direction)
        match frame:
            case frames.TTSAudioRawFrame():
                self._notes.note("audio", bytes=len(frame.audio))
            case frames.TTSTextFrame():
                self._notes.note("said", text=frame.text)
            case frames.TranscriptionFrame():
                self._notes.note("transcript", text=frame.text)
            case frames.FunctionCallResultFrame():
                self._notes.note("tool_end", name=frame.function_name, output=frame.result)
            case frames.MetricsFrame():
                self._notes.note("metrics", of=[type(data).__name__ for data in frame.data])
            case _ if type(frame) in NOTED:
                self._notes.note(NOTED[type(frame)])
        await self.push_frame(frame, direction)


class Loudspeaker(Watcher):
    """Says when the assistant is heard, as a transport would."""

    async def process_frame(self, frame: frames.Frame, direction: FrameDirection) -> None:
        """Note the frame, pass it on, and tell everybody of the voice."""
        await super().process_frame(frame, direction)
        match frame:
            case frames.TTSStartedFrame():
                await self.broadcast_frame(frames.BotStartedSpeakingFrame)
            case frames.TTSStoppedFrame():
                await self.broadcast_frame(frames.BotStoppedSpeakingFrame)


def realtime_service(url: str, speed: float = 1.0, push_to_talk: bool = False) -> OpenAIRealtimeLLMService:
    """The service behind the server at `url`, ws://127.0.0.1:8099 for instance, for a pipeline."""
    audio = events.AudioConfiguration(
        input=events.AudioInput(
            transcription=events.InputAudioTranscription(), turn_detection=False if push_to_talk else None
        ),
        output=events.AudioOutput(speed=speed),
    )
    settings = OpenAIRealtimeLLMService.Settings(
        model="cascade",
        system_instruction="You are a helpful assistant.",
        session_properties=events.SessionProperties(audio=audio),
    )
    return OpenAIRealtimeLLMService(base_url=f"{url}/v1/realtime", api_key="any", settings=settings)


@asynccontextmanager
async def conversation(
    notes: Notes, tools: Sequence[DirectFunction] = (), push_to_talk: bool = False
) -> AsyncIterator[tuple[PipelineWorker, OpenAIRealtimeLLMService, Microphone]]:
    """A pipeline with a microphone that is on, for the block."""
    llm = realtime_service(notes.url.replace("http", "ws", 1), SLOWLY, push_to_talk)
    context = LLMContext([{"role": "developer", "content": "Greet the user."}], tools=list(tools))
    aggregators = LLMContextAggregatorPair(context)
    pipeline = Pipeline([aggregators.user(), Watcher(notes), llm, Loudspeaker(notes), aggregators.assistant()])
    worker = PipelineWorker(pipeline, params=PipelineParams(enable_metrics=True, enable_usage_metrics=True))

    @llm.event_handler("on_conversation_item_updated")
    async def on_item(_: object, item_id: str, item: events.ConversationItem | None) -> None:
        if item is not None:
            notes.note("item", id=item_id, **item.model_dump(include={"role", "status", "type"}))

    @worker.event_handler("on_pipeline_error")
    async def on_error(_: object, frame: frames.ErrorFrame) -> None:
        notes.note("error", what=frame.error)

    async def send(pcm: bytes) -> None:
        await worker.queue_frame(frames.InputAudioRawFrame(pcm, RATE_HZ, 1))

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    microphone = Microphone(send)
    speaking = None if push_to_talk else asyncio.create_task(microphone.run())
    try:
        yield worker, llm, microphone
        if speaking is not None:
            speaking.cancel()
        await worker.queue_frame(frames.EndFrame())
        await running
        notes.note("context", messages=context.get_messages())
    finally:
        await runner.cancel()


async def spoken(notes: Notes) -> None:
    """The assistant begins and is talked over; the spoken question is answered, and a written one."""
    async with conversation(notes) as (worker, llm, microphone):
        notes.does("begin")
        await worker.queue_frame(frames.LLMRunFrame())
        await notes.until_played(1.0)
        notes.does("talk over")
        microphone.say(notes.recording("what_time_is_it"))
        await notes.until("transcript")
        await notes.until("voice_started")
        await notes.until("voice_stopped")
        notes.does("write")
        written = [{"role": "user", "content": "What time is it now?"}]
        await llm.queue_frame(frames.LLMMessagesAppendFrame(written, run_llm=True))
        await notes.until("voice_started")
        await notes.until("voice_stopped")


async def tool(notes: Notes) -> None:
    """A function is called before the assistant begins, and its output is what it begins with."""

    async def weather(params: FunctionCallParams, city: str) -> None:
        """What the weather is like in a city.

        Args:
            city: Its name.
        """
        notes.note("executed", city=city)
        await params.result_callback(f"It is raining in {city}.")

    async with conversation(notes, [weather]) as (worker, _, _):
        await worker.queue_frame(frames.LLMRunFrame())
        await notes.until("tool_end")
        await notes.until_played(0.5)
        await notes.until("voice_stopped")


async def push_to_talk(notes: Notes) -> None:
    """Turns that the application begins and ends: one is answered, and the answer interrupted, twice and too often."""
    async with conversation(notes, push_to_talk=True) as (worker, llm, _):
        question = notes.recording("what_time_is_it")
        for _ in range(2):
            await worker.queue_frames(
                [
                    frames.InterruptionFrame(),
                    frames.UserStartedSpeakingFrame(),
                    frames.InputAudioRawFrame(question, RATE_HZ, 1),
                    frames.UserStoppedSpeakingFrame(),
                ]
            )
            await notes.until_played(0.5)
        await worker.queue_frame(frames.InterruptionFrame())
        names = (notes.last("item")["id"], "nobody")
        there, lost = await asyncio.gather(*map(llm.retrieve_conversation_item, names), return_exceptions=True)
        notes.note("retrieved", id=there.id, lost=str(lost))
        await notes.until("response_end")


if __name__ == "__main__":
    main({"spoken": spoken, "tool": tool, "push_to_talk": push_to_talk})
