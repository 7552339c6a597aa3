"""Conformance checklist, lines 18 and 19: every error a client can provoke, and what must not even be one too many."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from error_checks import meet
from error_table import NOT_YET, TABLE, Row, Then
from server_rig import Caller, Rig, rigged
from transport_peer import BINARY, frame
from wire_rig import STRICT, b64, eventually, house, native, numbers, tone, turns

from duplex_engine.protocol.errors import ERRORS
from duplex_engine.server.connection import receive_caller

MIB = 1024 * 1024
AT_ONCE = 12
"""So many rows are checked side by side; most of the time they wait for answers to be spoken."""
ELSEWHERE = {
    "output_overflow": "line 24",
    "config_timeout": "line 3",
    "warming_up": "not in 4.9, and a worker that died is back before a busy machine has sent a frame",
}
"""Rows that need the clock stopped, or a stream that holds nothing."""


@attrs.define
class WiredRig(Rig):
    """The same server behind a port."""

    port: int = 0

    async def call(self, path: str = STRICT, **upgrade: Any) -> Caller:
        """A caller behind a successful upgrade."""
        caller = Caller(await trio.open_tcp_stream("127.0.0.1", self.port))
        status, _ = await caller.upgrade(path, **upgrade)
        assert status.startswith("HTTP/1.1 101"), status
        return caller

    async def settles(self) -> None:
        """Wait until the connection that has just ended is gone here as well."""
        await eventually(lambda: self.reception.connections <= 1, 2)


@asynccontextmanager
async def wired(row: Row) -> AsyncIterator[Rig]:
    """A server for one row, on a port of its own."""
    async with rigged(row.plugin(), max_sessions=row.seats, session=row.limits) as rig, trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(partial(trio.serve_listeners, partial(receive_caller, rig.reception), [listener]))
        yield WiredRig(rig.engine, rig.reception, rig.metrics, nursery, listener.socket.getsockname()[1])
        nursery.cancel_scope.cancel()


async def check(row: Row, room: trio.CapacityLimiter) -> None:
    """Provoke the error of this row. Raises AssertionError that names it."""
    async with room:
        try:
            with trio.fail_after(30):
                async with wired(row) as rig:
                    await meet(rig, row)
        except Exception as error:
            raise AssertionError(f"row {row}") from error


@pytest.mark.parametrize("then", Then)
async def test_line_18_every_error_names_its_cause_and_the_session_goes_on_or_ends_as_it_should(then: Then) -> None:
    room = trio.CapacityLimiter(AT_ONCE)
    async with trio.open_nursery() as nursery:
        for row in TABLE:
            if row.then is then and row.code not in ELSEWHERE:
                nursery.start_soon(check, row, room)


def test_line_18_no_code_is_forgotten() -> None:
    assert {row.code for row in TABLE} | NOT_YET.keys() == ERRORS.keys()


ODD_FRAMES: dict[str, tuple[str | bytes, str]] = {
    "NaN": ('{"type":"playback.ack","played_ms":NaN}', "invalid_json"),
    "Infinity": ('{"type":"playback.ack","played_ms":Infinity}', "invalid_json"),
    "huge number": ('{"type":"playback.ack","played_ms":1e999}', "invalid_json"),
    "boolean": ('{"type":"playback.ack","played_ms":true}', "bad_event"),
    "boolean rate": ('{"type":"input_audio_buffer.append","audio":"AAAA","sample_rate_hz":true}', "bad_event"),
    "boolean sequence": ('{"type":"session.event_ack","server_event_seq":false}', "invalid_event_ack"),
    "one byte too many": ("{}" + " " * (15 * MIB - 1), "event_too_large"),
    "binary": (frame(BINARY, b"\x00\xff" * 1000), "bad_event"),
    "deep": ("[" * 100_000, "invalid_json"),
}


@pytest.mark.parametrize("mode", ["turn", "native"])
async def test_line_19_odd_frames_are_refused_outside_the_sequence_and_no_event_is_lost(mode: str) -> None:
    script = 'forever { slow 0.2; speak "undisturbed by any of it" for 2 }'
    model = turns(script=script, resume=True) if mode == "turn" else native(script, resume=True)
    async with house(model) as home:
        line = await home.open({"extra_body": {"auto_response": mode == "native"}})
        answer = await line.ask()
        for odd, code in ODD_FRAMES.values():
            await (line.send(odd) if isinstance(odd, bytes) else line.say_raw(odd.encode()))
            error = await line.until("error", errors=True)
            assert error["error"]["code"] == code
            assert "server_event_seq" not in error
        await line.until("response.done", response_id=answer["response_id"])
        await line.is_well()
        assert numbers(line.heard) == list(range(1, 1 + len(numbers(line.heard))))
        assert "session.resync_required" not in line.kinds
        assert len(line.all("error")) == len(ODD_FRAMES)


async def test_line_19_nulls_in_a_detector_are_its_defaults() -> None:
    async with house() as home:
        nulls = dict.fromkeys(("threshold", "prefix_padding_ms", "silence_duration_ms", "min_speech_duration_ms"))
        line = await home.open({"turn_detection": {"type": "server_vad", **nulls}})
        detection = line.heard[0]["session"]["turn_detection"]
        assert (detection["threshold"], detection["prefix_padding_ms"]) == (0.5, 300)
        assert (detection["silence_duration_ms"], detection["min_speech_duration_ms"]) == (500, 96)


async def test_line_19_two_megabytes_of_reference_audio_are_neither_echoed_nor_journaled() -> None:
    url = "data:audio/wav;base64," + "A" * 2 * MIB
    async with house(turns(resume=True)) as home:
        line = await home.open({"ref_audio": url})
        for _ in range(5):
            await line.say("session.update", session={"temperature": 0.5})
            updated = await line.until("session.updated")
            assert updated["session"]["ref_audio"] == {"bytes": len(url)}
        assert max(map(len, line.raw)) < 20_000
        assert "session.resync_required" not in line.kinds
        await line.ask()
        assert (await line.until("response.done"))["response"]["status"] == "completed"


async def test_line_19_a_frame_of_exactly_the_limit_is_heard() -> None:
    async with house() as home:
        line = await home.open()
        append = json.dumps({"type": "input_audio_buffer.append", "audio": b64(tone(1))})
        await line.say_raw(append.encode() + b" " * (15 * MIB - len(append)))
        await line.commit()
        await line.until("response.done")
