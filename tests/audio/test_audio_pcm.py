import io
import wave

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from duplex_engine.audio.pcm import (
    compress_g711,
    expand_g711,
    f32_to_float,
    float_to_pcm16,
    pcm16_to_float,
    rms,
    wav_file,
)
from duplex_engine.errors import ProtocolViolation
from duplex_engine.protocol.formats import Encoding

LAWS = [Encoding.ULAW, Encoding.ALAW]
ALL_PCM16 = np.arange(-32768, 32768).astype("<i2")
ALL_CODES = bytes(range(256))


def steps(samples):
    return np.frombuffer(float_to_pcm16(samples), "<i2").astype(int)


def test_every_pcm16_value_survives_the_round_trip():
    samples = pcm16_to_float(ALL_PCM16.tobytes())
    assert samples.dtype == np.float32
    assert samples.min() == -1.0
    assert samples.max() < 1.0
    assert float_to_pcm16(samples) == ALL_PCM16.tobytes()


@pytest.mark.parametrize(
    ("sample", "expected"),
    [(0.0, 0), (1.0, 32767), (-1.0, -32768), (7.5, 32767), (-7.5, -32768), (0.6 / 32768, 1), (-0.4 / 32768, 0)],
)
def test_float_to_pcm16_rounds_and_clips(sample, expected):
    assert steps(np.array([sample], np.float32)) == [expected]


# Values of ITU-T G.711, tables 1 and 2, scaled to 16 bits: both ends of the range, the middle, one inside a segment.
@pytest.mark.parametrize(
    ("law", "code", "expected"),
    [
        (Encoding.ULAW, 0x00, -32124),
        (Encoding.ULAW, 0x80, 32124),
        (Encoding.ULAW, 0xFF, 0),
        (Encoding.ULAW, 0x7F, 0),
        (Encoding.ULAW, 0xFE, 8),
        (Encoding.ULAW, 0xEF, 132),
        (Encoding.ULAW, 0xB5, 3260),
        (Encoding.ALAW, 0xD5, 8),
        (Encoding.ALAW, 0x55, -8),
        (Encoding.ALAW, 0xAA, 32256),
        (Encoding.ALAW, 0x2A, -32256),
        (Encoding.ALAW, 0xC5, 264),
        (Encoding.ALAW, 0xF5, 528),
    ],
)
def test_g711_known_codes(law, code, expected):
    assert steps(expand_g711(bytes([code]), law)) == [expected]


@pytest.mark.parametrize("law", LAWS)
def test_g711_codes_are_fixed_points(law):
    expanded = expand_g711(ALL_CODES, law)
    again = compress_g711(float_to_pcm16(expanded), law)
    assert np.array_equal(expand_g711(again, law), expanded)


@pytest.mark.parametrize(("law", "loudest"), [(Encoding.ULAW, 32635), (Encoding.ALAW, 32767)])
def test_g711_rises_with_the_signal_and_errs_by_half_a_step(law, loudest):
    back = steps(expand_g711(compress_g711(ALL_PCM16.tobytes(), law), law))
    assert (np.diff(back) >= 0).all()
    magnitude = np.abs(ALL_PCM16.astype(int))
    inside = magnitude <= loudest
    half_step = np.maximum(8, 2.0 ** (np.floor(np.log2(np.maximum(magnitude + 132, 1))) - 5))
    assert (np.abs(back - ALL_PCM16)[inside] <= half_step[inside]).all()
    assert len(set(compress_g711(ALL_PCM16.tobytes(), law))) == 256


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_float_audio_must_be_finite(bad):
    with pytest.raises(ProtocolViolation) as refusal:
        f32_to_float(np.array([0.1, bad, 0.2], "<f4").tobytes())
    assert refusal.value.code == "bad_audio"
    assert refusal.value.param == "audio"


@given(hnp.arrays("<f4", st.integers(0, 50), elements=st.floats(-4, 4, width=32)))
def test_float_audio_is_taken_as_it_is_within_full_scale(samples):
    assert np.array_equal(f32_to_float(samples.tobytes()), np.clip(samples, -1, 1))


@given(st.binary(max_size=100).filter(lambda pcm: len(pcm) % 2 == 0), st.sampled_from([8_000, 22_050, 24_000]))
def test_wav_file_is_complete(pcm, rate_hz):
    with wave.open(io.BytesIO(wav_file(pcm, rate_hz))) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, rate_hz)
        assert file.readframes(1000) == pcm


def test_rms():
    assert rms(np.zeros(0, np.float32)) == 0.0
    assert rms(np.full(480, -0.25, np.float32)) == pytest.approx(0.25)
    assert rms(np.sin(np.arange(16_000, dtype=np.float32) * 0.1)) == pytest.approx(0.7071, rel=1e-2)
