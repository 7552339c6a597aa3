"""The reported state of the turn (wire contract 2.7): states and the table of their transitions.

Owns what `session.turn_state` says. Nothing is decided by it: what is owed follows from the input and the answers.
"""

from enum import Enum


class TurnState(Enum):
    """Who has the floor; the value is the wire's word."""

    IDLE = "idle"
    USER_SPEAKING = "user_speaking"
    USER_COMMITTED = "user_committed"
    ASSISTANT_GENERATING = "assistant_generating"
    ASSISTANT_PLAYING = "assistant_playing"
    BARGE_IN = "barge_in"


class Happening(Enum):
    """What moves the state."""

    USER_STARTED = "user_started"
    USER_COMMITTED = "user_committed"
    USER_WITHDRAWN = "user_withdrawn"
    MODEL_LISTENED = "model_listened"
    ANSWER_STARTED = "assistant_started"
    ANSWER_GENERATED = "answer_generated"
    ANSWER_OVER = "assistant_done"
    BARGED_IN = "barged_in"


_S, _H = TurnState, Happening

# A pair that is missing leaves the state as it is: an answer is not less alive because the user makes a sound.
TRANSITIONS: dict[tuple[TurnState, Happening], TurnState] = {
    (_S.IDLE, _H.USER_STARTED): _S.USER_SPEAKING,
    (_S.IDLE, _H.USER_COMMITTED): _S.USER_COMMITTED,
    (_S.IDLE, _H.ANSWER_STARTED): _S.ASSISTANT_GENERATING,
    (_S.USER_SPEAKING, _H.USER_COMMITTED): _S.USER_COMMITTED,
    (_S.USER_SPEAKING, _H.USER_WITHDRAWN): _S.IDLE,
    (_S.USER_SPEAKING, _H.ANSWER_STARTED): _S.ASSISTANT_GENERATING,
    (_S.USER_COMMITTED, _H.USER_STARTED): _S.USER_SPEAKING,
    (_S.USER_COMMITTED, _H.USER_WITHDRAWN): _S.IDLE,
    (_S.USER_COMMITTED, _H.MODEL_LISTENED): _S.IDLE,
    (_S.USER_COMMITTED, _H.ANSWER_STARTED): _S.ASSISTANT_GENERATING,
    (_S.ASSISTANT_GENERATING, _H.ANSWER_GENERATED): _S.ASSISTANT_PLAYING,
    (_S.ASSISTANT_GENERATING, _H.ANSWER_OVER): _S.IDLE,
    (_S.ASSISTANT_GENERATING, _H.BARGED_IN): _S.BARGE_IN,
    (_S.ASSISTANT_PLAYING, _H.USER_STARTED): _S.USER_SPEAKING,
    (_S.ASSISTANT_PLAYING, _H.USER_COMMITTED): _S.USER_COMMITTED,
    (_S.ASSISTANT_PLAYING, _H.ANSWER_STARTED): _S.ASSISTANT_GENERATING,
    (_S.ASSISTANT_PLAYING, _H.ANSWER_OVER): _S.IDLE,
    (_S.ASSISTANT_PLAYING, _H.BARGED_IN): _S.BARGE_IN,
    (_S.BARGE_IN, _H.USER_STARTED): _S.USER_SPEAKING,
    (_S.BARGE_IN, _H.USER_COMMITTED): _S.USER_COMMITTED,
    (_S.BARGE_IN, _H.USER_WITHDRAWN): _S.IDLE,
    (_S.BARGE_IN, _H.MODEL_LISTENED): _S.IDLE,
    (_S.BARGE_IN, _H.ANSWER_STARTED): _S.ASSISTANT_GENERATING,
}

# Names a client may signal (3.11), with the state they report whatever was before.
SIGNALLED: dict[str, TurnState] = {
    "user_started": TurnState.USER_SPEAKING,
    "user_committed": TurnState.USER_COMMITTED,
    "assistant_started": TurnState.ASSISTANT_GENERATING,
    "assistant_done": TurnState.IDLE,
}


def next_state(state: TurnState, happening: Happening) -> TurnState:
    """The state after `happening`; unchanged where the table has no row."""
    return TRANSITIONS.get((state, happening), state)
