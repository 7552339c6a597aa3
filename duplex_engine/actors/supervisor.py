"""Supervision: what happens when a child crashes. The one broad `except` of the code base lives here.

`contain` isolates a temporary child (a session, an epoch, a connection). `keep_running` restarts a permanent one with
backoff, within a budget; beyond it the failure goes up. Owns restart policy. Never knows what its children do.
"""

import math
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NoReturn

import attrs
import trio

from duplex_engine.errors import ServiceFailed


async def contain(child: Callable[[], Awaitable[object]]) -> Exception | None:
    """Run `child`; its exception is returned instead of raised. Cancellation passes through untouched.

    A child that crashes while it is being cancelled has crashed: its exceptions are returned, and the cancellation
    comes again at the caller's next checkpoint.
    """
    try:
        await child()
    except Exception as error:  # noqa: BLE001 - the one place: a crash becomes a value
        return sole_exception(error)
    except BaseExceptionGroup as group:
        crash, rest = group.split(Exception)
        if crash is None or rest is None or rest.split(trio.Cancelled)[1] is not None:
            raise
        return sole_exception(crash)
    return None


def sole_exception(error: Exception) -> Exception:
    """The single exception inside nested groups of one; a group of several stays a group."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


@attrs.define
class RestartBudget:
    """At most `restarts` in `window_s` seconds; backoff doubles from `backoff_s` up to `backoff_max_s`."""

    restarts: int = 3
    window_s: float = 60.0
    backoff_s: float = 0.1
    backoff_max_s: float = 5.0
    _crashes: deque[float] = attrs.field(factory=deque, init=False)

    def spend(self, now: float) -> float:
        """Note a crash at `now`; seconds to wait before the restart, `math.inf` when the budget is exceeded."""
        self._crashes.append(now)
        while self._crashes[0] <= now - self.window_s:
            self._crashes.popleft()
        crashes = len(self._crashes)
        if crashes > self.restarts:
            return math.inf
        return min(math.ldexp(self.backoff_s, crashes - 1), self.backoff_max_s)


async def keep_running(
    name: str,
    child: Callable[[], Awaitable[object]],
    budget: RestartBudget,
    on_crash: Callable[[Exception], None],
) -> NoReturn:
    """Run a permanent child for ever. Raises ServiceFailed when it crashes more often than the budget allows.

    A child that raises ServiceFailed says that a restart would not help: that goes up at once.
    """
    while True:
        error = await contain(child) or RuntimeError(f"{name} stopped by itself")
        on_crash(error)
        await trio.lowlevel.checkpoint_if_cancelled()
        if isinstance(error, ServiceFailed):
            raise error
        pause = budget.spend(trio.current_time())
        if math.isinf(pause):
            raise ServiceFailed(
                f"{name} failed more than {budget.restarts} times in {budget.window_s:g} s, at last: {error}"
            ) from error
        await trio.sleep(pause)
