"""One client behind a WebSocket: how its session is opened, and what it is told when it has to go.

Owns the clock of the handshake, the greeting and the close frames (wire contract 2.1, 2.3, 4.8, D-04, D-37). Never ends a
session: one whose client is gone ends by itself, because nobody is attached any more.
"""

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

import structlog
import trio
from trio_websocket import ConnectionClosed

from duplex_engine.actors.handle import Guest, SessionHandle
from duplex_engine.actors.supervisor import contain
from duplex_engine.errors import CodedError, JournalGap, ProtocolViolation, ResumeRefused, TransportStalled
from duplex_engine.protocol.codec import decode_command, encode_event
from duplex_engine.protocol.commands import ResumeSession
from duplex_engine.protocol.errors import error_event
from duplex_engine.protocol.events import (
    ServerEvent,
    SessionClosed,
    SessionCreated,
    SessionReplaced,
    SessionResumed,
)
from duplex_engine.protocol.handshake import (
    FIRST_FRAME_S,
    Complain,
    Deliver,
    FlatRefusal,
    Handshake,
    Open,
    Refuse,
    Resume,
    choose_profile,
)
from duplex_engine.protocol.ids import EventIds
from duplex_engine.protocol.session_config import Profile
from duplex_engine.server.http1 import Request
from duplex_engine.server.pump import REPLACED_WRITE_S, Outcome, Pump, text_of
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
        self._handshake = Handshake(request.query)
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
        match self._handshake.begin() or await self._hear_first():
            case Open() as opening:
                await self._open(opening, profile)
            case Resume(command=claim):
                await self._take_over(claim)
            case refusal:
                await self._refuse(refusal)

    # --- opening --------------------------------------------------------------------------------------------------

    async def _hear_first(self) -> Open | Resume | Refuse:
        with trio.move_on_after(FIRST_FRAME_S):
            message = await self._socket.receive()
            try:
                action = self._handshake.receive(decode_command(text_of(message)))
            except ProtocolViolation as violation:
                action = self._handshake.reject(violation)
            assert isinstance(action, Open | Resume | Refuse), f"a first frame led to {action}"
            return action
        return self._handshake.time_out()

    async def _open(self, opening: Open, profile: Profile) -> None:
        problem = await contain(lambda: self._start_session(opening.session, profile))
        if problem is not None:
            if not isinstance(problem, CodedError):
                log.error("opening_failed", exc_info=problem)
                problem = CodedError("internal_error", "the session could not be opened")
            await self._refuse(self._handshake.refused(problem))
        elif self._session is not None:
            await self._converse(self._session, self._session.attach(), opening.then)

    async def _take_over(self, claim: ResumeSession) -> None:
        try:
            self._session = self._reception.engine.find_session(claim.session_id)
            await self._converse(self._session, self._session.take_over(claim))
        except (ResumeRefused, JournalGap) as problem:
            refusal = self._handshake.refused(problem)
            self._reception.metrics.resume(refusal.reason)
            await self._refuse(refusal)

    async def _start_session(self, session: Mapping[str, object], profile: Profile) -> None:
        self._session = await self._reception.engine.start_session(session, profile=profile)

    # --- conversation ---------------------------------------------------------------------------------------------

    async def _converse(
        self,
        session: SessionHandle,
        attaching: AbstractContextManager[Guest],
        first: Deliver | Complain | None = None,
    ) -> None:
        structlog.contextvars.bind_contextvars(session_id=session.id)  # also for what is logged of a crash further out
        told = log.bind(session_id=session.id)
        outcome = Outcome.REPLACED
        with attaching as guest:
            self._handshake.opened()
            if guest.resumed:
                self._reception.metrics.resume("resumed")
            told.info("session_resumed" if guest.resumed else "session_opened", **_labels(session, guest))
            pump = Pump(
                self._socket,
                guest,
                self._handshake,
                idle_s=session.config.idle_timeout_s,
                write_deadline_s=self._write_deadline_s,
                complaint=self._complaint,
            )
            outcome = await pump.run(self._encode(_greeting(session, guest)), first)
        told.info("client_left", outcome=outcome.value)
        if outcome is Outcome.SESSION_OVER:
            self._handshake.ending()
            await self._socket.close(NORMAL, close_reason(session.ending_reason), self._write_deadline_s)
        elif outcome is Outcome.REPLACED:
            await self._say_replaced(session, guest)
        elif outcome is Outcome.CLIENT_SILENT:
            await self._socket.close(GOING_AWAY, "idle_timeout", self._write_deadline_s)
        elif outcome is Outcome.CLIENT_DEAF:
            await self._socket.close(POLICY_VIOLATION, "output_overflow", self._write_deadline_s)

    def _complaint(self, complain: Complain) -> bytes:
        self._reception.metrics.refuse(complain.error.error.code)
        return self._encode(complain.error)

    # --- farewells ------------------------------------------------------------------------------------------------

    async def _refuse(self, refusal: Refuse) -> None:
        log.info("session_refused", code=refusal.reason)
        await self._turn_away(self._encode(refusal.event), refusal.close_code, refusal.reason)

    async def _say_replaced(self, session: SessionHandle, guest: Guest) -> None:
        """Another connection has the session now: this one is told, if it can be told quickly."""
        notice = SessionReplaced(session_id=session.id, attachment_generation=guest.attachment.generation)
        await self._socket.send_frames([self._encode(notice)], REPLACED_WRITE_S)
        await self._socket.close(NORMAL, "session_replaced", REPLACED_WRITE_S)

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


def _labels(session: SessionHandle, guest: Guest) -> dict[str, object]:
    return {
        "model": session.config.model,
        "profile": session.config.profile.value,
        "attachment": guest.attachment.generation,
    }


def _greeting(session: SessionHandle, guest: Guest) -> SessionCreated | SessionResumed:
    """The first event of a connection, with the token for the next one if the session can be resumed (2.1, 2.8)."""
    generation, token, shown = guest.attachment.generation, guest.attachment.resume_token, session.public_session()
    if token is None:
        return SessionCreated(session=shown)
    if guest.resumed:
        return SessionResumed(
            session_id=session.id, session=shown, attachment_generation=generation, resume_token=token
        )
    return SessionCreated(session=shown, attachment_generation=generation, resume_token=token)


def close_reason(reason: str) -> str:
    """As much of a reason as a close frame can carry."""
    return reason.encode()[:CLOSE_REASON_BYTES].decode(errors="ignore")
