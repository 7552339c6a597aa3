"""Our own client against our own server: lost connections, and a session handed from one process to the next."""

from typing import Any

import pytest
import trio
from server_rig import SPEECH, Rig, Talker, rigged
from trio.abc import Clock

from duplex_engine.client import (
    AudioDelta,
    ConnectionResumed,
    DuplexClient,
    DuplexEvent,
    DuplexProtocolError,
    ReconnectPolicy,
    SessionConfig,
)
from duplex_engine.protocol.wire_json import b64decode

URL = "ws://rig"
PIECES = 40
QUICK = ReconnectPolicy(max_attempts=5, backoff_s=(0.05, 0.1))


class Cable:
    """Connects a client to the rig, and can be cut."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._streams: list[trio.abc.Stream] = []

    async def connect(self, url: str) -> trio.abc.Stream:
        stream = self._rig.connect().stream
        self._streams.append(stream)
        return stream

    async def cut(self) -> None:
        await trio.aclose_forcefully(self._streams[-1])

    @property
    def connections(self) -> int:
        return len(self._streams)


def client_on(cable: Cable, **options: Any) -> DuplexClient:
    config = SessionConfig(auto_response=False)
    return DuplexClient(URL, model="m", connect=cable.connect, config=config, reconnect=QUICK, **options)


async def ask(client: DuplexClient) -> None:
    await client.append_audio(b64decode(SPEECH))
    await client.commit(create_response=True)


def sound_of(events: list[DuplexEvent]) -> bytes:
    return b"".join(event.audio or b"" for event in events if isinstance(event, AudioDelta))


@pytest.mark.parametrize("cuts", [1, 3])
async def test_a_cut_cable_is_not_heard(autojump_clock: Clock, cuts: int) -> None:
    async with rigged(Talker(pieces=PIECES, resume=True)) as rig:
        cable = Cable(rig)
        async with client_on(cable) as client:
            events = client.events()
            await ask(client)
            heard: list[DuplexEvent] = []
            async for event in events:
                heard.append(event)
                deltas = sum(isinstance(each, AudioDelta) for each in heard)
                if isinstance(event, AudioDelta) and deltas % 8 == 0 and cable.connections <= cuts:
                    await cable.cut()
                if event.type == "response.done":
                    break
            assert len(sound_of(heard)) == PIECES * 2 * 2400
            assert sum(isinstance(event, ConnectionResumed) for event in heard) == cuts
            numbers = [event.raw["server_event_seq"] for event in heard if "server_event_seq" in event.raw]
            assert numbers == sorted(set(numbers))
        assert rig.seats == 0


async def test_another_process_takes_the_session_over(autojump_clock: Clock) -> None:
    async with rigged(Talker(pieces=PIECES, resume=True)) as rig:
        first_cable, second_cable = Cable(rig), Cable(rig)
        async with client_on(first_cable) as first:
            await ask(first)
            await first.wait_for("response.output_audio.delta", timeout_s=10)
            credentials = first.credentials
            assert credentials is not None
            options = {"connect": second_cable.connect, "config": SessionConfig(auto_response=False)}
            async with DuplexClient.resume(URL, credentials, **options) as second:
                assert second.session_id == first.session_id
                await second.wait_for("response.done", timeout_s=10)
                await ask(second)
                await second.wait_for("response.done", timeout_s=10)
                newer = second.credentials
                assert newer is not None
                assert newer.resume_token != credentials.resume_token
        assert rig.seats == 0
        assert first_cable.connections == 1, "the loser was told, and does not come back"


async def test_credentials_of_a_session_that_is_over_are_refused(autojump_clock: Clock) -> None:
    async with rigged(Talker(resume=True)) as rig:
        cable = Cable(rig)
        async with client_on(cable) as client:
            credentials = client.credentials
        assert credentials is not None
        with pytest.raises(DuplexProtocolError, match="session_resume_expired"):
            async with DuplexClient.resume(URL, credentials, connect=cable.connect):
                pytest.fail("there is nothing to resume")


async def test_a_client_that_leaves_with_an_exception_leaves_no_session(autojump_clock: Clock) -> None:
    async with rigged(Talker(pieces=PIECES, resume=True)) as rig:
        with pytest.raises(ValueError, match="mine"):
            await fail_on(Cable(rig))
        await trio.sleep(0.1)
        assert rig.seats == 0


async def fail_on(cable: Cable) -> None:
    async with client_on(cable) as client:
        await ask(client)
        raise ValueError("mine")
