"""How every plugin behaves in a session: it answers, it can be cut off at any moment, and it leaves nothing behind."""

from contextlib import suppress

import pytest

from duplex_engine.testing.caller import Caller, Heard
from duplex_engine.testing.rig import Rig
from duplex_engine.testing.schedules import Ending, cancel_at_every_checkpoint

TRIES = 4
PATIENCE_S = 5.0


async def asks(caller: Caller) -> None:
    """One question, whoever decides when it is over."""
    await caller.speaks(0.24)
    await caller.commits()


async def ends(caller: Caller, **match: object) -> Heard | None:
    """The next response.done, None if none comes."""
    with suppress(AssertionError):
        return await caller.hears("response.done", within_s=PATIENCE_S, **match)
    return None


async def is_answered(caller: Caller) -> Heard:
    """Ask, and ask again if that came to nothing: whatever happened before, in the end there is a whole answer."""
    for _ in range(TRIES):
        await asks(caller)
        if (done := await ends(caller)) is not None and done["status"] == "completed":
            return done
    raise AssertionError(f"{caller.name} asked {TRIES} times and got no whole answer")


def test_it_gets_ready_and_gives_everything_back(plugin_under_test) -> None:  # type: ignore[no-untyped-def]
    async def story(rig: Rig) -> None:
        assert rig.engine.ready
        assert all(worker.ready for worker in rig.engine.snapshot().workers.values())

    plugin_under_test.run(story)


def test_it_answers_aloud_and_with_words(plugin_under_test) -> None:  # type: ignore[no-untyped-def]
    async def story(rig: Rig) -> None:
        async with plugin_under_test.caller(rig) as caller:
            done = await is_answered(caller)
            assert caller.audio_ms(done["response_id"]) > 0
            assert caller.transcript(done["response_id"])

    plugin_under_test.run(story)


def test_it_answers_again_and_again(plugin_under_test) -> None:  # type: ignore[no-untyped-def]
    async def story(rig: Rig) -> None:
        async with plugin_under_test.caller(rig) as caller:
            answered = [await is_answered(caller) for _ in range(3)]
            assert len({done["response_id"] for done in answered}) == 3

    plugin_under_test.run(story)


def test_it_can_be_cut_off_and_answers_again(plugin_under_test) -> None:  # type: ignore[no-untyped-def]
    async def story(rig: Rig) -> None:
        async with plugin_under_test.caller(rig) as caller:
            await asks(caller)
            await caller.hears("response.output_audio.delta")
            await caller.cancels()
            assert await ends(caller, status="cancelled")
            await is_answered(caller)

    plugin_under_test.run(story)


def test_it_keeps_sessions_apart(plugin_under_test) -> None:  # type: ignore[no-untyped-def]
    async def story(rig: Rig) -> None:
        async with plugin_under_test.caller(rig, "ann") as ann, plugin_under_test.caller(rig, "bob") as bob:
            await asks(ann)
            await ann.hears("response.created")
            await is_answered(bob)
            await bob.closes()
            await is_answered(ann)

    plugin_under_test.run(story)


def test_it_lets_go_when_the_session_is_closed_while_it_speaks(plugin_under_test) -> None:  # type: ignore[no-untyped-def]
    async def story(rig: Rig) -> None:
        async with plugin_under_test.caller(rig) as caller:
            await asks(caller)
            await caller.hears("response.output_audio.delta")
            await caller.closes()

    plugin_under_test.run(story)


@pytest.mark.parametrize("ending", [Ending.RESPONSE, Ending.EPOCH])
def test_it_can_be_interrupted_at_every_step(plugin_under_test, ending: Ending) -> None:  # type: ignore[no-untyped-def]
    """Each end takes no time, and afterwards the conversation goes on."""

    async def story(rig: Rig) -> None:
        async with plugin_under_test.caller(rig) as caller:
            await is_answered(caller)
            assert not caller.all("error", code="model_unavailable")

    if not plugin_under_test.virtual:
        pytest.skip("takes a virtual clock")
    assert cancel_at_every_checkpoint(plugin_under_test.open_rig, story, ending) > 100


def test_its_session_can_be_ended_at_every_step(plugin_under_test) -> None:  # type: ignore[no-untyped-def]
    """All slots and seats come back, wherever it was; and an answer that ends with its session has not failed."""

    async def story(rig: Rig) -> None:
        async with plugin_under_test.caller(rig) as caller:
            try:
                await is_answered(caller)
            finally:
                assert not caller.all("response.done", status="failed")

    if not plugin_under_test.virtual:
        pytest.skip("takes a virtual clock")
    assert cancel_at_every_checkpoint(plugin_under_test.open_rig, story, Ending.SESSION, schedules=4) > 100
