"""An answer as server-sent events: `chat.completion.chunk` objects, one a line, then `[DONE]`.

Owns their shape and order. Never waits or writes: for each piece it gives the lines to send.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from duplex_engine.protocol.wire_json import b64encode, dumps
from duplex_engine.server.chat.answer import Call, Ended, Piece, Sound, Words
from duplex_engine.server.chat.head import Head
from duplex_engine.server.chat.refusal import ChatRefused
from duplex_engine.server.chat.whole import call_to_wire

DONE: Final = b"data: [DONE]\n\n"
WHOLE_BYTES: Final = 6
"""Sound is cut where both a sample and a group of base64 end: clients may join the pieces before or after decoding."""

Delta = dict[str, Any]


@attrs.define
class Chunks:
    """Writes the lines of one answer. `usage`: end with a chunk about its cost."""

    head: Head
    speaks: bool = False
    usage: bool = False
    _calls: int = attrs.field(default=0, init=False)
    _rest: bytes = attrs.field(default=b"", init=False)
    _sounded: bool = attrs.field(default=False, init=False)

    def opening(self) -> bytes:
        """The first line: who speaks."""
        return self._chunk({"role": "assistant", "content": None if self.speaks else "", "refusal": None})

    def lines(self, piece: Piece) -> bytes:
        """The lines of a piece; b"" when it has to wait for the next one."""
        return b"".join(self._lines(piece))

    def error(self, refused: ChatRefused) -> bytes:
        """The last line of an answer that is broken off."""
        return _line(refused.to_wire())

    def _lines(self, piece: Piece) -> Iterator[bytes]:
        match piece:
            case Words():
                said = {"audio": {"transcript": piece.text}} if piece.spoken else {"content": piece.text}
                yield self._chunk(said)
            case Sound():
                yield from self._sound(piece.pcm)
            case Call():
                yield self._chunk({"tool_calls": [{"index": self._calls, **call_to_wire(piece)}]})
                self._calls += 1
            case Ended():
                yield from self._ending(piece)

    def _sound(self, pcm: bytes) -> Iterator[bytes]:
        pcm = self._rest + pcm
        whole = len(pcm) - len(pcm) % WHOLE_BYTES
        self._rest = pcm[whole:]
        if whole:
            yield self._audio(pcm[:whole])

    def _audio(self, pcm: bytes) -> bytes:
        named = {} if self._sounded else {"id": self.head.audio()["id"]}
        self._sounded = True
        return self._chunk({"audio": {**named, "data": b64encode(pcm)}})

    def _ending(self, ended: Ended) -> Iterator[bytes]:
        if self._rest:
            yield self._audio(self._rest)
        if self._sounded:
            yield self._chunk({"audio": {"expires_at": self.head.audio()["expires_at"]}})
        yield self._chunk({}, ended.finish_reason)
        if self.usage:
            yield _line({**self._shared(), "choices": [], "usage": ended.usage})
        yield DONE

    def _chunk(self, delta: Delta, finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return _line({**self._shared(), "choices": [choice]})

    def _shared(self) -> Delta:
        unknown = {"usage": None} if self.usage else {}
        return {**self.head.to_wire("chat.completion.chunk"), **unknown}


def _line(value: Mapping[str, object]) -> bytes:
    return b"data: " + dumps(value) + b"\n\n"
