"""What the engine tells observers (metrics, logs, tests): frozen values, handed over synchronously.

An observer is a plain function called in the step that observed; it must return at once and must not raise. There is no
queue that could fill up, and nothing to lose.
"""

from collections.abc import Callable

import attrs


@attrs.frozen
class SessionOpened:
    session_id: str


@attrs.frozen
class SessionEnded:
    session_id: str
    reason: str


@attrs.frozen
class SeatRefused:
    reason: str


@attrs.frozen
class InputRefusedByLimit:
    """Client input was refused with `reason`, an error code."""

    session_id: str
    reason: str


@attrs.frozen
class FirstAudio:
    """Seconds from the end of the user's turn to the first sound of its answer."""

    session_id: str
    seconds: float


@attrs.frozen
class InterruptionSettled:
    """Seconds from an interruption being decided to the last byte of the old answer leaving."""

    session_id: str
    seconds: float


@attrs.frozen
class ResponseFinished:
    session_id: str
    status: str


@attrs.frozen
class InputAged:
    """Seconds the oldest input of a session had waited when the model took it."""

    session_id: str
    seconds: float


@attrs.frozen
class StepTimed:
    worker: str
    seconds: float
    items: int


@attrs.frozen
class OutputDropped:
    """An answer of a worker to a caller that had gone."""

    worker: str


@attrs.frozen
class WorkerStarted:
    worker: str
    seconds: float


@attrs.frozen
class WorkerLost:
    worker: str
    cause: str


@attrs.frozen
class LoadProgressed:
    """A worker is loading: what it does, and the fraction done (0..1)."""

    worker: str
    what: str
    fraction: float


@attrs.frozen
class InputDropped:
    """Units that waited too long for the model and were thrown away."""

    session_id: str
    units: int


@attrs.frozen
class OutputPurged:
    """Audio deltas of an interrupted answer that were removed before anybody read them."""

    session_id: str
    events: int


Observation = (
    SessionOpened
    | SessionEnded
    | SeatRefused
    | InputRefusedByLimit
    | FirstAudio
    | InterruptionSettled
    | ResponseFinished
    | InputAged
    | StepTimed
    | OutputDropped
    | WorkerStarted
    | WorkerLost
    | LoadProgressed
    | OutputPurged
    | InputDropped
)
Observe = Callable[[Observation], None]


def ignore(observation: Observation) -> None:
    """The observer of an engine that nobody watches."""
