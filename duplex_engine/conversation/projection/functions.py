"""A function call as wire events (wire contract 4.7): a response of its own, or in `ga` an item of the answer it was made in.

Owns the order and the shapes. Never waits for the output of a call.
"""

from typing import Any

import attrs

from duplex_engine.conversation.facts import FunctionCall, Usage
from duplex_engine.conversation.items import Item, Items
from duplex_engine.conversation.scene import Scene
from duplex_engine.protocol.events import (
    FunctionArgumentsDelta,
    FunctionArgumentsDone,
    ItemAdded,
    ItemCreated,
    ItemDone,
    JsonObject,
    OutputItemAdded,
    OutputItemDone,
    RateLimitsUpdated,
    ResponseCreated,
    ResponseDone,
)


@attrs.frozen
class CallProjection:
    """Says calls, each from its beginning to its end at once."""

    scene: Scene
    items: Items

    def say_response(self, call: FunctionCall, *, after: str | None = None, in_history: bool = True) -> str:
        """The whole life of a response that is this call, placed behind the item `after` (None: last).

        Returns the id of its item.
        """
        scene, response_id = self.scene, self.scene.new_id("resp")
        response: dict[str, object] = {
            "id": response_id,
            "object": "realtime.response",
            "status": "in_progress",
            "status_details": None,
            "output": [],
            "modalities": list(scene.config.modalities),
            "metadata": {},
        }
        if not scene.strict:
            response["output_modalities"] = response["modalities"]
        scene.say(ResponseCreated(response_id=response_id, response=response))
        item = _item(call, f"item_{response_id}", in_history)
        ended = {
            **response,
            "status": "completed",
            "status_details": {"type": "completed", "reason": "completed"} if scene.strict else None,
            "output": [self._say_item(call, item, response_id, 0, after)],
            "usage": usage_object(Usage()),
        }
        scene.say(ResponseDone(response_id=response_id, response=ended))
        scene.say(RateLimitsUpdated())
        return item.id

    def say_further_item(self, call: FunctionCall, response_id: str, index: int, before: JsonObject) -> JsonObject:
        """The call as the item number `index` of an answer, behind its item `before`; returns how it ends."""
        place = self.items.get(str(before["id"]))
        item = _item(call, self.scene.new_id("item"), place is None or place.in_history)
        return self._say_item(call, item, response_id, index, str(before["id"]))

    def _say_item(
        self, call: FunctionCall, item: Item, response_id: str, index: int, after: str | None
    ) -> dict[str, object]:
        scene, before = self.scene, self.items.add(item, after)
        scene.say(ItemAdded(previous_item_id=before, item=item.to_wire()))
        scene.say(ItemCreated(previous_item_id=before, item=item.to_wire()))
        scene.say(OutputItemAdded(response_id=response_id, output_index=index, item=item.to_wire()))
        ids: dict[str, Any] = {
            "response_id": response_id,
            "item_id": item.id,
            "output_index": index,
            "call_id": call.call_id,
        }
        scene.say(FunctionArgumentsDelta(**ids, delta=call.arguments))
        scene.say(FunctionArgumentsDone(**ids, name=call.name, arguments=call.arguments))
        item.status = "completed"
        done = item.to_wire()
        scene.say(OutputItemDone(response_id=response_id, output_index=index, item=done))
        scene.say(ItemDone(previous_item_id=before, item=done))
        return done


def _item(call: FunctionCall, item_id: str, in_history: bool) -> Item:
    return Item(
        id=item_id,
        type="function_call",
        status="in_progress",
        details={"name": call.name, "call_id": call.call_id, "arguments": call.arguments},
        words=lambda: call.arguments,
        call_id=call.call_id,
        name=call.name,
        in_history=in_history,
    )


def usage_object(usage: Usage) -> JsonObject:
    """The `usage` of a response (D-10)."""
    inputs, outputs = usage.input_text + usage.input_audio, usage.output_text + usage.output_audio
    return {
        "total_tokens": inputs + outputs,
        "input_tokens": inputs,
        "output_tokens": outputs,
        "input_token_details": {
            "text_tokens": usage.input_text,
            "audio_tokens": usage.input_audio,
            "cached_tokens": usage.input_cached,
        },
        "output_token_details": {"text_tokens": usage.output_text, "audio_tokens": usage.output_audio},
    }
