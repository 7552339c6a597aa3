"""An answer as one `chat.completion` object.

Owns its shape. Never waits: pieces come in, the object comes out when the last one is there.
"""

from typing import Any

import attrs

from duplex_engine.audio.pcm import wav_file
from duplex_engine.protocol.wire_json import b64encode
from duplex_engine.server.chat.answer import Call, Ended, Piece, Sound, Words
from duplex_engine.server.chat.head import Head
from duplex_engine.server.chat.sound import PCM_RATE_HZ


@attrs.define
class Whole:
    """Collects the pieces of an answer. `wav`: its sound becomes a WAV file."""

    head: Head
    wav: bool = False
    ended: Ended | None = attrs.field(default=None, init=False)
    _words: list[str] = attrs.field(factory=list, init=False)
    _pcm: list[bytes] = attrs.field(factory=list, init=False)
    _calls: list[Call] = attrs.field(factory=list, init=False)

    def add(self, piece: Piece) -> None:
        """The answer goes on."""
        match piece:
            case Words():
                self._words.append(piece.text)
            case Sound():
                self._pcm.append(piece.pcm)
            case Call():
                self._calls.append(piece)
            case Ended():
                self.ended = piece

    def completion(self) -> dict[str, Any]:
        """The whole object, once the answer has ended."""
        assert self.ended is not None, "the answer has not ended"
        choice = {
            "index": 0,
            "message": self._message(),
            "logprobs": None,
            "finish_reason": self.ended.finish_reason,
        }
        return {**self.head.to_wire("chat.completion"), "choices": [choice], "usage": self.ended.usage}

    def _message(self) -> dict[str, Any]:
        words = "".join(self._words)
        message: dict[str, Any] = {"role": "assistant", "content": words, "refusal": None}
        if self._pcm:
            message |= {"content": None, "audio": self._audio(words)}
        if self._calls:
            message |= {
                "content": message["content"] or None,
                "tool_calls": [call_to_wire(call) for call in self._calls],
            }
        return message

    def _audio(self, transcript: str) -> dict[str, Any]:
        pcm = b"".join(self._pcm)
        data = b64encode(wav_file(pcm, PCM_RATE_HZ) if self.wav else pcm)
        return {**self.head.audio(), "data": data, "transcript": transcript}


def call_to_wire(call: Call) -> dict[str, Any]:
    """A call of a function as clients read it."""
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
