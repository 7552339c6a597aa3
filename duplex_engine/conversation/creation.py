"""`conversation.item.create`, `.delete` and `.retrieve`: what a client puts in (wire contract 3.8, 3.9).

Owns the checks that need the conversation; what makes an item legal in itself was checked when it was decoded. A
refused item leaves no trace.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from duplex_engine.audio.decode import InputDecoder
from duplex_engine.audio.pcm import SILENCE, Samples, rms
from duplex_engine.conversation.answers import Answers
from duplex_engine.conversation.committing import Committing
from duplex_engine.conversation.effects import DeliverOutput, Feed, Utterance
from duplex_engine.conversation.facts import FunctionOutput
from duplex_engine.conversation.hearing import input_format
from duplex_engine.conversation.items import ITEM_BYTES, ROOT, Item, Items
from duplex_engine.conversation.pending import SAMPLE_BYTES, CommittedTurn, Pending
from duplex_engine.conversation.projection.input import audio_part, say_commit
from duplex_engine.conversation.scene import Scene
from duplex_engine.errors import ProtocolViolation
from duplex_engine.protocol.commands import AppendAudio, CreateItem, DeleteItem, RetrieveItem
from duplex_engine.protocol.events import ItemAdded, ItemCreated, ItemDeleted, ItemDone, ItemRetrieved
from duplex_engine.protocol.sizes import ECHO_BYTES
from duplex_engine.protocol.wire_json import dumps

TEXT_PARTS = frozenset({"input_text", "text", "output_text"})
AUDIO_PARTS = frozenset({"input_audio", "audio", "output_audio"})
COMMON_KEYS = frozenset({"id", "object", "type", "role", "status", "content"})

JsonObject = Mapping[str, object]


class Creation:
    """The items a client creates, deletes and asks for."""

    def __init__(self, scene: Scene, items: Items, answers: Answers, committing: Committing, pending: Pending) -> None:
        self._scene = scene
        self._items = items
        self._answers = answers
        self._committing = committing
        self._pending = pending

    # --- create -----------------------------------------------------------------------------------------------

    def create(self, command: CreateItem) -> None:
        """Store an item, or refuse it with the codes of 3.8."""
        item = _item(command.item)
        item.size = ITEM_BYTES + _size(item)
        self._committing.check_room(item.size)
        self._check_place(item, command.previous_item_id)
        self._check_pictures(item)
        sound = self._sound(command.audio)
        if item.type == "function_call_output":
            self._join_call(item)
        stored = bool(item.content) or item.type != "message" or item.role != "user"
        if not stored:
            self._say_added(self._items.last_id, item)
            return
        if len(sound):
            self._commit(item, sound, command)
            return
        before = self._items.add(item, command.previous_item_id)
        self._say_added(before, item)
        self._scene.say(ItemDone(previous_item_id=before, item=item.to_wire()))
        self._count(item)

    def _check_place(self, item: Item, previous: str | None) -> None:
        if item.id in self._items:
            raise ProtocolViolation("bad_event", f"the item id {item.id!r} is in use", "item.id")
        if previous not in (None, ROOT) and previous not in self._items:
            raise ProtocolViolation("item_not_found", f"there is no item {previous!r}", "previous_item_id")

    def _check_pictures(self, item: Item) -> None:
        if not item.images:
            return
        if not self._scene.capabilities.image_input:
            raise ProtocolViolation("unsupported", "this model takes no pictures", "item.content")
        limits = self._scene.limits
        images = [image for stored in (*self._items, item) for image in stored.images]
        size = sum(map(len, images))
        if len(images) > limits.image_items or size > limits.image_bytes:
            raise ProtocolViolation(
                "input_backpressure",
                f"{len(images)} pictures of {size} bytes would be in the history; "
                f"the limits are {limits.image_items} and {limits.image_bytes}",
                "item.content",
            )

    def _join_call(self, item: Item) -> None:
        """An output belongs to a call that has none yet: it is of the same function, and history if the call is."""
        call_id = item.call_id
        calls = (stored for stored in self._items if stored.type == "function_call" and stored.call_id == call_id)
        call = next(calls, None)
        if call is None:
            raise ProtocolViolation("invalid_function_call_output", f"no call has the id {call_id!r}", "item.call_id")
        if any(stored.call_id == call_id for stored in self._items if stored.type == item.type):
            raise ProtocolViolation(
                "invalid_function_call_output", f"the call {call_id!r} has its output already", "item.output"
            )
        undelivered, limit = self._pending.undelivered, self._scene.limits.function_outputs
        if self._scene.capabilities.native and undelivered >= limit:
            raise ProtocolViolation(
                "function_response_backlog",
                f"{undelivered} outputs of functions wait for the model; the limit is {limit}",
                "item.output",
            )
        item.name, item.in_history = call.name, call.in_history

    def _sound(self, parts: Sequence[AppendAudio]) -> Samples:
        """All audio parts that are not silent, at the model's rate. Raises ProtocolViolation `bad_audio` and others."""
        scene, spoken = self._scene, [SILENCE]
        for part in parts:
            decoder = InputDecoder(scene.input_rate_hz)
            encoding, rate_hz = input_format(scene.config, part)
            samples = np.concatenate((decoder.decode(part.audio, encoding, rate_hz), decoder.drain()))
            if rms(samples) >= scene.config.overlap_silence_rms:
                spoken.append(samples)
        sound = np.concatenate(spoken)
        waiting, limit = self._committing.pending_bytes, scene.limits.input_bytes
        if waiting + SAMPLE_BYTES * len(sound) > limit:
            raise ProtocolViolation(
                "input_backpressure", f"{waiting} bytes of sound wait for an answer; the limit is {limit}", "item"
            )
        return sound

    def _commit(self, item: Item, sound: Samples, command: CreateItem) -> None:
        """A spoken item is a committed turn of its own; its pictures travel beside it."""
        scene, pictures = self._scene, item.images
        item.images = ()
        item.audio_ms = len(sound) * 1000 // scene.input_rate_hz
        before = self._items.add(item, command.previous_item_id)
        say_commit(scene, item, before, len(self._items), {})
        scene.turn_id += 1
        if scene.config.native:
            scene.do(Feed(sound))
            scene.do(Feed(sound[:0], commit=True))
            self._committing.native_owed = True
        else:
            transcripts = (part.transcript for part in command.audio)
            self._pending.turns.append(
                CommittedTurn(
                    item_id=item.id,
                    utterance=Utterance(chunks=[sound], over=True),
                    transcript=" ".join(filter(None, transcripts)),
                    written=bool(_texts(item.content)),
                )
            )
        if pictures:
            content: list[JsonObject] = [{"type": "input_image"}]
            beside = Item(id=f"{item.id}_image", role="user", images=pictures, content=content, size=ITEM_BYTES)
            after = self._items.add(beside, item.id)
            self._say_added(after, beside)
            scene.say(ItemDone(previous_item_id=after, item=beside.to_wire()))

    def _say_added(self, before: str | None, item: Item) -> None:
        self._scene.say(ItemAdded(previous_item_id=before, item=item.to_wire()))
        self._scene.say(ItemCreated(previous_item_id=before, item=item.to_wire()))

    def _count(self, item: Item) -> None:
        """What the next answer has to answer: user items, and the output a call was waiting for."""
        if item.message() is None:
            return
        output = item.type == "function_call_output"
        if output and self._scene.capabilities.native:
            self._pending.undelivered += 1
            self._scene.do(DeliverOutput(FunctionOutput(item.call_id or "", item.name or "", item.words())))
        if output and self._scene.config.native:
            self._committing.native_owed = True
        elif output or item.role == "user":
            self._pending.texts[item.id] = None

    # --- delete, retrieve -------------------------------------------------------------------------------------

    def find(self, item_id: str) -> Item:
        """The item a client names. Raises ProtocolViolation `missing_item_id` or `item_not_found`."""
        if not item_id:
            raise ProtocolViolation("missing_item_id", "item_id is missing", "item_id")
        item = self._items.get(item_id)
        if item is None:
            raise ProtocolViolation("item_not_found", f"there is no item {item_id!r}", "item_id")
        return item

    def delete(self, command: DeleteItem) -> None:
        """The item leaves the conversation, with the sound that waits under it."""
        item = self.find(command.item_id)
        self._items.remove(item.id)
        self._answers.forget(item.id)
        self._committing.drop(self._pending.forget(item.id))
        self._scene.say(ItemDeleted(item_id=item.id))

    def retrieve(self, command: RetrieveItem) -> None:
        """Show the item as it stands."""
        item = self.find(command.item_id)
        self._answers.refresh(item.id)
        self._scene.say(ItemRetrieved(item=item.to_wire()))


def _size(item: Item) -> int:
    """Bytes of the item, which is said back several times, each time whole. Raises ProtocolViolation `event_too_large`."""
    size = len(dumps(item.to_wire()))
    if size > ECHO_BYTES:
        raise ProtocolViolation(
            "event_too_large", f"the item takes {size} bytes without its media; the limit is {ECHO_BYTES}", "item"
        )
    return size


def _item(wire: JsonObject) -> Item:
    content = wire.get("content")
    parts: list[Mapping[str, object]] = list(content) if isinstance(content, Sequence) else []
    words = " ".join(filter(None, (*_texts(parts), *_transcripts(parts))))
    details = {key: value for key, value in wire.items() if key not in COMMON_KEYS}
    kind, call_id, name = str(wire["type"]), wire.get("call_id"), wire.get("name")
    if kind == "function_call_output":
        words = str(wire.get("output"))
    elif kind == "function_call":
        words = str(wire.get("arguments") or "")
    return Item(
        id=str(wire["id"]),
        type=kind,
        role=str(wire["role"]) if kind == "message" else None,
        status=str(wire["status"]),
        content=[_stored(part) for part in parts],
        details=details,
        images=tuple(str(part["image_url"]) for part in parts if part.get("type") == "input_image"),
        words=lambda: words,
        call_id=call_id if isinstance(call_id, str) else None,
        name=name if isinstance(name, str) and kind == "function_call" else None,
    )


def _stored(part: Mapping[str, object]) -> Mapping[str, object]:
    """A part as it is shown: pictures and sound are kept, but not said again."""
    kind = part.get("type")
    if kind == "input_image":
        return {"type": "input_image"}
    if kind in ("input_audio", "audio"):
        return audio_part(str(part.get("transcript") or ""))
    return part


def _texts(parts: Sequence[Mapping[str, object]]) -> list[str]:
    return [str(part.get("text")) for part in parts if part.get("type") in TEXT_PARTS and part.get("text")]


def _transcripts(parts: Sequence[Mapping[str, object]]) -> list[str]:
    return [str(part["transcript"]) for part in parts if part.get("type") in AUDIO_PARTS and part.get("transcript")]
