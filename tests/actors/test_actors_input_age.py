from duplex_engine.actors.input_age import InputAge


def test_a_unit_is_as_old_as_its_wait():
    age = InputAge(notice_after_s=1.0)
    age.waiting(2, now=10.0)
    age.waiting(3, now=10.5)
    assert [age.taken(11.0), age.taken(11.0), age.taken(11.0), age.taken(11.0)] == [1.0, 1.0, 0.5, None]


def test_a_notice_is_due_from_the_limit_on_and_at_most_once_a_second():
    age = InputAge(notice_after_s=1.0)
    assert age.notice(0.0) is None
    age.waiting(1, now=0.0)
    noticed = [(now, age.notice(now)) for now in (0.99, 1.0, 1.5, 1.99, 2.0, 3.5)]
    assert noticed == [(0.99, None), (1.0, 1.0), (1.5, None), (1.99, None), (2.0, 2.0), (3.5, 3.5)]


def test_thrown_away_input_does_not_age():
    age = InputAge(notice_after_s=1.0)
    age.waiting(5, now=0.0)
    age.forget()
    assert age.notice(9.0) is None
    assert age.taken(9.0) is None


def test_refused_sound_is_counted_until_it_is_told():
    age = InputAge(notice_after_s=1.0)
    age.drop(0.5)
    age.drop(0.25)
    assert (age.take_dropped(), age.take_dropped()) == (0.75, 0.0)
