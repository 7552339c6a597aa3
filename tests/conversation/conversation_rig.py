"""A conversation with a hand-moved clock and predictable ids, and the part of the session actor that ends answers."""

from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import numpy as np

from duplex_engine.config import SessionLimits
from duplex_engine.conversation.effects import (
    Effect,
    Emit,
    EndSession,
    Feed,
    Heard,
    InterruptResponses,
    OfferTurn,
    Reconfigure,
    SpeechChange,
    Turn,
)
from duplex_engine.conversation.facts import (
    Fact,
    ResponseAudio,
    ResponseEnded,
    ResponseOpened,
    ResponseStatus,
    TextMark,
)
from duplex_engine.conversation.machine import Conversation
from duplex_engine.protocol.capabilities import Capabilities, TurnPolicy
from duplex_engine.protocol.commands import AppendAudio, ClientCommand, CommitAudio, CreateItem
from duplex_engine.protocol.events import ErrorEvent, ResponseCreated, ServerEvent
from duplex_engine.protocol.session_config import Profile, SessionConfig, TurnDetection

RATE_HZ = 16_000
OUT_HZ = 24_000
SESSION_ID = "duplex-0123"

CASCADE = Capabilities(turn_policy=TurnPolicy.TURN, text_only_turns=True, detects_turns=True)
NATIVE = Capabilities(turn_policy=TurnPolicy.MODEL)
PUSH_TO_TALK = SessionConfig()
DETECTED = SessionConfig(turn_detection=TurnDetection(), overlap_policy="barge_in_on_speech")
MODEL_DECIDES = SessionConfig(native=True)
GA = SessionConfig(profile=Profile.GA)


class Key:
    """An answer that a native model begins."""


@attrs.define
class Ids:
    """`kind1`, `kind2`, ..."""

    counts: dict[str, int] = attrs.Factory(dict)

    def __call__(self, kind: str) -> str:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        return f"{kind}{self.counts[kind]}"


class Rig:
    """Drives a machine and plays the actor: whatever is interrupted ends at once, before the next command."""

    def __init__(
        self,
        config: SessionConfig = PUSH_TO_TALK,
        capabilities: Capabilities = CASCADE,
        limits: SessionLimits | None = None,
    ) -> None:
        self.now = 0.0
        self.machine = Conversation(
            session_id=SESSION_ID,
            config=config,
            capabilities=capabilities,
            input_rate_hz=RATE_HZ,
            output_rate_hz=OUT_HZ,
            limits=limits or SessionLimits(),
            now=lambda: self.now,
            new_id=Ids(),
        )
        self.effects: list[Effect] = []
        self.events: list[ServerEvent] = []
        self.alive: list[Any] = []
        self.turns: list[Turn] = []
        self.ids: dict[Any, str] = {}
        self.clock_ms = 0.0
        self.perform(self.machine.opening())

    # --- the actor --------------------------------------------------------------------------------------------

    def perform(self, effects: Sequence[Effect]) -> list[ServerEvent]:
        """Do what the machine asks for; returns the events of it."""
        said: list[ServerEvent] = []
        for place, effect in enumerate(effects):
            self.effects.append(effect)
            match effect:
                case Emit(event=event):
                    said.append(event)
                    self.events.append(event)
                case OfferTurn(turn=turn):
                    self.turns.append(turn)
                    self.alive.append(turn)
                    self.ids[turn] = self._newest_response()
                case InterruptResponses(reason=reason):
                    assert place == len(effects) - 1, "what waits comes last"
                    said += self._end_all(reason)
                case Reconfigure():
                    assert place == len(effects) - 1, "what waits comes last"
                    said += self.perform(self.machine.reconfigured(effect))
                case EndSession(reason=reason, expired=expired):
                    assert place == len(effects) - 1, "what waits comes last"
                    said += self._end_all("session_closed")
                    said += self.perform(self.machine.ending(reason, expired=expired))
        return said

    def _end_all(self, reason: str) -> list[ServerEvent]:
        said: list[ServerEvent] = []
        for key in tuple(self.alive):
            said += self.ends(key, ResponseStatus.CANCELLED, reason)
        return said

    def obey(self, command: ClientCommand, heard: Heard | None = None) -> list[ServerEvent]:
        return self.perform(self.machine.obey(command, heard))

    def learn(self, fact: Fact) -> list[ServerEvent]:
        return self.perform(self.machine.learn(fact))

    # --- the user ---------------------------------------------------------------------------------------------

    def appends(self, duration_ms: float, *, speech: bool, **fields: Any) -> list[ServerEvent]:
        """One append, judged by the client or by loudness."""
        self.clock_ms += duration_ms
        heard = Heard(samples=sound(duration_ms, speech), speech=speech, duration_ms=duration_ms)
        return self.obey(AppendAudio(audio=b"..", **fields), heard)

    def hears(
        self,
        duration_ms: float,
        *edges: tuple[str, float],
        speaking: bool = False,
        voiced_ms: float = 0.0,
        at_ms: float | None = None,
        **fields: Any,
    ) -> list[ServerEvent]:
        """One append as the server's detector heard it; edges are (kind, milliseconds into the append)."""
        changes = tuple(
            SpeechChange(
                kind=kind,
                at_ms=self.clock_ms + place if at_ms is None else at_ms,
                samples_before=round(place * RATE_HZ / 1000),
                voiced_ms=voiced_ms,
            )
            for kind, place in edges
        )
        self.clock_ms += duration_ms
        heard = Heard(
            samples=sound(duration_ms, speaking),
            speech=speaking or any(kind == "started" for kind, _ in edges),
            duration_ms=duration_ms,
            changes=changes,
            detected=True,
            voiced_ms=voiced_ms if speaking else 0.0,
        )
        return self.obey(AppendAudio(audio=b"..", **fields), heard)

    def asks(self, duration_ms: float = 1000) -> Turn:
        """A push-to-talk question that wants an answer; returns the turn offered to the model."""
        self.appends(duration_ms, speech=True)
        self.obey(CommitAudio(response_create=True))
        return self.offered

    @property
    def offered(self) -> Turn:
        """The newest turn offered."""
        return self.turns[-1]

    def writes(self, text: str, **fields: Any) -> list[ServerEvent]:
        """A text item of the user."""
        return self.obey(CreateItem(item=text_item(text, **fields)))

    # --- the model --------------------------------------------------------------------------------------------

    def begins(self) -> Key:
        """A native model begins an answer."""
        key = Key()
        self.alive.append(key)
        self.learn(ResponseOpened(key))
        self.ids[key] = self._newest_response()
        return key

    def _newest_response(self) -> str:
        return next(event.response_id for event in reversed(self.events) if isinstance(event, ResponseCreated))

    def speaks(self, key: Any, duration_ms: int, text: str = "", mark: TextMark | None = None) -> list[ServerEvent]:
        return self.learn(ResponseAudio(key, bytes(2 * OUT_HZ * duration_ms // 1000), text, mark))

    def ends(
        self, key: Any, status: ResponseStatus = ResponseStatus.COMPLETED, reason: str = "stop", **fields: Any
    ) -> list[ServerEvent]:
        self.alive.remove(key)
        return self.learn(ResponseEnded(key=key, status=status, reason=reason, **fields))


def sound(duration_ms: float, loud: bool) -> Any:
    return np.full(round(duration_ms * RATE_HZ / 1000), 0.1 if loud else 0.0, np.float32)


def text_item(text: str, *, item_id: str = "item_text", role: str = "user") -> dict[str, object]:
    kind = "input_text" if role == "user" else "text"
    content = [{"type": kind, "text": text}] if text else []
    return {
        "id": item_id,
        "object": "realtime.item",
        "type": "message",
        "role": role,
        "status": "completed",
        "content": content,
    }


def types(events: Iterable[ServerEvent]) -> list[str]:
    """The wire names, with the long prefixes left out."""
    return [event.TYPE.replace("conversation.", "").replace("input_audio_buffer.", "") for event in events]


def error_of(events: Iterable[ServerEvent]) -> Any:
    """The inside of the only `error` among these events."""
    (error,) = [event.error for event in events if isinstance(event, ErrorEvent)]
    return error


def only(events: Iterable[ServerEvent], kind: type) -> Any:
    """The only event of this class."""
    (event,) = [event for event in events if isinstance(event, kind)]
    return event


def feeds(effects: Iterable[Effect]) -> list[Feed]:
    return [effect for effect in effects if isinstance(effect, Feed)]


ANNOUNCED = ["response.created", "item.added", "item.created", "response.output_item.added"]
STARTED = [*ANNOUNCED, "response.content_part.added"]
PAIR = ["response.output_audio.delta", "response.output_audio_transcript.delta"]
CLOSED = ["response.output_item.done", "item.done", "response.done", "rate_limits.updated"]
TERMINALS = [
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    *CLOSED,
]
COMMITTED = ["item.added", "item.created", "committed", "item.done"]
