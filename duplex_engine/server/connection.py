"""One client connection, from its first byte to its last: HTTP requests, and perhaps a WebSocket in the end.

Owns the crash containment of a connection. Never looks into a message: a WebSocket is a `Call` (`call.py`), a chat
request is served by `chat/service.py`, plain pages are in `routes.py`.
"""

from functools import partial

import structlog
import trio
from trio_websocket import ConnectionClosed

from duplex_engine.actors.supervisor import contain
from duplex_engine.errors import ProtocolViolation, TransportStalled
from duplex_engine.protocol.handshake import pick_subprotocol
from duplex_engine.server.call import Call
from duplex_engine.server.chat.service import CHAT_PATH, serve_chat
from duplex_engine.server.http1 import HttpConnection, HttpLimits, Request
from duplex_engine.server.reception import Reception
from duplex_engine.server.routes import Answer, answer, refuse_upgrade
from duplex_engine.server.transport import accept_websocket

log = structlog.get_logger()


async def receive_caller(reception: Reception, stream: trio.abc.Stream) -> None:
    """Serve one connection to its end. Whatever goes wrong in it stays in it; only cancellation passes."""
    try:
        if reception.full:
            reception.metrics.refuse("too_many_connections")
            return
        with reception.visit():
            crash = await contain(partial(_answer_requests, reception, stream))
        if crash is not None:
            log.error("connection_crashed", exc_info=crash)
    finally:
        await trio.aclose_forcefully(stream)


async def _answer_requests(reception: Reception, stream: trio.abc.Stream) -> None:
    config = reception.config
    http = HttpConnection(stream, HttpLimits(read_s=config.head_timeout_s, write_s=config.write_deadline_s))
    while (request := await http.next_request()) is not None:
        if request.wants_websocket:
            reply = refuse_upgrade(reception, request) or await _become_websocket(reception, stream, request)
        elif request.path == CHAT_PATH:
            await serve_chat(reception, http, request)
            continue
        else:
            reply = answer(reception, request)
        if reply is None:
            return
        log.debug("answered", method=request.method, path=request.path, status=reply.status)
        await http.respond(reply.status, reply.body, content_type=reply.content_type, headers=reply.headers)
    await stream.aclose()


async def _become_websocket(reception: Reception, stream: trio.abc.Stream, request: Request) -> Answer | None:
    """Hold a WebSocket until it ends, and return None; or, for an incorrect handshake, the answer to give."""
    upgraded = False
    try:
        async with accept_websocket(stream, request, subprotocol=pick_subprotocol(request.subprotocols)) as socket:
            upgraded = True
            await Call(reception, request, socket).run()
    except ProtocolViolation as violation:
        if upgraded:
            raise
        return Answer(400, violation.message.encode(), "text/plain")
    except (ConnectionClosed, TransportStalled):
        pass  # gone before it was answered
    return None
