"""Ask a running server a recorded question and print the answer as it is spoken."""

import sys
import wave

import trio

from duplex_engine.client import DuplexClient


async def ask(url: str, question: str) -> None:
    """Stream a 16 kHz mono WAV file at speaking pace, then listen to one answer."""
    with wave.open(question) as recording:
        pcm = recording.readframes(recording.getnframes())
    async with DuplexClient(url, model="cascade") as client:
        await client.stream_pcm(pcm + bytes(32_000))  # a second of silence ends the turn
        async for response in client.responses():
            if response.decision == "listen":  # what was heard so far asked for no answer
                continue
            spoken = b"".join([chunk async for chunk in response.audio()])
            print(response.transcript, f"({len(spoken)} bytes of sound)")
            break


if __name__ == "__main__":
    trio.run(ask, sys.argv[1], sys.argv[2])
