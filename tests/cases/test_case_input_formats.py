"""Kind: a format that was agreed is not the one that sound is read in, so that it is noise, too slow or too fast."""

import base64

import numpy as np
import pytest
import trio
from attentive import Attentive
from server_rig import Rig, rigged
from trio.abc import Clock

from duplex_engine.client import DuplexClient, ReconnectPolicy, SessionConfig
from duplex_engine.protocol.session_config import Profile
from duplex_engine.testing.caller import Caller
from duplex_engine.testing.rig import NATIVE, open_rig
from duplex_engine.testing.schedules import explore, run_story

HUNDRED_MS = 4_800
"""Bytes of 100 ms of PCM16 at 24 kHz."""


def zeros(count: int) -> str:
    return base64.b64encode(bytes(count)).decode()


async def says(caller: Caller, count: int, **fields: object) -> None:
    """So many bytes in the format agreed upon, as a turn that is answered."""
    await caller.sends("input_audio_buffer.append", audio=zeros(count), is_speech=True, **fields)
    await caller.commits()
    await caller.hears("response.done", status="completed")
    await caller.waits(1.0)


async def updates(caller: Caller, session: object) -> None:
    event_id = await caller.sends("session.update", session=session)
    await caller.hears("session.updated")
    assert not caller.all("error", event_id=event_id)


AT_24_KHZ: dict[str, dict[str, object]] = {
    "flat": {"input_audio_format": "pcm16", "sample_rate_hz": 24_000},
    "flat, short": {"sample_rate": 24_000},
    "flat object": {"input_audio_format": {"type": "audio/pcm", "rate": 24_000}},
    "nested": {"audio": {"input": {"format": {"type": "audio/pcm", "rate": 24_000}}}},
    "nested name": {"audio": {"input": {"format": "pcm16", "sample_rate_hz": 24_000}}},
    "nested rate": {"audio": {"input": {"sample_rate": 24_000}}},
}


@pytest.mark.parametrize("profile", list(Profile))
@pytest.mark.parametrize("patch", AT_24_KHZ.values(), ids=list(AT_24_KHZ))
def test_an_accepted_format_holds_for_appends_that_name_none(patch: dict[str, object], profile: Profile) -> None:
    """At the opening and in mid-session, in every spelling, and all of them say the same."""

    async def story() -> None:
        plugin = Attentive()
        async with open_rig(plugin) as rig:
            async with rig.caller(session={**patch, "turn_detection": None}, profile=profile) as caller:
                told = await caller.hears("session.updated")
                opened = told.event["session"]
                await says(caller, HUNDRED_MS)
            start = {"sample_rate_hz": 8_000, "turn_detection": None}
            async with rig.caller(session=start, profile=profile) as caller:
                await caller.hears("session.updated")
                await says(caller, 1_600)
                await updates(caller, patch)
                now = caller.all("session.updated")[-1].event["session"]
                for key in ("input_audio_format", "audio"):
                    assert now[key] == opened[key]  # type: ignore[index]
                assert now["audio"]["input"]["format"]["rate"] == 24_000  # type: ignore[index]
                await says(caller, HUNDRED_MS)
        assert plugin.durations_ms == [100, 100, 100]

    run_story(story)


FORMATS = [
    ({"input_audio_format": "g711_ulaw"}, 800),
    ({"input_audio_format": "g711_alaw"}, 800),
    ({"audio": {"input": {"format": {"type": "audio/pcmu"}}}}, 800),
    ({"input_audio_format": "g711_ulaw", "sample_rate_hz": 16_000}, 1_600),
    ({"input_audio_format": "pcm_f32le", "sample_rate_hz": 24_000}, 9_600),
    ({"input_audio_format": "pcm16", "sample_rate_hz": 48_000}, 9_600),
    ({"input_audio_format": "pcm16", "sample_rate_hz": 16_000}, 3_200),
]


@explore
async def test_formats_may_change_again_and_again() -> None:
    plugin = Attentive()
    async with open_rig(plugin) as rig, rig.caller(session={}) as caller:
        await caller.hears("session.updated")
        for patch, hundred_ms in FORMATS:
            await updates(caller, patch)
            await says(caller, hundred_ms)
    assert plugin.durations_ms == [100] * len(FORMATS)


REJECTED: list[tuple[dict[str, object], str]] = [
    ({"sample_rate_hz": 7}, "unsupported_audio_format"),
    ({"audio": {"input": {"format": {"type": "audio/pcm", "rate": 7}}}}, "unsupported_audio_format"),
    ({"input_audio_format": "opus", "sample_rate_hz": 8_000}, "unsupported_audio_format"),
    ({"sample_rate_hz": 8_000, "output_audio_format": "opus"}, "unsupported_audio_format"),
    ({"sample_rate_hz": 8_000, "turn_detection": {"type": "telepathy"}}, "unsupported_turn_detection"),
    ({"input_audio_format": "g711_ulaw", "model": "another"}, "model_update_unsupported"),
    ({"sample_rate_hz": 8_000, "extra_body": {"script": "sing"}}, "invalid_duplex_runtime_config"),
]


@pytest.mark.parametrize(("patch", "code"), REJECTED, ids=[str(patch) for patch, _ in REJECTED])
def test_a_rejected_change_changes_nothing_of_how_sound_is_read(patch: dict[str, object], code: str) -> None:
    async def story() -> None:
        plugin = Attentive()
        async with open_rig(plugin) as rig, rig.caller(session={"sample_rate_hz": 24_000}) as caller:
            told = await caller.hears("session.updated")
            await says(caller, HUNDRED_MS)
            event_id = await caller.sends("session.update", session=patch)
            await caller.hears("error", code=code, event_id=event_id)
            await says(caller, HUNDRED_MS)
            await updates(caller, {})
            assert caller.all("session.updated")[-1].event["session"]["audio"] == told.event["session"]["audio"]  # type: ignore[index]
        assert plugin.durations_ms == [100, 100]

    run_story(story)


@explore
async def test_what_one_append_says_of_itself_holds_for_that_one_alone() -> None:
    plugin = Attentive()
    async with open_rig(plugin) as rig, rig.caller(session={"sample_rate_hz": 24_000}) as caller:
        await says(caller, 800, format="g711_ulaw")
        await says(caller, HUNDRED_MS)
        await says(caller, 1_600, sample_rate_hz=8_000)
        await says(caller, HUNDRED_MS)
        item = {"type": "input_audio", "audio": base64.b64encode(b"\x20" * 800).decode(), "format": "g711_ulaw"}
        await caller.sends("conversation.item.create", item={"type": "message", "role": "user", "content": [item]})
        await caller.asks()
        await caller.hears("response.done", status="completed")
        await says(caller, HUNDRED_MS)
    assert plugin.durations_ms == [100] * 6


@pytest.mark.parametrize("milliseconds", [20, 60, 100, 300])
@pytest.mark.parametrize("rate_hz", [8_000, 22_050, 24_000, 48_000])
@pytest.mark.parametrize("mode", ["turn", "native"])
def test_a_turn_that_the_resampler_holds_back_as_a_whole_is_heard_at_its_end(
    mode: str, rate_hz: int, milliseconds: int
) -> None:
    """Loud sound without a verdict of the client; afterwards the same as noise, by the client's word."""

    async def story() -> None:
        plugin = Attentive() if mode == "turn" else None
        wave = 8_000 * np.sin(np.arange(rate_hz * milliseconds // 1000) * 0.2)
        sound = base64.b64encode(wave.astype("<i2").tobytes()).decode()
        session = {"sample_rate_hz": rate_hz, **(NATIVE if mode == "native" else {})}
        script = 'listen 1; speak "heard" for 0.4; listen'
        async with open_rig(plugin, **({} if plugin else {"script": script})) as rig:
            async with rig.caller(session=session) as caller:
                await caller.sends("input_audio_buffer.append", audio=sound)
                await caller.commits()
                await caller.hears("input_audio_buffer.speech_started")
                await caller.hears("input_audio_buffer.speech_stopped")
                await caller.hears("response.done", status="completed")
                await caller.waits(1.0)
                await caller.sends("input_audio_buffer.append", audio=sound, is_speech=False)
                await caller.commits()
                await caller.hears("input_audio_buffer.committed")
                await caller.hears("response.listen", reason="silence_or_noise")
                assert len(caller.all("input_audio_buffer.speech_started")) == 1
        assert plugin is None or plugin.durations_ms == [milliseconds]

    run_story(story)


@explore
async def test_the_order_of_changes_and_appends_is_kept() -> None:
    """All in one write: what was sent before the change is read as it was agreed then."""
    plugin = Attentive()
    async with open_rig(plugin) as rig, rig.caller(session={"sample_rate_hz": 24_000}) as caller:
        append = {"type": "input_audio_buffer.append", "is_speech": True}
        await caller.sends_together(
            {**append, "audio": zeros(HUNDRED_MS)},
            {"type": "session.update", "session": {"input_audio_format": "g711_ulaw"}},
            {**append, "audio": zeros(800)},
            {"type": "session.update", "session": {"input_audio_format": "opus"}},
            {**append, "audio": zeros(800)},
            {"type": "input_audio_buffer.commit", "response_create": True},
        )
        await caller.hears("response.done", status="completed")
    assert plugin.durations_ms == [300]


@explore
async def test_a_native_model_gets_units_of_the_right_length() -> None:
    script = 'listen 10; speak "ten units" for 0.4'
    async with open_rig(script=script) as rig, rig.caller(session={**NATIVE, "sample_rate_hz": 8_000}) as caller:
        await caller.hears("session.updated")
        await updates(caller, {"sample_rate_hz": 24_000})
        await caller.sends("input_audio_buffer.append", audio=zeros(2 * 24_000 * 72 // 100))
        await caller.hears_nothing_of("response.created", for_s=3)
        await caller.sends("input_audio_buffer.append", audio=zeros(2 * 24_000 * 17 // 100))
        await caller.hears("response.done", status="completed")


@explore
async def test_the_detector_hears_in_the_format_that_was_agreed() -> None:
    """At three times the length the pause would end the turn, at a third nothing would be heard."""
    plugin = Attentive()
    session = {"sample_rate_hz": 8_000, "turn_detection": {"type": "server_vad", "silence_duration_ms": 400}}
    async with open_rig(plugin) as rig, rig.caller(session=session) as caller:
        await caller.hears("session.updated")
        await updates(caller, {"audio": {"input": {"format": {"type": "audio/pcm", "rate": 16_000}}}})
        await caller.speaks(0.48)
        await caller.is_silent(0.24)
        await caller.speaks(0.48)
        assert len(caller.all("input_audio_buffer.speech_started")) == 1
        await caller.is_silent(0.64)
        stopped = await caller.hears("input_audio_buffer.speech_stopped")
        assert 1500 <= float(str(stopped["audio_end_ms"])) <= 1800
        await caller.hears("response.done", status="completed")


# --- after the line was lost ---------------------------------------------------------------------------------------


@explore
async def test_the_format_holds_on_after_a_resume() -> None:
    plugin = Attentive(resume=True)
    async with open_rig(plugin) as rig, rig.caller(session={}) as caller:
        await caller.hears("session.updated")
        await updates(caller, {"sample_rate_hz": 24_000})
        await says(caller, HUNDRED_MS)
        caller.loses_the_line()
        await caller.waits(1.0)
        await caller.comes_back()
        await says(caller, HUNDRED_MS)
        refused = await caller.sends("session.update", session={"sample_rate_hz": 7})
        await caller.hears("error", event_id=refused)
        await says(caller, HUNDRED_MS)
    assert plugin.durations_ms == [100] * 3


URL = "ws://rig"


async def says_through(client: DuplexClient) -> None:
    """100 ms at 24 kHz that do not say so, as a turn that is answered."""
    await client.send({"type": "input_audio_buffer.append", "audio": zeros(HUNDRED_MS), "is_speech": True})
    await client.commit(create_response=True)
    await client.wait_for("response.done", timeout_s=10)


async def test_the_format_holds_on_when_a_client_reconnects_or_another_takes_over(autojump_clock: Clock) -> None:
    plugin = Attentive(resume=True)
    async with rigged(plugin) as rig:
        streams: list[trio.abc.Stream] = []

        async def connect(url: str) -> trio.abc.Stream:
            streams.append(_stream(rig))
            return streams[-1]

        config = SessionConfig(auto_response=False)
        quick = ReconnectPolicy(max_attempts=5, backoff_s=(0.05, 0.1))
        async with DuplexClient(URL, connect=connect, config=config, reconnect=quick) as client:
            await client.send({"type": "session.update", "session": {"sample_rate_hz": 24_000}})
            await says_through(client)
            await trio.aclose_forcefully(streams[-1])
            await trio.sleep(1.0)
            await says_through(client)
            assert client.credentials is not None
            async with DuplexClient.resume(URL, client.credentials, connect=connect, config=config) as successor:
                await says_through(successor)
        assert len(streams) == 3
    assert plugin.durations_ms == [100] * 3


def _stream(rig: Rig) -> trio.abc.Stream:
    stream: trio.abc.Stream = rig.connect().stream
    return stream
