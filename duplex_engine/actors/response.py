"""The response scope: one answer, from its opening to exactly one terminal.

Owns the cancel scope of an answer and how it ended. The terminal is a synchronous append in a `finally`, so it cannot be
lost; everything the answer says goes through check, act, yield, so nothing can be said after it was ended. Never decides
to end itself: plugins leave the block, the session calls `end`.
"""

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


class Response:
    """One answer. `scope` is the block of the plugin's code, `over` is set when its terminal has been appended."""

    def __init__(self, floor: Floor, key: ResponseKey | None = None) -> None:
        self.scope = trio.CancelScope()
        self.over = trio.Event()
        self.key: ResponseKey = self if key is None else key
        self._floor = floor
        self._playout = Playout(floor.unit_format.output_rate_hz, floor.lead_s)
        self._frame_bytes = 2 * floor.unit_format.output_rate_hz * FRAME_MS // 1000
        self._closed = False
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
            await self._check()
            aligned = self._playout.advance(frame, words)
            exact = mark if mark is not None and index == len(parts) - 1 else aligned
            self._floor.learn(ResponseAudio(self.key, frame, words, exact))
            await trio.lowlevel.cancel_shielded_checkpoint()

    async def text(self, delta: str) -> None:
        """Transcript (or text) without sound."""
        await self._check()
        self._playout.advance(b"", delta)
        self._floor.learn(ResponseText(self.key, delta))
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def call(self, function: FunctionCall) -> None:
        """Ask the client to call a function."""
        await self._check()
        self._floor.learn(FunctionCalled(function))
        await trio.lowlevel.cancel_shielded_checkpoint()

    def yields(self, reason: str = "model_listen") -> None:
        """The answer ends because the model decided to listen."""
        self._conclude_as(ResponseStatus.COMPLETED, self._ending.reason, yielded=True, listen_reason=reason)

    def finish(self, reason: str = "stop", usage: Usage | None = None) -> None:
        """Why the answer ends, and what it cost."""
        self._conclude_as(self._ending.status, reason, usage=usage or self._ending.usage)

    async def _check(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._closed:
            raise ResponseOver("this response has ended")

    # --- how it ends --------------------------------------------------------------------------------------------

    async def end(self, reason: str, status: ResponseStatus = ResponseStatus.CANCELLED) -> None:
        """Leave the block now and wait until its last word is said. Takes no time on the clock."""
        self.cut(reason, status)
        await self.over.wait()

    def cut(self, reason: str, status: ResponseStatus = ResponseStatus.CANCELLED) -> None:
        """Order the block to be left, without waiting: for `end`, and for code that runs inside the block."""
        if not self._closed:
            self._conclude_as(status, reason)
            self._closed = True
        self.scope.cancel(reason=reason)

    def failed(self, error: Exception) -> None:
        """The plugin's code raised: the answer ends as failed, unless it had been cut before."""
        if not self._closed:
            self._conclude_as(ResponseStatus.FAILED, failure_code(error), message=str(error))
            self._closed = True

    def outlived(self, reason: str) -> None:
        """The epoch around it is being left: the answer ends as cancelled, unless it had been cut before."""
        if not self._closed:
            self._conclude_as(ResponseStatus.CANCELLED, reason)
            self._closed = True

    def conclude(self) -> None:
        """Append the terminal, exactly once."""
        self._closed = True
        if not self.over.is_set():
            self._floor.learn(self._ending)
            self.over.set()

    def _conclude_as(
        self,
        status: ResponseStatus,
        reason: str,
        *,
        message: str = "",
        yielded: bool = False,
        listen_reason: str = "model_listen",
        usage: Usage | None = None,
    ) -> None:
        self._ending = ResponseEnded(
            key=self.key,
            status=status,
            reason=reason,
            message=message,
            yielded=yielded,
            listen_reason=listen_reason,
            usage=usage or self._ending.usage,
        )


def failure_code(error: Exception) -> str:
    """The wire's error code for what a plugin's code raised."""
    if isinstance(error, ExceptionGroup):
        return failure_code(error.exceptions[0])
    if isinstance(error, CodedError):
        return error.code
    return "engine_error" if isinstance(error, LeaseLost | StepFailed) else "internal_error"
