"""Frames to messages and back: the one door between JSON and the typed vocabulary (wire contract, sections 3 and 4).

Owns nothing itself: `decode.py` reads what clients say, `encode.py` writes both directions.
"""

from duplex_engine.protocol.decode import FRAME_LIMIT_BYTES, decode_command, parse_frame, session_object
from duplex_engine.protocol.encode import SentCommand, encode_command, encode_event
from duplex_engine.protocol.wire_json import dumps as encode_json

__all__ = [
    "FRAME_LIMIT_BYTES",
    "SentCommand",
    "decode_command",
    "encode_command",
    "encode_event",
    "encode_json",
    "parse_frame",
    "session_object",
]
