"""What an epoch and its responses need from whoever owns them: a session, or a rehearsal.

Owns the interface, and the rehearsal's mute floor. The floor is where speech goes; an epoch never sees more of its
session than this.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import attrs

from duplex_engine.audio.intake import UnitIntake
from duplex_engine.config import SessionLimits
from duplex_engine.conversation.effects import Message
from duplex_engine.conversation.facts import Fact, FunctionOutput
from duplex_engine.model_plugins.contract import UnitFormat


class Floor(Protocol):
    """Where an epoch speaks and where its input comes from. `outputs`: of functions, that the next unit will carry."""

    unit_format: UnitFormat
    limits: SessionLimits
    intake: UnitIntake
    outputs: list[FunctionOutput]

    @property
    def native(self) -> bool:
        """Whether the model decides by itself."""

    @property
    def hears_units(self) -> bool:
        """Whether the model hears units, so that a turn it is offered has to be played to it."""

    @property
    def lead_s(self) -> float | None:
        """How far audio may run ahead of its due time."""

    @property
    def late_s(self) -> float:
        """How late a unit may come before silence is heard in its place."""

    @property
    def endless(self) -> bool:
        """Whether an answer may last for ever."""

    def learn(self, fact: Fact) -> None:
        """Tell the conversation what the model did; synchronous."""

    def history(self) -> Sequence[Message]: ...

    def input_taken(self) -> None:
        """A unit left the intake."""


@attrs.define
class MuteFloor:
    """The floor of a rehearsal: facts go nowhere, there is no history and no input."""

    unit_format: UnitFormat
    limits: SessionLimits
    intake: UnitIntake
    native: bool
    hears_units: bool = False
    lead_s: float | None = None
    late_s: float = 0.0
    endless: bool = False
    on_unit: Callable[[], object] = lambda: None
    outputs: list[FunctionOutput] = attrs.Factory(list)

    def learn(self, fact: Fact) -> None:
        """Nobody listens."""

    def history(self) -> Sequence[Message]:
        """Nothing was said."""
        return ()

    def input_taken(self) -> None:
        """The rehearsal counts."""
        self.on_unit()
