"""The command line of the client: arguments, files, what is printed, and the exit code.

Owns everything between the terminal and `talk.py`. Never speaks to a server itself.
"""

import argparse
import json
import os
import ssl
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import attrs
import trio

from duplex_engine.client.client import DuplexClient
from duplex_engine.client.config import AudioFormat, SessionConfig
from duplex_engine.client.media import Clip, read_clip, write_pcm16_wav
from duplex_engine.client.talk import hold_conversation
from duplex_engine.client.talk_record import TalkError, TalkRecord
from duplex_engine.client.transport import ConnectFn
from duplex_engine.errors import DuplexError

__all__ = ["main"]

DEFAULT_URL = "ws://127.0.0.1:8099/v1/realtime"
KEY_VARIABLE = "DUPLEX_ENGINE_API_KEY"
ANY_FAILURE = (DuplexError, OSError, ValueError)

TALK = """\
Stream a recording to a server at speaking pace, keep the microphone open, and write down what comes back.

The answer is written to --out. It is not played, but acknowledged as a player would do it: from its first sound on, by
the clock. With --interrupt-wav a second recording is spoken over the answer, and both answers are written: for
--out answer.wav as answer-1.wav and answer-2.wav.

Printed at the end: what the server understood, what it answered, and the times in between. "End of speech" is where the
voice in the recording ends, not where the file does. Progress goes to the error output.

Exit code 0: the conversation was held. 1: it was not, for the reason given in one line. 2: wrong arguments."""


def main(
    arguments: Sequence[str] | None = None, *, connect: ConnectFn | None = None, clock: trio.abc.Clock | None = None
) -> int:
    """Run a command; returns the exit code. `connect` replaces the network, `clock` the time."""
    options = _parser().parse_args(arguments)
    try:
        talk = _prepare(options)
        record = trio.run(_talk, options, talk, connect, clock=clock)
        return _report(options, talk, record)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except ANY_FAILURE as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


@attrs.frozen
class _Talk:
    """What a talk needs from the disk."""

    question: Clip
    interruption: Clip | None
    answers: tuple[Path, ...]
    ssl_context: ssl.SSLContext | None


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m duplex_engine.client", description="Talk to a duplex-engine server.", formatter_class=raw
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    talk = commands.add_parser("talk", help="hold a spoken conversation from recordings", description=TALK)
    talk.formatter_class = raw
    required = talk.add_argument_group("recordings (WAV, 16 bits, mono, any rate)")
    required.add_argument("--wav", type=Path, required=True, metavar="FILE", help="the question")
    required.add_argument("--out", type=Path, required=True, metavar="FILE", help="where the answer is written")
    required.add_argument("--interrupt-wav", type=Path, metavar="FILE", help="spoken over the answer; same rate")
    required.add_argument(
        "--interrupt-after", type=_seconds, default=1.0, metavar="S", help="after hearing S seconds of it (%(default)s)"
    )
    server = talk.add_argument_group("server")
    server.add_argument("--url", default=DEFAULT_URL, help="ws:// or wss:// address (%(default)s)")
    server.add_argument("--api-key", default=os.environ.get(KEY_VARIABLE), metavar="KEY", help=f"or ${KEY_VARIABLE}")
    server.add_argument("--tls-ca", type=Path, metavar="FILE", help="certificate to trust, for wss:// (PEM)")
    session = talk.add_argument_group("session")
    session.add_argument("--model", default="", help="served model (the server's own)")
    session.add_argument("--voice", help="voice of the answers (the model's own)")
    session.add_argument("--instructions", metavar="TEXT", help="system prompt (the model's own)")
    session.add_argument(
        "--timeout", type=_seconds, default=120.0, metavar="S", help="give up after S seconds (%(default)s)"
    )
    talk.add_argument("--json", action="store_true", help="print the summary as one JSON object")
    parser.epilog = textwrap.indent(talk.format_help(), "  ")
    return parser


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no duration in seconds")
    return seconds


def _prepare(options: argparse.Namespace) -> _Talk:
    """Read and check everything before anybody is called."""
    question = read_clip(options.wav)
    interruption = None if options.interrupt_wav is None else read_clip(options.interrupt_wav)
    if interruption is not None and interruption.sample_rate_hz != question.sample_rate_hz:
        raise ValueError(
            f"{options.interrupt_wav} has {interruption.sample_rate_hz} Hz and {options.wav} "
            f"{question.sample_rate_hz} Hz; bring both to one rate"
        )
    out: Path = options.out
    if not out.parent.is_dir():
        raise ValueError(f"cannot write {out}: there is no directory {out.parent}")
    numbered = tuple(out.with_stem(f"{out.stem}-{number}") for number in (1, 2))
    ssl_context = None if options.tls_ca is None else ssl.create_default_context(cafile=options.tls_ca)
    return _Talk(question, interruption, (out,) if interruption is None else numbered, ssl_context)


async def _talk(options: argparse.Namespace, talk: _Talk, connect: ConnectFn | None) -> TalkRecord:
    config = SessionConfig(
        input_audio=AudioFormat("pcm16", talk.question.sample_rate_hz),
        voice=options.voice,
        instructions=options.instructions,
    )
    progress = _Progress(sys.stderr)
    client = DuplexClient(
        options.url,
        model=options.model,
        config=config,
        connect=connect,
        api_key=options.api_key,
        ssl_context=talk.ssl_context,
        handshake_timeout_s=min(30.0, options.timeout),
    )
    try:
        async with client:
            return await hold_conversation(
                client,
                talk.question,
                interruption=talk.interruption,
                interrupt_after_s=options.interrupt_after,
                timeout_s=options.timeout,
                progress=progress.show,
            )
    finally:
        progress.clear()


class _Progress:
    """One line that is overwritten on a terminal; elsewhere a line per change of what is going on."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last = ""

    def show(self, text: str) -> None:
        if self._out.isatty():
            self._out.write(f"\r\x1b[K{text}")
        elif text.partition(",")[0] != self._last.partition(",")[0]:
            self._out.write(f"{text}\n")
        self._last = text
        self._out.flush()

    def clear(self) -> None:
        if self._out.isatty():
            self._out.write("\r\x1b[K")
            self._out.flush()


def _report(options: argparse.Namespace, talk: _Talk, record: TalkRecord) -> int:
    summary = record.summary()
    for index, path in enumerate(talk.answers):
        answers = record.answers_to(index)
        if answers:
            answer = answers[-1]
            write_pcm16_wav(path, bytes(answer.pcm16), sample_rate_hz=answer.sample_rate_hz)
            summary["turns"][index]["answer"]["file"] = str(path)
    print(json.dumps(summary, indent=2) if options.json else _in_words(summary))
    if record.late_bytes:
        raise TalkError(f"{record.late_bytes} bytes of audio came after the end of their answer")
    return 0


def _in_words(summary: dict[str, Any]) -> str:
    lines = []
    for number, turn in enumerate(summary["turns"], 1):
        lines.append(f"question {number}  {turn['question']['transcript'] or '(no transcript)'}")
        answer = turn["answer"]
        if answer is None:
            lines.append(f"answer {number}    none")
            continue
        lines.append(f"answer {number}    {answer['transcript'].strip() or '(no transcript)'}")
        if answer["status"] != "completed":
            kept = f", history keeps {answer['heard_transcript']!r}" if answer["heard_transcript"] is not None else ""
            lines.append(f"            {answer['status']} ({answer['reason']}){kept}")
        lines.append(
            f"            heard {answer['heard_s']:.2f} s of {answer['received_s']:.2f} s, {answer.get('file')}"
        )
        lines.append(
            f"timing {number}    end of speech to first audio {_s(answer['end_of_speech_to_first_audio_s'])}, "
            f"to last audio {_s(answer['end_of_speech_to_last_audio_s'])}"
        )
    interruption = summary["interruption"]
    if interruption is not None:
        lines.append(f"interruption  {_interruption_in_words(interruption)}")
    return "\n".join(lines)


def _interruption_in_words(interruption: dict[str, Any]) -> str:
    if interruption["cut_by"] is None:
        return "the first answer was not cut"
    return (
        f"speech to {interruption['cut_by']} {_s(interruption['speech_to_cut_s'])}, "
        f"audio after it {interruption['late_audio_bytes']} bytes"
    )


def _s(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.3f} s"
