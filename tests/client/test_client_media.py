"""WAV files, data URLs, pictures, units, presets and the arithmetic of a player."""

import wave

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from duplex_engine.client import (
    AudioFormat,
    PlaybackClock,
    ReconnectPolicy,
    SessionConfig,
    audio_data_url,
    chunk_period_ms,
    duplex_unit_boundary_ms,
    has_residual_model_unit,
    image_data_url,
    read_pcm16_wav,
    reference_audio_data_url,
    write_pcm16_wav,
)
from duplex_engine.client.media import Clip, Pace, VideoTrack
from duplex_engine.client.presets import minicpm_o_4_5, personaplex


def test_a_wav_comes_back_as_it_was_written(tmp_path):
    write_pcm16_wav(tmp_path / "a.wav", b"\1\0\2\0", sample_rate_hz=16_000)
    assert read_pcm16_wav(tmp_path / "a.wav") == b"\1\0\2\0"
    with pytest.raises(ValueError, match="has 16000 Hz, not 24000 Hz"):
        read_pcm16_wav(tmp_path / "a.wav", sample_rate_hz=24_000)


@pytest.mark.parametrize(("channels", "width", "message"), [(2, 2, "2 channels"), (1, 1, "8-bit"), (1, 3, "24-bit")])
def test_other_wavs_are_refused_by_name(tmp_path, channels, width, message):
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(16_000)
        file.writeframes(bytes(12))
    with pytest.raises(ValueError, match=message) as refused:
        read_pcm16_wav(tmp_path / "a.wav")
    assert "a.wav" in str(refused.value)


def test_data_urls(tmp_path):
    path = tmp_path / "voice.wav"
    path.write_bytes(b"RIFF")
    assert audio_data_url(b"RIFF") == audio_data_url(path) == "data:audio/wav;base64,UklGRg=="
    assert image_data_url(b"RIFF", mime="image/png") == "data:image/png;base64,UklGRg=="
    assert reference_audio_data_url(str(path)) == audio_data_url(path)
    assert reference_audio_data_url(None) is None
    with pytest.raises(FileNotFoundError, match="nobody"):
        reference_audio_data_url(str(tmp_path / "nobody.wav"))


def test_speech_bounds_of_silence_are_the_whole_clip():
    assert Clip(bytes(3200), 16_000).speech_bounds_s() == (0.0, 0.1)
    assert Clip(b"", 16_000).speech_bounds_s() == (0.0, 0.0)


def test_model_units():
    with_period = {"session": {"capabilities": {"chunk_period_ms": 80}}}
    assert chunk_period_ms([with_period, {"session": {}}, {"type": "x"}]) == 80
    for wrong in (0, True, "80", None):
        assert chunk_period_ms([{"session": {"capabilities": {"chunk_period_ms": wrong}}}], default=7) == 7
    assert not has_residual_model_unit(bytes(2560 * 3), chunk_period_ms=80)
    assert has_residual_model_unit(bytes(2560 * 3 + 2), chunk_period_ms=80)
    assert [duplex_unit_boundary_ms(k) for k in (0, 1, 2)] == [1000, 2000, 3000]


def test_pictures_ride_on_the_chunk_that_completes_their_second():
    track = VideoTrack(["a", "b"], [None, "B"])
    assert [track.due(ms) for ms in (500, 1000, 1500, 2000, 3000)] == [None, ["a"], None, ["b", "B"], ["b", "B"]]
    assert track.sent == 3
    assert VideoTrack([], []).due(5000) is None


def test_audio_formats():
    assert AudioFormat("pcm16", 16_000).duration_ms(3200) == 100
    assert AudioFormat("pcm_f32le", 24_000).byte_count(80) == 7680
    with pytest.raises(ValueError, match="opus"):
        AudioFormat("opus", 48_000).duration_ms(1)
    with pytest.raises(ValueError):
        AudioFormat("pcm16", 0)


def test_presets():
    cfg = minicpm_o_4_5.create_duplex_session_config(ref_audio="data:,", extra_body={"x": 1}, temperature=0.5)
    payload = cfg.to_session_payload(model="m")
    assert payload["extra_body"] == {"auto_response": True, "force_listen_count": 0, "x": 1}
    assert (payload["overlap_policy"], payload["playback_commit_policy"]) == ("listen_only", "ack_only")
    assert (payload["ref_audio"], payload["temperature"]) == ("data:,", 0.5)
    payload = personaplex.create_duplex_session_config(persona="You are calm.").to_session_payload(model="m")
    assert (payload["input_audio_format"], payload["sample_rate_hz"]) == ("pcm_f32le", 24_000)
    assert (payload["voice"], payload["instructions"]) == ("NATF2.pt", "You are calm.")
    assert personaplex.create_duplex_session_config(voice="v", auto_response=False).auto_response is False


def test_extra_body_may_override_the_automatic_answer():
    config = SessionConfig(auto_response=True, extra_body={"auto_response": False})
    assert config.to_session_payload(model="m")["extra_body"] == {"auto_response": False}


@given(st.random_module(), st.integers(-1, 40))
def test_backoff_stays_in_its_bounds(random_module, attempt):
    delay = ReconnectPolicy().delay(attempt)
    assert 0.25 <= delay <= min(4.0, 0.25 * 2 ** max(0, attempt))


async def test_pace_does_not_drift(autojump_clock):
    pace = Pace()
    for number in range(1, 100):
        await trio.sleep(0.007)
        await pace.until(number * 20)
        assert trio.current_time() == pytest.approx(number * 0.02)


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0, 2000)), max_size=20))
def test_a_player_plays_each_piece_once_and_never_ahead_of_the_clock(pieces):
    player, now_s, before_ms = PlaybackClock(), 0.0, 0.0
    for pause_s, duration_ms in pieces:
        now_s += pause_s
        position_ms = player.position_ms(now_s)
        assert before_ms - 1e-6 <= position_ms <= player.received_ms
        assert position_ms <= before_ms + pause_s * 1000 + 1e-6
        player.deliver(duration_ms, now_s)
        before_ms = player.position_ms(now_s)
        assert before_ms == pytest.approx(position_ms)
    assert player.position_ms(now_s + 1e6) == player.received_ms


def test_a_stopped_player_stands_still():
    player = PlaybackClock()
    player.deliver(1000, 5.0)
    player.stop(5.4)
    player.stop(5.9)
    player.deliver(1000, 6.0)
    assert player.position_ms(100.0) == pytest.approx(400)
    assert player.dry(5.4)
