"""A connection that breaks, or a bug in one call, and everybody else's call breaks with it."""

import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NoReturn

import pytest
import structlog
import trio
import trio.testing
from case_server import House, house, resets
from server_rig import DUPLEX, Caller, Rig, rigged
from structlog.testing import LogCapture
from transport_peer import BINARY, CLOSE, TEXT, frame
from trio.abc import Clock

from duplex_engine.model_plugins.scripted.plugin import ScriptedPlugin
from duplex_engine.protocol.wire_json import b64decode
from duplex_engine.testing.marks import MarkReader

DELTA = "response.output_audio.delta"
LEAD_S = 0.2
RATE_HZ = 24_000
SCRIPT = 'forever { speak "an answer that goes on" for 6 }'
ANSWER_S = 6.0


@pytest.fixture(autouse=True)
def quiet() -> Iterator[list[Any]]:
    """Errors that are logged, as a machine would read them; nobody else sees them."""
    capture = LogCapture()
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, capture],
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
    )
    yield capture.entries
    structlog.reset_defaults()


class Neighbour:
    """A caller to whom nothing may happen: each of its samples is checked, and that none of them is late."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._marks = MarkReader()
        self._response_id = ""
        self._began_at = 0.0

    async def begins(self) -> None:
        """Ask, and hear the first sound."""
        await self._caller.open()
        self._response_id = (await self._caller.asks())["response_id"]
        await self._hears()
        self._began_at = trio.current_time()

    async def listens(self, slack_s: float = 0.0) -> None:
        """Hear the whole answer, all of it in time."""
        while (heard_s := self._marks.samples(self._response_id) / RATE_HZ) < ANSWER_S:
            late_s = trio.current_time() - self._began_at - heard_s
            assert late_s <= slack_s, f"a gap of {late_s:g} s"
            await self._hears()

    async def leaves(self) -> None:
        """Say goodbye."""
        await self._caller.hears("response.done")
        await self._caller.say("session.close")
        await self._caller.hears("session.closed")
        await self._caller.farewell()
        await self._caller.stream.aclose()

    async def _hears(self) -> None:
        delta = await self._caller.hears(DELTA)
        self._marks.hear(delta["response_id"], b64decode(delta["delta"]))


# --- a bug in any task of a call --------------------------------------------------------------------------------------


class Bug(Exception):
    """Something nobody has thought of."""


def tasks() -> Iterator[trio.lowlevel.Task]:
    """All tasks, parents first."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    waiting = [root]
    while waiting:
        task = waiting.pop(0)
        yield task
        waiting.extend(child for nursery in task.child_nurseries for child in nursery.child_tasks)


def crash(task: trio.lowlevel.Task) -> None:
    """Have a task that waits for something raise there."""

    def bug() -> NoReturn:
        raise Bug(f"in {task.name}")

    task._attempt_abort(bug)


async def is_idle(caller: Caller) -> None:
    await caller.open()


async def is_answered(caller: Caller) -> None:
    await caller.open()
    await caller.asks()
    await caller.hears(DELTA)


async def has_said_nothing(caller: Caller) -> None:
    pass


async def is_interrupted(caller: Caller) -> None:
    await is_answered(caller)
    await caller.say("response.cancel")


STATES = [is_idle, is_answered, has_said_nothing, is_interrupted]


async def crash_one(rig: Rig, state: Callable[[Caller], Awaitable[None]], number: int) -> str | None:
    """A call in this state, in whose task of this number there is a bug; its name, None when there are fewer."""
    before = set(tasks())
    victim = await rig.call()
    await state(victim)
    await rig.settles()
    mine = [task for task in tasks() if task not in before]
    if number >= len(mine):
        await victim.stream.aclose()
        return None
    crash(mine[number])
    with trio.move_on_after(5) as patience:
        await ends(victim)
    assert patience.cancelled_caught is (mine[number].name in MENDED), mine[number].name
    if patience.cancelled_caught:
        await asks_again(victim)
    return mine[number].name


async def ends(caller: Caller) -> None:
    """The connection comes to its end, whatever it says before."""
    try:
        while True:
            opcode, payload = await caller.next_frame()
            if opcode == CLOSE:
                await caller.send(frame(CLOSE, payload[:2]))
    except (EOFError, trio.BrokenResourceError):
        await caller.stream.aclose()


MENDED = {"duplex_engine.actors.succession.Succession.run"}
"""What begins afresh after a crash, in the same call."""


async def asks_again(caller: Caller) -> None:
    """The call has gone on."""
    await caller.asks()
    await caller.hears(DELTA)
    await caller.say("session.close")
    await ends(caller)


@pytest.mark.parametrize("interrupt", ["response", "epoch"])
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
async def test_a_bug_in_any_task_of_a_call_ends_that_call_alone(
    autojump_clock: Clock, quiet: list[Any], state: Callable[[Caller], Awaitable[None]], interrupt: str
) -> None:
    plugin = ScriptedPlugin(mode="turn", interrupt=interrupt, lead_s=LEAD_S, script=SCRIPT)
    async with rigged(plugin) as rig:
        crashed: list[str] = []
        name: str | None = ""
        while name is not None:
            quiet.clear()
            neighbour = Neighbour(await rig.call())
            await neighbour.begins()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(neighbour.listens)
                name = await crash_one(rig, state, len(crashed))
            await neighbour.leaves()
            await rig.settles()
            assert rig.seats == rig.reception.connections == 0, name
            if name is not None:
                crashed.append(name)
                (error,) = quiet
                assert state is has_said_nothing or error["session_id"].startswith("duplex-"), (name, error)
        assert len(crashed) >= 3, crashed
        (worker,) = rig.engine.snapshot().workers.values()
        assert worker.free_slots == worker.slots


# --- rude callers on real sockets ---------------------------------------------------------------------------------------


async def opened(server: House, **session: Any) -> Caller:
    caller = await server.call()
    await caller.open(session)
    return caller


async def resets_at_once(server: House) -> None:
    resets(await server.connect())


async def resets_in_the_handshake(server: House) -> None:
    rude = await server.connect()
    await rude.send(b"GET /v1/realtime?duplex=1 HTTP/1.1\r\nHost: t\r\nUpgrade: webso")
    resets(rude)


async def resets_before_the_handshake_is_answered(server: House) -> None:
    rude = await server.connect()
    await rude.send(UPGRADE)
    resets(rude)


async def resets_while_its_session_is_opened(server: House) -> None:
    rude = await server.call()
    await rude.say("session.update", session={})
    resets(rude)


async def resets_in_a_frame(server: House) -> None:
    rude = await opened(server)
    await rude.send(frame(TEXT, b"x" * 70_000)[:40_000])
    resets(rude)


async def resets_in_a_frame_s_header(server: House) -> None:
    rude = await opened(server)
    await rude.send(frame(TEXT, b"x" * 70_000)[:3])
    resets(rude)


async def resets_between_fragments(server: House) -> None:
    rude = await opened(server)
    await rude.send(frame(TEXT, b"{", fin=False))
    resets(rude)


async def resets_in_an_answer(server: House) -> None:
    rude = await opened(server)
    await rude.asks()
    await rude.hears(DELTA)
    resets(rude)


async def sends_no_http(server: House) -> None:
    rude = await server.connect()
    await rude.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
    assert (await rude.read_head())[0] == "HTTP/1.1 400 Bad Request"
    resets(rude)


async def has_a_backend_that_fails(server: House) -> None:
    rude = await opened(server, extra_body={"script": 'fail "no"'})
    await rude.asks()
    assert (await rude.hears("response.done", errors=True))["response"]["status"] == "failed"
    resets(rude)


async def has_a_backend_that_dies(server: House) -> None:
    rude = await opened(server, extra_body={"script": "crash", "worker": "frail"})
    await rude.asks()
    assert (await rude.hears("response.done", errors=True))["response"]["status"] == "failed"
    resets(rude)
    await server.engine.wait_ready()  # newcomers wait until it is there again


BROKEN = {
    "invalid UTF-8": (frame(TEXT, b'{"type":"\xff\xfe"}'), 1007),
    "half a character": (frame(TEXT, b"\xe2\x82"), 1007),
    "invalid UTF-8 in fragments": (frame(TEXT, b"\xff", fin=False) + frame(0, b"\xff"), 1007),
    "a reserved opcode": (frame(3, b"x"), 1002),
    "no mask": (b"\x81\x02{}", 1002),
    "a reserved bit": (b"\xc1\x82\x00\x00\x00\x00{}", 1002),
    "a long ping": (frame(9, b"x" * 126), 1002),
    "a ping in pieces": (frame(9, b"x", fin=False), 1002),
    "a continuation of nothing": (frame(0, b"x"), 1002),
    "a new message in a message": (frame(TEXT, b"x", fin=False) + frame(TEXT, b"{}"), 1002),
    "a close of one byte": (frame(CLOSE, b"\x03"), 1002),
    "a length below zero": (b"\x81\xff" + b"\xff" * 8 + b"\x00" * 4, 1009),
}


async def breaks_every_rule(server: House) -> None:
    for kind, (broken, code) in BROKEN.items():
        for ready in (False, True):
            rude = await server.call()
            if ready:
                await rude.open()
            await rude.send(broken)
            assert await rude.close_code() == code, kind
            resets(rude)


ODD = {
    b"[]": "bad_event",
    b"{}": "bad_event",
    b"7": "bad_event",
    b"null": "bad_event",
    b'{"type": 1}': "bad_event",
    b'{"type": null}': "bad_event",
    b'{"type": {"type": "session.close"}}': "bad_event",
    b'{"type": "session.explode"}': "unknown_event",
    b"": "invalid_json",
    b"{": "invalid_json",
    b"\xef\xbb\xbf{}": "invalid_json",
    b'{"type": "\\ud800"}': "invalid_json",
    b'{"type": "playback.ack", "played_ms": NaN}': "invalid_json",
    b'{"type": "playback.ack", "played_ms": 1e999}': "invalid_json",
    b'{"type": "playback.ack", "played_ms": 1e300}': "bad_event",
    b'{"type": "playback.ack", "played_ms": %s}' % (b"9" * 5_000): "invalid_json",
    b"[" * 100 + b"]" * 100: "bad_event",
    b"[" * 100_000 + b"]" * 100_000: "invalid_json",
    b'{"a":' * 100_000 + b"1" + b"}" * 100_000: "invalid_json",
    b'{"type": "conversation.item.create", "item": %s}' % (b'{"a":' * 500 + b"1" + b"}" * 500): "bad_event",
    b'{"type": "session.update", "session": %s}' % (b'{"a":' * 500 + b"1" + b"}" * 500): "bad_event",
}


async def says_odd_things(server: House) -> None:
    rude = await opened(server)
    for text, code in ODD.items():
        await rude.send(frame(TEXT, text))
        event = await rude.next_event()
        assert (event["type"], event["error"]["code"]) == ("error", code), text[:80]
    await rude.send(frame(BINARY, b"\x00\x01"))
    assert (await rude.next_event())["error"]["code"] == "bad_event"
    await rude.say("session.heartbeat")
    await rude.hears("session.heartbeat_ack")
    resets(rude)
    for text, code in ODD.items():
        rude = await server.call()
        await rude.send(frame(TEXT, text))
        assert (await rude.next_event())["error"]["code"] == code, text[:80]
        assert await rude.close_code() == 1008
        resets(rude)


async def is_nested_a_hundred_times(server: House) -> None:
    """Deep, but JSON: taken and said back."""
    rude = await opened(server)
    deep = b'{"a":' * 100 + b"1" + b"}" * 100
    await rude.send(frame(TEXT, b'{"type": "session.update", "session": {"unheard_of": %s}}' % deep))
    await rude.hears("session.updated")
    await rude.send(frame(TEXT, b'{"type": "conversation.item.create", "item": {"type": "note", "note": %s}}' % deep))
    await rude.hears("conversation.item.done")
    resets(rude)


UPGRADE = (
    f"GET {DUPLEX} HTTP/1.1\r\nHost: t\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
).encode()
RUDE = [
    resets_at_once,
    resets_in_the_handshake,
    resets_before_the_handshake_is_answered,
    resets_while_its_session_is_opened,
    resets_in_a_frame,
    resets_in_a_frame_s_header,
    resets_between_fragments,
    resets_in_an_answer,
    sends_no_http,
    has_a_backend_that_fails,
    has_a_backend_that_dies,
    breaks_every_rule,
    says_odd_things,
    is_nested_a_hundred_times,
]
SLACK_S = 0.5
"""What a busy machine may add to the lead before a gap counts as one."""


async def test_rude_callers_end_alone_and_nobody_hears_a_gap(quiet: list[Any]) -> None:
    """All of them, one after the other and all at once, while somebody listens to an answer."""
    plugin = ScriptedPlugin(mode="turn", workers=("voice", "frail"), lead_s=LEAD_S, script=SCRIPT)
    async with house(plugin, max_sessions=50) as server:
        neighbour = Neighbour(await server.call())
        await neighbour.begins()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(neighbour.listens, SLACK_S)
            for rudeness in RUDE:
                await rudeness(server)
            for rudeness in RUDE:
                if rudeness is not has_a_backend_that_dies:
                    nursery.start_soon(rudeness, server)
        await server.settles(1)
        await neighbour.leaves()
        await server.settles(0)
    assert [error["event"] for error in quiet if error["event"].endswith("_crashed")] == ["worker_crashed"]
