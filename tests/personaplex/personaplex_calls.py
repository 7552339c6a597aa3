"""Calls with a tiny PersonaPlex inside the process, on the virtual clock: the real device side, in simulated time."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import attrs
import numpy as np
import numpy.typing as npt
import trio
from personaplex_kit import Tiny

from duplex_engine.actors.observations import Observation
from duplex_engine.config import EngineConfig, Limits
from duplex_engine.engine import EmbeddedSession, Engine, open_engine
from duplex_engine.model_plugins.contract import HostKind, Work, WorkerSpec
from duplex_engine.model_plugins.personaplex.plugin import PersonaPlexPlugin
from duplex_engine.model_plugins.personaplex.sizes import FRAME_SAMPLES
from duplex_engine.model_plugins.personaplex.stepper import PersonaPlexStepper
from duplex_engine.protocol.events import OutputAudioDelta, ServerEvent, TranscriptDelta

FRAME_S = 0.08
GREEDY = {"text_temperature": 0, "audio_temperature": 0}
Sound = npt.NDArray[np.float32]


class TimedStepper(PersonaPlexStepper):
    """The real one; a step with frames takes `seconds` of the run's clock."""

    seconds: ClassVar[float] = 0.02

    def duration_s(self, work: Work) -> float:
        return self.seconds if work.items else 0.001


class SlowStepper(TimedStepper):
    """Too slow for another caller."""

    seconds: ClassVar[float] = 0.07


class Personaplex(PersonaPlexPlugin):
    """The plugin with its worker in this process."""

    stepper: ClassVar[type[TimedStepper]] = TimedStepper

    def workers(self, max_sessions: int) -> Sequence[WorkerSpec]:
        name = f"{self.stepper.__module__}:{self.stepper.__name__}"
        return tuple(attrs.evolve(spec, stepper=name, host=HostKind.INLINE) for spec in super().workers(max_sessions))


class Slow(Personaplex):
    stepper = SlowStepper


@attrs.define
class Call:
    """One session and what was heard of it."""

    session: EmbeddedSession
    events: list[ServerEvent] = attrs.Factory(list)

    async def listens(self) -> None:
        with self.session.events() as events:
            async for event in events:
                self.events.append(event)

    async def says(self, sound: Sound) -> None:
        """Speak at the pace of a person; sound (frames, 1920)."""
        for frame in sound:
            self.session.append(frame.tobytes())
            await trio.sleep(FRAME_S)

    def all(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def sound(self) -> bytes:
        return b"".join(event.audio for event in self.all(OutputAudioDelta))

    @property
    def words(self) -> str:
        return "".join(event.delta for event in self.all(TranscriptDelta))


def noise(frames: int, seed: int = 0) -> Sound:
    """Sound of a user: (frames, 1920)."""
    generator = np.random.default_rng(seed)
    return (0.1 * generator.standard_normal((frames, FRAME_SAMPLES))).astype(np.float32)


@asynccontextmanager
async def exchange(
    tiny: Tiny, *, plugin: type[Personaplex] = Personaplex, seats: int = 4, **options: Any
) -> AsyncIterator[tuple[Engine, list[Observation]]]:
    """An engine, and what it observed."""
    seen: list[Observation] = []
    config = EngineConfig(plugin="", limits=Limits(max_sessions=seats))
    async with open_engine(
        config, plugin=plugin(checkpoint=str(tiny.folder), **options), observers=(seen.append,)
    ) as engine:
        yield engine, seen


@asynccontextmanager
async def calling(engine: Engine, **session: Any) -> AsyncIterator[Call]:
    """A call for the block; it says 24 kHz float32 and is greedy unless told otherwise."""
    extra_body = {**GREEDY, **session.pop("extra_body", {})}
    opening = {"input_audio_format": "pcm_f32le", "sample_rate_hz": 24_000, "extra_body": extra_body, **session}
    async with trio.open_nursery() as nursery:
        async with engine.open_session(opening) as embedded:
            call = Call(embedded)
            nursery.start_soon(call.listens)
            yield call
