"""The table of reported turn states."""

import pytest
from conversation_rig import Rig, only

from duplex_engine.conversation.turns import SIGNALLED, TRANSITIONS, Happening, TurnState, next_state
from duplex_engine.protocol.commands import BargeIn, CancelResponse, CommitAudio, SignalTurn
from duplex_engine.protocol.events import TurnEvent


@pytest.mark.parametrize(("state", "happening"), TRANSITIONS)
def test_every_row(state, happening):
    assert next_state(state, happening) is TRANSITIONS[state, happening]
    assert TRANSITIONS[state, happening] is not state, "a row that changes nothing is no row"


def test_what_has_no_row_changes_nothing():
    missing = {(s, h) for s in TurnState for h in Happening} - set(TRANSITIONS)
    assert all(next_state(state, happening) is state for state, happening in missing)


def test_every_state_can_be_reached_and_left():
    assert set(TRANSITIONS.values()) == set(TurnState)
    assert {state for state, _ in TRANSITIONS} == set(TurnState)


def test_a_conversation_walks_through_the_states():
    rig = Rig()
    states = [rig.machine.public_session()["turn_state"]]

    def note():
        states.append(rig.machine.public_session()["turn_state"])

    rig.appends(1000, speech=True)
    note()
    rig.obey(CommitAudio())
    note()
    turn = rig.asks()
    note()
    rig.speaks(turn, 400, "Hello.")
    rig.ends(turn)
    note()
    rig.now += 0.5
    note()
    turn = rig.asks()
    rig.speaks(turn, 400, "Well")
    rig.obey(BargeIn())
    note()
    assert states == [
        "idle",
        "user_speaking",
        "user_committed",
        "assistant_generating",
        "assistant_playing",
        "idle",
        "barge_in",
    ]


@pytest.mark.parametrize("name", [*SIGNALLED, "something"])
def test_signals_report_a_state(name):
    rig = Rig()
    event = only(rig.obey(SignalTurn(event=name)), TurnEvent)
    expected = SIGNALLED.get(name, TurnState.IDLE)
    assert (event.event, event.turn_state, event.epoch) == (name, expected.value, 0)


def test_a_cancelled_answer_is_over():
    rig = Rig()
    rig.asks()
    rig.obey(CancelResponse())
    assert rig.machine.public_session()["turn_state"] == "barge_in"
