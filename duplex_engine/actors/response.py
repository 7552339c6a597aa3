"""The response scope: one answer, from its opening to exactly one terminal.

Owns the cancel scope of an answer and how it ended. The terminal is a synchronous append in a `finally`, so it cannot
be lost; everything the answer says goes through check, act, yield, so nothing can be said after it was ended. Never
decides to end itself, unless its words grow beyond what one event can hold: plugins leave the block, the session calls
`end`.
"""

import attrs
import trio

from duplex_engine.actors.floor import Floor
from duplex_engine.actors.playout import FRAME_MS, Playout, cut_speech
from duplex_engine.conversation.facts import (
    FunctionCall,
    FunctionCalled,
    ResponseAudio,
    ResponseEnded,
    ResponseKey,
    ResponseOpened,
    ResponseStatus,
    ResponseText,
    TextMark,
    Usage,
)
from duplex_engine.errors import CodedError, LeaseLost, ResponseOver, StepFailed
from duplex_engine.protocol.sizes import ANSWER_BYTES, CALL_BYTES
from duplex_engine.protocol.wire_json import dumps


class Response:
    """One answer. `scope` is the block of the plugin's code, `over` is set when its terminal has been appended.

    `plan`: the session's, at the moment when the client was told of this answer.
    """

    def __init__(self, floor: Floor, key: ResponseKey | None = None, plan: object = None) -> None:
        self.plan = plan
        self.scope = trio.CancelScope()
        self.over = trio.Event()
        self.key: ResponseKey = self if key is None else key
        self._floor = floor
        self._playout = Playout(floor.unit_format.output_rate_hz, floor.lead_s)
        self._frame_bytes = 2 * (floor.unit_format.output_rate_hz * FRAME_MS // 1000)
        self._said_bytes = 0
        self._closed = False
        self._left = False
        self._ending = ResponseEnded(key=self.key, status=ResponseStatus.COMPLETED)

    @classmethod
    def withdrawn(cls, floor: Floor, key: ResponseKey) -> "Response":
        """The response of a turn that was interrupted before its block was entered: its block ends at once."""
        response = cls(floor, key)
        response._closed = True
        response.over.set()
        response.scope.cancel(reason="withdrawn")
        return response

    def opened(self) -> None:
        """The plugin has entered the block."""
        self._floor.learn(ResponseOpened(self.key))

    # --- what the plugin says -----------------------------------------------------------------------------------

    async def audio(self, pcm: bytes, *, text: str = "", mark: TextMark | None = None) -> None:
        """Say `pcm` with its words; returns once it is within the lead of being due."""
        parts = cut_speech(pcm, text, self._frame_bytes)
        for index, (frame, words) in enumerate(parts):
            await self._playout.until_due()
            await self._check_room(words)
            aligned = self._playout.advance(frame, words)
            exact = mark if mark is not None and index == len(parts) - 1 else aligned
            self._floor.learn(ResponseAudio(self.key, frame, words, exact))
            await trio.lowlevel.cancel_shielded_checkpoint()

    async def text(self, delta: str) -> None:
        """Transcript (or text) without sound."""
        await self._check_room(delta)
        self._playout.advance(b"", delta)
        self._floor.learn(ResponseText(self.key, delta))
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def played_out(self) -> None:
        """Wait until a listener who plays at pace has heard everything; at once for a plugin that does not pace."""
        await self._check()
        await self._playout.until_played()

    async def call(self, function: FunctionCall) -> None:
        """Ask the client to call a function."""
        await self._check_room(function.name, function.arguments, function.call_id, beside=CALL_BYTES)
        self._floor.learn(FunctionCalled(function, self.key))
        await trio.lowlevel.cancel_shielded_checkpoint()

    def yields(self, reason: str = "model_listen") -> None:
        """The answer ends because the model decided to listen."""
        if self._may_conclude():
            self._ending = attrs.evolve(self._ending, yielded=True, listen_reason=reason)

    def finish(self, reason: str = "stop", usage: Usage | None = None) -> None:
        """Why the answer ends, and what it cost."""
        if self._may_conclude():
            self._ending = attrs.evolve(self._ending, reason=reason, usage=usage or self._ending.usage)

    def _may_conclude(self) -> bool:
        if self._left:
            raise ResponseOver("this response has ended")
        return not self._closed  # cut, and its code has not noticed yet: the last word is not its own any more

    async def _check(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._closed:
            raise ResponseOver("this response has ended")

    async def _check_room(self, *words: str, beside: int = 0) -> None:
        """An answer ends before the first words that would not fit into its last event."""
        await self._check()
        self._said_bytes += beside + sum(len(dumps(text)) for text in words if text)
        if self._said_bytes > ANSWER_BYTES:
            self.cut("max_output_tokens", ResponseStatus.INCOMPLETE)
            await self._check()

    # --- how it ends --------------------------------------------------------------------------------------------

    async def end(self, reason: str, status: ResponseStatus = ResponseStatus.CANCELLED) -> None:
        """Leave the block now and wait until its last word is said. Takes no time on the clock."""
        self.cut(reason, status)
        await self.over.wait()

    def cut(self, reason: str, status: ResponseStatus = ResponseStatus.CANCELLED) -> None:
        """Order the block to be left, without waiting: for `end`, and for code that runs inside the block."""
        self._close(status, reason)
        self.scope.cancel(reason=reason)

    def overlong(self) -> None:
        """The time for an answer was up: it ends with what it has, unless it had been cut before."""
        self._close(ResponseStatus.INCOMPLETE, "max_output_tokens")

    def failed(self, error: BaseException) -> None:
        """The plugin's code raised: the answer ends as failed, unless it had been cut before."""
        code, message = failure(error)
        self._close(ResponseStatus.FAILED, code, message)

    def abandoned(self) -> None:
        """The plugin's code was cancelled, but not by us: it gave the answer up. Unless it had been cut before."""
        self._close(ResponseStatus.FAILED, "internal_error", "the model gave this answer up")

    def conclude(self) -> None:
        """Append the terminal, exactly once."""
        self._closed = self._left = True
        if not self.over.is_set():
            self._floor.learn(self._ending)
            self.over.set()

    def _close(self, status: ResponseStatus, reason: str, message: str = "") -> None:
        if not self._closed:
            self._closed = True
            self._ending = attrs.evolve(self._ending, status=status, reason=reason, message=message, yielded=False)


def failure(error: BaseException) -> tuple[str, str]:
    """The wire's error code, and words for the client, for what a plugin's code raised."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, CodedError):
        return error.code, error.message
    if isinstance(error, LeaseLost | StepFailed):
        return "engine_error", str(error)
    return "internal_error", f"the model's code failed with {type(error).__name__}"
