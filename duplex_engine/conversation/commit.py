"""What a commit and a `response.create` mean, as decision tables (wire contract 3.4 and 3.6).

Owns the rows, first match wins. Never does anything about it: `listening.py` does.
"""

from collections.abc import Callable
from enum import Enum, auto

import attrs


class CommitOutcome(Enum):
    """What a commit leads to."""

    EMPTY = auto()
    SILENT = auto()
    NATIVE_SPEECH = auto()
    NATIVE_QUIET = auto()
    SHORT_ACKNOWLEDGEMENT = auto()
    DEFERRED = auto()
    ANSWERED = auto()
    WAITING = auto()


@attrs.frozen(kw_only=True)
class CommitMoment:
    """What is known when a commit comes.

    `buffered`: anything, sound or silence, came since the last commit. `speech`: some of it was speech. `denied`: the
    client says that it was none. `answering`: a response is in progress (7.2); `generating`: one is alive that the next
    turn has to wait for. `speech_ms`: speech of the turn. `asked`: the client, or the detector's rule, wants an answer.
    """

    native: bool = False
    buffered: bool = True
    speech: bool = True
    denied: bool = False
    answering: bool = False
    generating: bool = False
    speech_ms: float = 0.0
    short_ack_ms: float = 700.0
    asked: bool = False


@attrs.frozen
class CommitRow:
    """One row of 3.4."""

    when: Callable[[CommitMoment], bool]
    outcome: CommitOutcome


COMMIT_TABLE: tuple[CommitRow, ...] = (
    CommitRow(lambda m: not m.buffered and not m.denied, CommitOutcome.EMPTY),
    CommitRow(lambda m: not m.buffered, CommitOutcome.SILENT),
    CommitRow(lambda m: not m.native and not m.speech, CommitOutcome.SILENT),
    CommitRow(lambda m: m.native and m.speech, CommitOutcome.NATIVE_SPEECH),
    CommitRow(lambda m: m.native, CommitOutcome.NATIVE_QUIET),
    CommitRow(lambda m: m.answering and m.speech_ms <= m.short_ack_ms, CommitOutcome.SHORT_ACKNOWLEDGEMENT),
    CommitRow(lambda m: m.generating, CommitOutcome.DEFERRED),
    CommitRow(lambda m: m.asked, CommitOutcome.ANSWERED),
    CommitRow(lambda m: True, CommitOutcome.WAITING),
)


def decide_commit(moment: CommitMoment) -> CommitOutcome:
    """The outcome of the first row that matches."""
    return next(row.outcome for row in COMMIT_TABLE if row.when(moment))


class CreateOutcome(Enum):
    """What a `response.create` leads to."""

    UNSUPPORTED_OPTIONS = auto()
    ALREADY_ACTIVE = auto()
    BY_ITSELF = auto()
    ANSWERED = auto()
    TEXT_UNSUPPORTED = auto()
    NO_INPUT = auto()


@attrs.frozen(kw_only=True)
class CreateMoment:
    """What is known when a `response.create` comes.

    `refused_options`: it has options this profile refuses. `answering`: a response is alive that the next has to wait
    for, or acknowledgements are missing that the policy wants. `native_owed`: a native model has committed input or a
    function's output to answer by its own decision. `audio`: committed speech waits. `texts`: user items wait, or the
    command brings instructions. `text_turns`: the model answers text alone.
    """

    refused_options: bool = False
    answering: bool = False
    native: bool = False
    native_owed: bool = False
    audio: bool = False
    texts: bool = False
    text_turns: bool = False


@attrs.frozen
class CreateRow:
    """One row of 3.6."""

    when: Callable[[CreateMoment], bool]
    outcome: CreateOutcome


CREATE_TABLE: tuple[CreateRow, ...] = (
    CreateRow(lambda m: m.refused_options, CreateOutcome.UNSUPPORTED_OPTIONS),
    CreateRow(lambda m: m.answering, CreateOutcome.ALREADY_ACTIVE),
    CreateRow(lambda m: m.native and m.native_owed, CreateOutcome.BY_ITSELF),
    CreateRow(lambda m: m.audio, CreateOutcome.ANSWERED),
    CreateRow(lambda m: m.texts and m.text_turns and not m.native, CreateOutcome.ANSWERED),
    CreateRow(lambda m: m.texts, CreateOutcome.TEXT_UNSUPPORTED),
    CreateRow(lambda m: True, CreateOutcome.NO_INPUT),
)


def decide_create(moment: CreateMoment) -> CreateOutcome:
    """The outcome of the first row that matches."""
    return next(row.outcome for row in CREATE_TABLE if row.when(moment))
