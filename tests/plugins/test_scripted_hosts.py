"""The scripted plugin with steppers in a thread and in a process, in real time: the same answers, real deaths."""

import pytest

from duplex_engine.actors.observations import WorkerLost
from duplex_engine.testing.caller import Caller
from duplex_engine.testing.rig import open_rig


async def asks(caller: Caller) -> None:
    await caller.appends(1.0)
    await caller.commits()


@pytest.mark.parametrize("host", ["thread", "process"])
async def test_answers_are_the_same_whatever_runs_the_steps(host: str) -> None:
    async with open_rig(mode="turn", host=host, step_ms=1, script='speak "hello there" for 0.4') as rig:
        async with rig.caller("ann") as ann, rig.caller("bob") as bob:
            for caller in (ann, bob):
                await asks(caller)
            for caller in (ann, bob):
                done = await caller.hears("response.done", within_s=10, status="completed")
                assert caller.audio_ms(done["response_id"]) == 400
                assert caller.transcript(done["response_id"]) == "hello there"


@pytest.mark.parametrize(
    ("trouble", "options", "cause"),
    [
        ("crash", {"host": "process"}, "13"),
        ("hang", {"host": "process", "step_timeout_s": 0.5}, "did not finish a step"),
        ("crash", {"host": "thread"}, "the script said so"),
    ],
    ids=["a process that ends", "a process that hangs", "a thread that raises"],
)
async def test_a_dead_worker_fails_its_answer_and_comes_back(
    trouble: str, options: dict[str, object], cause: str
) -> None:
    script = f'speak "cut" for 0.2; {trouble}; speak "again" for 0.2'
    async with open_rig(mode="turn", step_ms=1, script=script, **options) as rig:
        async with rig.caller() as caller:
            await asks(caller)
            await caller.hears("response.done", within_s=10, status="failed", reason="engine_error")
            await asks(caller)
            done = await caller.hears("response.done", within_s=20, status="completed")
            assert caller.transcript(done["response_id"]) == "again"
        (lost,) = [observation for observation in rig.observed if isinstance(observation, WorkerLost)]
        assert cause in lost.cause
