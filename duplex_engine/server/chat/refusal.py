"""Why a chat request gets no answer: an HTTP status, and the error object that OpenAI's clients read.

Owns which of the engine's error codes means which status. Never decides that something is wrong.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from duplex_engine.errors import CodedError, DuplexError
from duplex_engine.protocol.errors import ERRORS, ErrorType, rule_of
from duplex_engine.protocol.fields import shown

RETRY_AFTER_S: Final = 1

STATUS: Final[Mapping[str, int]] = {
    "event_too_large": 413,
    "input_backpressure": 413,  # trying the same again would not help
    "resource_exhausted": 429,
    "warming_up": 503,
    "draining": 503,
    "model_unavailable": 503,
    "engine_dead": 503,
}
"""Statuses of the codes whose kind alone does not say it."""

STATUS_OF_KIND: Final = {ErrorType.REQUEST: 400, ErrorType.RATE: 429, ErrorType.SERVER: 500}


@attrs.define(eq=False)
class ChatRefused(DuplexError):
    """A chat request that is not answered, or not to its end. `param`: path of what is to blame in the request."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None

    def __str__(self) -> str:
        return f"{self.status} {self.code}: {self.message}"

    @property
    def type(self) -> str:
        """Whose fault it was, in OpenAI's words."""
        if self.status == 429:
            return ErrorType.RATE.value
        return ErrorType.SERVER.value if self.status >= 500 else ErrorType.REQUEST.value

    @property
    def retryable(self) -> bool:
        """Whether the same request may be answered in a moment."""
        return self.status in (429, 503)

    def to_wire(self) -> dict[str, object]:
        """The body, or the line of a stream that is broken off."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


def refused(error: CodedError, param: str | None = None) -> ChatRefused:
    """What the engine refused, for HTTP. `param`: where in the request it stands, if not where the error says."""
    status = STATUS.get(error.code, STATUS_OF_KIND[rule_of(error.code).type])
    return ChatRefused(status, error.message, param or error.param, error.code)


def failed(code: str, message: str) -> ChatRefused:
    """An answer that the model could not give: our fault, unless the code is one of a request's."""
    if code in ERRORS:
        return refused(CodedError(code, message))
    return ChatRefused(500, message, code=code)


def wrong(param: str, expected: str, value: object) -> ChatRefused:
    """A value of the wrong kind."""
    return ChatRefused(400, f"{param} must be {expected}, not {shown(value)}", param, "invalid_value")


def unsupported(param: str, why: str) -> ChatRefused:
    """Something that could be asked of others. `why`: a clause about it, and the way out."""
    return ChatRefused(400, f"{param} {why}", param, "unsupported_parameter")
