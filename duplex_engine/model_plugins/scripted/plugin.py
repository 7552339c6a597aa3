"""The scripted plugin: plays a script instead of running a model. For tests and demonstrations only.

Owns the facts that the engine is told. `script.py` documents the language, `options.py` what can be chosen,
`performance.py` how a script is played, `speech.py` the marked sound that comes out.

A session may bring its own in `extra_body`: `script`, `mark` (see `speech.py`) and `worker` (which renders its voice).
All three are read when the session opens.
"""

import itertools
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version

import attrs
import structlog

from duplex_engine.config import SessionLimits
from duplex_engine.conversation.effects import Turn
from duplex_engine.model_plugins.behaviours import Behaviour, NativeDuplex, TurnBased
from duplex_engine.model_plugins.contract import (
    Epoch,
    HostKind,
    Rehearsal,
    Response,
    UnitFormat,
    WorkerSpec,
)
from duplex_engine.model_plugins.scripted.options import SCRIPTS, STEPPERS, ScriptedOptions, ScriptedPlan, plan_session
from duplex_engine.model_plugins.scripted.performance import Memory, ScriptedFailure, Stage
from duplex_engine.model_plugins.scripted.script import parse
from duplex_engine.protocol.capabilities import Capabilities, Interrupt, TurnPolicy
from duplex_engine.protocol.session_config import SessionConfig

NOTICE = "for tests and demonstrations only: a script is played, no model is running"
REHEARSED = parse('speak "one two" for 0.1')

log = structlog.get_logger()


class _Scripted(Behaviour):
    """What the native and the turn-based player have in common."""

    name = "scripted"
    turn_policy: TurnPolicy

    def __init__(self, options: ScriptedOptions) -> None:
        self.options = options
        self._script = options.read_script(options.script or SCRIPTS[options.mode], "script")
        self._marks = itertools.count(1)

    def capabilities(self, max_sessions: int | None) -> Capabilities:
        """Facts; they say that nothing here is real."""
        return Capabilities(
            turn_policy=self.turn_policy,
            client_commit=self.options.client_commit,
            barge_in=self.options.barge_in,
            interrupt=Interrupt(self.options.interrupt),
            resume=self.options.resume,
            text_only_turns=self.turn_policy is TurnPolicy.TURN,
            detects_turns=self.turn_policy is TurnPolicy.TURN,
            tools=True,
            chat=self.options.chat and self.turn_policy is TurnPolicy.TURN,
            chunk_period_ms=self.options.unit_ms,
            max_sessions=self.options.max_sessions if max_sessions is None else max_sessions,
            test_only=True,
        )

    def unit_format(self) -> UnitFormat:
        """Units of `unit_ms`."""
        rate_hz = self.options.input_rate_hz
        return UnitFormat(
            rate_hz=rate_hz, samples=round(rate_hz * self.options.unit_s), output_rate_hz=self.options.output_rate_hz
        )

    def workers(self, max_sessions: int) -> Sequence[WorkerSpec]:
        """One worker for each name, with a slot for every session."""
        host = HostKind(self.options.host)
        return tuple(
            WorkerSpec(
                name=name,
                stepper=STEPPERS[host],
                arguments={"step_s": self.options.step_ms / 1000},
                slots=max_sessions,
                host=host,
                step_timeout_s=self.options.step_timeout_s,
            )
            for name in self.options.workers
        )

    def describe(self) -> Sequence[Mapping[str, object]]:
        """The model that is not there."""
        return ({"name": self.name, "licence": "Apache-2.0", "version": version("duplex-engine"), "notice": NOTICE},)

    def plan(self, config: SessionConfig) -> ScriptedPlan:
        """The script of a session: its own, or the plugin's."""
        return plan_session(self.options, self._script, config)

    def remember(self, limits: SessionLimits) -> Memory:
        """A mark that no other session gets, and a place at the script's beginning."""
        return Memory(mark=next(self._marks))

    async def warm_up(self, rehearsal: Rehearsal) -> None:
        """Speak a few words to nobody, and say that this is no model."""
        log.warning("scripted_plugin", notice=NOTICE)
        plan = attrs.evolve(self.plan(SessionConfig()), script=REHEARSED)
        async with rehearsal.epoch(plan, Memory(mark=0)) as epoch:
            _begin(epoch)
            await self._rehearse(epoch)

    @abstractmethod
    async def _rehearse(self, epoch: Epoch) -> None:
        """Give one answer."""


class ScriptedNative(_Scripted, NativeDuplex):
    """Plays natively: the script says when to listen and when to speak."""

    turn_policy = TurnPolicy.MODEL

    async def converse(self, epoch: Epoch) -> None:
        """Play the script, unit by unit."""
        _begin(epoch)
        await Stage(epoch, self.options).play()

    async def _rehearse(self, epoch: Epoch) -> None:
        await Stage(epoch, self.options).play()


class ScriptedTurns(_Scripted, TurnBased):
    """Plays turn by turn: each turn gets the next answer of the script."""

    turn_policy = TurnPolicy.TURN

    async def converse(self, epoch: Epoch) -> None:
        """Answer turn after turn; an answer that was told to fail does not end the context."""
        _begin(epoch)
        while True:
            with suppress(ScriptedFailure):
                await super().converse(epoch)

    async def answer(self, epoch: Epoch, turn: Turn, response: Response) -> None:
        """Play the next answer."""
        await Stage(epoch, self.options).answer(turn, response)

    async def _rehearse(self, epoch: Epoch) -> None:
        turn = await epoch.next_turn()
        async with epoch.response(turn) as response:
            await self.answer(epoch, turn, response)


def ScriptedPlugin(**options: object) -> ScriptedNative | ScriptedTurns:  # noqa: N802 - stands for two classes
    """The scripted plugin with these options (see ScriptedOptions). Raises ConfigRejected, TypeError."""
    chosen = ScriptedOptions(**options)  # type: ignore[arg-type]
    return ScriptedNative(chosen) if chosen.mode == "native" else ScriptedTurns(chosen)


def _begin(epoch: Epoch) -> None:
    assert isinstance(epoch.plan, ScriptedPlan)
    assert isinstance(epoch.memory, Memory)
    epoch.memory.begin(epoch.plan.script, epoch.cause)
