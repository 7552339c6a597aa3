"""A session that is busy, and therefore does not hear that its client is alive, or gone."""

import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from case_server import house
from server_rig import SPEECH, Caller, Talker
from transport_peer import CLOSE, PING, PONG, TEXT, close_frame, frame

from duplex_engine.config import SessionLimits
from duplex_engine.conversation.effects import Turn
from duplex_engine.model_plugins.contract import Epoch, Response
from duplex_engine.model_plugins.scripted.plugin import ScriptedPlugin

NOTICED_S = 1.0
"""Within this a ping is answered and a close is noticed, whatever the session does."""
APPENDS = 20
NATIVE: dict[str, Any] = {"extra_body": {"auto_response": True}}
BIG = base64.b64encode(bytes(2 * 1024 * 1024)).decode()


class Absorbed(Talker):
    """Thinks about its answer for ever."""

    async def answer(self, epoch: Epoch, turn: Turn, response: Response) -> None:
        if turn.item_id is not None:  # rehearsals have no item
            await trio.sleep_forever()


async def thinks(caller: Caller) -> None:
    """A turn model that never comes to an end."""
    await caller.open()
    await caller.asks()


async def hangs(caller: Caller) -> None:
    """A native model whose worker is stuck: no input is taken any more."""
    await caller.open({**NATIVE, "extra_body": {"auto_response": True, "script": "listen 1; hang"}})
    await caller.say("input_audio_buffer.append", audio=SPEECH)


async def waits_for_the_first_word(caller: Caller) -> None:
    """No session yet."""


async def waits_for_the_rest(caller: Caller) -> None:
    """In the middle of a long message, between two fragments."""
    await caller.open()
    append = json.dumps({"type": "input_audio_buffer.append", "audio": BIG}).encode()
    await caller.send(frame(TEXT, append[:1_000_000], fin=False) + frame(0, append[1_000_000:2_000_000], fin=False))


BUSY: list[tuple[Callable[[Caller], Awaitable[None]], Callable[[], Any]]] = [
    (thinks, Absorbed),
    (hangs, lambda: ScriptedPlugin(step_timeout_s=120)),
    (waits_for_the_first_word, Talker),
    (waits_for_the_rest, Talker),
]


async def frame_of(caller: Caller, opcode: int) -> bytes:
    """The next frame of this kind, whatever comes before it."""
    with trio.fail_after(NOTICED_S):
        while True:
            kind, payload = await caller.next_frame()
            if kind == opcode:
                return bytes(payload)
            assert kind != CLOSE, payload


async def sends_much(caller: Caller, busy: Callable[[Caller], Awaitable[None]]) -> None:
    """Twenty appends of a fifth of a second, where a session can be spoken to."""
    if busy in (thinks, hangs):
        append = json.dumps({"type": "input_audio_buffer.append", "audio": SPEECH[:8_000]}).encode()
        await caller.send(frame(TEXT, append) * APPENDS)


@pytest.mark.parametrize(("busy", "plugin"), BUSY, ids=[busy.__name__ for busy, _ in BUSY])
async def test_a_ping_is_answered_while_the_session_is_busy(busy: Any, plugin: Callable[[], Any]) -> None:
    async with house(plugin()) as server:
        caller = await server.call()
        await busy(caller)
        await sends_much(caller, busy)
        for number in range(3):
            await caller.send(frame(PING, b"%d" % number))
            assert await frame_of(caller, PONG) == b"%d" % number


@pytest.mark.parametrize(("busy", "plugin"), BUSY, ids=[busy.__name__ for busy, _ in BUSY])
async def test_a_close_is_answered_and_the_seat_free_while_the_session_is_busy(
    busy: Any, plugin: Callable[[], Any]
) -> None:
    async with house(plugin()) as server:
        caller = await server.call()
        await busy(caller)
        await sends_much(caller, busy)
        await caller.send(close_frame(1001))
        assert int.from_bytes((await frame_of(caller, CLOSE))[:2]) == 1001
        with trio.fail_after(NOTICED_S):
            await server.settles()
        assert await caller.at_end()


@pytest.mark.parametrize(("busy", "plugin"), BUSY, ids=[busy.__name__ for busy, _ in BUSY])
async def test_a_lost_connection_is_noticed_while_the_session_is_busy(busy: Any, plugin: Callable[[], Any]) -> None:
    async with house(plugin()) as server:
        caller = await server.call()
        await busy(caller)
        await sends_much(caller, busy)
        await caller.stream.aclose()
        with trio.fail_after(NOTICED_S):
            await server.settles()


async def test_another_client_of_a_busy_model_hears_and_is_heard() -> None:
    async with house(Absorbed()) as server:
        busy, other = await server.call(), await server.call()
        await thinks(busy)
        await other.open()
        await sends_much(busy, thinks)
        with trio.fail_after(NOTICED_S):
            await other.say("session.heartbeat")
            await other.hears("session.heartbeat_ack")
            await other.say("session.close")
            await other.hears("session.closed")
            await other.farewell()


async def test_input_beyond_the_limit_is_refused_and_the_client_is_still_heard() -> None:
    """The model takes nothing; each append too many is one error, at once, and never a stall."""
    plugin = ScriptedPlugin(step_timeout_s=120)
    async with house(plugin, session=SessionLimits(input_bytes=1024 * 1024)) as server:
        caller = await server.call()
        await hangs(caller)
        append = {"type": "input_audio_buffer.append", "audio": SPEECH}
        for number in range(APPENDS):
            await caller.send(frame(TEXT, json.dumps({**append, "event_id": f"evt_{number}"}).encode()))
        with trio.fail_after(NOTICED_S):
            error = (await caller.hears("error", errors=True))["error"]
        assert (error["code"], error["type"]) == ("input_backpressure", "rate_limit_error")
        await caller.send(frame(PING, b"still here?"))
        assert await frame_of(caller, PONG) == b"still here?"
        await commands_work(caller)


async def commands_work(caller: Caller) -> None:
    """Commands are no input, and are obeyed although the model hangs."""
    with trio.fail_after(NOTICED_S):
        await caller.say("input_audio_buffer.clear")
        await caller.hears("input_audio_buffer.cleared", errors=True)
        await caller.say("session.update", session={"metadata": {"a": "b"}})
        await caller.hears("session.updated")


async def test_a_client_that_does_not_read_is_pinged_no_less() -> None:
    """Output that waits for a slow client does not keep its pings from being answered once it reads."""
    async with house(ScriptedPlugin(mode="turn", step_ms=1, script='forever { speak "much" for 10 }')) as server:
        caller = await server.call()
        await caller.open()
        await caller.asks()
        await caller.send(frame(PING, b"slow"))
        seen = b""
        while seen != b"slow":
            kind, payload = await caller.next_frame()
            seen = payload if kind == PONG else b""
        assert server.seats == 1
