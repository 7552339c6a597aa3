"""Reading marked sound: proof that every sample a client received is its own, in order, from the first one.

Owns decoding and following. `duplex_engine.model_plugins.scripted.speech` documents the format and renders it. Marks
survive only where nothing touches the samples: PCM16 at the model's own output rate.
"""

import attrs
import numpy as np

from duplex_engine.model_plugins.scripted.speech import BLOCK, RADIX, SYNC, marked_pcm

SHORTEST = 2 * BLOCK - 1
"""So many samples in a row contain at least one whole block, wherever they begin."""


class WrongMark(AssertionError):
    """Sound that is not what its marks say, or not what should come next."""


@attrs.frozen
class Marked:
    """Samples `start` to `start + count` of answer number `answer` in the session with this mark."""

    mark: int
    answer: int
    start: int
    count: int


def decode(pcm: bytes) -> Marked:
    """Whose these samples are; every single one is checked.

    `pcm`: PCM16 little-endian, at least `SHORTEST` samples, beginning anywhere in an answer. Raises WrongMark.
    """
    samples = np.frombuffer(pcm, "<i2")
    if len(samples) < SHORTEST:
        raise WrongMark(f"{len(samples)} samples are too few to tell whose they are; it takes {SHORTEST}")
    found = np.flatnonzero(samples[:BLOCK] == SYNC)
    if not len(found):
        raise WrongMark("this is no marked sound: no block begins in it")
    offset = int(found[0])
    fields = [int(value) for value in samples[offset + 1 : offset + 6]]
    if min(fields) < 0:
        raise WrongMark(f"this is no marked sound: a block says {fields}")
    mark, answer, block = fields[0] * RADIX + fields[1], fields[2], fields[3] * RADIX + fields[4]
    marked = Marked(mark, answer, block * BLOCK - offset, len(samples))
    if marked.start < 0 or marked_pcm(mark, answer, marked.start, marked.count) != pcm:
        raise WrongMark(f"some samples do not belong to {marked}")
    return marked


class MarkReader:
    """Follows the answers that one session gives, and raises WrongMark at the first sample that does not fit.

    `mark`: the session's mark, None until the first sound if the session did not choose it.
    """

    def __init__(self, mark: int | None = None) -> None:
        self.mark = mark
        self._answers: dict[str, tuple[int, int]] = {}

    def hear(self, response_id: str, pcm: bytes) -> Marked:
        """Check the next sound of a response: it goes on where its sound before ended, or begins an answer."""
        if response_id in self._answers:
            answer, position = self._answers[response_id]
            heard = self._continued(answer, position, pcm)
        else:
            heard = self._begun(pcm)
        self._answers[response_id] = (heard.answer, heard.start + heard.count)
        return heard

    def samples(self, response_id: str) -> int:
        """How many samples of a response have been heard."""
        return self._answers.get(response_id, (0, 0))[1]

    def _continued(self, answer: int, position: int, pcm: bytes) -> Marked:
        assert self.mark is not None
        heard = Marked(self.mark, answer, position, len(pcm) // 2)
        if marked_pcm(self.mark, answer, position, heard.count) != pcm:
            raise WrongMark(f"expected {heard}, but heard {_describe(pcm)}")
        return heard

    def _begun(self, pcm: bytes) -> Marked:
        heard = decode(pcm)
        if self.mark is None:
            self.mark = heard.mark
        if heard.mark != self.mark:
            raise WrongMark(f"a session with mark {self.mark} heard {heard}")
        if heard.start != 0:
            raise WrongMark(f"a new response does not begin at its first sample: {heard}")
        if heard.answer in (answer for answer, _ in self._answers.values()):
            raise WrongMark(f"a new response repeats the sound of an older one: {heard}")
        return heard


def _describe(pcm: bytes) -> object:
    try:
        return decode(pcm)
    except WrongMark as error:
        return error
