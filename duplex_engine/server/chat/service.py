"""`POST /v1/chat/completions`: the HTTP around a chat answer.

Owns who may ask, what of a request is read when, and that a client who is gone ends the work for it at once. Never knows
what an answer is made of.
"""

import math
from enum import Enum
from functools import partial
from typing import Final

import structlog
import trio

from duplex_engine.actors.supervisor import contain
from duplex_engine.protocol.wire_json import dumps
from duplex_engine.server.chat.answer import Piece
from duplex_engine.server.chat.chunks import Chunks
from duplex_engine.server.chat.head import Head
from duplex_engine.server.chat.refusal import RETRY_AFTER_S, ChatRefused
from duplex_engine.server.chat.request import ChatRequest, read_request
from duplex_engine.server.chat.talk import answer
from duplex_engine.server.chat.whole import Whole
from duplex_engine.server.http1 import BodyRefused, Headers, HttpConnection, Request
from duplex_engine.server.reception import Reception
from duplex_engine.server.routes import is_admitted

CHAT_PATH: Final = "/v1/chat/completions"
EVENT_STREAM: Final = "text/event-stream; charset=utf-8"
STREAM_HEADERS: Final[Headers] = ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))
JSON_TYPE: Final = "application/json"

log = structlog.get_logger()


class Outcome(Enum):
    """What became of a chat request; the value is its label in the figures."""

    COMPLETED = "completed"
    REFUSED = "refused"
    FAILED = "failed"
    CLIENT_GONE = "client_gone"


async def serve_chat(reception: Reception, http: HttpConnection, request: Request) -> None:
    """Answer one request on its connection, in whole or as a stream, and count it."""
    outcome = Outcome.FAILED
    try:
        outcome = await _serve(reception, http, request)
    finally:
        reception.metrics.count_chat(outcome.value)


async def _serve(reception: Reception, http: HttpConnection, request: Request) -> Outcome:
    try:
        _admit(reception, request)
        asked = read_request(await _body(http))
        _check_model(reception, asked)
    except ChatRefused as refused:
        return await _refuse(http, refused)
    return await _Exchange(reception, http, asked).run()


# --- before the answer -------------------------------------------------------------------------------------------


def _admit(reception: Reception, request: Request) -> None:
    """Everything that can be seen without the body. Raises ChatRefused."""
    if not is_admitted(reception, request):
        raise ChatRefused(401, "no key, or a wrong one; send Authorization: Bearer KEY", code="invalid_api_key")
    if not reception.engine.capabilities.chat:
        name = reception.engine.model_name
        message = f"{name} offers no chat completions; talk to it over a WebSocket at /v1/realtime"
        raise ChatRefused(404, message, code="chat_not_offered")
    if request.method != "POST":
        raise ChatRefused(405, f"{request.method} is not answered here; use POST", code="method_not_allowed")
    kind = (request.header("content-type") or "").partition(";")[0].strip().lower()
    if kind != JSON_TYPE:
        message = f"the body must be JSON; send Content-Type: {JSON_TYPE}, not {kind[:60] or 'none'}"
        raise ChatRefused(415, message, code="unsupported_media_type")
    reason = reception.why_not_ready
    if reason is not None:
        raise ChatRefused(503, f"the server is {reason}; try again in a moment", code=MOODS[reason])


MOODS: Final = {"shutting down": "draining", "warming up": "warming_up", "recovering": "warming_up"}
"""Why nobody can be answered, as error codes."""


async def _body(http: HttpConnection) -> bytes:
    try:
        return await http.read_body()
    except BodyRefused as refused:
        raise ChatRefused(refused.status, refused.message, code=BODY_CODES.get(refused.status)) from None


BODY_CODES: Final = {413: "request_too_large", 408: "request_timeout", 400: "invalid_request"}


def _check_model(reception: Reception, asked: ChatRequest) -> None:
    engine = reception.engine
    if engine.config.strict_model_names and asked.model not in (None, engine.model_name):
        message = f"the model {asked.model!r} is not served here; served: {engine.model_name}"
        raise ChatRefused(404, message, "model", "model_not_found")
    if asked.tools and not engine.capabilities.tools:
        raise ChatRefused(400, f"{engine.model_name} calls no functions; leave tools out", "tools", "unsupported_value")


async def _refuse(http: HttpConnection, refused: ChatRefused) -> Outcome:
    headers = [*REFUSAL_HEADERS.get(refused.status, ())]
    if refused.retryable:
        headers.append((b"retry-after", b"%d" % RETRY_AFTER_S))
    await http.respond(refused.status, dumps(refused.to_wire()), headers=headers)
    log.info("chat_refused", status=refused.status, code=refused.code, param=refused.param)
    return Outcome.FAILED if refused.status >= 500 else Outcome.REFUSED


REFUSAL_HEADERS: Final = {401: ((b"www-authenticate", b"Bearer"),), 405: ((b"allow", b"POST"),)}


# --- the answer --------------------------------------------------------------------------------------------------


class _Exchange:
    """One request that is being answered."""

    def __init__(self, reception: Reception, http: HttpConnection, asked: ChatRequest) -> None:
        head = Head(asked.model or reception.engine.model_name)
        self._reception = reception
        self._http = http
        self._asked = asked
        self._whole = Whole(head, wav=asked.wav)
        self._chunks = Chunks(head, speaks=asked.speaks, usage=asked.include_usage)
        self._began = False
        self._gone = False
        self._scope = trio.CancelScope()

    async def run(self) -> Outcome:
        """Answer, unless the client goes away; if the server does, say so."""
        outcome: Outcome | None = None
        try:
            outcome = await self._answer()
            return outcome
        finally:
            if outcome is None and trio.current_effective_deadline() == -math.inf:
                with trio.CancelScope(shield=True):  # each write has its own deadline
                    await self._conclude(self._obituary())

    async def _answer(self) -> Outcome:
        problem: Exception | None = None
        async with trio.open_nursery() as nursery:
            self._scope = nursery.cancel_scope
            nursery.start_soon(self._watch)
            say = self._stream if self._asked.stream else self._collect
            problem = await contain(partial(answer, self._reception.engine, self._asked, say))
            nursery.cancel_scope.cancel(reason="answered")
        if self._gone:
            log.info("chat_client_left")
            return Outcome.CLIENT_GONE
        return await self._conclude(problem)

    async def _watch(self) -> None:
        await self._http.until_gone()
        self._leave()

    def _leave(self) -> None:
        self._gone = True
        self._scope.cancel(reason="client gone")

    async def _collect(self, piece: Piece) -> None:
        self._whole.add(piece)

    async def _stream(self, piece: Piece) -> None:
        lines = self._chunks.lines(piece)
        there = True
        if not self._began:
            self._began = True
            there = await self._http.begin(200, EVENT_STREAM, STREAM_HEADERS)
            lines = self._chunks.opening() + lines
        if not there or (lines and not await self._http.send_part(lines)):
            self._leave()
            await trio.lowlevel.checkpoint()

    def _obituary(self) -> ChatRefused:
        if self._reception.engine_died:
            return ChatRefused(503, "the engine has failed; ask again in a while", code="engine_dead")
        return ChatRefused(503, "the server is shutting down", code="draining")

    async def _conclude(self, problem: Exception | None) -> Outcome:
        """The last words: the object, the end of the stream, or why there is no answer."""
        if problem is not None and not isinstance(problem, ChatRefused):
            log.error("chat_crashed", exc_info=problem)
            problem = ChatRefused(500, "the request could not be answered", code="internal_error")
        if self._began:
            if problem is not None:
                log.warning("chat_broken_off", code=problem.code, message=problem.message)
                await self._http.send_part(self._chunks.error(problem))
            await self._http.end()
            return Outcome.COMPLETED if problem is None else Outcome.FAILED
        if problem is not None:
            return await _refuse(self._http, problem)
        await self._http.respond(200, dumps(self._whole.completion()))
        return Outcome.COMPLETED
