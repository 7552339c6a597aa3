"""The playback ledger, acknowledgements, truncation and what the history holds (wire contract, section 8)."""

import attrs
import pytest
from conversation_rig import (
    GA,
    MODEL_DECIDES,
    NATIVE,
    PUSH_TO_TALK,
    Rig,
    error_of,
    only,
    text_item,
    types,
)
from hypothesis import given
from hypothesis import strategies as st

from duplex_engine.conversation.facts import FunctionCall, FunctionCalled, ResponseStatus, TextMark
from duplex_engine.conversation.playback import Cursor, Ledger, heard_characters
from duplex_engine.protocol.commands import (
    AcknowledgePlayback,
    BargeIn,
    CancelResponse,
    CreateItem,
    DeleteItem,
    RetrieveItem,
    TruncateItem,
)
from duplex_engine.protocol.events import ItemRetrieved, PlaybackAcknowledged, ResponseDone
from duplex_engine.protocol.session_config import PlaybackPolicy

ACK_ONLY, ALL_ON_DONE = PlaybackPolicy.ACK_ONLY, PlaybackPolicy.COMMIT_ALL_ON_DONE
ADAPTIVE = PlaybackPolicy.ADAPTIVE
WORDS = "01234567890123456789"
MARKS = [TextMark(6, 400), TextMark(20, 900)]


# --- milliseconds to characters -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heard_ms", "total_ms", "marks", "complete", "expected"),
    [
        (650, 900, MARKS, True, 13),  # the contract's own example
        (0, 900, MARKS, True, 0),
        (-5, 900, MARKS, True, 0),
        (200, 900, MARKS, True, 3),
        (400, 900, MARKS, True, 6),
        (900, 900, MARKS, True, 20),
        (2000, 900, MARKS, True, 20),
        (1150, 1400, [TextMark(6, 400), TextMark(10, 900)], True, 15),  # after the last mark: to the end
        (900, 900, [TextMark(6, 400), TextMark(10, 900)], True, 20),  # whole: its end is the end of its text
        (900, 900, [TextMark(6, 400), TextMark(10, 900)], False, 10),  # words that ran ahead of their sound
        (450, 900, [], True, 10),
        (449, 900, [], True, 9),
        (5, 0, [], True, 0),
        (650, 900, [MARKS[1], MARKS[0]], True, 13),  # sorted by time
        (300, 900, [TextMark(90, 400)], True, 20),  # never more than there is
    ],
)
def test_how_much_of_the_text_was_heard(heard_ms, total_ms, marks, complete, expected):
    assert heard_characters(heard_ms, 20, total_ms, marks, complete=complete) == expected


@given(
    st.integers(0, 5000),
    st.integers(0, 5000),
    st.integers(0, 100),
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 3000)), max_size=6),
    st.booleans(),
)
def test_more_sound_is_never_less_text(first, second, length, pairs, complete):
    characters = sorted(chars for chars, _ in pairs)
    times = sorted(time for _, time in pairs)
    marks = [TextMark(min(chars, length), time) for chars, time in zip(characters, times, strict=True)]
    low, high = sorted((first, second))
    counts = [heard_characters(ms, length, 3000, marks, complete=complete) for ms in (low, high)]
    assert 0 <= counts[0] <= counts[1] <= length


# --- the ledger -------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(-500, 5000), st.integers(-500, 5000)), max_size=8), st.integers(0, 3000))
def test_acknowledgements_only_grow_and_are_clamped(pairs, sent_ms):
    ledger, cursor = Ledger(ADAPTIVE, lambda: 0.0), Cursor(sent_ms=sent_ms)
    for played, committed in pairs:
        before = (cursor.played_ms, cursor.committed_ms)
        ledger.acknowledge(cursor, played, committed)
        assert before[0] <= cursor.played_ms <= sent_ms
        assert before[1] <= cursor.committed_ms <= sent_ms
    assert ledger.ack_only is bool(pairs)


@pytest.mark.parametrize(
    ("policy", "before", "after"),
    [(ADAPTIVE, ALL_ON_DONE, ACK_ONLY), (ACK_ONLY, ACK_ONLY, ACK_ONLY), (ALL_ON_DONE, ALL_ON_DONE, ALL_ON_DONE)],
)
def test_the_policy_in_force(policy, before, after):
    rig = Rig(attrs.evolve(PUSH_TO_TALK, playback_policy=policy))
    assert rig.machine.public_session()["playback_commit_policy"] == before.value
    turn = rig.asks()
    rig.speaks(turn, 400, "Hi")
    rig.obey(AcknowledgePlayback(played_ms=0, committed_ms=0))
    assert rig.machine.public_session()["playback_commit_policy"] == after.value


# --- what the history holds -------------------------------------------------------------------------------------------


def heard_after(policy, acknowledged, end, *, elapsed_s=0.5):
    """The assistant's words in the history after one answer of a second with ten characters."""
    rig = Rig(attrs.evolve(PUSH_TO_TALK, playback_policy=policy))
    turn = rig.asks()
    rig.speaks(turn, 1000, "0123456789", TextMark(10, 1000))
    rig.now += elapsed_s
    if acknowledged is not None:
        rig.obey(AcknowledgePlayback(played_ms=acknowledged, committed_ms=acknowledged))
    if end == "cancel":
        rig.obey(CancelResponse())
    else:
        rig.ends(turn)
        if end == "interrupted":
            rig.obey(BargeIn())
    rig.now += 5
    return "".join(message.text for message in rig.machine.history())


@pytest.mark.parametrize(
    ("policy", "acknowledged", "end", "expected"),
    [
        (ADAPTIVE, None, "done", "0123456789"),
        (ADAPTIVE, None, "cancel", "01234"),  # estimated: half a second since the first delta
        (ADAPTIVE, None, "interrupted", "01234"),
        (ADAPTIVE, 300, "done", "012"),
        (ADAPTIVE, 300, "cancel", "012"),
        (ADAPTIVE, 300, "interrupted", "012"),
        (ADAPTIVE, 1000, "done", "0123456789"),
        (ADAPTIVE, 0, "done", ""),
        (ADAPTIVE, 0, "cancel", ""),
        (ACK_ONLY, None, "cancel", "01234"),
        (ACK_ONLY, 300, "done", "012"),
        (ACK_ONLY, 300, "cancel", "012"),
        (ALL_ON_DONE, None, "done", "0123456789"),
        (ALL_ON_DONE, 300, "done", "0123456789"),
        (ALL_ON_DONE, 300, "cancel", "012"),
        (ALL_ON_DONE, 300, "interrupted", "012"),
    ],
)
def test_what_the_history_holds(policy, acknowledged, end, expected):
    assert heard_after(policy, acknowledged, end) == expected


def test_the_estimate_stops_at_what_was_sent():
    assert heard_after(ADAPTIVE, None, "cancel", elapsed_s=60) == "0123456789"


def test_an_answer_cut_before_its_first_sound_leaves_no_words():
    rig = Rig()
    rig.asks()
    rig.obey(CancelResponse())
    assert rig.machine.history() == ()


def test_a_later_acknowledgement_raises_the_cut():
    rig = Rig()
    turn = rig.asks()
    rig.speaks(turn, 1000, "0123456789", TextMark(10, 1000))
    response_id = rig.ids[turn]
    rig.obey(AcknowledgePlayback(played_ms=300, committed_ms=300))
    rig.obey(CancelResponse())
    assert rig.machine.history()[0].text == "012"
    rig.obey(AcknowledgePlayback(played_ms=600, committed_ms=600, response_id=response_id))
    assert rig.machine.history()[0].text == "012345"
    rig.obey(AcknowledgePlayback(played_ms=100, committed_ms=100, response_id=response_id))
    assert rig.machine.history()[0].text == "012345"


def test_white_space_at_the_end_was_not_heard():
    rig = Rig()
    turn = rig.asks()
    rig.speaks(turn, 600, "Hello ", TextMark(6, 600))
    rig.now += 0.6
    rig.obey(CancelResponse())
    assert rig.machine.history()[0].text == "Hello"


def test_an_answer_keeps_the_place_of_its_beginning():
    """A first acknowledgement after the next question does not move the answer behind it."""
    rig = Rig(MODEL_DECIDES, NATIVE)
    answer = rig.begins()
    rig.speaks(answer, 400, "Hello")
    rig.ends(answer)
    rig.writes("Hm?")
    rig.obey(AcknowledgePlayback(played_ms=400, committed_ms=400, response_id=rig.ids[answer]))
    assert [message.text for message in rig.machine.history()] == ["Hello", "Hm?"]


# --- playback.ack -----------------------------------------------------------------------------------------------------


def two_answers():
    rig = Rig()
    for _ in range(2):
        turn = rig.asks()
        rig.speaks(turn, 1000, "0123456789", TextMark(10, 1000))
        rig.ends(turn)
        rig.now += 2
    return rig, [rig.ids[turn] for turn in rig.turns]


def test_the_answer_to_an_acknowledgement():
    rig, (first, _) = two_answers()
    event = only(
        rig.obey(AcknowledgePlayback(played_ms=640, committed_ms=9999, response_id=first)), PlaybackAcknowledged
    )
    assert event.event == {
        "type": "playback.acknowledged",
        "session_id": "duplex-0123",
        "epoch": 0,
        "item_id": f"item_{first}",
        "played_ms": 640,
        "committed_ms": 9999,
        "truncate": False,
        "playback": {"generated_ms": 1000, "sent_ms": 1000, "played_ms": 640, "committed_ms": 1000},
        "history_committed": True,
    }


@pytest.mark.parametrize("name", ["response_id", "item_id", "both"])
def test_which_answer_is_meant(name):
    rig, (first, _) = two_answers()
    names = {"response_id": first, "item_id": f"item_{first}"}
    fields = names if name == "both" else {name: names[name]}
    event = only(rig.obey(AcknowledgePlayback(played_ms=10, committed_ms=10, **fields)), PlaybackAcknowledged)
    assert event.event["item_id"] == f"item_{first}"


def test_which_answer_is_meant_without_a_name():
    rig, (_, last) = two_answers()

    def meant():
        event = only(rig.obey(AcknowledgePlayback(played_ms=1000, committed_ms=1000)), PlaybackAcknowledged)
        return event.event["item_id"].removeprefix("item_")

    assert meant() == last, "the last one"
    turn = rig.asks()
    assert meant() == rig.ids[turn], "the one being given"
    rig.speaks(turn, 500)
    rig.ends(turn)
    assert meant() == rig.ids[turn], "the one still playing"


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"response_id": "resp1", "item_id": "item_resp2"}, "playback_item_mismatch", "item_id"),
        ({"response_id": "resp9"}, "playback_item_not_found", "response_id"),
        ({"item_id": "item_resp9"}, "playback_item_not_found", "item_id"),
        ({"item_id": "item1"}, "playback_item_not_found", "item_id"),
    ],
)
def test_acknowledgements_of_nothing_known(fields, code, param):
    rig, _ = two_answers()
    error = error_of(rig.obey(AcknowledgePlayback(played_ms=1, committed_ms=1, event_id="p", **fields)))
    assert (error.code, error.param, error.event_id) == (code, param, "p")
    assert rig.machine.public_session()["playback_commit_policy"] == "commit_all_on_done"


def test_a_deleted_answer_and_a_call_cannot_be_acknowledged():
    rig, (first, _) = two_answers()
    rig.obey(DeleteItem(item_id=f"item_{first}"))
    rig.learn(FunctionCalled(FunctionCall("look", "{}", "call_1")))
    for response_id in (first, "resp3"):
        error = error_of(rig.obey(AcknowledgePlayback(played_ms=1, committed_ms=1, response_id=response_id)))
        assert error.code == "playback_item_not_found"
    assert error_of(Rig().obey(AcknowledgePlayback(played_ms=1, committed_ms=1))).code == "playback_item_not_found"


def test_a_finished_answer_without_words_can_be_acknowledged():
    rig = Rig()
    turn = rig.asks()
    rig.speaks(turn, 400)
    rig.ends(turn)
    event = only(rig.obey(AcknowledgePlayback(played_ms=400, committed_ms=400)), PlaybackAcknowledged).event
    assert event["history_committed"] is False


def test_a_duplicate_after_the_end_changes_nothing():
    rig, (_, last) = two_answers()
    for _ in range(2):
        rig.obey(AcknowledgePlayback(played_ms=1000, committed_ms=1000, response_id=last))
        rig.obey(AcknowledgePlayback(played_ms=5, committed_ms=5, response_id=last))
    assert rig.machine.history()[-1].text == "0123456789"


def test_an_acknowledgement_that_truncates_is_final():
    rig, (_, last) = two_answers()
    rig.obey(AcknowledgePlayback(played_ms=500, committed_ms=500, response_id=last, truncate=True))
    rig.obey(AcknowledgePlayback(played_ms=1000, committed_ms=1000, response_id=last))
    assert rig.machine.history()[-1].text == "01234"


# --- conversation.item.truncate -----------------------------------------------------------------------------------------


def test_truncation_is_final():
    rig, (_, last) = two_answers()
    said = rig.obey(TruncateItem(item_id=f"item_{last}", audio_end_ms=300))
    assert types(said) == ["item.truncated", "playback.acknowledged"]
    assert (said[0].audio_end_ms, said[1].event["truncate"]) == (300, True)
    rig.obey(TruncateItem(item_id=f"item_{last}", audio_end_ms=700))
    rig.obey(AcknowledgePlayback(played_ms=1000, committed_ms=1000, response_id=last))
    assert rig.machine.history()[-1].text == "012"
    shown = only(rig.obey(RetrieveItem(item_id=f"item_{last}")), ItemRetrieved).item
    assert shown["content"][0]["transcript"] == "012"


def test_truncation_does_not_stop_the_answer():
    rig = Rig()
    turn = rig.asks()
    rig.speaks(turn, 1000, "0123456789", TextMark(10, 1000))
    rig.obey(TruncateItem(item_id=f"item_{rig.ids[turn]}", audio_end_ms=200))
    rig.speaks(turn, 1000, "0123456789", TextMark(20, 2000))
    assert only(rig.ends(turn), ResponseDone).response["status"] == "completed"
    assert rig.machine.history()[-1].text == "01"


def test_truncation_before_the_first_sound():
    """A client that cuts in between content_part.added and the first delta truncates at nothing."""
    rig = Rig()
    turn = rig.asks()
    said = rig.obey(TruncateItem(item_id=f"item_{rig.ids[turn]}", audio_end_ms=0))
    assert types(said) == ["item.truncated", "playback.acknowledged"]
    done = only(rig.obey(CancelResponse()), ResponseDone).response
    assert done["status"] == "cancelled"
    assert rig.machine.history() == ()


def test_in_ga_only_acknowledgements_are_acknowledged():
    rig = Rig(GA)
    turn = rig.asks()
    rig.speaks(turn, 1000, "0123456789", TextMark(10, 1000))
    assert types(rig.obey(TruncateItem(item_id=f"item_{rig.ids[turn]}", audio_end_ms=200))) == ["item.truncated"]
    assert types(rig.obey(AcknowledgePlayback(played_ms=1, committed_ms=1))) == ["playback.acknowledged"]


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({}, "missing_item_id", "item_id"),
        ({"item_id": "item_nobody"}, "item_not_found", "item_id"),
        ({"item_id": "item1"}, "bad_event", "item_id"),
        ({"item_id": "item_text"}, "bad_event", "item_id"),
        ({"item_id": "item_resp1", "audio_end_ms": -1}, "bad_event", "audio_end_ms"),
        ({"item_id": "item_resp1", "audio_end_ms": 1002}, "bad_event", "audio_end_ms"),
        ({"item_id": "item_resp1", "content_index": 1}, "bad_event", "content_index"),
    ],
)
def test_truncations_that_are_refused(fields, code, param):
    rig, _ = two_answers()
    rig.obey(CreateItem(item=text_item("Hi")))
    before = rig.machine.history()
    error = error_of(rig.obey(TruncateItem(event_id="t", **fields)))
    assert (error.code, error.param, error.event_id) == (code, param, "t")
    assert rig.machine.history() == before


def test_in_ga_a_truncation_beyond_the_sound_is_one_at_its_end():
    """Its clients estimate by their own clock how far they have played."""
    rig = Rig(GA)
    turn = rig.asks()
    rig.speaks(turn, 500, "0123456789", TextMark(10, 500))
    rig.ends(turn)
    said = rig.obey(TruncateItem(item_id=f"item_{rig.ids[turn]}", audio_end_ms=900))
    assert [(event.TYPE, event.audio_end_ms) for event in said] == [("conversation.item.truncated", 500)]
    assert only(rig.obey(RetrieveItem(item_id=f"item_{rig.ids[turn]}")), ItemRetrieved).item["content"] == [
        {"type": "output_audio", "transcript": "0123456789"}
    ]


def test_in_ga_an_answer_without_sound_yet_was_not_heard():
    rig = Rig(GA)
    turn = rig.asks()
    said = rig.obey(TruncateItem(item_id=f"item_{rig.ids[turn]}", audio_end_ms=40))
    assert [(event.TYPE, event.audio_end_ms) for event in said] == [("conversation.item.truncated", 0)]
    rig.speaks(turn, 500, "0123456789", TextMark(10, 500))
    rig.ends(turn)
    assert rig.machine.history() == ()


def test_written_answers_cannot_be_truncated():
    rig = Rig(attrs.evolve(GA, modalities=("text",)))
    turn = rig.asks()
    rig.speaks(turn, 0, "Hi")
    assert error_of(rig.obey(TruncateItem(item_id=f"item_{rig.ids[turn]}"))).code == "bad_event"


def test_a_failed_answer_counts_as_heard_as_far_as_its_sound_went():
    rig = Rig()
    turn = rig.asks()
    rig.speaks(turn, 1000, "0123456789", TextMark(10, 1000))
    rig.ends(turn, ResponseStatus.FAILED, "engine_error")
    rig.now += 3
    assert rig.machine.history()[-1].text == "0123456789"
