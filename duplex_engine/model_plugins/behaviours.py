"""The two behaviours a plugin can have, with defaults for everything that is not its own business.

`NativeDuplex`: the model hears units and decides by itself; write `converse`. `TurnBased`: the engine offers committed
turns; write `answer`. Owns those defaults. Never knows a concrete model.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from duplex_engine.audio.vad import EnergyDetector, SpeechDetector
from duplex_engine.config import SessionLimits
from duplex_engine.conversation.effects import Turn
from duplex_engine.errors import CodedError, LeaseLost, StepFailed
from duplex_engine.model_plugins.contract import Epoch, Rehearsal, Response, SessionPlan, UnitFormat, WorkerSpec
from duplex_engine.protocol.capabilities import Capabilities
from duplex_engine.protocol.session_config import SessionConfig


class Behaviour(ABC):
    """What both behaviours share."""

    name: str

    @abstractmethod
    def capabilities(self, max_sessions: int | None) -> Capabilities: ...

    @abstractmethod
    def unit_format(self) -> UnitFormat: ...

    @abstractmethod
    async def converse(self, epoch: Epoch) -> None: ...

    def workers(self, max_sessions: int) -> Sequence[WorkerSpec]:
        """No workers."""
        return ()

    def detector(self) -> SpeechDetector:
        """Anything louder than the wire's default floor is speech; plugins with a real detector return that."""
        return EnergyDetector(SessionConfig().overlap_silence_rms)

    def describe(self) -> Sequence[Mapping[str, object]]:
        """Nothing beyond the name."""
        return ()

    def plan(self, config: SessionConfig) -> SessionPlan:
        """Every configuration is fine, nothing is paced."""
        return SessionPlan()

    def replan(
        self, plan: SessionPlan, config: SessionConfig, patch: Mapping[str, object], *, started: bool
    ) -> SessionPlan:
        """Plan afresh."""
        return self.plan(config)

    def remember(self, limits: SessionLimits) -> object:
        """No memory."""
        return None

    def overloaded(self) -> str | None:
        """Seats are the only limit."""
        return None


class NativeDuplex(Behaviour):
    """The model hears units and decides by itself when to speak."""

    async def warm_up(self, rehearsal: Rehearsal) -> None:
        """Run `converse` on a few units of silence."""
        async with rehearsal.epoch(self.plan(SessionConfig(native=True)), None) as epoch:
            await self.converse(epoch)


class TurnBased(Behaviour):
    """The engine offers committed turns; barge-in ends the response, and with it the code that was answering."""

    @abstractmethod
    async def answer(self, epoch: Epoch, turn: Turn, response: Response) -> None:
        """Answer one turn. Leases taken here are given back the moment the answer is interrupted."""

    async def converse(self, epoch: Epoch) -> None:
        """Answer turn after turn; an answer that failed has been told, the conversation goes on."""
        while True:
            turn = await epoch.next_turn()
            try:
                async with epoch.response(turn) as response:
                    await self.answer(epoch, turn, response)
            except* (LeaseLost, StepFailed, CodedError):
                pass  # told to the client when the response ended

    async def warm_up(self, rehearsal: Rehearsal) -> None:
        """Answer one silent turn."""
        async with rehearsal.epoch(self.plan(SessionConfig()), None) as epoch:
            turn = await epoch.next_turn()
            async with epoch.response(turn) as response:
                await self.answer(epoch, turn, response)
