"""`DuplexClient`: one spoken session with a duplex server.

Owns the session's public face: opening and closing it, what the program sends, and who hears which event. Recording,
playing, voice detection and resampling are the program's; connections are `reconnect.py`, responses `responses.py`.
"""

import os
import ssl
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

import attrs
import trio

from duplex_engine.client.config import DEFAULT_RECONNECT, Credentials, ReconnectPolicy, SessionConfig
from duplex_engine.client.errors import DuplexSessionClosedError, sole_exception
from duplex_engine.client.events import (
    DuplexEvent,
    ErrorEvent,
    SessionClosed,
    SessionCreated,
    SessionExpired,
    SessionUpdated,
    wrap_event,
)
from duplex_engine.client.media import Pace, VideoTrack, picture_bytes
from duplex_engine.client.reconnect import Link
from duplex_engine.client.responses import ResponseBook, ResponseHandle
from duplex_engine.client.streams import DropOldest, Ending, Stream
from duplex_engine.client.transport import ConnectFn, open_stream, session_url
from duplex_engine.protocol.commands import (
    AcknowledgePlayback,
    AppendAudio,
    CancelResponse,
    ClearInput,
    CloseSession,
    CommitAudio,
    Heartbeat,
    UpdateSession,
)
from duplex_engine.protocol.encode import SentCommand, encode_command
from duplex_engine.protocol.wire_json import dumps

__all__ = ["DuplexClient"]


class DuplexClient:
    """One duplex session, open inside its `async with` block.

        async with DuplexClient("ws://127.0.0.1:8099", model="cascade") as client:
            await client.stream_pcm(pcm16)
            async for response in client.responses():
                async for chunk in response.audio():
                    ...

    `url`: server address; path and query get the defaults of a duplex session. `model`: served model, empty for the
    server's own. `reconnect`: None never resumes a lost connection. `api_key` goes into the `Authorization` header, or,
    with a `connect` of your own, into the query. `ssl_context` is for `wss` addresses.

    Entering raises DuplexConnectionError when the server cannot be reached or does not speak WebSocket,
    DuplexProtocolError when it refuses the session, TimeoutError when it does not answer. Leaving closes the session;
    leaving with an exception tells the server and does not wait for its answer.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str = "",
        config: SessionConfig | None = None,
        reconnect: ReconnectPolicy | None = DEFAULT_RECONNECT,
        heartbeat_interval_s: float | None = 30.0,
        handshake_timeout_s: float = 30.0,
        connect: ConnectFn | None = None,
        api_key: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.url = url
        self.model = model
        self.config = config or SessionConfig()
        self.session_info: Mapping[str, Any] = {}
        self._heartbeat_interval_s = heartbeat_interval_s
        self._input_end_ms = 0.0
        self._last_error: str | None = None
        self._ending: Ending | None = None
        self._ended = trio.Event()
        self._event_queues: WeakSet[DropOldest[DuplexEvent]] = WeakSet()
        self._book = ResponseBook(self.config.output_audio)
        self._stack = AsyncExitStack()
        own_transport = connect is None
        self._new_link = partial(
            Link,
            url=session_url(url, model=model, api_key=None if own_transport else api_key),
            connect=connect or partial(open_stream, ssl_context=ssl_context),
            headers=[(b"Authorization", f"Bearer {api_key}".encode())] if own_transport and api_key else [],
            policy=reconnect,
            handshake_timeout_s=handshake_timeout_s,
            deliver=self._deliver,
            on_end=self._end,
        )
        opening = UpdateSession(session=self.config.to_session_payload(model=model), event_id=_new_event_id())
        self._link = self._new_link(opening=opening, credentials=None)

    @classmethod
    def resume(cls, url: str, credentials: Credentials, **options: Any) -> Self:
        """A client that takes over the session of `credentials`; `options` are those of the constructor.

        Events after `credentials.last_server_event_seq` are delivered again. Whoever was connected is cut off. Entering
        raises DuplexProtocolError when the server refuses, DuplexConnectionError when it cannot bridge the gap.
        """
        client = cls(url, **options)
        client._link = client._new_link(opening=None, credentials=credentials)
        client._book = ResponseBook(client.config.output_audio, open_unknown=True)
        return client

    # The session

    @property
    def session_id(self) -> str | None:
        """The session's id; the server chooses it, None before it has."""
        return self._link.session_id

    @property
    def resume_token(self) -> str | None:
        """The secret for resuming; None when the session cannot be resumed."""
        return self._link.resume_token

    @property
    def credentials(self) -> Credentials | None:
        """What another process needs for `resume`; None when the session cannot be resumed."""
        if self._link.session_id is None or self._link.resume_token is None:
            return None
        return Credentials(
            session_id=self._link.session_id,
            resume_token=self._link.resume_token,
            last_server_event_seq=self._link.last_seq,
        )

    async def __aenter__(self) -> Self:
        self._stack.callback(self._end, Ending("closed"))
        nursery = await self._stack.enter_async_context(trio.open_nursery())
        self._stack.push_async_exit(partial(self._leave, nursery))
        try:
            nursery.start_soon(self._link.run)
            await self._link.wait_live()
            nursery.start_soon(self._keep_alive)
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._stack.__aexit__(exc_type, exc, traceback)
        except BaseExceptionGroup as group:
            sole = sole_exception(group)
            if sole is not exc:
                raise sole from None

    async def close(self, *, timeout_s: float = 20.0) -> None:
        """Ask the server to end the session and wait for its word, at most `timeout_s` seconds. Never raises for it."""
        if self._ending is not None:
            return
        with trio.move_on_after(timeout_s):
            try:
                await self.send(CloseSession())
            except DuplexSessionClosedError:
                return
            self._link.closing = True
            await self._ended.wait()
        self._end(Ending("close timed out"))

    # What goes in

    async def append_audio(
        self, pcm: bytes, *, is_speech: bool | None = None, video_frames: Sequence[str] | None = None
    ) -> None:
        """Append input audio in the session's input format; `commit` ends a turn, never a flag here.

        `is_speech`: your own verdict, if you have one. `video_frames`: at most two JPEG or PNG pictures as base64 or
        data URLs, belonging to the unit that this audio completes. Raises ValueError for a picture that is no base64.
        """
        audio = self.config.input_audio
        duration_ms = audio.duration_ms(len(pcm))
        append = AppendAudio(
            audio=pcm,
            encoding=audio.wire_encoding,
            sample_rate_hz=audio.sample_rate_hz,
            speech=is_speech,
            duration_ms=round(duration_ms),
            audio_end_ms=round(self._input_end_ms + duration_ms),
            video_frames=tuple(picture_bytes(frame) for frame in video_frames or ()),
        )
        self._input_end_ms += duration_ms
        await self.send(append)

    async def stream_pcm(
        self,
        pcm: bytes,
        *,
        chunk_ms: int = 200,
        realtime: bool = True,
        is_speech: bool | None = None,
        video_frames: Sequence[str] | None = None,
        stacked_video_frames: Sequence[str | None] | None = None,
    ) -> int:
        """Append `pcm` in chunks of `chunk_ms`, at speaking pace if `realtime`. Returns how many pictures were sent.

        Picture *k* of `video_frames` goes with the chunk that completes second *k*; the last one repeats when the audio
        is longer. `stacked_video_frames[k]`, where not None, follows its picture as the second one.
        """
        audio = self.config.input_audio
        chunk_bytes = max(audio.byte_count(chunk_ms), audio.bytes_per_sample)
        track = VideoTrack(video_frames or (), stacked_video_frames or ())
        pace = Pace()
        end_ms = 0.0
        for offset in range(0, len(pcm), chunk_bytes):
            chunk = pcm[offset : offset + chunk_bytes]
            end_ms += audio.duration_ms(len(chunk))
            await self.append_audio(chunk, is_speech=is_speech, video_frames=track.due(end_ms))
            if realtime:
                await pace.until(end_ms)
        return track.sent

    async def commit(self, *, final: bool = True, create_response: bool | None = None) -> None:
        """End the user's turn here. `create_response` asks for an answer; native models decide by themselves.

        `final` is taken for the sake of older programs and has no effect.
        """
        await self.send(CommitAudio(response_create=bool(create_response)))

    async def cancel_response(self, response_id: str | None = None) -> None:
        """Stop a response, the active one by default. With `clear_input` this is a barge-in made by the client."""
        await self.send(CancelResponse(response_id=response_id))

    async def clear_input(self) -> None:
        """Forget audio that has not been answered."""
        await self.send(ClearInput())

    async def ack_playback(
        self,
        played_ms: float,
        *,
        response_id: str | None = None,
        item_id: str | None = None,
        committed_ms: float | None = None,
    ) -> None:
        """Report how much of a response has been heard, in milliseconds from its start. Repeat it while playing."""
        acknowledgement = AcknowledgePlayback(
            played_ms=int(played_ms),
            committed_ms=int(played_ms if committed_ms is None else committed_ms),
            response_id=response_id,
            item_id=item_id,
        )
        await self.send(acknowledgement)

    async def send(self, event: Mapping[str, object] | SentCommand) -> str:
        """Send any client event, as a command or as its JSON object; returns its `event_id`, added where it has none.

        Waits through a reconnect. Raises DuplexSessionClosedError when the session is over: its branch
        DuplexSessionLostError, which is also a DuplexConnectionError, when the connection could not be kept.
        """
        event_id, message = _stamped(event)
        await self._link.send(message)
        return event_id

    # What comes out

    def __aiter__(self) -> Stream[DuplexEvent]:
        return self.events()

    def events(self) -> Stream[DuplexEvent]:
        """Every server event from now on. Up to 1024 wait; then the oldest are lost, and `lag` counts them."""
        queue = self._subscribe()
        return Stream(queue, queue.get, partial(self._unsubscribe, queue))

    def responses(self) -> Stream[ResponseHandle]:
        """The responses of the session, each once, as soon as it is known whether the model speaks or listens.

        For a single consumer. Raises DuplexProtocolError for every `error` event, because a refused request produces no
        response to wait for; iterate again to go on.
        """
        return Stream(self._book.announced, self._book.announced.get, _nothing)

    async def wait_for(self, *types: str, timeout_s: float) -> DuplexEvent:
        """The next event of one of these types.

        Raises DuplexProtocolError when an `error` event comes first, DuplexSessionClosedError when the session ends
        first, TimeoutError after `timeout_s` seconds.
        """
        queue = self._subscribe()
        with trio.move_on_after(timeout_s):
            while True:
                event = await queue.get()
                if event.type in types:
                    return event
                if isinstance(event, ErrorEvent):
                    raise event.to_exception()
        raise TimeoutError(f"no {' or '.join(types)} within {timeout_s:g} s")

    # Inside

    async def _keep_alive(self) -> None:
        if self._heartbeat_interval_s is None:
            return
        while self._ending is None:
            with trio.move_on_after(self._heartbeat_interval_s):
                await self._ended.wait()
                return
            try:
                await self.send(Heartbeat())
            except DuplexSessionClosedError:
                return

    async def _leave(
        self,
        nursery: trio.Nursery,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if exc is None:
                await self.close()
                with trio.move_on_after(1.0):
                    await self._link.over.wait()
        finally:
            nursery.cancel_scope.cancel(reason="the client's block is left")

    def _deliver(self, raw: Mapping[str, object]) -> None:
        """Take one event from the link: own view first, then responses, then subscribers. Never waits."""
        event = wrap_event(raw)
        match event:
            case SessionCreated() | SessionUpdated():
                self.session_info = event.session or self.session_info
            case ErrorEvent():
                self._last_error = f"{event.code}: {event.message}" if event.code else event.message
        self._book.learn(event)
        for queue in list(self._event_queues):
            queue.put(event)
        match event:
            case SessionClosed():
                after = f", after {self._last_error}" if self._last_error else ""
                self._end(Ending(f"{raw.get('reason') or 'closed'}{after}"))
            case SessionExpired():
                self._end(Ending(f"expired: {raw.get('reason') or 'no reason given'}", expected=False))

    def _end(self, ending: Ending) -> None:
        if self._ending is not None:
            return
        self._ending = ending
        self._ended.set()
        self._link.end(ending)
        self._book.end(ending)
        for queue in list(self._event_queues):
            queue.end(ending)

    def _subscribe(self) -> DropOldest[DuplexEvent]:
        queue: DropOldest[DuplexEvent] = DropOldest()
        if self._ending is not None:
            queue.end(self._ending)
        self._event_queues.add(queue)
        return queue

    def _unsubscribe(self, queue: DropOldest[DuplexEvent]) -> None:
        self._event_queues.discard(queue)
        queue.end(Ending("the stream was closed"))
        queue.discard()


def _new_event_id() -> str:
    return f"evt_{os.urandom(16).hex()}"


def _stamped(event: Mapping[str, object] | SentCommand) -> tuple[str, str]:
    """The id and the text of a client event, with an id of ours unless it has one."""
    if isinstance(event, Mapping):
        event_id = str(event.get("event_id") or _new_event_id())
        return event_id, dumps({**event, "event_id": event_id}).decode()
    event_id = event.event_id or _new_event_id()
    return event_id, encode_command(attrs.evolve(event, event_id=event_id)).decode()


def _nothing() -> None:
    """Closing a response stream releases nothing: the queue belongs to the session."""
