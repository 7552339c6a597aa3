"""What the conversation machine asks of the session: synchronous effects first, at most one waiting effect, always last.

Owns the vocabulary, and the values that travel to a plugin with it (`Turn`, `Utterance`, `Heard`). Never performs
anything: `actors/session.py` does.
"""

from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from duplex_engine.audio.pcm import SILENCE, Samples
from duplex_engine.conversation.facts import FunctionOutput
from duplex_engine.protocol.commands import ResponseOptions
from duplex_engine.protocol.events import ServerEvent
from duplex_engine.protocol.session_config import SessionConfig


class Pause:
    """One silence inside an utterance that may be its end; its identity tells it from a later one."""


@attrs.define(eq=False)
class Utterance:
    """The user's open turn as it grows: what a turn model may listen to before the turn is committed.

    `chunks`: float32 mono samples at the model's input rate. `pause`: the silence that lasts now, None while the user
    speaks. `over`: committed or thrown away; nothing changes any more. Identity is its key: a `Turn` carries the same
    object.
    """

    chunks: list[Samples] = attrs.Factory(list)
    pause: Pause | None = None
    over: bool = False
    dropped: bool = False

    def samples(self) -> Samples:
        """All audio so far, one array (n,), float32 in -1..1."""
        if not self.chunks:
            return SILENCE
        if len(self.chunks) > 1:
            self.chunks[:] = [np.concatenate(self.chunks)]
        return self.chunks[0]

    @property
    def sample_count(self) -> int:
        """Samples so far."""
        return sum(len(chunk) for chunk in self.chunks)


@attrs.frozen(kw_only=True)
class Message:
    """One entry of the history as a model sees it: only what was really said and heard.

    A call is the assistant's, with a `call_id`, the function's `name`, and its arguments as the text; its output is the
    tool's (role "tool"), with the same `call_id` and `name`.
    """

    role: str
    text: str
    item_id: str
    call_id: str | None = None
    name: str | None = None
    images: Sequence[str] = ()


@attrs.frozen(kw_only=True, eq=False)
class Turn:
    """A committed user turn that wants an answer. Its identity is the response's key in the machine.

    `utterance` is None for a turn of text items only. `history`: the conversation before this turn's audio, text items
    of this turn included. `options`: what `response.create` chose.
    """

    utterance: Utterance | None
    item_id: str | None
    history: Sequence[Message]
    options: ResponseOptions = attrs.Factory(ResponseOptions)
    transcript: str | None = None


@attrs.frozen(kw_only=True)
class SpeechChange:
    """An edge seen by the voice detector inside one append. `at_ms`: position on the session's audio clock.

    `kind`: "started", "paused", "resumed" or "stopped". `samples_before`: samples of this append before the edge.
    `voiced_ms`: speech of this utterance up to the edge, without pauses and trailing silence.
    """

    kind: str
    at_ms: float
    samples_before: int
    voiced_ms: float = 0.0


@attrs.frozen(kw_only=True)
class Heard:
    """One append after decoding: what the session's ears made of `AppendAudio`.

    `samples`: float32 mono at the model's input rate. `speech`: verdict for the whole append. `changes`: detector
    edges, empty without server VAD. `duration_ms`: of the append, as counted for overlap. `rms`: of the samples.
    `detected`: the server's detector gave the verdict. `voiced_ms`: speech of the utterance that is open at the end of
    the append, without pauses and trailing silence; 0 when none is. `detector_failed`: why the detector, which the
    session has, could give no verdict.
    """

    samples: Samples
    speech: bool
    duration_ms: float
    rms: float = 0.0
    changes: Sequence[SpeechChange] = ()
    detected: bool = False
    voiced_ms: float = 0.0
    video_frames: Sequence[bytes] = ()
    detector_failed: str | None = None


@attrs.frozen
class Emit:
    """Append this event to the journal."""

    event: ServerEvent


@attrs.frozen
class Feed:
    """Hand audio to a model that decides by itself. `commit`: pad to a whole unit, the client ended its turn."""

    samples: Samples
    force_listen: bool = False
    video_frames: Sequence[bytes] = ()
    commit: bool = False


@attrs.frozen
class DeliverOutput:
    """Hand a function's output to a model that hears units, with the next one it takes."""

    output: FunctionOutput


@attrs.frozen
class DropInput:
    """Forget audio that was fed and not yet taken by the model. Outputs of functions stay."""


@attrs.frozen
class Overheard:
    """The open turn changed (grew, paused, resumed, was committed or dropped): wake whoever listens along."""

    utterance: Utterance


@attrs.frozen
class OfferTurn:
    """Queue a turn for the plugin. The response it will open has been announced already; its key is the turn."""

    turn: Turn


@attrs.frozen
class ResetDetector:
    """The voice detector forgets its state (after a commit or a clear)."""


@attrs.frozen
class ResetDecoder:
    """The decoder forgets what has not come out of it yet (after a clear)."""


@attrs.frozen
class RedoHearing:
    """The input format or the voice detection changed: rebuild decoder and detector from this configuration."""

    config: SessionConfig


@attrs.frozen
class TrimJournal:
    """The client has processed everything up to `seq`; `event_id` names the command in an error."""

    seq: int
    event_id: str | None


@attrs.frozen
class PurgeOutput:
    """Remove audio deltas of this response that no reader has passed yet, and their words."""

    response_id: str


SyncEffect = (
    Emit
    | Feed
    | DeliverOutput
    | DropInput
    | Overheard
    | OfferTurn
    | ResetDetector
    | ResetDecoder
    | RedoHearing
    | TrimJournal
    | PurgeOutput
)


@attrs.frozen
class InterruptResponses:
    """End every response that is alive or offered, and join them. `epoch`: end the model's context too."""

    reason: str
    epoch: bool = False


@attrs.frozen(kw_only=True)
class Reconfigure:
    """Ask the plugin whether it accepts `config`; the answer comes back as `Conversation.reconfigured`/`refused`."""

    config: SessionConfig
    patch: Mapping[str, object]
    event_id: str | None


@attrs.frozen
class EndSession:
    """End the session; `expired` chooses `session.expired` over `session.closed`."""

    reason: str
    expired: bool = False


WaitingEffect = InterruptResponses | Reconfigure | EndSession
Effect = SyncEffect | WaitingEffect
