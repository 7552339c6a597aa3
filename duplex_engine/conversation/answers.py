"""The assistant's side: which answers are alive, what the model says in them, and how all of them are stopped.

Owns the answers of a conversation. Never ends one by itself: interruptions are asked of the session, and each end
comes back as a fact.
"""

from collections import deque
from collections.abc import Callable, Mapping

import attrs

from duplex_engine.conversation.answer import Answer, output_encoder
from duplex_engine.conversation.effects import InterruptResponses, PurgeOutput
from duplex_engine.conversation.facts import (
    FunctionCalled,
    ResponseAudio,
    ResponseEnded,
    ResponseKey,
    ResponseStatus,
    ResponseText,
    TextMark,
)
from duplex_engine.conversation.items import Item, Items
from duplex_engine.conversation.playback import Cursor, Ledger
from duplex_engine.conversation.projection.functions import CallProjection
from duplex_engine.conversation.projection.responses import AnswerProjection
from duplex_engine.conversation.scene import Scene
from duplex_engine.conversation.turns import Happening
from duplex_engine.errors import CodedError
from duplex_engine.protocol.capabilities import Interrupt
from duplex_engine.protocol.commands import ResponseOptions
from duplex_engine.protocol.events import OutputAudioCleared

DELTA_MS = 500
CONTINUATION_LIMIT = "continuation_limit"
SAID_OUT = (ResponseStatus.COMPLETED, ResponseStatus.INCOMPLETE)


class Answers:
    """All answers of one conversation. `alive`: announced and not over, by the model's key, oldest first."""

    def __init__(self, scene: Scene, items: Items, ledger: Ledger) -> None:
        self.alive: dict[ResponseKey, Answer] = {}
        self.newest: Answer | None = None
        self._scene = scene
        self._items = items
        self._ledger = ledger
        self._calls = CallProjection(scene, items)
        self._say = AnswerProjection(scene, items, ledger, self._calls)
        self._known: dict[str, Answer] = {}
        self._fading: list[Answer] = []
        self._postponed: deque[Callable[[], None]] = deque()
        self._resuming = False
        self.sounded = False

    # --- what is known ----------------------------------------------------------------------------------------

    def by_id(self, response_id: str) -> Answer | None:
        """The answer of this id, as long as its item is in the conversation."""
        return self._known.get(response_id)

    def by_item(self, item_id: str) -> Answer | None:
        """The answer whose item this is."""
        return self._known.get(item_id.removeprefix("item_"))

    @property
    def active(self) -> Answer | None:
        """The newest answer that is alive."""
        return next(reversed(self.alive.values()), None)

    @property
    def fading(self) -> list[Answer]:
        """Answers that are complete and still playing, as far as known or estimated."""
        return [answer for answer in self._fading if self._ledger.playing(answer.cursor)]

    @property
    def unacknowledged(self) -> bool:
        """Whether the policy makes further turns wait for acknowledgements that are missing (7.2)."""
        return self._ledger.ack_only and bool(self.fading)

    def forget(self, item_id: str) -> None:
        """The item left the conversation; an answer that is alive goes on all the same, and none is waited for."""
        answer = self._known.pop(item_id.removeprefix("item_"), None)
        self._fading = [fading for fading in self._fading if fading is not answer]

    def refresh(self, item_id: str) -> None:
        """Make an answer's item show what was said, and heard, by now."""
        answer = self.by_item(item_id)
        if answer is not None:
            answer.item.content = self._say.content(answer)

    # --- what the model does ----------------------------------------------------------------------------------

    def announce(self, key: ResponseKey, options: ResponseOptions) -> None:
        """A new answer begins: say so at once."""
        scene, config = self._scene, self._scene.config
        response_id = scene.new_id("resp")
        item = Item(id=f"item_{response_id}", role="assistant", status="in_progress", in_history=options.in_history)
        modalities = options.modalities or config.modalities
        answer = Answer(
            key=key,
            id=response_id,
            item=item,
            epoch=scene.epoch,
            turn_id=scene.turn_id,
            modalities=modalities,
            metadata={**config.metadata, **options.metadata},
            encoder=output_encoder(
                options.output_encoding or config.output_encoding,
                scene.output_rate_hz,
                config.output_encoding,
                config.output_rate_hz,
            ),
            written=not scene.strict and "audio" not in modalities,
        )
        item.words = lambda: answer.words_heard(self._ledger)
        self.alive[key] = self._known[response_id] = self.newest = answer
        self._say.announce(answer, self._items.add(item))
        scene.happened(Happening.ANSWER_STARTED)

    def hear_text(self, fact: ResponseText) -> None:
        """The transcript grew, without sound of its own."""
        answer = self.alive.get(fact.key)
        if answer is None or answer.cut is not None or not fact.delta:
            return
        if self._scene.config.native:
            self._say.speak(answer)
        answer.add_text(fact.delta)
        self._say.text(answer, fact.delta)

    def hear_audio(self, fact: ResponseAudio) -> None:
        """The voice grew: encoded, and cut into deltas of at most half a second."""
        answer = self.alive.get(fact.key)
        if answer is None or answer.cut is not None:
            return
        answer.add_text(fact.text)
        if answer.written:
            if fact.text:
                self._say.text(answer, fact.text)
            return
        if fact.mark is not None:
            answer.add_mark(fact.mark)
        pcm, words, mark = fact.pcm, answer.held_text + fact.text, fact.mark
        step = 2 * (self._scene.output_rate_hz * DELTA_MS // 1000)
        for start in range(0, len(pcm), step):
            last = start + step >= len(pcm)
            data = answer.encoder.encode(pcm[start : start + step] if len(pcm) > step else pcm)
            words = self._sound(answer, data, words, mark if last else None)
        answer.held_text = words

    def _sound(self, answer: Answer, data: bytes, words: str, mark: TextMark | None) -> str:
        """Send one encoded block with its words; returns the words that still wait for a block."""
        if not data:
            return words
        self.sounded = True
        self._say.add_part(answer)
        self._say.speak(answer)
        answer.add_encoded(data, self._scene.now())
        self._say.audio(answer, data, words, () if mark is None else (mark,))
        return ""

    def call(self, fact: FunctionCalled) -> None:
        """The model calls a function (4.7).

        With turns the client's `response.create` would come while the answer is active, and clients in `ga` know of one
        response at a time: for both a call is said when the answer is over that it was made in.
        """
        answer, native = self.alive.get(fact.key), self._scene.config.native
        if answer is None or (native and self._scene.strict):
            self._calls.say_response(fact.call)
        elif native or answer.cut is None:
            answer.calls.append(fact.call)

    # --- how an answer ends -----------------------------------------------------------------------------------

    def end(self, fact: ResponseEnded) -> Answer | None:
        """Its terminals. Returns the answer, None when none of this key is alive."""
        answer = self.alive.pop(fact.key, None)
        if answer is None:
            return None
        ended = self._as_it_ended(answer, fact)
        if ended.status in SAID_OUT:
            self._let_out(answer)
        answer.status = ended.status
        if ended.status is ResponseStatus.FAILED and self._scene.strict:  # in `ga` its details say so
            self._scene.complain(CodedError(ended.reason, ended.message))
        elif ended.yielded:
            self._say.listen(answer, ended.listen_reason)
        elif ended.reason == CONTINUATION_LIMIT and self._scene.config.native:
            self._say.listen(answer, CONTINUATION_LIMIT)
        self._say_last_words(answer, ended)
        self._fade(answer)
        return answer

    def _say_last_words(self, answer: Answer, ended: ResponseEnded) -> None:
        """The terminals, and the calls made in the answer: in `ga` they are further items of it.

        A turn that was stopped or failed has called nothing; a model that decides by itself waits for its outputs.
        """
        scene, whole = self._scene, ended.status in SAID_OUT
        calls = () if scene.closing or not (whole or scene.config.native) else tuple(answer.calls)
        inside = calls if whole and not scene.strict else ()
        self._say.terminals(answer, ended, inside)
        place = answer.item.id
        for call in calls[len(inside) :]:
            place = self._calls.say_response(call, after=place, in_history=answer.item.in_history)

    def _as_it_ended(self, answer: Answer, fact: ResponseEnded) -> ResponseEnded:
        """What the client is told: an interruption we asked for wins over whatever the model said last."""
        cancelled = ResponseStatus.CANCELLED
        if answer.cut is not None:
            return ResponseEnded(key=fact.key, status=cancelled, reason=answer.cut, usage=fact.usage)
        if fact.status is cancelled:
            # Given up without our asking. Other answers keep their label: it is raised with the last one.
            self._scene.epoch += 0 if self.alive else 1
            self._cut(answer, fact.reason)
        if fact.status is ResponseStatus.FAILED and not fact.message:
            return attrs.evolve(fact, message="the answer failed")
        if fact.listen_reason == CONTINUATION_LIMIT and not self._scene.config.native:
            return attrs.evolve(fact, yielded=False)  # who was asked to speak has simply come to the end (6.7)
        return fact

    def _let_out(self, answer: Answer) -> None:
        """The answer is complete: what its encoder still holds is sent, with the last words."""
        words = self._sound(answer, answer.encoder.flush(), answer.held_text, None)
        if words:
            self._say.text(answer, words)
        answer.held_text = ""
        answer.whole = not self._ledger.ack_only

    def _fade(self, answer: Answer) -> None:
        scene = self._scene
        if answer.id not in self._known:
            return
        if not answer.cursor.stopped and answer.cursor.sent_ms:
            self._fading = [*self.fading, answer]
            scene.happened(Happening.ANSWER_GENERATED)
        elif not self.alive:
            scene.happened(Happening.ANSWER_OVER)

    # --- how everything is stopped ----------------------------------------------------------------------------

    def interrupt(self, reason: str) -> bool:
        """Stop what is generated and what is playing. False when there was nothing; then nothing happens.

        Raises the epoch label first (7.1); the session ends the answers, and their terminals follow as it does.
        """
        fading = self.fading
        if not self.alive and not fading:
            return False
        scene = self._scene
        scene.epoch += 1
        for answer in fading:
            self.stop_playing(answer)
        for answer in self.alive.values():
            self._cut(answer, reason)
        if self.alive:
            scene.wait_for(InterruptResponses(reason, epoch=scene.capabilities.interrupt is Interrupt.EPOCH))
        scene.happened(Happening.BARGED_IN)
        return True

    def stop_playing(self, answer: Answer) -> None:
        """A complete answer is played no further."""
        self._ledger.interrupt(answer.cursor)
        answer.whole = False
        self._scene.do(PurgeOutput(answer.id))
        self._scene.say(OutputAudioCleared(response_id=answer.id))

    def cut_all(self, reason: str) -> None:
        """The session is being closed: whatever is alive ends with this reason."""
        if self.alive:
            self._scene.epoch += 1
        for answer in self.alive.values():
            self._cut(answer, reason)

    def _cut(self, answer: Answer, reason: str) -> None:
        answer.cut = reason
        self._ledger.interrupt(answer.cursor)
        self._scene.do(PurgeOutput(answer.id))

    # --- what waits for an interruption to be through ---------------------------------------------------------

    @property
    def interrupting(self) -> bool:
        """Whether answers were told to end and have not said their last words."""
        return any(answer.cut is not None for answer in self.alive.values())

    def then(self, step: Callable[[], None]) -> None:
        """Do `step` now, or right after the last word of what is being interrupted."""
        if self.interrupting or (self._postponed and not self._resuming):
            self._postponed.append(step)
        else:
            step()

    def resume(self) -> None:
        """Do what waited, once nothing is being interrupted any more."""
        self._resuming = True
        while self._postponed and not self.interrupting:
            self._postponed.popleft()()
        self._resuming = False

    @property
    def playback(self) -> Mapping[str, int]:
        """The ledger of the current answer, for the session object."""
        return Cursor().to_wire() if self.newest is None else self.newest.cursor.to_wire()
