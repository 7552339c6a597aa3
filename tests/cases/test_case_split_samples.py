"""Kind: bytes that are no whole samples, or no sound at all, end a call, click, or spoil what is said after them."""

import base64
import struct
from typing import Any

import numpy as np
import pytest
from attentive import MODEL_HZ, Attentive

from duplex_engine.audio.pcm import Samples
from duplex_engine.conversation.hearing import Ears
from duplex_engine.errors import ProtocolViolation
from duplex_engine.protocol.commands import AppendAudio
from duplex_engine.protocol.formats import AudioFormat, Encoding
from duplex_engine.protocol.session_config import SessionConfig
from duplex_engine.testing.caller import Caller
from duplex_engine.testing.rig import NATIVE, open_rig
from duplex_engine.testing.schedules import explore, run_story

RATES = (8_000, 16_000, 22_050, 24_000, 48_000)
CODES = {Encoding.ULAW: "u1", Encoding.ALAW: "u1", Encoding.PCM16: "<i2", Encoding.F32: "<f4"}


def speech(encoding: Encoding, rate_hz: int, seconds: float = 0.2) -> bytes:
    """A voice as a client sends it."""
    wave = 0.3 * np.sin(2 * np.pi * 220 * np.arange(round(seconds * rate_hz)) / rate_hz)
    if encoding is Encoding.F32:
        return wave.astype("<f4").tobytes()
    if encoding is Encoding.PCM16:
        return (wave * 32767).astype("<i2").tobytes()
    return (128 + 100 * wave).astype("u1").tobytes()


def ears(encoding: Encoding, rate_hz: int) -> Ears:
    return Ears(SessionConfig(input_format=AudioFormat(encoding, rate_hz)), MODEL_HZ, None)


def hear(listener: Ears, *parts: bytes) -> Samples:
    """What comes of these appends and a commit."""
    heard = [listener.hear(AppendAudio(audio=part)).samples for part in parts]
    rest = listener.drain()
    return np.concatenate([*heard, *([] if rest is None else [rest.samples])])


@pytest.mark.parametrize("rate_hz", RATES)
@pytest.mark.parametrize("encoding", CODES, ids=lambda encoding: encoding.value)
def test_no_split_is_audible(encoding: Encoding, rate_hz: int) -> None:
    """Every split inside the first samples and around the middle, and one byte at a time."""
    sound = speech(encoding, rate_hz, 0.05)
    whole = hear(ears(encoding, rate_hz), sound)
    middle = len(sound) // 2
    for cut in (*range(1, 10), *range(middle, middle + 9), len(sound) - 1):
        np.testing.assert_array_equal(hear(ears(encoding, rate_hz), sound[:cut], sound[cut:]), whole)
    crumbs = [sound[place : place + 1] for place in range(len(sound))]
    np.testing.assert_array_equal(hear(ears(encoding, rate_hz), *crumbs), whole)
    thirds = [sound[place : place + 3] for place in range(0, len(sound), 3)]
    np.testing.assert_array_equal(hear(ears(encoding, rate_hz), *thirds), whole)


@pytest.mark.parametrize("end", ["commit", "clear"])
@pytest.mark.parametrize("rate_hz", RATES)
@pytest.mark.parametrize("encoding", [Encoding.PCM16, Encoding.F32], ids=lambda encoding: encoding.value)
def test_a_dangling_byte_is_dropped_with_its_turn(encoding: Encoding, rate_hz: int, end: str) -> None:
    sound = speech(encoding, rate_hz, 0.05)
    for dangling in range(1, encoding.sample_bytes):
        listener = ears(encoding, rate_hz)
        listener.hear(AppendAudio(audio=sound + b"\x7f" * dangling))
        if end == "commit":
            listener.drain()
        else:
            listener.reset_decoder()
        np.testing.assert_array_equal(hear(listener, sound), hear(ears(encoding, rate_hz), sound))


@pytest.mark.parametrize("rate_hz", RATES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_none_is_refused_and_the_sound_around_it_is_whole(bad: float, rate_hz: int) -> None:
    sound = speech(Encoding.F32, rate_hz, 0.05)
    broken = sound[:8] + struct.pack("<f", bad) + sound[12:]
    for cut in (0, 3, 402):
        listener = ears(Encoding.F32, rate_hz)
        first = [listener.hear(AppendAudio(audio=sound[:cut])).samples] if cut else []
        with pytest.raises(ProtocolViolation) as refused:
            listener.hear(AppendAudio(audio=b"\0" * (-cut % 4) + broken))
        assert refused.value.code == "bad_audio"
        samples = np.concatenate([*first, hear(listener, sound[cut:])])
        np.testing.assert_array_equal(samples, hear(ears(Encoding.F32, rate_hz), sound))


# --- in a call -----------------------------------------------------------------------------------------------------


def zeros(count: int) -> str:
    return base64.b64encode(bytes(count)).decode()


async def sends(caller: Caller, *parts: str | bytes, **fields: Any) -> None:
    for part in parts:
        text = part if isinstance(part, str) else base64.b64encode(part).decode()
        await caller.sends("input_audio_buffer.append", audio=text, **fields)


@explore
async def test_three_bytes_and_one_are_two_samples() -> None:
    plugin = Attentive()
    async with open_rig(plugin) as rig, rig.caller(session={"sample_rate_hz": 24_000}) as caller:
        await sends(caller, "AAAA", "AA==", zeros(4800), is_speech=True)
        await caller.commits()
        await caller.hears("response.done", status="completed")
        assert not caller.all("error")
    (turn,) = plugin.turns
    assert abs(len(turn) - 2402 * MODEL_HZ / 24_000) <= 1


@explore
async def test_what_dangles_at_a_commit_a_clear_or_a_barge_in_is_not_heard_in_the_next_turn() -> None:
    plugin = Attentive()
    sound = speech(Encoding.PCM16, 24_000)
    ends = (
        {"type": "input_audio_buffer.commit"},
        {"type": "input_audio_buffer.clear"},
        {"type": "barge_in"},
        {"type": "input.cancel"},
    )
    async with open_rig(plugin) as rig, rig.caller(session={"sample_rate_hz": 24_000}) as caller:
        for dangling in (b"", b"\x7f"):
            for end in ends:
                await sends(caller, sound + dangling)
                await caller.sends_together(end, {"type": "input_audio_buffer.clear"})
                await sends(caller, sound)
                await caller.commits()
                await caller.hears("response.done", status="completed")
                await caller.waits(1.0)
        assert not caller.all("error")
    for turn in plugin.turns:
        np.testing.assert_array_equal(turn, plugin.turns[0])
    assert len(plugin.turns[0]) == round(0.2 * MODEL_HZ)


@explore
async def test_silence_that_was_cleared_does_not_lead_into_the_next_turn() -> None:
    """A turn begins with a little of what was heard before it, unless that was thrown away."""
    plugin = Attentive()
    async with open_rig(plugin) as rig, rig.caller(session={}) as caller:
        await sends(caller, np.full(3200, 5, "<i2").tobytes())
        await caller.sends("input_audio_buffer.clear")
        await caller.appends(0.4)
        await caller.commits()
        await caller.hears("response.done", status="completed")
    assert len(plugin.turns[0]) == round(0.4 * MODEL_HZ)


BAD: dict[str, dict[str, object]] = {
    "empty": {"audio": ""},
    "not base64": {"audio": "äöü?"},
    "bad padding": {"audio": "AAA"},
    "NaN": {"audio": base64.b64encode(struct.pack("<4f", 0, float("nan"), 0, 0)).decode(), "format": "pcm_f32le"},
    "infinity": {"audio": base64.b64encode(struct.pack("<f", float("inf"))).decode(), "format": "pcm_f32le"},
}


@pytest.mark.parametrize("bad", BAD.values(), ids=list(BAD))
def test_what_is_no_sound_is_refused_by_name_and_the_rest_is_clean(bad: dict[str, object]) -> None:
    async def story() -> None:
        plugin = Attentive()
        sound = speech(Encoding.PCM16, 24_000)
        async with open_rig(plugin) as rig, rig.caller(session={"sample_rate_hz": 24_000}) as caller:
            for interrupted in (False, True):
                await sends(caller, sound[:1001])
                if interrupted:
                    refused = await caller.sends("input_audio_buffer.append", **bad)
                    error = await caller.hears("error", code="bad_audio", event_id=refused)
                    assert error["param"] == "audio"
                await sends(caller, sound[1001:])
                await caller.commits()
                await caller.hears("response.done", status="completed")
                await caller.waits(1.0)
        first, second = plugin.turns
        np.testing.assert_array_equal(first, second)

    run_story(story)


@explore
async def test_a_native_model_hears_no_split_either() -> None:
    script = 'listen 2; speak "I heard you" for 0.4'
    async with open_rig(script=script) as rig, rig.caller(session={**NATIVE, "sample_rate_hz": 24_000}) as caller:
        sound = speech(Encoding.PCM16, 24_000, 0.4)
        for place in range(0, len(sound), 333):
            await sends(caller, sound[place : place + 333])
        await sends(caller, b"\x7f")
        await caller.sends("input_audio_buffer.clear")
        await sends(caller, sound)
        await caller.commits()
        await caller.hears("response.done", status="completed")
        assert not caller.all("error")
