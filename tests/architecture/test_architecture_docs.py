"""The pages say what the code does: tables, lists and links are right, and every example runs."""

import ast
import inspect
import math
import os
import re
import runpy
import subprocess
import sys
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args

import attrs
import pytest

import duplex_engine
from duplex_engine.config import EngineConfig
from duplex_engine.engine import open_engine
from duplex_engine.protocol import commands
from duplex_engine.protocol.capabilities import Capabilities, TurnPolicy
from duplex_engine.protocol.decode import decode_command
from duplex_engine.protocol.errors import ERRORS, Consequence, error_type, rule_of
from duplex_engine.protocol.events import OutputAudioDelta, ResponseDone, ServerEvent
from duplex_engine.protocol.formats import INPUT_ENCODINGS, OUTPUT_ENCODINGS, Encoding, parse_encoding
from duplex_engine.protocol.session_config import SessionConfig, SessionFacts, public_session
from duplex_engine.protocol.session_fields import OVERLAP_POLICY, SETTINGS, STORED
from duplex_engine.protocol.wire_json import dumps
from duplex_engine.server.cli import parser
from duplex_engine.server.metrics import Metrics
from duplex_engine.server.settings import ServeConfig
from duplex_engine.testing.rig import open_rig

ROOT = Path(duplex_engine.__file__).parent.parent
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
PAGES = (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
PROTOCOL = (DOCS / "reference" / "wire-protocol.md").read_text()
CODES = (DOCS / "reference" / "error-codes.md").read_text()
OPERATING = (DOCS / "guide" / "operating.md").read_text()
PLUGIN_TUTORIAL = (DOCS / "tutorial" / "write-a-plugin.md").read_text()

GENERATE = runpy.run_path(str(DOCS / "generate.py"))
EchoPlugin = runpy.run_path(str(EXAMPLES / "echo_plugin.py"))["EchoPlugin"]

LAST_SECTIONS = {1: 7, 2: 10, 3: 11, 4: 9, 5: 5, 6: 7, 7: 2, 8: 7, 9: 4}
SECTIONS = (
    *("0.4", "0.5", "10", "11", "12", "12.4", "13"),
    *(f"{chapter}.{number}" for chapter, last in LAST_SECTIONS.items() for number in range(1, last + 1)),
)
"""What docstrings call "wire contract 3.4" has to be found under that number."""

FOREIGN = re.compile(r"/(?:work|home|root|tmp|Users)/\S|\.\./shared|issues? #?\d", re.IGNORECASE)


def anchor(heading: str) -> str:
    """What a heading is linked by, on the usual hosts."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def prose(page: str) -> str:
    """A page without its code blocks."""
    return re.sub(r"```.*?```", "", page, flags=re.DOTALL)


def section(number: str) -> str:
    """The text of a section of the protocol."""
    level, rest = re.split(rf"^(##+) {re.escape(number)} .*$", PROTOCOL, maxsplit=1, flags=re.MULTILINE)[1:]
    return re.split(rf"^#{{2,{len(level)}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def rows(page: str, table: str) -> list[tuple[str, ...]]:
    """The rows of a generated table, as they stand on the page."""
    found = re.search(rf"<!-- generated: {table} -->\n(.*?)<!-- end -->", page, re.DOTALL)
    assert found is not None, f"the table {table!r} is not where it was"
    return [tuple(cell.replace("`", "") for cell in row) for row in GENERATE["cells"](found[1])]


# --- pages -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = [target for target in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text())) if "://" not in target]
    assert [target for target in targets if not leads_somewhere(page, target)] == []


def leads_somewhere(page: Path, target: str) -> bool:
    path, _, fragment = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.exists():
        return False
    return not fragment or fragment in map(anchor, re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_name_no_place_that_a_reader_does_not_have(page: Path) -> None:
    assert FOREIGN.findall(page.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_is_generated_is_up_to_date(page: Path) -> None:
    text = page.read_text()
    assert GENERATE["refreshed"](text) == text, "run: python docs/generate.py"
    unwritten = [row for row in re.findall(r"^\|.*\|$", text, re.MULTILINE) if re.search(r"\| \? \|", row)]
    assert unwritten == [], "these rows are new; write their words"


def test_what_is_generated_can_be_out_of_date() -> None:
    page = "<!-- generated: commands -->\n| type | class | a | b | c |\n|---|---|---|---|---|\n<!-- end -->\n"
    fresh = GENERATE["refreshed"](page)
    assert "| `barge_in` | `BargeIn` | ? | ? | ? |" in fresh
    worded = fresh.replace("| `barge_in` | `BargeIn` | ? | ? | ? |", "| `barge_in` | `OldName` | x | y | z |")
    assert "| `barge_in` | `BargeIn` | x | y | z |" in GENERATE["refreshed"](worded)


# --- the protocol ------------------------------------------------------------------------------------------------


def test_sections_keep_their_numbers() -> None:
    numbered = re.findall(r"^##+ (\d+(?:\.\d+)?) ", PROTOCOL, re.MULTILINE)
    assert [number for number in SECTIONS if number not in numbered] == []
    assert len(numbered) == len(set(numbered))


def test_every_section_that_the_source_quotes_is_there() -> None:
    quoted: set[str] = set()
    for file in (ROOT / "duplex_engine").rglob("*.py"):
        quoted.update(re.findall(r"wire contract (?:section )?(\d+\.\d+)", file.read_text()))
    assert quoted
    assert [
        number for number in sorted(quoted) if not re.search(rf"^### {re.escape(number)} ", PROTOCOL, re.MULTILINE)
    ] == []


def test_every_deviation_is_listed_once() -> None:
    assert re.findall(r"^\| (D-\d\d) \|", PROTOCOL, re.MULTILINE) == [f"D-{number:02}" for number in range(1, 42)]


def test_commands_are_all_listed_with_spellings_that_are_read() -> None:
    listed = rows(PROTOCOL, "commands")
    assert [row[:2] for row in listed] == [(c.TYPE, c.__name__) for c in get_args(commands.ClientCommand)]
    for kind, name, others, *_ in listed:
        for spelling in (kind, *re.findall(r"[a-z_.]+", others.replace("none", ""))):
            assert type(decode_command(dumps({**LEAST[kind], "type": spelling}))).__name__ == name


LEAST: Mapping[str, Mapping[str, object]] = {
    **{command.TYPE: {} for command in get_args(commands.ClientCommand)},
    "session.resume": {"session_id": "s", "resume_token": "t"},
    "session.event_ack": {"server_event_seq": 1},
    "input_audio_buffer.append": {"audio": "AAAA"},
    "conversation.item.create": {"item": {}},
    "playback.ack": {"played_ms": 0},
    "turn.signal": {"event": "user_started"},
    "input.text.append": {"text": "x"},
}


def test_events_are_all_listed() -> None:
    assert [row[0] for row in rows(PROTOCOL, "events")] == [event.TYPE for event in get_args(ServerEvent)]


def test_everything_a_client_may_set_is_explained() -> None:
    known = {path for setting in (*SETTINGS, *STORED, OVERLAP_POLICY) for path in setting.paths}
    said = section("2.4")
    assert [path for path in sorted(known) if f"`{path.removeprefix('extra_body.')}`" not in said] == []


def test_every_key_of_the_session_object_is_explained() -> None:
    config = SessionConfig(
        tools=({"name": "x"},), tool_choice="auto", metadata={"a": 1}, initial_user_text="x", ref_audio="x"
    )
    shown = public_session(config, SessionFacts(id="x"), Capabilities(turn_policy=TurnPolicy.TURN))
    said = section("2.7")
    assert [key for key in shown if f"`{key}`" not in said] == []


def test_format_names_mean_what_the_table_says() -> None:
    table = [line for line in section("5.1").splitlines() if line.startswith("|")][2:]
    for line, encoding in zip(
        table, (Encoding.PCM16, Encoding.F32, Encoding.ULAW, Encoding.ALAW, Encoding.WAV), strict=True
    ):
        _, _, names, heard, said, _ = line.split("|")
        for name in re.findall(r"`([^`]+)`", names):
            assert parse_encoding(name.upper(), allowed=frozenset(Encoding), param="format") is encoding
        assert ("yes" in heard, "yes" in said) == (encoding in INPUT_ENCODINGS, encoding in OUTPUT_ENCODINGS)


# --- error codes -------------------------------------------------------------------------------------------------


def test_the_table_of_codes_is_the_table_of_the_code() -> None:
    listed = [row[:3] for row in rows(CODES, "errors")]
    assert listed == [(code, error_type(code), rule_of(code).consequence.value) for code in ERRORS]
    assert {row[2] for row in listed} == {consequence.value for consequence in Consequence}


def raised_codes() -> Iterator[tuple[str, str]]:
    """Codes that are the first argument of a call somewhere, and where: ways to say an error."""
    for file in sorted((ROOT / "duplex_engine").rglob("*.py")):
        if "client" in file.parts or file.name == "errors.py":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                name = ast.unparse(node.func).rpartition(".")[2]
                if name.endswith(("Violation", "Rejected", "Refused", "Error")) or name == "error_event":
                    yield str(node.args[0].value), f"{file.relative_to(ROOT)}:{node.lineno}"


def test_codes_called_reserved_are_not_sent() -> None:
    reserved = {row[0] for row in rows(CODES, "errors") if row[4].startswith("Reserved")}
    sent = dict(raised_codes())
    assert "input_audio_buffer_empty" in sent
    assert {code: sent[code] for code in reserved & sent.keys()} == {}, "these are sent; say what they mean"


def test_every_code_that_is_sent_is_known() -> None:
    sent = {code: place for code, place in raised_codes() if code.isidentifier()}
    assert {code: place for code, place in sent.items() if code not in ERRORS | NOT_EVENTS} == {}


NOT_EVENTS = {"bad_handshake": "answered with HTTP 400"}
"""Codes that are no `error` events, and what becomes of them."""


# --- operating ---------------------------------------------------------------------------------------------------


def test_every_setting_is_explained() -> None:
    names = [row[0] for row in rows(OPERATING, "settings")]
    server = [field.name for field in attrs.fields(ServeConfig) if field.name != "limits"]
    assert names[: len(server)] == server
    assert all(name.startswith("limits.") for name in names[len(server) :])


def test_every_flag_is_explained() -> None:
    flags = set(re.findall(r"--[a-z-]+", parser().format_help())) - {"--"}
    assert [flag for flag in sorted(flags) if flag not in OPERATING] == []


async def test_every_metric_is_explained() -> None:
    metrics = Metrics()
    async with open_engine(EngineConfig(), plugin=EchoPlugin()) as engine:
        text = metrics.exposition(engine).decode()
    names = {name for name in re.findall(r"^# TYPE (\S+)", text, re.MULTILINE) if not name.endswith("_created")}
    assert {row[0] for row in rows(OPERATING, "metrics")} == names


# --- examples ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_from_examples_is_the_example(page: Path) -> None:
    for name, code in re.findall(r"<!-- (examples/\w+\.\w+) -->\n```\w+\n(.*?)```", page.read_text(), re.DOTALL):
        assert code == (ROOT / name).read_text(), f"{name} on this page is not the file"


def test_every_example_is_on_a_page() -> None:
    shown = " ".join(page.read_text() for page in PAGES)
    assert [file.name for file in EXAMPLES.glob("*.*") if f"<!-- examples/{file.name} -->" not in shown] == []


def run(*arguments: str, path: Path = EXAMPLES) -> str:
    """What a Python program prints. Fails when it does."""
    environment = {**os.environ, "PYTHONPATH": str(path)}
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=60, env=environment, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


QUESTION = str(ROOT / "tests" / "data" / "what_time_is_it.wav")
EMBED = str(EXAMPLES / "embed_in_trio.py")


def test_the_engine_can_be_embedded(tmp_path: Path) -> None:
    (tmp_path / "turns.py").write_text(
        "from duplex_engine.model_plugins.scripted.plugin import ScriptedPlugin\n"
        "def Turns():\n"
        "    return ScriptedPlugin(mode='turn', script='hear \"What time is it?\"; speak \"Half past two.\" for 1')\n"
    )
    said = run(EMBED, QUESTION, "turns:Turns", path=tmp_path)
    assert "heard: What time is it?" in said
    assert "Half past two." in said
    assert "completed, 48000 bytes of sound" in said


def test_the_echo_answers_inside_the_embedding_program() -> None:
    said = run(EMBED, QUESTION, "echo_plugin:EchoPlugin")
    assert "The same to you." in said
    assert re.search(r"completed, [1-9]\d{4} bytes of sound", said)


def test_the_tutorials_plugin_runs_on_a_worker(tmp_path: Path) -> None:
    found = re.search(r"<!-- file: quiet\.py -->\n```python\n(.*?)```", PLUGIN_TUTORIAL, re.DOTALL)
    assert found is not None
    (tmp_path / "quiet.py").write_text(found[1])
    said = run(EMBED, QUESTION, "quiet:QuietPlugin", path=tmp_path)
    assert "Quietly." in said
    assert re.search(r"completed, [1-9]\d{4} bytes of sound", said)


def tone(seconds: float, rate_hz: int = 16_000) -> bytes:
    return array("h", (round(8000 * math.sin(n / 10)) for n in range(round(seconds * rate_hz)))).tobytes()


async def test_the_echo_is_what_was_said(autojump_clock: object) -> None:
    push_to_talk = {"turn_detection": None, "extra_body": {"auto_response": False}}
    heard, said = tone(1.5), b""
    async with open_engine(EngineConfig(), plugin=EchoPlugin()) as engine, engine.open_session(push_to_talk) as session:
        session.append(heard)
        session.commit()
        with session.events() as events:
            async for event in events:
                if isinstance(event, OutputAudioDelta):
                    said += event.audio
                elif isinstance(event, ResponseDone):
                    break
    assert said == heard


async def test_an_echo_can_be_cut_off(autojump_clock: object) -> None:
    detected = {"turn_detection": {"type": "server_vad"}}
    async with open_rig(EchoPlugin()) as rig, rig.caller(session=detected) as caller:
        await caller.speaks(3.0)
        await caller.is_silent(1.0)
        await caller.hears("response.output_audio.delta")
        await caller.speaks(1.0)
        await caller.hears("response.done", status="cancelled")


def test_the_tutorials_test_is_this_one() -> None:
    found = re.search(r"<!-- test -->\n```python\n(.*?)```", PLUGIN_TUTORIAL, re.DOTALL)
    assert found is not None
    assert found[1] == inspect.getsource(test_an_echo_can_be_cut_off)
