"""Watches the events of a conversation for the invariants that hold whatever happens."""

import types
from collections.abc import Iterable

import attrs
import numpy as np

from duplex_engine.protocol.events import (
    ErrorEvent,
    OutputAudioDelta,
    ResponseCreated,
    ResponseDone,
    ServerEvent,
    SessionClosed,
    SessionExpired,
    SpeechStarted,
    SpeechStopped,
    TranscriptDelta,
)

# The order of terminals (4.4); a response says a subsequence of it, each at most once, with nothing in between.
TERMINAL_ORDER = [
    "response.output_audio.done",
    "response.output_text.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "response.output_item.done",
    "conversation.item.done",
    "response.done",
    "rate_limits.updated",
]

# What a call says when it is an item of the answer it was made in (`ga`): after the answer's own item is done.
OWN_ITEM_DONE = TERMINAL_ORDER.index("conversation.item.done")
FURTHER_ITEM = {
    "conversation.item.added",
    "conversation.item.created",
    "response.output_item.added",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_item.done",
    "conversation.item.done",
}


@attrs.define
class Watch:
    """Feed it every event in order; `closed` once the session's own last word was said."""

    created: set[str] = attrs.Factory(set)
    done: set[str] = attrs.Factory(set)
    labels: dict[str, set[int]] = attrs.Factory(dict)
    epoch: int = 0
    ending: tuple[str, int] | None = None
    speaking: bool = False
    closed: bool = False
    audio_ms: dict[str, int] = attrs.Factory(dict)

    def see(self, events: Iterable[ServerEvent], *, strict: bool) -> None:
        events = list(events)
        for event in events:
            self._session(event)
            self._speech(event)
            self._label(event)
            self._terminals(event)
            self._response(event)
        if strict:
            self._pairs(events)

    def _session(self, event: ServerEvent) -> None:
        assert not self.closed, f"I3: {event} after the session's last word"
        if isinstance(event, SessionClosed | SessionExpired):
            self.closed = True
            assert self.created == self.done, "I2: an answer was announced and not ended"
            assert not self.speaking, "a speech_started has no stop"

    def _speech(self, event: ServerEvent) -> None:
        if isinstance(event, SpeechStarted):
            assert not self.speaking, "speech started twice"
            self.speaking = True
        elif isinstance(event, SpeechStopped):
            assert self.speaking, "speech stopped twice"
            self.speaking = False

    def _response(self, event: ServerEvent) -> None:
        if not event.TYPE.startswith("response."):
            return
        response_id = getattr(event, "response_id", None)
        if not isinstance(response_id, str):
            return
        if isinstance(event, ResponseCreated):
            assert response_id not in self.created
            self.created.add(response_id)
        assert response_id in self.created, f"{event} of an answer nobody announced"
        assert response_id not in self.done, f"I1: {event} after the end of its response"
        if isinstance(event, ResponseDone):
            self.done.add(response_id)

    def _label(self, event: ServerEvent) -> None:
        """I4: labels never decrease; the events of one response carry one label, but for its terminals."""
        label = getattr(event, "epoch", None)
        metadata = getattr(event, "metadata", None)
        if isinstance(metadata, dict) and "epoch" in metadata:
            label = metadata["epoch"]
        if isinstance(event, ResponseDone):
            label = event.response["metadata"].get("epoch", label)
        if not isinstance(label, int):
            return
        assert label >= self.epoch, f"I4: {event} carries an old label"
        self.epoch = label
        response_id = getattr(event, "response_id", None)
        if isinstance(response_id, str) and not isinstance(event, ResponseDone):
            self.labels.setdefault(response_id, set()).add(label)
            assert len(self.labels[response_id]) == 1

    def _terminals(self, event: ServerEvent) -> None:
        """Once the first terminal of a response is said, all others follow in order with nothing in between."""
        if self.ending is None:
            if event.TYPE in TERMINAL_ORDER and event.TYPE.startswith("response."):
                self.ending = (event.response_id, TERMINAL_ORDER.index(event.TYPE))
            return
        response_id, place = self.ending
        if place == OWN_ITEM_DONE and event.TYPE in FURTHER_ITEM:
            assert getattr(event, "response_id", response_id) == response_id
            return
        assert event.TYPE in TERMINAL_ORDER, f"{event} among the terminals of {response_id}"
        assert getattr(event, "response_id", response_id) == response_id
        assert TERMINAL_ORDER.index(event.TYPE) > place, f"{event} out of order"
        self.ending = (response_id, TERMINAL_ORDER.index(event.TYPE))
        if event.TYPE == "rate_limits.updated":
            assert response_id in self.done
            self.ending = None

    def _pairs(self, events: list[ServerEvent]) -> None:
        for event, after in zip(events, [*events[1:], None], strict=False):
            if isinstance(event, OutputAudioDelta):
                assert isinstance(after, TranscriptDelta), "audio and transcript deltas come in pairs"
                length = event.metadata["audio_duration_ms"]
                before = self.audio_ms.get(event.response_id, 0)
                width = 1 if event.format.startswith("g711") else 2
                header = 44 if event.format == "wav" else 0
                samples = (len(event.audio) - header) / width
                assert length >= before
                assert abs(length - before - samples * 1000 / event.sample_rate_hz) <= 1
                self.audio_ms[event.response_id] = length


def errors(events: Iterable[ServerEvent]) -> list[ErrorEvent]:
    return [event for event in events if isinstance(event, ErrorEvent)]


def fingerprint(thing: object, seen: dict[int, int] | None = None) -> object:
    """Everything reachable from `thing`, comparable: two equal fingerprints mean that nothing changed."""
    seen = {} if seen is None else seen
    if thing is None or isinstance(thing, str | bytes | int | float | bool):
        return thing
    if isinstance(thing, np.ndarray):
        return (thing.shape, thing.tobytes())
    if isinstance(thing, types.FunctionType | types.MethodType | types.BuiltinFunctionType | type):
        return id(thing)
    if id(thing) in seen:
        return ("again", seen[id(thing)])
    seen[id(thing)] = len(seen)
    if isinstance(thing, dict):
        return [(fingerprint(key, seen), fingerprint(value, seen)) for key, value in thing.items()]
    if isinstance(thing, list | tuple | set | frozenset) or type(thing).__name__ == "deque":
        return [fingerprint(entry, seen) for entry in thing]
    names = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    names += list(getattr(thing, "__dict__", ()))
    return (
        type(thing).__name__,
        [(name, fingerprint(getattr(thing, name, None), seen)) for name in names if name != "__weakref__"],
    )
