"""How connections begin: profiles, autostart, keys, and every state with every happening."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duplex_engine.errors import AdmissionRefused, ConfigRejected, JournalGap, LocalProtocolError, ProtocolViolation
from duplex_engine.protocol.commands import (
    AcknowledgeEvents,
    AppendAudio,
    CommitAudio,
    Heartbeat,
    ResumeSession,
    UpdateSession,
)
from duplex_engine.protocol.errors import error_event
from duplex_engine.protocol.events import ErrorDetail, ErrorEvent, ResyncRequired
from duplex_engine.protocol.handshake import (
    TRANSITIONS,
    Complain,
    ConnectionState,
    Deliver,
    FlatRefusal,
    Handshake,
    Happening,
    Ignore,
    Open,
    Refuse,
    Resume,
    autostart_model,
    choose_profile,
    close_code_for,
    credentials,
    is_authorised,
    pick_subprotocol,
)
from duplex_engine.protocol.session_config import Profile

REFUSED = FlatRefusal("unsupported", "Realtime API is not available", 1008)


@pytest.mark.parametrize(
    ("path", "query", "profile"),
    [
        ("/v1/realtime", {}, Profile.GA),
        ("/v1/realtime", {"model": "m"}, Profile.GA),
        ("/v1/realtime", {"duplex": "1"}, Profile.STRICT),
        ("/v1/realtime", {"duplex": "TRUE"}, Profile.STRICT),
        ("/v1/realtime", {"duplex": "On"}, Profile.STRICT),
        ("/v1/realtime", {"duplex": "yes"}, REFUSED),
        ("/v1/realtime", {"duplex": "0"}, REFUSED),
        ("/v1/realtime", {"duplex": ""}, REFUSED),
        ("/v1/duplex", {}, Profile.STRICT),
        ("/v1/duplex", {"duplex": "0"}, Profile.STRICT),
    ],
)
def test_profiles(path: str, query: dict[str, str], profile: Profile | FlatRefusal) -> None:
    assert choose_profile(path, query) == profile


def test_the_flat_refusal() -> None:
    assert json.loads(REFUSED.frame()) == {
        "type": "error",
        "error": "Realtime API is not available",
        "code": "unsupported",
    }


@pytest.mark.parametrize(
    ("query", "model"),
    [
        ({}, None),
        ({"model": ""}, None),
        ({"model": "m"}, "m"),
        ({"model": "m", "autostart": "1"}, "m"),
        ({"model": "m", "autostart": "whatever"}, "m"),
        ({"model": "m", "autostart": ""}, "m"),
        ({"model": "m", "autostart": "0"}, None),
        ({"model": "m", "autostart": " FALSE "}, None),
        ({"model": "m", "autostart": "No"}, None),
        ({"model": "m", "autostart": "off"}, None),
        ({"model": "m", "resume": "1"}, None),
        ({"model": "m", "resume": "Yes"}, None),
        ({"model": "m", "resume": "0"}, "m"),
    ],
)
def test_autostart(query: dict[str, str], model: str | None) -> None:
    assert autostart_model(query) == model


@pytest.mark.parametrize(
    ("offered", "picked"),
    [
        ([], None),
        (["realtime"], "realtime"),
        (["openai-insecure-api-key.k", "realtime"], "realtime"),
        (["openai-beta.realtime-v1"], None),
        (["Realtime"], None),
    ],
)
def test_subprotocols(offered: list[str], picked: str | None) -> None:
    assert pick_subprotocol(offered) == picked


@pytest.mark.parametrize(
    ("authorization", "query", "subprotocols", "offered"),
    [
        (None, {}, [], ()),
        ("Bearer k", {}, [], ("k",)),
        ("bearer  k ", {}, [], ("k",)),
        ("Basic k", {}, [], ()),
        ("k", {}, [], ()),
        (None, {"api_key": "q"}, [], ("q",)),
        (None, {}, ["realtime", "openai-insecure-api-key.s"], ("s",)),
        ("Bearer k", {"api_key": "q"}, ["openai-insecure-api-key.s"], ("k", "q", "s")),
    ],
)
def test_credentials(
    authorization: str | None, query: dict[str, str], subprotocols: list[str], offered: tuple[str, ...]
) -> None:
    assert credentials(authorization, query, subprotocols) == offered


def test_authorisation() -> None:
    assert is_authorised("kéy", ("wrong", "kéy"))
    assert not is_authorised("key", ())
    assert not is_authorised("key", ("", "ke", "keys", "KEY", "\ud800"))


@pytest.mark.parametrize(
    ("code", "close_code"),
    [
        ("resource_exhausted", 1013),
        ("warming_up", 1013),
        ("draining", 1013),
        ("engine_dead", 1011),
        ("timeout", 1011),
        ("internal_error", 1011),
        ("config_timeout", 1008),
        ("invalid_json", 1008),
        ("unsupported_audio_format", 1008),
        ("invalid_resume_token", 1008),
        ("my_plugins_code", 1008),
    ],
)
def test_close_codes(code: str, close_code: int) -> None:
    assert close_code_for(code) == close_code


# --- states ------------------------------------------------------------------------------------------------------

UPDATE = UpdateSession(session={"voice": "v"}, event_id="evt_1")
RESUME = ResumeSession(session_id="s", resume_token="t", event_id="evt_1")
BROKEN = ProtocolViolation("invalid_json", "broken", event_id="evt_1")


def connection(query: dict[str, str] | None = None) -> Handshake:
    return Handshake(query or {})


def error_of(refusal: Refuse) -> ErrorDetail:
    assert isinstance(refusal.event, ErrorEvent)
    return refusal.event.error


def in_state(state: ConnectionState) -> Handshake:
    handshake = connection()
    if state is ConnectionState.RESUMING:
        handshake.receive(RESUME)
    elif state is not ConnectionState.AWAITING_FIRST:
        handshake.receive(UPDATE)
    if state in (ConnectionState.LIVE, ConnectionState.CLOSING, ConnectionState.CLOSED):
        handshake.opened()
    if state is ConnectionState.CLOSING:
        handshake.ending()
    if state is ConnectionState.CLOSED:
        handshake.closed()
    assert handshake.state is state
    return handshake


HAPPEN: dict[Happening, Callable[[Handshake], object]] = {
    Happening.COMMAND: lambda handshake: handshake.receive(Heartbeat()),
    Happening.RESUME: lambda handshake: handshake.receive(RESUME),
    Happening.ILLEGAL: lambda handshake: handshake.reject(BROKEN),
    Happening.TIMEOUT: Handshake.time_out,
    Happening.OPENED: Handshake.opened,
    Happening.REFUSED: lambda handshake: handshake.refused(BROKEN),
    Happening.ENDING: Handshake.ending,
    Happening.GONE: Handshake.closed,
}


@pytest.mark.parametrize("state", ConnectionState)
@pytest.mark.parametrize("happening", HAPPEN)
def test_every_state_with_every_happening(state: ConnectionState, happening: Happening) -> None:
    handshake = in_state(state)
    after = TRANSITIONS[state].get(happening)
    if after is None:
        with pytest.raises(LocalProtocolError):
            HAPPEN[happening](handshake)
        assert handshake.state is state
    else:
        HAPPEN[happening](handshake)
        assert handshake.state is after


def test_every_state_ends_closed() -> None:
    assert set(TRANSITIONS) == set(ConnectionState)
    assert all(rows[Happening.GONE] is ConnectionState.CLOSED for rows in TRANSITIONS.values())


def test_opening_by_update() -> None:
    handshake = connection()
    assert handshake.begin() is None
    assert handshake.receive(UPDATE) == Open({"voice": "v"})
    handshake.opened()
    assert handshake.receive(UPDATE) == Deliver(UPDATE)


def test_opening_before_any_frame() -> None:
    handshake = connection({"model": "m"})
    assert handshake.begin() == Open({"model": "m"})
    with pytest.raises(LocalProtocolError):
        handshake.receive(UPDATE)
    handshake.opened()
    assert handshake.receive(UPDATE) == Deliver(UPDATE)


@pytest.mark.parametrize(
    ("session", "opened"),
    [({}, {"model": "m"}), ({"model": "own"}, {"model": "own"}), ({"model": None, "a": 1}, {"model": "m", "a": 1})],
)
def test_the_querys_model_is_the_default(session: dict[str, object], opened: dict[str, object]) -> None:
    handshake = connection({"model": "m", "autostart": "0"})
    assert handshake.begin() is None
    assert handshake.receive(UpdateSession(session=session)) == Open(opened)


def test_any_first_command_opens_a_default_session() -> None:
    append = AppendAudio(audio=b"a")
    assert connection().receive(append) == Open({}, Deliver(append))
    assert connection({"model": "m", "resume": "1"}).receive(append) == Open({"model": "m"}, Deliver(append))


def test_a_first_acknowledgement_is_unknown() -> None:
    action = connection().receive(AcknowledgeEvents(server_event_seq=1, event_id="evt_1"))
    assert isinstance(action, Open)
    assert isinstance(action.then, Complain)
    assert (action.then.error.error.code, action.then.error.error.event_id) == ("unknown_event", "evt_1")


def test_resuming() -> None:
    handshake = connection()
    assert handshake.receive(RESUME) == Resume(RESUME)
    refusal = handshake.refused(ProtocolViolation("invalid_resume_token", "wrong"))
    assert refusal == Refuse(error_event("invalid_resume_token", "wrong", event_id="evt_1"))
    assert refusal.close_code == 1008


def test_resuming_across_a_gap_is_no_error() -> None:
    handshake = connection()
    handshake.receive(RESUME)
    refusal = handshake.refused(JournalGap("gone"))
    assert refusal == Refuse(ResyncRequired(session_id=RESUME.session_id, reason="journal_gap"))
    assert (refusal.close_code, refusal.reason) == (1008, "journal_gap")
    assert handshake.state is ConnectionState.CLOSED


def test_resuming_on_a_live_connection_changes_nothing() -> None:
    handshake = in_state(ConnectionState.LIVE)
    action = handshake.receive(RESUME)
    assert isinstance(action, Complain)
    assert (action.error.error.code, action.error.error.event_id) == ("unsupported_session_resume", "evt_1")
    assert handshake.state is ConnectionState.LIVE


def test_a_broken_first_frame_ends_the_connection() -> None:
    action = connection().reject(BROKEN)
    assert action == Refuse(error_event("invalid_json", "broken", event_id="evt_1"))


def test_a_broken_later_frame_does_not() -> None:
    assert in_state(ConnectionState.LIVE).reject(BROKEN) == Complain(
        error_event("invalid_json", "broken", event_id="evt_1")
    )


def test_silence_ends_the_connection() -> None:
    refusal = connection().time_out()
    assert (refusal.reason, refusal.close_code) == ("config_timeout", 1008)


def test_refusals_name_the_first_frame() -> None:
    handshake = connection()
    handshake.receive(UPDATE)
    refusal = handshake.refused(ConfigRejected("unsupported_audio_format", "no", "input_audio_format"))
    assert error_of(refusal).event_id == "evt_1"
    assert error_of(refusal).param == "input_audio_format"
    handshake = connection({"model": "m"})
    handshake.begin()
    full = handshake.refused(AdmissionRefused("resource_exhausted", "duplex_session_capacity_exhausted: limit=1"))
    assert (full.close_code, error_of(full).retryable) == (1013, True)


def test_after_the_end_commands_are_too_late() -> None:
    action = in_state(ConnectionState.CLOSING).receive(CommitAudio(event_id="evt_2"))
    assert isinstance(action, Complain)
    assert (action.error.error.code, action.error.error.event_id) == ("session_closed", "evt_2")
    for happen in (HAPPEN[Happening.COMMAND], HAPPEN[Happening.RESUME], HAPPEN[Happening.ILLEGAL]):
        assert happen(in_state(ConnectionState.CLOSED)) == Ignore()


@given(st.lists(st.sampled_from(sorted(HAPPEN, key=lambda happening: happening.value)), max_size=12))
def test_no_order_of_happenings_breaks_the_machine(happenings: list[Happening]) -> None:
    handshake = connection()
    opened = 0
    for happening in happenings:
        before = handshake.state
        try:
            action = HAPPEN[happening](handshake)
        except LocalProtocolError:
            assert handshake.state is before
            continue
        opened += isinstance(action, Open | Resume)
        if before is ConnectionState.CLOSED:
            assert handshake.state is ConnectionState.CLOSED
    assert opened <= 1
