"""Conformance checklist, lines 1 and 25: clients that others wrote, as they are installed, and this project's own."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from peer_record import Recorded, run_call
from peer_server import serving
from wire_rig import house

from duplex_engine.client import DuplexClient

PEERS = Path(sys.prefix) / "peers"
TESTS = Path(__file__).parents[1]
SCRIPT = """
listen 0.2; speak "An answer that is long enough to be talked over by anybody." for 6
listen 0.2; speak "A short answer." for 0.6
listen 0.2; call lookup {"city": "Oslo"}
listen 0.2; speak "It is noon." for 0.6
listen 0.2; speak "Still noon." for 0.6
listen 0.2; speak "Noon, in writing." for 0.6
"""

# --- line 1 -------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not (PEERS / "vllm_omni").exists(), reason="`make test` unpacks the reference client")
def test_line_01_the_reference_client_opens_and_knows_forty_capabilities(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(PEERS)}
    with serving(tmp_path, "--plugin", "scripted", "--option", "script=listen") as server:
        record = run_call(
            "reference_call.py", "opening", server.websocket_url, folder=tmp_path, environment=environment
        )
        server.wait_empty()  # what is checked of an opening is checked by the caller
    assert record.one("session.closed")["reason"] == "client_close"


async def test_line_01_so_does_this_project_s_own_client() -> None:
    async with house() as home:
        async with DuplexClient(f"ws://127.0.0.1:{home.port}", model="any") as client:
            assert client.session_info["id"] == client.session_id
            check_opening(client.session_info)
        await home.until_seats(0)


def check_opening(session: Any) -> None:
    """The session object is one of this server's."""
    assert re.fullmatch("duplex-[0-9a-f]{32}", session["id"])
    assert len(session["capabilities"]) == 40


# --- line 25 ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ga(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """The call of OpenAI's Python client."""
    folder = tmp_path_factory.mktemp("ga")
    options = ("mode=turn", "lead_s=0.4", f"script={SCRIPT}")
    environment = {**os.environ, "PYTHONPATH": f"{TESTS / 'peers'}"}
    script = str(TESTS / "conformance" / "openai_line.py")
    with serving(folder, "--plugin", "scripted", *(f"--option={option}" for option in options)) as server:
        yield run_call(script, "ga", server.url, folder=folder, environment=environment)
        server.wait_empty()


def test_line_25_openai_python_is_answered_and_may_talk_over_the_answer(ga: Recorded) -> None:
    ga.checks_out()
    first, second, *_ = ga.responses()
    done = ga.one("response.done", id=first)
    assert (done["status"], done["reason"]) == ("cancelled", "turn_detected")
    ga.has_no_sound_after_done(first)
    assert ga.audio(first)
    assert ga.one("response.done", id=second)["status"] == "completed"
    assert ga.transcript(second) == "A short answer."


def test_line_25_openai_python_is_asked_to_call_a_tool_once(ga: Recorded) -> None:
    (call,) = ga.all("response.function_call_arguments.done")
    assert (call["name"], call["arguments"]) == ("lookup", '{"city": "Oslo"}')
    items = ga.all("response.output_item.added") + ga.all("response.output_item.done")
    calls = [heard.event["item"] for heard in items if heard.event["item"]["type"] == "function_call"]  # type: ignore[index]
    assert [call["status"] for call in calls] == ["in_progress", "completed"]  # type: ignore[index]
    told = next(name for name in ga.responses() if ga.transcript(name) == "It is noon.")
    assert ga.one("response.done", id=told)["status"] == "completed"


def test_line_25_openai_python_gets_another_turn_and_an_answer_in_writing(ga: Recorded) -> None:
    *_, spoken, written = ga.responses()
    assert ga.transcript(spoken) == "Still noon."
    assert ga.audio(spoken)
    assert ga.audio(written) == b""
    deltas = ga.all("response.output_text.delta", response_id=written)
    assert "".join(str(heard["delta"]) for heard in deltas) == "Noon, in writing."
    assert ga.one("response.output_text.done", response_id=written)["text"] == "Noon, in writing."
    assert ga.one("response.done", id=written)["status"] == "completed"


AGENTS_REALTIME = (
    "test_speech_cuts_the_answer_off",
    "test_the_next_question_is_answered",
    "test_a_tool_is_called_once_and_its_result_is_answered",
    "test_a_written_question_is_answered_aloud_or_in_writing_as_asked",
)


@pytest.mark.parametrize("name", AGENTS_REALTIME)
def test_line_25_agents_realtime_is_heard_with_the_other_javascript_clients(name: str) -> None:
    source = (TESTS / "peers" / "test_javascript_clients.py").read_text()
    assert "agents_realtime_call.mjs" in source
    assert f"def {name}(" in source
