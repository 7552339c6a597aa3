"""A scripted plugin that keeps what it was given to hear."""

from duplex_engine.audio.pcm import Samples
from duplex_engine.conversation.effects import Turn
from duplex_engine.model_plugins.contract import Epoch, Response
from duplex_engine.model_plugins.scripted.plugin import ScriptedPlugin, ScriptedTurns

MODEL_HZ = 16_000
SCRIPT = 'forever { speak "I heard you" for 0.4 }'


class Attentive(ScriptedTurns):
    """Answers every turn. `turns`: the sound of each, float32 at `MODEL_HZ`, oldest first."""

    def __init__(self, **options: object) -> None:
        super().__init__(ScriptedPlugin(mode="turn", script=SCRIPT, **options).options)
        self.turns: list[Samples] = []

    @property
    def durations_ms(self) -> list[int]:
        """How long each turn was."""
        return [round(len(turn) * 1000 / MODEL_HZ) for turn in self.turns]

    async def answer(self, epoch: Epoch, turn: Turn, response: Response) -> None:
        """Keep the turn, and answer it."""
        if turn.utterance is not None and turn.item_id is not None:  # not the rehearsal
            self.turns.append(turn.utterance.samples().copy())
        await super().answer(epoch, turn, response)
