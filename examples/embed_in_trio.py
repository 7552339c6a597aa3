"""Embed the engine in a Trio program: no server, no sockets, typed commands in and typed events out."""

import sys
import wave

import trio

from duplex_engine import EngineConfig, open_engine
from duplex_engine.protocol.events import OutputAudioDelta, ResponseDone, TranscriptDelta, TranscriptionCompleted


async def ask(question: str, plugin: str) -> bytes:
    """Play a 16 kHz mono WAV file to the model; returns the spoken answer as PCM16."""
    answer = b""
    with wave.open(question) as recording:
        pcm = recording.readframes(recording.getnframes())
    push_to_talk = {"turn_detection": None, "extra_body": {"auto_response": False}}
    async with (
        open_engine(EngineConfig(plugin=plugin)) as engine,
        engine.open_session(push_to_talk) as session,
    ):
        session.append(pcm)
        session.commit()
        with session.events() as events:
            async for event in events:
                match event:
                    case TranscriptionCompleted(transcript=transcript):
                        print("heard:", transcript)
                    case TranscriptDelta(delta=delta):
                        print(delta, end="", flush=True)
                    case OutputAudioDelta(audio=audio):
                        answer += audio
                    case ResponseDone(response=response):
                        print(f"\n{response['status']}, {len(answer)} bytes of sound")
                        return answer
    return answer


if __name__ == "__main__":
    trio.run(ask, sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "cascade")
