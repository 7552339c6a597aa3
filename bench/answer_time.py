"""From the end of a person's speech to the first sound of the answer, with the embedded voice.

    python bench/answer_time.py --llm light --turns 20

Starts its own server, streams the recorded questions of `tests/data` at speaking pace over a real socket, and measures at
the client. Prints median and spread, and where the time goes, stage by stage, from the server's own event times: end of
turn (`speech_stopped`), recognition (`transcription.completed`), first sound.
"""

import argparse
import base64
import json
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
import wave
from pathlib import Path

import attrs
import numpy as np
import trio
from wire import LeanSocket

DATA = Path(__file__).parent.parent / "tests" / "data"
QUESTIONS = ("what_time_is_it.wav", "how_do_you_say_grapefruit.wav")
RATE_HZ = 16_000
APPEND_S = 0.08
TURNS_A_CALL = 4
OPEN = json.dumps(
    {"type": "session.update", "session": {"turn_detection": None, "extra_body": {"auto_response": True}}}
).encode()


@attrs.define
class Turn:
    """When things happened, in seconds after the end of speech; None: never."""

    stopped: float | None = None
    heard: float | None = None
    created: float | None = None
    first_audio: float | None = None
    transcript: str = ""
    answer: str = ""


def recording(name: str) -> tuple[np.ndarray, float]:
    """int16 samples, and where the speech in them ends, in seconds: the last 10 ms above -30 dB of the loudest."""
    with wave.open(str(DATA / name)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    frames = samples[: len(samples) // 160 * 160].reshape(-1, 160).astype(float)
    level = np.sqrt((frames**2).mean(axis=1))
    return samples, (int(np.flatnonzero(level > level.max() * 10 ** (-30 / 20))[-1]) + 1) * 0.01


class Call:
    """One session that asks several questions, always streaming: speech, then the noise of a quiet room."""

    def __init__(self, socket: LeanSocket) -> None:
        self._socket = socket
        self._noise = np.random.default_rng(1)
        self.turn = Turn()
        self._speech_ended = float("inf")
        self._done = trio.Event()

    async def ask(self, name: str) -> Turn:
        """Ask, wait for the whole answer."""
        samples, speech_end = recording(name)
        self.turn, self._done = Turn(), trio.Event()
        began = trio.current_time()
        self._speech_ended = began + speech_end
        position = 0
        step = int(RATE_HZ * APPEND_S)
        while not self._done.is_set() and position < len(samples) + 60 * RATE_HZ:
            await trio.sleep_until(began + (position + step) / RATE_HZ)
            chunk = samples[position : position + step]
            quiet = self._noise.normal(0, 10, step - len(chunk)).astype("<i2")
            audio = base64.b64encode(chunk.tobytes() + quiet.tobytes()).decode()
            await self._socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}).encode())
            position += step
        return self.turn

    async def listen(self) -> None:
        """Note when things arrive."""
        try:
            while True:
                for frame in await self._socket.receive():
                    self._note(json.loads(frame), trio.current_time() - self._speech_ended)
        except EOFError:
            self._done.set()

    def _note(self, event: dict[str, object], at: float) -> None:
        turn = self.turn
        match event["type"]:
            case "input_audio_buffer.speech_stopped":
                turn.stopped = at
            case "conversation.item.input_audio_transcription.completed":
                turn.heard, turn.transcript = at, str(event["transcript"])
            case "response.created":
                turn.created = at
            case "response.output_audio.delta" if turn.first_audio is None:
                turn.first_audio = at
            case "response.output_audio_transcript.delta":
                turn.answer += str(event["delta"])
            case "response.done":
                self._done.set()
            case "error":
                raise SystemExit(f"the server said {event['error']}")


async def measure(port: int, turns: int) -> list[Turn]:
    """All turns, a few per call."""
    measured: list[Turn] = []
    while len(measured) < turns:
        socket = await LeanSocket.connect("127.0.0.1", port, "/v1/realtime?duplex=1&autostart=0")
        await socket.send(OPEN)
        async with trio.open_nursery() as nursery:
            call = Call(socket)
            nursery.start_soon(call.listen)
            for number in range(min(TURNS_A_CALL, turns - len(measured))):
                turn = await call.ask(QUESTIONS[(len(measured)) % len(QUESTIONS)])
                measured.append(turn)
                first = "never" if turn.first_audio is None else f"{turn.first_audio:.2f} s"
                print(
                    f"{len(measured):3}/{turns}  first sound after {first}  {turn.transcript!r} -> {turn.answer!r}",
                    flush=True,
                )
                await trio.sleep(1.5 + 0.1 * number)
            nursery.cancel_scope.cancel()
        await socket.aclose()
    return measured


def start_server(port: int, llm: str) -> subprocess.Popen[bytes]:
    """The server in another process, ready."""
    server = subprocess.Popen(
        [sys.executable, "-m", "duplex_engine.server", "--llm", llm, "--port", str(port), "--log-level", "warning"]
    )
    for _ in range(600):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=1)
            return server
        except OSError:
            if server.poll() is not None:
                raise SystemExit(f"the server ended with status {server.returncode}") from None
            time.sleep(0.1)
    raise SystemExit("the server did not become ready within a minute")


def spread(name: str, values: list[float | None]) -> None:
    """One line of the report."""
    known = sorted(value for value in values if value is not None)
    if known:
        print(
            f"{name:28} median {statistics.median(known):.2f} s   min {known[0]:.2f}   max {known[-1]:.2f}   n {len(known)}"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llm", default="default", help="default, light, or a path to a GGUF file")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--port", type=int, default=8197)
    chosen = parser.parse_args()
    server = start_server(chosen.port, chosen.llm)
    try:
        turns = trio.run(measure, chosen.port, chosen.turns)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(20)
    print("\nafter the end of speech:")
    spread("end of turn seen", [turn.stopped for turn in turns])
    spread("question recognised", [turn.heard for turn in turns])
    spread("first sound of the answer", [turn.first_audio for turn in turns])


if __name__ == "__main__":
    main()
