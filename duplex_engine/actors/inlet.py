"""What waits for the model of a session that hears units: sound, pictures, outputs of functions.

Owns how old it gets, what is dropped because it waited too long, and when that is worth a notice. Never decides what is
input; never says anything.
"""

import numpy as np
import trio

from duplex_engine.actors.input_age import InputAge
from duplex_engine.actors.observations import InputAged, InputDropped, Observe
from duplex_engine.audio.intake import UnitIntake
from duplex_engine.config import SessionLimits
from duplex_engine.conversation.effects import Feed
from duplex_engine.conversation.facts import FunctionOutput
from duplex_engine.model_plugins.contract import UnitFormat


class Inlet:
    """One session's input. `outputs`: of functions, that the next unit will carry."""

    def __init__(self, session_id: str, unit_format: UnitFormat, limits: SessionLimits, observe: Observe) -> None:
        self.intake = UnitIntake(unit_format.samples)
        self.outputs: list[FunctionOutput] = []
        self._session_id = session_id
        self._format = unit_format
        self._observe = observe
        self._age = InputAge(limits.lag_notice_ms / 1000)

    def take_in(self, feed: Feed, *, answering: bool, max_backlog_s: float) -> bool:
        """More input; whether a unit is complete. `answering`: the model is giving an answer."""
        self.intake.push(feed.samples, video_frames=feed.video_frames, force_listen=feed.force_listen)
        if feed.commit:
            self._end_turn(answering)
        self._drop_backlog(max_backlog_s)
        units = self._units
        self._age.waiting(units, trio.current_time())
        return units > 0

    @property
    def _units(self) -> int:
        return self.intake.pending_samples // self._format.samples

    def _end_turn(self, answering: bool) -> None:
        self.intake.pad()
        if not self.intake.pending_samples and not answering:
            # The model has taken everything already; it needs one more unit to decide that it has been asked.
            self.intake.push(np.zeros(self._format.samples, np.float32))

    def _drop_backlog(self, max_backlog_s: float) -> None:
        period_s = self._format.period_s
        dropped = 0
        while self._units > 1 and (self._units - 1) * period_s >= max_backlog_s:
            self.intake.unit()
            self._age.taken(trio.current_time())
            dropped += 1
        if dropped:
            self._age.drop(dropped * period_s)
            self._observe(InputDropped(self._session_id, dropped))

    def refused(self, seconds: float) -> None:
        """So much sound did not even get here."""
        self._age.drop(seconds)

    def taken(self) -> None:
        """The model took a unit."""
        age_s = self._age.taken(trio.current_time())
        if age_s is not None:
            self._observe(InputAged(self._session_id, age_s))

    def clear(self) -> None:
        """Throw away the sound that waits; outputs of functions are owed all the same."""
        self.intake.clear()
        self._age.forget()

    def lag_ms(self) -> tuple[int, int] | None:
        """Age of the oldest unit and how much was lost since the last notice, in milliseconds, when a notice is due."""
        lag_s = self._age.notice(trio.current_time())
        return None if lag_s is None else (round(1000 * lag_s), round(1000 * self._age.take_dropped()))
