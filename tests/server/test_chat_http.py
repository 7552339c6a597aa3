"""The HTTP around chat answers: who may ask, statuses, connections that go on, and work that ends with its client."""

import base64
import json
import socket
import struct
from functools import partial
from random import Random
from typing import Any

import attrs
import pytest
import trio
from chat_rig import CHAT, HELLO, SOUND, Chatty, ask, asking, read_chunk, read_reply, request, turns
from server_rig import Caller, Rig, rigged
from trio.abc import Clock

from duplex_engine.config import EngineConfig, SessionLimits
from duplex_engine.conversation.effects import Turn
from duplex_engine.engine import open_engine
from duplex_engine.errors import CodedError, ConfigRejected
from duplex_engine.model_plugins.contract import Epoch, Response, SessionPlan
from duplex_engine.protocol.session_config import SessionConfig
from duplex_engine.server.app import serve
from duplex_engine.server.byte_io import LINGER_S
from duplex_engine.server.connection import receive_caller
from duplex_engine.server.settings import ServeConfig

FOR_AGES = 'forever { speak "this goes on and on" for 100 }'
SPOKEN = {"modalities": ["text", "audio"], "audio": {"format": "pcm16"}}
MIB = 1024 * 1024


def counted(rig: Rig, outcome: str) -> float:
    """How many chat requests ended like this."""
    page = rig.metrics.exposition(rig.engine).decode()
    start = f'duplex_engine_chat_requests_total{{outcome="{outcome}"}} '
    return next((float(line.removeprefix(start)) for line in page.splitlines() if line.startswith(start)), 0.0)


# --- refusals ----------------------------------------------------------------------------------------------------

LONG_TOOL = {"type": "function", "function": {"name": "x", "parameters": {"a": "b" * 3 * MIB}}}
PICTURE = {
    "role": "user",
    "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}],
}
REFUSALS = [
    (request(b"{}", method="GET"), 405, "method_not_allowed"),
    (request(b"{}", json_type=False), 415, "unsupported_media_type"),
    (request(b"{}", "Content-Type: application/x-www-form-urlencoded", json_type=False), 415, "unsupported_media_type"),
    (request(b"{}", "Content-Type: text/plain;application/json", json_type=False), 415, "unsupported_media_type"),
    (request(b"{"), 400, "invalid_json"),
    (request(b""), 400, "invalid_json"),
    (request(b"[1]"), 400, "invalid_json"),
    (request(b"{}"), 400, "invalid_value"),
    (asking(n=2), 400, "unsupported_parameter"),
    (asking(tools=[LONG_TOOL]), 400, "invalid_session_config"),
    (asking(messages=[PICTURE]), 400, "unsupported"),
]  # fmt: skip


@pytest.mark.parametrize(("wire", "status", "code"), REFUSALS, ids=lambda value: str(value)[:40])
async def test_a_refused_request_leaves_the_connection_as_it_was(
    autojump_clock: Clock, wire: bytes, status: int, code: str
) -> None:
    async with rigged(Chatty()) as rig:
        caller = rig.connect()
        await caller.send(wire)
        reply = await read_reply(caller)
        assert (reply.status, reply.error["code"]) == (status, code)
        assert reply.error["type"] == "invalid_request_error"
        if "connection" not in reply.headers:
            await caller.send(asking())
            assert (await read_reply(caller)).message["content"] == "All right."
        await caller.stream.aclose()
        await rig.settles()
        assert (rig.seats, counted(rig, "refused")) == (0, 1)


async def test_the_content_type_may_say_more(autojump_clock: Clock) -> None:
    async with rigged(Chatty()) as rig:
        caller = rig.connect()
        body = json.dumps({"messages": HELLO}).encode()
        await caller.send(request(body, "Content-Type: Application/JSON; charset=utf-8", json_type=False))
        assert (await read_reply(caller)).status == 200


async def test_a_plugin_that_offers_no_chat_says_where_to_go(autojump_clock: Clock) -> None:
    async with rigged(Chatty(chat=False)) as rig:
        reply = await ask(rig)
        assert (reply.status, reply.error["code"]) == (404, "chat_not_offered")
        assert "/v1/realtime" in reply.error["message"]


@pytest.mark.parametrize(
    ("mode", "chat", "offered"), [("turn", True, True), ("turn", False, False), ("native", True, False)]
)
def test_the_scripted_plugin_offers_chat_in_turn_mode(mode: str, chat: bool, offered: bool) -> None:
    capabilities = turns(mode=mode, script=None, chat=chat).capabilities(None)
    assert capabilities.chat is offered
    assert len(capabilities.to_wire()) == 40


async def test_only_a_model_that_is_served_where_names_are_strict(autojump_clock: Clock) -> None:
    async with rigged(Chatty(), model_name="demo", strict_model_names=True) as rig:
        reply = await ask(rig, model="gpt-4o")
        assert (reply.status, reply.error["code"], reply.error["param"]) == (404, "model_not_found", "model")
        assert "demo" in reply.error["message"]
        assert (await ask(rig, model="demo")).status == 200


async def test_tools_for_a_model_that_calls_no_functions(autojump_clock: Clock) -> None:
    async with rigged(Chatty(tools=False)) as rig:
        reply = await ask(rig, tools=[{"type": "function", "function": {"name": "look"}}])
        assert (reply.status, reply.error["param"]) == (400, "tools")


@pytest.mark.parametrize(
    ("headers", "path", "status"),
    [
        (["Authorization: Bearer s3cret"], CHAT, 200),
        ([], f"{CHAT}?api_key=s3cret", 200),
        ([], CHAT, 401),
        (["Authorization: Bearer wrong"], CHAT, 401),
        ([], f"{CHAT}?api_key=wrong", 401),
    ],
)
async def test_the_key(autojump_clock: Clock, headers: list[str], path: str, status: int) -> None:
    async with rigged(Chatty(), api_key="s3cret") as rig:
        caller = rig.connect()
        await caller.send(request(json.dumps({"messages": HELLO}).encode(), *headers, path=path))
        reply = await read_reply(caller)
        assert reply.status == status
        if status == 401:
            assert reply.error["code"] == "invalid_api_key"
            assert reply.headers["www-authenticate"] == "Bearer"


async def test_who_has_no_key_need_not_send_the_body(autojump_clock: Clock) -> None:
    async with rigged(Chatty(), api_key="s3cret") as rig:
        caller = rig.connect()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: t\r\nContent-Length: 9000000\r\nExpect: 100-continue\r\n\r\n"
        await caller.send(head.encode())
        reply = await read_reply(caller)
        assert (reply.status, reply.headers["connection"]) == (401, "close")


async def test_the_body_is_asked_for_and_awaited(autojump_clock: Clock) -> None:
    async with rigged(Chatty()) as rig:
        caller = rig.connect()
        head, _, body = asking().partition(b"\r\n\r\n")
        await caller.send(head + b"\r\nExpect: 100-continue\r\n\r\n")
        assert (await caller.read_head())[0] == "HTTP/1.1 100 "
        await trio.sleep(30)
        await caller.send(body)
        assert (await read_reply(caller)).status == 200


TOO_LONG = f"POST {CHAT} HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("wire", "status", "code"),
    [
        (f"{TOO_LONG}Content-Length: {15 * MIB + 1}\r\n\r\n", 413, "request_too_large"),
        (f"{TOO_LONG}Transfer-Encoding: chunked\r\n\r\n{15 * MIB + 1:x}\r\n" + "x" * (15 * MIB + 1), 413, "request_too_large"),
        (f"{TOO_LONG}Content-Length: 100\r\n\r\nhalf", 408, "request_timeout"),
        (f"{TOO_LONG}Transfer-Encoding: chunked\r\n\r\nnonsense\r\n", 400, "invalid_request"),
    ],
    ids=["declared", "chunked", "slow", "garbled"],
)  # fmt: skip
async def test_a_body_that_cannot_be_read(autojump_clock: Clock, wire: str, status: int, code: str) -> None:
    async with rigged(Chatty()) as rig:
        caller = rig.connect()
        await caller.send(wire.encode())
        reply = await read_reply(caller)
        assert (reply.status, reply.error["code"], reply.headers["connection"]) == (status, code, "close")


async def test_a_body_of_the_longest_kind_is_read(autojump_clock: Clock) -> None:
    async with rigged(Chatty()) as rig:
        caller = rig.connect()
        body = json.dumps({"messages": HELLO}).encode()
        await caller.send(request(body + b" " * (15 * MIB - len(body))))
        assert (await read_reply(caller)).status == 200


@attrs.define
class Picky(Chatty):
    """Takes one voice alone."""

    def plan(self, config: SessionConfig) -> SessionPlan:
        if config.voice not in (None, "joe"):
            raise ConfigRejected("invalid_voice", f"there is no voice {config.voice!r}", "voice")
        return super().plan(config)


async def test_what_the_model_refuses_is_a_bad_request(autojump_clock: Clock) -> None:
    async with rigged(Picky()) as rig:
        reply = await ask(rig, modalities=["text", "audio"], audio={"voice": "ann", "format": "wav"})
        assert (reply.status, reply.error["code"], reply.error["param"]) == (400, "invalid_voice", "voice")
        assert rig.seats == 0


async def test_too_much_sound_is_too_large(autojump_clock: Clock) -> None:
    async with rigged(Chatty(), session=SessionLimits(input_bytes=32_000)) as rig:
        loud = base64.b64encode(b"\0\x40" * 24_000).decode()
        sound = {"type": "input_audio", "input_audio": {"data": loud, "format": "pcm16"}}
        reply = await ask(rig, messages=[*HELLO, {"role": "user", "content": [sound]}])
        assert (reply.status, reply.error["code"], reply.error["param"]) == (413, "input_backpressure", "messages[1]")


# --- seats -------------------------------------------------------------------------------------------------------


async def test_a_full_house(autojump_clock: Clock) -> None:
    async with rigged(turns(), max_sessions=1) as rig:
        async with rig.engine.open_session({}):
            reply = await ask(rig)
            assert (reply.status, reply.error["type"]) == (429, "rate_limit_error")
            assert (reply.error["code"], reply.headers["retry-after"]) == ("resource_exhausted", "1")
        assert (await ask(rig)).status == 200
        assert (counted(rig, "refused"), counted(rig, "completed")) == (1, 1)


async def test_one_seat_is_enough_for_one_request_after_the_other(autojump_clock: Clock) -> None:
    async with rigged(turns(), max_sessions=1) as rig:
        caller = rig.connect()
        for stream in (False, True, True, False):
            await caller.send(asking(stream=stream))
            assert (await read_reply(caller)).status == 200
            assert rig.seats == 0


async def test_while_draining_or_warming_up_nobody_is_answered(autojump_clock: Clock) -> None:
    async with rigged(Chatty()) as rig:
        await rig.engine.drain(0)
        reply = await ask(rig)
        assert (reply.status, reply.error["code"], reply.error["type"]) == (503, "draining", "server_error")
        assert reply.headers["retry-after"] == "1"
        await trio.sleep(LINGER_S + 1)
        assert counted(rig, "failed") == 1


async def test_a_server_that_stops_lets_answers_end_and_cuts_the_rest_off(autojump_clock: Clock) -> None:
    async with rigged(turns('wait 2; speak "here" for 0.2')) as rig, trio.open_nursery() as nursery:
        replies = []

        @nursery.start_soon
        async def _() -> None:
            replies.append(await ask(rig))

        await trio.sleep(1)
        await rig.engine.drain(10)
        await rig.settles()
        assert (replies[0].status, replies[0].message["content"]) == (200, "here")
    async with rigged(turns(f"wait 2; {FOR_AGES}", step_ms=500)) as rig, trio.open_nursery() as nursery:
        whole, stream = rig.connect(), rig.connect()
        await whole.send(asking())
        await stream.send(asking(stream=True, **SPOKEN))
        await trio.sleep(5)
        nursery.start_soon(rig.engine.drain, 0)
        cut, broken = await read_reply(whole), await read_reply(stream)
        assert (cut.status, cut.error["code"]) == (503, "answer_cut_off")
        assert broken.lines[-1]["error"]["code"] == "answer_cut_off"


# --- connections -------------------------------------------------------------------------------------------------


async def test_requests_sent_at_once_are_answered_in_order(autojump_clock: Clock) -> None:
    async with rigged(turns()) as rig:
        caller = rig.connect()
        health = b"GET /health HTTP/1.1\r\nHost: t\r\n\r\n"
        await caller.send(asking(model="a") + health + asking(model="b", stream=True) + asking(n=2) + asking(model="c"))
        replies = [await read_reply(caller) for _ in range(5)]
        assert [reply.status for reply in replies] == [200, 200, 200, 400, 200]
        assert [replies[0].json["model"], replies[2].lines[0]["model"], replies[4].json["model"]] == ["a", "b", "c"]


async def test_a_client_that_wants_one_answer_gets_one(autojump_clock: Clock) -> None:
    async with rigged(turns()) as rig:
        caller = rig.connect()
        body = json.dumps({"messages": HELLO, "stream": True}).encode()
        await caller.send(request(body, "Connection: close"))
        assert (await read_reply(caller)).lines[-1] == "[DONE]"
        assert await caller.at_end()


async def test_several_are_answered_at_the_same_time(autojump_clock: Clock) -> None:
    async with rigged(turns(step_ms=100)) as rig:
        callers = [rig.connect() for _ in range(10)]
        begun = trio.current_time()
        for caller in callers:
            await caller.send(asking())
        for caller in callers:
            assert (await read_reply(caller)).status == 200
        assert trio.current_time() - begun < 2


@pytest.mark.parametrize("fields", [{}, {"stream": True}, {"stream": True, **SPOKEN}, SPOKEN])
async def test_a_client_that_goes_ends_the_work_for_it_at_once(autojump_clock: Clock, fields: dict[str, Any]) -> None:
    async with rigged(turns(FOR_AGES, step_ms=200)) as rig:
        await trio.testing.wait_all_tasks_blocked()
        tasks = trio.lowlevel.current_statistics().tasks_living
        caller = rig.connect()
        await caller.send(asking(**fields))
        await trio.sleep(2)
        assert rig.seats == 1
        if fields.get("stream"):
            await caller.read_head()
            assert await read_chunk(caller)
        await caller.stream.aclose()
        await rig.settles()
        assert (rig.seats, rig.reception.connections) == (0, 0)
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        voice = rig.engine.snapshot().workers["voice"]
        await trio.sleep(0.3)  # the step it was in
        assert voice.slots == rig.engine.snapshot().workers["voice"].free_slots
        assert counted(rig, "client_gone") == 1


@pytest.mark.parametrize("abruptly", [False, True])
async def test_a_client_that_goes_from_a_real_socket(abruptly: bool) -> None:
    plugin = turns(FOR_AGES, step_ms=20, host="thread")
    with trio.fail_after(20):
        async with open_engine(EngineConfig(plugin=""), plugin=plugin) as engine, trio.open_nursery() as nursery:
            (url,) = await nursery.start(partial(serve, engine, ServeConfig(port=0), signals=()))
            stream = await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2]))
            caller = Caller(stream)
            await caller.send(asking(stream=True, **SPOKEN))
            await caller.read_head()
            for _ in range(10):
                assert await read_chunk(caller)
            assert engine.snapshot().seats_taken == 1
            if abruptly:
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await stream.aclose()
            while engine.snapshot().seats_taken:  # noqa: ASYNC110 - nothing else tells
                await trio.sleep(0.01)
            async with engine.open_session({}):
                pass
            nursery.cancel_scope.cancel()


async def test_a_client_that_does_not_read_is_given_up(autojump_clock: Clock) -> None:
    async with rigged(turns(FOR_AGES, step_ms=10), write_deadline_s=3) as rig:
        ours, theirs = trio.testing.lockstep_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive_caller, rig.reception, theirs)
            await ours.send_all(asking(stream=True, **SPOKEN))
            await trio.sleep(1)
            assert rig.seats == 1
            await trio.sleep(3)
            assert rig.seats == 0
            assert counted(rig, "client_gone") == 1
            nursery.cancel_scope.cancel()


async def test_a_client_that_reads_too_slowly_is_told_so(autojump_clock: Clock) -> None:
    script = 'speak "this goes on and on" for 9000'
    async with rigged(turns(script, step_ms=1), write_deadline_s=3) as rig:
        ours, theirs = trio.testing.lockstep_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive_caller, rig.reception, theirs)
            await ours.send_all(asking(stream=True, **SPOKEN))
            heard = b""
            while b"data: [DONE]" not in heard and b"output_overflow" not in heard:
                await trio.sleep(2)
                heard = heard[-100:] + await ours.receive_some()
            assert b"output_overflow" in heard
            assert rig.seats == 0
            nursery.cancel_scope.cancel()


KINDS: list[dict[str, Any]] = [
    {},
    {"stream": True},
    {"stream": True, **SPOKEN},
    {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}] * 9 + HELLO},
    {"messages": [{"role": "user", "content": [SOUND]}, {"role": "assistant", "content": "y"}, *HELLO]},
    {"n": 2},
]


@pytest.mark.parametrize("seed", range(20))
async def test_whenever_clients_go_nothing_of_them_is_left(autojump_clock: Clock, seed: int) -> None:
    chance = Random(seed)
    script = 'hear "well"; wait 0.1; speak "this goes on and on" for 2'
    async with rigged(turns(script, step_ms=5), max_sessions=8) as rig, trio.open_nursery() as nursery:
        await rig.settles()
        tasks = trio.lowlevel.current_statistics().tasks_living

        async def ask_and_go() -> None:
            await trio.sleep(chance.random())
            caller = rig.connect()
            with trio.move_on_after(chance.choice([0, 0.001, 0.1, chance.random() / 2, 9])):
                await caller.send(asking(**chance.choice(KINDS)))
                await read_reply(caller)
            await caller.stream.aclose()

        async with trio.open_nursery() as callers:
            for _ in range(30):
                callers.start_soon(ask_and_go)
        await trio.sleep(LINGER_S)
        await rig.settles()
        assert (rig.seats, rig.reception.connections) == (0, 0)
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert rig.engine.snapshot().workers["voice"].free_slots == 8
        nursery.cancel_scope.cancel()


# --- failures ----------------------------------------------------------------------------------------------------


async def test_a_failure_before_the_first_word(autojump_clock: Clock) -> None:
    async with rigged(turns('fail custom_code "no idea"; speak "x" for 1')) as rig:
        for stream in (False, True):
            reply = await ask(rig, stream=stream)
            assert (reply.status, reply.error["type"]) == (500, "server_error")
            assert (reply.error["code"], reply.error["message"]) == ("custom_code", "no idea")
        assert (rig.seats, counted(rig, "failed")) == (0, 2)


async def test_a_failure_in_the_middle(autojump_clock: Clock) -> None:
    async with rigged(turns('speak "so far" for 0.4; fail "no more"')) as rig:
        caller = rig.connect()
        await caller.send(asking(stream=True))
        reply = await read_reply(caller)
        assert reply.status == 200
        *_, last = reply.lines
        assert last["error"]["code"] == "engine_error"
        assert "[DONE]" not in reply.lines
        assert "".join(delta.get("content") or "" for delta in reply.deltas) == "so far"
        await caller.send(asking())
        assert (await read_reply(caller)).error["code"] == "engine_error"
        assert (rig.seats, counted(rig, "failed")) == (0, 2)


async def test_a_worker_that_dies(autojump_clock: Clock) -> None:
    async with rigged(turns('speak "so far" for 0.4; crash')) as rig:
        assert (await ask(rig)).status == 500
        recovering = await ask(rig, stream=True)
        assert (recovering.status, recovering.error["code"]) == (503, "warming_up")
        await trio.sleep(5)
        assert (await ask(rig, stream=True)).lines[-1]["error"]["code"] == "engine_error"
        assert rig.seats == 0


@attrs.define
class Buggy(Chatty):
    """Falls over its own feet: while it plans, or while it answers."""

    planning: bool = False

    def plan(self, config: SessionConfig) -> SessionPlan:
        if self.planning and config.model:
            raise ZeroDivisionError("a bug of the plugin")
        return super().plan(config)

    async def answer(self, epoch: Epoch, turn: Turn, response: Response) -> None:
        if turn.item_id is not None or turn.history:
            raise ZeroDivisionError("a bug of the plugin")


@pytest.mark.parametrize("planning", [False, True])
async def test_a_bug_of_the_plugin_is_a_server_error(autojump_clock: Clock, planning: bool) -> None:
    async with rigged(Buggy(planning=planning)) as rig:
        caller = rig.connect()
        for _ in range(2):
            await caller.send(asking())
            reply = await read_reply(caller)
            assert (reply.status, reply.error["code"]) == (500, "internal_error")
        assert rig.seats == 0


@attrs.define
class Refusing(Chatty):
    """Finds every conversation too long."""

    async def answer(self, epoch: Epoch, turn: Turn, response: Response) -> None:
        if turn.history:
            raise CodedError("context_length_exceeded", "there is room for 5 tokens only")


async def test_a_failure_that_is_the_request_s_fault(autojump_clock: Clock) -> None:
    async with rigged(Refusing()) as rig:
        reply = await ask(rig)
        assert (reply.status, reply.error["code"]) == (400, "context_length_exceeded")
        assert reply.error["type"] == "invalid_request_error"


async def test_what_becomes_of_the_server_ends_requests_too(autojump_clock: Clock) -> None:
    async with rigged(turns(FOR_AGES, step_ms=500)) as rig:
        whole, stream = rig.connect(), rig.connect()
        await whole.send(asking())
        await stream.send(asking(stream=True, **SPOKEN))
        await trio.sleep(3)
        rig.reception.stop.set()
        rig.end_connections()
        cut, broken = await read_reply(whole), await read_reply(stream)
        assert (cut.status, cut.error["code"]) == (503, "draining")
        assert broken.lines[-1]["error"]["code"] == "draining"
        await rig.settles()
        assert (rig.seats, counted(rig, "failed")) == (0, 2)
