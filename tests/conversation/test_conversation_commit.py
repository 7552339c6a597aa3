"""What commits and `response.create` lead to: every row of wire contract 3.4 and 3.6, alone and in a conversation."""

import attrs
import pytest
from conversation_rig import (
    CASCADE,
    COMMITTED,
    DETECTED,
    MODEL_DECIDES,
    NATIVE,
    PUSH_TO_TALK,
    STARTED,
    TERMINALS,
    Rig,
    error_of,
    feeds,
    only,
    sound,
    types,
)

from duplex_engine.config import SessionLimits
from duplex_engine.conversation.commit import (
    COMMIT_TABLE,
    CREATE_TABLE,
    CommitMoment,
    CommitOutcome,
    CreateMoment,
    CreateOutcome,
    decide_commit,
    decide_create,
)
from duplex_engine.conversation.effects import DropInput, Heard, OfferTurn, Overheard, ResetDetector
from duplex_engine.conversation.facts import FunctionCall, FunctionCalled, ModelListened, ResponseStatus
from duplex_engine.protocol.commands import (
    AcknowledgePlayback,
    CancelInput,
    CancelResponse,
    ClearInput,
    ClearOutputAudio,
    CommitAudio,
    CreateItem,
    CreateResponse,
    ResponseOptions,
)
from duplex_engine.protocol.events import InputCommitted, ResponseListen, SpeechStarted, SpeechStopped
from duplex_engine.protocol.session_config import PlaybackPolicy, Profile

C = CommitOutcome
COMMITS = [
    (0, {"buffered": False, "speech": False}, C.EMPTY),
    (1, {"buffered": False, "speech": False, "denied": True}, C.SILENT),
    (2, {"speech": False}, C.SILENT),
    (3, {"native": True}, C.NATIVE_SPEECH),
    (4, {"native": True, "speech": False}, C.NATIVE_QUIET),
    (5, {"answering": True, "generating": True, "speech_ms": 700}, C.SHORT_ACKNOWLEDGEMENT),
    (6, {"answering": True, "generating": True, "speech_ms": 701}, C.DEFERRED),
    (7, {"asked": True}, C.ANSWERED),
    (8, {}, C.WAITING),
]


@pytest.mark.parametrize(("row", "fields", "outcome"), COMMITS)
def test_every_row_of_the_commit_table(row, fields, outcome):
    moment = CommitMoment(**fields)
    assert next(place for place, entry in enumerate(COMMIT_TABLE) if entry.when(moment)) == row
    assert decide_commit(moment) is outcome


def test_the_commit_rows_are_all_tested():
    assert [row for row, _, _ in COMMITS] == list(range(len(COMMIT_TABLE)))
    assert {outcome for _, _, outcome in COMMITS} == set(CommitOutcome)


R = CreateOutcome
CREATES = [
    (0, {"refused_options": True, "audio": True}, R.UNSUPPORTED_OPTIONS),
    (1, {"answering": True, "audio": True}, R.ALREADY_ACTIVE),
    (2, {"native": True, "native_owed": True}, R.BY_ITSELF),
    (3, {"audio": True}, R.ANSWERED),
    (4, {"texts": True, "text_turns": True}, R.ANSWERED),
    (5, {"texts": True}, R.TEXT_UNSUPPORTED),
    (6, {}, R.NO_INPUT),
]


@pytest.mark.parametrize(("row", "fields", "outcome"), CREATES)
def test_every_row_of_the_create_table(row, fields, outcome):
    moment = CreateMoment(**fields)
    assert next(place for place, entry in enumerate(CREATE_TABLE) if entry.when(moment)) == row
    assert decide_create(moment) is outcome


def test_the_create_rows_are_all_tested():
    assert [row for row, _, _ in CREATES] == list(range(len(CREATE_TABLE)))
    assert {outcome for _, _, outcome in CREATES} == set(CreateOutcome)


# --- commits in a conversation ------------------------------------------------------------------------------------


def test_nothing_buffered():
    rig = Rig()
    assert error_of(rig.obey(CommitAudio(event_id="e1"))).code == "input_audio_buffer_empty"
    rig.appends(400, speech=True)
    rig.obey(CommitAudio())
    error = error_of(rig.obey(CommitAudio(event_id="e2")))
    assert (error.code, error.event_id) == ("input_audio_buffer_empty", "e2")


@pytest.mark.parametrize("buffered", [True, False])
def test_a_silent_commit(buffered):
    rig = Rig()
    if buffered:
        rig.appends(400, speech=False)
    said = rig.obey(CommitAudio(response_create=True, is_speech=None if buffered else False))
    assert types(said) == [*COMMITTED, "response.listen"]
    flags = only(said, InputCommitted).event
    assert (flags["empty"], flags["is_speech"], flags["no_response"]) == (True, False, True)
    assert only(said, ResponseListen).response["metadata"]["reason"] == "silence_or_noise"
    assert rig.machine.history() == ()


def test_each_commit_has_an_item_of_its_own():
    rig = Rig()
    rig.appends(400, speech=True)
    first = only(rig.obey(CommitAudio()), InputCommitted)
    silent = only(rig.obey(CommitAudio(is_speech=False)), InputCommitted)
    rig.appends(400, speech=True)
    last = only(rig.obey(CommitAudio()), InputCommitted)
    assert len({first.item_id, silent.item_id, last.item_id}) == 3
    assert (first.previous_item_id, silent.previous_item_id) == (None, first.item_id)
    assert last.previous_item_id == silent.item_id
    assert (first.event["turn_id"], last.event["turn_id"]) == (0, 1)


def test_a_native_commit_is_followed_by_a_listen_or_an_answer():
    rig = Rig(MODEL_DECIDES, NATIVE)
    rig.appends(400, speech=True)
    assert types(rig.obey(CommitAudio(response_create=True))) == ["speech_stopped", *COMMITTED]
    assert rig.machine.busy
    assert [(len(feed.samples), feed.commit) for feed in feeds(rig.effects)] == [(6400, False), (0, True)]
    assert types(rig.learn(ModelListened())) == ["response.listen"]
    assert not rig.machine.busy


def test_a_native_commit_that_an_answer_took_along_is_decided_after_it():
    rig = Rig(MODEL_DECIDES, NATIVE)
    rig.appends(400, speech=True)
    key = rig.begins()
    rig.obey(CommitAudio())
    rig.effects.clear()
    rig.ends(key)
    assert [(len(feed.samples), feed.commit) for feed in feeds(rig.effects)] == [(0, True)]
    assert rig.machine.busy
    assert types(rig.learn(ModelListened())) == ["response.listen"]
    assert not rig.machine.busy
    rig.effects.clear()
    rig.ends(rig.begins())
    assert feeds(rig.effects) == [], "nothing is owed"


def test_a_native_commit_without_speech_listens_at_once():
    rig = Rig(MODEL_DECIDES, NATIVE)
    rig.appends(400, speech=False)
    said = rig.obey(CommitAudio())
    assert types(said) == [*COMMITTED, "response.listen"]
    assert "empty" not in only(said, InputCommitted).event
    assert [feed.commit for feed in feeds(rig.effects)] == [False], "silence is input as well, and is not padded"


def test_a_short_acknowledgement_is_thrown_away():
    rig = Rig()
    turn = rig.asks()
    started = only(rig.appends(500, speech=True), SpeechStarted)
    said = rig.obey(CommitAudio(response_create=True))
    assert types(said) == ["speech_stopped", *COMMITTED]
    committed = only(said, InputCommitted)
    assert committed.item_id == started.item_id
    assert (committed.event["overlap_ack"], committed.event["empty"], committed.event["no_response"]) == (True,) * 3
    assert types(rig.ends(turn)) == ["response.content_part.done", *TERMINALS[3:]]
    assert rig.alive == []
    assert error_of(rig.obey(CreateResponse())).code == "response_create_without_input"


@pytest.mark.parametrize("asked", [True, False])
def test_a_longer_turn_is_deferred(asked):
    rig = Rig()
    turn = rig.asks()
    rig.appends(800, speech=True)
    said = rig.obey(CommitAudio(response_create=asked))
    assert types(said) == ["speech_stopped", *COMMITTED]
    flags = only(said, InputCommitted).event
    assert (flags["overlap_deferred"], flags["response_create_deferred"]) == (True, asked)
    assert rig.machine.busy
    ended = types(rig.ends(turn))
    assert ended[-len(STARTED) :] == STARTED if asked else ended[-1] == "rate_limits.updated"
    if not asked:
        assert types(rig.obey(CreateResponse())) == STARTED
    assert rig.offered is not turn
    assert rig.offered.utterance.sample_count == 16 * 800


@pytest.mark.parametrize(
    ("stop", "answered"),
    [(CancelResponse(), True), (ClearOutputAudio(), False), (None, False), (CancelInput(), False)],
)
def test_a_deferred_turn_after_an_interruption(stop, answered):
    """D-41: a cancel answers it at once; a clear or a failure leaves it to `response.create`; input.cancel drops it."""
    rig = Rig()
    turn = rig.asks()
    rig.appends(800, speech=True)
    rig.obey(CommitAudio(response_create=True))
    said = rig.ends(turn, ResponseStatus.FAILED, "engine_error") if stop is None else rig.obey(stop)
    assert (types(said)[-5:] == STARTED) is answered
    if not answered:
        kept = not isinstance(stop, CancelInput)
        again = rig.obey(CreateResponse())
        assert types(again) == (STARTED if kept else ["error"])


def test_several_commits_are_merged():
    rig = Rig()
    rig.appends(400, speech=True, transcript="What")
    rig.obey(CommitAudio())
    rig.appends(600, speech=True, transcript="time is it?")
    last = only(rig.obey(CommitAudio()), InputCommitted).item_id
    rig.obey(CreateResponse())
    turn = rig.offered
    assert turn.utterance.sample_count == 16 * 1000
    assert turn.utterance.over
    assert (turn.item_id, turn.transcript) == (last, "What time is it?")
    assert rig.machine.pending_input_bytes == 4 * 16 * 1000
    rig.ends(turn)
    assert rig.machine.pending_input_bytes == 0


def test_hints_are_the_transcript_and_repeat_themselves_once():
    rig = Rig()
    rig.appends(200, speech=True, transcript="Hello")
    rig.appends(200, speech=True, transcript="Hello")
    rig.appends(200, speech=True, transcript="there")
    said = rig.obey(CommitAudio(response_create=True))
    assert types(said)[:6] == [
        "speech_stopped",
        "item.added",
        "item.created",
        "committed",
        "item.input_audio_transcription.completed",
        "item.done",
    ]
    assert rig.offered.transcript == "Hello there"
    assert rig.offered.history == (), "the turn's own words are not history yet"
    assert [message.text for message in rig.machine.history()] == ["Hello there"]


def test_in_ga_committed_comes_first():
    rig = Rig(attrs.evolve(PUSH_TO_TALK, profile=Profile.GA))
    rig.appends(400, speech=True)
    said = types(rig.obey(CommitAudio()))
    assert said == ["speech_stopped", "committed", "item.added", "item.created", "item.done"]


def test_too_many_turns_wait():
    rig = Rig(capabilities=attrs.evolve(CASCADE, overlapping_responses=True), limits=SessionLimits(pending_turns=2))
    rig.asks()
    rig.asks()
    rig.appends(1000, speech=True)
    error = error_of(rig.obey(CommitAudio(response_create=True, event_id="e")))
    assert (error.code, error.event_id) == ("input_backpressure", "e")
    rig.ends(rig.alive[0])
    assert types(rig.obey(CommitAudio(response_create=True)))[-5:] == STARTED


def test_too_much_sound_waits():
    rig = Rig(limits=SessionLimits(input_bytes=4 * 16 * 1000))
    rig.appends(600, speech=True)
    error = error_of(rig.appends(600, speech=True, event_id="e"))
    assert (error.code, error.event_id) == ("input_backpressure", "e")
    assert types(rig.appends(400, speech=True)) == []
    rig.obey(CommitAudio(response_create=True))
    assert error_of(rig.appends(100, speech=True)).code == "input_backpressure"
    rig.ends(rig.offered)
    assert types(rig.appends(600, speech=True)) == ["speech_started"]


def test_whoever_listens_along_hears_a_turn_grow_and_end():
    rig = Rig()
    rig.appends(400, speech=True)
    rig.appends(400, speech=False)
    rig.obey(CommitAudio(response_create=True))
    utterances = [effect.utterance for effect in rig.effects if isinstance(effect, Overheard)]
    assert len(set(map(id, utterances))) == 1
    assert rig.offered.utterance is utterances[0]
    assert (utterances[0].over, utterances[0].dropped, utterances[0].sample_count) == (True, False, 12_800)
    places = [type(effect) for effect in rig.effects]
    assert places.index(OfferTurn) > max(place for place, kind in enumerate(places) if kind is Overheard)


def test_the_sound_the_ears_still_held_belongs_to_the_turn():
    rest = Heard(samples=sound(50, True), speech=False, duration_ms=50)
    rig = Rig()
    rig.appends(400, speech=True)
    said = rig.obey(CommitAudio(response_create=True), rest)
    assert rig.offered.utterance.sample_count == 16 * 450
    assert only(said, SpeechStopped).audio_end_ms == 450
    rig = Rig(MODEL_DECIDES, NATIVE)
    rig.appends(400, speech=True)
    rig.obey(CommitAudio(), rest)
    assert [(len(feed.samples), feed.commit) for feed in feeds(rig.effects)][1:] == [(800, False), (0, True)]


# --- clear --------------------------------------------------------------------------------------------------------


def test_a_clear_forgets_sound_and_says_so():
    rig = Rig()
    rig.appends(400, speech=True)
    rig.obey(CommitAudio())
    rig.appends(400, speech=True)
    assert types(rig.obey(ClearInput())) == ["speech_stopped", "cleared"]
    assert rig.machine.pending_input_bytes == 0
    assert all(effect.utterance.dropped for effect in rig.effects if isinstance(effect, Overheard))
    assert error_of(rig.obey(CreateResponse())).code == "response_create_without_input"
    assert error_of(rig.obey(CommitAudio())).code == "input_audio_buffer_empty"
    assert rig.machine.epoch == 0


def test_a_clear_leaves_the_answer_alone():
    rig = Rig()
    turn = rig.asks()
    rig.appends(400, speech=True)
    assert types(rig.obey(ClearInput())) == ["speech_stopped", "cleared"]
    assert rig.alive == [turn]


def test_a_clear_rests_the_detector_and_empties_the_intake():
    rig = Rig(attrs.evolve(DETECTED, native=True), NATIVE)
    rig.hears(400, ("started", 200), speaking=True, voiced_ms=100)
    rig.effects.clear()
    assert types(rig.obey(ClearInput())) == ["speech_stopped", "cleared"]
    assert {DropInput, ResetDetector} <= {type(effect) for effect in rig.effects}


# --- response.create ----------------------------------------------------------------------------------------------


def test_committed_sound_is_answered_when_asked():
    rig = Rig()
    rig.appends(400, speech=True)
    assert error_of(rig.obey(CreateResponse())).code == "response_create_without_input", "it was not committed"
    rig.obey(CommitAudio())
    assert types(rig.obey(CreateResponse())) == STARTED


def test_texts_alone_are_answered_by_models_that_can():
    rig = Rig()
    rig.writes("Say it shorter.")
    assert types(rig.obey(CreateResponse())) == STARTED
    turn = rig.offered
    assert (turn.utterance, turn.item_id) == (None, None)
    assert [message.text for message in turn.history] == ["Say it shorter."]


def test_texts_alone_are_refused_by_models_that_cannot():
    rig = Rig(capabilities=attrs.evolve(CASCADE, text_only_turns=False))
    rig.writes("Say it shorter.")
    assert error_of(rig.obey(CreateResponse())).code == "text_only_turn_unsupported"
    assert [message.text for message in rig.machine.history()] == ["Say it shorter."]


def test_texts_of_others_are_no_question():
    rig = Rig()
    rig.writes("Be brief.", role="system")
    assert error_of(rig.obey(CreateResponse(event_id="x"))).code == "response_create_without_input"


def test_a_second_answer_waits_for_the_first():
    rig = Rig()
    turn = rig.asks()
    rig.writes("And now?")
    error = error_of(rig.obey(CreateResponse(event_id="b")))
    assert (error.code, error.event_id) == ("response_already_active", "b")
    rig.ends(turn)
    assert types(rig.obey(CreateResponse())) == STARTED


def test_without_acknowledgements_two_answers_follow_each_other():
    """D-02: a client that never acknowledges is never locked out."""
    rig = Rig()
    for _ in range(2):
        rig.appends(200, speech=True)
        rig.obey(CommitAudio())
        assert types(rig.obey(CreateResponse())) == STARTED
        rig.speaks(rig.offered, 1000, "One.")
        rig.ends(rig.offered)


@pytest.mark.parametrize("policy", [PlaybackPolicy.ACK_ONLY, PlaybackPolicy.ADAPTIVE])
def test_acknowledgements_gate_the_next_answer_once_they_are_used(policy):
    rig = Rig(attrs.evolve(PUSH_TO_TALK, playback_policy=policy))
    turn = rig.asks()
    rig.speaks(turn, 1000, "One.")
    rig.obey(AcknowledgePlayback(played_ms=500, committed_ms=500))
    rig.ends(turn)
    rig.writes("And now?")
    assert error_of(rig.obey(CreateResponse())).code == "response_already_active"
    rig.obey(AcknowledgePlayback(played_ms=1000, committed_ms=1000))
    assert types(rig.obey(CreateResponse())) == STARTED


def test_a_last_acknowledgement_that_never_comes_locks_nobody_out():
    rig = Rig()
    turn = rig.asks()
    rig.speaks(turn, 1000, "One.")
    rig.obey(AcknowledgePlayback(played_ms=990, committed_ms=990))
    rig.ends(turn)
    rig.writes("And now?")
    rig.now += 2.9
    assert error_of(rig.obey(CreateResponse())).code == "response_already_active"
    rig.now += 0.2
    assert types(rig.obey(CreateResponse())) == STARTED


def test_after_a_clear_the_next_answer_starts():
    """A finished answer whose playback was stopped blocks nothing."""
    rig = Rig(attrs.evolve(PUSH_TO_TALK, playback_policy=PlaybackPolicy.ACK_ONLY))
    turn = rig.asks()
    rig.speaks(turn, 1000, "0123456789")
    rig.ends(turn)
    rig.obey(AcknowledgePlayback(played_ms=300, committed_ms=300))
    assert types(rig.obey(ClearOutputAudio())) == ["output_audio_buffer.cleared"]
    rig.appends(200, speech=True)
    rig.obey(CommitAudio())
    assert types(rig.obey(CreateResponse())) == STARTED
    rig.obey(AcknowledgePlayback(played_ms=9000, committed_ms=9000, response_id=rig.ids[turn]))
    assert rig.machine.history()[0].text == "012"


def test_a_native_model_answers_by_itself():
    rig = Rig(MODEL_DECIDES, NATIVE)
    assert error_of(rig.obey(CreateResponse())).code == "response_create_without_input"
    rig.appends(400, speech=True)
    rig.obey(CommitAudio())
    assert rig.obey(CreateResponse()) == []
    answer = rig.begins()
    assert error_of(rig.obey(CreateResponse())).code == "response_already_active"
    rig.ends(answer)
    rig.writes("And now?")
    assert error_of(rig.obey(CreateResponse())).code == "text_only_turn_unsupported"


def test_the_output_of_a_function_asks_a_native_model():
    rig = Rig(MODEL_DECIDES, NATIVE)
    rig.learn(FunctionCalled(FunctionCall("look", "{}", "call_1")))
    output = {"id": "o", "type": "function_call_output", "status": "completed", "call_id": "call_1", "output": "42"}
    rig.obey(CreateItem(item=output))
    assert rig.obey(CreateResponse()) == []


def test_options_that_strict_refuses():
    rig = Rig()
    rig.writes("Hi")
    error = error_of(rig.obey(CreateResponse(unsupported=("voice", "tools"), event_id="o")))
    assert (error.code, error.param, error.event_id) == ("unsupported_native_response_options", "response.voice", "o")
    assert types(rig.obey(CreateResponse())) == STARTED


def test_ga_applies_what_the_model_can():
    rig = Rig(attrs.evolve(PUSH_TO_TALK, profile=Profile.GA))
    options = ResponseOptions(instructions="Greet the user.")
    assert types(rig.obey(CreateResponse(options=options, unsupported=("instructions",)))) == STARTED
    assert rig.offered.options.instructions == "Greet the user."


def test_in_ga_a_request_is_enough_to_be_answered():
    """Its applications let the assistant begin, or go on, with nothing said in between."""
    rig = Rig(attrs.evolve(PUSH_TO_TALK, profile=Profile.GA))
    for _ in range(2):
        assert types(rig.obey(CreateResponse())) == STARTED
        assert rig.offered.utterance is None
        rig.ends(rig.offered)


@pytest.mark.parametrize(
    ("config", "capabilities", "code"),
    [
        (MODEL_DECIDES, NATIVE, "response_create_without_input"),
        (PUSH_TO_TALK, attrs.evolve(CASCADE, text_only_turns=False), "response_create_without_input"),
    ],
)
def test_in_ga_models_that_answer_sound_alone_need_it(config, capabilities, code):
    rig = Rig(attrs.evolve(config, profile=Profile.GA), capabilities)
    assert error_of(rig.obey(CreateResponse())).code == code
