"""Talk to a model that never stops listening: what it says while a recording plays, as long as the recording."""

import sys
import wave
from functools import partial

import trio

from duplex_engine.client import AudioFormat, DuplexClient
from duplex_engine.client.presets.personaplex import create_duplex_session_config

HEARD, SAID = AudioFormat("pcm16", 16_000), AudioFormat("pcm16", 24_000)


async def talk(url: str, recording: str, answer: str) -> None:
    """Stream a 16 kHz mono WAV file at speaking pace; print and write down what is said meanwhile."""
    with wave.open(recording) as file:
        pcm = file.readframes(file.getnframes())
    session = create_duplex_session_config(persona="You enjoy having a good conversation.", input_audio=HEARD)
    async with DuplexClient(url, config=session) as client, trio.open_nursery() as nursery:
        nursery.start_soon(partial(client.stream_pcm, pcm, chunk_ms=80))
        with wave.open(answer, "wb") as file, trio.move_on_after(HEARD.duration_ms(len(pcm)) / 1000):
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(SAID.sample_rate_hz)
            async for response in client.responses():
                printed = 0
                async for chunk in response.audio():
                    file.writeframes(chunk)
                    print(response.transcript[printed:], end="", flush=True)
                    printed = len(response.transcript)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(talk, *sys.argv[1:])
