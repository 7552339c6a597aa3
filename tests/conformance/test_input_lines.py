"""Conformance checklist, lines 20 and 21: what a model hears does not depend on how it was sent."""

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np
import pytest
from wire_rig import NATIVE, House, Line, TurnWitness, Witness, b64, house, pieces, tone, wave

MINUTE = 60
RATES = (8_000, 16_000, 24_000, 44_100, 48_000)


# --- line 20 ------------------------------------------------------------------------------------------------------


def speech(seconds: float, rate_hz: int) -> bytes:
    """Something without a period, as PCM16."""
    noise = np.random.default_rng(5).normal(0, 3000, round(seconds * rate_hz))
    return bytes(noise.clip(-32_767, 32_767).astype("<i2").tobytes())


def whole(pcm: bytes) -> Iterator[bytes]:
    yield pcm


def sample_by_sample(pcm: bytes) -> Iterator[bytes]:
    yield from pieces(pcm[:128], 2)
    yield pcm[128:]


def odd_bytes(pcm: bytes) -> Iterator[bytes]:
    yield from pieces(pcm, 99_999)


async def units(home: House, witness: Witness, cut: Callable[[bytes], Iterator[bytes]], rate_hz: int) -> Any:
    """The units that the model heard of a minute of sound, cut in this way."""
    witness.units.clear()
    line = await home.open(NATIVE)
    for part in cut(speech(MINUTE, rate_hz)):
        await line.say("input_audio_buffer.append", audio=b64(part), sample_rate_hz=rate_hz)
    await line.commit()
    await line.until("input_audio_buffer.committed")
    await witness.until_units(MINUTE * 1000 // 80)
    await line.say("session.close")
    await line.until("session.closed")
    assert not line.all("error")
    return [unit.samples for unit in witness.units]


@pytest.mark.parametrize("rate_hz", [16_000, 24_000])
async def test_line_20_sixty_four_appends_of_a_sample_and_one_of_a_minute_give_the_same_units(rate_hz: int) -> None:
    witness = Witness()
    async with house(witness) as home:
        expected = await units(home, witness, whole, rate_hz)
        assert len(expected) == MINUTE * 1000 // 80
        for cut in (sample_by_sample, odd_bytes):
            heard = await units(home, witness, cut, rate_hz)
            assert len(heard) == len(expected)
            assert all(np.array_equal(one, other) for one, other in zip(heard, expected, strict=True))


# --- line 21 ------------------------------------------------------------------------------------------------------


def mu_law(code: int) -> int:
    """ITU-T G.711: the sample of a mu-law code, 16 bits."""
    code = ~code & 0xFF
    magnitude = (((code & 0x0F) << 3) + 0x84 << (code >> 4 & 7)) - 0x84
    return -magnitude if code & 0x80 else magnitude


def a_law(code: int) -> int:
    """ITU-T G.711: the sample of an A-law code, 16 bits."""
    code ^= 0x55
    segment, magnitude = code >> 4 & 7, (code & 0x0F) << 4
    magnitude = magnitude + 8 if segment == 0 else magnitude + 0x108 << segment - 1
    return magnitude if code & 0x80 else -magnitude


def telephone(law: Callable[[int], int], samples: Any) -> bytes:
    """Samples in -1..1 as the nearest codes of a law."""
    table = np.array([law(code) for code in range(256)])
    order = np.argsort(table, kind="stable")
    ordered = table[order]
    wanted = samples * 32_768
    right = np.searchsorted(ordered, wanted).clip(1, 255)
    nearer = np.where(wanted - ordered[right - 1] < ordered[right] - wanted, right - 1, right)
    return bytes(order[nearer].astype(np.uint8).tobytes())


@attrs.frozen
class Format:
    """One way to send sound. `fields`: of an append."""

    name: str
    rate_hz: int
    encode: Callable[[Any], bytes]
    fields: dict[str, Any] = attrs.Factory(dict)

    def __str__(self) -> str:
        return f"{self.name}-{self.rate_hz}"


def pcm16(samples: Any) -> bytes:
    return bytes((samples * 32_767).astype("<i2").tobytes())


def f32(samples: Any) -> bytes:
    return bytes(samples.astype("<f4").tobytes())


FORMATS = [
    *(Format("pcm16", rate_hz, pcm16, {"sample_rate_hz": rate_hz}) for rate_hz in RATES),
    *(
        Format(
            "f32",
            rate_hz,
            lambda samples: samples.astype("<f4").tobytes(),
            {"format": "pcm_f32le", "sample_rate_hz": rate_hz},
        )
        for rate_hz in (16_000, 22_050, 32_000)
    ),
    Format("ulaw", 8_000, lambda samples: telephone(mu_law, samples), {"format": "g711_ulaw"}),
    Format("alaw", 8_000, lambda samples: telephone(a_law, samples), {"format": "g711_alaw"}),
    Format("pcmu", 8_000, lambda samples: telephone(mu_law, samples), {"format": {"type": "audio/pcmu"}}),
    Format("pcma", 8_000, lambda samples: telephone(a_law, samples), {"format": {"type": "audio/pcma"}}),
    Format("ulaw", 16_000, lambda samples: telephone(mu_law, samples), {"format": "mulaw", "sample_rate_hz": 16_000}),
]
TONES = (300.0, 1000.0, 2700.0)
SECONDS = 2


def chord(rate_hz: int) -> Any:
    return sum(wave(SECONDS, rate_hz, hz) for hz in TONES) / len(TONES)


def spectrum(samples: Any, rate_hz: int) -> dict[float, float]:
    """How loud each tone is in the middle second, and at 0 the loudest of everything else."""
    middle = samples[len(samples) // 2 - rate_hz // 2 :][:rate_hz] * np.hanning(rate_hz)
    power = np.abs(np.fft.rfft(middle)) * 4 / rate_hz
    loud = {hz: float(power[round(hz)]) for hz in TONES}
    for hz in TONES:
        power[round(hz) - 3 : round(hz) + 4] = 0
    return {**loud, 0.0: float(power.max())}


@pytest.mark.parametrize("sent", FORMATS, ids=str)
@pytest.mark.parametrize("model_rate_hz", [16_000, 24_000])
async def test_line_21_every_format_gives_the_model_the_same_spectrum(sent: Format, model_rate_hz: int) -> None:
    witness = Witness(model_rate_hz)
    async with house(witness) as home:
        line = await home.open(NATIVE)
        await say_in_chunks(line, sent)
        await line.commit()
        await line.until("input_audio_buffer.committed")
        await witness.until_units(SECONDS * 1000 // 80)
        check_spectrum(witness.samples, sent, model_rate_hz)
        assert not line.all("error")


@pytest.mark.parametrize("sent", FORMATS[::3], ids=str)
async def test_line_21_a_turn_sounds_the_same(sent: Format) -> None:
    witness = TurnWitness()
    async with house(witness) as home:
        line = await home.open()
        await say_in_chunks(line, sent)
        await line.commit()
        await line.until("response.done")
        (turn,) = witness.turns
        assert turn.utterance is not None
        check_spectrum(turn.utterance.samples(), sent, 16_000)


@pytest.mark.parametrize("spelling", ["flat", "nested"])
async def test_line_21_the_session_s_format_is_that_of_appends_that_name_none(spelling: str) -> None:
    witness = Witness()
    flat = {"input_audio_format": "pcm_f32le", "sample_rate_hz": 48_000}
    nested = {"audio": {"input": {"format": {"type": "audio/pcm_f32le", "rate": 48_000}}}}
    async with house(witness) as home:
        line = await home.open({**(flat if spelling == "flat" else nested), **NATIVE})
        sent = Format("f32", 48_000, f32)
        await say_in_chunks(line, sent)
        await line.commit()
        await witness.until_units(SECONDS * 1000 // 80)
        check_spectrum(witness.samples, sent, 16_000)


async def say_in_chunks(line: Line, sent: Format) -> None:
    """The chord in appends of 63 ms and a bit, which fits no unit."""
    data = sent.encode(chord(sent.rate_hz))
    for part in pieces(data, 4 * (sent.rate_hz // 63) + 4):
        await line.say("input_audio_buffer.append", audio=b64(part), **sent.fields)


def check_spectrum(samples: Any, sent: Format, rate_hz: int) -> None:
    """The three tones are there, as loud as they were sent, and nothing else is."""
    heard = spectrum(samples, rate_hz)
    for hz in TONES:
        assert heard[hz] == pytest.approx(1 / 9, rel=0.03), (hz, heard)
    noise = 0.004 if "law" in sent.name or ("pcm" in sent.name[:4] and sent.name != "pcm16") else 0.0005
    assert heard[0.0] < noise, heard


def test_line_21_the_laws_are_those_of_the_standard() -> None:
    assert [mu_law(code) for code in (0x00, 0x80, 0x7F, 0xFF, 0x10)] == [-32124, 32124, 0, 0, -15996]
    assert [a_law(code) for code in (0x55, 0xD5, 0x2A, 0xAA)] == [-8, 8, -32256, 32256]
    assert tone(0.001, 8000, 1000) == pcm16(wave(0.001, 8000, 1000))
