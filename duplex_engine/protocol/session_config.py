"""The Realtime `session` object and our `SessionConfig`, in both directions (wire contract 2.4 to 2.7, 6.1, 12.4).

Owns nothing itself: the types are in `session_values.py`, the client's object is read in `session_parse.py`, the public
one is written in `session_echo.py`. Never looks at a running session: live values for the echo are passed in.
"""

from duplex_engine.protocol.session_echo import public_session
from duplex_engine.protocol.session_parse import open_config, patch_config
from duplex_engine.protocol.session_values import (
    DEFAULT_IDLE_TIMEOUT_S,
    PlaybackPolicy,
    Profile,
    SessionConfig,
    SessionFacts,
    TurnDetection,
)

__all__ = [
    "DEFAULT_IDLE_TIMEOUT_S",
    "PlaybackPolicy",
    "Profile",
    "SessionConfig",
    "SessionFacts",
    "TurnDetection",
    "open_config",
    "patch_config",
    "public_session",
]
