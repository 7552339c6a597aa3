"""Pacing by media time: when a piece of an answer's sound is due. No task, no queue.

Owns the answer's media clock, and cutting a long piece into frames with the words that belong to each. Never emits.
"""

import attrs
import trio

from duplex_engine.conversation.facts import TextMark

FRAME_MS = 200


@attrs.define
class Playout:
    """The media clock of one response.

    `lead_s`: sound leaves at most this long before it is due; None: as soon as it exists. A late piece moves the clock
    (the listener heard a gap), so that nothing is sent in a burst to catch up.
    """

    rate_hz: int
    lead_s: float | None = None
    _sent_bytes: int = attrs.field(default=0, init=False)
    _sent_chars: int = attrs.field(default=0, init=False)
    _zero: float | None = attrs.field(default=None, init=False)

    async def until_due(self) -> None:
        """Return once the next sample is within the lead of being due."""
        if self.lead_s is None:
            return
        now, sent_s = trio.current_time(), self._sent_bytes / (2 * self.rate_hz)
        if self._zero is None or self._zero + sent_s < now:
            self._zero = now - sent_s
        due = self._zero + sent_s
        if due - self.lead_s > now:
            await trio.sleep_until(due - self.lead_s)

    async def until_played(self) -> None:
        """Return once everything sent has had the time to be played; at once when nothing is paced."""
        if self._zero is not None:
            await trio.sleep_until(self._zero + self._sent_bytes / (2 * self.rate_hz))

    def advance(self, pcm: bytes, text: str) -> TextMark:
        """Note that `pcm` and `text` are going out now; the alignment after them."""
        self._sent_bytes += len(pcm)
        self._sent_chars += len(text)
        return TextMark(self._sent_chars, round(self._sent_bytes * 500 / self.rate_hz))


def cut_speech(pcm: bytes, text: str, frame_bytes: int) -> list[tuple[bytes, str]]:
    """Cut a spoken piece into frames of at most `frame_bytes`, each with its share of the words, in proportion.

    Words are never split; concatenating the parts gives `pcm` and `text` back.
    """
    if len(pcm) <= frame_bytes:
        return [(pcm, text)]
    parts: list[tuple[bytes, str]] = []
    said = 0
    for start in range(0, len(pcm), frame_bytes):
        frame = pcm[start : start + frame_bytes]
        reached = len(text) * (start + len(frame)) // len(pcm)
        end = len(text) if start + len(frame) == len(pcm) else max(text.rfind(" ", 0, reached + 1) + 1, said)
        parts.append((frame, text[said:end]))
        said = end
    return parts
