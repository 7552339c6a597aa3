"""One client behind a WebSocket: how its session is opened, and what it is told when it has to go.

Owns the clock of the handshake, the greeting and the close frames (wire contract 2.1, 2.3, 4.8, D-04, D-37). Never ends a
session: one whose client is gone ends by itself, because nobody is attached any more.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

import structlog
import trio
from trio_websocket import ConnectionClosed

from duplex_engine.actors.handle import SessionHandle
from duplex_engine.actors.supervisor import contain
from duplex_engine.errors import CodedError, ProtocolViolation, TransportStalled
from duplex_engine.protocol.codec import decode_command, encode_event
from duplex_engine.protocol.errors import error_event
from duplex_engine.protocol.events import ServerEvent, SessionClosed, SessionCreated
from duplex_engine.protocol.handshake import (
    FIRST_FRAME_S,
    Complain,
    Deliver,
    FlatRefusal,
    Handshake,
    Open,
    Refuse,
    choose_profile,
)
from duplex_engine.protocol.ids import EventIds
from duplex_engine.protocol.session_config import Profile
from duplex_engine.server.http1 import Request
from duplex_engine.server.pump import Outcome, Pump, text_of
from duplex_engine.server.reception import Reception
from duplex_engine.server.transport import FrameSocket

NORMAL, GOING_AWAY, POLICY_VIOLATION, INTERNAL_ERROR = 1000, 1001, 1008, 1011
CLOSE_REASON_BYTES: Final = 123

log = structlog.get_logger()


class Call:
    """A client behind a WebSocket: opening, conversation, farewell."""

    def __init__(self, reception: Reception, request: Request, socket: FrameSocket) -> None:
        self._reception = reception
        self._request = request
        self._socket = socket
        self._handshake = Handshake(request.query, resumable=False)
        self._session: SessionHandle | None = None
        self._event_ids = EventIds()
        self._write_deadline_s = reception.config.write_deadline_s

    async def run(self) -> None:
        """Live until the client is gone, or was told why it has to go."""
        try:
            await self._live()
        except (ConnectionClosed, TransportStalled):
            pass  # gone: there is nobody to tell
        finally:
            self._handshake.closed()
            if trio.current_effective_deadline() == -math.inf:
                await self._say_why_cancelled()

    async def _live(self) -> None:
        profile = choose_profile(self._request.path, self._request.query)
        if isinstance(profile, FlatRefusal):
            await self._turn_away(profile.frame(), profile.close_code, profile.code)
            return
        opening = self._handshake.begin() or await self._hear_first()
        refusal = await self._open(opening, profile) if isinstance(opening, Open) else opening
        if refusal is not None:
            await self._refuse(refusal)
        elif self._session is not None and isinstance(opening, Open):
            await self._converse(self._session, opening.then)

    # --- opening --------------------------------------------------------------------------------------------------

    async def _hear_first(self) -> Open | Refuse:
        with trio.move_on_after(FIRST_FRAME_S):
            message = await self._socket.receive()
            try:
                action = self._handshake.receive(decode_command(text_of(message)))
            except ProtocolViolation as violation:
                action = self._handshake.reject(violation)
            assert isinstance(action, Open | Refuse), f"a first frame led to {action}"
            return action
        return self._handshake.time_out()

    async def _open(self, opening: Open, profile: Profile) -> Refuse | None:
        """Open the session; what to refuse the client with when that is impossible."""
        problem = await contain(lambda: self._start_session(opening.session, profile))
        if problem is None:
            self._handshake.opened()
            return None
        if not isinstance(problem, CodedError):
            log.error("opening_failed", exc_info=problem)
            problem = CodedError("internal_error", "the session could not be opened")
        return self._handshake.refused(problem)

    async def _start_session(self, session: Mapping[str, object], profile: Profile) -> None:
        self._session = await self._reception.engine.start_session(session, profile=profile)

    # --- conversation ---------------------------------------------------------------------------------------------

    async def _converse(self, session: SessionHandle, first: Deliver | Complain | None) -> None:
        told = log.bind(session_id=session.id)
        told.info("session_opened", model=session.config.model, profile=session.config.profile.value)
        outcome = Outcome.SOCKET_LOST
        with session.attach() as guest:
            pump = Pump(
                self._socket,
                guest,
                self._handshake,
                idle_s=session.config.idle_timeout_s,
                write_deadline_s=self._write_deadline_s,
                complaint=self._complaint,
            )
            outcome = await pump.run(self._encode(SessionCreated(session=session.public_session())), first)
        told.info("client_left", outcome=outcome.value)
        if outcome is Outcome.SESSION_OVER:
            self._handshake.ending()
            await self._socket.close(NORMAL, close_reason(session.ending_reason), self._write_deadline_s)
        elif outcome is Outcome.CLIENT_SILENT:
            await self._socket.close(GOING_AWAY, "idle_timeout", self._write_deadline_s)
        elif outcome is Outcome.CLIENT_DEAF:
            await self._socket.close(POLICY_VIOLATION, "output_overflow", self._write_deadline_s)

    def _complaint(self, complain: Complain) -> bytes:
        self._reception.metrics.refuse(complain.error.error.code)
        return self._encode(complain.error)

    # --- farewells ------------------------------------------------------------------------------------------------

    async def _refuse(self, refusal: Refuse) -> None:
        code = refusal.error.error.code
        log.info("session_refused", code=code, message=refusal.error.error.message)
        await self._turn_away(self._encode(refusal.error), refusal.close_code, code)

    async def _turn_away(self, frame: bytes, close_code: int, reason: str) -> None:
        await self._socket.send_frames([frame], self._write_deadline_s)
        await self._socket.close(close_code, reason, self._write_deadline_s)

    async def _say_why_cancelled(self) -> None:
        """The server ends, or the engine has failed: say so, to a socket that is still open."""
        try:
            if self._reception.engine_died:
                with trio.CancelScope(shield=True):  # the write has its own deadline
                    await self._socket.send_frames(self._obituary(), self._write_deadline_s)
                await self._socket.close(INTERNAL_ERROR, "engine_dead")
            else:
                await self._socket.close(GOING_AWAY, "shutdown")
        except (ConnectionClosed, TransportStalled):
            pass

    def _obituary(self) -> list[bytes]:
        words: list[Any] = [error_event("engine_dead", "the engine has failed; connect again in a while")]
        if self._session is not None:
            words.append(SessionClosed(session_id=self._session.id, reason="engine_dead"))
        return [self._encode(event) for event in words]

    def _encode(self, event: ServerEvent) -> bytes:
        return encode_event(event, event_id=self._event_ids(), seq=None)


def close_reason(reason: str) -> str:
    """As much of a reason as a close frame can carry."""
    return reason.encode()[:CLOSE_REASON_BYTES].decode(errors="ignore")
