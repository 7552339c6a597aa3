"""Resume tokens: one good at a time, and the one before it until the new one is known to have arrived."""

import re

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from duplex_engine.protocol.resume import ResumeTokens


def test_a_token_is_43_characters_of_url_safe_base64() -> None:
    token = ResumeTokens().issue()
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", token)


def test_without_a_token_nothing_opens() -> None:
    tokens = ResumeTokens()
    assert not tokens.accept("")
    assert not tokens.accept("x" * 43)


def test_a_surrogate_in_a_token_is_a_wrong_token() -> None:
    tokens = ResumeTokens()
    tokens.issue()
    assert not tokens.accept("\ud800")


def test_no_token_is_kept() -> None:
    tokens = ResumeTokens()
    token = tokens.issue()
    assert token not in repr(vars(tokens))
    assert token.encode() not in b"".join(vars(tokens)["_good"])


class Rotation(RuleBasedStateMachine):
    """Clients come with tokens they were ever given; the model is the list of tokens that must be good now."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = ResumeTokens()
        self.given: list[str] = [self.tokens.issue()]
        self.good = list(self.given)

    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        presented = data.draw(st.sampled_from(self.given))
        assert self.tokens.accept(presented) == (presented in self.good)
        if presented in self.good:
            token = self.tokens.issue(presented)
            assert token not in self.given
            self.given.append(token)
            self.good = [presented, token]

    @precondition(lambda self: len(self.good) == 2)
    @rule()
    def arrive(self) -> None:
        self.tokens.arrived()
        self.good = self.good[-1:]

    @rule()
    def start_afresh(self) -> None:
        self.given.append(self.tokens.issue())
        self.good = self.given[-1:]

    @invariant()
    def only_these_open(self) -> None:
        assert [token for token in self.given if self.tokens.accept(token)] == self.good


Rotation.TestCase.settings = settings(max_examples=50, stateful_step_count=20)
TestRotation = Rotation.TestCase
