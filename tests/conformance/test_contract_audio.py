"""Wire contract 5 beyond the checklist: how answers are encoded, and pictures beside the sound."""

import base64
import struct
from typing import Any

import attrs
import numpy as np
import pytest
from test_input_lines import a_law, mu_law
from wire_rig import DELTA, DONE, GA, NATIVE, STRICT, Line, TurnWitness, Witness, b64, house, tone

from duplex_engine.config import SessionLimits
from duplex_engine.conversation.effects import Turn
from duplex_engine.model_plugins.contract import Epoch, Response, UnitFormat
from duplex_engine.protocol.capabilities import Capabilities, Modality

MODEL_RATE_HZ = 22_050
HZ = 1000.0
SECONDS = 2


# --- 5.1, 5.3: output ---------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Singer(TurnWitness):
    """Answers every turn with two seconds of a tone, in one piece, at an odd rate."""

    name: str = "singer"

    def unit_format(self) -> UnitFormat:
        return UnitFormat(rate_hz=16_000, samples=1280, output_rate_hz=MODEL_RATE_HZ)

    async def answer(self, epoch: Epoch, turn: Turn, response: Response) -> None:
        await response.audio(tone(SECONDS, MODEL_RATE_HZ, HZ), text="la")


def law(table: Any) -> Any:
    samples = np.array([table(code) for code in range(256)]) / 32_768
    return lambda data: samples[np.frombuffer(data, np.uint8)]


def pcm16(data: bytes) -> Any:
    return np.frombuffer(data, "<i2") / 32_768


def files(data: bytes) -> Any:
    """The samples of WAV files in a row."""
    samples = []
    while data:
        assert (data[:4], data[8:16], data[36:40]) == (b"RIFF", b"WAVEfmt ", b"data")
        size = struct.unpack("<I", data[40:44])[0]
        assert struct.unpack("<I", data[4:8])[0] == 36 + size
        samples.append(pcm16(data[44 : 44 + size]))
        data = data[44 + size :]
    return np.concatenate(samples)


def declared(kind: str, rate_hz: int | None = None) -> dict[str, Any]:
    """A session with this output format in GA's spelling."""
    return {"audio": {"output": {"format": {"type": kind, **({"rate": rate_hz} if rate_hz else {})}}}}


RESAMPLED = {"extra_body": {"resample_output": True}}

OUTPUTS: dict[str, tuple[str, dict[str, Any], str, int, Any]] = {
    "nothing said": (STRICT, {}, "pcm16", MODEL_RATE_HZ, pcm16),
    "pcm16": (STRICT, {"output_audio_format": "pcm_s16le"}, "pcm16", MODEL_RATE_HZ, pcm16),
    "a rate that is only declared": (STRICT, declared("audio/pcm", 16_000), "pcm16", MODEL_RATE_HZ, pcm16),
    "resampled when asked": (STRICT, {**declared("audio/pcm", 16_000), **RESAMPLED}, "pcm16", 16_000, pcm16),
    "wav": (STRICT, {"output_audio_format": "wav"}, "wav", MODEL_RATE_HZ, files),
    "wav resampled": (STRICT, {**declared("audio/wav", 48_000), **RESAMPLED}, "wav", 48_000, files),
    "mu-law": (STRICT, {"output_audio_format": "g711_ulaw"}, "g711_ulaw", 8_000, law(mu_law)),
    "A-law": (STRICT, {"response_format": "g711-alaw"}, "g711_alaw", 8_000, law(a_law)),
    "mu-law at a declared rate": (STRICT, declared("audio/g711_ulaw", 16_000), "g711_ulaw", 16_000, law(mu_law)),
    "ga": (GA, {}, "pcm16", 24_000, pcm16),
    "ga at another rate": (GA, declared("audio/pcm", 16_000), "pcm16", 16_000, pcm16),
    "ga mu-law": (GA, declared("audio/pcmu"), "g711_ulaw", 8_000, law(mu_law)),
    "ga A-law": (GA, declared("audio/pcma"), "g711_alaw", 8_000, law(a_law)),
}


@pytest.mark.parametrize("case", OUTPUTS)
async def test_an_answer_in_each_output_format_is_the_model_s_tone(case: str) -> None:
    path, session, name, rate_hz, decode = OUTPUTS[case]
    async with house(Singer()) as home:
        line = await home.open({**session, "turn_detection": None}, path)
        await line.ask()
        done = await line.until(DONE)
        deltas = line.all(DELTA)
        if path is STRICT:
            assert {(delta["format"], delta["sample_rate_hz"]) for delta in deltas} == {(name, rate_hz)}
            assert deltas[-1]["metadata"]["audio_duration_ms"] == pytest.approx(SECONDS * 1000, abs=2)
        parts = [decode(base64.b64decode(delta["delta"])) for delta in deltas]
        assert all(len(part) < rate_hz for part in parts), "every delta is shorter than a second"
        samples = np.concatenate(parts)
        assert len(samples) == pytest.approx(SECONDS * rate_hz, abs=3)
        check_tone(samples, rate_hz)
        assert done["response"]["status"] == "completed"


def check_tone(samples: Any, rate_hz: int) -> None:
    """It is the tone, as loud as it was, and without clicks between the deltas."""
    middle = samples[rate_hz // 2 :][:rate_hz] * np.hanning(rate_hz)
    power = np.abs(np.fft.rfft(middle)) * 4 / rate_hz
    assert power[round(HZ)] == pytest.approx(1 / 3, rel=0.03)
    power[round(HZ) - 3 : round(HZ) + 4] = 0
    assert power.max() < 0.01


async def test_a_new_output_format_is_that_of_the_next_answer() -> None:
    async with house() as home:
        line = await home.script('forever { slow 0.3; speak "as it was begun" for 1 }')
        first = await line.ask()
        await line.until(DELTA)
        await line.say("session.update", session={"output_audio_format": "g711_alaw"})
        updated = await line.until("session.updated")
        assert updated["session"]["output_audio_format"] == "g711_alaw"
        await line.until(DONE)
        second = await line.ask()
        await line.until(DONE)
        formats = [
            {(delta["format"], delta["sample_rate_hz"]) for delta in line.all(DELTA, response_id=answer["response_id"])}
            for answer in (first, second)
        ]
        assert formats == [{("pcm16", 24_000)}, {("g711_alaw", 8_000)}]


@pytest.mark.parametrize("name", ["pcm_f32le", "f32le", "audio/pcm_f32le", "opus", "mp3"])
async def test_formats_that_no_answer_has(name: str) -> None:
    async with house(Singer()) as home:
        line = await home.dial()
        event_id = await line.say("session.update", session={"output_audio_format": name})
        error = await line.refused("unsupported_audio_format", event_id=event_id)
        assert error["param"] == "output_audio_format"
        assert await line.hang_up_of_server() == (1008, "unsupported_audio_format")


# --- 5.2: rates that were not declared ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["g711_ulaw", "alaw", "audio/pcmu"])
async def test_telephone_sound_has_the_telephone_s_rate_unless_another_is_declared(name: str) -> None:
    witness = TurnWitness()
    async with house(witness) as home:
        line = await home.open({"input_audio_format": name})
        shown = line.heard[0]["session"]
        assert (shown["sample_rate_hz"], shown["audio"]["input"]["format"]["rate"]) == (8_000, 8_000)
        square_wave = b64((bytes([0x80] * 4) + bytes(4)) * 1_000)
        await line.say("input_audio_buffer.append", audio=square_wave)
        await line.say("input_audio_buffer.append", audio=square_wave, sample_rate_hz=16_000)
        await line.commit()
        await line.until(DONE)
        (turn,) = witness.turns
        assert turn.utterance is not None
        assert turn.utterance.sample_count == pytest.approx(16_000 + 8_000, abs=2)


@pytest.mark.parametrize(("path", "rate_hz"), [(STRICT, 16_000), (GA, 24_000)])
async def test_sound_without_a_declared_rate_has_that_of_the_profile(path: str, rate_hz: int) -> None:
    witness = TurnWitness()
    async with house(witness) as home:
        line = await home.open({"turn_detection": None}, path)
        await line.say("input_audio_buffer.append", audio=b64(tone(1, rate_hz)))
        await line.commit()
        await line.until(DONE)
        (turn,) = witness.turns
        assert turn.utterance is not None
        assert turn.utterance.sample_count == pytest.approx(16_000, abs=2)


# --- 5.2: what is refused leaves no trace -------------------------------------------------------------------------

NOT_A_NUMBER = np.array([0.1, np.nan, 0.1], "<f4").tobytes()
BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "no base64": ({"audio": "no base64!"}, "bad_audio"),
    "empty": ({"audio": ""}, "bad_audio"),
    "not finite": ({"audio": b64(NOT_A_NUMBER), "format": "pcm_f32le"}, "bad_audio"),
    "wav": ({"audio": "AAAA", "format": "wav"}, "unsupported_audio_format"),
    "too slow": ({"audio": "AAAA", "sample_rate_hz": 7_999}, "bad_event"),
    "too fast": ({"audio": "AAAA", "sample_rate_hz": 192_001}, "bad_event"),
    "half a hertz": ({"audio": "AAAA", "sample_rate_hz": 8_000.5}, "bad_event"),
    "nothing": ({}, "bad_event"),
}


@pytest.mark.parametrize("fault", BROKEN)
async def test_an_append_that_is_refused_leaves_the_turn_as_it_was(fault: str) -> None:
    fields, code = BROKEN[fault]
    witness = TurnWitness()
    async with house(witness) as home:
        line = await home.open()
        await line.append(0.5)
        await line.refused(code, event_id=await line.say("input_audio_buffer.append", **fields))
        await line.append(0.5)
        await line.commit()
        await line.until(DONE)
        (turn,) = witness.turns
        assert turn.utterance is not None
        assert turn.utterance.sample_count == 16_000


# --- 5.4: pictures ------------------------------------------------------------------------------------------------

JPEG, PNG = b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n"


@attrs.define(eq=False)
class Seer(Witness):
    """A model that hears and sees."""

    name: str = "seer"

    def capabilities(self, max_sessions: int | None) -> Capabilities:
        return attrs.evolve(super().capabilities(max_sessions), optional_inputs=frozenset({Modality.VIDEO}))


@attrs.define(eq=False)
class Dreamer(Seer):
    """One that takes nothing in."""

    name: str = "dreamer"

    async def converse(self, epoch: Epoch) -> None:
        await epoch.next_turn()


async def show(line: Line, seconds: float, *pictures: bytes | None, **fields: Any) -> str:
    """Sound with pictures."""
    frames = [picture if picture is None else b64(picture) for picture in pictures]
    return await line.append(seconds, video_frames=frames, **fields)


async def test_a_picture_belongs_to_the_unit_that_its_append_closes_and_the_newest_wins() -> None:
    seer = Seer()
    async with house(seer) as home:
        line = await home.open(NATIVE)
        await show(line, 0.08, JPEG + b"first")
        await line.append(0.08)
        await show(line, 0.02, JPEG + b"too old")
        await show(line, 0.02, None, PNG + b"newest", PNG + b"and beside it")
        await line.append(0.04)
        await show(line, 0.16, JPEG + b"of the last unit", max_slice_nums=1)
        await seer.until_units(5)
        seen = [tuple(unit.video_frames) for unit in seer.units]
        newest = (PNG + b"newest", PNG + b"and beside it")
        assert seen == [(JPEG + b"first",), (), newest, (), (JPEG + b"of the last unit",)]


REFUSED_PICTURES: dict[str, dict[str, Any]] = {
    "three": {"video_frames": [b64(JPEG)] * 3},
    "a data url": {"video_frames": ["data:image/jpeg;base64," + b64(JPEG)]},
    "no list": {"video_frames": b64(JPEG)},
    "neither jpeg nor png": {"video_frames": [b64(b"GIF89a")]},
    "too large": {"video_frames": [b64(JPEG + bytes(3_000_000))]},
    "sliced": {"video_frames": [b64(JPEG)], "max_slice_nums": 2},
}


@pytest.mark.parametrize("fault", REFUSED_PICTURES)
async def test_pictures_that_are_refused(fault: str) -> None:
    seer = Seer()
    async with house(seer) as home:
        line = await home.open(NATIVE)
        await line.refused("invalid_video_frames", event_id=await line.append(0.08, **REFUSED_PICTURES[fault]))
        await show(line, 0.08, JPEG)
        await seer.until_units(1)
        assert [tuple(unit.video_frames) for unit in seer.units] == [(JPEG,)]


async def test_pictures_need_a_model_that_sees_and_sound_that_goes_with_them() -> None:
    async with house(Witness()) as home:
        line = await home.open(NATIVE)
        await line.refused("invalid_input_modality", event_id=await show(line, 0.08, JPEG))
    async with house(Seer()) as home:
        line = await home.open(NATIVE)
        alone = await line.say("input_audio_buffer.append", video_frames=[b64(JPEG)])
        await line.refused("invalid_input_modality", event_id=alone)


async def test_pictures_of_a_model_that_lags_count_as_pending_input() -> None:
    async with house(Dreamer(), limits=SessionLimits(input_bytes=1_000_000)) as home:
        line = await home.open(NATIVE)
        picture = JPEG + bytes(300_000)
        for _ in range(3):
            await show(line, 0.08, picture)
        await line.is_well()
        await line.refused("input_backpressure", event_id=await show(line, 0.08, picture))
        await line.say("input_audio_buffer.clear")
        await line.until("input_audio_buffer.cleared")
        await show(line, 0.08, picture)
        await line.is_well()
        assert len(line.all("error")) == 1
