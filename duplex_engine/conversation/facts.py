"""What the model side tells the conversation machine (`Conversation.learn`). Facts have only synchronous effects.

Owns the vocabulary. Responses and turns are opaque keys here: live objects, compared by identity alone.
"""

from collections.abc import Hashable
from enum import Enum

import attrs

ResponseKey = Hashable


class ResponseStatus(Enum):
    """How a response ended; the value is the wire's `response.status`."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"
    INCOMPLETE = "incomplete"


@attrs.frozen
class TextMark:
    """After `audio_end_ms` of this response's audio, `text_chars` characters of its transcript were spoken. Cumulative."""

    text_chars: int
    audio_end_ms: int


@attrs.frozen
class FunctionCall:
    """A call the model wants made; `arguments` is a JSON text."""

    name: str
    arguments: str
    call_id: str


@attrs.frozen
class FunctionOutput:
    """What a call came to, as the client says it; `name`: the function that was called."""

    call_id: str
    name: str
    output: str


@attrs.frozen
class ResponseOpened:
    """The plugin opened the response `key`. For an offered turn `key` is that turn's key, already announced."""

    key: ResponseKey


@attrs.frozen
class ResponseText:
    """The answer's transcript (or text) grew by `delta`."""

    key: ResponseKey
    delta: str


@attrs.frozen
class ResponseAudio:
    """The answer's voice grew by `pcm`: mono PCM16 little-endian at the model's output rate.

    `text`: transcript that belongs to exactly this audio (may be ""). `mark`: alignment after this audio.
    """

    key: ResponseKey
    pcm: bytes
    text: str = ""
    mark: TextMark | None = None


@attrs.frozen(kw_only=True)
class Usage:
    """Token counts of one response, as the model counts them."""

    input_text: int = 0
    input_audio: int = 0
    input_cached: int = 0
    output_text: int = 0
    output_audio: int = 0


@attrs.frozen(kw_only=True)
class ResponseEnded:
    """The response is over. `reason`: finish or cancel reason, or the error code of a failure (`message` explains it).

    `yielded`: the model stopped by deciding to listen (terminal `response.listen` with `listen_reason`).
    """

    key: ResponseKey
    status: ResponseStatus
    reason: str = "stop"
    message: str = ""
    yielded: bool = False
    listen_reason: str = "model_listen"
    usage: Usage = Usage()


@attrs.frozen
class ModelListened:
    """The model decided to listen on a unit while no response was open."""

    reason: str = "model_listen"


@attrs.frozen
class UserHeard:
    """Recognised words of a user turn; `final` closes the transcript. `turn` is the key of the turn, None = the newest."""

    text: str
    turn: Hashable | None = None
    final: bool = True


@attrs.frozen
class FunctionCalled:
    """The model called a function. `key`: the answer it did that in, None: in none."""

    call: FunctionCall
    key: ResponseKey | None = None


@attrs.frozen
class OutputsTaken:
    """A model that hears units has taken `count` outputs of functions with the unit it took."""

    count: int


@attrs.frozen
class ContextRolled:
    """The model's window has reached its bound: from now on it forgets the beginning of the conversation."""


@attrs.frozen(kw_only=True)
class InputRefused:
    """Input could not be used by the model (`code` of 4.9); the session goes on."""

    code: str
    message: str


Fact = (
    ResponseOpened
    | ResponseText
    | ResponseAudio
    | ResponseEnded
    | ModelListened
    | UserHeard
    | FunctionCalled
    | OutputsTaken
    | ContextRolled
    | InputRefused
)
