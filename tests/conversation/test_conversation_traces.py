"""The worked traces of wire contract appendix A, event by event."""

import attrs
from conversation_rig import (
    CASCADE,
    COMMITTED,
    DETECTED,
    MODEL_DECIDES,
    NATIVE,
    PAIR,
    PUSH_TO_TALK,
    STARTED,
    TERMINALS,
    Rig,
    feeds,
    only,
    types,
)

from duplex_engine.conversation.effects import PurgeOutput
from duplex_engine.conversation.facts import ModelListened, ResponseOpened, TextMark
from duplex_engine.protocol.commands import (
    AcknowledgePlayback,
    CloseSession,
    CommitAudio,
)
from duplex_engine.protocol.events import (
    InputCommitted,
    OutputAudioDelta,
    ResponseCreated,
    ResponseDone,
    SessionClosed,
    SpeechStarted,
    SpeechStopped,
)


def test_a1_a_native_session_answers_and_is_acknowledged():
    rig = Rig(MODEL_DECIDES, NATIVE)
    assert types(rig.events) == ["session.updated"]
    assert types(rig.appends(200, speech=True)) == ["speech_started"]
    for _ in range(4):
        assert rig.appends(200, speech=True) == []
    assert types(rig.learn(ModelListened())) == ["response.listen"]
    for _ in range(10):
        rig.appends(200, speech=True)
    opened = len(rig.events)
    answer = rig.begins()
    assert types(rig.events[opened:]) == STARTED
    assert types(rig.speaks(answer, 400, "there ")) == ["response.speak", *PAIR]
    response_id = only(rig.events, ResponseCreated).response_id
    acknowledged = rig.obey(AcknowledgePlayback(played_ms=0, committed_ms=0, response_id=response_id))
    assert types(acknowledged) == ["playback.acknowledged"]
    assert types(rig.speaks(answer, 400, "you are")) == PAIR
    assert types(rig.ends(answer)) == TERMINALS
    committed = rig.obey(CommitAudio())
    assert types(committed) == ["speech_stopped", *COMMITTED]
    assert only(committed, InputCommitted).item_id == only(rig.events, SpeechStarted).item_id
    assert [feed.commit for feed in feeds(rig.effects)][-1] is True
    assert types(rig.learn(ModelListened())) == ["response.listen"]
    late = AcknowledgePlayback(played_ms=800, committed_ms=800, item_id=f"item_{response_id}")
    assert types(rig.obey(late)) == ["playback.acknowledged"]
    assert [(message.role, message.text) for message in rig.machine.history()] == [("assistant", "there you are")]
    assert types(rig.obey(CloseSession())) == ["session.closed"]
    assert rig.events[-1] == SessionClosed(session_id="duplex-0123", reason="client_close")


def test_a2_the_detector_barges_in_while_the_model_speaks():
    config = attrs.evolve(DETECTED, native=True)
    rig = Rig(config, NATIVE)
    answer = rig.begins()
    rig.speaks(answer, 800, "The weather", TextMark(11, 800))
    rig.speaks(answer, 1600, " is fine today", TextMark(25, 2400))
    response_id = only(rig.events, ResponseCreated).response_id
    rig.obey(AcknowledgePlayback(played_ms=800, committed_ms=800, response_id=response_id))
    said = rig.hears(200, ("started", 100), speaking=True, voiced_ms=96, at_ms=5120)
    assert types(said) == ["speech_started", "overlap.decision", *TERMINALS]
    assert said[0].audio_start_ms == 5120
    assert (said[1].action, said[1].reason, said[1].epoch) == ("barge_in", "server_vad_speech_started", 0)
    assert said[1].metadata["cancel_reason"] == "turn_detected"
    assert rig.machine.epoch == 1
    done = only(said, ResponseDone).response
    assert done["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
    assert done["output"][0]["status"] == "cancelled"
    assert done["output"][0]["content"] == [
        {
            "type": "output_audio",
            "transcript": "The weather",
            "audio_duration_ms": 2400,
            "audio_text_marks": [{"text_chars": 11, "audio_end_ms": 800}],
        }
    ]
    assert done["metadata"] == {
        "epoch": 1,
        "cancelled_epoch": 0,
        "committed_ms": 800,
        "reason": "turn_detected",
        "playback": {"generated_ms": 2400, "sent_ms": 2400, "played_ms": 800, "committed_ms": 800},
    }
    assert PurgeOutput(response_id) in rig.effects
    assert rig.speaks(answer, 400, "stale") == []
    assert types(rig.hears(600, ("stopped", 560), voiced_ms=400)) == ["speech_stopped"]
    again = rig.begins()
    assert only(rig.speaks(again, 80, "Yes?"), OutputAudioDelta).metadata["epoch"] == 1
    assert rig.machine.history()[0].text == "The weather"


def test_a4_push_to_talk_on_a_turn_model():
    rig = Rig(PUSH_TO_TALK, CASCADE)
    silent = rig.appends(200, speech=False)
    assert types(silent) == ["response.listen"]
    assert silent[0].response["metadata"]["reason"] == "silence_or_noise"
    assert types(rig.appends(400, speech=True)) == ["speech_started"]
    said = rig.obey(CommitAudio(response_create=True))
    assert types(said) == ["speech_stopped", *COMMITTED, *STARTED]
    assert (only(said, SpeechStopped).audio_end_ms, only(rig.events, SpeechStarted).audio_start_ms) == (600, 200)
    turn = rig.offered
    assert rig.learn(ResponseOpened(turn)) == []
    assert turn.utterance is not None
    assert turn.utterance.over
    assert turn.utterance.sample_count == 16 * 600  # the sound before the speech came along
    assert types(rig.speaks(turn, 400, "Hello.")) == ["response.speak", *PAIR]
    assert types(rig.ends(turn)) == TERMINALS
