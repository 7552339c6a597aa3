"""The session itself as wire events: errors, and how values look in `ga`.

Owns the shape of `error` and of flat metadata. Never holds state.
"""

import json
from collections.abc import Mapping

from duplex_engine.errors import CodedError
from duplex_engine.protocol.errors import error_type, retryable
from duplex_engine.protocol.events import UNSET, ErrorDetail, ErrorEvent


def error_event(error: CodedError, event_id: str | None = None) -> ErrorEvent:
    """The `error` event for `error` (4.9); `event_id` is the client's own id of what was refused."""
    return ErrorEvent(
        error=ErrorDetail(
            type=error_type(error.code),
            code=error.code,
            message=error.message,
            event_id=UNSET if event_id is None else event_id,
            param=UNSET if error.param is None else error.param,
            retryable=retryable(error.code),
        )
    )


def text_map(metadata: Mapping[str, object]) -> dict[str, str]:
    """Metadata as a map of strings, which is all that `ga` clients take (12.4 row 10)."""
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items()}
