"""The user's side as wire events: speech, commits, transcripts (wire contract 4.5).

Owns the order of a commit's events in both profiles. Never decides what a commit means.
"""

from collections.abc import Mapping

import attrs

from duplex_engine.conversation.items import Item
from duplex_engine.conversation.projection.responses import listen_event
from duplex_engine.conversation.scene import Scene
from duplex_engine.protocol.events import (
    UNSET,
    InputCommitted,
    ItemAdded,
    ItemCreated,
    ItemDone,
    JsonObject,
    TranscriptionCompleted,
    TranscriptionDelta,
)

LISTEN_INTERVAL_S = 1.0


def audio_part(transcript: str, *, speech: bool = True) -> JsonObject:
    """Content of a user's audio item."""
    part: dict[str, object] = {"type": "input_audio", "transcript": transcript}
    if not speech:
        part["is_speech"] = False
    return part


def say_commit(scene: Scene, item: Item, before: str | None, history_len: int, flags: Mapping[str, object]) -> None:
    """A committed turn: item events and `committed`, which `ga` wants first, then its transcript, then `done`."""
    snapshot = item.to_wire()
    added = (
        ItemAdded(previous_item_id=before, item=snapshot),
        ItemCreated(previous_item_id=before, item=snapshot),
    )
    committed = InputCommitted(
        previous_item_id=before,
        item_id=item.id,
        event=_commit_details(scene, item, history_len, flags) if scene.strict else {},
    )
    for event in (*added, committed) if scene.strict else (committed, *added):
        scene.say(event)
    transcript = item.words()
    if transcript:
        say_transcript(scene, item, transcript)
    scene.say(ItemDone(previous_item_id=before, item=item.to_wire()))


def _commit_details(scene: Scene, item: Item, history_len: int, flags: Mapping[str, object]) -> JsonObject:
    return {
        "type": "input.committed",
        "session_id": scene.session_id,
        "turn_id": scene.turn_id,
        "epoch": scene.epoch,
        "history_len": history_len,
        "native_audio": True,
        "realtime_item_id": item.id,
        "message": {"role": "user", "content": [dict(part) for part in item.content]},
        **flags,
    }


def say_transcript(scene: Scene, item: Item, transcript: str) -> None:
    """What the user said in this item is known; `ga` clients are told what deltas have not said yet first."""
    if transcript.startswith(item.recognised):
        say_recognised(scene, item, transcript[len(item.recognised) :])
    usage: dict[str, object] = {"type": "duration", "seconds": item.audio_ms / 1000}
    scene.say(
        TranscriptionCompleted(
            item_id=item.id, content_index=0, transcript=transcript, usage=UNSET if scene.strict else usage
        )
    )


def say_recognised(scene: Scene, item: Item, delta: str) -> None:
    """More words were recognised; only `ga` clients know this event."""
    item.recognised += delta
    if delta and not scene.strict:
        scene.say(TranscriptionDelta(item_id=item.id, content_index=0, delta=delta))


@attrs.define(eq=False)
class Listens:
    """Standalone `response.listen` events, no more than a client can use (D-21)."""

    scene: Scene
    _reason: str | None = None
    _said_at: float = 0.0

    def say(self, reason: str) -> None:
        """The model listened, or input was ignored: said on a change of reason, and at most once a second else."""
        now = self.scene.now()
        if reason == self._reason and now - self._said_at < LISTEN_INTERVAL_S:
            return
        self._reason, self._said_at = reason, now
        self.scene.say(listen_event(self.scene, reason))

    def expect(self) -> None:
        """A commit or an answer begins a new phase: the next listen is news."""
        self._reason = None
