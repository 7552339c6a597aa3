"""Sound that comes alone is heard in the step of whoever brings it; everything else has its turn in the queue."""

import trio
from trio.testing import MockClock

from duplex_engine.actors.handle import Guest
from duplex_engine.audio.pcm import Samples
from duplex_engine.engine import Engine, open_engine
from duplex_engine.model_plugins.scripted.plugin import ScriptedPlugin
from duplex_engine.protocol.commands import AppendAudio, ClearInput
from duplex_engine.protocol.session_config import Profile

LOUD = AppendAudio(audio=b"\x00\x20" * 1_280)
DETECTING = {"turn_detection": {"type": "server_vad"}, "extra_body": {"overlap_short_ack_ms": 0}}


class Broken:
    """A detector with a mistake in it."""

    def probability(self, window: Samples) -> float:
        raise ZeroDivisionError

    def reset(self) -> None:
        """Nothing to forget."""


def types(guest: Guest) -> list[str]:
    """What the guest can read now."""
    return [entry.event.TYPE for entry in guest.ready_batch()]


async def opened(engine: Engine, session: dict[str, object] | None = None):
    """A session whose command loop waits for the first command."""
    handle = await engine.start_session(session, profile=Profile.STRICT)
    await trio.testing.wait_all_tasks_blocked()
    return handle


async def test_sound_that_comes_alone_is_heard_in_the_step_that_brings_it(autojump_clock: MockClock) -> None:
    async with open_engine(plugin=ScriptedPlugin(mode="turn")) as engine:
        with (await opened(engine)).attach() as guest:
            types(guest)
            guest.submit(LOUD)
            assert types(guest) == ["input_audio_buffer.speech_started"]


async def test_sound_behind_another_command_waits_for_it(autojump_clock: MockClock) -> None:
    async with open_engine(plugin=ScriptedPlugin(mode="turn")) as engine:
        with (await opened(engine)).attach() as guest:
            types(guest)
            for command in (LOUD, ClearInput(), LOUD):
                guest.submit(command)
            assert types(guest) == ["input_audio_buffer.speech_started"]
            await trio.testing.wait_all_tasks_blocked()
            assert types(guest) == [
                f"input_audio_buffer.{what}" for what in ("speech_stopped", "cleared", "speech_started")
            ]


async def test_an_embedding_program_may_give_a_whole_recording_at_once(autojump_clock: MockClock) -> None:
    """It is heard by the session in its own steps, so that others have their turn."""
    async with open_engine(plugin=ScriptedPlugin(mode="turn")) as engine, engine.open_session() as session:
        await trio.testing.wait_all_tasks_blocked()
        with session.events() as events:
            await anext(events)
            session.send(LOUD)
            assert not events.ready
            await trio.testing.wait_all_tasks_blocked()
            assert events.ready


async def test_sound_that_interrupts_holds_what_follows_until_the_answer_is_over(autojump_clock: MockClock) -> None:
    plugin = ScriptedPlugin(mode="turn", script='forever { speak "a long answer" for 60 }', lead_s=0.2)
    async with open_engine(plugin=plugin) as engine:
        with (await opened(engine, DETECTING)).attach() as guest:
            guest.submit(LOUD)
            guest.submit(AppendAudio(audio=bytes(64_000)))
            await trio.sleep(1)
            assert "response.output_audio.delta" in types(guest)
            guest.submit(LOUD)
            guest.submit(LOUD)
            told = types(guest)
            assert "response.done" not in told
            await trio.testing.wait_all_tasks_blocked()
            assert (told + types(guest)).count("response.done") == 1


async def test_a_mistake_in_hearing_ends_the_session_and_not_the_caller(autojump_clock: MockClock) -> None:
    plugin = ScriptedPlugin(mode="turn")
    plugin.detector = Broken  # type: ignore[method-assign,assignment]
    async with open_engine(plugin=plugin) as engine:
        handle = await opened(engine, DETECTING)
        with handle.attach() as guest:
            guest.submit(LOUD)
            await handle.over.wait()
            assert handle.ending_reason == "internal_error"
            assert types(guest)[-2:] == ["error", "session.closed"]
        assert engine.snapshot().seats_taken == 0
