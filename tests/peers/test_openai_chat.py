"""OpenAI's Python client asks the running server for chat completions as it would ask OpenAI."""

import base64
import io
import json
import subprocess
import sys
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from peer_server import Server, serving

from duplex_engine.testing.marks import MarkReader

PROGRAM = Path(__file__).parent / "openai_chat.py"
CHATS_S = 90
USAGE = ("prompt_tokens", "completion_tokens", "total_tokens")

Record = dict[str, Any]


def asked(name: str, server: Server, folder: Path) -> Record:
    """The record of one program, after which nobody is left on the line."""
    file = folder / "record.json"
    command = [sys.executable, str(PROGRAM), name, server.url, "--record", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CHATS_S)
    assert done.returncode == 0, done.stderr
    server.wait_empty()
    record: Record = json.loads(file.read_text())
    return record


def scripted_server(folder: Path, script: str) -> Any:
    options = ("mode=turn", "lead_s=0.4", f"script={script}")
    return serving(folder, "--plugin", "scripted", *(f"--option={option}" for option in options))


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Record]:
    """Asked of a model that always says the same."""
    folder = tmp_path_factory.mktemp("chat")
    with scripted_server(folder, 'speak "A short answer." for 1.2') as server:
        yield asked("scripted", server, folder)


@pytest.fixture(scope="module")
def calling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Record]:
    """Asked of a model that always calls a function."""
    folder = tmp_path_factory.mktemp("calls")
    with scripted_server(folder, 'speak "{history}" for 0.2; call look {"at": "me"}') as server:
        yield asked("calling", server, folder)


@pytest.fixture(scope="module")
def embedded(cascade: Server, tmp_path_factory: pytest.TempPathFactory) -> Record:
    """Asked of the embedded voice."""
    return asked("cascade", cascade, tmp_path_factory.mktemp("embedded-chat"))


EMBEDDED = pytest.param("embedded", marks=[pytest.mark.cascade, pytest.mark.timeout(240)])


@pytest.fixture(params=["scripted", "calling", EMBEDDED])
def record(request: pytest.FixtureRequest) -> Record:
    """All of them, one after the other."""
    found: Record = request.getfixturevalue(request.param)
    return found


def test_the_client_s_own_types_accept_every_answer(record: Record) -> None:
    checked = 0
    for answer in record.values():
        if isinstance(answer, dict) and answer.get("object") == "chat.completion":
            ChatCompletion.model_validate(answer, strict=True)
            checked += 1
        for chunk in answer if isinstance(answer, list) else ():
            if isinstance(chunk, dict) and "object" in chunk:
                ChatCompletionChunk.model_validate(chunk, strict=True)
                checked += 1
    assert checked > 5


def test_a_whole_answer(scripted: Record) -> None:
    choice = scripted["whole"]["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("A short answer.", "stop")
    assert scripted["whole"]["model"] == "gpt-4o-audio-preview"
    assert scripted["helped"]["choices"][0]["message"]["content"] == "A short answer."
    assert scripted["models"] == ["scripted"]


def test_a_stream(scripted: Record) -> None:
    *chunks, last = scripted["stream"]
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == "A short answer."
    assert len(chunks) > 3
    assert last["choices"] == []
    assert last["usage"].keys() >= set(USAGE)
    assert scripted["left"]["choices"][0]["delta"]["role"] == "assistant"


def test_spoken_answers(scripted: Record) -> None:
    message = scripted["spoken"]["choices"][0]["message"]
    assert message["audio"]["transcript"] == "A short answer."
    pcm = unwrapped(message["audio"]["data"])
    assert len(pcm) == 2 * 24_000 * 1.2
    MarkReader().hear("whole", pcm)
    deltas = [choice["delta"] for chunk in scripted["spoken_stream"] for choice in chunk["choices"]]
    audio = [delta["audio"] for delta in deltas if delta.get("audio")]
    assert "".join(part.get("transcript", "") for part in audio) == "A short answer."
    streamed = b"".join(base64.b64decode(part["data"]) for part in audio if "data" in part)
    assert len(streamed) == len(pcm)
    MarkReader().hear("stream", streamed)


def unwrapped(data: str) -> bytes:
    """The samples of a WAV file."""
    with wave.open(io.BytesIO(base64.b64decode(data))) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
        return file.readframes(file.getnframes())


def test_the_client_raises_what_was_refused(scripted: Record) -> None:
    assert scripted["refusals"] == [
        {"kind": "BadRequestError", "status": 400, "code": code, "param": param}
        for code, param in (
            ("unsupported_parameter", "n"),
            ("invalid_value", "temperature"),
            ("invalid_value", "messages"),
        )
    ]


def test_calls_of_functions(calling: Record) -> None:
    choice = calling["whole"]["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert (call["type"], call["function"]) == ("function", {"name": "look", "arguments": '{"at": "me"}'})
    deltas = [delta["delta"] for chunk in calling["stream"] for delta in chunk["choices"]]
    (streamed,) = [part for delta in deltas for part in delta.get("tool_calls") or ()]
    assert (streamed["index"], streamed["function"]) == (0, call["function"])
    told = calling["told"]["choices"][0]["message"]["content"]
    assert "What is the capital of France?" in told
    assert told.endswith("tool: a cat")


@pytest.mark.cascade
@pytest.mark.timeout(240)
def test_the_embedded_voice_answers(embedded: Record) -> None:
    whole = embedded["whole"]
    assert "Paris" in whole["choices"][0]["message"]["content"]
    assert all(whole["usage"][key] > 0 for key in USAGE)
    *chunks, last = embedded["stream"]
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks).strip()
    assert last["usage"]["completion_tokens"] > 0
    audio = embedded["spoken"]["choices"][0]["message"]["audio"]
    samples = np.frombuffer(unwrapped(audio["data"]), "<i2") / 32768
    assert audio["transcript"].strip()
    assert np.sqrt(np.mean(samples**2)) > 0.01
    assert embedded["heard"]["choices"][0]["message"]["content"].strip()
    assert embedded["short"]["choices"][0]["finish_reason"] == "length"
