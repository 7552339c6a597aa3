"""The decoder and the encoder as streams: how they are cut must never be heard."""

import io
import itertools
import wave

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duplex_engine.audio.decode import InputDecoder
from duplex_engine.audio.encode import OutputEncoder
from duplex_engine.audio.pcm import compress_g711, expand_g711, float_to_pcm16, pcm16_to_float
from duplex_engine.audio.resample import Resampler
from duplex_engine.errors import ProtocolViolation
from duplex_engine.protocol.formats import INPUT_ENCODINGS, Encoding

RATES = [8_000, 16_000, 22_050, 24_000, 44_100, 48_000]
MODEL_RATES = [16_000, 24_000]
LINEAR = [Encoding.PCM16, Encoding.F32]


def tone(rate_hz, seconds=0.5, hz=440.0, level=0.5):
    return (level * np.sin(2 * np.pi * hz * np.arange(int(rate_hz * seconds)) / rate_hz)).astype(np.float32)


def encoded(samples, encoding):
    if encoding is Encoding.F32:
        return samples.astype("<f4").tobytes()
    pcm = float_to_pcm16(samples)
    return pcm if encoding is Encoding.PCM16 else compress_g711(pcm, encoding)


def decoded(pieces, encoding, rate_hz, model_rate):
    decoder = InputDecoder(model_rate)
    samples = [decoder.decode(piece, encoding, rate_hz) for piece in pieces]
    return np.concatenate([*samples, decoder.drain()])


def strongest_hz(samples, rate_hz):
    middle = samples[len(samples) // 5 : -len(samples) // 5]
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle)), 1 << 17))
    return np.argmax(spectrum) * rate_hz / (1 << 17)


@pytest.mark.parametrize("model_rate", MODEL_RATES)
@pytest.mark.parametrize("rate_hz", RATES)
@pytest.mark.parametrize("encoding", sorted(INPUT_ENCODINGS, key=lambda e: e.value))
def test_a_tone_reaches_the_model_as_that_tone(encoding, rate_hz, model_rate):
    heard = decoded([encoded(tone(rate_hz), encoding)], encoding, rate_hz, model_rate)
    assert len(heard) == pytest.approx(0.5 * model_rate, abs=2)
    assert strongest_hz(heard, model_rate) == pytest.approx(440.0, abs=0.5)
    loudness = np.sqrt(np.mean(heard[2000:-2000] ** 2))
    assert loudness == pytest.approx(0.5 / np.sqrt(2), rel=0.02)


@pytest.mark.parametrize("rate_hz", [r for r in RATES if r != 16_000])
def test_resampling_in_appends_has_no_clicks(rate_hz):
    data = encoded(tone(rate_hz), Encoding.F32)
    append = 4 * (rate_hz // 50)
    heard = decoded([data[i : i + append] for i in range(0, len(data), append)], Encoding.F32, rate_hz, 16_000)
    assert np.abs(heard - tone(16_000)[: len(heard)])[800:-800].max() < 1e-3


@settings(max_examples=60, deadline=None)
@given(
    encoding=st.sampled_from(sorted(INPUT_ENCODINGS, key=lambda e: e.value)),
    rate_hz=st.sampled_from(RATES),
    model_rate=st.sampled_from(MODEL_RATES),
    seed=st.integers(0, 2**32 - 1),
    length=st.integers(0, 3000),
    cuts=st.lists(st.integers(0, 12_000), max_size=40),
)
def test_any_cut_of_the_bytes_gives_the_same_samples(encoding, rate_hz, model_rate, seed, length, cuts):
    noise = np.random.default_rng(seed).uniform(-1, 1, length).astype(np.float32)
    data = encoded(noise, encoding)
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
    whole = decoded([data], encoding, rate_hz, model_rate)
    assert np.array_equal(decoded(pieces, encoding, rate_hz, model_rate), whole)


@settings(max_examples=40, deadline=None)
@given(
    rate_in=st.sampled_from(RATES),
    rate_out=st.sampled_from(RATES),
    sizes=st.lists(st.integers(0, 700), max_size=20),
)
def test_flushing_makes_a_resampler_as_new(rate_in, rate_out, sizes):
    used, fresh = Resampler(rate_in, rate_out), Resampler(rate_in, rate_out)
    used.push(tone(rate_in, 0.3, level=0.9))
    used.flush()
    for size in sizes:
        block = np.linspace(-1, 1, size, dtype=np.float32)
        assert np.array_equal(used.push(block), fresh.push(block))
    assert np.array_equal(used.flush(), fresh.flush())


def test_equal_rates_do_not_copy():
    samples = tone(16_000)
    assert Resampler(16_000, 16_000).push(samples) is samples


def test_flush_of_an_untouched_resampler_is_empty():
    resampler = Resampler(24_000, 16_000)
    assert len(resampler.flush()) == 0
    resampler.push(np.zeros(0, np.float32))
    assert len(resampler.flush()) == 0


@pytest.mark.parametrize("rate_hz", [16_000, 24_000])
def test_a_sample_split_by_two_appends_is_one_sample(rate_hz):
    decoder = InputDecoder(16_000)
    pcm = encoded(tone(rate_hz), Encoding.PCM16)
    heard = [decoder.decode(pcm[:3], Encoding.PCM16, rate_hz), decoder.decode(pcm[3:4], Encoding.PCM16, rate_hz)]
    heard += [decoder.decode(pcm[4:], Encoding.PCM16, rate_hz), decoder.drain()]
    assert np.array_equal(np.concatenate(heard), decoded([pcm], Encoding.PCM16, rate_hz, 16_000))


def test_a_dangling_byte_does_not_reach_the_next_turn():
    decoder = InputDecoder(16_000)
    decoder.decode(b"\x11", Encoding.PCM16, 16_000)
    assert len(decoder.drain()) == 0
    assert np.array_equal(decoder.decode(b"\x00\x40", Encoding.PCM16, 16_000), np.array([0.5], np.float32))


def test_reset_forgets_the_tail_and_the_dangling_byte():
    decoder = InputDecoder(16_000)
    decoder.decode(encoded(tone(24_000), Encoding.PCM16) + b"\x11", Encoding.PCM16, 24_000)
    decoder.reset()
    assert len(decoder.drain()) == 0
    quiet = decoder.decode(bytes(48_000), Encoding.PCM16, 24_000)
    assert len(quiet) > 0
    assert not quiet.any()


def test_a_refused_append_leaves_no_trace():
    data = encoded(tone(24_000), Encoding.F32)
    poison = np.array([0.0, np.nan], "<f4").tobytes()
    decoder = InputDecoder(16_000)
    heard = [decoder.decode(data[:4001], Encoding.F32, 24_000)]
    with pytest.raises(ProtocolViolation, match="bad_audio"):
        decoder.decode(b"\x00\x00\x00" + poison, Encoding.F32, 24_000)
    with pytest.raises(ProtocolViolation, match="bad_audio"):
        decoder.decode(poison, Encoding.F32, 16_000)
    heard += [decoder.decode(data[4001:], Encoding.F32, 24_000), decoder.drain()]
    assert np.array_equal(np.concatenate(heard), decoded([data], Encoding.F32, 24_000, 16_000))


def test_a_change_of_format_loses_no_audio():
    first, second = tone(24_000), tone(8_000)
    decoder = InputDecoder(16_000)
    heard = [decoder.decode(encoded(first, Encoding.PCM16), Encoding.PCM16, 24_000)]
    heard += [decoder.decode(encoded(second, Encoding.ULAW), Encoding.ULAW, 8_000), decoder.drain()]
    separately = [
        decoded([encoded(first, Encoding.PCM16)], Encoding.PCM16, 24_000, 16_000),
        decoded([encoded(second, Encoding.ULAW)], Encoding.ULAW, 8_000, 16_000),
    ]
    assert np.array_equal(np.concatenate(heard), np.concatenate(separately))


def test_the_models_own_format_passes_through_the_encoder_uncopied():
    pcm = encoded(tone(24_000), Encoding.PCM16)
    encoder = OutputEncoder(Encoding.PCM16, 24_000, 24_000)
    assert encoder.encode(pcm) is pcm
    assert encoder.flush() == b""
    assert encoder.rate_hz == 24_000


@pytest.mark.parametrize("law", [Encoding.ULAW, Encoding.ALAW])
@pytest.mark.parametrize("rate_in", [22_050, 24_000])
def test_a_telephone_hears_the_models_tone(law, rate_in):
    pcm = encoded(tone(rate_in), Encoding.PCM16)
    encoder = OutputEncoder(law, rate_in, 8_000)
    codes = b"".join(encoder.encode(pcm[i : i + 3840]) for i in range(0, len(pcm), 3840)) + encoder.flush()
    assert encoder.rate_hz == 8_000
    assert len(codes) == pytest.approx(4000, abs=2)
    assert strongest_hz(expand_g711(codes, law), 8_000) == pytest.approx(440.0, abs=0.5)


@settings(max_examples=30, deadline=None)
@given(rate_out=st.sampled_from(RATES), sizes=st.lists(st.integers(0, 2000), max_size=12))
def test_the_encoder_loses_nothing_however_the_voice_is_cut(rate_out, sizes):
    pcm = encoded(tone(24_000, sum(sizes) / 24_000), Encoding.PCM16)
    encoder, whole = (OutputEncoder(Encoding.PCM16, 24_000, rate_out) for _ in range(2))
    edges = 2 * np.cumsum([0, *sizes])
    blocks = [encoder.encode(pcm[a:b]) for a, b in itertools.pairwise(edges)]
    assert b"".join(blocks) + encoder.flush() == whole.encode(pcm) + whole.flush()


@pytest.mark.parametrize("rate_out", [24_000, 8_000])
def test_every_wav_block_is_a_file(rate_out):
    pcm = encoded(tone(24_000), Encoding.PCM16)
    encoder = OutputEncoder(Encoding.WAV, 24_000, rate_out)
    blocks = [encoder.encode(pcm[i : i + 3840]) for i in range(0, len(pcm), 3840)] + [encoder.flush()]
    played = b""
    for block in filter(None, blocks):
        with wave.open(io.BytesIO(block)) as file:
            assert file.getframerate() == rate_out
            played += file.readframes(file.getnframes())
    assert len(played) // 2 == pytest.approx(rate_out / 2, abs=2)
    assert strongest_hz(pcm16_to_float(played), rate_out) == pytest.approx(440.0, abs=0.5)


def test_float_is_no_output_encoding():
    with pytest.raises(ValueError, match="pcm_f32le"):
        OutputEncoder(Encoding.F32, 24_000, 24_000)
