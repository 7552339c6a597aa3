"""PersonaPlex, Trio side: one endless answer for each life of the context, one frame of it for each frame heard.

Owns how a call runs over the one worker. Never imports torch: that is the stepper's.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import structlog
import trio

from duplex_engine.config import SessionLimits
from duplex_engine.errors import ConfigRejected
from duplex_engine.model_plugins.behaviours import NativeDuplex
from duplex_engine.model_plugins.contract import (
    AudioUnit,
    Epoch,
    HostKind,
    Lease,
    Rehearsal,
    SessionPlan,
    UnitFormat,
    WorkerSpec,
)
from duplex_engine.model_plugins.personaplex.files import CheckpointFiles, find_checkpoint, voice_names
from duplex_engine.model_plugins.personaplex.load import TickLoad
from duplex_engine.model_plugins.personaplex.plan import House, PersonaPlexPlan, plan_session, replan_session
from duplex_engine.model_plugins.personaplex.questions import Begin, Hear, Measure, Said
from duplex_engine.model_plugins.personaplex.sizes import FRAME_SAMPLES, RATE_HZ
from duplex_engine.model_plugins.personaplex.text import PERSONA_CHARACTERS, Pieces, open_vocabulary
from duplex_engine.protocol.capabilities import Capabilities, Interrupt, Modality, TurnPolicy
from duplex_engine.protocol.session_config import SessionConfig

UNIT_MS: Final = 80
DEFAULT_SESSIONS: Final = 2
DEFAULT_VOICE: Final = "NATF2"
DEFAULT_PERSONA: Final = (
    "You are a wise and friendly teacher. Answer questions or provide advice in a clear and engaging way."
)
log = structlog.get_logger()

STEPPER: Final = "duplex_engine.model_plugins.personaplex.stepper:PersonaPlexStepper"


@attrs.frozen(kw_only=True)
class PersonaPlexOptions:
    """What an operator can choose.

    `checkpoint`: directory with the published files. `device`: as torch names it. `threads`: of torch on a CPU.
    `voice`, `persona`: of sessions that name none. `snapshot_mib`: memory for prompts that have been read. `gather_ms`: how
    long a step waits for the calls that usually have a frame together. `max_backlog_ms`: sound that waits longer is
    dropped. `admit_below_ms`: cost of a frame up to which newcomers are taken. `host`: where the worker runs.
    """

    checkpoint: str
    device: str = "cpu"
    threads: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    voice: str = DEFAULT_VOICE
    persona: str = DEFAULT_PERSONA
    persona_characters: int = attrs.field(default=PERSONA_CHARACTERS, validator=attrs.validators.ge(0))
    snapshot_mib: int = attrs.field(default=1024, validator=attrs.validators.ge(0))
    gather_ms: float = attrs.field(default=5.0, validator=attrs.validators.ge(0))
    max_backlog_ms: float = attrs.field(default=400.0, validator=attrs.validators.ge(UNIT_MS))
    admit_below_ms: float = attrs.field(default=60.0, validator=attrs.validators.gt(0))
    host: str = "process"


class PersonaPlexPlugin(NativeDuplex):
    """NVIDIA PersonaPlex-7b-v1 and checkpoints of the same layout. Options: see `PersonaPlexOptions`."""

    name = "personaplex"

    def __init__(self, **options: Any) -> None:
        if not options.get("checkpoint"):
            raise ConfigRejected(
                "model_path_unavailable",
                "name the directory of the checkpoint: --option checkpoint=DIR",
                "checkpoint",
            )
        self.options = PersonaPlexOptions(**options)
        self._files: CheckpointFiles = find_checkpoint(self.options.checkpoint)
        self._house = self._open_house()
        self._load = TickLoad(self.options.admit_below_ms / 1000, UNIT_MS / 1000)

    def _open_house(self) -> House:
        options = self.options
        voices = voice_names(self._files.voices)
        voice = options.voice.removesuffix(".pt")
        if voice not in voices:
            raise ConfigRejected("invalid_voice", f"there is no voice {voice}; there are {', '.join(voices)}", "voice")
        return House(
            vocabulary=open_vocabulary(self._files.text),
            voices=voices,
            voice=voice,
            persona=options.persona,
            persona_characters=options.persona_characters,
            max_backlog_s=options.max_backlog_ms / 1000,
        )

    # --- facts --------------------------------------------------------------------------------------------------

    def capabilities(self, max_sessions: int | None) -> Capabilities:
        """A model that hears and speaks without a pause: no commits, no turns, and a cancel begins anew."""
        return Capabilities(
            turn_policy=TurnPolicy.MODEL,
            client_commit=False,
            barge_in=False,
            interrupt=Interrupt.EPOCH,
            resume=True,
            audio_truncate=False,
            optional_inputs=frozenset({Modality.VIDEO}),
            chunk_period_ms=UNIT_MS,
            max_sessions=max_sessions or DEFAULT_SESSIONS,
        )

    def unit_format(self) -> UnitFormat:
        """80 ms of 24 kHz in, the same out."""
        return UnitFormat(rate_hz=RATE_HZ, samples=FRAME_SAMPLES, output_rate_hz=RATE_HZ)

    def workers(self, max_sessions: int) -> Sequence[WorkerSpec]:
        """One: all calls in one batch."""
        options = self.options
        return (
            WorkerSpec(
                name="model",
                stepper=STEPPER,
                arguments={
                    "checkpoint": str(Path(options.checkpoint).expanduser()),
                    "slots": max_sessions,
                    "device": options.device,
                    "threads": options.threads,
                    "snapshot_bytes": options.snapshot_mib * 1024 * 1024,
                },
                slots=max_sessions,
                host=HostKind(options.host),
                gather_s=options.gather_ms / 1000,
            ),
        )

    def describe(self) -> Sequence[Mapping[str, object]]:
        """The checkpoint in use."""
        return (
            {
                "name": self._files.folder.name,
                "licence": "NVIDIA Open Model License; codec CC-BY-4.0",
                "voices": list(self._house.voices),
            },
        )

    def overloaded(self) -> str | None:
        """Frames that take too long: another call would make everybody stutter."""
        return self._load.overloaded

    def plan(self, config: SessionConfig) -> SessionPlan:
        """Voice, persona, sampling and cancel policy of the session."""
        return plan_session(config, self._house)

    def replan(
        self, plan: SessionPlan, config: SessionConfig, patch: Mapping[str, object], *, started: bool
    ) -> SessionPlan:
        """Nothing of the model's own may change."""
        assert isinstance(plan, PersonaPlexPlan)
        return replan_session(plan, config, self._house)

    def remember(self, limits: SessionLimits) -> object:
        """Nothing is remembered beyond a context."""
        return None

    async def warm_up(self, rehearsal: Rehearsal) -> None:
        """Read the default prompt, see whether the device keeps up, and hear a few frames of silence."""
        plan = plan_session(SessionConfig(native=True), self._house)
        async with rehearsal.epoch(plan, None) as epoch:
            async with epoch.lease("model", opening=plan.opening) as lease:
                self._judge(await lease.step(Measure()))
            await self.converse(epoch)

    def _judge(self, frame_s: object) -> None:
        assert isinstance(frame_s, float)
        cost = {"frame_ms": round(frame_s * 1000, 1), "of_ms": UNIT_MS, "device": self.options.device}
        if frame_s * 1000 > self.options.admit_below_ms:
            log.warning(
                "device_too_slow", **cost, hint="with all seats taken callers will hear gaps; offer fewer seats"
            )
        else:
            log.info("frame_measured", **cost)

    # --- conversation -------------------------------------------------------------------------------------------

    async def converse(self, epoch: Epoch) -> None:
        """One life of the context: voice and persona, then frame by frame until it is interrupted."""
        plan = epoch.plan
        assert isinstance(plan, PersonaPlexPlan)
        async with epoch.lease("model", opening=plan.opening) as lease:
            call = Call(lease, self._load, self._house.vocabulary.pieces())
            try:
                await call.run(epoch)
            finally:
                self._load.left(call)


class Call:
    """One life of a context on its slot."""

    def __init__(self, lease: Lease, load: TickLoad, pieces: Pieces) -> None:
        self._lease = lease
        self._load = load
        self._pieces = pieces

    async def run(self, epoch: Epoch) -> None:
        """Say a frame for each one heard, in one answer."""
        await self._lease.step(Begin())
        unit = await epoch.next_unit()
        while True:
            async with epoch.response() as response:
                while True:
                    said = await self._step(unit)
                    await response.audio(said.pcm, text=self._pieces.tell(said.text))
                    if said.rolled:
                        await epoch.rolled()
                    # A client that is silent for long is waited for; silence of ours would be heard as a pause.
                    unit = await epoch.next_unit(continuing=not unit.last)
            unit = await epoch.next_unit(continuing=True)  # cut, with the context kept: it has heard what was in hand

    async def _step(self, unit: AudioUnit) -> Said:
        await trio.sleep_until(self._load.due(self, trio.current_time(), behind=unit.behind))
        began = trio.current_time()
        said = await self._lease.step(Hear(unit.samples.tobytes()))
        self._load.ticked(self, began, trio.current_time())
        assert isinstance(said, Said)
        return said
