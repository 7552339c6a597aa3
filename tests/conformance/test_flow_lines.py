"""Conformance checklist, line 24: a client that does not read takes a bounded part of the server's memory, then leaves."""

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from server_rig import Talker
from wire_rig import DELTA, DONE, House, Line, eventually, house, numbers

from duplex_engine.config import SessionLimits
from duplex_engine.conversation.effects import Turn
from duplex_engine.model_plugins.contract import Epoch, Response

MIB = 1024 * 1024
KERNEL_BYTES = 16 * 1024 * 1024
"""The most that the system may hold between the two ends of a connection on this machine, both buffers together."""


@attrs.define
class Flood(Talker):
    """Says far more than any buffer holds, as fast as it can; counts what it was let to say."""

    said: int = 0
    most: int = 400 * MIB

    async def warm_up(self, rehearsal: Any) -> None:
        """Nothing to warm."""

    async def answer(self, epoch: Epoch, turn: Turn, response: Response) -> None:
        while self.said < self.most:
            await response.audio(bytes(9600), text="on and on ")
            self.said += 9600


async def deaf_caller(home: House) -> Line:
    """A caller with an answer on its way, who takes nothing from its socket any more."""
    line = await home.dial_deaf()
    await line.say("session.update", session={})
    await line.append(1)
    await line.commit()
    return line


def resident_bytes() -> int:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the memory of this process from /proc")
async def test_line_24_a_slow_reader_costs_bounded_memory_and_ends_with_its_terminals_and_its_reason() -> None:
    flood = Flood()
    async with house(flood, write_deadline_s=30) as home:
        neighbour = await home.open()
        before = resident_bytes()
        line = await deaf_caller(home)
        await eventually(lambda: flood.said > 0)
        await home.until_seats(1)
        assert flood.said * 4 / 3 < SessionLimits().output_bytes + KERNEL_BYTES + MIB
        assert resident_bytes() - before < 64 * MIB
        home.read_by(line)  # it reads on, and finds how it ended
        done = await line.until(DONE, errors=True)
        assert done["response"]["status_details"] == {"type": "failed", "reason": "output_overflow"}
        (error,) = line.all("error")
        assert (error["error"]["code"], error["error"]["type"]) == ("output_overflow", "rate_limit_error")
        await line.until("session.closed", reason="output_overflow")
        assert line.kinds[-3:] == [DONE, "rate_limits.updated", "session.closed"]
        assert (await line.hang_up_of_server())[0] == 1000
        assert numbers(line.heard) == sorted(set(numbers(line.heard)))
        await neighbour.is_well()


async def test_line_24_a_reader_that_never_comes_back_is_dropped() -> None:
    flood = Flood()
    async with house(flood, write_deadline_s=0.5) as home:
        line = await deaf_caller(home)
        await eventually(lambda: flood.said > 0)
        await home.until_seats(0)
        with pytest.raises(trio.BrokenResourceError):
            await talk_on(line)


async def talk_on(line: Line) -> None:
    """Say something again and again, without ever listening."""
    for _ in range(1000):
        await line.say("session.heartbeat")
        await trio.sleep(0.02)


async def test_line_24_a_cancel_takes_what_waits_out_of_a_slow_reader_s_way() -> None:
    flood = Flood(most=40 * MIB)
    limits = SessionLimits(output_bytes=64 * MIB, output_events=1_000_000)
    async with house(flood, limits=limits, write_deadline_s=30) as home:
        line = await deaf_caller(home)
        await eventually(lambda: flood.said >= 20 * MIB)
        await line.say("response.cancel")
        home.read_by(line)
        done = await line.until(DONE)
        assert done["response"]["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}
        assert sum(len(event["delta"]) for event in line.all(DELTA)) < KERNEL_BYTES + 8 * MIB
        assert numbers(line.heard) == sorted(set(numbers(line.heard)))
        await line.is_well()
