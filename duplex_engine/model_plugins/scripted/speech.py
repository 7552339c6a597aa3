"""The scripted voice: sound that says of each sample whose it is, and the words that go with each piece of it.

Owns the format of marked sound. `duplex_engine.testing.marks` reads it back. Never knows a session.

Marked sound is a sequence of blocks of 8 samples (PCM16), each block naming the session's mark, the number of the
answer in its session, and its own place in the answer:

    -4096, mark // 4096, mark % 4096, answer % 4096, block // 4096, block % 4096, check, 4095 - check

where `block` counts from 0 at the first sample of the answer and `check` is the exclusive or of the five fields.
"""

from collections.abc import Iterator

import attrs
import numpy as np

BLOCK = 8
SYNC = -4096
RADIX = 4096
MARKS = RADIX * RADIX
"""Marks lie in 0 .. MARKS - 1."""


def marked_pcm(mark: int, answer: int, start: int, count: int) -> bytes:
    """Samples `start` to `start + count` of an answer: PCM16 mono, little-endian."""
    first, end = start // BLOCK, -(-(start + count) // BLOCK)
    blocks = np.empty((end - first, BLOCK), np.int32)
    numbers = np.arange(first, end)
    blocks[:, 0] = SYNC
    blocks[:, 1], blocks[:, 2] = divmod(mark, RADIX)
    blocks[:, 3] = answer % RADIX
    blocks[:, 4], blocks[:, 5] = numbers // RADIX, numbers % RADIX
    blocks[:, 6] = np.bitwise_xor.reduce(blocks[:, 1:6], axis=1)
    blocks[:, 7] = RADIX - 1 - blocks[:, 6]
    skipped = start - first * BLOCK
    return blocks.reshape(-1)[skipped : skipped + count].astype("<i2").tobytes()


@attrs.frozen
class Piece:
    """Samples `start` to `start + count` of an answer, and the words spoken in them."""

    start: int
    count: int
    text: str


def pieces(text: str, samples: int, size: int) -> Iterator[Piece]:
    """An answer of `samples` cut into pieces of `size` samples; words fall in proportion and are never split."""
    said = 0
    for start in range(0, samples, size):
        end = min(start + size, samples)
        reached = len(text) if end == samples else max(said, text.rfind(" ", 0, len(text) * end // samples + 1) + 1)
        yield Piece(start, end - start, text[said:reached])
        said = reached
