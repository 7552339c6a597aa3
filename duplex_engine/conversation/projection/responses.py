"""Answers as wire events: announcement, body and terminals, in the order of wire contract 4.3 and 4.4.

Owns the shapes and the order. Never decides that an answer starts or ends.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from duplex_engine.conversation.answer import Answer
from duplex_engine.conversation.facts import FunctionCall, ResponseEnded, ResponseStatus, TextMark
from duplex_engine.conversation.items import Items
from duplex_engine.conversation.playback import Ledger
from duplex_engine.conversation.projection.functions import CallProjection, usage_object
from duplex_engine.conversation.projection.session import text_map
from duplex_engine.conversation.scene import Scene
from duplex_engine.protocol.errors import error_details
from duplex_engine.protocol.events import (
    UNSET,
    Absent,
    ContentPartAdded,
    ContentPartDone,
    ItemAdded,
    ItemCreated,
    ItemDone,
    JsonObject,
    OutputAudioDelta,
    OutputAudioDone,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    OutputTextDone,
    RateLimitsUpdated,
    ResponseCreated,
    ResponseDone,
    ResponseListen,
    ResponseSpeak,
    TranscriptDelta,
    TranscriptDone,
)
from duplex_engine.protocol.sizes import ALIGNMENT_MARKS

GA_REASONS: Final = {
    "turn_detected": "turn_detected",
    "client_cancelled": "client_cancelled",
    "barge_in": "client_cancelled",
    "output_audio_buffer_clear": "client_cancelled",
    "max_output_tokens": "max_output_tokens",
    "content_filter": "content_filter",
}
"""Reasons that `ga` can say, and how: its clients know four words and may refuse a response with any other."""


OUT_OF_TOKENS: Final = "length"
"""The finish reason of a model that was stopped by its limit: in `ga` such an answer is not complete."""


@attrs.frozen
class AnswerProjection:
    """Says what happens to answers."""

    scene: Scene
    items: Items
    ledger: Ledger
    calls: CallProjection

    # --- start ------------------------------------------------------------------------------------------------

    def announce(self, answer: Answer, before: str | None) -> None:
        """Steps 1 to 4 of 4.3; `before` is the id of the item in front of the answer's."""
        scene, item = self.scene, answer.item
        response = self._response(answer, "in_progress", None, ())
        scene.say(ResponseCreated(response_id=answer.id, response=response))
        scene.say(ItemAdded(previous_item_id=before, item=item.to_wire()))
        scene.say(ItemCreated(previous_item_id=before, item=item.to_wire()))
        scene.say(OutputItemAdded(response_id=answer.id, item=item.to_wire()))
        if answer.speaks or answer.written:
            self.add_part(answer)

    def add_part(self, answer: Answer) -> None:
        """The content part, once."""
        if not answer.part_added:
            answer.part_added = True
            part = _part(answer, "")
            self.scene.say(ContentPartAdded(response_id=answer.id, item_id=answer.item.id, part=part))

    def speak(self, answer: Answer) -> None:
        """`response.speak`, once, immediately before the first output."""
        if not answer.spoke:
            answer.spoke = True
            metadata = {"session_id": self.scene.session_id, "epoch": answer.epoch, "model_speak": True}
            self.scene.say(ResponseSpeak(response_id=answer.id, item_id=answer.item.id, metadata=metadata))

    # --- body -------------------------------------------------------------------------------------------------

    def audio(self, answer: Answer, data: bytes, text: str, marks: Sequence[TextMark]) -> None:
        """One delta of sound with the words that belong to it; in `strict` always as a pair."""
        scene, encoder = self.scene, answer.encoder
        strict = scene.strict
        scene.say(
            OutputAudioDelta(
                response_id=answer.id,
                item_id=answer.item.id,
                audio=data,
                format=encoder.encoding.value,
                sample_rate_hz=encoder.rate_hz,
                metadata=self._audio_metadata(answer, marks) if strict else UNSET,
            )
        )
        if strict or text:
            scene.say(TranscriptDelta(response_id=answer.id, item_id=answer.item.id, delta=text))

    def _audio_metadata(self, answer: Answer, marks: Sequence[TextMark]) -> JsonObject:
        return {
            "session_id": self.scene.session_id,
            "epoch": answer.epoch,
            "model_speak": True,
            "end_of_turn": False,
            "audio_duration_ms": answer.cursor.sent_ms,
            "audio_text_marks": _marks(marks),
            "playback": answer.cursor.to_wire(),
        }

    def text(self, answer: Answer, delta: str) -> None:
        """Words without sound of their own."""
        if answer.written:
            self.scene.say(OutputTextDelta(response_id=answer.id, item_id=answer.item.id, delta=delta))
            return
        metadata: JsonObject | Absent = UNSET
        if self.scene.strict:
            metadata = {"session_id": self.scene.session_id, "epoch": answer.epoch, "model_speak": True}
        self.scene.say(TranscriptDelta(response_id=answer.id, item_id=answer.item.id, delta=delta, metadata=metadata))

    # --- end --------------------------------------------------------------------------------------------------

    def listen(self, answer: Answer, reason: str) -> None:
        """The model stops by deciding to listen; terminals follow."""
        self.scene.say(listen_event(self.scene, reason, response_id=answer.id))

    def terminals(self, answer: Answer, ended: ResponseEnded, calls: Sequence[FunctionCall] = ()) -> None:
        """Steps 1 to 8 of 4.4; `calls` are further items of the answer. Its `status` has been set."""
        scene = self.scene
        if not scene.strict and ended.status is ResponseStatus.COMPLETED and ended.reason == OUT_OF_TOKENS:
            ended = attrs.evolve(ended, status=ResponseStatus.INCOMPLETE, reason="max_output_tokens")
        self._content_done(answer)
        answer.item.status = item_status(ended.status, strict=scene.strict)
        answer.item.content = self.content(answer)
        item = answer.item.to_wire()
        scene.say(OutputItemDone(response_id=answer.id, item=item))
        scene.say(ItemDone(previous_item_id=self.items.before(answer.item.id), item=item))
        output: list[JsonObject] = [item]
        for call in calls:
            output.append(self.calls.say_further_item(call, answer.id, len(output), output[-1]))
        details = None if ended.yielded else _status_details(ended, strict=scene.strict)
        response = self._response(answer, ended.status.value, details, output, ended)
        scene.say(ResponseDone(response_id=answer.id, response=response))
        scene.say(RateLimitsUpdated())

    def _content_done(self, answer: Answer) -> None:
        scene, text = self.scene, answer.text
        ids: dict[str, Any] = {"response_id": answer.id, "item_id": answer.item.id}
        if answer.written:
            scene.say(OutputTextDone(**ids, text=text))
        else:
            if text or answer.samples_sent:
                scene.say(OutputAudioDone(**ids))
            if text:
                scene.say(TranscriptDone(**ids, transcript=text))
        if answer.part_added:
            scene.say(ContentPartDone(**ids, part=_part(answer, text)))

    def content(self, answer: Answer) -> list[Mapping[str, object]]:
        """The content of the answer's item as it stands."""
        shown = answer.words_shown(self.ledger)
        if answer.written:
            return [{"type": "output_text", "text": shown}] if answer.characters else []
        if not (answer.characters or answer.samples_sent):
            return []
        part: dict[str, object] = {"type": "output_audio", "transcript": shown}
        if self.scene.strict:
            part["audio_duration_ms"] = answer.cursor.sent_ms
            part["audio_text_marks"] = _marks(self._marks_shown(answer))
        return [part]

    def _marks_shown(self, answer: Answer) -> Sequence[TextMark]:
        """The marks of what was heard; of a long answer every second one, or every third, up to the last."""
        marks = answer.marks
        if answer.status is ResponseStatus.CANCELLED or answer.cursor.cap_ms is not None:
            heard_ms = self.ledger.heard_ms(answer.cursor)
            marks = [mark for mark in marks if mark.audio_end_ms <= heard_ms]
        return marks[:: -math.ceil(len(marks) / ALIGNMENT_MARKS)][::-1] if len(marks) > ALIGNMENT_MARKS else marks

    def _response(
        self,
        answer: Answer,
        status: str,
        details: JsonObject | None,
        output: Sequence[JsonObject],
        ended: ResponseEnded | None = None,
    ) -> JsonObject:
        response: dict[str, object] = {
            "id": answer.id,
            "object": "realtime.response",
            "status": status,
            "status_details": details,
            "output": list(output),
            "modalities": list(answer.modalities),
            "metadata": self._metadata(answer, ended),
        }
        if not self.scene.strict:
            response["output_modalities"] = response["modalities"]
        if ended is not None:
            response["usage"] = usage_object(ended.usage)
        return response

    def _metadata(self, answer: Answer, ended: ResponseEnded | None) -> JsonObject:
        if not self.scene.strict:
            return text_map(answer.metadata)
        metadata = {**answer.metadata, "epoch": answer.epoch}
        if ended is not None and ended.status is ResponseStatus.CANCELLED:
            metadata["cancelled_epoch"] = answer.epoch
            metadata["epoch"] = self.scene.epoch
            metadata["committed_ms"] = self.ledger.heard_ms(answer.cursor)
            metadata["reason"] = ended.reason
            metadata["playback"] = answer.cursor.to_wire()
        return metadata


def listen_event(scene: Scene, reason: str, *, response_id: str | None = None) -> ResponseListen:
    """`response.listen`: standalone, or with the id of the answer that the model ends by listening (4.5)."""
    metadata: dict[str, object] = {
        "type": "response.listen",
        "session_id": scene.session_id,
        "epoch": scene.epoch,
        "reason": reason,
        "model_listen": reason == "model_listen",
    }
    if reason == "buffering":
        metadata["buffering"] = True
    response: dict[str, object] = {"object": "realtime.response", "status": "listening", "metadata": metadata}
    if response_id is None:
        return ResponseListen(session_id=scene.session_id, epoch=scene.epoch, response=response)
    response["id"] = response_id
    return ResponseListen(session_id=scene.session_id, epoch=scene.epoch, response=response, response_id=response_id)


def item_status(status: ResponseStatus, *, strict: bool) -> str:
    """How an answer's end shows on its item: `ga` knows no cancelled or failed items (12.4 row 10)."""
    if strict or status is ResponseStatus.COMPLETED:
        return status.value
    return ResponseStatus.INCOMPLETE.value


def _status_details(ended: ResponseEnded, *, strict: bool) -> JsonObject | None:
    """Why an answer ended; `ga` has words for a few reasons alone, and none for an end that is none."""
    if strict:
        return {"type": ended.status.value, "reason": ended.reason}
    if ended.status is ResponseStatus.COMPLETED:
        return None
    details: dict[str, object] = {"type": ended.status.value}
    if ended.reason in GA_REASONS:
        details["reason"] = GA_REASONS[ended.reason]
    if ended.status is ResponseStatus.FAILED:
        details["error"] = error_details(ended.reason, ended.message)
    return details


def _part(answer: Answer, text: str) -> JsonObject:
    return {"type": "text", "text": text} if answer.written else {"type": "audio", "transcript": text}


def _marks(marks: Sequence[TextMark]) -> list[JsonObject]:
    return [{"text_chars": mark.text_chars, "audio_end_ms": mark.audio_end_ms} for mark in marks]
