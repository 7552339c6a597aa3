"""A progress bar on standard error for what takes longer than a blink. Owns its drawing; never measures time."""

import sys
from types import TracebackType
from typing import Final, TextIO

WIDTH: Final = 30
MEBIBYTE: Final = 1 << 20


class Bar:
    """Progress in bytes towards a known total, redrawn on a terminal, in steps of a tenth elsewhere."""

    def __init__(self, title: str, total: int, stream: TextIO | None = None) -> None:
        self._title = title
        self._total = max(total, 1)
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._steps = 100 if self._terminal else 10
        self._done = 0
        self._drawn = -1

    def __enter__(self) -> "Bar":
        self._draw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._terminal:
            self._stream.write("\n")

    def advance(self, count: int) -> None:
        """`count` more bytes are done."""
        self.reach(self._done + count)

    def reach(self, done: int) -> None:
        """`done` bytes are done in all; never goes back."""
        self._done = min(max(done, self._done), self._total)
        if self._done * self._steps // self._total > self._drawn:
            self._draw()

    def _draw(self) -> None:
        self._drawn = self._done * self._steps // self._total
        filled = self._done * WIDTH // self._total
        share = 100 * self._done // self._total
        line = (
            f"{self._title} [{'#' * filled}{'.' * (WIDTH - filled)}] {share:3d}% "
            f"{self._done // MEBIBYTE}/{self._total // MEBIBYTE} MiB"
        )
        self._stream.write(f"\r{line}" if self._terminal else f"{line}\n")
        self._stream.flush()
