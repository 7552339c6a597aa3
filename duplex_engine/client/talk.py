"""A spoken conversation held with recordings: one asks, another may talk over the answer.

Owns the microphone that never stops, the ear, and a player that plays nothing but acknowledges like one. Never touches
files or the terminal: recordings go in, a `TalkRecord` comes out.
"""

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from duplex_engine.client.client import DuplexClient
from duplex_engine.client.errors import DuplexSessionClosedError, sole_exception
from duplex_engine.client.events import SessionClosed
from duplex_engine.client.media import PCM16_BYTES_PER_SAMPLE, Clip, Pace
from duplex_engine.client.talk_record import TalkError, TalkRecord

__all__ = ["hold_conversation"]

CHUNK_MS = 20
ACKNOWLEDGE_EVERY_S = 0.2
LOOK_EVERY_S = 0.02


class Microphone:
    """Sends what is spoken, else silence, at pace: a chunk is sent when it has been spoken to its end."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]], sample_rate_hz: int) -> None:
        self._send = send
        self._chunk_bytes = sample_rate_hz * CHUNK_MS // 1000 * PCM16_BYTES_PER_SAMPLE
        self._speech = b""
        self._started, self._spoken = trio.Event(), trio.Event()

    async def run(self) -> None:
        """Record until the session ends."""
        pace, end_ms = Pace(), 0
        while True:
            if self._speech:
                self._started.set()
            chunk, self._speech = self._speech[: self._chunk_bytes], self._speech[self._chunk_bytes :]
            end_ms += CHUNK_MS
            await pace.until(end_ms)
            try:
                await self._send(chunk.ljust(self._chunk_bytes, b"\0"))
            except DuplexSessionClosedError:
                return  # the ear hears why
            if not self._speech:
                self._spoken.set()

    @property
    def left_s(self) -> float:
        """Seconds of the recording that are still to be spoken, to a chunk."""
        return len(self._speech) / self._chunk_bytes * CHUNK_MS / 1000

    async def say(self, clip: Clip, begin: Callable[[], None]) -> None:
        """Speak a recording; `begin` is called when its first sample is due. Returns when all of it has been sent."""
        self._started, self._spoken = trio.Event(), trio.Event()
        self._speech = clip.pcm16
        await self._started.wait()
        begin()
        await self._spoken.wait()


class _Talk:
    def __init__(self, client: DuplexClient, sample_rate_hz: int) -> None:
        self.record = TalkRecord()
        self.microphone = Microphone(client.append_audio, sample_rate_hz)
        self.awaited = "the end of the question"
        self._client = client
        self._acknowledge_now = trio.Event()

    async def ask(self, clip: Clip) -> None:
        """Speak a recording."""
        await self.microphone.say(clip, lambda: self.record.begin(clip, trio.current_time()))

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something that sound and clock decide together."""
        self.awaited = what
        while not condition():  # noqa: ASYNC110  a playing position has no event to wait for
            await trio.sleep(LOOK_EVERY_S)

    def answered(self) -> bool:
        """Whether the latest utterance has its answer, played to the end."""
        return self.record.answered(trio.current_time())

    def heard(self, seconds: float) -> bool:
        """Whether that much of the running answer was heard, or all of it."""
        return self.record.heard_ms(trio.current_time()) >= max(1.0, seconds * 1000) or self.answered()

    async def listen(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Take in every event; the session must not end before the talk does."""
        with self._client.events() as events:
            task_status.started()
            async for event in events:
                if isinstance(event, SessionClosed):
                    raise TalkError(f"the server closed the session: {event.raw.get('reason')}")
                now_s = trio.current_time()
                self.record.learn(event, now_s)
                if any(answer.urgent(now_s) for answer in self.record.answers):
                    self._acknowledge_now.set()

    async def play(self) -> None:
        """Acknowledge as a player would: at the first sound, while it plays, and where it stops."""
        while True:
            with trio.move_on_after(ACKNOWLEDGE_EVERY_S):
                await self._acknowledge_now.wait()
            self._acknowledge_now = trio.Event()
            for answer in self.record.answers:
                position_ms = answer.unacknowledged_ms(trio.current_time())
                if position_ms is not None:
                    answer.acknowledged_ms = position_ms
                    item_id = f"item_{answer.response_id}"
                    try:
                        await self._client.ack_playback(position_ms, response_id=answer.response_id, item_id=item_id)
                    except DuplexSessionClosedError:
                        return  # the ear hears why

    async def tell(self, progress: Callable[[str], None]) -> None:
        """Say in one line what is going on, five times a second."""
        while True:
            progress(self._state())
            await trio.sleep(ACKNOWLEDGE_EVERY_S)

    def _state(self) -> str:
        now_s = trio.current_time()
        if not self.record.utterances:
            return "connected"
        words = []
        if self.microphone.left_s:
            words.append(f"speaking, {self.microphone.left_s:.1f} s left")
        running = [answer for answer in self.record.answers if answer.pcm16 and answer.stopped_s is None]
        if running and not running[-1].complete(now_s):
            heard_s = running[-1].player.position_ms(now_s) / 1000
            words.append(f"hearing the answer, {heard_s:.1f} of {running[-1].received_s:.1f} s")
        waited_s = max(0.0, now_s - self.record.utterances[-1].speech_ended_s)
        return "; ".join(words) or f"waiting for the answer, {waited_s:.1f} s"


async def hold_conversation(
    client: DuplexClient,
    question: Clip,
    *,
    interruption: Clip | None = None,
    interrupt_after_s: float = 1.0,
    timeout_s: float = 120.0,
    progress: Callable[[str], None],
) -> TalkRecord:
    """Speak `question`, then silence, until the answer is complete and played.

    With `interruption`, that is spoken over the answer after `interrupt_after_s` seconds of it were heard, and its own
    answer is waited for as well. Raises TalkError, TimeoutError naming what did not come, or the client's own errors.
    """
    talk = _Talk(client, question.sample_rate_hz)
    try:
        with trio.move_on_after(timeout_s) as patience:
            async with trio.open_nursery() as nursery:
                await nursery.start(talk.listen)
                nursery.start_soon(talk.play)
                nursery.start_soon(talk.microphone.run)
                nursery.start_soon(talk.tell, progress)
                await talk.ask(question)
                if interruption is not None:
                    await talk.until(partial(talk.heard, interrupt_after_s), "the answer to talk over")
                    await talk.ask(interruption)
                await talk.until(talk.answered, "the answer")
                nursery.cancel_scope.cancel(reason="the conversation is over")
    except BaseExceptionGroup as group:
        raise sole_exception(group) from None
    if patience.cancelled_caught:
        raise TimeoutError(f"{talk.awaited} did not come within {timeout_s:g} s")
    return talk.record
