"""A model plugin in one page: it waits until you have spoken, then says the same to you.

Serve it: PYTHONPATH=examples python -m duplex_engine.server --plugin echo_plugin:EchoPlugin
"""

from duplex_engine.audio.pcm import float_to_pcm16
from duplex_engine.conversation.effects import Turn
from duplex_engine.model_plugins.behaviours import TurnBased
from duplex_engine.model_plugins.contract import Epoch, Response, SessionPlan, UnitFormat
from duplex_engine.protocol.capabilities import Capabilities, TurnPolicy
from duplex_engine.protocol.session_config import SessionConfig

RATE_HZ = 16_000
UNIT_MS = 80


class EchoPlugin(TurnBased):
    """Repeats every turn of the user. `gain`: how loud, 1 being as it was (`--option gain=0.5`)."""

    name = "echo"

    def __init__(self, *, gain: float = 1.0) -> None:
        self._gain = gain

    def capabilities(self, max_sessions: int | None) -> Capabilities:
        """Turns are enough for an echo; the server's detector may end them."""
        return Capabilities(
            turn_policy=TurnPolicy.TURN,
            detects_turns=True,
            chunk_period_ms=UNIT_MS,
            max_sessions=max_sessions or 100,
        )

    def unit_format(self) -> UnitFormat:
        """What is heard and what is said have the same rate."""
        return UnitFormat(rate_hz=RATE_HZ, samples=RATE_HZ * UNIT_MS // 1000, output_rate_hz=RATE_HZ)

    def plan(self, config: SessionConfig) -> SessionPlan:
        """Sound leaves at most half a second before it is due, so that little of it is in flight when it is cut."""
        return SessionPlan(lead_s=0.5)

    async def answer(self, epoch: Epoch, turn: Turn, response: Response) -> None:
        """Say what was heard. An interruption ends this call wherever it is; there is nothing to clean up."""
        if turn.utterance is None:
            return  # a typed turn has no sound; this model never gets one, since it does not claim text_only_turns
        samples = turn.utterance.samples()
        await epoch.heard(f"{len(samples) / RATE_HZ:.1f} seconds of sound", turn=turn)
        await response.audio(float_to_pcm16(samples * self._gain), text="The same to you.")
        await response.played_out()
