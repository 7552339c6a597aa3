"""Running a story under many schedules, and ending things at every step of it.

Owns the runs. Trio's order of tasks is random by design; Hypothesis owns that randomness here, so that a schedule that
fails fails again. Time is virtual: a story of minutes takes milliseconds.

The environment variable `DUPLEX_SCHEDULES` asks for at least so many schedules everywhere.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from enum import Enum
from functools import partial
from typing import overload

import trio
import trio.testing
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from duplex_engine.errors import SessionGone
from duplex_engine.testing.caller import NotHeard
from duplex_engine.testing.rig import Rig

EXAMPLES = 15
MORE = "DUPLEX_SCHEDULES"
Story = Callable[[], Awaitable[None]]


def run_story(story: Story, *, instruments: Sequence[trio.abc.Instrument] = ()) -> None:
    """Run a story once, on a virtual clock."""
    trio.run(story, clock=trio.testing.MockClock(autojump_threshold=0), instruments=instruments)


@overload
def explore(story: Story, *, examples: int = EXAMPLES) -> Callable[[], None]: ...
@overload
def explore(*, examples: int = EXAMPLES) -> Callable[[Story], Callable[[], None]]: ...
def explore(
    story: Story | None = None, *, examples: int = EXAMPLES
) -> Callable[[], None] | Callable[[Story], Callable[[], None]]:
    """A plain test function that runs the story under `examples` different schedules. For use as a decorator.

    The story itself stays at hand as `test.story`.
    """
    if story is None:
        return partial(explore, examples=examples)

    def test() -> None:
        _under_many_schedules(partial(run_story, story), examples)

    test.story = story  # type: ignore[attr-defined]
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        setattr(test, name, getattr(story, name))
    return test


def _under_many_schedules(run: Callable[[], object], examples: int) -> None:
    """Run something with Trio's choices, and the `random` module's, taken from `examples` different seeds."""

    @settings(
        max_examples=max(examples, int(os.environ.get(MORE, "0"))),
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.random_module())
    def run_seeded(_: object) -> None:
        run()

    run_seeded()


class Ending(Enum):
    """What is ended: the answers of a session, the life of its context, or all of it."""

    RESPONSE = "response"
    EPOCH = "epoch"
    SESSION = "session"


def cancel_at_every_checkpoint(
    opening: Callable[[], AbstractAsyncContextManager[Rig]],
    story: Callable[[Rig], Awaitable[None]],
    ending: Ending,
    *,
    schedules: int = 2,
) -> int:
    """Run the story again and again, ending something after its 1st, 2nd, 3rd ... scheduling step, to the last.

    `opening` opens a fresh rig for each run. `story` has to bear an answer that is cut short; when the session is
    ended, it is left. Each ending has to be over in no time, and the invariants hold. All of it under `schedules`
    different schedules. Returns the number of runs.
    """
    runs = 0

    def run_all() -> None:
        nonlocal runs
        step = 1
        while _cancelled_at(step, opening, story, ending):
            step += 1
        runs += step

    _under_many_schedules(run_all, schedules)
    return runs


def _cancelled_at(
    step: int,
    opening: Callable[[], AbstractAsyncContextManager[Rig]],
    story: Callable[[Rig], Awaitable[None]],
    ending: Ending,
) -> bool:
    fuse = _Fuse(step)

    async def run() -> None:
        async with opening() as rig, trio.open_nursery() as nursery:
            await nursery.start(_bomb, rig, fuse, ending, nursery.cancel_scope)
            try:
                await story(rig)
            except* (SessionGone, NotHeard):
                if not (fuse.burnt and ending is Ending.SESSION):
                    raise
            nursery.cancel_scope.cancel(reason="the story is over")

    run_story(run, instruments=(fuse,))
    return fuse.burnt


class _Fuse(trio.abc.Instrument):
    """Counts scheduling steps from the moment it is lit."""

    def __init__(self, steps: int) -> None:
        self.burnt = False
        self._left = steps
        self._end: trio.Event | None = None

    async def burn(self) -> None:
        """Return after so many steps of any task."""
        self._end = trio.Event()
        await self._end.wait()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """One step."""
        if self._end is None or self.burnt:
            return
        self._left -= 1
        if self._left == 0:
            self.burnt = True
            self._end.set()


async def _bomb(
    rig: Rig, fuse: _Fuse, ending: Ending, story: trio.CancelScope, *, task_status: trio.TaskStatus[None]
) -> None:
    task_status.started()
    await fuse.burn()
    alive = [handle for handle in rig.handles if not handle.over.is_set()]
    if not alive:
        return
    session = alive[0]._session
    before = trio.current_time()
    if ending is Ending.SESSION:
        session.end("ended by the test")
        overs: Sequence[trio.Event] = (session.over,)
    else:
        overs = session.interrupt("ended by the test", whole_epoch=ending is Ending.EPOCH)
    for over in overs:
        await over.wait()
    assert trio.current_time() == before, f"ending the {ending.value} took {trio.current_time() - before:g} s"
    if ending is Ending.SESSION:
        await trio.testing.wait_all_tasks_blocked()
        story.cancel(reason="the session was ended")
