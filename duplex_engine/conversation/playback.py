"""The playback ledger (wire contract, section 8): how much of each answer was heard, and how many words that is.

Owns acknowledgements, the estimate for clients that never acknowledge, caps, and the interpolation from milliseconds to
characters. Never edits the history: `items.py` asks here when it is read.
"""

import math
from collections.abc import Callable, Sequence

import attrs

from duplex_engine.conversation.facts import TextMark
from duplex_engine.protocol.session_config import PlaybackPolicy

# A client whose last acknowledgement falls a little short has still played to the end: by then it is silent.
ACKNOWLEDGEMENT_SLACK_MS = 2_000


@attrs.define(eq=False)
class Cursor:
    """Milliseconds of one answer. `sent_ms` is exact; what the client said only grows, and never beyond what was sent.

    `cap_ms`: never more than this counts as heard. `frozen_ms`: the estimate at the moment of an interruption.
    `stopped`: nothing of it is playing any more, whatever the numbers say.
    """

    sent_ms: int = 0
    played_ms: int = 0
    committed_ms: int = 0
    first_sent_at: float | None = None
    acknowledged: bool = False
    cap_ms: int | None = None
    frozen_ms: int | None = None
    stopped: bool = False

    @property
    def limit_ms(self) -> int:
        """The most that can have been heard: what was sent, or the cap."""
        return self.sent_ms if self.cap_ms is None else min(self.cap_ms, self.sent_ms)

    def cap(self, limit_ms: int) -> None:
        """From now on at most `limit_ms` count as heard; several caps: the lowest."""
        self.cap_ms = limit_ms if self.cap_ms is None else min(self.cap_ms, limit_ms)

    def to_wire(self) -> dict[str, int]:
        """The four numbers of 8.1."""
        return {
            "generated_ms": self.sent_ms,
            "sent_ms": self.sent_ms,
            "played_ms": self.played_ms,
            "committed_ms": self.committed_ms,
        }


@attrs.define(eq=False)
class Ledger:
    """The rules of one session. `policy`: as configured. `acknowledged`: the client has ever acknowledged anything."""

    policy: PlaybackPolicy
    now: Callable[[], float]
    acknowledged: bool = False

    @property
    def policy_in_force(self) -> PlaybackPolicy:
        """ADAPTIVE resolved: everything on done until the first acknowledgement, acknowledged words only after it."""
        if self.policy is not PlaybackPolicy.ADAPTIVE:
            return self.policy
        return PlaybackPolicy.ACK_ONLY if self.acknowledged else PlaybackPolicy.COMMIT_ALL_ON_DONE

    @property
    def ack_only(self) -> bool:
        """Whether history and further turns wait for acknowledgements."""
        return self.policy_in_force is PlaybackPolicy.ACK_ONLY

    def acknowledge(self, cursor: Cursor, played_ms: float, committed_ms: float) -> None:
        """The client has heard this much; smaller and larger-than-possible values do no harm."""
        self.acknowledged = cursor.acknowledged = True
        cursor.played_ms = max(cursor.played_ms, _clamp(played_ms, cursor.sent_ms))
        cursor.committed_ms = max(cursor.committed_ms, _clamp(committed_ms, cursor.sent_ms))

    def interrupt(self, cursor: Cursor) -> None:
        """Playback was stopped now: the estimate does not grow any more."""
        if cursor.frozen_ms is None:
            cursor.frozen_ms = self._estimate_ms(cursor)
        cursor.stopped = True

    def heard_ms(self, cursor: Cursor) -> int:
        """How much of the answer the history may hold: acknowledged, or estimated if nothing ever was; capped."""
        heard = cursor.committed_ms
        if not self.acknowledged:
            heard = self._estimate_ms(cursor) if cursor.frozen_ms is None else cursor.frozen_ms
        return heard if cursor.cap_ms is None else min(heard, cursor.cap_ms)

    def playing(self, cursor: Cursor) -> bool:
        """Whether sent audio is probably still coming out of the client's loudspeaker (7.2 with D-02)."""
        if cursor.stopped or not cursor.sent_ms:
            return False
        estimate = self._estimate_ms(cursor)
        if not self.acknowledged:
            return estimate < cursor.sent_ms
        silent_by_now = self._elapsed_ms(cursor) >= cursor.sent_ms + ACKNOWLEDGEMENT_SLACK_MS
        return cursor.played_ms < cursor.sent_ms and not silent_by_now

    def _elapsed_ms(self, cursor: Cursor) -> float:
        return 0.0 if cursor.first_sent_at is None else (self.now() - cursor.first_sent_at) * 1000

    def _estimate_ms(self, cursor: Cursor) -> int:
        return _clamp(self._elapsed_ms(cursor), cursor.sent_ms)


def _clamp(value_ms: float, limit_ms: int) -> int:
    return int(min(max(value_ms, 0), limit_ms))


def heard_characters(
    heard_ms: float, length: int, total_ms: int, marks: Sequence[TextMark], *, complete: bool = True
) -> int:
    """How many of `length` characters were spoken in the first `heard_ms` of `total_ms` (8.5).

    `complete`: the answer is whole, so its end and the end of its text coincide even when the last mark says less.
    """
    if heard_ms <= 0 or total_ms <= 0:
        return 0
    if complete and heard_ms >= total_ms:
        return length
    before = (0, 0)
    points = sorted((mark.audio_end_ms, mark.text_chars) for mark in marks)
    if not points or points[-1][0] < total_ms:
        points.append((total_ms, length))
    for point in points:
        if heard_ms < point[0]:
            return min(_between(before, point, heard_ms), length)
        before = point
    return min(before[1], length)


def _between(start: tuple[int, int], end: tuple[int, int], at_ms: float) -> int:
    share = (at_ms - start[0]) / (end[0] - start[0])
    return start[1] + max(0, math.floor((end[1] - start[1]) * share + 1e-9))
