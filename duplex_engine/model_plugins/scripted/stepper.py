"""The device side of the scripted plugin: renders marked sound, and fails, hangs or dies when told to.

Owns the questions it answers, and how long each takes. Knows no Trio and no sessions. It also keeps the worker honest:
a slot that is opened twice without a reset, or asked by somebody else than its holder, is a crash.
"""

import math
import os
import time
from collections.abc import Iterator, Mapping

import attrs
from outcome import Error, Value

from duplex_engine.errors import DuplexError
from duplex_engine.model_plugins.contract import Progress, Result, Work
from duplex_engine.model_plugins.scripted.speech import marked_pcm


@attrs.frozen
class Voice:
    """Render samples `start` to `start + count` of an answer; it takes `seconds`."""

    mark: int
    answer: int
    start: int
    count: int
    seconds: float


@attrs.frozen
class Flaw:
    """Cannot be computed: this one item fails."""

    mark: int
    message: str


@attrs.frozen
class Hanging:
    """Never ends."""

    mark: int


@attrs.frozen
class Dying:
    """The device program dies."""

    mark: int


class ScriptedCrash(DuplexError):
    """The script told the worker to die."""


class SlotsMixedUp(DuplexError):
    """A slot was let to two holders at once, or not reset between them."""


class ScriptedStepper:
    """Steps take time on the run's clock (inline host)."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._holders: dict[int, object] = {}

    def load(self, progress: Progress) -> None:
        """There is nothing to load."""
        progress("a script needs no weights", 1.0)

    def close(self) -> None:
        """There is nothing to release."""

    def duration_s(self, work: Work) -> float:
        """As long as the slowest item; `math.inf` hangs."""
        return max((self._seconds(payload) for _, _, payload in work.items), default=0.0)

    def _seconds(self, question: object) -> float:
        if isinstance(question, Hanging):
            return math.inf
        return question.seconds if isinstance(question, Voice) else self._step_s

    def step(self, work: Work) -> Iterator[Result]:
        """Answer every item."""
        for slot in work.resets:
            self._holders.pop(slot, None)
        for slot, specification in work.opens:
            self._open(slot, specification)
        for slot, ticket, question in work.items:
            yield Result(ticket, self._answer(slot, question))

    def _open(self, slot: int, specification: Mapping[str, object]) -> None:
        if slot in self._holders:
            raise SlotsMixedUp(f"slot {slot} was opened for a new lease without a reset")
        self._holders[slot] = specification["mark"]

    def _answer(self, slot: int, question: object) -> Value[object] | Error:
        match question:
            case Voice(mark=mark, answer=answer, start=start, count=count):
                self._check(slot, mark)
                return Value(marked_pcm(mark, answer, start, count))
            case Flaw(mark=mark, message=message):
                self._check(slot, mark)
                return Error(DuplexError(message))
            case Dying():
                self._die()
        raise SlotsMixedUp(f"slot {slot} was asked something that is no question: {question!r}")

    def _check(self, slot: int, mark: int) -> None:
        if self._holders[slot] != mark:
            raise SlotsMixedUp(f"slot {slot} belongs to mark {self._holders[slot]}, but mark {mark} asked")

    def _die(self) -> None:
        raise ScriptedCrash("the script said so")


class RealTimeStepper(ScriptedStepper):
    """Steps really take their time (thread host)."""

    def step(self, work: Work) -> Iterator[Result]:
        """Sleep, then answer."""
        seconds = self.duration_s(work)
        while math.isinf(seconds):
            time.sleep(60.0)
        time.sleep(seconds)
        yield from super().step(work)


class MortalStepper(RealTimeStepper):
    """The same in a process of its own (process host), which really dies."""

    def _die(self) -> None:
        os._exit(13)
