"""What every part of the conversation machine sees: configuration in force, epoch label, clock, and the outbox.

Owns the effects of the command or fact at work, and which events a client of this profile is shown. Never decides
anything.
"""

from collections.abc import Callable
from uuid import uuid4

import attrs

from duplex_engine.config import SessionLimits
from duplex_engine.conversation.effects import Effect, Emit, SyncEffect, WaitingEffect
from duplex_engine.conversation.turns import Happening, TurnState, next_state
from duplex_engine.errors import CodedError, LocalProtocolError
from duplex_engine.protocol.capabilities import Capabilities
from duplex_engine.protocol.errors import ANY, error_from, in_ga
from duplex_engine.protocol.events import OverlapDecided, ResponseListen, ResponseSpeak, ServerEvent, TurnEvent
from duplex_engine.protocol.session_config import Profile, SessionConfig

DUPLEX_TIER = frozenset({ResponseListen, ResponseSpeak, OverlapDecided, TurnEvent})


def random_id(prefix: str) -> str:
    """A fresh id that no other session has: `prefix_` and 32 hexadecimal digits."""
    return f"{prefix}_{uuid4().hex}"


@attrs.define(eq=False)
class Scene:
    """Shared state of the parts of one conversation. `epoch` is a label that only grows (7.1).

    `closing`: the client asked for the end. `learning`: a fact is at work, so that nothing may wait.
    """

    session_id: str
    config: SessionConfig
    capabilities: Capabilities
    limits: SessionLimits
    input_rate_hz: int
    output_rate_hz: int
    now: Callable[[], float]
    new_id: Callable[[str], str]
    epoch: int = 0
    turn_id: int = 0
    turn_state: TurnState = TurnState.IDLE
    closing: bool = False
    learning: bool = False
    _effects: list[SyncEffect] = attrs.Factory(list)
    _waiting: WaitingEffect | None = None

    @property
    def strict(self) -> bool:
        """Whether events are shaped as the reference shapes them (0.5)."""
        return self.config.profile is Profile.STRICT

    def say(self, event: ServerEvent) -> None:
        """Tell the client, unless this event belongs to a tier it does not see."""
        if type(event) in DUPLEX_TIER and not self.config.duplex_events:
            return
        self._effects.append(Emit(event))

    def complain(self, error: CodedError, event_id: str | None = None, command_type: str = ANY) -> None:
        """Tell the client what is wrong, in the words of its profile. `command_type`: of the command that is refused."""
        event = error_from(error, event_id)
        self.say(event if self.strict else in_ga(event, command_type))

    def do(self, effect: SyncEffect) -> None:
        """Ask for a synchronous effect, after everything asked for so far."""
        self._effects.append(effect)

    def wait_for(self, effect: WaitingEffect) -> None:
        """Ask for the one effect that takes time; it comes last."""
        if self._waiting is not None:
            raise LocalProtocolError(f"{effect} cannot follow {self._waiting}: a command has one waiting effect")
        self._waiting = effect

    def happened(self, happening: Happening) -> None:
        """Move the reported turn state along."""
        self.turn_state = next_state(self.turn_state, happening)

    def take(self) -> list[Effect]:
        """Everything asked for, the waiting effect last; the outbox is empty afterwards."""
        effects: list[Effect] = [*self._effects]
        if self._waiting is not None:
            effects.append(self._waiting)
        self._effects, self._waiting = [], None
        return effects

    def take_sync(self) -> list[SyncEffect]:
        """The same where nothing may wait: a waiting effect is a mistake of ours and raises LocalProtocolError."""
        if self._waiting is not None:
            raise LocalProtocolError(f"a fact may not have the waiting effect {self._waiting}")
        effects, self._effects = self._effects, []
        return effects

    def discard(self) -> None:
        """Nothing of what was asked for happens: the command was refused, or its obeying had crashed."""
        self._effects, self._waiting = [], None
