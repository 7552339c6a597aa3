"""A chat request as a short session: what was said before is laid out, an answer is asked for, its pieces handed on.

Owns the order of commands and what is waited for. Never touches HTTP.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import attrs

from duplex_engine.engine import EmbeddedSession, Engine, EventStream
from duplex_engine.errors import CodedError, SessionGone
from duplex_engine.protocol.commands import CancelResponse, ClientCommand, CreateItem, CreateResponse, ResponseOptions
from duplex_engine.protocol.events import (
    ErrorEvent,
    InputCommitted,
    ItemDone,
    ResponseDone,
    ServerEvent,
    TranscriptionCompleted,
)
from duplex_engine.protocol.session_config import Profile
from duplex_engine.server.chat.answer import AnswerReader, Ended, Piece
from duplex_engine.server.chat.messages import Line
from duplex_engine.server.chat.refusal import ChatRefused, refused
from duplex_engine.server.chat.request import ChatRequest

ASK: Final = "answer"
"""Names our own `response.create` in the errors of the session."""
RECOGNISE: Final = ResponseOptions(modalities=("text",), in_history=False, max_response_output_tokens=1)
WAITING_BYTES: Final = 16 * 1024 * 1024
"""Of an answer that its client does not read as fast as it is given."""

Say = Callable[[Piece], Awaitable[None]]


async def answer(engine: Engine, request: ChatRequest, say: Say) -> None:
    """Answer in a session of its own, handing each piece to `say`, the last one (`Ended`) when its seat is free again.

    Raises ChatRefused, before the first piece or in the middle.
    """
    try:
        async with engine.open_session(request.session, profile=Profile.GA, paced=False) as session:
            with session.events() as events:
                ended = await _Talk(session, events).hold(request, say)
    except CodedError as error:
        raise refused(error) from None
    except SessionGone:
        raise _over() from None
    await say(ended)


def _over() -> ChatRefused:
    return ChatRefused(503, "the session ended before its answer did; ask again in a moment", code="session_closed")


class _Talk:
    """The commands and the events of one session."""

    def __init__(self, session: EmbeddedSession, events: EventStream) -> None:
        self._session = session
        self._events = events

    async def hold(self, request: ChatRequest, say: Say) -> Ended:
        lines = request.conversation.lines
        says = [await self._lay_out(line) for line in lines]
        new = [says_it for line, says_it in zip(lines, says, strict=True) if not line.answered]
        if new and not any(new):
            raise ChatRefused(400, "there is nothing to answer: nobody speaks in the sound", "messages", "nothing_said")
        return await self._ask(say)

    async def _lay_out(self, line: Line) -> bool:
        """Put the items of a message in; whether it says anything."""
        says, last_heard = False, None
        for item in line.items:
            if await self._create(attrs.evolve(item, event_id=line.param)):
                last_heard = item
            says = says or len(item.audio) < _length(item)
        if last_heard is not None and line.answered:
            await self._recognise(last_heard, line.param)
        return says or last_heard is not None

    async def _create(self, item: CreateItem) -> bool:
        """Put an item in, and wait until it is there; whether it is sound in which something can be heard.

        Raises ChatRefused when the session does not take it.
        """
        self._session.send(item)
        heard = False
        while True:
            match await self._next(item):
                case InputCommitted(item_id=item_id) if item_id == item.item["id"]:
                    heard = True
                case ItemDone(item=done) if done["id"] == item.item["id"]:
                    return heard

    async def _recognise(self, last: CreateItem, param: str) -> None:
        """Have sound that was answered long ago turned into words: only they belong to what was said before.

        Whatever waits is heard as one when an answer is asked for, and its words are those of the `last` item. So one is
        asked for here, and stopped as soon as the words are known.
        """
        ask = CreateResponse(options=RECOGNISE, event_id=param)
        self._session.send(ask)
        stopped = False
        while True:
            match await self._next(ask):
                case TranscriptionCompleted(item_id=item_id) if item_id == last.item["id"] and not stopped:
                    stopped = True
                    self._session.send(CancelResponse())
                case ResponseDone():
                    return

    async def _ask(self, say: Say) -> Ended:
        self._session.send(CreateResponse(event_id=ASK))
        reader = AnswerReader(ASK)
        async for event in self._events:
            piece = reader.read(event)
            if piece is not None:
                await say(piece)
                self._check_pace()
            if reader.ended is not None and not self._events.ready:
                return reader.ended
        raise _over()

    async def _next(self, command: ClientCommand) -> ServerEvent:
        """The next event. Raises ChatRefused when it says that `command` was refused, or there is none."""
        async for event in self._events:
            if isinstance(event, ErrorEvent) and event.error.event_id == command.event_id:
                raise refused(CodedError(event.error.code, event.error.message), command.event_id)
            return event
        raise _over()

    def _check_pace(self) -> None:
        if self._events.waiting_bytes > WAITING_BYTES:
            raise ChatRefused(503, "the answer is not being read; read faster", code="output_overflow")


def _length(item: CreateItem) -> int:
    """Parts of a message; anything else counts as one."""
    content = item.item.get("content")
    return len(content) if isinstance(content, Sequence) else 1
