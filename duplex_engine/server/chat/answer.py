"""An answer as a session's events tell it, read for a chat client: words, sound, calls, and how it ended.

Owns which events belong to the answer. Pure. Never writes anything.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from duplex_engine.protocol.events import (
    ErrorEvent,
    FunctionArgumentsDone,
    OutputAudioDelta,
    OutputTextDelta,
    ResponseCreated,
    ResponseDone,
    ServerEvent,
    TranscriptDelta,
)
from duplex_engine.server.chat.refusal import ChatRefused, failed

Json = Mapping[str, Any]

STOP, LENGTH, CONTENT_FILTER, TOOL_CALLS = "stop", "length", "content_filter", "tool_calls"


@attrs.frozen
class Words:
    """More of what is said. `spoken`: as the transcript of sound."""

    text: str
    spoken: bool = False


@attrs.frozen
class Sound:
    """More of the voice: PCM16 at 24 kHz."""

    pcm: bytes


@attrs.frozen
class Call:
    """A function to be called; `arguments` is a JSON text."""

    id: str
    name: str
    arguments: str


@attrs.frozen
class Ended:
    """The answer is complete. `usage`: in the words of chat completions."""

    finish_reason: str
    usage: Json


Piece = Words | Sound | Call | Ended


@attrs.define
class AnswerReader:
    """Reads the events behind a `response.create`, whose id is `asked_as`, up to the end of its answer.

    The first response that is created is the answer. Each call of a function is a response of its own, said in the same
    step as the end of the answer and behind it: `ended` is final once nothing more is there to be read.
    """

    asked_as: str
    _id: str | None = attrs.field(default=None, init=False)
    _calls: int = attrs.field(default=0, init=False)
    _reason: str | None = attrs.field(default=None, init=False)
    _usage: Json = attrs.field(factory=dict, init=False)

    @property
    def ended(self) -> Ended | None:
        """How the answer ended; None while it goes on."""
        if self._reason is None:
            return None
        return Ended(TOOL_CALLS if self._calls else self._reason, self._usage)

    def read(self, event: ServerEvent) -> Words | Sound | Call | None:
        """What an event adds to the answer. Raises ChatRefused when there will be none, or no more of it."""
        match event:
            case ResponseCreated(response_id=response_id):
                self._id = self._id or response_id
            case OutputTextDelta(delta=delta) if delta:
                return Words(delta)
            case TranscriptDelta(delta=delta) if delta:
                return Words(delta, spoken=True)
            case OutputAudioDelta(audio=audio):
                return Sound(audio)
            case FunctionArgumentsDone():
                self._calls += 1
                return Call(event.call_id, event.name, event.arguments)
            case ErrorEvent(error=error) if error.event_id == self.asked_as:
                raise failed(error.code, error.message)
            case ResponseDone(response_id=response_id, response=response) if response_id == self._id:
                self._end(response)
        return None

    def _end(self, response: Json) -> None:
        status, details = response["status"], response["status_details"] or {}
        if status == "failed":
            raise failed(details["error"]["code"], details["error"]["message"])
        if status == "cancelled":
            raise ChatRefused(503, "the answer was cut off; ask again in a moment", code="answer_cut_off")
        self._reason = STOP
        if status == "incomplete":
            self._reason = CONTENT_FILTER if details.get("reason") == CONTENT_FILTER else LENGTH
        self._usage = chat_usage(response["usage"])


def chat_usage(usage: Json) -> Json:
    """The cost of an answer under the names that chat completions have for it."""
    read, written = usage["input_token_details"], usage["output_token_details"]
    return {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
        "prompt_tokens_details": {"cached_tokens": read["cached_tokens"], "audio_tokens": read["audio_tokens"]},
        "completion_tokens_details": {"audio_tokens": written["audio_tokens"], "reasoning_tokens": 0},
    }
