"""`playback.ack` and `conversation.item.truncate`: what the client says was heard (wire contract 3.9, 3.10, 8).

Owns which answer is meant and what is refused. The numbers are the ledger's.
"""

from duplex_engine.conversation.answer import Answer
from duplex_engine.conversation.answers import Answers
from duplex_engine.conversation.items import Items
from duplex_engine.conversation.playback import Ledger
from duplex_engine.conversation.scene import Scene
from duplex_engine.conversation.turns import Happening
from duplex_engine.errors import ProtocolViolation
from duplex_engine.protocol.commands import AcknowledgePlayback, TruncateItem
from duplex_engine.protocol.events import ItemTruncated, PlaybackAcknowledged

MS_ROUNDING = 1


class Acknowledging:
    """What one client says about playback."""

    def __init__(self, scene: Scene, items: Items, answers: Answers, ledger: Ledger) -> None:
        self._scene = scene
        self._items = items
        self._answers = answers
        self._ledger = ledger

    def acknowledge(self, command: AcknowledgePlayback) -> None:
        """More was heard. Raises ProtocolViolation `playback_item_mismatch` or `playback_item_not_found`."""
        answer = self._meant(command)
        self._ledger.acknowledge(answer.cursor, command.played_ms, command.committed_ms)
        if command.truncate:
            answer.cursor.cap(answer.cursor.committed_ms)
            self._stop_if_complete(answer)
        if not self._answers.alive and not self._answers.fading:
            self._scene.happened(Happening.ANSWER_OVER)
        self._say(answer, command.played_ms, command.committed_ms, truncate=command.truncate)

    def _meant(self, command: AcknowledgePlayback) -> Answer:
        response_id, item_id, answers = command.response_id, command.item_id, self._answers
        if response_id is not None and item_id is not None and item_id != f"item_{response_id}":
            raise ProtocolViolation(
                "playback_item_mismatch", f"item {item_id!r} is not the item of response {response_id!r}", "item_id"
            )
        if response_id is not None:
            answer, param = answers.by_id(response_id), "response_id"
        elif item_id is not None:
            answer, param = answers.by_item(item_id), "item_id"
        else:
            fading = answers.fading
            answer = fading[0] if len(fading) == 1 else answers.active or answers.newest
            param = "response_id"
        if answer is None or answer.item.id not in self._items:
            named = response_id or item_id
            raise ProtocolViolation("playback_item_not_found", f"{named!r} is no answer of this conversation", param)
        return answer

    def truncate(self, command: TruncateItem) -> None:
        """Of this answer only so much was heard, for good. Raises ProtocolViolation with the codes of 3.9."""
        if not command.item_id:
            raise ProtocolViolation("missing_item_id", "item_id is missing", "item_id")
        if command.item_id not in self._items:
            raise ProtocolViolation("item_not_found", f"there is no item {command.item_id!r}", "item_id")
        answer = self._answers.by_item(command.item_id)
        if answer is None:
            raise ProtocolViolation("bad_event", f"{command.item_id!r} is not an answer of the assistant", "item_id")
        if command.content_index != 0 or answer.written:
            raise ProtocolViolation(
                "bad_event", f"content part {command.content_index} of the item is not audio", "content_index"
            )
        end_ms = self._end_of(answer, command.audio_end_ms)
        answer.cursor.cap(end_ms)
        self._stop_if_complete(answer)
        self._answers.refresh(answer.item.id)
        self._scene.say(ItemTruncated(item_id=answer.item.id, content_index=0, audio_end_ms=end_ms))
        if self._scene.config.duplex_events:
            self._say(answer, command.audio_end_ms, command.audio_end_ms, truncate=True)

    def _stop_if_complete(self, answer: Answer) -> None:
        """Of a complete answer that was cut off nothing is playing any more; nobody waits for its end."""
        if answer.status is not None:
            self._ledger.interrupt(answer.cursor)

    def _end_of(self, answer: Answer, asked_ms: float) -> int:
        """Where the answer was cut off. Clients of `ga` go by their own clock, which may run on beyond its sound."""
        sent_ms = answer.cursor.sent_ms
        beyond = self._scene.strict and asked_ms > sent_ms + MS_ROUNDING
        if asked_ms < 0 or beyond:
            raise ProtocolViolation(
                "bad_event", f"audio_end_ms must lie in the {sent_ms} ms of audio that were sent", "audio_end_ms"
            )
        return int(min(asked_ms, sent_ms))

    def _say(self, answer: Answer, played_ms: float, committed_ms: float, *, truncate: bool) -> None:
        scene = self._scene
        event: dict[str, object] = {
            "type": "playback.acknowledged",
            "session_id": scene.session_id,
            "epoch": scene.epoch,
            "item_id": answer.item.id,
            "played_ms": played_ms,
            "committed_ms": committed_ms,
            "truncate": truncate,
            "playback": answer.cursor.to_wire(),
            "history_committed": answer.item.message() is not None,
        }
        scene.say(PlaybackAcknowledged(event=event))
