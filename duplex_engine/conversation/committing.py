"""How the user's turns end: commits, clears, `response.create`, and which turn the model is offered (3.4 to 3.6, 6.6).

Owns the turns that wait for an answer. Never listens: `listening.py` says when speech has ended.
"""

from collections.abc import Iterable, Mapping

from duplex_engine.audio.pcm import SILENCE
from duplex_engine.conversation.answers import Answers
from duplex_engine.conversation.commit import (
    CommitMoment,
    CommitOutcome,
    CreateMoment,
    CreateOutcome,
    decide_commit,
    decide_create,
)
from duplex_engine.conversation.effects import (
    DropInput,
    Feed,
    OfferTurn,
    Overheard,
    ResetDecoder,
    ResetDetector,
    Turn,
    Utterance,
)
from duplex_engine.conversation.facts import ResponseStatus, UserHeard
from duplex_engine.conversation.items import ITEM_BYTES, Item, Items
from duplex_engine.conversation.pending import SAMPLE_BYTES, CommittedTurn, OpenTurn, Pending
from duplex_engine.conversation.projection.input import (
    Listens,
    audio_part,
    say_commit,
    say_recognised,
    say_transcript,
)
from duplex_engine.conversation.scene import Scene
from duplex_engine.conversation.speech import Speech
from duplex_engine.conversation.turns import Happening
from duplex_engine.errors import ProtocolViolation
from duplex_engine.protocol.commands import CommitAudio, CreateResponse, ResponseOptions
from duplex_engine.protocol.events import InputCleared
from duplex_engine.protocol.sizes import TRANSCRIPT_CHARACTERS

REFUSALS = {
    CreateOutcome.UNSUPPORTED_OPTIONS: (
        "unsupported_native_response_options",
        "these options cannot be chosen per response; set them with session.update",
    ),
    CreateOutcome.ALREADY_ACTIVE: ("response_already_active", "a response is in progress; wait for it or cancel it"),
    CreateOutcome.TEXT_UNSUPPORTED: ("text_only_turn_unsupported", "this model answers speech only, not text alone"),
    CreateOutcome.NO_INPUT: ("response_create_without_input", "there is no committed input to answer"),
}


class Committing:
    """The ends of the user's turns in one conversation."""

    def __init__(
        self, scene: Scene, items: Items, speech: Speech, answers: Answers, listens: Listens, pending: Pending
    ) -> None:
        self._scene = scene
        self._items = items
        self._speech = speech
        self._answers = answers
        self._listens = listens
        self._pending = pending
        self._newest_item: Item | None = None
        self._detector_is_stale = False
        self.native_owed = False

    @property
    def pending_bytes(self) -> int:
        """Bytes of sound, as float32, that no answer has been completed for."""
        offered = sum(
            key.utterance.sample_count
            for key in self._answers.alive
            if isinstance(key, Turn) and key.utterance is not None
        )
        return SAMPLE_BYTES * (self._speech.turn.samples + self._pending.samples + offered)

    # --- commit -----------------------------------------------------------------------------------------------

    def commit(self, command: CommitAudio) -> None:
        """The client ends the turn. Raises ProtocolViolation `input_audio_buffer_empty` or `input_backpressure`."""
        turn = self._speech.turn
        outcome = decide_commit(
            self._moment(turn, asked=command.response_create, denied=command.is_speech is False, patient=False)
        )
        if outcome is CommitOutcome.EMPTY:
            raise ProtocolViolation("input_audio_buffer_empty", "nothing was appended since the last commit")
        self.check_room(ITEM_BYTES)
        offered, limit = len(self._answers.alive), self._scene.limits.pending_turns
        if outcome is CommitOutcome.ANSWERED and offered >= limit:
            raise ProtocolViolation("input_backpressure", f"{offered} turns wait for answers; the limit is {limit}")
        self._speech.stop()
        self._conclude(outcome, asked=command.response_create)
        self.rest_detector()

    def check_room(self, size: int) -> None:
        """Whether an item of this size may be added for the client. Raises ProtocolViolation `input_backpressure`."""
        kept, limit = self._items.size, self._scene.limits.item_bytes
        if kept + size > limit:
            message = f"the conversation keeps {kept} bytes of your items; the limit is {limit}: delete some"
            raise ProtocolViolation("input_backpressure", message)

    def commit_detected(self, *, asked: bool, kept: bool) -> None:
        """The detector ended the turn. `kept` False: it was a short acknowledgement of an answer."""
        outcome = CommitOutcome.SHORT_ACKNOWLEDGEMENT
        if kept:
            outcome = decide_commit(self._moment(self._speech.turn, asked=asked, denied=False, patient=True))
        self._conclude(outcome, asked=asked)

    def _moment(self, turn: OpenTurn, *, asked: bool, denied: bool, patient: bool) -> CommitMoment:
        """`patient`: a detected turn counts as overlapping only if it began during the answer."""
        answers, overlapping = self._answers, self._scene.capabilities.overlapping_responses
        answering = bool(answers.alive) or answers.unacknowledged
        return CommitMoment(
            native=self._scene.config.native,
            buffered=turn.buffered,
            speech=turn.speech,
            denied=denied,
            answering=answering and (turn.overlaps or not patient),
            generating=bool(answers.alive) and not overlapping,
            speech_ms=turn.speech_ms,
            short_ack_ms=self._scene.config.overlap_short_ack_ms,
            asked=asked,
        )

    def _conclude(self, outcome: CommitOutcome, *, asked: bool) -> None:
        match outcome:
            case CommitOutcome.SILENT:
                self._end_turn({"empty": True, "is_speech": False, "no_response": True}, speech=False)
                self._listens.say("silence_or_noise")
            case CommitOutcome.NATIVE_QUIET:
                self._end_turn({}, speech=False)
                self._listens.say("silence_or_noise")
            case CommitOutcome.NATIVE_SPEECH:
                self._end_turn({})
                self._scene.do(Feed(SILENCE, commit=True))
                self.native_owed = True
            case CommitOutcome.SHORT_ACKNOWLEDGEMENT:
                self._end_turn({"overlap_ack": True, "empty": True, "no_response": True}, dropped=True)
            case CommitOutcome.DEFERRED:
                self._keep_turn({"overlap_deferred": True, "response_create_deferred": asked}, asked=asked)
            case CommitOutcome.ANSWERED:
                self._keep_turn({}, asked=False)
                self.offer(ResponseOptions())
            case CommitOutcome.WAITING:
                self._keep_turn({}, asked=False)

    def _keep_turn(self, flags: Mapping[str, object], *, asked: bool) -> None:
        turn = self._end_turn(flags)
        turn.utterance.samples()  # one array from here on: its length is asked for with every append
        self._pending.turns.append(
            CommittedTurn(item_id=turn.item_id, utterance=turn.utterance, transcript=turn.transcript, asked=asked)
        )

    def _end_turn(self, flags: Mapping[str, object], *, speech: bool = True, dropped: bool = False) -> OpenTurn:
        """The open turn becomes an item, and the client learns of it."""
        scene, turn = self._scene, self._speech.finish(dropped=dropped or not speech)
        transcript = turn.transcript
        item = Item(
            id=turn.item_id,
            role="user",
            content=[audio_part(transcript, speech=speech)],
            audio_ms=turn.samples * 1000 // scene.input_rate_hz,
            words=lambda: transcript,
            in_history=not dropped,
            size=ITEM_BYTES + len(transcript),
        )
        before = self._items.add(item, turn.after)
        say_commit(scene, item, before, len(self._items), flags)
        self._listens.expect()
        self._detector_is_stale = True
        if speech and not dropped:
            scene.turn_id += 1
            self._newest_item = item
            scene.happened(Happening.USER_COMMITTED)
        return turn

    def rest_detector(self) -> None:
        """After a commit the detector starts afresh, unless it is hearing the next turn already."""
        if self._detector_is_stale and not self._speech.turn.speaking:
            self._detector_is_stale = False
            if self._scene.config.turn_detection is not None:
                self._scene.do(ResetDetector())

    # --- clear ------------------------------------------------------------------------------------------------

    def clear(self, *, tell: bool) -> None:
        """Forget all sound that was not answered. `tell`: say that the buffer is cleared."""
        self._speech.stop()
        self._speech.finish(dropped=True)
        self._speech.forget()
        self._scene.do(ResetDecoder())
        self.drop(self._pending.drop_sound())
        self.native_owed = self._pending.undelivered > 0
        if self._scene.config.native:
            self._scene.do(DropInput())
        if self._scene.config.turn_detection is not None:
            self._scene.do(ResetDetector())
        self._scene.happened(Happening.USER_WITHDRAWN)
        if tell:
            self._scene.say(InputCleared())

    def drop(self, utterances: Iterable[Utterance]) -> None:
        """Whoever listens along to these may stop."""
        for utterance in utterances:
            utterance.dropped = True
            self._scene.do(Overheard(utterance))

    # --- answers ----------------------------------------------------------------------------------------------

    def create(self, command: CreateResponse) -> None:
        """The client wants an answer now. Raises ProtocolViolation with the codes of 3.6."""
        outcome = decide_create(self._create_moment(command))
        if outcome in REFUSALS:
            code, message = REFUSALS[outcome]
            param = f"response.{command.unsupported[0]}" if outcome is CreateOutcome.UNSUPPORTED_OPTIONS else None
            raise ProtocolViolation(code, message, param)
        if outcome is CreateOutcome.ANSWERED:
            self.offer(command.options)

    def _create_moment(self, command: CreateResponse) -> CreateMoment:
        scene, answers = self._scene, self._answers
        alive = bool(answers.alive) and not scene.capabilities.overlapping_responses
        return CreateMoment(
            refused_options=scene.strict and bool(command.unsupported),
            answering=alive or answers.unacknowledged,
            native=scene.config.native,
            native_owed=self.native_owed,
            audio=bool(self._pending.turns),
            texts=bool(self._pending.texts) or self._needs_no_input(command),
            text_turns=scene.capabilities.text_only_turns or self._pending.undelivered > 0,
        )

    def _needs_no_input(self, command: CreateResponse) -> bool:
        """Whether the request itself is enough: with instructions, and in `ga` wherever text alone is answered."""
        scene = self._scene
        spoken_to = command.options.instructions is not None
        return spoken_to or (not scene.strict and scene.capabilities.text_only_turns and not scene.config.native)

    def offer(self, options: ResponseOptions) -> None:
        """Announce the answer to everything that waits, and hand it to the model."""
        turn = self._pending.take(self._items, options)
        self._answers.announce(turn, options)
        self._scene.do(OfferTurn(turn))

    def answer_ended(self, status: ResponseStatus, reason: str) -> None:
        """The floor is free: a turn deferred until now is answered, or waits to be asked for (6.6, D-40, D-41)."""
        self._listens.expect()
        if self._answers.alive or self._scene.closing:
            return
        if self.native_owed:  # the answer took the committed sound along; the model has to decide once more
            self._scene.do(Feed(SILENCE, commit=True))
        promoted = status in (ResponseStatus.COMPLETED, ResponseStatus.INCOMPLETE) or reason == "client_cancelled"
        if self._pending.asked and promoted:
            self.offer(ResponseOptions())
        elif not promoted:
            self._pending.wait()

    # --- recognition ------------------------------------------------------------------------------------------

    def hear_user(self, fact: UserHeard) -> None:
        """Words of the user were recognised."""
        if isinstance(fact.turn, Turn):
            item = None if fact.turn.item_id is None else self._items.get(fact.turn.item_id)
        elif self._speech.turn.speech:
            if fact.final:
                self._speech.turn.hint(fact.text)
            return
        else:
            item = self._newest_item
        if item is None or item.id not in self._items or item.words():
            return
        text = fact.text[: TRANSCRIPT_CHARACTERS - (0 if fact.final else len(item.recognised))]
        if not fact.final:
            say_recognised(self._scene, item, text)
        elif text:
            item.words = lambda: text
            item.content = [audio_part(text)]
            say_transcript(self._scene, item, text)
