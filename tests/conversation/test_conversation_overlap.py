"""Sound of the user while the assistant has the floor: every row of wire contract 6.5, and the guard (6.6)."""

import attrs
import pytest
from conversation_rig import (
    CASCADE,
    COMMITTED,
    DETECTED,
    MODEL_DECIDES,
    NATIVE,
    STARTED,
    TERMINALS,
    Rig,
    error_of,
    feeds,
    only,
    sound,
    types,
)

from duplex_engine.conversation.effects import Heard, InterruptResponses, PurgeOutput, RedoHearing, ResetDetector
from duplex_engine.conversation.facts import TextMark
from duplex_engine.conversation.overlap import TABLE, Action, Overlap, decide, is_short_acknowledgement
from duplex_engine.protocol.capabilities import Interrupt
from duplex_engine.protocol.commands import (
    AcknowledgePlayback,
    AppendAudio,
    BargeIn,
    CommitAudio,
    CreateResponse,
    TruncateItem,
    UpdateSession,
)
from duplex_engine.protocol.events import (
    InputCommitted,
    OutputAudioCleared,
    OverlapDecided,
    ResponseDone,
    SpeechStarted,
)
from duplex_engine.protocol.session_config import PlaybackPolicy, Profile

VAD = {"detected": True, "policy_barge_in": True}
BARGE, LISTEN, DROP = Action.BARGE_IN, Action.LISTEN, Action.DROP

# row, what is known, action, reason, whether the sound is kept
ROWS = [
    ("1", {"action": "barge_in", "barge_in": False}, LISTEN, "barge_in_unsupported", True),
    ("1", {"force_barge_in": True, "barge_in": False, "speech": False}, LISTEN, "barge_in_unsupported", False),
    ("2", {"action": "barge_in"}, BARGE, "client_overlap_action", True),
    ("2", {"action": "interrupt", "speech": False}, BARGE, "client_overlap_action", True),
    ("2", {"action": "cancel", "native": True}, BARGE, "client_overlap_action", True),
    ("3", {"action": "listen", "speech_ms": 701}, LISTEN, "client_overlap_action", True),
    ("3", {"action": "listen", "speech_ms": 700}, LISTEN, "client_overlap_action", False),
    ("3", {"action": "listen", "speech_ms": 900, "speech": False}, LISTEN, "client_overlap_action", False),
    ("3", {"action": "continue", "speech_ms": 900}, LISTEN, "client_overlap_action", False),
    ("3", {"action": "continue_output"}, LISTEN, "client_overlap_action", False),
    ("3", {"action": "ack"}, LISTEN, "client_overlap_action", False),
    ("4", {"action": "drop"}, DROP, "client_overlap_action", False),
    ("4", {"action": "ignore"}, DROP, "client_overlap_action", False),
    ("4", {"action": "silence"}, DROP, "client_overlap_action", False),
    ("5", {"force_barge_in": True}, BARGE, "client_force_barge_in", True),
    ("6", {"native": True, "just_started": True, **VAD}, BARGE, "server_vad_speech_started", True),
    ("6b", {"native": True, "policy_barge_in": True}, BARGE, "barge_in_on_speech", True),
    ("7", {"native": True, **VAD}, LISTEN, "auto_response_continuous", True),
    ("7", {"native": True, "speech": False}, LISTEN, "auto_response_continuous", True),
    ("8", {"force_listen": True}, LISTEN, "client_force_listen", True),
    ("8", {"force_listen": True, "speech": False}, LISTEN, "client_force_listen", False),
    ("9", {"speech": False, "pictures": True}, LISTEN, "vision_follow", True),
    ("10", {"speech": False}, DROP, "silence_or_noise", False),
    ("11", {"transcript": "Okay."}, LISTEN, "short_ack_transcript", False),
    ("12", {"speech_ms": 5000}, LISTEN, "policy_listen_only", True),
    ("13", {"policy_barge_in": True, "barge_in": False}, LISTEN, "barge_in_unsupported", True),
    ("14", {"underway": True, "speech_ms": 900, **VAD}, LISTEN, "server_vad_utterance_active", True),
    ("15", {"speech_ms": 700, **VAD}, BARGE, "server_vad_speech_started", True),
    ("15", {"speech_ms": 96, "short_ack_ms": 0, **VAD}, BARGE, "server_vad_speech_started", True),
    ("15", {"speech_ms": 900, "ended": True, **VAD}, BARGE, "server_vad_speech_started", True),
    ("15a", {"speech_ms": 699, "ended": True, **VAD}, LISTEN, "short_ack", False),
    ("15b", {"speech_ms": 699, **VAD}, LISTEN, "accumulating_overlap_speech", True),
    ("15c", {"policy_barge_in": True}, BARGE, "policy_barge_in_on_speech", True),
]


@pytest.mark.parametrize(("number", "known", "action", "reason", "keep"), ROWS)
def test_every_row(number, known, action, reason, keep):
    overlap = Overlap(**known)
    assert next(row.number for row in TABLE if row.when(overlap)) == number
    decision = decide(overlap)
    assert (decision.action, decision.reason, decision.keep) == (action, reason, keep)
    detector = overlap.detected and not overlap.asks
    assert decision.cancel_reason == (("turn_detected" if detector else "barge_in") if action is BARGE else None)


def test_all_rows_are_tested():
    assert {row[0] for row in ROWS} == {row.number for row in TABLE}


@pytest.mark.parametrize("words", ["yes", "Yeah!", " OK ", "go on...", "好的。", "Please continue"])
def test_words_that_only_say_go_on(words):
    assert is_short_acknowledgement(words)


@pytest.mark.parametrize("words", ["", "okay but why", "no", "stop"])
def test_words_that_say_more(words):
    assert not is_short_acknowledgement(words)


# --- the guard: a turn model whose turns the server detects ---------------------------------------------------------


@pytest.fixture
def rig():
    """The cascade in the middle of an answer of two seconds, 0.5 s after its first sound."""
    rig = Rig(DETECTED)
    rig.hears(1000, ("started", 200), ("stopped", 900), voiced_ms=500)
    rig.hears(1000)
    rig.speaks(rig.offered, 2000, "01234567890123456789", TextMark(20, 2000))
    rig.now = 0.5
    rig.effects.clear()
    return rig


def decisions(events):
    return [(event.action, event.reason) for event in events if isinstance(event, OverlapDecided)]


def test_speech_that_lasts_interrupts(rig):
    answer = rig.machine.active_response_id
    said = rig.hears(200, ("started", 150), speaking=True, voiced_ms=146)
    assert types(said) == ["speech_started", "overlap.decision"]
    assert decisions(said) == [("listen", "accumulating_overlap_speech")]
    assert decisions(rig.hears(400, speaking=True, voiced_ms=546)) == [("listen", "accumulating_overlap_speech")]
    assert rig.machine.epoch == 0
    said = rig.hears(200, speaking=True, voiced_ms=746)
    assert types(said) == ["overlap.decision", *TERMINALS]
    assert (said[0].action, said[0].reason, said[0].epoch) == ("barge_in", "server_vad_speech_started", 0)
    assert said[0].metadata["overlap_speech_ms"] == 746
    assert only(said, ResponseDone).response["status_details"]["reason"] == "turn_detected"
    assert rig.machine.epoch == 1
    assert rig.machine.history()[-1].text == "01234", "0.5 s of it were heard"
    places = [type(effect) for effect in rig.effects]
    assert places.index(PurgeOutput) < places.index(InterruptResponses)
    assert PurgeOutput(answer) in rig.effects
    assert decisions(rig.hears(200, speaking=True, voiced_ms=946)) == []
    said = rig.hears(600, ("stopped", 600), voiced_ms=900)
    assert types(said) == ["speech_stopped", *COMMITTED, *STARTED]
    heard_ms = rig.offered.utterance.sample_count / 16
    assert heard_ms == pytest.approx(146 + 300 + 50 + 400 + 200 + 200 + 600, abs=1), "with 300 ms before the speech"


def test_a_short_sound_leaves_the_answer_alone(rig):
    rig.hears(200, ("started", 150), speaking=True, voiced_ms=146)
    said = rig.hears(600, ("paused", 200), ("stopped", 550), voiced_ms=300)
    assert types(said) == ["overlap.decision", "speech_stopped", *COMMITTED]
    assert decisions(said) == [("listen", "short_ack")]
    committed = only(said, InputCommitted)
    assert committed.item_id == only(rig.events[-20:], SpeechStarted).item_id
    assert (committed.event["overlap_ack"], committed.event["empty"], committed.event["no_response"]) == (True,) * 3
    assert len(rig.alive) == 1
    assert rig.machine.epoch == 0
    assert ResetDetector() in rig.effects
    assert rig.machine.pending_input_bytes == 4 * rig.offered.utterance.sample_count
    assert types(rig.ends(rig.offered)) == TERMINALS
    assert error_of(rig.obey(CreateResponse())).code == "response_create_without_input"


def test_with_no_patience_the_start_interrupts():
    rig = Rig(attrs.evolve(DETECTED, overlap_short_ack_ms=0.0))
    rig.hears(1000, ("started", 200), ("stopped", 900), voiced_ms=500)
    rig.speaks(rig.offered, 400, "Hello")
    said = rig.hears(200, ("started", 150), speaking=True, voiced_ms=96)
    assert types(said) == ["speech_started", "overlap.decision", *TERMINALS]


def test_silence_during_an_answer_is_dropped(rig):
    assert decisions(rig.hears(200)) == [("drop", "silence_or_noise")]


def test_an_interruption_and_the_next_question_in_one_append(rig):
    """What follows the interruption waits until its terminals are said."""
    turn = rig.offered
    said = rig.hears(2000, ("started", 100), ("stopped", 1900), voiced_ms=1300)
    assert types(said) == [
        "speech_started",
        "overlap.decision",
        *TERMINALS,
        "speech_stopped",
        *COMMITTED,
        *STARTED,
    ]
    assert rig.offered is not turn
    assert rig.alive == [rig.offered]


def test_two_questions_in_one_append_interrupt_once(rig):
    edges = ("started", 100), ("stopped", 1900), ("started", 2500), ("stopped", 4000)
    said = rig.hears(4500, *edges, voiced_ms=1300)
    assert decisions(said) == [("barge_in", "server_vad_speech_started"), ("listen", "policy_listen_only")]
    (second,) = rig.alive
    assert types(rig.ends(second))[-len(STARTED) :] == STARTED, "the other one was deferred"


def test_an_answer_that_is_complete_and_still_playing_is_only_cleared(rig):
    answer = rig.ids[rig.offered]
    rig.ends(rig.offered)
    rig.effects.clear()
    said = rig.hears(900, ("started", 100), speaking=True, voiced_ms=800)
    assert types(said) == ["speech_started", "overlap.decision", "output_audio_buffer.cleared"]
    assert only(said, OutputAudioCleared).response_id == answer
    assert not any(isinstance(effect, InterruptResponses) for effect in rig.effects)
    assert PurgeOutput(answer) in rig.effects
    assert rig.machine.epoch == 1
    assert rig.machine.history()[-1].text == "01234"


def test_an_answer_that_was_played_is_no_overlap(rig):
    rig.ends(rig.offered)
    rig.now = 2.1
    assert decisions(rig.hears(900, ("started", 100), speaking=True, voiced_ms=800)) == []
    assert types(rig.hears(600, ("stopped", 550), voiced_ms=800))[-len(STARTED) :] == STARTED


def test_a_short_answer_of_the_user_after_the_end_is_a_turn(rig):
    """The guard is over with the answer, even if the speech began during it."""
    rig.hears(200, ("started", 150), speaking=True, voiced_ms=146)
    rig.ends(rig.offered)
    rig.now = 2.1
    assert types(rig.hears(600, ("stopped", 550), voiced_ms=300))[-len(STARTED) :] == STARTED


def test_an_utterance_that_was_running_before_the_answer_does_not_interrupt():
    rig = Rig(DETECTED)
    rig.hears(400, ("started", 200), speaking=True, voiced_ms=200)
    rig.writes("And by the way?")
    rig.obey(CreateResponse())
    first = rig.offered
    assert decisions(rig.hears(900, speaking=True, voiced_ms=1100)) == [("listen", "server_vad_utterance_active")]
    said = rig.hears(600, ("stopped", 550), voiced_ms=1100)
    assert only(said, InputCommitted).event["overlap_deferred"] is True
    assert rig.alive == [first]


def test_create_response_false_commits_and_waits():
    detection = attrs.evolve(DETECTED.turn_detection, create_response=False)
    rig = Rig(attrs.evolve(DETECTED, turn_detection=detection))
    said = rig.hears(1000, ("started", 200), ("stopped", 900), voiced_ms=500)
    assert types(said) == ["speech_started", "speech_stopped", *COMMITTED]
    assert types(rig.obey(CreateResponse())) == STARTED


def test_interrupt_response_false_defers():
    detection = attrs.evolve(DETECTED.turn_detection, interrupt_response=False)
    rig = Rig(attrs.evolve(DETECTED, turn_detection=detection))
    rig.hears(1000, ("started", 200), ("stopped", 900), voiced_ms=500)
    said = rig.hears(2000, ("started", 100), ("stopped", 1900), voiced_ms=1300)
    assert decisions(said) == [("listen", "policy_listen_only")]
    assert only(said, InputCommitted).event["overlap_deferred"] is True


def test_a_model_that_cannot_be_interrupted_defers():
    rig = Rig(DETECTED, attrs.evolve(CASCADE, barge_in=False))
    rig.hears(1000, ("started", 200), ("stopped", 900), voiced_ms=500)
    said = rig.hears(2000, ("started", 100), ("stopped", 1900), voiced_ms=1300)
    assert decisions(said) == [("listen", "barge_in_unsupported")]
    assert types(rig.ends(rig.alive[0]))[-len(STARTED) :] == STARTED


def test_in_ga_the_decision_is_not_shown(rig):
    quiet = Rig(attrs.evolve(DETECTED, profile=Profile.GA))
    quiet.hears(1000, ("started", 200), ("stopped", 900), voiced_ms=500)
    quiet.speaks(quiet.offered, 400, "Hello")
    said = quiet.hears(900, ("started", 100), speaking=True, voiced_ms=800)
    assert types(said) == ["speech_started", *TERMINALS]


def talked_over(config, capabilities=CASCADE):
    """An answer of one second of sound, and speech over it that is too short yet to interrupt."""
    rig = Rig(config, capabilities)
    rig.hears(1000, ("started", 200), ("stopped", 900), voiced_ms=500)
    rig.speaks(rig.offered, 1000, "Hello")
    assert "speech_started" in types(rig.hears(200, ("started", 100), speaking=True, voiced_ms=100))
    return rig, TruncateItem(item_id=f"item_{rig.ids[rig.offered]}", audio_end_ms=300)


def test_in_ga_a_player_that_was_stopped_is_an_interruption():
    rig, truncate = talked_over(attrs.evolve(DETECTED, profile=Profile.GA))
    said = rig.obey(truncate)
    assert types(said) == ["item.truncated", *TERMINALS]
    assert only(said, ResponseDone).response["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
    said = rig.hears(600, ("stopped", 500), voiced_ms=500)
    assert types(said)[-len(STARTED) :] == STARTED, "no short acknowledgement: the speech has interrupted"


@pytest.mark.parametrize(
    ("changes", "capabilities"),
    [
        ({"profile": Profile.STRICT}, CASCADE),
        ({"turn_detection": attrs.evolve(DETECTED.turn_detection, interrupt_response=False)}, CASCADE),
        ({}, attrs.evolve(CASCADE, barge_in=False)),
    ],
)
def test_elsewhere_and_where_nothing_interrupts_it_is_not(changes, capabilities):
    rig, truncate = talked_over(attrs.evolve(DETECTED, **{"profile": Profile.GA, **changes}), capabilities)
    alive = list(rig.alive)
    assert types(rig.obey(truncate))[0] == "item.truncated"
    assert rig.alive == alive


def test_in_ga_a_truncation_without_speech_lets_the_answer_go_on():
    rig = Rig(attrs.evolve(DETECTED, profile=Profile.GA))
    rig.hears(1000, ("started", 200), ("stopped", 900), voiced_ms=500)
    rig.speaks(rig.offered, 1000, "Hello")
    assert types(rig.obey(TruncateItem(item_id=f"item_{rig.ids[rig.offered]}", audio_end_ms=300))) == ["item.truncated"]


# --- push-to-talk, and native models --------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [{"overlap_action": "barge_in"}, {"force_barge_in": True}])
def test_a_client_barges_in_with_an_append(flags):
    rig = Rig()
    rig.asks()
    said = rig.appends(400, speech=True, **flags)
    assert types(said)[:2] == ["speech_started", "overlap.decision"]
    assert only(said, ResponseDone).response["status_details"]["reason"] == "barge_in"
    assert types(rig.obey(CommitAudio(response_create=True)))[-len(STARTED) :] == STARTED
    assert rig.offered.utterance.sample_count == 16 * 400


def test_a_client_cannot_barge_in_where_the_model_cannot():
    rig = Rig(capabilities=attrs.evolve(CASCADE, barge_in=False))
    rig.asks()
    said = rig.appends(900, speech=True, force_barge_in=True, event_id="b")
    assert types(said) == ["speech_started", "overlap.decision", "error"]
    assert (error_of(said).code, error_of(said).event_id) == ("barge_in_unsupported", "b")
    assert only(rig.obey(CommitAudio()), InputCommitted).event["overlap_deferred"] is True, "the sound was kept"


def test_dropped_speech_starts_and_stops():
    rig = Rig()
    rig.asks()
    said = rig.appends(400, speech=True, overlap_action="drop")
    assert types(said) == ["speech_started", "overlap.decision", "speech_stopped"]


def test_a_native_model_without_vad_hears_everything():
    rig = Rig(MODEL_DECIDES, NATIVE)
    rig.begins()
    assert types(rig.appends(400, speech=True)) == ["speech_started"]
    assert [len(feed.samples) for feed in feeds(rig.effects)] == [6400]


@pytest.mark.parametrize("interrupt", list(Interrupt))
def test_a_native_model_is_interrupted_by_the_detector(interrupt):
    rig = Rig(attrs.evolve(DETECTED, native=True), attrs.evolve(NATIVE, interrupt=interrupt))
    rig.begins()
    said = rig.hears(200, ("started", 100), speaking=True, voiced_ms=96)
    assert types(said)[:2] == ["speech_started", "overlap.decision"]
    (waiting,) = [effect for effect in rig.effects if isinstance(effect, InterruptResponses)]
    assert waiting == InterruptResponses("turn_detected", epoch=interrupt is Interrupt.EPOCH)
    assert decisions(rig.hears(200, speaking=True, voiced_ms=300)) == []
    rig.begins()
    again = rig.hears(200, speaking=True, voiced_ms=500)
    assert decisions(again) == [("listen", "auto_response_continuous")]
    assert all(feed.force_listen for feed in feeds(rig.effects)), "while the user speaks the model is to listen"


def test_a_native_model_that_cannot_be_interrupted_refuses_and_hears():
    rig = Rig(MODEL_DECIDES, attrs.evolve(NATIVE, barge_in=False))
    rig.begins()
    said = rig.appends(400, speech=True, force_barge_in=True, event_id="b")
    assert types(said) == ["speech_started", "error"]
    assert len(feeds(rig.effects)) == 1


def test_speech_of_a_native_turn_starts_and_stops_in_pairs():
    rig = Rig(attrs.evolve(DETECTED, native=True), NATIVE)
    first = rig.hears(600, ("started", 100), ("stopped", 600), voiced_ms=200)
    second = rig.hears(600, ("started", 100), speaking=True, voiced_ms=500)
    assert types(first + second) == ["speech_started", "speech_stopped", "speech_started"]
    committed = rig.obey(CommitAudio())
    assert types(committed) == ["speech_stopped", *COMMITTED]
    assert {event.item_id for event in first + second} == {only(committed, InputCommitted).item_id}


def test_acknowledged_playback_bounds_the_overlap():
    """A client that acknowledged everything is not talking over anything, whatever the clock says."""
    rig = Rig(attrs.evolve(DETECTED, playback_policy=PlaybackPolicy.ACK_ONLY))
    rig.hears(1000, ("started", 200), ("stopped", 900), voiced_ms=500)
    rig.speaks(rig.offered, 2000, "Well")
    rig.ends(rig.offered)
    rig.obey(AcknowledgePlayback(played_ms=2000, committed_ms=2000))
    assert decisions(rig.hears(900, ("started", 100), speaking=True, voiced_ms=800)) == []


# --- the barge_in event ---------------------------------------------------------------------------------------------


def test_barge_in_stops_the_answer():
    rig = Rig()
    turn = rig.asks()
    rig.speaks(turn, 400, "Hello")
    rig.appends(400, speech=True)
    assert types(rig.obey(BargeIn())) == ["speech_stopped", *TERMINALS]
    assert rig.machine.epoch == 1


def test_barge_in_with_nothing_to_stop_raises_the_label():
    rig = Rig()
    assert types(rig.obey(BargeIn())) == ["cleared"]
    assert rig.machine.epoch == 1
    assert not any(isinstance(effect, InterruptResponses) for effect in rig.effects)


def test_barge_in_is_refused_where_the_model_cannot():
    rig = Rig(capabilities=attrs.evolve(CASCADE, barge_in=False))
    turn = rig.asks()
    assert error_of(rig.obey(BargeIn(event_id="b"))).code == "barge_in_unsupported"
    assert rig.alive == [turn]


def test_a_session_whose_detector_failed_goes_on_by_commits():
    rig = Rig(DETECTED)
    rig.hears(200, ("started", 150), speaking=True, voiced_ms=146)
    failed = Heard(samples=sound(200, True), speech=True, duration_ms=200, detector_failed="out of order")
    said = rig.obey(AppendAudio(audio=b"..", event_id="evt_1"), failed)
    error = error_of(said)
    assert (error.code, error.event_id) == ("server_vad_unavailable", "evt_1")
    assert "out of order" in error.message
    config = rig.machine.config
    assert (config.turn_detection, config.overlap_policy) == (None, "listen_only")
    assert RedoHearing(config) in rig.effects
    said = rig.obey(CommitAudio(response_create=True))
    assert types(said) == ["speech_stopped", *COMMITTED, *STARTED]
    assert rig.offered.utterance.sample_count >= 16 * (146 + 200), "the speech is whole"
    rig.obey(UpdateSession(session={"turn_detection": {"type": "server_vad"}}))
    assert rig.machine.config.turn_detection is not None, "the client may try again"
