"""The session's ears: decoding, verdicts, and the detector's edges on the session's audio clock (wire contract 3.3)."""

import attrs
import numpy as np
import pytest
from conversation_rig import sound
from hypothesis import given, settings
from hypothesis import strategies as st

from duplex_engine.audio.pcm import compress_g711, float_to_pcm16
from duplex_engine.audio.vad import EnergyDetector
from duplex_engine.conversation.hearing import Ears, input_format
from duplex_engine.errors import DetectorFailed, ProtocolViolation
from duplex_engine.protocol.commands import AppendAudio
from duplex_engine.protocol.formats import AudioFormat, Encoding
from duplex_engine.protocol.session_config import SessionConfig, TurnDetection

PLAIN = SessionConfig()
DETECTED = SessionConfig(turn_detection=TurnDetection())


def append(samples, **fields):
    return AppendAudio(audio=float_to_pcm16(samples), **fields)


def tone(duration_ms, rate_hz, amplitude=0.3):
    times = np.arange(round(duration_ms * rate_hz / 1000)) / rate_hz
    return (amplitude * np.sin(2 * np.pi * 440 * times)).astype(np.float32)


# --- verdicts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loudness", "fields", "speech"),
    [
        (0.01, {}, True),
        (0.0031, {}, True),
        (0.002, {}, False),
        (0.0, {}, False),
        (0.0, {"speech": True}, True),
        (0.5, {"speech": False}, False),
        (0.01, {"overlap_silence_rms": 0.1}, False),
        (0.002, {"overlap_silence_rms": 0.001}, True),
        (0.0, {"overlap_silence_rms": 0.0}, False),
    ],
)
def test_verdicts_without_a_detector(loudness, fields, speech):
    heard = Ears(PLAIN, 16_000, EnergyDetector()).hear(append(np.full(3200, loudness, np.float32), **fields))
    assert (heard.speech, heard.detected, heard.changes) == (speech, False, ())
    assert heard.rms == pytest.approx(loudness, abs=1e-4)
    assert heard.duration_ms == 200


def test_the_detector_wins_over_the_client():
    ears = Ears(DETECTED, 16_000, EnergyDetector())
    heard = ears.hear(append(sound(320, False), speech=True))
    assert (heard.speech, heard.detected, heard.voiced_ms) == (False, True, 0)
    heard = ears.hear(append(sound(320, True), speech=False))
    assert heard.speech
    assert [change.kind for change in heard.changes] == ["started"]


def test_without_a_detector_the_client_is_believed():
    heard = Ears(DETECTED, 16_000, None).hear(append(sound(320, False), speech=True))
    assert (heard.speech, heard.detected) == (True, False)


class Broken:
    """A detector that judges so many windows."""

    def __init__(self, windows):
        self.windows = windows

    def probability(self, window):
        self.windows -= 1
        if self.windows < 0:
            raise DetectorFailed("out of order")
        return 1.0

    def reset(self):
        pass


def test_a_detector_that_fails_leaves_the_verdict_to_the_client():
    ears = Ears(DETECTED, 16_000, Broken(20))
    assert ears.hear(append(sound(320, True))).detected
    heard = ears.hear(append(sound(640, True), speech=False))
    assert (heard.detected, heard.speech, heard.changes) == (False, False, ())
    assert heard.detector_failed == "out of order"
    assert len(heard.samples) == 10_240, "nothing of the sound is lost"
    ears.reconfigure(PLAIN)
    assert ears.hear(append(sound(320, True))).detector_failed is None
    assert ears.now_ms == 1280


def test_the_client_knows_how_long_its_append_is():
    assert Ears(PLAIN, 16_000, None).hear(append(sound(200, True), duration_ms=180)).duration_ms == 180


# --- decoding --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("session", "fields", "expected"),
    [
        (PLAIN.input_format, {}, (Encoding.PCM16, 16_000)),
        (PLAIN.input_format, {"sample_rate_hz": 48_000}, (Encoding.PCM16, 48_000)),
        (PLAIN.input_format, {"encoding": Encoding.F32}, (Encoding.F32, 16_000)),
        (PLAIN.input_format, {"encoding": Encoding.ULAW}, (Encoding.ULAW, 8_000)),
        (PLAIN.input_format, {"encoding": Encoding.ALAW, "sample_rate_hz": 16_000}, (Encoding.ALAW, 16_000)),
        (AudioFormat(Encoding.ULAW, 16_000), {}, (Encoding.ULAW, 16_000)),
        (AudioFormat(Encoding.PCM16, 24_000), {}, (Encoding.PCM16, 24_000)),
    ],
)
def test_the_format_of_an_append(session, fields, expected):
    assert input_format(attrs.evolve(PLAIN, input_format=session), AppendAudio(audio=b"..", **fields)) == expected


def test_foreign_rates_and_laws_reach_the_model():
    ears = Ears(attrs.evolve(PLAIN, input_format=AudioFormat(Encoding.PCM16, 24_000)), 16_000, None)
    heard = [ears.hear(append(tone(200, 24_000))) for _ in range(5)]
    assert sum(len(part.samples) for part in heard) < 16_000, "a filter looks ahead"
    rest = ears.drain()
    assert sum(len(part.samples) for part in [*heard, rest]) == 16_000
    assert ears.drain() is None


def test_telephone_sound_reaches_the_model():
    ears = Ears(PLAIN, 16_000, None)
    codes = compress_g711(float_to_pcm16(tone(500, 8_000)), Encoding.ULAW)
    heard = ears.hear(AppendAudio(audio=codes, encoding=Encoding.ULAW))
    assert heard.speech
    assert len(heard.samples) + len(ears.drain().samples) == 8_000
    assert ears.now_ms == 500


def test_a_sample_cut_in_two_is_one_sample():
    ears = Ears(PLAIN, 16_000, None)
    counts = [len(ears.hear(AppendAudio(audio=data)).samples) for data in (b"\x00\x00\x00", b"\x00", bytes(4800))]
    assert counts == [1, 1, 2400]


def test_broken_audio_was_not_heard():
    ears = Ears(PLAIN, 16_000, None)
    ears.hear(append(sound(200, True)))
    for command, code in (
        (AppendAudio(audio=b"\x00\x00\xc0\x7f", encoding=Encoding.F32), "bad_audio"),
        (AppendAudio(), "bad_event"),
    ):
        with pytest.raises(ProtocolViolation) as refused:
            ears.hear(command)
        assert refused.value.code == code
    assert ears.now_ms == 200
    assert len(ears.hear(append(sound(200, True))).samples) == 3200


def test_pictures_alone_are_silent():
    heard = Ears(DETECTED, 16_000, EnergyDetector()).hear(AppendAudio(video_frames=(b"\xff\xd8",)))
    assert (len(heard.samples), heard.speech, heard.rms, heard.video_frames) == (0, False, 0.0, (b"\xff\xd8",))


# --- edges -----------------------------------------------------------------------------------------------------------------


def hear_all(ears, samples, sizes):
    """Cut the samples into appends of these sizes, again and again; returns (kind, at_ms, absolute sample)."""
    edges, place, turn = [], 0, 0
    while place < len(samples):
        size = sizes[turn % len(sizes)]
        heard = ears.hear(append(samples[place : place + size]))
        edges += [(change.kind, change.at_ms, place + change.samples_before) for change in heard.changes]
        place, turn = place + size, turn + 1
    return edges


SPOKEN = np.concatenate([sound(640, False), sound(640, True), sound(320, False), sound(320, True), sound(960, False)])


def test_edges_lie_where_the_sound_changes():
    edges = hear_all(Ears(DETECTED, 16_000, EnergyDetector()), SPOKEN, [len(SPOKEN)])
    assert edges == [
        ("started", 640 - 300, 16 * 736),
        ("paused", 1280, 16 * 1376),
        ("resumed", 1600, 16 * 1632),
        ("paused", 1920, 16 * 2016),
        ("stopped", 2432, 16 * 2432),
    ]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 12_000), min_size=1, max_size=6))
def test_how_the_sound_is_cut_changes_no_edge(sizes):
    whole = hear_all(Ears(DETECTED, 16_000, EnergyDetector()), SPOKEN, [len(SPOKEN)])
    assert hear_all(Ears(DETECTED, 16_000, EnergyDetector()), SPOKEN, sizes) == whole


def test_a_model_at_another_rate_has_the_same_clock():
    samples = np.concatenate([tone(640, 24_000, 0), tone(960, 24_000), tone(960, 24_000, 0)])
    ears = Ears(attrs.evolve(DETECTED, input_format=AudioFormat(Encoding.PCM16, 24_000)), 24_000, EnergyDetector())
    edges = hear_all(ears, samples, [1920])
    assert [kind for kind, _, _ in edges] == ["started", "paused", "stopped"]
    assert edges[0][1] == pytest.approx(340, abs=64)
    assert edges[2][1] == pytest.approx(1600 + 512, abs=64)


def test_the_clock_survives_a_reset_and_an_update():
    ears = Ears(DETECTED, 16_000, EnergyDetector())
    ears.hear(append(sound(1000, False)))
    ears.reset_detector()
    heard = ears.hear(append(sound(320, True)))
    assert [(change.kind, change.at_ms) for change in heard.changes] == [("started", 1000)], "not before the reset"
    ears.reset_detector()
    assert ears.hear(append(sound(64, True))).speech is False
    ears.reconfigure(PLAIN)
    assert ears.hear(append(sound(200, True))).detected is False
    ears.reconfigure(attrs.evolve(DETECTED, turn_detection=TurnDetection(prefix_padding_ms=0)))
    heard = ears.hear(append(sound(320, True)))
    assert [change.at_ms for change in heard.changes] == [1000 + 320 + 64 + 200]


def test_an_update_that_leaves_the_detector_alone_does_not_disturb_it():
    ears = Ears(DETECTED, 16_000, EnergyDetector())
    ears.hear(append(sound(320, True)))
    ears.reconfigure(attrs.evolve(DETECTED, voice="alto", input_format=AudioFormat(Encoding.PCM16, 24_000)))
    assert ears.hear(append(tone(300, 24_000))).speech
