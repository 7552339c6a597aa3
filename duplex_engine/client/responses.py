"""Responses, one object each: what the model decided, says and said.

Owns the sorting of server events into response handles and the moment a handle is announced. Never sends anything and
never waits: events go in, handles come out of a bounded queue.
"""

import trio

from duplex_engine.client.config import AudioFormat
from duplex_engine.client.events import (
    AudioDelta,
    DuplexEvent,
    ErrorEvent,
    ListenDecision,
    ResponseCreated,
    ResponseDone,
    SpeakDecision,
    TextDelta,
    TranscriptDelta,
)
from duplex_engine.client.streams import DropOldest, Ending, Stream

__all__ = ["ResponseBook", "ResponseHandle"]

_OVER = Ending("the response is over")


class ResponseHandle:
    """One response, from `response.created` to its end.

    `decision` is "speak" or "listen" once the handle is announced. `transcript` and `text` grow while it runs.
    `played_ms` is how much audio was taken from `audio()`, in milliseconds: what to acknowledge as played.
    """

    def __init__(
        self,
        *,
        response_id: str | None,
        output_format: AudioFormat,
        decision: str | None = None,
        created_event: ResponseCreated | None = None,
    ) -> None:
        self.response_id = response_id
        self.decision = decision
        self.transcript = ""
        self.text = ""
        self.played_ms = 0.0
        self.created_event = created_event
        self.done_event: DuplexEvent | None = None
        self._output_format = output_format
        self._chunks: DropOldest[tuple[bytes, int | None]] = DropOldest()
        self._done = trio.Event()

    @property
    def item_id(self) -> str | None:
        """The conversation item that holds this answer."""
        return None if self.response_id is None else f"item_{self.response_id}"

    @property
    def finished(self) -> bool:
        """Whether nothing more will come."""
        return self._done.is_set()

    @property
    def status(self) -> str:
        """`in_progress`, `completed`, `cancelled`, `failed`, `listening`; `incomplete` if the session ended first."""
        if self.done_event is None:
            return "incomplete" if self.finished else "in_progress"
        response = self.done_event.raw.get("response")
        status = response.get("status") if isinstance(response, dict) else None
        return status if isinstance(status, str) else "completed"

    async def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the end. Raises TimeoutError after `timeout_s` seconds."""
        with trio.move_on_after(float("inf") if timeout_s is None else timeout_s) as patience:
            await self._done.wait()
        if patience.cancelled_caught:
            raise TimeoutError(f"response {self.response_id} was not over after {timeout_s} s")

    def audio(self) -> Stream[bytes]:
        """The audio as it arrives: decoded chunks in the session's output encoding, until the response is over.

        All streams of one handle share its queue of 1024 chunks; `close` gives the rest of the audio up.
        """
        return Stream(self._chunks, self._take_chunk, self._give_up_audio)

    def _learn(self, event: DuplexEvent) -> None:
        match event:
            case AudioDelta():
                if chunk := event.audio:
                    self._chunks.put((chunk, event.sample_rate_hz))
            case TranscriptDelta():
                self.transcript += event.text or ""
            case TextDelta():
                self.text += event.text or ""

    async def _take_chunk(self) -> bytes:
        chunk, sample_rate_hz = await self._chunks.get()
        rate = sample_rate_hz or self._output_format.sample_rate_hz
        self.played_ms += len(chunk) * 1000 / (rate * self._output_format.bytes_per_sample)
        return chunk

    def _give_up_audio(self) -> None:
        self._chunks.end(_OVER)
        self._chunks.discard()

    def _finish(self, event: DuplexEvent | None) -> None:
        if not self.finished:
            self.done_event = event
            self._done.set()
            self._chunks.end(_OVER)


class ResponseBook:
    """The responses of one session.

    `announced` is the queue behind `DuplexClient.responses()`: each handle once, when its decision is known, and each
    `error` event as a failure. `open_unknown`: also follow responses whose start was not seen, as after a hand-over.
    """

    def __init__(self, output_format: AudioFormat, *, open_unknown: bool = False) -> None:
        self.announced: DropOldest[ResponseHandle] = DropOldest()
        self._output_format = output_format
        self._open_unknown = open_unknown
        self._running: dict[str, ResponseHandle] = {}
        self._unannounced: set[str] = set()

    def learn(self, event: DuplexEvent) -> None:
        """Sort one event in."""
        match event:
            case ResponseCreated():
                self._open(event.response_id, event)
            case AudioDelta() | TranscriptDelta() | TextDelta() | SpeakDecision():
                self._continue(event)
            case ListenDecision():
                self._listen(event)
            case ResponseDone():
                self._close(event)
            case ErrorEvent():
                self.announced.fail(event.to_exception())

    def end(self, ending: Ending) -> None:
        """The session is over: finish what runs, end the queue."""
        for handle in self._running.values():
            handle._finish(None)
        self._running.clear()
        self._unannounced.clear()
        self.announced.end(ending)

    def _open(self, response_id: str | None, created: ResponseCreated | None) -> None:
        if response_id and response_id not in self._running:
            self._running[response_id] = ResponseHandle(
                response_id=response_id, output_format=self._output_format, created_event=created
            )
            self._unannounced.add(response_id)

    def _continue(self, event: DuplexEvent) -> None:
        response_id = event.response_id or ""
        if self._open_unknown:
            self._open(response_id, None)
        handle = self._running.get(response_id)
        if handle is not None:
            handle.decision = "speak"
            handle._learn(event)
            self._announce(response_id, handle)

    def _listen(self, event: ListenDecision) -> None:
        response_id = event.response_id or ""
        handle = self._running.pop(response_id, None)
        if handle is None:
            # Standalone: nothing ends, but a turn loop sees the decision like any other.
            handle = ResponseHandle(response_id=event.response_id, output_format=self._output_format, decision="listen")
            handle._finish(event)
            self.announced.put(handle)
            return
        handle.decision = handle.decision or "listen"
        handle._finish(event)
        self._announce(response_id, handle)

    def _close(self, event: ResponseDone) -> None:
        response_id = event.response_id or ""
        handle = self._running.pop(response_id, None)
        if handle is not None:
            handle.decision = handle.decision or "speak"
            handle._finish(event)
            self._announce(response_id, handle)

    def _announce(self, response_id: str, handle: ResponseHandle) -> None:
        if response_id in self._unannounced:
            self._unannounced.discard(response_id)
            self.announced.put(handle)
