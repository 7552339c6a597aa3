"""What a model plugin gives the engine and what it gets: the whole seam between conversation and model.

A plugin has two halves that never import each other's world: `plugin.py` (Trio side: facts, configuration, `converse`)
and steppers (device side: synchronous, no Trio, no sessions). Owns the types of both seams. Never runs anything.

A plugin sees no ids, no epochs, no requests and no cancellation API. State has a natural home: one answer in local
variables of the response block, one context in local variables of `converse`, one slot on the device, one session in
`memory`.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import Protocol

import attrs
from outcome import Error, Value

from duplex_engine.audio.pcm import Samples
from duplex_engine.audio.vad import SpeechDetector
from duplex_engine.config import SessionLimits
from duplex_engine.conversation.effects import Message, Turn, Utterance
from duplex_engine.conversation.facts import FunctionCall, FunctionOutput, TextMark, Usage
from duplex_engine.protocol.capabilities import Capabilities, Interrupt
from duplex_engine.protocol.session_config import SessionConfig

Progress = Callable[[str, float], None]
"""Called while loading with what is being done and the fraction done (0..1)."""


# --- Device side -------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Work:
    """What a stepper is asked to do in one step. All of it crosses a process boundary, so payloads must pickle.

    `resets`: slots whose state must be forgotten before anything else. `drops`: tickets whose caller is gone.
    `opens`: (slot, specification) of newly let slots. `items`: (slot, ticket, payload), at most one per slot.
    """

    resets: tuple[int, ...] = ()
    drops: tuple[int, ...] = ()
    opens: tuple[tuple[int, Mapping[str, object]], ...] = ()
    items: tuple[tuple[int, int, object], ...] = ()


@attrs.frozen
class Result:
    """One answer to one ticket. `last`: no further answer to this ticket follows."""

    ticket: int
    outcome: Value[object] | Error
    last: bool = True


class Stepper(Protocol):
    """The device program of a worker: synchronous, called from one thread."""

    def load(self, progress: Progress) -> None:
        """Open devices and weights. Raises DuplexError with the way out when something is missing."""

    def step(self, work: Work) -> Iterable[Result]:
        """Do one step. Called again (with empty work) while any ticket is open; must return within the step timeout.

        One bad item is a Result with outcome.Error; raising is a crash of the worker.
        """

    def close(self) -> None:
        """Release what `load` took."""


class TimedStepper(Stepper, Protocol):
    """A stepper for the inline host, whose steps take simulated time."""

    def duration_s(self, work: Work) -> float:
        """Seconds of the run's clock that a step of `work` takes; `math.inf` hangs."""


class HostKind(Enum):
    """Where a stepper runs."""

    INLINE = "inline"
    THREAD = "thread"
    PROCESS = "process"


@attrs.frozen(kw_only=True)
class WorkerSpec:
    """One worker: which stepper, where it runs, how many slots it lets.

    `stepper`: dotted path `package.module:Class` (a process host imports it in the child), called with `arguments`.
    `slots`: rows or concurrent requests. `gather_s`: wait for the slots that usually arrive together.
    `nice`: priority added in a child process. `environment`: set in the child before anything is imported.
    """

    name: str
    stepper: str
    arguments: Mapping[str, object] = attrs.Factory(dict)
    slots: int = 1
    host: HostKind = HostKind.PROCESS
    gather_s: float = 0.0
    step_timeout_s: float = 30.0
    load_timeout_s: float = 300.0
    nice: int = 0
    environment: Mapping[str, str] = attrs.Factory(dict)


# --- Trio side: what a plugin may do inside `converse` -------------------------------------------------------------


class EpochCause(Enum):
    """Why this life of the model's context began."""

    OPENED = "opened"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@attrs.frozen(kw_only=True)
class AudioUnit:
    """Exactly one unit of input. `samples`: float32 mono (UnitFormat.samples,) at the model's rate.

    `silent`: continuation, no real input was there. `last`: the engine's bound on silence is reached, yield the turn.
    `function_outputs`: what calls of the model came to since the unit before. `behind`: complete units that wait behind
    this one.
    """

    samples: Samples
    video_frames: Sequence[bytes] = ()
    force_listen: bool = False
    silent: bool = False
    last: bool = False
    function_outputs: Sequence[FunctionOutput] = ()
    behind: int = 0


@attrs.frozen(kw_only=True)
class UnitFormat:
    """Input and output sound of a model, mono: rates in Hz, `samples` per input unit."""

    rate_hz: int
    samples: int
    output_rate_hz: int

    @property
    def period_s(self) -> float:
        """Seconds of one unit."""
        return self.samples / self.rate_hz


class Stream(Protocol):
    """Answers of one streaming call, in order; ends after the last one."""

    def __aiter__(self) -> "Stream": ...
    async def __anext__(self) -> object: ...


class Lease(Protocol):
    """The scoped exclusive use of a worker's slot. Leaving the block gives it back, at once."""

    async def step(self, payload: object) -> object:
        """One question, one answer. Raises LeaseLost when the worker dies, StepFailed when this item failed."""

    def stream(self, payload: object) -> AbstractAsyncContextManager[Stream]:
        """One question, many answers; leaving the block abandons the rest."""


class Response(Protocol):
    """An answer being given. Used after its block has ended it raises ResponseOver.

    `plan`: the session's plan when this answer was announced; what changed since is the next one's business.
    """

    plan: object

    async def audio(self, pcm: bytes, *, text: str = "", mark: TextMark | None = None) -> None:
        """Say `pcm` (PCM16 mono at the output rate) with the transcript that belongs to it.

        Returns once the sound is within the plugin's lead of being due (at once when the plugin does not pace).
        """

    async def text(self, delta: str) -> None:
        """Transcript (or text) without sound."""

    async def played_out(self) -> None:
        """Wait until a listener who plays at pace has heard everything; at once for a plugin that does not pace.

        An interruption until then still cuts the answer.
        """

    async def call(self, function: FunctionCall) -> None:
        """Ask the client to call a function.

        A native model gets the output with a unit. With turns the call is said when the answer ends, unless it was
        stopped or failed; the output is in the history of a later turn.
        """

    def yields(self, reason: str = "model_listen") -> None:
        """The model stops by deciding to listen: the response ends with a terminal listen."""

    def finish(self, reason: str = "stop", usage: Usage | None = None) -> None:
        """Say why the answer ends, and what it cost; without it the reason is "stop"."""


class Epoch(Protocol):
    """One life of a model's context, as the plugin sees it."""

    plan: object
    memory: object
    cause: EpochCause

    @property
    def history(self) -> Sequence[Message]:
        """The conversation so far: only what was really said and heard."""

    def lease(self, worker: str, /, **specification: object) -> AbstractAsyncContextManager[Lease]:
        """Borrow a slot of a worker for the block; waits for one. Raises LeaseLost when none comes in time."""

    async def next_unit(self, *, continuing: bool = False) -> AudioUnit:
        """The next unit of input. `continuing`: if none is there when it is due, a unit of silence (6.7).

        Outputs of functions ride on it; when one waits, silence is due even without `continuing`.
        """

    async def next_turn(self) -> Turn:
        """The next committed turn that wants an answer."""

    async def overhear(self) -> Utterance:
        """Wait until the user's open turn changes (grows, pauses, goes on, is committed or dropped); then that turn."""

    def response(self, turn: Turn | None = None) -> AbstractAsyncContextManager[Response]:
        """Answer. Leaving the block ends the answer; an interruption leaves it early and execution goes on after it."""

    async def listen(self, reason: str = "model_listen") -> None:
        """The model decided to listen on this unit."""

    async def heard(self, text: str, *, turn: Turn | None = None, final: bool = True) -> None:
        """Words recognised in a user turn (None: the newest)."""

    async def rolled(self) -> None:
        """The context has begun to forget its beginning: have the client told."""


class Rehearsal(Protocol):
    """A mute epoch for warm-up: facts go nowhere, input is a few units of silence and one silent turn."""

    def epoch(self, plan: "SessionPlan", memory: object) -> AbstractAsyncContextManager[Epoch]:
        """A rehearsal epoch for the block; it ends by itself once its units are used up."""


@attrs.frozen(kw_only=True)
class SessionPlan:
    """What a plugin made of a session's configuration; plugins subclass it with their own fields.

    `lead_s`: how far audio may run ahead of its due time; None: unpaced. `interrupt`: what an interruption ends in this
    session, if not what the capabilities say. `endless`: an answer lasts as long as its context, without any bound on its
    time. `max_backlog_s`: input that waits longer than this is dropped, the oldest first. `late_s`: how late a unit may come
    before silence is heard in its place.
    """

    lead_s: float | None = None
    interrupt: Interrupt | None = None
    endless: bool = False
    max_backlog_s: float = math.inf
    late_s: float = 0.0


class ModelPlugin(Protocol):
    """A model, as the engine knows it. The behaviours in `behaviours.py` carry defaults for most of it."""

    name: str

    def capabilities(self, max_sessions: int | None) -> Capabilities:
        """Facts; `max_sessions` None asks for the plugin's own default."""

    def unit_format(self) -> UnitFormat: ...

    def workers(self, max_sessions: int) -> Sequence[WorkerSpec]: ...

    def detector(self) -> SpeechDetector:
        """A new voice detector for one session."""

    def describe(self) -> Sequence[Mapping[str, object]]:
        """The models in use: name, licence, version, for `/v1/models` and the start-up log."""

    def plan(self, config: SessionConfig) -> SessionPlan:
        """Validate a session's configuration. Pure; raises ConfigRejected."""

    def replan(
        self, plan: SessionPlan, config: SessionConfig, patch: Mapping[str, object], *, started: bool
    ) -> SessionPlan:
        """The plan for a changed configuration, or ConfigRejected. `started`: input has reached the model."""

    def remember(self, limits: SessionLimits) -> object:
        """Fresh per-session memory, any type."""

    def overloaded(self) -> str | None:
        """Why nobody else can be served now without those who are there noticing; None when one can."""

    async def warm_up(self, rehearsal: Rehearsal) -> None:
        """Take the production path once, before readiness."""

    async def converse(self, epoch: Epoch) -> None:
        """One life of model context. Runs until it is cancelled; returning or raising is a failed epoch."""
