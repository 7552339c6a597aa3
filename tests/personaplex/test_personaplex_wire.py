"""A tiny PersonaPlex behind the real server: two paced calls on real sockets, a replacement, a cancel, a lost connection."""

from collections.abc import Iterator
from pathlib import Path

import attrs
import numpy as np
import pytest
import trio
from peer_server import Server, serving
from personaplex_kit import Tiny

from duplex_engine.client import (
    AudioDelta,
    ConnectionResumed,
    DuplexClient,
    DuplexEvent,
    DuplexProtocolError,
    ReconnectPolicy,
    ResponseDone,
    TranscriptDelta,
)
from duplex_engine.client.presets.personaplex import create_duplex_session_config
from duplex_engine.client.transport import open_stream

FRAME_S = 0.08
FRAME_BYTES = 2 * 1920
COVERAGE = 0.97
PATIENCE_S = 5.0

pytestmark = pytest.mark.timeout(100)


@pytest.fixture(scope="module")
def server(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with two seats."""
    options = ("--option", f"checkpoint={tiny.folder}", "--max-sessions", "2", "--option", "admit_below_ms=1000")
    plugin = "duplex_engine.model_plugins.personaplex.plugin:PersonaPlexPlugin"
    with serving(tmp_path_factory.mktemp("personaplex"), "--plugin", plugin, *options) as server:
        yield server


@attrs.define
class Telephone:
    """A client that notes what it hears, and whose line can be cut."""

    url: str
    voice: str = "NATF2.pt"
    heard: list[DuplexEvent] = attrs.Factory(list)
    _line: trio.abc.Stream | None = None
    _came: trio.lowlevel.ParkingLot = attrs.Factory(trio.lowlevel.ParkingLot)

    async def connect(self, url: str) -> trio.abc.Stream:
        self._line = await open_stream(url)
        return self._line

    async def cut(self) -> None:
        assert self._line is not None
        await trio.aclose_forcefully(self._line)

    def client(self) -> DuplexClient:
        config = create_duplex_session_config(voice=self.voice, persona="Ann, a teacher.")
        quickly = ReconnectPolicy(backoff_s=(0.05, 0.1))
        return DuplexClient(self.url, config=config, reconnect=quickly, connect=self.connect)

    async def listens(self, client: DuplexClient) -> None:
        async for event in client.events():
            self.heard.append(event)
            self._came.unpark_all()

    async def call(self, frames: int, cancel_at: int | None = None, cut_at: int | None = None) -> None:
        """Talk for so many frames at the pace of a person, and wait for what was said to the last one."""
        sound = noise(frames)
        async with self.client() as client, trio.open_nursery() as nursery:
            nursery.start_soon(self.listens, client)
            begun = trio.current_time()
            for number, frame in enumerate(sound):
                await trio.sleep_until(begun + (number + 1) * FRAME_S)
                if number == cancel_at:
                    await client.cancel_response()
                if number == cut_at:
                    await self.cut()
                await client.append_audio(frame.tobytes())
            with trio.move_on_after(PATIENCE_S):
                while len(self.deltas()) < COVERAGE * frames:
                    await self._came.park()
            nursery.cancel_scope.cancel()

    def deltas(self) -> list[AudioDelta]:
        return [event for event in self.heard if isinstance(event, AudioDelta)]

    def covers(self, frames: int) -> None:
        """Whole frames, and as many as were said to it."""
        assert {len(delta.audio or b"") for delta in self.deltas()} == {FRAME_BYTES}
        assert {delta.sample_rate_hz for delta in self.deltas()} == {24_000}
        assert len(self.deltas()) >= COVERAGE * frames
        assert any(event.text for event in self.heard if isinstance(event, TranscriptDelta))


def noise(frames: int) -> np.ndarray:
    generator = np.random.default_rng(frames)
    return (0.1 * generator.standard_normal((frames, 1920))).astype(np.float32)


async def test_two_paced_calls_and_a_replacement(server: Server) -> None:
    short, long, next_one = (Telephone(server.websocket_url, voice) for voice in ("NATF2.pt", "NATM1.pt", "NATF2.pt"))

    async def one_after_the_other() -> None:
        await short.call(94)
        await next_one.call(60)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(long.call, 188)
        nursery.start_soon(one_after_the_other)
        await trio.sleep(2)
        with pytest.raises(DuplexProtocolError, match="resource_exhausted"):
            await Telephone(server.websocket_url).call(1)
    for telephone, frames in ((short, 94), (long, 188), (next_one, 60)):
        telephone.covers(frames)
        numbers = [event.raw["server_event_seq"] for event in telephone.heard if "server_event_seq" in event.raw]
        assert numbers == sorted(set(numbers))
    server.wait_empty()


async def test_a_cancel_goes_on_under_the_next_epoch(server: Server) -> None:
    telephone = Telephone(server.websocket_url)
    await telephone.call(60, cancel_at=30)
    first, *_ = (event for event in telephone.heard if isinstance(event, ResponseDone))
    assert first.response["status"] == "cancelled"
    epochs = [delta.raw["metadata"]["epoch"] for delta in telephone.deltas()]
    assert epochs == sorted(epochs)
    assert set(epochs) == {0, 1}
    assert epochs.count(1) >= 25
    cut_at = telephone.heard.index(first)
    assert not [
        e for e in telephone.heard[cut_at + 1 :] if isinstance(e, AudioDelta) and e.response_id == first.response_id
    ]


async def test_a_lost_connection_is_resumed_without_a_gap(server: Server) -> None:
    telephone = Telephone(server.websocket_url)
    await telephone.call(60, cut_at=30)
    assert [event for event in telephone.heard if isinstance(event, ConnectionResumed)]
    telephone.covers(60)
    durations = [delta.raw["metadata"]["audio_duration_ms"] for delta in telephone.deltas()]
    assert durations == [80 * (number + 1) for number in range(len(durations))], "every frame once, in order"


def test_the_tiny_checkpoint_needs_no_other_files(tiny: Tiny) -> None:
    assert sum(path.stat().st_size for path in Path(tiny.folder).iterdir()) < 8_000_000
