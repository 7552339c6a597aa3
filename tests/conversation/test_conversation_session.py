"""The session itself: opening, updates, housekeeping, its end; and every refusal the machine can give."""

import attrs
import pytest
from conversation_rig import (
    CASCADE,
    CLOSED,
    DETECTED,
    GA,
    MODEL_DECIDES,
    NATIVE,
    PUSH_TO_TALK,
    Rig,
    error_of,
    only,
    sound,
    text_item,
    types,
)

from duplex_engine.config import SessionLimits
from duplex_engine.conversation.effects import (
    Emit,
    EndSession,
    Heard,
    PurgeOutput,
    Reconfigure,
    RedoHearing,
    TrimJournal,
)
from duplex_engine.conversation.facts import FunctionCall, FunctionCalled, ResponseOpened, ResponseStatus
from duplex_engine.conversation.scene import random_id
from duplex_engine.errors import CodedError, ConfigRejected, LocalProtocolError, ProtocolViolation
from duplex_engine.protocol.capabilities import Modality
from duplex_engine.protocol.commands import (
    AcknowledgeEvents,
    AcknowledgePlayback,
    AppendAudio,
    AppendText,
    BargeIn,
    CancelResponse,
    CloseSession,
    CommitAudio,
    CreateItem,
    CreateResponse,
    DeleteItem,
    Heartbeat,
    ResumeSession,
    RetrieveItem,
    SignalTurn,
    TruncateItem,
    UpdateSession,
)
from duplex_engine.protocol.events import (
    UNSET,
    HeartbeatAcknowledged,
    ResponseDone,
    SessionExpired,
    SessionUpdated,
)
from duplex_engine.protocol.session_config import Profile


def update(rig, **session):
    return rig.obey(UpdateSession(session=session, event_id="u"))


# --- opening and updates -----------------------------------------------------------------------------------------------


def test_a_session_begins_with_its_configuration():
    rig = Rig()
    session = only(rig.events, SessionUpdated).session
    assert (session["id"], session["epoch"], session["turn_state"], session["state"]) == (
        "duplex-0123",
        0,
        "idle",
        "open",
    )
    assert session["playback"] == {"generated_ms": 0, "sent_ms": 0, "played_ms": 0, "committed_ms": 0}
    assert len(session["capabilities"]) == 40


def test_an_update_takes_effect_when_the_model_accepts_it():
    rig = Rig()
    (waiting,) = rig.machine.obey(UpdateSession(session={"instructions": "Be brief."}, event_id="u"))
    assert isinstance(waiting, Reconfigure)
    assert (waiting.patch, waiting.event_id) == ({"instructions": "Be brief."}, "u")
    assert rig.machine.config.instructions is None
    assert types(rig.perform(rig.machine.reconfigured(waiting))) == ["session.updated"]
    assert rig.machine.config.instructions == "Be brief."
    assert rig.events[-1].session["instructions"] == "Be brief."


def test_an_update_the_model_refuses_changes_nothing():
    rig = Rig()
    (waiting,) = rig.machine.obey(UpdateSession(session={"instructions": "Be brief."}, event_id="u"))
    refused = rig.machine.reconfigure_refused(waiting, ConfigRejected("persona_update_unsupported", "no"))
    error = error_of(rig.perform(refused))
    assert (error.code, error.event_id) == ("persona_update_unsupported", "u")
    assert rig.machine.config.instructions is None


@pytest.mark.parametrize(
    ("session", "code"),
    [
        ({"model": "another"}, "model_update_unsupported"),
        ({"ref_audio": "data:audio/wav;base64,"}, "ref_audio_update_unsupported"),
        ({"input_audio_format": "mp3"}, "unsupported_audio_format"),
        ({"turn_detection": {"type": "semantic_vad"}}, "unsupported_turn_detection"),
    ],
)
def test_updates_that_are_refused_at_once(session, code):
    rig = Rig()
    before = rig.machine.config
    error = error_of(update(rig, **session))
    assert (error.code, error.event_id) == (code, "u")
    assert rig.machine.config is before


@pytest.mark.parametrize("sound_by", ["user", "model", None])
def test_the_voice_is_chosen_before_it_is_heard(sound_by):
    """A client whose microphone is on before it has chosen loses nothing."""
    rig = Rig(attrs.evolve(PUSH_TO_TALK, voice="alto"))
    if sound_by == "user":
        rig.appends(200, speech=False)
    elif sound_by == "model":
        rig.writes("Hi")
        rig.obey(CreateResponse())
        rig.speaks(rig.offered, 200)
    assert types(update(rig, voice="alto")) == ["session.updated"], "the same again is no change"
    said = update(rig, voice="bass")
    if sound_by == "model":
        assert error_of(said).code == "voice_update_after_audio_unsupported"
        assert rig.machine.config.voice == "alto"
    else:
        assert types(said) == ["session.updated"]


@pytest.mark.parametrize(
    ("session", "redone"),
    [
        ({"instructions": "x"}, False),
        ({"sample_rate_hz": 24_000}, True),
        ({"turn_detection": {"type": "server_vad"}}, True),
        ({"overlap_silence_rms": 0.1}, True),
    ],
)
def test_the_ears_are_told_what_concerns_them(session, redone):
    rig = Rig()
    update(rig, **session)
    effects = [effect for effect in rig.effects if isinstance(effect, RedoHearing)]
    assert effects == ([RedoHearing(rig.machine.config)] if redone else [])


def test_push_to_talk_after_detection():
    """A null detector ends detected turns; what is being said stays open for the client's commit."""
    rig = Rig(DETECTED)
    rig.hears(400, ("started", 200), speaking=True, voiced_ms=200)
    update(rig, turn_detection=None)
    assert rig.machine.config.turn_detection is None
    rig.appends(400, speech=True)
    assert types(rig.obey(CommitAudio()))[0] == "speech_stopped"


def test_the_playback_policy_can_be_changed():
    rig = Rig()
    update(rig, playback_commit_policy="ack_only")
    assert rig.events[-1].session["playback_commit_policy"] == "ack_only"


# --- housekeeping ----------------------------------------------------------------------------------------------------------


def test_heartbeats_and_acknowledged_events():
    rig = Rig()
    assert rig.obey(Heartbeat()) == [HeartbeatAcknowledged(session_id="duplex-0123")]
    assert rig.machine.obey(AcknowledgeEvents(server_event_seq=7, event_id="a")) == [TrimJournal(7, "a")]


def test_refusals_from_outside_become_errors():
    rig = Rig()
    error = error_of(rig.perform(rig.machine.refuse(ProtocolViolation("bad_audio", "no", "audio"), "e")))
    assert (error.type, error.code, error.param, error.event_id) == ("invalid_request_error", "bad_audio", "audio", "e")
    error = error_of(rig.perform(rig.machine.refuse(CodedError("input_backpressure", "no"), None)))
    assert (error.type, error.param, error.event_id) == ("rate_limit_error", UNSET, UNSET)


def test_an_append_needs_ears():
    with pytest.raises(LocalProtocolError):
        Rig().machine.obey(AppendAudio(audio=b".."))


def test_busy_while_an_answer_is_owed():
    rig = Rig()
    assert not rig.machine.busy
    turn = rig.asks()
    assert rig.machine.busy
    assert rig.machine.active_response_id == rig.ids[turn]
    rig.ends(turn)
    assert not rig.machine.busy
    assert rig.machine.active_response_id is None


def test_ids_are_never_repeated():
    ids = {random_id("item") for _ in range(1000)}
    assert len(ids) == 1000
    assert all(len(name) == len("item_") + 32 for name in ids)


# --- the end ---------------------------------------------------------------------------------------------------------------


def test_a_close_ends_what_is_alive_under_a_new_label():
    rig = Rig()
    turn = rig.asks()
    rig.speaks(turn, 400, "Hello")
    rig.appends(800, speech=True)
    effects = rig.machine.obey(CloseSession(reason="bye"))
    assert effects == [PurgeOutput(rig.ids[turn]), EndSession("bye")]
    assert rig.speaks(turn, 400, "stale") == []
    said = rig.ends(turn, ResponseStatus.CANCELLED, "session ended")
    assert only(said, ResponseDone).response["status_details"] == {"type": "cancelled", "reason": "session_closed"}
    assert rig.machine.epoch == 1
    assert types(rig.perform(rig.machine.ending("bye", expired=False))) == ["speech_stopped", "session.closed"]


def test_an_end_without_a_close_says_the_terminals_itself():
    rig = Rig(MODEL_DECIDES, NATIVE)
    rig.begins()
    rig.begins()
    said = rig.perform(rig.machine.ending("idle_ttl_expired", expired=True))
    assert types(said) == [*["response.content_part.done", *CLOSED] * 2, "session.expired"]
    assert said[-1] == SessionExpired(session_id="duplex-0123", reason="idle_ttl_expired")
    assert rig.machine.epoch == 1


def test_nothing_of_an_uncommitted_turn_is_held_after_the_end():
    rig = Rig()
    rig.appends(2000, speech=True)
    assert rig.machine.pending_input_bytes == 4 * 32_000
    said = rig.perform(rig.machine.ending("client_close", expired=False))
    assert types(said) == ["speech_stopped", "session.closed"]
    assert rig.machine.pending_input_bytes == 0


def test_a_closing_session_obeys_nothing_and_promotes_nothing():
    rig = Rig()
    turn = rig.asks()
    rig.appends(800, speech=True)
    rig.obey(CommitAudio(response_create=True))
    rig.machine.obey(CloseSession())
    error = error_of(rig.obey(Heartbeat(event_id="h")))
    assert (error.code, error.event_id) == ("session_closed", "h")
    heard = Heard(samples=sound(20, True), speech=True, duration_ms=20)
    assert error_of(rig.obey(AppendAudio(audio=b".."), heard)).code == "session_closed"
    assert "response.created" not in types(rig.ends(turn, ResponseStatus.COMPLETED))
    assert rig.learn(ResponseOpened(object())) == []
    assert rig.learn(FunctionCalled(FunctionCall("f", "{}", "c"))) == []


def test_after_the_last_word_nothing_is_said():
    rig = Rig()
    turn = rig.asks()
    rig.perform(rig.machine.ending("shutdown", expired=False))
    assert rig.speaks(turn, 400, "stale") == []
    assert rig.ends(turn) == []
    assert rig.machine.refuse(CodedError("internal_error", "no"), None) == []
    with pytest.raises(LocalProtocolError):
        rig.machine.ending("shutdown", expired=False)


def test_the_last_words_survive_a_crash():
    """What a command asked for before it crashed is not said, and the session still ends in order."""
    rig = Rig()
    rig.asks()
    with pytest.raises(AttributeError):
        rig.machine.obey(CreateItem(item=None, event_id="crash"))
    with pytest.raises(KeyError):
        rig.machine.learn(object())
    said = rig.perform(rig.machine.refuse(CodedError("internal_error", "the session failed"), None))
    assert types(said) == ["error"]
    ended = types(rig.perform(rig.machine.ending("internal_error", expired=False)))
    assert ended == ["response.content_part.done", *CLOSED, "session.closed"]


# --- refusals ----------------------------------------------------------------------------------------------------------------

CANNOT = attrs.evolve(CASCADE, barge_in=False, text_only_turns=False)
NEEDS_SIGHT = attrs.evolve(NATIVE, required_inputs=frozenset({Modality.VIDEO}), optional_inputs=frozenset())
SEES = attrs.evolve(NATIVE, optional_inputs=frozenset({Modality.VIDEO}))

# code, parameter, configuration, capabilities, what happens before, the command
REFUSED = [
    ("native_text_append_unsupported", "text", PUSH_TO_TALK, CASCADE, [], AppendText(text="Hi")),
    ("unsupported_session_resume", None, PUSH_TO_TALK, CASCADE, [], ResumeSession(session_id="x", resume_token="y")),
    ("bad_event", "event", PUSH_TO_TALK, CASCADE, [], SignalTurn(event="close")),
    ("bad_event", "event", PUSH_TO_TALK, CASCADE, [], SignalTurn(event="timeout")),
    ("input_audio_buffer_empty", None, PUSH_TO_TALK, CASCADE, [], CommitAudio()),
    ("response_create_without_input", None, PUSH_TO_TALK, CASCADE, [], CreateResponse()),
    ("text_only_turn_unsupported", None, PUSH_TO_TALK, CANNOT, ["text"], CreateResponse()),
    ("response_already_active", None, PUSH_TO_TALK, CASCADE, ["ask"], CreateResponse()),
    (
        "unsupported_native_response_options",
        "response.tools",
        PUSH_TO_TALK,
        CASCADE,
        ["text"],
        CreateResponse(unsupported=("tools",)),
    ),
    ("response_not_active", None, PUSH_TO_TALK, CASCADE, [], CancelResponse()),
    ("response_not_active", "response_id", PUSH_TO_TALK, CASCADE, ["ask"], CancelResponse(response_id="resp9")),
    ("barge_in_unsupported", None, PUSH_TO_TALK, CANNOT, ["ask"], BargeIn()),
    ("missing_item_id", "item_id", PUSH_TO_TALK, CASCADE, [], DeleteItem()),
    ("item_not_found", "item_id", PUSH_TO_TALK, CASCADE, [], TruncateItem(item_id="nobody")),
    ("bad_event", "item.id", PUSH_TO_TALK, CASCADE, ["text"], CreateItem(item=text_item("again"))),
    (
        "invalid_function_call_output",
        "item.call_id",
        PUSH_TO_TALK,
        CASCADE,
        [],
        CreateItem(item={"id": "o", "type": "function_call_output", "status": "x", "call_id": "c", "output": ""}),
    ),
    (
        "playback_item_not_found",
        "response_id",
        PUSH_TO_TALK,
        CASCADE,
        [],
        AcknowledgePlayback(played_ms=1, committed_ms=1, response_id="resp9"),
    ),
    (
        "playback_item_mismatch",
        "item_id",
        PUSH_TO_TALK,
        CASCADE,
        ["ask"],
        AcknowledgePlayback(played_ms=1, committed_ms=1, response_id="resp1", item_id="item_resp2"),
    ),
    ("model_update_unsupported", "model", PUSH_TO_TALK, CASCADE, [], UpdateSession(session={"model": "x"})),
    (
        "voice_update_after_audio_unsupported",
        "voice",
        PUSH_TO_TALK,
        CASCADE,
        ["hear"],
        UpdateSession(session={"voice": "bass"}),
    ),
    (
        "invalid_input_modality",
        "video_frames",
        PUSH_TO_TALK,
        CASCADE,
        [],
        AppendAudio(audio=b"..", video_frames=(b"",)),
    ),
    ("invalid_input_modality", "video_frames", PUSH_TO_TALK, SEES, [], AppendAudio(audio=b"..", video_frames=(b"",))),
    ("invalid_input_modality", "audio", MODEL_DECIDES, SEES, [], AppendAudio(video_frames=(b"",))),
    ("invalid_input_modality", "audio", MODEL_DECIDES, NEEDS_SIGHT, [], AppendAudio(audio=b"..", video_frames=(b"",))),
    ("invalid_input_modality", "video_frames", MODEL_DECIDES, NEEDS_SIGHT, [], AppendAudio()),
    ("input_backpressure", "audio", PUSH_TO_TALK, CASCADE, ["ask"], AppendAudio(audio=b"..")),
]


@pytest.mark.parametrize(("code", "param", "config", "capabilities", "before", "command"), REFUSED)
def test_a_refusal_names_the_command_and_changes_nothing(code, param, config, capabilities, before, command):
    rig = Rig(config, capabilities, SessionLimits(input_bytes=4 * 16 * 1050))
    for step in before:
        if step == "ask":
            rig.asks()
        elif step == "hear":
            rig.speaks(rig.asks(), 200)
        else:
            rig.writes("Hi")
    command = attrs.evolve(command, event_id="evt_1")
    session, history, alive = rig.machine.public_session(), rig.machine.history(), list(rig.alive)
    heard = None
    if isinstance(command, AppendAudio):
        heard = Heard(samples=sound(100, True), speech=True, duration_ms=100, video_frames=command.video_frames)
    effects = rig.machine.obey(command, heard)
    assert [type(effect) for effect in effects] == [Emit]
    error = error_of(rig.perform(effects))
    assert (error.code, error.event_id) == (code, "evt_1")
    assert error.param == (UNSET if param is None else param)
    assert error.message
    assert (rig.machine.public_session(), rig.machine.history(), rig.alive) == (session, history, alive)


@pytest.mark.parametrize(
    ("code", "before", "command"),
    [
        ("conversation_already_has_active_response", ["ask"], CreateResponse()),
        ("response_cancel_not_active", [], CancelResponse()),
        ("response_cancel_not_active", ["ask"], CancelResponse(response_id="resp9")),
        ("input_audio_buffer_commit_empty", [], CommitAudio()),
        ("item_create_duplicate_item_id", ["text"], CreateItem(item=text_item("again"))),
        ("item_not_found", [], CreateItem(item=text_item("lost"), previous_item_id="nobody")),
        ("item_delete_invalid_item_id", [], DeleteItem(item_id="nobody")),
        ("item_retrieve_invalid_item_id", [], RetrieveItem(item_id="nobody")),
        ("item_truncate_invalid_item_id", [], TruncateItem(item_id="nobody")),
        ("missing_item_id", [], DeleteItem()),
    ],
)
def test_ga_has_names_of_its_own_for_what_its_clients_look_at(code, before, command):
    rig = Rig(attrs.evolve(PUSH_TO_TALK, profile=Profile.GA))
    for step in before:
        rig.asks() if step == "ask" else rig.writes("Hi")
    error = error_of(rig.obey(attrs.evolve(command, event_id="evt_1")))
    assert (error.code, error.event_id, error.type) == (code, "evt_1", "invalid_request_error")
    if code == "response_cancel_not_active":
        assert error.message.startswith("Cancellation failed"), "some clients go by the words"


def test_a_model_with_sight_takes_pictures_with_the_sound():
    rig = Rig(MODEL_DECIDES, SEES)
    heard = Heard(samples=sound(100, False), speech=False, duration_ms=100, video_frames=(b"\xff\xd8",))
    rig.obey(AppendAudio(audio=b"..", video_frames=(b"\xff\xd8",)), heard)
    assert rig.effects[-1].video_frames == (b"\xff\xd8",)


def test_a_ga_session_takes_another_model_name():
    rig = Rig(attrs.evolve(GA, model="a"))
    assert types(update(rig, model="b")) == ["session.updated"]
