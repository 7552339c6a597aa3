"""The epochs of one session: one at a time, the next one when the last has been left.

Owns which epoch is the present one, the plan it lives by, and how often the model may fail. Never ends a session: it tells
whoever does.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import trio

from duplex_engine.actors.epoch import Epoch, Lender
from duplex_engine.actors.floor import Floor
from duplex_engine.actors.response import failure
from duplex_engine.actors.supervisor import RestartBudget, contain
from duplex_engine.errors import CodedError
from duplex_engine.model_plugins.contract import EpochCause, ModelPlugin, SessionPlan
from duplex_engine.protocol.errors import ends_session


class Succession:
    """The epochs of a session. `epoch`: the one that lives, or is about to. `plan`: what it lives by.

    `failed` is called with an error that no further epoch can make up for. `log`: bound to the session.
    """

    def __init__(
        self,
        floor: Floor,
        plugin: ModelPlugin,
        lender: Lender,
        plan: SessionPlan,
        *,
        failed: Callable[[CodedError], None],
        log: Any,
    ) -> None:
        self.plan = plan
        self._floor = floor
        self._plugin = plugin
        self._lender = lender
        self._failed = failed
        self._log = log
        self._memory = plugin.remember(floor.limits)
        self._failures = RestartBudget(floor.limits.failed_epochs, floor.limits.failed_epochs_window_s)
        self.epoch = self._next(EpochCause.OPENED)

    def _next(self, cause: EpochCause) -> Epoch:
        return Epoch(self._floor, self._lender, self.plan, self._memory, cause)

    async def run(self) -> None:
        """Live one epoch after the other, for ever."""
        while True:
            epoch = self.epoch
            crash = await contain(partial(epoch.run, self._plugin))
            if not epoch.scope.cancel_called:  # it ended by itself, so that nothing is in its place yet
                self.epoch = self._next(EpochCause.FAILED)
            if crash is not None:
                await self._recover(crash)

    async def _recover(self, crash: Exception) -> None:
        error = CodedError(*failure(crash))
        if not ends_session(error.code):
            self._log.error("epoch_failed", exc_info=crash)
        await trio.lowlevel.checkpoint_if_cancelled()  # what ended the session as well has been said
        pause = self._failures.spend(trio.current_time())
        if math.isinf(pause):
            error = CodedError("model_unavailable", f"the model failed {self._failures.restarts + 1} times: {crash}")
        if ends_session(error.code):
            self._failed(error)
        await trio.sleep(pause)

    def interrupt(self, reason: str, *, whole_epoch: bool) -> Sequence[trio.Event]:
        """Order the answers to be left, or the epoch as a whole; returns what is over when they are."""
        if not whole_epoch:
            return self.epoch.interrupt(reason)
        # What the old one's last words bring about, such as a deferred turn, is already the next one's business.
        ending, self.epoch = self.epoch, self._next(EpochCause.INTERRUPTED)
        return ending.end(reason)

    def replan(self, plan: SessionPlan) -> None:
        """From now on the present epoch lives by this plan, and those after it."""
        self.plan = self.epoch.plan = plan
