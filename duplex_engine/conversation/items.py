"""Conversation items in their order, and the history that a model sees of them.

Owns places, ids and what each item's words are. Never checks what a client sent: `creation.py` does.
"""

from collections.abc import Callable, Container, Iterator, Mapping

import attrs

from duplex_engine.conversation.effects import Message

ROOT = "root"
ITEM_BYTES = 1024
"""What an item takes beside its words."""


@attrs.define(eq=False)
class Item:
    """One item. `content`: wire parts. `details`: wire keys beside the common ones (`call_id`, `output`, ...).

    `words`: what the history holds of it, read when asked: an answer's words grow and shrink with what was heard.
    `audio_ms`: length of the sound behind a user item. `recognised`: what was said of its words before all were known.
    `size`: bytes that its client made us keep.
    """

    id: str
    words: Callable[[], str] = str
    type: str = "message"
    role: str | None = None
    status: str = "completed"
    content: list[Mapping[str, object]] = attrs.Factory(list)
    details: Mapping[str, object] = attrs.Factory(dict)
    images: tuple[str, ...] = ()
    call_id: str | None = None
    name: str | None = None
    in_history: bool = True
    audio_ms: int = 0
    recognised: str = ""
    size: int = 0

    def to_wire(self) -> dict[str, object]:
        """A snapshot; later changes of the item do not reach it."""
        wire: dict[str, object] = {"id": self.id, "object": "realtime.item", "type": self.type, "status": self.status}
        if self.type == "message":
            wire["role"] = self.role
            wire["content"] = [dict(part) for part in self.content]
        wire.update(self.details)
        return wire

    def message(self) -> Message | None:
        """The item as a model sees it; None when there is nothing to see."""
        text = self.words()
        if not self.in_history or not (text or self.images or self.call_id):
            return None
        role = self.role or ("tool" if self.type == "function_call_output" else "assistant")
        return Message(role=role, text=text, item_id=self.id, call_id=self.call_id, name=self.name, images=self.images)


class Items:
    """All items of a conversation, in order. `size`: bytes that its client made us keep."""

    def __init__(self) -> None:
        self.size = 0
        self._ordered: list[Item] = []
        self._by_id: dict[str, Item] = {}

    def __contains__(self, item_id: object) -> bool:
        return item_id in self._by_id

    def __len__(self) -> int:
        return len(self._ordered)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._ordered)

    def get(self, item_id: str) -> Item | None:
        """The item of this id, if there is one."""
        return self._by_id.get(item_id)

    @property
    def last_id(self) -> str | None:
        """Id of the newest place; None when the conversation is empty."""
        return self._ordered[-1].id if self._ordered else None

    def add(self, item: Item, after: str | None = None) -> str | None:
        """Place `item` behind the item `after`: None for the end, ROOT for the front. Returns the id before it."""
        place = len(self._ordered)
        if after == ROOT:
            place = 0
        elif after is not None and after in self._by_id:
            place = self._ordered.index(self._by_id[after]) + 1
        self._ordered.insert(place, item)
        self._by_id[item.id] = item
        self.size += item.size
        return self._ordered[place - 1].id if place else None

    def before(self, item_id: str) -> str | None:
        """Id of the item in front of this one; None for the first, and for an item that is gone."""
        item = self._by_id.get(item_id)
        if item is None:
            return None
        place = self._ordered.index(item)
        return self._ordered[place - 1].id if place else None

    def remove(self, item_id: str) -> None:
        """Forget an item."""
        item = self._by_id.pop(item_id)
        self._ordered.remove(item)
        self.size -= item.size

    def history(self, *, without: Container[str] = ()) -> tuple[Message, ...]:
        """What was really said and heard, in order, leaving out the items `without`."""
        messages = (item.message() for item in self._ordered if item.id not in without)
        return tuple(message for message in messages if message is not None)
