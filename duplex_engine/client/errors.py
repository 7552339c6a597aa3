"""What a client program can catch.

Owns the names that client programs use for failures, as branches of the common exception tree. Never raised by the
engine or the server.

    DuplexClientError               everything below
    ├─ DuplexProtocolError          the server answered with an `error` event
    ├─ DuplexSessionClosedError     the session is over
    │  └─ DuplexSessionLostError               ... because its connection was lost and could not be resumed
    └─ DuplexConnectionError        no connection: refused, timed out, lost for good (DuplexSessionLostError)
"""

from collections.abc import Mapping

import attrs
import trio

from duplex_engine.errors import ConnectionLost, DuplexError, ServerError, SessionGone

__all__ = [
    "DuplexClientError",
    "DuplexConnectionError",
    "DuplexProtocolError",
    "DuplexSessionClosedError",
    "DuplexSessionLostError",
    "sole_exception",
]

DuplexClientError = DuplexError
DuplexConnectionError = ConnectionLost


@attrs.define(eq=False)
class DuplexProtocolError(ServerError):
    """The server refused something with an `error` event.

    `code`, `message` and `param` are the server's, `event_id` names the client event at fault, `raw` is the whole one.
    """

    raw: Mapping[str, object] = attrs.Factory(dict)


class DuplexSessionClosedError(SessionGone):
    """The session ended; `reason` says why, `expected` whether this client had asked for it."""

    def __init__(self, reason: str, *, expected: bool = False) -> None:
        super().__init__(f"the session is over: {reason}")
        self.reason = reason
        self.expected = expected


class DuplexSessionLostError(DuplexSessionClosedError, ConnectionLost):
    """The connection broke and resuming the session was impossible or did not succeed."""


def sole_exception(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one real failure in a nursery's group, or the group itself when there are several."""
    real = group.split(trio.Cancelled)[1] or group
    sole: BaseException = real
    while isinstance(sole, BaseExceptionGroup) and len(sole.exceptions) == 1:
        sole = sole.exceptions[0]
    return sole
