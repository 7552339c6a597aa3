"""Logging: one line per happening, as text for people or JSON for machines, on standard error.

Owns the set-up of structlog and what may never be written: keys, tokens, query strings. Who knows the session binds its
id (`session_id`). Never decides what is worth a line.
"""

import logging
import sys
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

SECRETS: Final = frozenset({"api_key", "authorization", "query", "resume_token", "target", "token"})
"""Names of values that are blotted out, should anybody ever log them."""
BLOT: Final = "[hidden]"


def set_up_logs(log_format: str, level: str, file: TextIO | None = None) -> None:
    """From now on the whole process logs in this format ("text" or "json"), from this level on, to `file` (stderr)."""
    out = file or sys.stderr
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            hide_secrets,
            *_renderers(log_format, colours=out.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )


def hide_secrets(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Blot out whatever goes by the name of a secret."""
    for name in SECRETS & event.keys():
        event[name] = BLOT
    return event


def _renderers(log_format: str, *, colours: bool) -> list[Processor]:
    if log_format == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    # Plain tracebacks: the rich ones print local variables, which may hold what people said.
    return [
        structlog.dev.ConsoleRenderer(
            colors=colours, exception_formatter=structlog.dev.plain_traceback, pad_event_to=24
        )
    ]
