"""Clients that live in environments of their own: where those are, what is asked there, and by what model it is answered."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from environments import python_of
from peer_kit import recording
from peer_record import Recorded, run_call
from peer_server import Server, serving

RATE_HZ: Final = 24_000
QUESTIONS: Final = ("what_time_is_it", "how_do_you_say_grapefruit")
SPOKEN: Final = """
listen 0.2; hear "Tell me a story."; speak "An answer that is long enough to be talked over by anybody." for 6
forever { listen 0.2; hear "What time is it?"; speak "A short answer." for 1.2 }
"""
"""A long answer, which is to be talked over, and short ones after it."""
TOOL: Final = """
listen 0.2; hear "What is the weather like?"; call weather {"city": "Oslo"}; listen 0.1
forever { listen 0.1; speak "It is raining in Oslo." for 1 }
"""
"""A function is called, and its output answered."""
ANSWER: Final = "It is raining in Oslo."
"""What the function returns, and what is said then."""
OURS: Final = frozenset({"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"})
"""What those environments do not inherit: our modules, and the wish to compile theirs anew each time."""


def scripted(script: str) -> tuple[str, ...]:
    """Flags of a server whose model answers committed turns by this script."""
    return (
        "--plugin",
        "scripted",
        *(f"--option={option}" for option in ("mode=turn", "lead_s=0.4", f"script={script}")),
    )


def needs(environment: str) -> pytest.MarkDecorator:
    """Only with this environment."""
    python = python_of(Path(sys.prefix), environment)
    return pytest.mark.skipif(
        not python.exists(), reason=f"{python} is not there; `make test` installs it (tests/peers/environments.py)"
    )


def run_foreign(environment: str, call: str, server: Server, folder: Path, script: str = "") -> Recorded:
    """One call out of an environment, after which nobody is left on the line. `script`: other than the usual one."""
    sounds = folder / "sounds"
    sounds.mkdir()
    for question in QUESTIONS:
        (sounds / f"{question}.pcm").write_bytes(recording(f"{question}.wav", RATE_HZ))
    script = script or f"{environment.replace('-', '_')}_call.py"
    python = python_of(Path(sys.prefix), environment)
    environment = {name: value for name, value in os.environ.items() if name not in OURS}
    record = run_call(
        script, call, server.url, "--sounds", str(sounds), folder=folder, environment=environment, python=python
    )
    server.wait_empty()
    return record


def both(environment: str) -> Callable[..., Recorded]:
    """A fixture, for the module: the spoken call with the scripted model, and with the embedded voice."""
    embedded = pytest.param(None, marks=[pytest.mark.cascade, pytest.mark.timeout(240)], id="embedded")

    @pytest.fixture(scope="module", params=[pytest.param(SPOKEN, id="scripted"), embedded])
    def record(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
        folder = tmp_path_factory.mktemp(environment)
        if request.param is None:
            return run_foreign(environment, "spoken", request.getfixturevalue("cascade"), folder)
        with serving(folder, *scripted(request.param)) as server:
            return run_foreign(environment, "spoken", server, folder)

    return record


def one(environment: str, call: str, played: str, script: str = "") -> Callable[..., Recorded]:
    """A fixture, for the module: one call, in which the scripted model plays `played`."""

    @pytest.fixture(scope="module")
    def record(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
        folder = tmp_path_factory.mktemp(environment)
        with serving(folder, *scripted(played)) as server:
            return run_foreign(environment, call, server, folder, script)

    return record


def called_once(record: Recorded) -> None:
    """Checks that the function was executed once, and the client satisfied. Raises AssertionError."""
    assert [note["city"] for note in record.noted("executed")] == ["Oslo"]
    assert record.noted("error") == []


def called_once_on_the_wire(record: Recorded) -> None:
    """Checks the events of that call too. Raises AssertionError."""
    called_once(record)
    record.checks_out()
    called, answered = record.responses()
    call = record.one("response.function_call_arguments.done")
    assert (call["response_id"], call["name"], call["arguments"]) == (called, "weather", '{"city": "Oslo"}')
    assert record.one("conversation.item.added", call_id=call["call_id"], output=ANSWER).at > call.at
    assert record.transcript(answered) == ANSWER
    assert [done["status"] for done in record.all("response.done")] == ["completed"] * 2
