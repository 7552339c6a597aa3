"""The session actor: one conversation, from taking a seat to its last word.

Owns the command loop and the conversation machine, and whatever performs the machine's effects: outlet, inlet, epochs.
Commands queue; speech does not: what the model says is applied in the model's own step (`learn`). Never talks to a socket.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import attrs
import structlog
import trio
from outcome import Error, Value, capture

from duplex_engine.actors.inlet import Inlet
from duplex_engine.actors.mailbox import ANSWERED_AT_ONCE, NO_ACTIVITY, Mailbox, input_bytes
from duplex_engine.actors.observations import (
    FirstAudio,
    InputRefusedByLimit,
    ResponseFinished,
    SessionEnded,
    SessionOpened,
)
from duplex_engine.actors.opening import Opening
from duplex_engine.actors.outlet import Outlet
from duplex_engine.actors.patience import Patience
from duplex_engine.actors.succession import Succession
from duplex_engine.actors.supervisor import contain
from duplex_engine.conversation.effects import (
    DeliverOutput,
    DropInput,
    Effect,
    Emit,
    EndSession,
    Feed,
    InterruptResponses,
    Message,
    OfferTurn,
    Overheard,
    PurgeOutput,
    Reconfigure,
    RedoHearing,
    ResetDecoder,
    ResetDetector,
    SyncEffect,
    TrimJournal,
)
from duplex_engine.conversation.facts import Fact, ResponseAudio, ResponseEnded, ResponseStatus
from duplex_engine.conversation.hearing import Ears, append_s
from duplex_engine.conversation.machine import Conversation
from duplex_engine.errors import CodedError, ConfigRejected, ProtocolViolation
from duplex_engine.model_plugins.contract import UnitFormat
from duplex_engine.protocol.commands import AppendAudio, ClientCommand, CommitAudio
from duplex_engine.protocol.errors import ends_session
from duplex_engine.protocol.events import ServerEvent, SessionLagging
from duplex_engine.protocol.session_config import SessionConfig

log = structlog.get_logger()


class Session:
    """One conversation. Also the floor of its epochs. Guests hold it through `SessionHandle`."""

    def __init__(self, opening: Opening) -> None:
        self.id = opening.id
        self.limits = opening.limits
        self.unit_format = opening.plugin.unit_format()
        self._inlet = Inlet(opening.id, self.unit_format, opening.limits, opening.observe)
        self.intake, self.outputs = self._inlet.intake, self._inlet.outputs
        self.over = trio.Event()
        self._opening = opening
        self._observe = opening.observe
        self._log = log.bind(session_id=opening.id)
        self._machine = _conversation(opening, self.unit_format)
        self._ears = Ears(opening.config, self.unit_format.rate_hz, opening.plugin.detector())
        resumable = opening.capabilities.resume and opening.config.numbered and not opening.tethered
        self.outlet = Outlet(
            opening.id,
            opening.limits,
            opening.observe,
            self._presence_changed,
            resumable=resumable,
            numbered=opening.config.numbered,
        )
        self._mailbox = Mailbox(opening.limits.mailbox_commands)
        self._scope = trio.CancelScope()
        self._ending = EndSession("transport_error")
        self._watched = trio.lowlevel.ParkingLot()
        self._started = False
        self._patience = Patience(
            idle_ttl_s=opening.limits.idle_ttl_s,
            grace_s=opening.limits.disconnect_grace_s if resumable else None,
            tethered=opening.tethered,
            active_at=trio.current_time(),
        )
        self._turn_ended_at: float | None = None
        self._epochs = Succession(
            self, opening.plugin, opening.lender, opening.plan, failed=self._model_failed, log=self._log
        )

    # --- life ---------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Live from `session.created` to the last word; a crash of it is reported to its client and stays here."""
        self._observe(SessionOpened(self.id))
        try:
            crash = await contain(partial(self._live, task_status))
            if crash is not None:
                self._log.error("session_crashed", exc_info=crash)
                self._emit_all(self._machine.refuse(CodedError("internal_error", "the session failed"), None))
                self._ending = EndSession("internal_error")
        finally:
            self._say_last_words()

    async def _live(self, task_status: trio.TaskStatus[None]) -> None:
        with self._scope:
            async with trio.open_nursery() as nursery:
                self._emit_all(self._machine.opening())
                nursery.start_soon(self._epochs.run)
                nursery.start_soon(self._watch)
                task_status.started()
                await self._obey_commands()

    def _say_last_words(self) -> None:
        self._epochs.epoch.cut("session_closed")
        self._mailbox.close()
        self.intake.clear()
        self._opening.release_seat()
        self._emit_all(self._machine.ending(self._ending.reason, expired=self._ending.expired))
        self.outlet.close()
        self.over.set()
        self._observe(SessionEnded(self.id, self._ending.reason))
        self._log.info("session_ended", reason=self._ending.reason)

    def end(self, reason: str, *, expired: bool = False) -> None:
        """Leave the session's scope; the last words follow at the same instant of the clock."""
        if not self._scope.cancel_called:
            self._ending = EndSession(reason, expired)
            self._scope.cancel(reason=reason)
            self._epochs.epoch.cut("session_closed")

    @property
    def ending(self) -> bool:
        """Whether it has ended, or is about to."""
        return self._scope.cancel_called or self.over.is_set()

    @property
    def ending_reason(self) -> str:
        """Why the session ended; meaningful once `over` is set."""
        return self._ending.reason

    # --- commands -----------------------------------------------------------------------------------------------

    def submit(self, command: ClientCommand, *, at_once: bool = False) -> None:
        """Queue a command. Raises SessionGone; input beyond the limits is refused with an error event.

        `at_once`: sound is heard in the caller's own step if nothing is before it. For callers with one command a step.
        """
        try:
            self._check_room(command)
            if at_once and type(command) is AppendAudio and self._mailbox.idle and not self.ending:
                self._hear_at_once(command)
            else:
                self._mailbox.put(command)
        except ProtocolViolation as error:
            self.refuse(error)
            if type(command) is AppendAudio:
                self._inlet.refused(append_s(self.config, command))
                self._tell_lag()

    def _check_room(self, command: ClientCommand) -> None:
        pending = self._mailbox.pending_bytes + self.intake.pending_bytes + self._machine.pending_input_bytes
        size = input_bytes(command)
        if size and pending + size > self.limits.input_bytes:
            message = f"{pending} bytes of input wait to be heard; the limit is {self.limits.input_bytes}"
            raise ProtocolViolation("input_backpressure", message, event_id=command.event_id)

    def refuse(self, error: ProtocolViolation) -> None:
        """Answer something that never became a command with an error event."""
        if not self.over.is_set():
            self._observe(InputRefusedByLimit(self.id, error.code))
            self._emit_all(self._machine.refuse(error, error.event_id))

    def _hear_at_once(self, append: AppendAudio) -> None:
        """Spare the command loop its turn, unless answers are interrupted: it joins them before it takes more."""
        obeyed = capture(self._obey, append)
        if isinstance(obeyed, Error) or obeyed.value:
            self._mailbox.leave(obeyed)

    async def _obey_commands(self) -> None:
        while True:
            entry = await self._mailbox.take()
            if isinstance(entry, ANSWERED_AT_ONCE):
                await self.outlet.caught_up()
            await trio.lowlevel.checkpoint_if_cancelled()  # a command in hand does not hear that the session has ended
            unfinished = entry.unwrap() if isinstance(entry, Value | Error) else self._obey(entry)
            for over in unfinished:
                await over.wait()

    def _obey(self, command: ClientCommand) -> Sequence[trio.Event]:
        """Obey a command; returns what has to be over before the next one."""
        unfinished: Sequence[trio.Event] = ()
        for effect in self._decide(command):
            match effect:
                case InterruptResponses(reason=reason, epoch=epoch):
                    unfinished = self.interrupt(reason, whole_epoch=epoch)
                case Reconfigure():
                    self._emit_all(self._reconfigure(effect))
                case EndSession(reason=reason, expired=expired):
                    self.end(reason, expired=expired)
                case _:
                    self._perform(effect)
        return unfinished

    def _decide(self, command: ClientCommand) -> Sequence[Effect]:
        if not isinstance(command, NO_ACTIVITY):
            self._patience.active_at = trio.current_time()
        if type(command) is CommitAudio:
            return self._machine.obey(command, self._ears.drain())
        if type(command) is not AppendAudio:
            return self._machine.obey(command)
        try:
            heard = self._ears.hear(command)
        except ProtocolViolation as error:
            return self._machine.refuse(error, command.event_id)
        return self._machine.obey(command, heard)

    def _emit_all(self, effects: Iterable[SyncEffect]) -> None:
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: SyncEffect) -> None:
        match effect:
            case Emit(event=event):
                self._say(event)
            case Feed():
                self._take_in(effect)
            case Overheard(utterance=utterance):
                self._epochs.epoch.overheard(utterance)
            case OfferTurn(turn=turn):
                self._started = True
                self._turn_ended_at = trio.current_time()
                self._epochs.epoch.offer(turn)
            case DeliverOutput(output=output):
                self.outputs.append(output)
                self._epochs.epoch.fed()
            case DropInput():
                self._inlet.clear()
            case ResetDetector():
                self._ears.reset_detector()
            case ResetDecoder():
                self._ears.reset_decoder()
            case RedoHearing(config=config):
                self._ears.reconfigure(config)
            case TrimJournal(seq=seq, event_id=event_id):
                self._trim(seq, event_id)
            case PurgeOutput(response_id=response_id):
                self._machine.withdrawn(response_id, self.outlet.withdraw(response_id))

    # --- input --------------------------------------------------------------------------------------------------

    def _take_in(self, feed: Feed) -> None:
        self._started = True
        if feed.commit:
            self._turn_ended_at = trio.current_time()
        answering = self._machine.active_response_id is not None
        if self._inlet.take_in(feed, answering=answering, max_backlog_s=self._epochs.plan.max_backlog_s):
            self._epochs.epoch.fed()
        self._tell_lag()

    def _tell_lag(self) -> None:
        if not self.config.duplex_events or self.over.is_set():
            return
        lag_ms = self._inlet.lag_ms()
        if lag_ms is not None:
            self._say(SessionLagging(session_id=self.id, input_age_ms=lag_ms[0], dropped_ms=lag_ms[1]))

    def input_taken(self) -> None:
        """A unit left the intake."""
        self._inlet.taken()

    # --- output -------------------------------------------------------------------------------------------------

    def learn(self, fact: Fact) -> None:
        """What the model side did, told in its own step."""
        now = self._patience.active_at = trio.current_time()
        if type(fact) is ResponseAudio and self._turn_ended_at is not None:
            self._observe(FirstAudio(self.id, now - self._turn_ended_at))
            self._turn_ended_at = None
        self._emit_all(self._machine.learn(fact))
        if type(fact) is ResponseEnded:
            self._observe(ResponseFinished(self.id, fact.status.value))
            if fact.status is ResponseStatus.FAILED:
                self._log.warning("response_failed", code=fact.reason, cause=fact.message)
                if ends_session(fact.reason):
                    self.end(fact.reason)

    def history(self) -> Sequence[Message]:
        """The conversation so far."""
        return self._machine.history()

    @property
    def native(self) -> bool:
        """Whether the model decides by itself."""
        return self._machine.config.native

    @property
    def hears_units(self) -> bool:
        """Whether the model hears units, whoever starts its answers."""
        return self._opening.capabilities.native

    @property
    def lead_s(self) -> float | None:
        """How far audio may run ahead."""
        return self._epochs.plan.lead_s

    @property
    def late_s(self) -> float:
        """How late a unit may come before silence is heard in its place."""
        return self._epochs.plan.late_s

    @property
    def endless(self) -> bool:
        """Whether an answer may last for ever."""
        return self._epochs.plan.endless

    def _say(self, event: ServerEvent) -> None:
        if not self.outlet.say(event) and not self._scope.cancel_called:
            self._log.warning("output_overflow")
            self._epochs.epoch.cut("output_overflow", ResponseStatus.FAILED)
            self.end("output_overflow")

    def _trim(self, seq: int, event_id: str | None) -> None:
        try:
            self.outlet.trim(seq)
        except ProtocolViolation as error:
            self._emit_all(self._machine.refuse(error, event_id))

    # --- epochs -------------------------------------------------------------------------------------------------

    def _model_failed(self, error: CodedError) -> None:
        """The model cannot go on with this session."""
        self._emit_all(self._machine.refuse(error, None))
        self.end(error.code)

    def interrupt(self, reason: str, *, whole_epoch: bool) -> Sequence[trio.Event]:
        """Order the answers to be left, or the epoch as a whole; returns what is over when they are."""
        self.outlet.interrupted()
        return self._epochs.interrupt(reason, whole_epoch=whole_epoch)

    def _reconfigure(self, change: Reconfigure) -> Sequence[SyncEffect]:
        try:
            plan = self._opening.plugin.replan(self._epochs.plan, change.config, change.patch, started=self._started)
        except ConfigRejected as error:
            return self._machine.reconfigure_refused(change, error)
        self._epochs.replan(plan)
        return self._machine.reconfigured(change)

    # --- presence and patience ----------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            with trio.move_on_at(self._patience.until):
                await self._watched.park()
                continue
            ending = self._patience.verdict(trio.current_time(), busy=self._machine.busy)
            if ending is not None:
                self.end(ending.reason, expired=ending.expired)

    def _presence_changed(self) -> None:
        if self.outlet.attachments.current is None:
            self._patience.vacated(trio.current_time())
        else:
            self._patience.attended()
        self._watched.unpark_all()

    # --- what guests see ----------------------------------------------------------------------------------------

    def public_session(self) -> Mapping[str, object]:
        """The session object of 2.7."""
        return self._machine.public_session()

    @property
    def config(self) -> SessionConfig:
        """The effective configuration."""
        return self._machine.config


def _conversation(opening: Opening, unit_format: UnitFormat) -> Conversation:
    """The conversation machine of a session. Its plan may say better than its model what an interruption ends."""
    interrupt = opening.plan.interrupt or opening.capabilities.interrupt
    return Conversation(
        session_id=opening.id,
        config=opening.config,
        capabilities=attrs.evolve(opening.capabilities, interrupt=interrupt),
        input_rate_hz=unit_format.rate_hz,
        output_rate_hz=unit_format.output_rate_hz,
        limits=opening.limits,
        now=trio.current_time,
    )
