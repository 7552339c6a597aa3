"""The script language: what a scripted model does, statement after statement.

Owns the statements, their grammar, and the order they are played in. Never plays anything: `plugin.py` does.

    listen 2; speak "a long answer" for 6; listen
    forever { listen 12; speak "still here" for 1.5 }

A statement ends at `;`, at the end of its line or at the end of its block; `#` starts a comment.

==========================  =========================================================================================
`speak "text" for SECONDS`  an answer; what follows belongs to it, up to the next `speak` or `listen`
`listen [N]`                native: hear N units (without N: for ever); turn mode: N seconds before the next answer
`wait SECONDS`              do nothing
`hear "text"`               recognise these words in what the user says
`call NAME [{json}]`        ask the client to call a function
`await`                     go on when the outputs of all calls are there (native); turn mode: with the next turn
`yield`                     end the answer by deciding to listen
`fail ["message"]`          the worker cannot compute this item; `fail CODE "message"`: a failure with this error code
`hang`                      the worker's step never ends
`crash [WORKER]`            a worker dies (without a name: the one that renders this session's voice)
`slow FACTOR`               from now on a unit takes FACTOR times its own length (`slow 0`: as fast as at the start)
`repeat N { ... }`          play the block N times; `forever { ... }`: always
==========================  =========================================================================================

`{instructions}`, `{history}` and `{output}` in a spoken text stand for the session's instructions, for what was said so
far, and for the newest output of a function.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence

import attrs

from duplex_engine.errors import DuplexError


@attrs.define(eq=False)
class ScriptError(DuplexError):
    """A script that cannot be played; `line` and `column` count from 1."""

    message: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.message}"


@attrs.frozen
class Speak:
    """An answer of `seconds`, with these words."""

    text: str
    seconds: float


@attrs.frozen
class Listen:
    """`count` units or seconds; infinity: for ever."""

    count: float


@attrs.frozen
class Wait:
    seconds: float


@attrs.frozen
class Hear:
    text: str


@attrs.frozen
class Call:
    """`arguments` is a JSON text."""

    name: str
    arguments: str


@attrs.frozen
class Await:
    """Until the outputs of all calls are there."""


@attrs.frozen
class Yield:
    pass


@attrs.frozen
class Fail:
    """Without a code it is the worker that cannot compute."""

    message: str
    code: str | None = None


@attrs.frozen
class Hang:
    pass


@attrs.frozen
class Crash:
    worker: str | None = None


@attrs.frozen
class Slow:
    factor: float


@attrs.frozen
class Repeat:
    """`times`: infinity for `forever`."""

    times: float
    body: "Script"


Statement = Speak | Listen | Wait | Hear | Call | Await | Yield | Fail | Hang | Crash | Slow
Script = tuple[Statement | Repeat, ...]
HANDOVERS = (Speak, Listen, Await)
"""Statements that begin something new; all others belong to the answer before them."""


class Storyline:
    """A place in a script, moved along by whoever plays it."""

    def __init__(self, script: Script) -> None:
        self._rest = unrolled(script)
        self._next = next(self._rest, None)

    def peek(self) -> Statement | None:
        """The statement to be played next; None at the end."""
        return self._next

    def take(self) -> Statement | None:
        """The same, and go on to the one after it."""
        statement, self._next = self._next, next(self._rest, None)
        return statement

    def skip_answer(self) -> None:
        """Leave out what is left of the answer that is over."""
        while self._next is not None and not isinstance(self._next, HANDOVERS):
            self.take()


def unrolled(script: Script) -> Iterator[Statement]:
    """The statements of a script in the order they are played; endless if the script is."""
    for statement in script:
        if not isinstance(statement, Repeat):
            yield statement
            continue
        played = 0
        while played < statement.times:
            yield from unrolled(statement.body)
            played += 1


def statements(script: Script) -> Iterator[Statement]:
    """Every statement that is written in a script, once."""
    for part in script:
        if isinstance(part, Repeat):
            yield from statements(part.body)
        else:
            yield part


def parse(source: str) -> Script:
    """The script that `source` means. Raises ScriptError."""
    reader = _Reader(source)
    script = _block(reader)
    if not reader.ended:
        raise reader.error("there is no block that this '}' could end")
    return script


class _Reader:
    """A position in the source, and the few things a statement is made of."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0

    @property
    def ended(self) -> bool:
        return self._at == len(self._source)

    def error(self, message: str) -> ScriptError:
        before = self._source[: self._at]
        return ScriptError(message, before.count("\n") + 1, len(before) - before.rfind("\n"))

    def found(self) -> str:
        """What stands here, for an error message."""
        if self.ended:
            return "the end of the script"
        rest = self._source[self._at :].lstrip(" \t\r")
        return "the end of the line" if rest.startswith("\n") else repr(re.split(r"[\s;]", rest, maxsplit=1)[0])

    def match(self, pattern: str) -> str | None:
        """Read what matches, after blanks."""
        found = re.compile(rf"[ \t\r]*({pattern})").match(self._source, self._at)
        if found is None:
            return None
        self._at = found.end()
        return found[1]

    def skip_separators(self) -> None:
        self.match(r"(?:[;\s]|#[^\n]*)*")

    def at_end_of_statement(self) -> bool:
        return self.match(r"(?=[;}\n#]|$)") is not None

    def word(self, what: str) -> str:
        found = self.match(r"[A-Za-z_][\w.-]*")
        if found is None:
            raise self.error(f"here should be {what}, not {self.found()}")
        return found

    def number(self, what: str) -> float:
        found = self.match(r"\d+(?:\.\d+)?(?![\w.])")
        if found is None:
            raise self.error(f"here should be {what}, not {self.found()}")
        return float(found)

    def whole(self, what: str) -> int:
        number = self.number(what)
        if number != int(number):
            raise self.error(f"{what} has to be a whole number, not {number:g}")
        return int(number)

    def text(self, what: str) -> str:
        value = self._json(what, '"')
        assert isinstance(value, str)
        return value

    def object_source(self, what: str) -> str:
        """A JSON object as it is written."""
        self.match("")
        start = self._at
        self._json(what, "{")
        return self._source[start : self._at]

    def _json(self, what: str, opening: str) -> object:
        if self.match(f"(?={re.escape(opening)})") is None:
            raise self.error(f"here should be {what}, not {self.found()}")
        try:
            value, self._at = json.JSONDecoder().raw_decode(self._source, self._at)
        except json.JSONDecodeError as error:
            self._at = min(error.pos, len(self._source))
            raise self.error(f"{what} is not written as in JSON: {error.msg}") from None
        return value


def _block(reader: _Reader) -> Script:
    statements: list[Statement | Repeat] = []
    reader.skip_separators()
    while not reader.ended and reader.match(r"(?=\})") is None:
        statements.append(_statement(reader))
        if not reader.at_end_of_statement():
            raise reader.error(f"a statement should end here with ';' or a new line, not go on with {reader.found()}")
        reader.skip_separators()
    return tuple(statements)


def _statement(reader: _Reader) -> Statement | Repeat:
    unknown = reader.error("")
    word = reader.word("a statement")
    if word not in _GRAMMAR:
        unknown.message = f"there is no statement {word!r}; there are {', '.join(_GRAMMAR)}"
        raise unknown
    return _GRAMMAR[word](reader)


def _speak(reader: _Reader) -> Speak:
    text = reader.text("the words in quotes")
    if reader.match(r"for\b") is None:
        raise reader.error(f"after the words should be 'for SECONDS', not {reader.found()}")
    return Speak(text, reader.number("a number of seconds"))


def _listen(reader: _Reader) -> Listen:
    return Listen(float("inf") if reader.at_end_of_statement() else reader.number("how long to listen"))


def _call(reader: _Reader) -> Call:
    name = reader.word("the name of a function")
    return Call(name, "{}" if reader.at_end_of_statement() else reader.object_source("the arguments, a JSON object"))


def _fail(reader: _Reader) -> Fail:
    if reader.at_end_of_statement():
        return Fail("as the script says")
    code = reader.match(r"[a-z_]+")
    return Fail(reader.text("a message in quotes"), code)


def _crash(reader: _Reader) -> Crash:
    return Crash(None if reader.at_end_of_statement() else reader.word("the name of a worker"))


def _repeat(reader: _Reader) -> Repeat:
    return Repeat(reader.whole("how many times"), _braces(reader))


def _forever(reader: _Reader) -> Repeat:
    body = _braces(reader)
    if not hands_over(body):
        raise reader.error("'forever' needs a speak or a listen in its block, or nobody ever gets a turn")
    return Repeat(float("inf"), body)


def hands_over(script: Sequence[Statement | Repeat]) -> bool:
    """Whether something that hands over is played in this script."""
    return any(
        hands_over(part.body) and part.times > 0 if isinstance(part, Repeat) else isinstance(part, HANDOVERS)
        for part in script
    )


def _braces(reader: _Reader) -> Script:
    if reader.match(r"\{") is None:
        raise reader.error(f"here should be a block in '{{' and '}}', not {reader.found()}")
    body = _block(reader)
    if reader.match(r"\}") is None:
        raise reader.error("a block is not closed: '}' is missing")
    return body


_GRAMMAR: dict[str, Callable[[_Reader], Statement | Repeat]] = {
    "speak": _speak,
    "listen": _listen,
    "wait": lambda reader: Wait(reader.number("a number of seconds")),
    "hear": lambda reader: Hear(reader.text("the words in quotes")),
    "call": _call,
    "await": lambda reader: Await(),
    "yield": lambda reader: Yield(),
    "fail": _fail,
    "hang": lambda reader: Hang(),
    "crash": _crash,
    "slow": lambda reader: Slow(reader.number("a factor")),
    "repeat": _repeat,
    "forever": _forever,
}
