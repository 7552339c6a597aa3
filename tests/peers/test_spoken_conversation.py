"""Whole spoken conversations with the embedded voice (light model), through a real server and our own client.

What is asked is a recording of a person; what is answered is heard back by the recogniser.
"""

import os
import re
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import numpy as np
import pytest
import trio
from cascade_kit import answers, heard, needs_packages, no_progress, recording, spoken_words, word_errors
from peer_server import Server

from duplex_engine.client import DuplexClient
from duplex_engine.client.events import AudioDelta, DuplexEvent
from duplex_engine.model_plugins.cascade.payloads import RecogniseAudio
from duplex_engine.model_plugins.cascade.recogniser import Recogniser

pytestmark = [*needs_packages, pytest.mark.timeout(180)]

WORST_WORD_ERRORS = 0.2
CHUNK = 1280
ANSWER_S = 60


@attrs.define
class Conversation:
    """One caller: a microphone that is always on, and everything that was said to it, in order."""

    client: DuplexClient
    events: list[DuplexEvent] = attrs.Factory(list)
    _to_say: bytes = b""
    _noise: np.random.Generator = attrs.Factory(lambda: np.random.default_rng(7))
    _news: trio.lowlevel.ParkingLot = attrs.Factory(trio.lowlevel.ParkingLot)

    async def stream(self) -> None:
        """The microphone: what is to be said, else the noise of a quiet room, at pace."""
        began, sent = trio.current_time(), 0
        while True:
            await trio.sleep_until(began + sent / 16_000)
            spoken, self._to_say = self._to_say[: 2 * CHUNK], self._to_say[2 * CHUNK :]
            quiet = self._noise.normal(0, 10, CHUNK - len(spoken) // 2).astype("<i2").tobytes()
            await self.client.append_audio(spoken + quiet)
            sent += CHUNK

    async def listen(self) -> None:
        """Note everything."""
        async for event in self.client.events():
            self.events.append(event)
            self._news.unpark_all()

    def say(self, name: str) -> None:
        """Say a recording, beginning now."""
        self._to_say += (recording(name) * 32767).astype("<i2").tobytes()

    async def ask_in_writing(self, text: str) -> None:
        """Ask without speaking."""
        content = [{"type": "input_text", "text": text}]
        item = {"type": "message", "role": "user", "content": content}
        await self.client.send({"type": "conversation.item.create", "item": item})
        await self.client.send({"type": "response.create"})

    async def hears(self, kind: str, count: int = 1) -> DuplexEvent:
        """Wait for the `count`-th event of this type, and for nothing longer than an answer takes."""
        with trio.fail_after(ANSWER_S):
            while len(found := [event for event in self.events if event.type == kind]) < count:
                await self._news.park()
        return found[count - 1]

    def sound(self, response_id: str | None) -> bytes:
        """All sound of one answer."""
        deltas = [event for event in self.events if isinstance(event, AudioDelta) and event.response_id == response_id]
        return b"".join(event.audio or b"" for event in deltas)

    def order(self, kind: str, response_id: str | None) -> list[int]:
        """Where events of this type and answer stand among all."""
        return [
            place for place, event in enumerate(self.events) if event.type == kind and event.response_id == response_id
        ]


@asynccontextmanager
async def conversation(server: Server):
    url = f"{server.websocket_url}/v1/realtime"
    async with DuplexClient(url, model="cascade") as client, trio.open_nursery() as nursery:
        caller = Conversation(client)
        nursery.start_soon(caller.listen)
        nursery.start_soon(caller.stream)
        yield caller
        nursery.cancel_scope.cancel()


def status(done: DuplexEvent) -> object:
    return done.raw["response"]["status"]


def transcript(done: DuplexEvent) -> str:
    (item,) = done.raw["response"]["output"]
    return item["content"][0]["transcript"]


def read_back(pcm: bytes) -> str:
    recogniser = Recogniser()
    recogniser.load(no_progress)
    ((words,),) = answers(recogniser, RecogniseAudio(heard(pcm)))
    return words


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_a_question_is_heard_exactly_and_the_answers_can_be_understood(cascade: Server):
    async with conversation(cascade) as caller:
        caller.say("what_time_is_it.wav")
        first = await caller.hears("response.done")
        question = await caller.hears("conversation.item.input_audio_transcription.completed")
        await caller.client.send({"type": "session.update", "session": {"max_response_output_tokens": 40}})
        await caller.ask_in_writing("Tell me about the sea.")
        second = await caller.hears("response.done", 2)
    assert question.raw["transcript"] == "What time is it?"
    said_words = errors = 0
    for done in (first, second):
        assert status(done) == "completed"
        sound, said = caller.sound(done.response_id), transcript(done)
        assert len(sound) > 22_050, "less than half a second of speech"
        # Over both answers together: a single misheard word weighs too much in an answer of six.
        said_words += len(spoken_words(said))
        errors += word_errors(said, read_back(sound))
    assert errors <= WORST_WORD_ERRORS * said_words


async def test_talking_over_an_answer_cuts_it_and_the_next_question_is_answered(cascade: Server):
    async with conversation(cascade) as caller:
        await caller.ask_in_writing("Tell me a long story about a dragon and a princess.")
        await caller.hears("response.output_audio.delta")
        caller.say("what_time_is_it.wav")
        first = await caller.hears("response.done")
        second = await caller.hears("response.done", 2)
        item_id = first.raw["response"]["output"][0]["id"]
        await caller.client.send({"type": "conversation.item.retrieve", "item_id": item_id})
        kept = await caller.hears("conversation.item.retrieved")
    assert (status(first), first.raw["response"]["status_details"]["reason"]) == ("cancelled", "turn_detected")
    (end,) = caller.order("response.done", first.response_id)
    assert max(caller.order("response.output_audio.delta", first.response_id)) < end
    assert status(second) == "completed"
    assert len(caller.sound(second.response_id)) > 22_050
    sent = "".join(
        event.raw["delta"]
        for event in caller.events
        if event.type == "response.output_audio_transcript.delta" and event.response_id == first.response_id
    )
    said = kept.raw["item"]["content"][0]["transcript"]
    assert sent.startswith(said)
    assert len(said) < len(sent), "what was never heard must not be remembered"


async def test_two_callers_hear_their_own_answers_only(cascade: Server):
    async with conversation(cascade) as one, conversation(cascade) as other:
        one.say("what_time_is_it.wav")
        other.say("how_do_you_say_grapefruit.wav")
        ends = [(caller, await caller.hears("response.done")) for caller in (one, other)]
        heard_words = [
            (await caller.hears("conversation.item.input_audio_transcription.completed")).raw["transcript"]
            for caller in (one, other)
        ]
    assert heard_words[0] == "What time is it?"
    assert "french" in heard_words[1].lower()
    for caller, done in ends:
        assert {event.response_id for event in caller.events if isinstance(event, AudioDelta)} == {done.response_id}
        assert len(caller.sound(done.response_id)) > 22_050


def test_the_client_of_the_readme_gets_an_answer(cascade: Server):
    root = Path(__file__).parents[2]
    question = root / "tests" / "data" / "what_time_is_it.wav"
    command = [sys.executable, root / "examples" / "ask_a_server.py", f"{cascade.websocket_url}/v1/realtime", question]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S, check=False)
    assert done.returncode == 0, done.stderr
    answered = re.fullmatch(r"(.+) \((\d+) bytes of sound\)\n", done.stdout)
    assert answered is not None, done.stdout
    assert int(answered[2]) > 22_050


async def test_when_the_model_is_killed_the_answer_fails_and_the_session_lives(cascade: Server):
    async with conversation(cascade) as caller:
        caller.say("how_do_you_say_grapefruit.wav")
        await caller.hears("response.created")
        for child in children(cascade.process.pid):
            os.kill(child, signal.SIGKILL)
        first = await caller.hears("response.done")
        assert status(first) == "failed"
        assert (await caller.hears("error")).raw["error"]["code"] == "engine_error"
        await trio.to_thread.run_sync(cascade.wait_ready)
        caller.say("what_time_is_it.wav")
        second = await caller.hears("response.done", 2)
        assert status(second) == "completed"
        assert len(caller.sound(second.response_id)) > 22_050
