"""JavaScript clients, as they come from npm, talk to the running server: turns, barge-in, tools, text, keys, TLS."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from javascript_kit import RATE_HZ, Certificates, certify, needs_packages, run_example, run_node, telling
from peer_record import Recorded
from peer_server import Server

pytestmark = needs_packages

KEY = "correct-horse"
AGENTS, OPENAI, BETA = "agents_realtime_call.mjs", "openai_call.mjs", "realtime_api_call.mjs"
BROWSER = ("--experimental-websocket", "--conditions=browser", "--no-warnings")
"""What makes Node.js like a browser: its own WebSocket, which can send no headers, and the packages' browser parts."""
PLAYER_STOPS_S = 0.3
INTERRUPTED_S = 2.0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Of the server that speaks TLS."""
    return certify(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without TLS that wants no key."""
    with telling(tmp_path_factory.mktemp("open")) as server:
        yield server


@pytest.fixture(scope="module")
def guarded_server(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with TLS that wants a key."""
    folder = tmp_path_factory.mktemp("guarded")
    with telling(folder, "--api-key", KEY, *certificates.flags, authority=certificates.authority) as server:
        yield server


@pytest.fixture(scope="module")
def agents(open_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A call of the agents framework, as on a server."""
    return run_node(AGENTS, "scripted", open_server, tmp_path_factory.mktemp("agents"))


@pytest.fixture(scope="module")
def browser(guarded_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The same as in a browser: the key travels as a subprotocol."""
    folder = tmp_path_factory.mktemp("browser")
    return run_node(AGENTS, "scripted", guarded_server, folder, key=KEY, node=BROWSER)


@pytest.fixture(scope="module")
def openai(guarded_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A call of OpenAI's client."""
    return run_node(OPENAI, "scripted", guarded_server, tmp_path_factory.mktemp("openai"), key=KEY)


@pytest.fixture(scope="module")
def beta(open_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A call of a client that speaks the names of the beta."""
    return run_node(BETA, "scripted", open_server, tmp_path_factory.mktemp("beta"))


@pytest.fixture(scope="module")
def embedded(cascade: Server, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A call of the agents framework with the embedded voice."""
    return run_node(AGENTS, "cascade", cascade, tmp_path_factory.mktemp("embedded"))


with_cascade = pytest.param("embedded", marks=[pytest.mark.cascade, pytest.mark.timeout(240)])


def chosen(request: pytest.FixtureRequest) -> Recorded:
    """The record that a test's parameter names."""
    record: Recorded = request.getfixturevalue(request.param)
    return record


@pytest.fixture(params=["agents", "browser", "openai", "beta", with_cascade])
def record(request: pytest.FixtureRequest) -> Recorded:
    """Every call."""
    return chosen(request)


@pytest.fixture(params=["agents", "browser", with_cascade])
def framework(request: pytest.FixtureRequest) -> Recorded:
    """Every call of the agents framework."""
    return chosen(request)


@pytest.fixture(params=["agents", "browser", "openai"])
def tooled(request: pytest.FixtureRequest) -> Recorded:
    """Calls in which the model calls a function."""
    return chosen(request)


# --- every client ------------------------------------------------------------------------------------------------


def test_nothing_goes_wrong(record: Recorded) -> None:
    record.checks_out()
    assert record.notes.get("errors", []) == []
    assert all(heard.event["event_id"] for heard in record.heard)
    assert {heard["sample_rate_hz"] for heard in record.all("response.output_audio.delta")} == {RATE_HZ}


def test_one_response_at_a_time(record: Recorded) -> None:
    kinds = ("response.created", "response.done")
    lives = [heard.type for heard in record.heard if heard.type in kinds]
    assert lives == [*kinds * (len(lives) // 2), *kinds[: len(lives) % 2]]


def test_speech_cuts_the_answer_off(record: Recorded) -> None:
    cut = record.responses()[0]
    done = record.one("response.done", id=cut)
    assert (done["status"], done["reason"]) == ("cancelled", "turn_detected")
    assert item_of(done)["status"] == "incomplete"
    record.has_no_sound_after_done(cut)
    assert record.audio(cut)
    started = record.all("input_audio_buffer.speech_started")[1]
    assert started.at < done.at < started.at + INTERRUPTED_S


def test_the_next_question_is_answered(record: Recorded) -> None:
    first, second = record.all("conversation.item.input_audio_transcription.completed")
    assert first["transcript"] == "What time is it?"
    assert "grapefruit" in str(second["transcript"])
    answer = record.responses()[1]
    assert len(record.audio(answer)) > 2 * RATE_HZ
    assert record.transcript(answer).strip()


def test_a_tool_is_called_once_and_its_result_is_answered(tooled: Recorded) -> None:
    assert tooled.notes["executions"] == ["Rome"]
    result = tooled.one("conversation.item.added", output="It is sunny in Rome.")
    answered = next(heard for heard in tooled.all("response.done") if heard.at > result.at)
    assert item_of(answered)["content"][0]["transcript"] == "It is sunny."


def test_a_written_question_is_answered_aloud_or_in_writing_as_asked(tooled: Recorded) -> None:
    third, last = tooled.responses()[2], tooled.responses()[-1]
    assert tooled.transcript(third) == "Hello to you."
    assert len(tooled.audio(third)) == 2 * RATE_HZ
    assert tooled.audio(last) == b""
    assert tooled.one("response.output_text.done", response_id=last)["text"] == "Hello in writing."
    done = item_of(tooled.one("response.done", id=last))
    assert done["content"] == [{"type": "output_text", "text": "Hello in writing."}]


# --- the agents framework ----------------------------------------------------------------------------------------


def test_the_framework_can_read_every_event(framework: Recorded) -> None:
    assert framework.notes["unreadable"] == []
    assert set(framework.notes["unknown"]) <= {"conversation.item.created"}, "the beta's name, passed over"


def test_the_framework_stops_its_player_and_takes_back_what_was_not_played(framework: Recorded) -> None:
    cut = framework.responses()[0]
    started = framework.all("input_audio_buffer.speech_started")[1]
    assert started.at <= framework.moves["stop playing 1"] < started.at + PLAYER_STOPS_S
    assert framework.one("conversation.item.truncated", item_id=f"item_{cut}")
    shown = message(framework.notes["history"], f"item_{cut}")
    assert shown["status"] == "incomplete"
    heard = shown["content"][0]["transcript"]
    assert framework.transcript(cut).startswith(heard)
    assert len(heard) < len(framework.transcript(cut))


def test_the_framework_s_history_is_in_the_order_of_the_conversation(framework: Recorded) -> None:
    spoken = [item for item in framework.notes["history"] if item["type"] == "message"]
    assert [item["role"] for item in spoken[:4]] == ["user", "assistant", "user", "assistant"]
    assert [item["content"][0]["transcript"] for item in (spoken[0], spoken[2])] == [
        heard["transcript"] for heard in framework.all("conversation.item.input_audio_transcription.completed")
    ]


def test_the_framework_keeps_the_call_with_its_result(agents: Recorded) -> None:
    (call,) = [item for item in agents.notes["history"] if item["type"] == "function_call"]
    assert (call["name"], call["status"], call["output"]) == ("weather", "completed", "It is sunny in Rome.")
    assert agents.notes["usage"]["requests"] == len(agents.all("response.done"))


def test_the_framework_takes_back_what_came_long_before_it_was_played(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("ahead")
    with telling(folder, lead_s=60) as server:
        record = run_node(AGENTS, "ahead", server, folder)
    record.checks_out()
    assert record.notes["errors"] == record.notes["unreadable"] == []
    assert [done["status"] for done in record.all("response.done")] == ["completed", "completed"]
    early, _ = record.responses()
    assert len(record.audio(early)) == 2 * RATE_HZ * 6
    assert 1000 <= int(str(record.one("conversation.item.truncated", item_id=f"item_{early}")["audio_end_ms"])) < 4000
    heard = message(record.notes["history"], f"item_{early}")["content"][0]["transcript"]
    assert 0 < len(heard) < len(record.transcript(early))


def test_the_framework_can_rewrite_the_history(open_server: Server, tmp_path_factory: pytest.TempPathFactory) -> None:
    record = run_node(AGENTS, "rewriting", open_server, tmp_path_factory.mktemp("rewriting"))
    assert record.notes["errors"] == record.notes["unreadable"] == []
    assert record.notes["rewritten"] == [
        ["greeting", "Hello."],
        ["rules", "Be brief."],
        ["question", "Who is this?"],
        ["answer", "A voice."],
    ]
    assert [item["itemId"] for item in record.notes["history"]] == ["greeting"]


@pytest.mark.cascade
@pytest.mark.timeout(240)
def test_the_embedded_voice_can_be_heard(embedded: Recorded) -> None:
    for response_id in embedded.responses():
        assert embedded.loudness(response_id) > 0.01


@pytest.mark.cascade
@pytest.mark.timeout(240)
def test_a_button_stops_the_embedded_voice(embedded: Recorded) -> None:
    stopped = embedded.responses()[1]
    done = embedded.one("response.done", id=stopped)
    assert (done["status"], done["reason"]) == ("cancelled", "client_cancelled")
    embedded.has_no_sound_after_done(stopped)
    shown = message(embedded.notes["history"], f"item_{stopped}")
    assert len(shown["content"][0]["transcript"]) < len(embedded.transcript(stopped))


# --- OpenAI's client ---------------------------------------------------------------------------------------------


def test_the_session_is_echoed(openai: Recorded) -> None:
    *_, echo = openai.all("session.updated")
    audio = echo["audio"]
    assert isinstance(audio, dict)
    assert audio["output"]["voice"] == "marin"
    assert audio["input"]["transcription"] == {"model": "gpt-4o-mini-transcribe"}
    assert audio["input"]["turn_detection"]["interrupt_response"] is True


def test_what_the_client_takes_back_is_gone(openai: Recorded) -> None:
    cut = openai.responses()[0]
    truncated = openai.one("conversation.item.truncated", item_id=f"item_{cut}")
    assert truncated["audio_end_ms"] == 500


def test_metadata_comes_back_with_the_answer_that_was_asked_for(openai: Recorded) -> None:
    greeting = openai.responses()[2]
    assert openai.one("response.done", id=greeting)["metadata"] == {"topic": "greeting"}
    assert openai.transcript(greeting) == "Hello to you."


# --- the guide's examples ----------------------------------------------------------------------------------------


def test_the_guide_s_programs_get_answers(
    open_server: Server, guarded_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("examples")
    said = run_example("agents_realtime.mjs", f"{open_server.websocket_url}/v1/realtime", folder, server=open_server)
    assert said == "An answer that is long enough to be talked over by anybody. (288000 bytes of sound)\n"
    said = run_example("openai_realtime.mjs", f"{guarded_server.url}/v1", folder, server=guarded_server, key=KEY)
    assert said == "An answer that is long enough to be talked over by anybody. (288000 bytes of sound)\n"


# --- keys and subprotocols ---------------------------------------------------------------------------------------


def test_a_browser_is_given_exactly_the_subprotocol_it_knows(agents: Recorded, browser: Recorded) -> None:
    assert browser.notes["subprotocol"] == "realtime"
    assert agents.notes["subprotocol"] == "", "it offered none"


def test_the_client_s_class_for_browsers_gets_in_as_well(
    guarded_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("browser")
    record = run_node(OPENAI, "browser", guarded_server, folder, key=KEY, node=BROWSER)
    assert record.notes["errors"] == []
    assert record.notes["subprotocol"] == "realtime"
    assert record.one("response.output_text.done")["text"]


@pytest.mark.parametrize("node", [(), BROWSER], ids=["header", "subprotocol"])
def test_the_framework_is_refused_without_the_right_key(
    guarded_server: Server, tmp_path_factory: pytest.TempPathFactory, node: tuple[str, ...]
) -> None:
    record = run_node(AGENTS, "refused", guarded_server, tmp_path_factory.mktemp("refused"), key="wrong", node=node)
    assert record.heard == []
    assert ("401" if not node else "non-101") in record.notes["refusal"]
    assert guarded_server.status("/v1/models") == 401


def test_the_client_is_refused_without_the_right_key(
    guarded_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    record = run_node(OPENAI, "refused", guarded_server, tmp_path_factory.mktemp("refused"), key="wrong")
    assert record.heard == []
    assert "401" in record.notes["errors"][0]


def test_no_key_is_ever_logged(guarded_server: Server, browser: Recorded, openai: Recorded) -> None:
    assert KEY not in guarded_server.words()


# --- words -------------------------------------------------------------------------------------------------------


def item_of(done: Any) -> dict[str, Any]:
    """The item of an answer that is done."""
    (item,) = done["output"]
    return item


def message(history: Sequence[Mapping[str, Any]], item_id: str) -> Mapping[str, Any]:
    """The item of this id in the framework's history."""
    (found,) = (item for item in history if item["itemId"] == item_id)
    return found
