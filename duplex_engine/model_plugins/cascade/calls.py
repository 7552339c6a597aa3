"""What the language model wrote, as it comes: words to be spoken, and calls of functions, which never are.

Owns the form of a call, `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`. Pure and incremental: however the text
was cut, no part of a call is taken for words.
"""

import json
from collections.abc import Collection, Sequence
from typing import Any, Final

import attrs

from duplex_engine.errors import CodedError
from duplex_engine.model_plugins.cascade.clauses import ClauseSplitter

OPENING: Final = "<tool_call>"
CLOSING: Final = "</tool_call>"


@attrs.frozen
class Call:
    """A call of an offered function; `arguments` is the JSON text of an object."""

    name: str
    arguments: str


class BrokenCall(CodedError):
    """The model began a call that cannot be made."""


class CallReader:
    """Reads one answer. `push` text as it comes, then `finish`. `offered`: names of functions that may be called."""

    def __init__(self, offered: Collection[str] = ()) -> None:
        self.called = False
        self._offered = offered
        self._inside = False
        self._held = ""

    def push(self, text: str) -> Sequence[str | Call]:
        """Words and calls that are certain now, in their order. Raises BrokenCall."""
        self._held += text
        parts: list[str | Call] = []
        while (part := self._next()) is not None:
            if part:
                parts.append(part)
        return parts

    def finish(self) -> Sequence[str | Call]:
        """The rest, when no more text comes. Raises BrokenCall for a call that was cut off."""
        rest, self._held = self._held, ""
        if self._inside:
            return [self._call(rest[: len(rest) - _overlap(rest, CLOSING)])]
        begun = _overlap(rest, OPENING)
        if begun > 1:  # the beginning of a call, and no other word begins like it
            rest = rest[:-begun]
        return [] if not rest or (self.called and not rest.strip()) else [rest]

    def _next(self) -> str | Call | None:
        """What comes next, "" when it is nothing to pass on; None: more text is needed to tell."""
        if self._inside:
            content, closed, rest = self._held.partition(CLOSING)
            if not closed:
                return None
            self._inside, self._held = False, rest
            return self._call(content)
        words, opened, rest = self._held.partition(OPENING)
        if opened:
            self._inside, self._held = True, rest
            return words.rstrip()
        sure = self._held[: len(self._held) - _overlap(self._held, OPENING)].rstrip()
        self._held = self._held[len(sure) :]
        return sure or None

    def _call(self, content: str) -> Call:
        self.called = True
        try:
            call: Any = json.loads(content)
            name, arguments = call["name"], call.get("arguments", {})
        except (ValueError, KeyError, TypeError, AttributeError):
            raise _broken(f"is not written as a call: {content.strip()[:200]!r}") from None
        if name not in self._offered:
            raise _broken(f"is of {name!r}, which is not among the functions offered")
        if not isinstance(arguments, dict):
            raise _broken(f"of {name} has arguments that are no object: {arguments!r}")
        return Call(name, json.dumps(arguments, ensure_ascii=False))


class AnswerReader:
    """Cuts one answer into clauses that can be spoken, and calls.

    `in_circles`: a call was made again, as models this small do until their tokens run out; nothing more is to come.
    """

    def __init__(self, offered: Collection[str]) -> None:
        self.in_circles = False
        self._calls = CallReader(offered)
        self._clauses = ClauseSplitter()
        self._made: set[Call] = set()

    def push(self, text: str) -> Sequence[str | Call]:
        """What `text` completes. Raises BrokenCall."""
        return self._sort(self._calls.push(text))

    def finish(self, *, cut_off: bool) -> Sequence[str | Call]:
        """The rest. An answer that was cut off ends with its last whole clause, not in the middle of a word.

        Raises BrokenCall.
        """
        parts = self._sort(self._calls.finish())
        if not cut_off or not self._clauses.begun:
            parts += self._clauses.finish()
        return parts

    def _sort(self, written: Sequence[str | Call]) -> list[str | Call]:
        parts: list[str | Call] = []
        for part in written:
            if isinstance(part, str):
                parts += self._clauses.push(part)
            elif part in self._made:
                self.in_circles = True
                break
            else:
                self._made.add(part)
                parts += [*self._clauses.finish(), part]
        return parts


def _overlap(text: str, tag: str) -> int:
    """How many characters at the end of `text` may be the beginning of `tag`."""
    return next((length for length in range(len(tag) - 1, 0, -1) if text.endswith(tag[:length])), 0)


def _broken(what: str) -> BrokenCall:
    return BrokenCall("function_call_parse_error", f"the model's call {what}")
