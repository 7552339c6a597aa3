import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from duplex_engine.audio.intake import UnitIntake


def ramp(count, start=0):
    return np.arange(start, start + count, dtype=np.float32)


def drained(intake):
    units = []
    while (unit := intake.unit()) is not None:
        units.append(unit)
    return units


@given(st.lists(st.integers(0, 40), max_size=30), st.integers(1, 17))
def test_units_do_not_depend_on_how_the_input_was_cut(sizes, unit_samples):
    stream = ramp(sum(sizes))
    intake, in_one = UnitIntake(unit_samples), UnitIntake(unit_samples)
    units = []
    for end, size in zip(np.cumsum(sizes), sizes, strict=True):
        intake.push(stream[end - size : end])
        units += drained(intake)
    in_one.push(stream)
    expected = drained(in_one)
    assert [u.tolist() for u in units] == [u.tolist() for u in expected]
    assert intake.pending_samples == len(stream) % unit_samples


def test_single_samples_and_one_minute_at_once_give_the_same_units():
    minute = np.random.default_rng(0).uniform(-1, 1, 60 * 24_000).astype(np.float32)
    slow, fast = UnitIntake(1920), UnitIntake(1920)
    for i in range(64):
        slow.push(minute[i : i + 1])
    slow.push(minute[64:])
    fast.push(minute)
    slow_units, fast_units = drained(slow), drained(fast)
    assert len(fast_units) == 750
    assert np.array_equal(slow_units, fast_units)


def test_many_tiny_appends_keep_memory_near_the_bytes_counted():
    intake = UnitIntake(1_000_000)
    for i in range(100_000):
        intake.push(ramp(1, i))
    assert intake.pending_bytes == 400_000
    assert intake._buffer.nbytes <= 8_000_000


def test_a_drained_burst_gives_its_memory_back():
    intake = UnitIntake(100)
    intake.push(ramp(1_000_000))
    drained(intake)
    assert intake._buffer.nbytes <= 8 * 100


def test_a_unit_is_the_takers_own():
    intake = UnitIntake(2)
    pushed = ramp(4)
    intake.push(pushed)
    first = intake.unit()
    first[:] = 9
    assert intake.unit().tolist() == [2, 3]
    assert pushed.tolist() == [0, 1, 2, 3]


def test_pad_completes_a_begun_unit_with_zeros_and_starts_none():
    intake = UnitIntake(4)
    intake.pad()
    assert intake.unit() is None
    intake.push(ramp(5, 1))
    intake.pad()
    assert [u.tolist() for u in drained(intake)] == [[1, 2, 3, 4], [5, 0, 0, 0]]
    intake.pad()
    assert intake.unit() is None


# (samples, frame) per append, unit of 10 samples; then the frame each unit is taken with.
@pytest.mark.parametrize(
    ("appends", "shown", "dropped"),
    [
        ([(10, b"a"), (10, b"b")], [b"a", b"b"], 0),
        ([(5, b"a"), (5, b"b")], [b"b"], 1),
        ([(5, b"a"), (5, None)], [b"a"], 0),
        ([(8, None), (8, b"a"), (4, None)], [b"a", None], 0),
        ([(8, b"a"), (8, b"b"), (4, b"c")], [b"b", b"c"], 1),
        ([(0, b"a"), (10, None)], [b"a"], 0),
        ([(0, b"a"), (0, b"b"), (10, b"c"), (10, None)], [b"c", None], 2),
        ([(35, b"a"), (5, b"b")], [None, None, b"a", b"b"], 0),
        ([(10, None), (10, b"a")], [None, b"a"], 0),
    ],
)
def test_a_picture_belongs_to_the_unit_its_append_completes(appends, shown, dropped):
    intake = UnitIntake(10)
    for count, frame in appends:
        intake.push(ramp(count), video_frames=[frame] if frame else [])
    seen = []
    while intake.unit() is not None:
        seen.append(intake.video_frames[0] if intake.video_frames else None)
    assert seen == shown
    assert intake.dropped_frames == dropped
    assert intake.pending_bytes == 4 * intake.pending_samples


@pytest.mark.parametrize(
    ("appends", "expected"),
    [
        ([(10, True), (10, False)], [True, False]),
        ([(5, True), (15, False)], [True, False]),
        ([(5, False), (15, True)], [True, True]),
        ([(10, False), (10, True)], [False, True]),
        ([(10, False), (0, True), (10, False)], [False, False]),
    ],
)
def test_forced_listening_holds_for_every_unit_touched(appends, expected):
    intake = UnitIntake(10)
    for count, force_listen in appends:
        intake.push(ramp(count), force_listen=force_listen)
    flags = []
    while intake.unit() is not None:
        flags.append(intake.force_listen)
    assert flags == expected


def test_clear_forgets_samples_pictures_and_marks():
    intake = UnitIntake(10)
    intake.push(ramp(25), video_frames=[b"jpeg"], force_listen=True)
    intake.clear()
    assert intake.pending_bytes == 0
    intake.push(ramp(10, 100))
    assert intake.unit().tolist() == ramp(10, 100).tolist()
    assert intake.video_frames == ()
    assert not intake.force_listen


def test_a_unit_needs_a_sample():
    with pytest.raises(ValueError, match="not 0"):
        UnitIntake(0)


class IntakeBooks(RuleBasedStateMachine):
    """Bytes pushed are bytes pending plus bytes taken, dropped or cleared; units come out in order."""

    def __init__(self):
        super().__init__()
        self.intake = UnitIntake(7)
        self.samples = []
        self.next_sample = 0
        self.frame_bytes = 0

    @rule(count=st.integers(0, 30), frame=st.sampled_from([b"", b"pic", b"picture"]), force=st.booleans())
    def push(self, count, frame, force):
        dropped = self.intake.dropped_frames
        before = self.intake.pending_bytes - 4 * self.intake.pending_samples
        self.intake.push(ramp(count, self.next_sample), video_frames=[frame] if frame else [], force_listen=force)
        self.samples += range(self.next_sample, self.next_sample + count)
        self.next_sample += count
        after = self.intake.pending_bytes - 4 * self.intake.pending_samples
        if self.intake.dropped_frames == dropped:
            assert after == before + len(frame)

    @rule()
    def take(self):
        unit = self.intake.unit()
        if len(self.samples) < 7:
            assert unit is None
        else:
            assert unit.tolist() == self.samples[:7]
            del self.samples[:7]

    @rule()
    def pad(self):
        self.intake.pad()
        self.samples += [0] * (-len(self.samples) % 7)

    @rule()
    def clear(self):
        self.intake.clear()
        self.samples.clear()

    @invariant()
    def samples_are_counted(self):
        assert self.intake.pending_samples == len(self.samples)


TestIntakeBooks = IntakeBooks.TestCase
