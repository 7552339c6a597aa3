"""How a connection begins and ends: what the upgrade asks for, then the states of the connection (wire contract 1, 2.1).

Owns the table of states and every answer that depends on them. Never waits and never opens anything: it is told what
happened and says what to do. What is not in the table is our own mistake, raises LocalProtocolError and changes nothing.
"""

import hmac
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

import attrs

from duplex_engine.errors import CodedError, JournalGap, LocalProtocolError, ProtocolViolation
from duplex_engine.protocol.commands import AcknowledgeEvents, ClientCommand, ResumeSession, UpdateSession
from duplex_engine.protocol.errors import ErrorType, error_event, error_from, rule_of
from duplex_engine.protocol.events import ErrorEvent, ResyncRequired
from duplex_engine.protocol.session_values import Profile
from duplex_engine.protocol.wire_json import dumps

REALTIME_PATH: Final = "/v1/realtime"
DUPLEX_PATH: Final = "/v1/duplex"
REALTIME_PATHS: Final = frozenset({REALTIME_PATH, DUPLEX_PATH})
FIRST_FRAME_S: Final = 10.0
"""Seconds that a client has for its first frame."""

JOURNAL_GAP: Final = "journal_gap"

TRUE_WORDS: Final = frozenset({"1", "true", "yes", "on"})
FALSE_WORDS: Final = frozenset({"0", "false", "no", "off"})
DUPLEX_WORDS: Final = frozenset({"1", "true", "on"})
SUBPROTOCOL: Final = "realtime"
KEY_SUBPROTOCOL: Final = "openai-insecure-api-key."
TRY_AGAIN_LATER: Final = frozenset({"resource_exhausted", "warming_up", "draining"})

Query = Mapping[str, str]


# --- what the upgrade asks for -----------------------------------------------------------------------------------


@attrs.frozen
class FlatRefusal:
    """An error from before the duplex protocol: one flat frame, then a close frame."""

    code: str
    text: str
    close_code: int = 1008

    def frame(self) -> bytes:
        """The frame to send."""
        return dumps({"type": "error", "error": self.text, "code": self.code})


def choose_profile(path: str, query: Query) -> Profile | FlatRefusal:
    """The profile that path and query of an upgrade ask for (0.5, 1.1)."""
    duplex = query.get("duplex")
    if path == DUPLEX_PATH or (duplex is not None and duplex.lower() in DUPLEX_WORDS):
        return Profile.STRICT
    if duplex is None:
        return Profile.GA
    return FlatRefusal("unsupported", "Realtime API is not available")


def autostart_model(query: Query) -> str | None:
    """The model of the session that starts before any frame is read; None when the client will open one (1.2)."""
    if query.get("autostart", "").strip().lower() in FALSE_WORDS or query.get("resume", "").lower() in TRUE_WORDS:
        return None
    return query.get("model") or None


def pick_subprotocol(offered: Iterable[str]) -> str | None:
    """The subprotocol to select: `realtime` if offered, else none (1.6)."""
    return SUBPROTOCOL if SUBPROTOCOL in offered else None


def credentials(authorization: str | None, query: Query, subprotocols: Iterable[str]) -> tuple[str, ...]:
    """Every key a client offers: by header, by query, by subprotocol (1.5)."""
    scheme, _, token = (authorization or "").partition(" ")
    offered = [token.strip()] if scheme.lower() == "bearer" else []
    offered += [query["api_key"]] if "api_key" in query else []
    offered += [name.removeprefix(KEY_SUBPROTOCOL) for name in subprotocols if name.startswith(KEY_SUBPROTOCOL)]
    return tuple(offered)


def is_authorised(key: str, offered: Iterable[str]) -> bool:
    """Whether one of the offered keys is `key`; takes the same time wherever they differ."""
    expected = key.encode()
    matches = [hmac.compare_digest(expected, candidate.encode(errors="replace")) for candidate in offered]
    return any(matches)


def close_code_for(code: str) -> int:
    """The WebSocket close code behind an error that ends a connection (D-04): 1013 full, 1011 our fault, 1008 theirs."""
    if code in TRY_AGAIN_LATER:
        return 1013
    return 1011 if rule_of(code).type is ErrorType.SERVER else 1008


# --- what to do --------------------------------------------------------------------------------------------------


@attrs.frozen
class Deliver:
    """Give the command to the session."""

    command: ClientCommand


@attrs.frozen
class Complain:
    """Answer with this error, outside the sequence, and go on."""

    error: ErrorEvent


@attrs.frozen
class Open:
    """Open a session from this object, then tell `opened` or `refused`; once it is open, do `then`."""

    session: Mapping[str, object]
    then: Deliver | Complain | None = None


@attrs.frozen
class Resume:
    """Attach to an existing session, then tell `opened` or `refused`."""

    command: ResumeSession


@attrs.frozen
class Refuse:
    """Send the event, then a close frame with `close_code` and `reason`."""

    event: ErrorEvent | ResyncRequired

    @property
    def reason(self) -> str:
        """The error's code, or why the client has to start afresh."""
        return self.event.error.code if isinstance(self.event, ErrorEvent) else self.event.reason

    @property
    def close_code(self) -> int:
        """The code of the close frame."""
        return close_code_for(self.reason) if isinstance(self.event, ErrorEvent) else 1008


@attrs.frozen
class Ignore:
    """Nothing is to be done: nobody listens any more."""


Action = Open | Resume | Deliver | Complain | Refuse | Ignore


# --- the states --------------------------------------------------------------------------------------------------


class ConnectionState(Enum):
    """Where a connection stands."""

    AWAITING_FIRST = "awaiting first"
    OPENING = "opening"
    RESUMING = "resuming"
    LIVE = "live"
    CLOSING = "closing"
    CLOSED = "closed"

    __hash__ = object.__hash__  # members are singletons; hashing their names takes longer


class Happening(Enum):
    """What can happen to a connection."""

    AUTOSTART = "autostart"
    COMMAND = "command"
    RESUME = "session.resume"
    ILLEGAL = "illegal frame"
    TIMEOUT = "timeout"
    OPENED = "opened"
    REFUSED = "refused"
    ENDING = "session ended"
    GONE = "peer gone"

    __hash__ = object.__hash__  # members are singletons; hashing their names takes longer


_S, _H = ConnectionState, Happening

TRANSITIONS: Final[Mapping[ConnectionState, Mapping[Happening, ConnectionState]]] = {
    _S.AWAITING_FIRST: {
        _H.AUTOSTART: _S.OPENING,
        _H.COMMAND: _S.OPENING,
        _H.RESUME: _S.RESUMING,
        _H.ILLEGAL: _S.CLOSED,
        _H.TIMEOUT: _S.CLOSED,
        _H.GONE: _S.CLOSED,
    },
    _S.OPENING: {_H.OPENED: _S.LIVE, _H.REFUSED: _S.CLOSED, _H.GONE: _S.CLOSED},
    _S.RESUMING: {_H.OPENED: _S.LIVE, _H.REFUSED: _S.CLOSED, _H.GONE: _S.CLOSED},
    _S.LIVE: {
        _H.COMMAND: _S.LIVE,
        _H.RESUME: _S.LIVE,
        _H.ILLEGAL: _S.LIVE,
        _H.ENDING: _S.CLOSING,
        _H.GONE: _S.CLOSED,
    },
    _S.CLOSING: {
        _H.COMMAND: _S.CLOSING,
        _H.RESUME: _S.CLOSING,
        _H.ILLEGAL: _S.CLOSING,
        _H.GONE: _S.CLOSED,
    },
    _S.CLOSED: {_H.COMMAND: _S.CLOSED, _H.RESUME: _S.CLOSED, _H.ILLEGAL: _S.CLOSED, _H.GONE: _S.CLOSED},
}
"""Where each happening leads; what is missing cannot happen."""


class Handshake:
    """One connection's states. `query`: of the upgrade.

    While a session opens or resumes the connection reads no frames: they wait in the socket.
    """

    def __init__(self, query: Query) -> None:
        self.state = ConnectionState.AWAITING_FIRST
        self._model = query.get("model") or None
        self._autostart = autostart_model(query)
        self._opening_event_id: str | None = None
        self._resumed_id = ""

    def begin(self) -> Open | None:
        """The upgrade is done: the session to open at once, or None: wait `FIRST_FRAME_S` for a frame."""
        if self._autostart is None:
            return None
        self._move(Happening.AUTOSTART)
        return Open({"model": self._autostart})

    def receive(self, command: ClientCommand) -> Action:
        """The client said this."""
        if isinstance(command, ResumeSession):
            return self._receive_resume(command)
        before = self._move(Happening.COMMAND)
        if before is ConnectionState.AWAITING_FIRST:
            self._opening_event_id = command.event_id
            return self._opening(command)
        return Deliver(command) if before is ConnectionState.LIVE else self._too_late(before, command.event_id)

    def reject(self, violation: ProtocolViolation) -> Action:
        """The client sent what is no command."""
        before = self._move(Happening.ILLEGAL)
        if before is ConnectionState.AWAITING_FIRST:
            return Refuse(error_from(violation))
        if before is ConnectionState.CLOSED:
            return Ignore()
        return Complain(error_from(violation))

    def time_out(self) -> Refuse:
        """No first frame came in time."""
        self._move(Happening.TIMEOUT)
        return Refuse(error_event("config_timeout", f"no frame within {FIRST_FRAME_S:g} s; send session.update"))

    def opened(self) -> None:
        """The session is open, or resumed."""
        self._move(Happening.OPENED)

    def refused(self, error: CodedError | JournalGap) -> Refuse:
        """The session could not be opened or resumed."""
        self._move(Happening.REFUSED)
        if isinstance(error, JournalGap):
            return Refuse(ResyncRequired(session_id=self._resumed_id, reason=JOURNAL_GAP))
        return Refuse(error_from(error, self._opening_event_id))

    def ending(self) -> None:
        """The session has ended; its last events are still being written."""
        self._move(Happening.ENDING)

    def closed(self) -> None:
        """The connection is over."""
        self._move(Happening.GONE)

    def _receive_resume(self, command: ResumeSession) -> Action:
        before = self._move(Happening.RESUME)
        if before is ConnectionState.AWAITING_FIRST:
            self._opening_event_id, self._resumed_id = command.event_id, command.session_id
            return Resume(command)
        if before is ConnectionState.LIVE:
            message = "this connection has its session already; resume on a new one"
            return Complain(error_event("unsupported_session_resume", message, event_id=command.event_id))
        return self._too_late(before, command.event_id)

    def _opening(self, command: ClientCommand) -> Open:
        if isinstance(command, UpdateSession):
            return Open(self._with_model(command.session))
        if isinstance(command, AcknowledgeEvents):
            message = "nothing has been sent yet that could be acknowledged"
            return Open(
                self._with_model({}), Complain(error_event("unknown_event", message, event_id=command.event_id))
            )
        return Open(self._with_model({}), Deliver(command))

    def _with_model(self, session: Mapping[str, object]) -> Mapping[str, object]:
        if self._model is None or isinstance(session.get("model"), str):
            return session
        return {**session, "model": self._model}

    @staticmethod
    def _too_late(state: ConnectionState, event_id: str | None) -> Action:
        if state is ConnectionState.CLOSED:
            return Ignore()
        return Complain(error_event("session_closed", "the session is closing", event_id=event_id))

    def _move(self, happening: Happening) -> ConnectionState:
        """Follow the table; returns the state before."""
        before = self.state
        after = TRANSITIONS[before].get(happening)
        if after is None:
            raise LocalProtocolError(f"{happening.value!r} cannot happen to a connection that is {before.value}")
        self.state = after
        return before
