"""The cascade, Trio side: a turn model made of a recogniser, a language model and a voice.

Owns how a conversation runs over the three workers: listening along while the user speaks, drafting an answer when the
user pauses, speaking the draft when the turn is committed. Never imports a runtime: those live in the steppers.
"""

from collections.abc import Mapping, Sequence
from uuid import uuid4

import trio

from duplex_engine.audio.vad import SpeechDetector
from duplex_engine.conversation.effects import Message, Pause, Turn, Utterance
from duplex_engine.conversation.facts import FunctionCall
from duplex_engine.errors import LeaseLost, StepFailed
from duplex_engine.model_plugins.behaviours import TurnBased
from duplex_engine.model_plugins.cascade import models
from duplex_engine.model_plugins.cascade.calls import BrokenCall
from duplex_engine.model_plugins.cascade.draft import Draft
from duplex_engine.model_plugins.cascade.plan import LEAD_S, CascadePlan, plan_session, replan_session
from duplex_engine.model_plugins.cascade.prompt import compose_prelude, local_time, system_message
from duplex_engine.model_plugins.cascade.runtime import ENVIRONMENT
from duplex_engine.model_plugins.contract import Epoch, HostKind, Response, SessionPlan, UnitFormat, WorkerSpec
from duplex_engine.model_plugins.shared.silero import SileroDetector
from duplex_engine.protocol.capabilities import Capabilities, TurnPolicy
from duplex_engine.protocol.session_config import SessionConfig

INPUT_RATE_HZ = 16_000
OUTPUT_RATE_HZ = 22_050
UNIT_MS = 80
DEFAULT_SESSIONS = 4
LANGUAGE_NICENESS = 5
"""While a clause is being made into sound, the words after it can wait: the listener cannot."""
PACKAGE = "duplex_engine.model_plugins.cascade"


class CascadePlugin(TurnBased):
    """The embedded voice.

    `llm`: "default", "light", a name of the model lock, or a path to a GGUF file. `threads`: of the language model
    (None: as many as make it faster). `lead_s`: how far audio runs ahead. `host`: where the workers run.
    """

    name = "cascade"

    def __init__(
        self, *, llm: str = "default", threads: int | None = None, lead_s: float | None = LEAD_S, host: str = "process"
    ) -> None:
        self._llm = llm
        self._threads = threads
        self._lead_s = lead_s
        self._host = HostKind(host)

    # --- facts --------------------------------------------------------------------------------------------------

    def capabilities(self, max_sessions: int | None) -> Capabilities:
        """A turn model with barge-in, text turns, tools, and its own end of turn."""
        return Capabilities(
            turn_policy=TurnPolicy.TURN,
            text_only_turns=True,
            detects_turns=True,
            tools=True,
            resume=True,
            chat=True,
            chunk_period_ms=UNIT_MS,
            max_sessions=max_sessions or DEFAULT_SESSIONS,
        )

    def unit_format(self) -> UnitFormat:
        """16 kHz in, 22.05 kHz out."""
        return UnitFormat(rate_hz=INPUT_RATE_HZ, samples=INPUT_RATE_HZ * UNIT_MS // 1000, output_rate_hz=OUTPUT_RATE_HZ)

    def workers(self, max_sessions: int) -> Sequence[WorkerSpec]:
        """Three processes, shared by all sessions; a draft and the answer before it may overlap, hence the spares."""
        steps, prompts = 2 * max_sessions, max_sessions + 1
        language = {
            "model": str(models.locate_language_model(self._llm)),
            "slots": prompts,
            "threads": self._threads,
            "prelude": (system_message(None, local_time()),),
        }
        return (
            WorkerSpec(
                name="recogniser",
                stepper=f"{PACKAGE}.recogniser:Recogniser",
                slots=steps,
                host=self._host,
                environment=ENVIRONMENT,
            ),
            WorkerSpec(
                name="language",
                stepper=f"{PACKAGE}.language:LanguageModel",
                arguments=language,
                slots=prompts,
                host=self._host,
                nice=LANGUAGE_NICENESS,
            ),
            WorkerSpec(
                name="voice", stepper=f"{PACKAGE}.voice:Voice", slots=steps, host=self._host, environment=ENVIRONMENT
            ),
        )

    def detector(self) -> SpeechDetector:
        """A voice detector model, one per session."""
        return SileroDetector()

    def describe(self) -> Sequence[Mapping[str, object]]:
        """The models in use, with licences and versions."""
        return models.describe(self._llm)

    def plan(self, config: SessionConfig) -> SessionPlan:
        """Voice, temperature, speed and instructions of the session."""
        return plan_session(config, lead_s=self._lead_s, chains=not models.locked(self._llm))

    def replan(
        self, plan: SessionPlan, config: SessionConfig, patch: Mapping[str, object], *, started: bool
    ) -> SessionPlan:
        """Everything may change; it applies from the next turn."""
        assert isinstance(plan, CascadePlan)
        return replan_session(plan, config)

    # --- conversation -------------------------------------------------------------------------------------------

    async def converse(self, epoch: Epoch) -> None:
        """Answer turn after turn, listening along in between."""
        async with trio.open_nursery() as nursery:
            desk = DraftDesk(epoch, nursery)
            nursery.start_soon(desk.listen_along)
            while True:
                turn = await epoch.next_turn()
                try:
                    async with epoch.response(turn) as response:
                        await self._speak(epoch, turn, desk.draft_for(turn, response.plan), response)
                except* (LeaseLost, StepFailed, BrokenCall):
                    pass  # told to the client when the response ended

    async def answer(self, epoch: Epoch, turn: Turn, response: Response) -> None:
        """Answer one turn without anything prepared (the rehearsal's way)."""
        async with trio.open_nursery() as nursery:
            await self._speak(epoch, turn, DraftDesk(epoch, nursery).draft_for(turn, response.plan), response)

    async def _speak(self, epoch: Epoch, turn: Turn, draft: Draft, response: Response) -> None:
        with draft.taken():
            if turn.utterance is not None:
                words = await draft.transcript()
                await epoch.heard(words, turn=turn)
                if not words:
                    response.yields("silence_or_noise")
                    return
            called = False
            while (piece := await draft.next_piece()) is not None:
                if piece.call is not None:
                    called = True
                    await response.call(FunctionCall(piece.call.name, piece.call.arguments, f"call_{uuid4().hex}"))
                elif piece.pcm:
                    await response.audio(piece.pcm, text=piece.text)
                else:
                    await response.text(piece.text)
            response.finish(draft.reason, draft.usage)
            if not called:  # whoever was asked something answers at once, and wants the next answer then
                await response.played_out()


class DraftDesk:
    """At most one draft at a time for the user's open turn, begun when the user pauses, dropped if the user goes on."""

    def __init__(self, epoch: Epoch, nursery: trio.Nursery) -> None:
        self._epoch = epoch
        self._nursery = nursery
        self._utterance: Utterance | None = None
        self._pause: Pause | None = None
        self._draft: Draft | None = None

    async def listen_along(self) -> None:
        """Follow the open turn for ever."""
        while True:
            utterance = await self._epoch.overhear()
            if utterance is not self._utterance:
                self._drop()
                self._utterance = utterance
                self._nursery.start_soon(self._read_ahead)
            if utterance.dropped or utterance.pause is not self._pause:
                self._drop()
            if utterance.pause is not None and not utterance.over and self._draft is None:
                self._pause = utterance.pause
                self._draft = self._begin(self._epoch.history, utterance, self._plan())

    def draft_for(self, turn: Turn, agreed: object) -> Draft:
        """The draft that was made for this turn, if it still fits what was said and agreed; a new one otherwise."""
        assert isinstance(agreed, CascadePlan)
        draft, utterance = self._draft, turn.utterance
        plan = agreed.for_response(turn.options)
        if (
            draft is not None
            and utterance is not None
            and utterance.pause is self._pause
            and draft.history == tuple(turn.history)
            and draft.plan == plan
        ):
            self._draft = None
            return draft
        self._drop()
        return self._begin(turn.history, utterance, plan)

    async def _read_ahead(self) -> None:
        # The clock in the system prompt changes every minute and what stands behind it has to be read again: better
        # while the user is speaking than when the answer is due.
        prelude = compose_prelude(self._plan(), self._epoch.history)
        try:
            async with self._epoch.lease("language") as language:
                await language.step(prelude)
        except* (LeaseLost, StepFailed):
            pass  # only a head start is lost; the draft itself will report what is wrong

    def _plan(self) -> CascadePlan:
        plan = self._epoch.plan
        assert isinstance(plan, CascadePlan)
        return plan

    def _begin(self, history: Sequence[Message], utterance: Utterance | None, plan: CascadePlan) -> Draft:
        samples = None if utterance is None else utterance.samples()
        draft = Draft(self._epoch, plan, history, samples)
        self._nursery.start_soon(draft.run)
        return draft

    def _drop(self) -> None:
        if self._draft is not None:
            self._draft.discard()
        self._draft = self._pause = None
