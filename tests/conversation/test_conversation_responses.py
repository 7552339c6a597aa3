"""Answers on the wire: start, body and terminals in both profiles (wire contract 4.3 to 4.7, 12.4)."""

import attrs
import pytest
from conversation_rig import (
    CASCADE,
    CLOSED,
    GA,
    MODEL_DECIDES,
    NATIVE,
    OUT_HZ,
    PAIR,
    PUSH_TO_TALK,
    STARTED,
    TERMINALS,
    Rig,
    error_of,
    only,
    text_item,
    types,
)

from duplex_engine.conversation.effects import Emit, InterruptResponses, PurgeOutput
from duplex_engine.conversation.facts import (
    FunctionCall,
    FunctionCalled,
    InputRefused,
    ModelListened,
    ResponseAudio,
    ResponseOpened,
    ResponseStatus,
    ResponseText,
    TextMark,
    Usage,
    UserHeard,
)
from duplex_engine.protocol.commands import (
    BargeIn,
    CancelResponse,
    ClearOutputAudio,
    CommitAudio,
    CreateItem,
    CreateResponse,
    ResponseOptions,
)
from duplex_engine.protocol.events import (
    UNSET,
    FunctionArgumentsDone,
    ItemAdded,
    ItemDone,
    OutputAudioCleared,
    OutputAudioDelta,
    OutputItemAdded,
    OutputTextDelta,
    OutputTextDone,
    ResponseCreated,
    ResponseDone,
    ResponseListen,
    TranscriptDelta,
    TranscriptDone,
    TranscriptionCompleted,
    TranscriptionDelta,
)
from duplex_engine.protocol.formats import Encoding
from duplex_engine.protocol.session_config import SessionConfig
from duplex_engine.protocol.sizes import TRANSCRIPT_CHARACTERS

COMPLETED, CANCELLED = ResponseStatus.COMPLETED, ResponseStatus.CANCELLED
FAILED, INCOMPLETE = ResponseStatus.FAILED, ResponseStatus.INCOMPLETE


def done_of(events):
    return only(events, ResponseDone).response


# --- start and body -----------------------------------------------------------------------------------------------


def test_an_answer_is_announced_before_it_is_offered():
    rig = Rig(attrs.evolve(PUSH_TO_TALK, metadata={"room": 7}))
    rig.writes("Hi")
    said = rig.obey(CreateResponse(options=ResponseOptions(metadata={"mine": "yes"})))
    assert types(said) == STARTED
    created = only(said, ResponseCreated)
    assert created.response == {
        "id": created.response_id,
        "object": "realtime.response",
        "status": "in_progress",
        "status_details": None,
        "output": [],
        "modalities": ["text", "audio"],
        "metadata": {"room": 7, "mine": "yes", "epoch": 0},
    }
    item = only(said, ItemAdded)
    assert item.previous_item_id == "item_text"
    assert item.item == {
        "id": f"item_{created.response_id}",
        "object": "realtime.item",
        "type": "message",
        "role": "assistant",
        "status": "in_progress",
        "content": [],
    }
    assert only(said, OutputItemAdded).item == item.item


def test_items_are_snapshots():
    rig = Rig()
    turn = rig.asks()
    before = only(rig.events[-5:], OutputItemAdded).item
    rig.speaks(turn, 400, "Hello")
    rig.ends(turn)
    assert before["content"] == []
    assert before["status"] == "in_progress"


def test_audio_and_words_go_in_pairs_of_at_most_half_a_second():
    rig = Rig()
    turn = rig.asks()
    said = rig.speaks(turn, 1100, "Hello there", TextMark(11, 1100))
    assert types(said) == ["response.speak", *PAIR * 3]
    audio = [event for event in said if isinstance(event, OutputAudioDelta)]
    words = [event.delta for event in said if isinstance(event, TranscriptDelta)]
    assert [len(event.audio) for event in audio] == [24_000, 24_000, 4_800]
    assert [event.metadata["audio_duration_ms"] for event in audio] == [500, 1000, 1100]
    assert [event.metadata["audio_text_marks"] for event in audio] == [
        [],
        [],
        [{"text_chars": 11, "audio_end_ms": 1100}],
    ]
    assert audio[1].metadata["playback"] == {"generated_ms": 1000, "sent_ms": 1000, "played_ms": 0, "committed_ms": 0}
    assert words == ["Hello there", "", ""]
    assert {(event.format, event.sample_rate_hz) for event in audio} == {("pcm16", OUT_HZ)}
    assert types(rig.speaks(turn, 80)) == PAIR, "speak is said once"


def test_words_alone_are_a_delta_alone():
    rig = Rig()
    turn = rig.asks()
    said = rig.learn(ResponseText(turn, "Well, "))
    assert types(said) == ["response.output_audio_transcript.delta"], "speak waits for the first sound of a turn"
    assert said[0].metadata == {"session_id": "duplex-0123", "epoch": 0, "model_speak": True}
    assert rig.learn(ResponseText(turn, "")) == []
    assert types(rig.speaks(turn, 80, "hello")) == ["response.speak", *PAIR]
    assert only(rig.ends(turn), TranscriptDone).transcript == "Well, hello"


def test_a_native_answer_speaks_at_its_first_output():
    rig = Rig(MODEL_DECIDES, NATIVE)
    answer = rig.begins()
    assert types(rig.learn(ResponseText(answer, "Well"))) == [
        "response.speak",
        "response.output_audio_transcript.delta",
    ]
    assert types(rig.speaks(answer, 80)) == PAIR


@pytest.mark.parametrize(
    ("encoding", "rate_hz", "width", "header"),
    [
        (Encoding.PCM16, 16_000, 2, 0),
        (Encoding.WAV, 24_000, 2, 44),
        (Encoding.ULAW, 8_000, 1, 0),
        (Encoding.ALAW, 8_000, 1, 0),
    ],
)
def test_encoded_audio_is_whole_and_its_length_is_true(encoding, rate_hz, width, header):
    """The tail of the encoder comes out before the end; lengths are those of what was sent."""
    config = attrs.evolve(PUSH_TO_TALK, output_encoding=encoding, output_rate_hz=rate_hz)
    rig = Rig(config)
    turn = rig.asks()
    said = [event for _ in range(25) for event in rig.speaks(turn, 40, "word ")]
    said += rig.ends(turn)
    audio = [event for event in said if isinstance(event, OutputAudioDelta)]
    words = [event.delta for event in said if isinstance(event, TranscriptDelta)]
    samples = sum(len(event.audio) - header for event in audio) / width
    assert abs(samples * 1000 / rate_hz - 1000) <= 1
    assert audio[-1].metadata["audio_duration_ms"] == pytest.approx(1000, abs=1)
    assert "".join(words) == "word " * 25
    assert len(words) == len(audio), "each in a pair"
    assert {(event.format, event.sample_rate_hz) for event in audio} == {(encoding.value, rate_hz)}
    assert types(said)[-len(TERMINALS) :] == TERMINALS
    assert done_of(said)["output"][0]["content"][0]["audio_duration_ms"] == audio[-1].metadata["audio_duration_ms"]


def test_g711_without_a_declared_rate_is_a_telephone():
    rig = Rig()
    rig.writes("Hi")
    rig.obey(CreateResponse(options=ResponseOptions(output_encoding=Encoding.ULAW)))
    rig.speaks(rig.offered, 400)
    assert only(rig.ends(rig.offered) + rig.events[:-12], OutputAudioDelta).sample_rate_hz == 8_000


def test_words_whose_sound_is_still_inside_the_encoder_are_not_lost():
    rig = Rig(attrs.evolve(PUSH_TO_TALK, output_rate_hz=16_000))
    turn = rig.asks()
    assert types(rig.learn(ResponseAudio(turn, bytes(20), "Hi"))) == []
    said = rig.ends(turn)
    assert types(said) == ["response.speak", *PAIR, *TERMINALS]
    assert only(said, TranscriptDelta).delta == "Hi"


# --- ends -----------------------------------------------------------------------------------------------------------


def test_a_normal_end():
    rig = Rig()
    turn = rig.asks()
    rig.speaks(turn, 400, "Hello", TextMark(5, 400))
    usage = Usage(input_text=3, input_audio=40, input_cached=2, output_text=5, output_audio=10)
    said = rig.ends(turn, reason="length", usage=usage)
    assert types(said) == TERMINALS
    response = done_of(said)
    assert (response["status"], response["status_details"]) == ("completed", {"type": "completed", "reason": "length"})
    content = {"type": "output_audio", "transcript": "Hello", "audio_duration_ms": 400}
    marks = [{"text_chars": 5, "audio_end_ms": 400}]
    assert response["output"][0]["content"] == [{**content, "audio_text_marks": marks}]
    assert response["output"][0]["status"] == "completed"
    assert response["usage"] == {
        "total_tokens": 58,
        "input_tokens": 43,
        "output_tokens": 15,
        "input_token_details": {"text_tokens": 3, "audio_tokens": 40, "cached_tokens": 2},
        "output_token_details": {"text_tokens": 5, "audio_tokens": 10},
    }
    assert only(said, ItemDone).previous_item_id == turn.item_id


def test_an_end_by_listening():
    rig = Rig(MODEL_DECIDES, NATIVE)
    answer = rig.begins()
    rig.speaks(answer, 400, "Hello")
    said = rig.ends(answer, yielded=True)
    assert types(said) == ["response.listen", *TERMINALS]
    listen = only(said, ResponseListen)
    assert listen.response_id == listen.response["id"] == rig.ids[answer]
    assert listen.response["metadata"]["model_listen"] is True
    assert (done_of(said)["status"], done_of(said)["status_details"]) == ("completed", None)


def test_an_end_by_the_bound_on_silence():
    rig = Rig(MODEL_DECIDES, NATIVE)
    answer = rig.begins()
    rig.speaks(answer, 400, "Hello")
    said = rig.ends(answer, INCOMPLETE, "continuation_limit")
    assert types(said) == ["response.listen", *TERMINALS]
    metadata = only(said, ResponseListen).response["metadata"]
    assert (metadata["reason"], metadata["model_listen"]) == ("continuation_limit", False)
    assert done_of(said)["status_details"] == {"type": "incomplete", "reason": "continuation_limit"}


def test_a_failure():
    rig = Rig()
    turn = rig.asks()
    rig.speaks(turn, 400, "Hel")
    said = rig.ends(turn, FAILED, "engine_error", message="worker 'tts' was lost: crashed")
    assert types(said) == ["error", *TERMINALS]
    assert (error_of(said).code, error_of(said).message) == ("engine_error", "worker 'tts' was lost: crashed")
    assert done_of(said)["status_details"] == {"type": "failed", "reason": "engine_error"}
    assert only(said, ItemDone).item["status"] == "failed"
    assert types(rig.obey(CommitAudio(event_id="x"))) == ["error"]
    rig.writes("Once more?")
    assert types(rig.obey(CreateResponse())) == STARTED


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ((), ["response.content_part.done", *CLOSED]),
        ((ResponseText(None, "Hi"),), TERMINALS),
        ((ResponseAudio(None, bytes(960)),), [TERMINALS[0], *TERMINALS[2:]]),
    ],
)
def test_terminals_that_have_nothing_to_end_are_left_out(facts, expected):
    rig = Rig()
    turn = rig.asks()
    for fact in facts:
        rig.learn(attrs.evolve(fact, key=turn))
    assert types(rig.ends(turn)) == expected


def test_a_text_only_answer_in_strict():
    rig = Rig(attrs.evolve(PUSH_TO_TALK, modalities=("text",)))
    turn = rig.asks()
    assert types(rig.events[-4:]) == STARTED[:-1]
    assert types(rig.learn(ResponseText(turn, "Hi"))) == ["response.output_audio_transcript.delta"]
    assert types(rig.ends(turn)) == [*TERMINALS[:2], *CLOSED]
    assert rig.machine.history()[-1].text == "Hi"


def test_audio_of_a_text_only_answer_gets_its_part_when_it_comes():
    rig = Rig(attrs.evolve(PUSH_TO_TALK, modalities=("text",)))
    turn = rig.asks()
    assert types(rig.speaks(turn, 80, "Hi")) == ["response.content_part.added", "response.speak", *PAIR]


# --- stopping ---------------------------------------------------------------------------------------------------------


def test_a_cancel_ends_the_answer_under_the_next_label():
    rig = Rig()
    turn = rig.asks()
    rig.speaks(turn, 1000, "0123456789", TextMark(10, 1000))
    rig.now += 0.35
    rig.appends(200, speech=True)
    said = rig.obey(CancelResponse(response_id=rig.ids[turn]))
    assert types(said) == TERMINALS
    assert only(said, TranscriptDone).transcript == "0123456789", "only the item is cut"
    response = done_of(said)
    assert response["output"][0]["content"][0]["transcript"] == "012"
    assert response["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}
    assert (response["metadata"]["cancelled_epoch"], response["metadata"]["epoch"]) == (0, 1)
    assert rig.machine.epoch == 1
    assert types(rig.obey(CommitAudio())) == [
        "speech_stopped",
        *["item.added", "item.created", "committed", "item.done"],
    ]


def test_a_cancel_right_after_the_request_leaves_silence():
    rig = Rig()
    turn = rig.asks()
    said = rig.obey(CancelResponse())
    assert types(said) == ["response.content_part.done", *CLOSED]
    assert rig.learn(ResponseOpened(turn)) == []
    assert rig.speaks(turn, 400, "too late") == []
    assert [message.role for message in rig.machine.history()] == []
    rig.appends(400, speech=True)
    assert types(rig.obey(CommitAudio(response_create=True)))[-5:] == STARTED


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_a_cancel_with_nothing_active_is_refused_and_harmless(ended, named):
    rig = Rig()
    response_id = "resp-unknown"
    if ended:
        turn = rig.asks()
        response_id = rig.ids[turn]
        rig.ends(turn)
    for _ in range(2):
        error = error_of(rig.obey(CancelResponse(response_id=response_id if named else None, event_id="x")))
        assert (error.code, error.event_id) == ("response_not_active", "x")
        assert error.param == ("response_id" if named else UNSET)
    assert rig.machine.epoch == 0


def test_a_cancel_of_another_answer_is_refused():
    rig = Rig()
    turn = rig.asks()
    assert error_of(rig.obey(CancelResponse(response_id="resp-other"))).code == "response_not_active"
    assert rig.alive == [turn]


def test_a_model_that_says_completed_while_it_is_cut_was_cancelled():
    rig = Rig()
    turn = rig.asks()
    rig.speaks(turn, 400, "Hello")
    effects = rig.machine.obey(CancelResponse())
    assert effects == [PurgeOutput(rig.ids[turn]), InterruptResponses("client_cancelled")]
    assert rig.speaks(turn, 400, "more") == []
    assert done_of(rig.ends(turn, COMPLETED))["status"] == "cancelled"


def test_an_answer_the_session_gives_up_is_cancelled_under_a_new_label():
    rig = Rig()
    turn = rig.asks()
    said = rig.ends(turn, CANCELLED, "session_closed")
    assert done_of(said)["status_details"]["reason"] == "session_closed"
    assert rig.machine.epoch == 1


def test_clearing_the_output_stops_the_answer():
    rig = Rig()
    turn = rig.asks()
    rig.speaks(turn, 1000, "0123456789", TextMark(10, 1000))
    said = rig.obey(ClearOutputAudio())
    assert types(said) == ["output_audio_buffer.cleared", *TERMINALS]
    assert said[0].response_id == rig.ids[turn]
    assert done_of(said)["status_details"]["reason"] == "output_audio_buffer_clear"
    assert rig.machine.epoch == 1


def test_clearing_the_output_of_a_finished_answer_stops_its_playback():
    rig = Rig()
    turn = rig.asks()
    rig.speaks(turn, 1000, "0123456789", TextMark(10, 1000))
    rig.ends(turn)
    rig.now += 0.25
    assert types(rig.obey(ClearOutputAudio(response_id=rig.ids[turn]))) == ["output_audio_buffer.cleared"]
    assert rig.machine.epoch == 1
    assert rig.machine.history()[-1].text == "01"
    assert types(rig.obey(ClearOutputAudio())) == ["output_audio_buffer.cleared"]
    assert rig.machine.epoch == 1, "nothing was playing any more"


@pytest.mark.parametrize(("config", "nobody"), [(PUSH_TO_TALK, None), (GA, UNSET)])
def test_clearing_the_output_where_nothing_was_ever_said(config: SessionConfig, nobody: object):
    rig = Rig(config)
    assert only(rig.obey(ClearOutputAudio()), OutputAudioCleared).response_id is nobody
    assert only(rig.obey(ClearOutputAudio(response_id="resp_x")), OutputAudioCleared).response_id == "resp_x"


def test_clearing_the_output_of_an_older_answer_leaves_the_new_one_alone():
    rig = Rig()
    old = rig.asks()
    rig.speaks(old, 1000, "Old")
    rig.ends(old)
    rig.now += 5
    rig.asks()
    assert types(rig.obey(ClearOutputAudio(response_id=rig.ids[old]))) == ["output_audio_buffer.cleared"]
    assert len(rig.alive) == 1
    assert rig.machine.epoch == 0


def test_clearing_the_output_of_a_silent_session():
    rig = Rig()
    assert [event.response_id for event in rig.obey(ClearOutputAudio())] == [None]


# --- listening ----------------------------------------------------------------------------------------------------


def test_standalone_listens_are_rare():
    """D-21: on a change of reason, after a commit, after an answer, and at most once a second else."""
    rig = Rig(MODEL_DECIDES, NATIVE)
    assert len(rig.learn(ModelListened())) == 1
    assert rig.learn(ModelListened()) == []
    rig.now += 0.5
    assert rig.learn(ModelListened()) == []
    assert len(rig.learn(ModelListened("buffering"))) == 1
    assert len(rig.learn(ModelListened())) == 1
    rig.now += 1.5
    assert len(rig.learn(ModelListened())) == 1
    rig.appends(400, speech=True)
    rig.obey(CommitAudio())
    assert len(rig.learn(ModelListened())) == 1
    rig.ends(rig.begins())
    (listen,) = rig.learn(ModelListened())
    assert listen.response_id is UNSET


def test_a_buffering_listen_says_so():
    rig = Rig(MODEL_DECIDES, NATIVE)
    (listen,) = rig.learn(ModelListened("buffering"))
    assert listen.response["metadata"]["buffering"] is True
    assert listen.response["metadata"]["model_listen"] is False


# --- recognition, calls, refusals -----------------------------------------------------------------------------------


def test_recognised_words_reach_the_item_and_the_history():
    rig = Rig()
    turn = rig.asks()
    assert rig.learn(UserHeard("what", turn, final=False)) == []
    said = rig.learn(UserHeard("What time is it?", turn))
    assert only(said, TranscriptionCompleted).transcript == "What time is it?"
    assert [(message.role, message.text) for message in rig.machine.history()] == [("user", "What time is it?")]
    assert rig.learn(UserHeard("Something else", turn)) == [], "a transcript is closed once"


def test_recognised_words_without_a_turn_belong_to_the_newest():
    rig = Rig(MODEL_DECIDES, NATIVE)
    rig.appends(400, speech=True)
    assert rig.learn(UserHeard("Hello")) == []
    assert only(rig.obey(CommitAudio()), TranscriptionCompleted).transcript == "Hello"
    rig.appends(400, speech=False)
    assert rig.learn(UserHeard("Again")) == []
    assert Rig().learn(UserHeard("Nobody spoke")) == []


def test_of_very_many_recognised_words_the_rest_is_left_out():
    rig = Rig(GA)
    turn = rig.asks()
    words = "word " * TRANSCRIPT_CHARACTERS
    for _ in range(3):
        rig.learn(UserHeard(words, turn, final=False))
    (completed,) = [event for event in rig.learn(UserHeard(words, turn)) if isinstance(event, TranscriptionCompleted)]
    assert completed.transcript == words[:TRANSCRIPT_CHARACTERS]


def test_in_ga_transcription_has_deltas_and_usage():
    rig = Rig(GA)
    turn = rig.asks(1500)
    assert only(rig.learn(UserHeard("What ", turn, final=False)), TranscriptionDelta).delta == "What "
    said = rig.learn(UserHeard("What now?", turn))
    assert only(said, TranscriptionDelta).delta == "now?"
    assert only(said, TranscriptionCompleted).usage == {"type": "duration", "seconds": 1.5}


@pytest.mark.parametrize(
    ("deltas", "final", "rest"),
    [([], "What now?", ["What now?"]), (["What now?"], "What now?", []), (["That"], "What", [])],
)
def test_in_ga_the_deltas_of_a_transcript_are_all_of_it_unless_they_were_wrong(deltas, final, rest):
    rig = Rig(GA)
    turn = rig.asks(1500)
    for delta in deltas:
        rig.learn(UserHeard(delta, turn, final=False))
    said = rig.learn(UserHeard(final, turn))
    assert [event.delta for event in said if isinstance(event, TranscriptionDelta)] == rest
    assert only(said, TranscriptionCompleted).transcript == final


def test_a_function_call_is_a_response_of_its_own():
    rig = Rig()
    turn = rig.asks()
    said = rig.learn(FunctionCalled(FunctionCall("lookup", '{"city":"Oslo"}', "call_1")))
    assert types(said) == [
        "response.created",
        "item.added",
        "item.created",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        *CLOSED,
    ]
    assert only(said, ItemAdded).item["status"] == "in_progress"
    done = only(said, FunctionArgumentsDone)
    assert (done.name, done.call_id, done.arguments) == ("lookup", "call_1", '{"city":"Oslo"}')
    response = done_of(said)
    assert response["status_details"] == {"type": "completed", "reason": "completed"}
    assert response["metadata"] == {}
    assert response["output"] == [
        {
            "id": done.item_id,
            "object": "realtime.item",
            "type": "function_call",
            "status": "completed",
            "name": "lookup",
            "call_id": "call_1",
            "arguments": '{"city":"Oslo"}',
        }
    ]
    assert rig.alive == [turn]
    call = rig.machine.history()[-1]
    assert (call.role, call.name, call.call_id, call.text) == ("assistant", "lookup", "call_1", '{"city":"Oslo"}')


def test_in_ga_the_response_of_a_call_has_what_every_response_has():
    rig = Rig(GA)
    said = rig.learn(FunctionCalled(FunctionCall("look", "{}", "call_1")))
    assert only(said, ResponseCreated).response["output_modalities"] == ["text", "audio"]
    response = done_of(said)
    assert response["status_details"] is None
    assert response["usage"]["total_tokens"] == 0


def test_in_ga_a_call_is_not_said_after_the_end():
    rig = Rig(GA)
    turn = rig.asks()
    rig.learn(FunctionCalled(FunctionCall("look", "{}", "call_1"), turn))
    said = rig.machine.ending("client_close", expired=False)
    assert not [
        event for event in types(effect.event for effect in said if isinstance(effect, Emit)) if "call" in event
    ]


def test_the_output_of_a_call_is_answered_by_a_turn_model():
    rig = Rig()
    rig.learn(FunctionCalled(FunctionCall("lookup", "{}", "call_1")))
    output = {"id": "o", "type": "function_call_output", "status": "completed", "call_id": "call_1", "output": "12 C"}
    assert types(rig.obey(CreateItem(item=output))) == ["item.added", "item.created", "item.done"]
    assert types(rig.obey(CreateResponse())) == STARTED
    result = rig.offered.history[-1]
    assert (result.role, result.call_id, result.text) == ("tool", "call_1", "12 C")


def test_input_the_model_cannot_use_is_an_error():
    rig = Rig(MODEL_DECIDES, NATIVE)
    assert error_of(rig.learn(InputRefused(code="runtime_append_failed", message="no"))).code == "runtime_append_failed"


# --- ga ---------------------------------------------------------------------------------------------------------------


def test_a_spoken_answer_in_ga():
    rig = Rig(attrs.evolve(GA, metadata={"room": 7, "name": "x"}))
    turn = rig.asks()
    created = only(rig.events[-5:], ResponseCreated).response
    assert created["metadata"] == {"room": "7", "name": "x"}
    assert created["output_modalities"] == ["text", "audio"]
    said = rig.speaks(turn, 400, "Hello")
    assert types(said) == PAIR, "no speak"
    assert said[0].metadata is UNSET
    assert types(rig.speaks(turn, 400)) == PAIR[:1]
    said = rig.obey(CancelResponse())
    assert types(said) == TERMINALS
    response = done_of(said)
    assert response["output"][0]["status"] == "incomplete"
    assert response["output"][0]["content"] == [{"type": "output_audio", "transcript": ""}]
    assert response["metadata"] == {"room": "7", "name": "x"}
    assert response["usage"]["total_tokens"] == 0


def test_a_failure_in_ga():
    rig = Rig(GA)
    turn = rig.asks()
    said = rig.ends(turn, FAILED, "engine_error", message="worker 'tts' was lost: crashed")
    assert "error" not in types(said)
    assert done_of(said)["status_details"] == {
        "type": "failed",
        "error": {"type": "server_error", "code": "engine_error", "message": "worker 'tts' was lost: crashed"},
    }
    assert only(said, ItemDone).item["status"] == "incomplete"


@pytest.mark.parametrize(
    ("status", "reason", "details"),
    [
        (ResponseStatus.COMPLETED, "stop", None),
        (ResponseStatus.COMPLETED, "length", {"type": "incomplete", "reason": "max_output_tokens"}),
        (ResponseStatus.INCOMPLETE, "max_output_tokens", {"type": "incomplete", "reason": "max_output_tokens"}),
        (ResponseStatus.INCOMPLETE, "continuation_limit", {"type": "incomplete"}),
        (ResponseStatus.CANCELLED, "session_closed", {"type": "cancelled"}),
    ],
)
def test_ga_knows_few_reasons(status, reason, details):
    rig = Rig(GA)
    assert done_of(rig.ends(rig.asks(), status, reason))["status_details"] == details


@pytest.mark.parametrize("command", [CancelResponse(), BargeIn(), ClearOutputAudio()])
def test_in_ga_every_cancel_of_the_client_is_one(command):
    rig = Rig(GA)
    rig.asks()
    assert done_of(rig.obey(command))["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}


def test_a_written_answer_in_ga():
    rig = Rig(attrs.evolve(GA, modalities=("text",)))
    turn = rig.asks()
    assert rig.events[-1].part == {"type": "text", "text": ""}
    assert only(rig.learn(ResponseText(turn, "Hi ")), OutputTextDelta).delta == "Hi "
    assert types(rig.speaks(turn, 400, "there")) == ["response.output_text.delta"], "nobody asked for sound"
    said = rig.ends(turn)
    assert types(said) == ["response.output_text.done", "response.content_part.done", *CLOSED]
    assert only(said, OutputTextDone).text == "Hi there"
    assert done_of(said)["output"][0]["content"] == [{"type": "output_text", "text": "Hi there"}]
    assert rig.machine.history()[-1].text == "Hi there"


def test_ga_sees_the_duplex_tier_when_it_asks():
    rig = Rig(attrs.evolve(GA, native=True, extra_body={"duplex_events": True}), NATIVE)
    assert types(rig.learn(ModelListened())) == ["response.listen"]
    assert Rig(attrs.evolve(GA, native=True), NATIVE).learn(ModelListened()) == []


def test_an_answer_outside_of_the_conversation():
    rig = Rig(capabilities=CASCADE)
    rig.obey(CreateItem(item=text_item("Summarise.")))
    rig.obey(CreateResponse(options=ResponseOptions(in_history=False)))
    rig.speaks(rig.offered, 400, "Short.")
    rig.ends(rig.offered)
    assert [message.role for message in rig.machine.history()] == ["user"]
