"""Cutting a stream of text into clauses that can be spoken while the rest is still being written.

Owns where a speaker may pause. Pure and incremental; the clauses put together are the text, character by character.
"""

import re
from collections.abc import Sequence
from typing import Final

import attrs


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ABBREVIATIONS: Final = _words("""
    dr mr mrs ms prof st ave blvd rd vs etc e.g i.e a.m p.m approx dept est fig gen gov inc jr lt ltd rev sen sr
    u.s u.k u.s.a jan feb mar apr jun jul aug sep sept oct nov dec www
""")
"""Words whose full stop ends no sentence, in lower case and without it."""

JOINTS: Final = _words("and but or so because which that who when where while if though although unless until")
"""Words before which a speaker may pause without being misunderstood."""

CLINGING: Final = _words("a an the my your his her its our their of to in on at for with from by and or i")
"""Words that nobody pauses after."""

HALVES: Final = _words("am pm a.m p.m o'clock percent million billion thousand")
"""Words that belong to the number before them."""

SENTENCE_END: Final = re.compile(r"[.!?…]+[\"'”’)\]]*(?=\s)|\n+")
CLAUSE_END: Final = re.compile(r"[,;:—–][\"'”’)\]]*(?=\s)")
SETTLED_END: Final = re.compile(r"(?:^|\s)[\"'“‘(]*[A-Za-z]{2,}[.!?]$")
NUMBERED: Final = re.compile(r"(?:^|\n)\s*\d{1,2}$")
WORD: Final = re.compile(r"\S+")


@attrs.frozen
class Patience:
    """How long to wait for a good place to cut, in words: at a comma from `comma` on, at a joint from `joint` on, and
    between any two words from `most` on."""

    comma: int
    joint: int
    most: int


PATIENCE: Final = (Patience(2, 3, 3), Patience(3, 6, 10), Patience(8, 24, 40))
"""For the first clause, whose end someone is waiting for, the second, and all later ones."""


class ClauseSplitter:
    """Cuts one answer. `push` text as it comes, then `finish`."""

    def __init__(self) -> None:
        self._buffer = ""
        self._count = 0

    @property
    def begun(self) -> bool:
        """Whether a clause has been cut already."""
        return self._count > 0

    def push(self, text: str) -> Sequence[str]:
        """Clauses that `text` completes, each with the white space that follows it so far."""
        self._buffer += text
        clauses: list[str] = []
        while (place := self._cut()) is not None:
            clauses.append(self._take(place))
        return clauses

    def finish(self) -> Sequence[str]:
        """The rest, when no more text comes: one clause, or none when nothing is left."""
        return [self._take(len(self._buffer))] if self._buffer else []

    def _take(self, place: int) -> str:
        clause, self._buffer = self._buffer[:place], self._buffer[place:]
        self._count += 1
        return clause

    def _cut(self) -> int | None:
        """Where the next clause ends, if that is certain already: the earliest place that any rule allows."""
        patience = PATIENCE[min(self._count, len(PATIENCE) - 1)]
        places = (self._sentence_end(), self._comma(patience.comma), self._between_words(patience))
        found = [place for place in places if place is not None]
        if found:
            return _past_spaces(self._buffer, min(found))
        return len(self._buffer) if self._count == 0 and self._settled() else None

    def _sentence_end(self) -> int | None:
        for match in SENTENCE_END.finditer(self._buffer):
            before = self._buffer[: match.start()]
            if before.strip() and not (match.group().startswith(".") and _ends_in_abbreviation(before)):
                return match.end()
        return None

    def _comma(self, least_words: int) -> int | None:
        for match in CLAUSE_END.finditer(self._buffer):
            if len(WORD.findall(self._buffer[: match.end()])) >= least_words:
                return match.end()
        return None

    def _between_words(self, patience: Patience) -> int | None:
        words = list(WORD.finditer(self._buffer))
        for number in range(patience.joint, len(words)):
            before, word = words[number - 1], words[number]
            # The last word may still be growing: what it will be is only known once white space follows it.
            complete = word.end() < len(self._buffer)
            joint = complete and word.group().lower() in JOINTS
            grown = number >= patience.most and (complete or not _may_become_half(word.group()))
            if (joint or grown) and not _binds(before.group(), word.group()):
                return before.end()
        return None

    def _settled(self) -> bool:
        """Whether the text ends with a full stop after an ordinary word, so that nothing can still be added to it."""
        match = SETTLED_END.search(self._buffer)
        quoting = self._buffer.count('"') % 2 == 1 or "“" in self._buffer.rpartition("”")[2]
        return match is not None and not quoting and not _ends_in_abbreviation(match.group()[:-1])


def _ends_in_abbreviation(text: str) -> bool:
    """Whether a full stop after this text ends no sentence: an abbreviation, an initial, the number of a list entry."""
    word = text.split()[-1].strip("\"'“‘(").lower()
    initial = len(word) == 1 and word.isalpha() and word != "i"
    return initial or word in ABBREVIATIONS or NUMBERED.search(text) is not None


def _binds(before: str, word: str) -> bool:
    """Whether no speaker would pause between these two words."""
    plain = before.lower().strip("\"'“‘(.")
    return plain in CLINGING or plain in ABBREVIATIONS or word.lower().rstrip(".,!?;:") in HALVES


def _may_become_half(beginning: str) -> bool:
    """Whether a word that begins like this may still turn out to belong to the number before it."""
    return any(half.startswith(beginning.lower()) for half in HALVES)


def _past_spaces(text: str, place: int) -> int:
    while place < len(text) and text[place].isspace():
        place += 1
    return place
