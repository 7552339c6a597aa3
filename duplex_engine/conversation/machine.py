"""The conversation: what was said and what is owed, as a state machine without an event loop.

Everything that changes conversation state is in this package. Commands come from the client (`obey`), facts from the
model (`learn`); both answer with effects, at most one of which takes time, always the last. Illegal input answers an
`error` event and changes nothing. Responses and turns are opaque keys; a response id that a client quotes is resolved
here, once. Never performs an effect.
"""

from collections.abc import Callable, Sequence
from typing import Any

from duplex_engine.config import SessionLimits
from duplex_engine.conversation.acknowledging import Acknowledging
from duplex_engine.conversation.answers import Answers
from duplex_engine.conversation.committing import Committing
from duplex_engine.conversation.creation import Creation
from duplex_engine.conversation.effects import (
    Effect,
    EndSession,
    Heard,
    Message,
    Reconfigure,
    RedoHearing,
    SyncEffect,
    TrimJournal,
    Turn,
)
from duplex_engine.conversation.facts import (
    ContextRolled,
    Fact,
    FunctionCalled,
    InputRefused,
    ModelListened,
    OutputsTaken,
    ResponseAudio,
    ResponseEnded,
    ResponseOpened,
    ResponseStatus,
    ResponseText,
    UserHeard,
)
from duplex_engine.conversation.items import Items
from duplex_engine.conversation.listening import Listening
from duplex_engine.conversation.pending import Pending
from duplex_engine.conversation.playback import Ledger
from duplex_engine.conversation.projection.input import Listens
from duplex_engine.conversation.scene import Scene, random_id
from duplex_engine.conversation.speech import Speech
from duplex_engine.conversation.stopping import Stopping
from duplex_engine.conversation.turns import SIGNALLED, Happening, TurnState
from duplex_engine.errors import CodedError, LocalProtocolError, ProtocolViolation
from duplex_engine.protocol.capabilities import Capabilities
from duplex_engine.protocol.commands import (
    REFUSED_SIGNALS,
    AcknowledgeEvents,
    AcknowledgePlayback,
    AppendAudio,
    AppendText,
    BargeIn,
    CancelInput,
    CancelResponse,
    ClearInput,
    ClearOutputAudio,
    ClientCommand,
    CloseSession,
    CommitAudio,
    CreateItem,
    CreateResponse,
    DeleteItem,
    Heartbeat,
    ResponseOptions,
    ResumeSession,
    RetrieveItem,
    SignalTurn,
    TruncateItem,
    UpdateSession,
)
from duplex_engine.protocol.events import (
    HeartbeatAcknowledged,
    SessionClosed,
    SessionExpired,
    SessionUpdated,
    TurnEvent,
)
from duplex_engine.protocol.session_config import SessionConfig, SessionFacts, patch_config, public_session

SESSION_CLOSED = "session_closed"
CONTEXT_ROLLED = "context_rolled"


class Conversation:
    """One session's conversation. All methods are synchronous; nobody else changes its state."""

    def __init__(
        self,
        *,
        session_id: str,
        config: SessionConfig,
        capabilities: Capabilities,
        input_rate_hz: int,
        output_rate_hz: int,
        limits: SessionLimits,
        now: Callable[[], float],
        new_id: Callable[[str], str] = random_id,
    ) -> None:
        scene = Scene(
            session_id=session_id,
            config=config,
            capabilities=capabilities,
            limits=limits,
            input_rate_hz=input_rate_hz,
            output_rate_hz=output_rate_hz,
            now=now,
            new_id=new_id,
        )
        items, pending, listens = Items(), Pending(), Listens(scene)
        self._scene, self._items, self._pending, self._listens = scene, items, pending, listens
        self._ended = False
        self._ledger = ledger = Ledger(config.playback_policy, now)
        self._answers = answers = Answers(scene, items, ledger)
        self._speech = speech = Speech(scene, items)
        self._committing = committing = Committing(scene, items, speech, answers, listens, pending)
        self._listening = Listening(scene, speech, answers, committing, listens)
        self._creation = Creation(scene, items, answers, committing, pending)
        self._acknowledging = Acknowledging(scene, items, answers, ledger)
        self._stopping = Stopping(scene, answers, committing, ledger)
        self._obeyed = self._commands()
        self._learned = self._facts()

    def _commands(self) -> dict[type, Callable[[Any], None]]:
        """Who obeys which command; appends go to `listening.py` with what was heard of them."""
        return {
            UpdateSession: self._update,
            ResumeSession: self._resume,
            AcknowledgeEvents: self._acknowledge_events,
            Heartbeat: self._heartbeat,
            CloseSession: self._close,
            CommitAudio: self._committing.commit,
            ClearInput: self._stopping.clear_input,
            CancelInput: self._stopping.cancel_input,
            CreateResponse: self._committing.create,
            CancelResponse: self._stopping.cancel_response,
            BargeIn: self._stopping.barge_in,
            ClearOutputAudio: self._stopping.clear_output,
            CreateItem: self._creation.create,
            DeleteItem: self._creation.delete,
            RetrieveItem: self._creation.retrieve,
            TruncateItem: self._truncate,
            AcknowledgePlayback: self._acknowledging.acknowledge,
            SignalTurn: self._signal,
            AppendText: self._append_text,
        }

    def _facts(self) -> dict[type, Callable[[Any], None]]:
        """Who learns which fact."""
        return {
            ResponseOpened: self._open,
            ResponseText: self._answers.hear_text,
            ResponseAudio: self._answers.hear_audio,
            ResponseEnded: self._end,
            ModelListened: self._listened,
            UserHeard: self._committing.hear_user,
            FunctionCalled: self._call,
            OutputsTaken: self._outputs_taken,
            ContextRolled: self._rolled,
            InputRefused: self._refused,
        }

    # --- what is asked ----------------------------------------------------------------------------------------

    def opening(self) -> list[SyncEffect]:
        """The session exists: its first numbered event. `session.created` is the connection's greeting."""
        self._scene.say(SessionUpdated(session=self.public_session()))
        return self._scene.take_sync()

    def obey(self, command: ClientCommand, heard: Heard | None = None) -> list[Effect]:
        """What a client's command leads to. The last effect may take time.

        `heard`: with AppendAudio what was heard of it, with CommitAudio the sound that the ears still held, if any.
        """
        scene = self._scene
        taken: list[Effect] = []
        scene.discard()
        try:
            if scene.closing:
                raise ProtocolViolation("session_closed", "the session is closing")
            if type(command) is AppendAudio:
                if heard is None:
                    raise LocalProtocolError("an append is obeyed with what was heard of it")
                self._listening.append(command, heard)
            else:
                if heard is not None:
                    self._listening.take_rest(heard)
                    taken = scene.take()
                self._obeyed[type(command)](command)
        except CodedError as error:
            scene.discard()
            scene.complain(error, command.event_id, command.TYPE)
        return taken + scene.take()

    def refuse(self, error: CodedError, event_id: str | None) -> list[SyncEffect]:
        """Something was refused before it came here: tell the client."""
        self._scene.discard()
        if not self._ended:
            self._scene.complain(error, event_id)
        return self._scene.take_sync()

    def learn(self, fact: Fact) -> list[SyncEffect]:
        """What the model did. Facts about what is over, or was never announced, change nothing."""
        scene = self._scene
        if self._ended:
            return []
        scene.discard()
        scene.learning = True
        try:
            self._learned[type(fact)](fact)
        finally:
            scene.learning = False
        return scene.take_sync()

    def withdrawn(self, response_id: str, sounds: Sequence[bytes]) -> None:
        """These encoded blocks at the end of an answer never reached the client: they cannot have been heard."""
        answer = self._answers.by_id(response_id)
        if answer is not None and sounds:
            answer.withdraw(sounds)

    def ending(self, reason: str, *, expired: bool) -> list[SyncEffect]:
        """The last words, once: terminals of everything alive, the end of speech, the session's own end."""
        if self._ended:
            raise LocalProtocolError("a session ends once")
        scene, answers = self._scene, self._answers
        scene.discard()
        scene.closing = True
        answers.cut_all(SESSION_CLOSED)
        for key in tuple(answers.alive):
            answers.end(ResponseEnded(key=key, status=ResponseStatus.CANCELLED, reason=SESSION_CLOSED))
        self._committing.clear(tell=False)
        if expired:
            scene.say(SessionExpired(session_id=scene.session_id, reason=reason))
        else:
            scene.say(SessionClosed(session_id=scene.session_id, reason=reason))
        self._ended = True
        return scene.take_sync()

    # --- what can be seen -------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The label of the moment (7.1)."""
        return self._scene.epoch

    @property
    def config(self) -> SessionConfig:
        """The configuration in force."""
        return self._scene.config

    @property
    def busy(self) -> bool:
        """Whether an answer is being given or owed: no time to expire (9.2)."""
        return bool(self._answers.alive) or self._pending.asked or self._committing.native_owed

    @property
    def active_response_id(self) -> str | None:
        """Id of the newest answer that is alive."""
        active = self._answers.active
        return None if active is None else active.id

    @property
    def pending_input_bytes(self) -> int:
        """Bytes of sound held here, as float32, that no answer has been completed for."""
        return self._committing.pending_bytes

    def history(self) -> tuple[Message, ...]:
        """What was really said and heard, oldest first."""
        return self._items.history()

    def public_session(self) -> dict[str, object]:
        """The session object of 2.7, complete."""
        scene, answers = self._scene, self._answers
        active = answers.active
        if scene.turn_state is TurnState.ASSISTANT_PLAYING and not answers.fading:
            scene.happened(Happening.ANSWER_OVER)
        facts = SessionFacts(
            id=scene.session_id,
            state="closing" if scene.closing else "open",
            turn_state=scene.turn_state.value,
            epoch=scene.epoch,
            turn_id=scene.turn_id,
            active_response_id=self.active_response_id,
            active_response_turn_id=None if active is None else active.turn_id,
            playback_policy=self._ledger.policy_in_force.value,
            playback=answers.playback,
            native_rate_hz=scene.output_rate_hz,
        )
        return public_session(scene.config, facts, scene.capabilities)

    # --- the session itself -----------------------------------------------------------------------------------

    def _update(self, command: UpdateSession) -> None:
        scene = self._scene
        config = patch_config(scene.config, command.session, capabilities=scene.capabilities, limits=scene.limits)
        if config.voice != self._scene.config.voice and self._answers.sounded:
            raise ProtocolViolation(
                "voice_update_after_audio_unsupported",
                "the voice cannot change once it was heard; open another session",
                "voice",
            )
        self._scene.wait_for(Reconfigure(config=config, patch=command.session, event_id=command.event_id))

    def reconfigured(self, effect: Reconfigure) -> list[SyncEffect]:
        """The model accepts the configuration: from now on it is in force."""
        scene, before = self._scene, self._scene.config
        scene.config = after = effect.config
        self._ledger.policy = after.playback_policy
        if _hearing(before) != _hearing(after):
            self._speech.prepare()
            scene.do(RedoHearing(after))
        scene.say(SessionUpdated(session=self.public_session()))
        return scene.take_sync()

    def reconfigure_refused(self, effect: Reconfigure, error: CodedError) -> list[SyncEffect]:
        """The model does not accept it: nothing changed."""
        return self.refuse(error, effect.event_id)

    def _resume(self, command: ResumeSession) -> None:
        raise ProtocolViolation("unsupported_session_resume", "this connection has its session already; open a new one")

    def _acknowledge_events(self, command: AcknowledgeEvents) -> None:
        self._scene.do(TrimJournal(command.server_event_seq, command.event_id))

    def _heartbeat(self, command: Heartbeat) -> None:
        self._scene.say(HeartbeatAcknowledged(session_id=self._scene.session_id))

    def _close(self, command: CloseSession) -> None:
        self._scene.closing = True
        self._answers.cut_all(SESSION_CLOSED)
        self._scene.wait_for(EndSession(command.reason))

    def _signal(self, command: SignalTurn) -> None:
        if command.event in REFUSED_SIGNALS:
            raise ProtocolViolation(
                "bad_event", f"the signal {command.event!r} is not taken; send session.close instead", "event"
            )
        self._scene.turn_state = SIGNALLED.get(command.event, self._scene.turn_state)
        self._say_turn_event(command.event)

    def _say_turn_event(self, event: str) -> None:
        scene = self._scene
        state = scene.turn_state.value
        scene.say(TurnEvent(session_id=scene.session_id, event=event, turn_state=state, epoch=scene.epoch))

    def _append_text(self, command: AppendText) -> None:
        raise ProtocolViolation(
            "native_text_append_unsupported", "text cannot be streamed in; use conversation.item.create", "text"
        )

    # --- items ------------------------------------------------------------------------------------------------

    def _truncate(self, command: TruncateItem) -> None:
        self._acknowledging.truncate(command)
        self._listening.stopped_playing(command.item_id)

    # --- what the model does ----------------------------------------------------------------------------------

    def _open(self, fact: ResponseOpened) -> None:
        """A turn's answer was announced when it was offered; an answer that a model begins by itself is news."""
        if isinstance(fact.key, Turn) or fact.key in self._answers.alive or self._scene.closing:
            return
        self._committing.native_owed = False
        self._answers.announce(fact.key, ResponseOptions())

    def _end(self, fact: ResponseEnded) -> None:
        answer = self._answers.end(fact)
        if answer is not None and answer.status is not None:
            self._committing.answer_ended(answer.status, answer.cut or fact.reason)
            self._answers.resume()

    def _listened(self, fact: ModelListened) -> None:
        self._committing.native_owed = False
        self._scene.happened(Happening.MODEL_LISTENED)
        if not self._scene.closing:
            self._listens.say(fact.reason)

    def _call(self, fact: FunctionCalled) -> None:
        if not self._scene.closing:
            self._answers.call(fact)

    def _outputs_taken(self, fact: OutputsTaken) -> None:
        self._pending.undelivered -= fact.count

    def _rolled(self, fact: ContextRolled) -> None:
        self._say_turn_event(CONTEXT_ROLLED)

    def _refused(self, fact: InputRefused) -> None:
        self._scene.complain(CodedError(fact.code, fact.message))


def _hearing(config: SessionConfig) -> object:
    return config.input_format, config.turn_detection, config.overlap_silence_rms
