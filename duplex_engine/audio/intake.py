"""The input of a native session between decoder and model: cut into units, counted in bytes.

Owns samples that no unit has taken yet, and the pictures and listening marks that belong to those units. Never refuses
anything: the limit on pending bytes is the caller's to enforce.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np

from duplex_engine.audio.pcm import Samples


class UnitIntake:
    """Cuts a stream of samples into units of exactly `unit_samples`, however the stream was cut before.

    `video_frames` and `force_listen` describe the unit taken last; `dropped_frames` counts pictures that a newer one
    of the same unit replaced.
    """

    def __init__(self, unit_samples: int) -> None:
        if unit_samples < 1:
            raise ValueError(f"a unit needs at least one sample, not {unit_samples}")
        self.unit_samples = unit_samples
        self.video_frames: Sequence[bytes] = ()
        self.force_listen = False
        self.dropped_frames = 0
        self._buffer: Samples
        self._start: int
        self._end: int
        self._forget()

    @property
    def pending_samples(self) -> int:
        """Samples that no unit has taken."""
        return self._end - self._start

    @property
    def pending_bytes(self) -> int:
        """Memory that waits here for the model: float32 samples and pictures."""
        return 4 * self.pending_samples + self._frame_bytes

    def push(self, samples: Samples, *, video_frames: Sequence[bytes] = (), force_listen: bool = False) -> None:
        """Append samples, shape (n,), n >= 0.

        The pictures belong to the last unit that these samples complete, or else to the unit they leave open; per unit
        the newest pictures win. `force_listen` holds for every unit that gets some of these samples.
        """
        first_unit = self._unit_in_progress()
        self._append(samples)
        open_unit = self._unit_in_progress()
        if video_frames:
            self._show(open_unit - 1 if open_unit > first_unit else open_unit, video_frames)
        if force_listen:
            open_unit_touched = self.pending_samples % self.unit_samples > 0
            self._forced.update(range(first_unit, open_unit + open_unit_touched))

    def unit(self) -> Samples | None:
        """Take the next complete unit, shape (unit_samples,), a fresh array; None when none is complete."""
        if self.pending_samples < self.unit_samples:
            return None
        stop = self._start + self.unit_samples
        samples = self._buffer[self._start : stop].copy()
        self._start = stop
        if self._start == self._end:
            self._empty_buffer()
        self._take_marks()
        return samples

    def pad(self) -> None:
        """The client ended its turn: complete a unit that has been begun with zeros."""
        begun = self.pending_samples % self.unit_samples
        if begun:
            self._append(np.zeros(self.unit_samples - begun, np.float32))

    def clear(self) -> None:
        """Throw away everything that no unit has taken."""
        self._forget()

    def _forget(self) -> None:
        self._taken = 0
        self._frames: deque[tuple[int, Sequence[bytes]]] = deque()
        self._frame_bytes = 0
        self._forced: set[int] = set()
        self._empty_buffer()

    def _empty_buffer(self) -> None:
        # A burst may have grown the buffer to megabytes; an idle session must not keep them.
        self._buffer = np.empty(2 * self.unit_samples, np.float32)
        self._start = self._end = 0

    def _unit_in_progress(self) -> int:
        return self._taken + self.pending_samples // self.unit_samples

    def _append(self, samples: Samples) -> None:
        if self._end + len(samples) > len(self._buffer):
            self._make_room(len(samples))
        self._buffer[self._end : self._end + len(samples)] = samples
        self._end += len(samples)

    def _make_room(self, count: int) -> None:
        pending = self.pending_samples
        # Twice what is needed: the copy is paid for by as many samples as it moves.
        roomier = np.empty(max(2 * (pending + count), 2 * self.unit_samples), np.float32)
        roomier[:pending] = self._buffer[self._start : self._end]
        self._buffer, self._start, self._end = roomier, 0, pending

    def _show(self, unit: int, video_frames: Sequence[bytes]) -> None:
        if self._frames and self._frames[-1][0] == unit:
            _, replaced = self._frames.pop()
            self.dropped_frames += len(replaced)
            self._frame_bytes -= sum(map(len, replaced))
        self._frames.append((unit, tuple(video_frames)))
        self._frame_bytes += sum(map(len, video_frames))

    def _take_marks(self) -> None:
        self.video_frames = ()
        if self._frames and self._frames[0][0] == self._taken:
            _, self.video_frames = self._frames.popleft()
            self._frame_bytes -= sum(map(len, self.video_frames))
        self.force_listen = self._taken in self._forced
        self._forced.discard(self._taken)
        self._taken += 1
