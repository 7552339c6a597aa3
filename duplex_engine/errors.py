"""The exception tree: whose fault it was is in the type.

Owns every exception the package raises on purpose. Never formats wire events: `protocol/errors.py` holds the code table.
"""

import attrs


class DuplexError(Exception):
    """Root of every error raised on purpose by duplex-engine."""


@attrs.define(eq=False)
class CodedError(DuplexError):
    """An error that a client is told about: `code` is one of the wire's codes, `param` the path of the culprit."""

    code: str
    message: str
    param: str | None = None

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" + (f" ({self.param})" if self.param else "")


@attrs.define(eq=False)
class ProtocolViolation(CodedError):
    """The peer broke the wire contract (their fault). Answered by an `error` event; nothing changed.

    `event_id` is the client's own id of the offending event, where one could be read.
    """

    event_id: str | None = None


@attrs.define(eq=False)
class ConfigRejected(CodedError):
    """A session configuration, or a change of one, that the protocol or the model does not accept."""


@attrs.define(eq=False)
class AdmissionRefused(CodedError):
    """The desk had no seat to give; `retryable` says whether trying again later makes sense."""

    retryable: bool = True


@attrs.define(eq=False)
class ResumeRefused(CodedError):
    """A session cannot be taken over; whoever is attached to it is none the worse."""


class JournalGap(DuplexError):
    """A session lives, but what its client missed is not kept any more (`session.resync_required` on the wire)."""


class LocalProtocolError(DuplexError):
    """We broke the rules of our own protocol (our fault); never caused by what a peer sent."""


class SessionGone(DuplexError):
    """The session has ended; nothing can be submitted to it any more."""


class ResponseOver(DuplexError):
    """A response was used after its block had ended."""


class EpochOver(DuplexError):
    """An epoch was used after its block had ended."""


@attrs.define(eq=False)
class LeaseLost(DuplexError):
    """The worker behind a lease crashed, hung or was stopped; every open call on it ends with this."""

    worker: str
    cause: str

    def __str__(self) -> str:
        return f"worker {self.worker!r} was lost: {self.cause}"


@attrs.define(eq=False)
class StepFailed(DuplexError):
    """One item of a batch could not be computed; the worker and its other calls go on."""

    worker: str
    cause: str

    def __str__(self) -> str:
        return f"worker {self.worker!r} could not compute this item: {self.cause}"


class ServiceFailed(DuplexError):
    """A model service exceeded its restart budget, or could not load."""


class DetectorFailed(DuplexError):
    """A voice detector cannot judge; the session it listens to has to do without."""


class TransportStalled(DuplexError):
    """A peer did not take a frame within the write deadline."""


class ConnectionLost(DuplexError):
    """The client's connection ended and could not be resumed."""


@attrs.define(eq=False)
class ServerError(CodedError):
    """A server's `error` event, raised in the client."""

    type: str = "server_error"
    event_id: str | None = None
    retryable: bool | None = None
