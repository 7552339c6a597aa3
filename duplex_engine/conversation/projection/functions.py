"""A function call as wire events: one response of its own, said at once (wire contract 4.7).

Owns the order and the shapes. Never waits for the output of a call.
"""

from typing import Any

from duplex_engine.conversation.facts import FunctionCall, Usage
from duplex_engine.conversation.items import Item, Items
from duplex_engine.conversation.projection.responses import usage_object
from duplex_engine.conversation.scene import Scene
from duplex_engine.protocol.events import (
    FunctionArgumentsDelta,
    FunctionArgumentsDone,
    ItemAdded,
    ItemCreated,
    ItemDone,
    OutputItemAdded,
    OutputItemDone,
    RateLimitsUpdated,
    ResponseCreated,
    ResponseDone,
)


def call_item(response_id: str, call: FunctionCall) -> Item:
    """The item of a call, as it is stored."""
    return Item(
        id=f"item_{response_id}",
        type="function_call",
        status="in_progress",
        details={"name": call.name, "call_id": call.call_id, "arguments": call.arguments},
        words=lambda: call.arguments,
        call_id=call.call_id,
        name=call.name,
    )


def say_call(scene: Scene, items: Items, response_id: str, item: Item, call: FunctionCall) -> None:
    """Place the item and say the whole life of its response."""
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
    before = items.add(item)
    scene.say(ResponseCreated(response_id=response_id, response=response))
    scene.say(ItemAdded(previous_item_id=before, item=item.to_wire()))
    scene.say(ItemCreated(previous_item_id=before, item=item.to_wire()))
    scene.say(OutputItemAdded(response_id=response_id, item=item.to_wire()))
    ids: dict[str, Any] = {"response_id": response_id, "item_id": item.id, "call_id": call.call_id}
    scene.say(FunctionArgumentsDelta(**ids, delta=call.arguments))
    scene.say(FunctionArgumentsDone(**ids, name=call.name, arguments=call.arguments))
    item.status = "completed"
    done = item.to_wire()
    scene.say(OutputItemDone(response_id=response_id, item=done))
    scene.say(ItemDone(previous_item_id=before, item=done))
    ended = {**response, "status": "completed", "output": [done]}
    if scene.strict:
        ended["status_details"] = {"type": "completed", "reason": "completed"}
    else:
        ended["usage"] = usage_object(Usage())
    scene.say(ResponseDone(response_id=response_id, response=ended))
    scene.say(RateLimitsUpdated())
