"""The client stops things: its own input, the answer, or what is playing (wire contract 3.5, 3.7).

Owns which of these a command means and when there is nothing to stop. How an answer ends is `answers.py`.
"""

from duplex_engine.conversation.answer import Answer
from duplex_engine.conversation.answers import Answers
from duplex_engine.conversation.committing import Committing
from duplex_engine.conversation.playback import Ledger
from duplex_engine.conversation.scene import Scene
from duplex_engine.conversation.turns import Happening
from duplex_engine.errors import ProtocolViolation
from duplex_engine.protocol.commands import BargeIn, CancelInput, CancelResponse, ClearInput, ClearOutputAudio
from duplex_engine.protocol.events import UNSET, InputCleared, OutputAudioCleared

CLIENT_CANCELLED = "client_cancelled"
BARGED_IN = "barge_in"
OUTPUT_CLEARED = "output_audio_buffer_clear"


class Stopping:
    """The stopping commands of one conversation."""

    def __init__(self, scene: Scene, answers: Answers, committing: Committing, ledger: Ledger) -> None:
        self._scene = scene
        self._answers = answers
        self._committing = committing
        self._ledger = ledger

    def clear_input(self, command: ClearInput) -> None:
        """Forget the input; the assistant goes on."""
        self._committing.clear(tell=True)

    def cancel_input(self, command: CancelInput) -> None:
        """Forget the input and stop the assistant; the label is raised even when it was silent (7.1)."""
        self._committing.clear(tell=True)
        if not self._answers.interrupt(BARGED_IN):
            self._scene.epoch += 1

    def barge_in(self, command: BargeIn) -> None:
        """The same, on models that input may interrupt. Raises ProtocolViolation `barge_in_unsupported`."""
        if not self._scene.capabilities.barge_in:
            raise ProtocolViolation(
                "barge_in_unsupported", "this model cannot be interrupted by input; use response.cancel"
            )
        self._committing.clear(tell=False)
        if not self._answers.interrupt(BARGED_IN):
            self._scene.epoch += 1
            self._scene.say(InputCleared())

    def cancel_response(self, command: CancelResponse) -> None:
        """Stop generation and playback. Raises ProtocolViolation `response_not_active`."""
        response_id, alive = command.response_id, {answer.id for answer in self._answers.alive.values()}
        if response_id is None and not alive:
            raise ProtocolViolation("response_not_active", "Cancellation failed: no response is active")
        if response_id is not None and response_id not in alive:
            message = f"Cancellation failed: the response {response_id!r} is not active"
            raise ProtocolViolation("response_not_active", message, "response_id")
        self._answers.interrupt(CLIENT_CANCELLED)

    def clear_output(self, command: ClearOutputAudio) -> None:
        """Stop playing, and generating if that is still going on; what was not heard by now never will be."""
        answers, scene = self._answers, self._scene
        answer = self._meant(command)
        if answer is not None and answer.status is None:
            self._ledger.interrupt(answer.cursor)
            answer.cursor.cap(self._ledger.heard_ms(answer.cursor))
            scene.say(OutputAudioCleared(response_id=answer.id))
            answers.interrupt(OUTPUT_CLEARED)
        elif answer in answers.fading and not answers.alive:
            scene.epoch += 1
            answers.stop_playing(answer)
            answer.cursor.cap(self._ledger.heard_ms(answer.cursor))
            scene.happened(Happening.ANSWER_OVER)
        else:
            nobody = command.response_id or (None if scene.strict else UNSET)
            scene.say(OutputAudioCleared(response_id=nobody if answer is None else answer.id))

    def _meant(self, command: ClearOutputAudio) -> Answer | None:
        answers = self._answers
        if command.response_id is not None:
            return answers.by_id(command.response_id)
        return answers.active or next(reversed(answers.fading), answers.newest)
