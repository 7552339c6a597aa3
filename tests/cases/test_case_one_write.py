"""Commands that arrive together, in one write, and overtake each other or get lost."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest
import trio
from server_rig import SPEECH, Caller, Rig, rigged
from transport_peer import CLOSE, TEXT, frame
from trio.abc import Clock

from duplex_engine.model_plugins.scripted.plugin import ScriptedPlugin
from duplex_engine.testing.caller import Heard
from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore

CREATE, CANCEL = {"type": "response.create"}, {"type": "response.cancel"}
APPEND = {"type": "input_audio_buffer.append", "audio": SPEECH[:16_000]}
COMMIT = {"type": "input_audio_buffer.commit", "response_create": False}
SCRIPT = 'forever { listen 0.3; speak "an answer" for 1 }'


@explore
async def test_an_answer_that_is_asked_for_and_cancelled_in_one_breath_is_never_heard() -> None:
    for interrupt in ("response", "epoch"):
        async with open_rig(mode="turn", interrupt=interrupt, script=SCRIPT) as rig, rig.caller() as caller:
            for cancel in (CANCEL, {"type": "barge_in"}, {"type": "output_audio_buffer.clear"}):
                await caller.appends(1.0)
                await caller.commits(response_create=False)
                await caller.sends_together(CREATE, cancel)
                created = await caller.hears("response.created")
                done = await caller.hears("response.done", status="cancelled", response_id=created["response_id"])
                assert done.at == created.at
                await caller.hears_nothing_of("response.output_audio.delta", for_s=3)
                await caller.appends(1.0)
                await caller.commits()
                await caller.hears("response.done", status="completed")
            assert not caller.all("error")


@explore
async def test_a_turn_that_is_committed_and_cleared_in_one_breath_is_gone_if_it_was_not_asked() -> None:
    clear = {"type": "input_audio_buffer.clear"}
    async with open_rig(mode="turn", script=SCRIPT) as rig, rig.caller() as caller:
        await caller.appends(1.0)
        await caller.sends_together(COMMIT, clear)
        await caller.hears("input_audio_buffer.committed")
        await caller.hears("input_audio_buffer.cleared")
        refused = await caller.asks()
        await caller.hears("error", code="response_create_without_input", event_id=refused)
        await caller.appends(1.0)
        await caller.sends_together({**COMMIT, "response_create": True}, clear)
        await caller.hears("response.done", status="completed")


@explore
async def test_sound_that_comes_with_the_goodbye_changes_nothing_of_it() -> None:
    async with open_rig(mode="turn", lead_s=0.2, script='forever { speak "an answer" for 2 }') as rig:
        for first in (APPEND, COMMIT, CREATE, CANCEL, {"type": "session.heartbeat"}):
            async with rig.caller() as caller:
                await caller.appends(1.0)
                await caller.commits()
                await caller.hears("response.output_audio.delta")
                await caller.sends_together(first, {"type": "session.close", "reason": "enough"})
                assert (await caller.hears_the_end())["reason"] == "enough"


@explore
async def test_an_update_and_a_request_in_one_breath_are_an_answer_as_updated() -> None:
    async with open_rig(mode="turn", script='forever { speak "{instructions}" for 0.4 }') as rig:
        async with rig.caller() as caller:
            for words in ("be brief", "be kind"):
                update = {"type": "session.update", "session": {"instructions": words, "metadata": {"now": words}}}
                await caller.sends_together(APPEND, COMMIT, update, CREATE)
                created = await caller.hears("response.created")
                assert created["now"] == words
                done = await caller.hears("response.done", status="completed")
                assert caller.transcript(done["response_id"]) == words


# --- every pair -----------------------------------------------------------------------------------------------------

WORDS: dict[str, Mapping[str, Any]] = {
    "append": APPEND,
    "commit": COMMIT,
    "ask": {**COMMIT, "response_create": True},
    "clear": {"type": "input_audio_buffer.clear"},
    "input cancel": {"type": "input.cancel"},
    "create": CREATE,
    "cancel": CANCEL,
    "barge in": {"type": "barge_in"},
    "clear output": {"type": "output_audio_buffer.clear"},
    "update": {"type": "session.update", "session": {"instructions": "be brief"}},
    "type": {
        "type": "conversation.item.create",
        "item": {"id": "item_typed", "content": [{"type": "input_text", "text": "hello"}]},
    },
    "delete": {"type": "conversation.item.delete", "item_id": "item_typed"},
    "acknowledge": {"type": "playback.ack", "played_ms": 10},
    "heartbeat": {"type": "session.heartbeat"},
    "close": {"type": "session.close"},
}
TOLD = ("type", "code", "status", "reason", "instructions", "state", "turn_state", "epoch", "param")
"""What of an event must be the same, wherever it stands in it."""


async def told(
    rig: Rig, before: Sequence[Mapping[str, Any]], pair: Sequence[Mapping[str, Any]], *, together: bool
) -> list[str]:
    """What a client is told when it says `pair`, in one write or word by word, and what follows from it."""
    caller = await rig.call()
    await caller.open()
    await caller.send(b"".join(map(_frame, before)))
    await trio.sleep(1.0)
    frames = [_frame({**word, "event_id": f"evt_{number}"}) for number, word in enumerate(pair)]
    for write in [b"".join(frames)] if together else frames:
        await caller.send(write)
        await rig.settles()
    events = await _everything(caller, for_s=5)
    kinds = [event["type"] for event in events]
    assert kinds.count("response.created") == kinds.count("response.done")
    if kinds[-1] != "session.closed":
        await caller.say("input_audio_buffer.clear")
        await caller.asks()
        await caller.hears("response.done")
    await caller.stream.aclose()
    return [_short(event) for event in events]


def _frame(word: Mapping[str, Any]) -> bytes:
    return frame(TEXT, json.dumps(word).encode())


async def _everything(caller: Caller, *, for_s: float) -> list[dict[str, Any]]:
    """All events of so many seconds, or up to the close frame."""
    events: list[dict[str, Any]] = []
    with trio.move_on_after(for_s):
        while (received := await caller.next_frame())[0] != CLOSE:
            if received[0] == TEXT:
                events.append(json.loads(received[1]))
    return events


def _short(event: Mapping[str, Any]) -> str:
    """An event without what differs from run to run."""
    heard, shown = Heard(0, event), []
    for key in TOLD:
        with suppress(KeyError):
            shown.append(f"{key}={heard[key]}")
    if event["type"] == "error":
        shown.append(f"event_id={heard['event_id']}")
    return " ".join(shown)


STATES = {
    "a turn waits": (APPEND, COMMIT),
    "an answer is given": (APPEND, COMMIT, CREATE),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("first", [name for name in WORDS if name != "close"])
async def test_two_commands_in_one_write_mean_what_they_mean_one_by_one(
    autojump_clock: Clock, first: str, state: str
) -> None:
    async with rigged(ScriptedPlugin(mode="turn", lead_s=0.2, unit_ms=400, script=SCRIPT)) as rig:
        for second in WORDS:
            pair = WORDS[first], WORDS[second]
            together = await told(rig, STATES[state], pair, together=True)
            assert together == await told(rig, STATES[state], pair, together=False), second
