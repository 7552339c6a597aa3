"""The `talk` command against a scripted assistant that hears by loudness, on the virtual clock."""

import json
import math
from array import array
from pathlib import Path

import pytest
import trio
import trio.testing
from client_peer import SESSION_ID, Line, Peer, refuse

from duplex_engine.client import read_pcm16_wav, write_pcm16_wav
from duplex_engine.client.cli import main
from duplex_engine.client.media import read_clip
from duplex_engine.protocol.wire_json import b64decode

HANGOVER_S = 0.45
GUARD_S = 0.7
RATE = 16_000


def tone(seconds: float) -> bytes:
    wave = (int(8000 * math.sin(2 * math.pi * 200 * n / RATE)) for n in range(int(RATE * seconds)))
    return array("h", wave).tobytes()


def silence(seconds: float) -> bytes:
    return bytes(2 * int(RATE * seconds))


class Assistant:
    """Answers every utterance after a silence with `answer_s` seconds of audio, sent at once; yields to long speech.

    With `endless_first` the first answer is never done by itself. `late`: chunks sent after a cut, as no server may.
    """

    def __init__(self, line: Line, answer_s: float, *, endless_first: bool = False, late: int = 0) -> None:
        self.line, self.answer_s, self.endless_first, self.late = line, answer_s, endless_first, late
        self.speaking_s = self.silent_s = 0.0
        self.spoke = False
        self.turns = 0
        self.open: str | None = None
        self.said = False
        self.acknowledged: list[tuple[float, str, int]] = []
        self.appended_s = 0.0

    async def run(self) -> None:
        await self.line.open()
        while True:
            event = await self.line.receive()
            match event["type"]:
                case "input_audio_buffer.append":
                    await self.hear(b64decode(event["audio"]))
                case "playback.ack":
                    self.acknowledged.append((trio.current_time(), event["response_id"], event["played_ms"]))
                case "session.close":
                    await self.line.say("session.closed", session_id=SESSION_ID, reason="client_close")
                    return

    async def hear(self, pcm: bytes) -> None:
        seconds = len(pcm) / (2 * RATE)
        self.appended_s += seconds
        if any(pcm):
            self.speaking_s, self.silent_s, self.spoke = self.speaking_s + seconds, 0.0, True
        else:
            self.speaking_s, self.silent_s = 0.0, self.silent_s + seconds
        if self.open and self.speaking_s >= GUARD_S:
            await self.cut()
        if self.spoke and self.silent_s >= HANGOVER_S:
            self.spoke = False
            await self.answer()

    async def answer(self) -> None:
        self.turns += 1
        self.open = f"resp-{self.turns}"
        await self.line.say(
            "conversation.item.input_audio_transcription.completed",
            item_id=f"item-{self.turns}",
            content_index=0,
            transcript=f"question {self.turns}",
        )
        await self.line.respond(self.open, text=f"This is answer {self.turns}.")
        for _ in range(round(self.answer_s / 0.2)):
            await self.line.audio(self.open, b"\1\0" * 4800)
        self.said = not self.endless_first or self.turns > 1
        if self.said:
            await self.line.done(self.open)

    async def cut(self) -> None:
        output = [{"content": [{"type": "output_audio", "transcript": "This is"}]}]
        details = {"type": "cancelled", "reason": "turn_detected"}
        assert self.open
        if self.said:
            await self.line.say("output_audio_buffer.cleared", response_id=self.open)
        else:
            await self.line.done(self.open, "cancelled", status_details=details, output=output)
        for _ in range(self.late):
            await self.line.audio(self.open, b"\1\0" * 10)
        self.open = None


def talk(tmp_path: Path, script, *more: str, interrupt: bytes | None = None) -> tuple[int, Peer]:
    """Run the command on a server that runs `script`."""
    question = silence(0.3) + tone(1.5) + silence(0.2)
    write_pcm16_wav(tmp_path / "question.wav", question, sample_rate_hz=RATE)
    arguments = ["talk", "--wav", str(tmp_path / "question.wav"), "--out", str(tmp_path / "answer.wav"), *more]
    if interrupt is not None:
        write_pcm16_wav(tmp_path / "second.wav", interrupt, sample_rate_hz=RATE)
        arguments += ["--interrupt-wav", str(tmp_path / "second.wav")]
    peers: list[Peer] = []

    async def connect(url: str) -> trio.abc.Stream:
        if not peers:
            peers.append(Peer(await open_system_nursery(), script))
        return await peers[0].connect(url)

    code = main(arguments, connect=connect, clock=trio.testing.MockClock(autojump_threshold=0))
    return code, peers[0]


async def open_system_nursery() -> trio.Nursery:
    """A nursery for the server, outside the command's own tasks."""
    opened: list[trio.Nursery] = []
    ready = trio.Event()

    async def hold() -> None:
        async with trio.open_nursery() as nursery:
            opened.append(nursery)
            ready.set()
            await trio.sleep_forever()

    trio.lowlevel.spawn_system_task(hold)
    await ready.wait()
    return opened[0]


class Scripted:
    """A server with one assistant, kept for questions afterwards."""

    def __init__(self, **options) -> None:
        self.options = options

    async def __call__(self, line: Line) -> None:
        self.assistant = Assistant(line, **self.options)
        await self.assistant.run()


def test_a_question_is_answered(tmp_path, capsys):
    script = Scripted(answer_s=2.0)
    code, peer = talk(tmp_path, script, "--json", "--voice", "joe", "--instructions", "Be brief.")
    assert code == 0
    summary = json.loads(capsys.readouterr().out)
    (turn,) = summary["turns"]
    assert turn["question"] == {"transcript": "question 1", "duration_s": 2.0}
    answer = turn["answer"]
    assert answer["transcript"] == "This is answer 1."
    assert answer["end_of_speech_to_first_audio_s"] == pytest.approx(HANGOVER_S, abs=0.03)
    assert (answer["received_s"], answer["heard_s"], answer["status"]) == (2.0, 2.0, "completed")
    assert summary["interruption"] is None
    assert read_pcm16_wav(tmp_path / "answer.wav", sample_rate_hz=24_000) == b"\1\0" * 48_000
    session = peer.lines[0].received[0]["session"]
    assert (session["voice"], session["instructions"], session["sample_rate_hz"]) == ("joe", "Be brief.", RATE)


def test_playback_is_acknowledged_by_the_clock(tmp_path, capsys):
    script = Scripted(answer_s=2.0)
    talk(tmp_path, script)
    acknowledged = script.assistant.acknowledged
    start, _, first = acknowledged[0]
    assert first == 0
    for at, response_id, played_ms in acknowledged:
        assert response_id == "resp-1"
        assert played_ms == pytest.approx(1000 * (at - start), abs=21)
    assert acknowledged[-1][2] == 2000
    assert 9 <= len(acknowledged) <= 13
    # The microphone stayed open while the answer was playing.
    assert script.assistant.appended_s >= 2.0 + HANGOVER_S + 1.5


def test_talking_over_the_answer_cuts_it(tmp_path, capsys):
    script = Scripted(answer_s=6.0, endless_first=True)
    code, _ = talk(tmp_path, script, "--interrupt-after", "1.5", "--json", interrupt=tone(1.2))
    summary = json.loads(capsys.readouterr().out)
    assert code == 0
    first, second = (turn["answer"] for turn in summary["turns"])
    assert (first["status"], first["reason"], first["heard_transcript"]) == ("cancelled", "turn_detected", "This is")
    assert (second["status"], second["transcript"]) == ("completed", "This is answer 2.")
    assert [turn["question"]["transcript"] for turn in summary["turns"]] == ["question 1", "question 2"]
    assert summary["interruption"]["cut_by"] == "response.done"
    assert summary["interruption"]["speech_to_response_done_s"] == pytest.approx(GUARD_S, abs=0.03)
    assert summary["interruption"]["late_audio_bytes"] == 0
    assert first["heard_s"] == pytest.approx(1.5 + GUARD_S, abs=0.06)
    positions = [played_ms for _, response_id, played_ms in script.assistant.acknowledged if response_id == "resp-1"]
    assert positions[-1] == pytest.approx(1500 + 1000 * GUARD_S, abs=60)
    assert positions == sorted(positions)
    assert len(read_pcm16_wav(tmp_path / "answer-1.wav", sample_rate_hz=24_000)) == 6 * 48_000
    assert len(read_pcm16_wav(tmp_path / "answer-2.wav", sample_rate_hz=24_000)) == 6 * 48_000
    assert not (tmp_path / "answer.wav").exists()


def test_an_answer_that_was_only_still_playing_is_cut_as_well(tmp_path, capsys):
    code, _ = talk(tmp_path, Scripted(answer_s=6.0), "--json", interrupt=tone(1.2))
    summary = json.loads(capsys.readouterr().out)
    assert code == 0
    first = summary["turns"][0]["answer"]
    assert (first["status"], first["cut_by"]) == ("completed", "output_audio_buffer.cleared")
    assert first["heard_s"] == pytest.approx(1.0 + GUARD_S, abs=0.06)
    assert summary["interruption"]["speech_to_cut_s"] == pytest.approx(GUARD_S, abs=0.03)
    assert summary["interruption"]["speech_to_response_done_s"] is None


def test_speech_that_does_not_cut_is_reported_as_such(tmp_path, capsys):
    code, _ = talk(tmp_path, Scripted(answer_s=6.0), interrupt=tone(0.5))
    assert code == 0
    assert "interruption  the first answer was not cut" in capsys.readouterr().out


def test_the_summary_in_words(tmp_path, capsys):
    code, _ = talk(tmp_path, Scripted(answer_s=6.0, endless_first=True), interrupt=tone(1.2))
    printed = capsys.readouterr()
    assert code == 0
    for expected in (
        "question 1  question 1",
        "answer 2    This is answer 2.",
        "cancelled (turn_detected), history keeps 'This is'",
        "end of speech to first audio 0.4",
        "interruption  speech to response.done 0.7",
        "audio after it 0 bytes",
    ):
        assert expected in printed.out
    assert "waiting for the answer" in printed.err


def test_audio_after_the_cut_is_a_failure(tmp_path, capsys):
    code, _ = talk(tmp_path, Scripted(answer_s=6.0, endless_first=True, late=2), interrupt=tone(1.2))
    printed = capsys.readouterr()
    assert code == 1
    assert "error: 40 bytes of audio came after the end of their answer" in printed.err
    assert "audio after it 40 bytes" in printed.out


async def error_event(line: Line) -> None:
    await line.open()
    await line.receive()
    await line.say("error", error={"type": "server_error", "code": "engine_dead", "message": "the engine has gone"})
    await line.serve_until_closed()


async def closing(line: Line) -> None:
    await line.open()
    await line.receive()
    await line.say("session.closed", session_id=SESSION_ID, reason="draining")
    await line.ws.aclose()


async def failing(line: Line) -> None:
    await line.open()
    await line.receive()
    await line.respond("r", b"\1\0" * 100)
    await line.done("r", "failed", status_details={"type": "failed", "reason": "runtime_append_failed"})
    await line.serve_until_closed()


async def mute(line: Line) -> None:
    await line.open()
    await line.serve_until_closed()


async def vanishing(line: Line) -> None:
    await line.receive()
    await line.send({"type": "session.created", "session": {"id": SESSION_ID}})
    await trio.sleep(1)
    await line.cut()


async def full(line: Line) -> None:
    await line.receive()
    await line.send({"type": "error", "error": {"code": "resource_exhausted", "message": "no seat"}})


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (error_event, "engine_dead: the engine has gone"),
        (closing, "the server closed the session: draining"),
        (failing, "the answer failed on the server: runtime_append_failed"),
        (mute, "the answer did not come within 30 s"),
        (vanishing, "connection lost"),
        (full, "resource_exhausted: no seat"),
    ],
)
def test_every_failure_is_one_line_and_exit_code_one(tmp_path, capsys, script, message):
    code, _ = talk(tmp_path, script, "--timeout", "30")
    printed = capsys.readouterr()
    assert code == 1
    assert printed.out == ""
    (line,) = [line for line in printed.err.splitlines() if line.startswith("error: ")]
    assert message in line


def test_no_server(tmp_path, capsys):
    write_pcm16_wav(tmp_path / "q.wav", tone(0.1), sample_rate_hz=RATE)
    code = main(["talk", "--wav", str(tmp_path / "q.wav"), "--out", str(tmp_path / "a.wav")], connect=refuse)
    assert code == 1
    assert "Connection refused" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--wav", "missing.wav", "--out", "a.wav"], "missing.wav"),
        (["--wav", "{q}", "--out", "nowhere/a.wav"], "there is no directory nowhere"),
        (["--wav", "{q}", "--out", "a.wav", "--interrupt-wav", "{fast}"], "bring both to one rate"),
        (["--wav", "{q}", "--out", "a.wav", "--url", "host:1"], "write it like ws://"),
    ],
)
def test_what_is_wrong_is_said_before_calling_anybody(tmp_path, capsys, arguments, message):
    write_pcm16_wav(tmp_path / "q.wav", tone(0.1), sample_rate_hz=RATE)
    write_pcm16_wav(tmp_path / "fast.wav", tone(0.1), sample_rate_hz=48_000)
    filled = [argument.format(q=tmp_path / "q.wav", fast=tmp_path / "fast.wav") for argument in arguments]
    assert main(["talk", *filled]) == 1
    assert message in capsys.readouterr().err


def test_help_tells_everything(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    printed = capsys.readouterr().out
    for option in (
        "--wav",
        "--out",
        "--interrupt-wav",
        "--interrupt-after",
        "--url",
        "--api-key",
        "--tls-ca",
        "--model",
    ):
        assert option in printed
    for option in ("--voice", "--instructions", "--timeout", "--json", "Exit code"):
        assert option in printed


@pytest.mark.parametrize(
    ("name", "began_s", "ended_s"), [("what_time_is_it", 0.22, 1.04), ("how_do_you_say_grapefruit", 0.26, 2.26)]
)
def test_a_voice_is_found_in_a_real_recording(name, began_s, ended_s):
    # Where a person sees it in the waveform, give or take a window of 20 ms.
    clip = read_clip(Path(__file__).parent.parent / "data" / f"{name}.wav")
    assert clip.speech_bounds_s() == pytest.approx((began_s, ended_s), abs=0.025)
