"""What happens to the user's sound while the assistant has the floor, as a decision table (wire contract 6.5).

Owns the rows, first match wins, with the guard of the product decisions: on a turn model that detects speech itself an
answer is interrupted only by speech that lasts. Never interrupts: `listening.py` asks for it.
"""

from collections.abc import Callable
from enum import Enum

import attrs

BARGE_IN_ACTIONS = frozenset({"barge_in", "interrupt", "cancel"})
LISTEN_ACTIONS = frozenset({"listen", "continue", "continue_output", "ack"})
DROP_ACTIONS = frozenset({"drop", "ignore", "silence"})

SHORT_ACKNOWLEDGEMENTS = frozenset(
    {
        *("yes", "yeah", "yep", "ok", "okay", "right", "continue", "go on", "keep going", "please continue"),
        *("嗯", "对", "好", "好的", "是", "是的", "继续", "行", "可以", "请继续"),
    }
)
_PUNCTUATION = " \t\r\n.,!?;:…。，！？、"


class Action(Enum):
    """What is done; the value is the wire's word."""

    BARGE_IN = "barge_in"
    LISTEN = "listen"
    DROP = "drop"


@attrs.frozen(kw_only=True)
class Overlap:
    """What is known about one append, or one end of speech, that overlaps an answer.

    `detected`: the server's detector gave the verdict. `just_started`: its speech began in this append. `underway`: the
    utterance was running before the answer began, or has interrupted already. `ended`: the detector saw its end.
    `speech_ms`: speech of the utterance so far. `policy_barge_in`: speech may interrupt. `pictures`: video without
    sound on a model that takes it.
    """

    native: bool = False
    speech: bool = True
    barge_in: bool = True
    policy_barge_in: bool = False
    action: str | None = None
    force_barge_in: bool = False
    force_listen: bool = False
    pictures: bool = False
    transcript: str = ""
    detected: bool = False
    just_started: bool = False
    underway: bool = False
    ended: bool = False
    speech_ms: float = 0.0
    short_ack_ms: float = 700.0

    @property
    def asks(self) -> bool:
        """Whether the client asks for an interruption with this append."""
        return self.force_barge_in or self.action in BARGE_IN_ACTIONS

    @property
    def lasts(self) -> bool:
        """Whether the speech is longer than a short acknowledgement."""
        return self.speech_ms >= self.short_ack_ms


@attrs.frozen(kw_only=True)
class Decision:
    """What is done with the answer, why, and whether the sound is kept."""

    action: Action
    reason: str
    keep: bool
    cancel_reason: str | None = None


@attrs.frozen
class Row:
    """One row: `number` as in 6.5, letters for the guard's."""

    number: str
    when: Callable[[Overlap], bool]
    action: Action
    reason: str
    keep: Callable[[Overlap], bool]


def is_short_acknowledgement(transcript: str) -> bool:
    """Whether these words only say: go on."""
    return transcript.strip(_PUNCTUATION).casefold() in SHORT_ACKNOWLEDGEMENTS


def _always(overlap: Overlap) -> bool:
    return True


def _never(overlap: Overlap) -> bool:
    return False


def _if_speech(overlap: Overlap) -> bool:
    return overlap.speech


def _if_listen_and_long(overlap: Overlap) -> bool:
    return overlap.action == "listen" and overlap.speech and overlap.speech_ms > overlap.short_ack_ms


_BARGE_IN, _LISTEN, _DROP = Action.BARGE_IN, Action.LISTEN, Action.DROP

TABLE: tuple[Row, ...] = (
    Row("1", lambda o: o.asks and not o.barge_in, _LISTEN, "barge_in_unsupported", _if_speech),
    Row("2", lambda o: o.action in BARGE_IN_ACTIONS, _BARGE_IN, "client_overlap_action", _always),
    Row("3", lambda o: o.action in LISTEN_ACTIONS, _LISTEN, "client_overlap_action", _if_listen_and_long),
    Row("4", lambda o: o.action in DROP_ACTIONS, _DROP, "client_overlap_action", _never),
    Row("5", lambda o: o.force_barge_in, _BARGE_IN, "client_force_barge_in", _always),
    Row(
        "6",
        lambda o: o.native and o.speech and o.policy_barge_in and o.detected and o.just_started,
        _BARGE_IN,
        "server_vad_speech_started",
        _always,
    ),
    Row(
        "6b",
        lambda o: o.native and o.speech and o.policy_barge_in and not o.detected,
        _BARGE_IN,
        "barge_in_on_speech",
        _always,
    ),
    Row("7", lambda o: o.native, _LISTEN, "auto_response_continuous", _always),
    Row("8", lambda o: o.force_listen, _LISTEN, "client_force_listen", _if_speech),
    Row("9", lambda o: not o.speech and o.pictures, _LISTEN, "vision_follow", _always),
    Row("10", lambda o: not o.speech, _DROP, "silence_or_noise", _never),
    Row("11", lambda o: is_short_acknowledgement(o.transcript), _LISTEN, "short_ack_transcript", _never),
    Row("12", lambda o: not o.policy_barge_in, _LISTEN, "policy_listen_only", _always),
    Row("13", lambda o: not o.barge_in, _LISTEN, "barge_in_unsupported", _always),
    Row("14", lambda o: o.detected and o.underway, _LISTEN, "server_vad_utterance_active", _always),
    Row("15", lambda o: o.detected and o.lasts, _BARGE_IN, "server_vad_speech_started", _always),
    Row("15a", lambda o: o.detected and o.ended, _LISTEN, "short_ack", _never),
    Row("15b", lambda o: o.detected, _LISTEN, "accumulating_overlap_speech", _always),
    Row("15c", _always, _BARGE_IN, "policy_barge_in_on_speech", _always),
)


def decide(overlap: Overlap) -> Decision:
    """The first row that matches, applied."""
    row = next(row for row in TABLE if row.when(overlap))
    by_detector = overlap.detected and not overlap.asks
    return Decision(
        action=row.action,
        reason=row.reason,
        keep=row.keep(overlap),
        cancel_reason=("turn_detected" if by_detector else "barge_in") if row.action is _BARGE_IN else None,
    )
