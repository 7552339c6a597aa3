"""Sessions in the hands of an embedding program: they end with their block, and answers may come as fast as made."""

import pytest
import trio
from trio.testing import MockClock

from duplex_engine.config import EngineConfig, Limits
from duplex_engine.engine import EmbeddedSession, Engine, open_engine
from duplex_engine.errors import AdmissionRefused
from duplex_engine.model_plugins.scripted.plugin import ScriptedPlugin
from duplex_engine.protocol.commands import CreateItem, CreateResponse
from duplex_engine.protocol.events import OutputAudioDelta, ResponseDone
from duplex_engine.protocol.session_config import Profile

QUESTION = {
    "id": "q",
    "type": "message",
    "role": "user",
    "status": "completed",
    "content": [{"type": "input_text", "text": "Hi"}],
}


async def ask(session: EmbeddedSession) -> int:
    """Ask in writing; the bytes of sound of the answer."""
    heard = 0
    with session.events() as events:
        session.send(CreateItem(item=QUESTION))
        session.send(CreateResponse())
        assert events.ready
        async for event in events:
            if isinstance(event, OutputAudioDelta):
                heard += len(event.audio)
            elif isinstance(event, ResponseDone):
                return heard
    raise AssertionError("the session ended without an answer")


def house(**limits: int) -> EngineConfig:
    return EngineConfig(limits=Limits(**limits))


@pytest.mark.parametrize(("paced", "least_s", "most_s"), [(True, 3.5, 4.5), (False, 0.0, 1.0)])
async def test_an_answer_that_is_not_paced_comes_as_fast_as_it_is_made(
    autojump_clock: MockClock, paced: bool, least_s: float, most_s: float
) -> None:
    plugin = ScriptedPlugin(mode="turn", script='speak "a long answer" for 4', lead_s=0.2)
    async with open_engine(house(), plugin=plugin) as engine:
        async with engine.open_session({}, profile=Profile.GA, paced=paced) as session:
            begun = trio.current_time()
            assert await ask(session) == 4 * 24_000 * 2
            assert least_s <= trio.current_time() - begun <= most_s


async def test_once_the_block_is_left_the_seat_is_free(autojump_clock: MockClock) -> None:
    plugin = ScriptedPlugin(mode="turn", script='forever { speak "for ages" for 100 }', lead_s=0.2)

    async def leave_in_the_middle(engine: Engine) -> None:
        with trio.move_on_after(1.0):
            async with engine.open_session({}) as session:
                await ask(session)

    async with open_engine(house(max_sessions=1), plugin=plugin) as engine:
        for _ in range(3):
            await leave_in_the_middle(engine)
            assert engine.snapshot().seats_taken == 0
        async with engine.open_session({}):
            with pytest.raises(AdmissionRefused):
                async with engine.open_session({}):
                    pass
        assert engine.snapshot().seats_taken == 0
        assert engine.snapshot().workers["voice"].free_slots == 1
