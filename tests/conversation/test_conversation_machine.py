"""Arbitrary legal and illegal commands and facts, against the invariants that hold whatever happens."""

from typing import Any

import attrs
import hypothesis.strategies as st
from conversation_rig import CASCADE, DETECTED, GA, MODEL_DECIDES, NATIVE, PUSH_TO_TALK, Rig, text_item
from conversation_watch import Watch, errors, fingerprint
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from duplex_engine.config import SessionLimits
from duplex_engine.conversation.facts import (
    FunctionCall,
    FunctionCalled,
    InputRefused,
    ModelListened,
    ResponseEnded,
    ResponseOpened,
    ResponseStatus,
    ResponseText,
    TextMark,
    UserHeard,
)
from duplex_engine.protocol.capabilities import Capabilities, Interrupt, TurnPolicy
from duplex_engine.protocol.commands import (
    AcknowledgeEvents,
    AcknowledgePlayback,
    AppendText,
    BargeIn,
    CancelInput,
    CancelResponse,
    ClearInput,
    ClearOutputAudio,
    ClientCommand,
    CloseSession,
    CommitAudio,
    CreateItem,
    CreateResponse,
    DeleteItem,
    Heartbeat,
    ResponseOptions,
    ResumeSession,
    RetrieveItem,
    SignalTurn,
    TruncateItem,
    UpdateSession,
)
from duplex_engine.protocol.events import ResponseDone
from duplex_engine.protocol.formats import Encoding
from duplex_engine.protocol.session_config import PlaybackPolicy, SessionConfig

MS_PER_CHARACTER = 10

SETTINGS: list[tuple[SessionConfig, Capabilities]] = [
    (PUSH_TO_TALK, CASCADE),
    (attrs.evolve(PUSH_TO_TALK, playback_policy=PlaybackPolicy.ACK_ONLY), CASCADE),
    (attrs.evolve(PUSH_TO_TALK, output_encoding=Encoding.ULAW), attrs.evolve(CASCADE, barge_in=False)),
    (DETECTED, CASCADE),
    (attrs.evolve(DETECTED, overlap_short_ack_ms=0.0, output_encoding=Encoding.WAV), CASCADE),
    (attrs.evolve(DETECTED, output_rate_hz=16_000), attrs.evolve(CASCADE, overlapping_responses=True)),
    (attrs.evolve(GA, turn_detection=DETECTED.turn_detection, overlap_policy="barge_in_on_speech"), CASCADE),
    (attrs.evolve(GA, modalities=("text",)), CASCADE),
    (MODEL_DECIDES, NATIVE),
    (attrs.evolve(DETECTED, native=True), attrs.evolve(NATIVE, interrupt=Interrupt.EPOCH)),
    (
        attrs.evolve(MODEL_DECIDES, modalities=("text",)),
        Capabilities(turn_policy=TurnPolicy.MODEL, barge_in=False, overlapping_responses=True),
    ),
]

booleans = st.booleans()
milliseconds = st.integers(0, 1500)
playback_ms = st.integers(-100, 4000)


@attrs.define
class Said:
    """What the checker knows of one answer. `aligned`: every word has its mark."""

    response_id: str
    characters: int = 0
    aligned: bool = True
    began_at: float | None = None
    cut_at: float | None = None
    committed_ms: int = 0


class ConversationMachine(RuleBasedStateMachine):
    """Plays client, user and model; the rig plays the actor."""

    def __init__(self) -> None:
        super().__init__()
        self.serial = 0
        self.speaking = False
        self.voiced_ms = 0.0
        self.answers: dict[Any, Said] = {}
        self.watch = Watch()
        self.acknowledged = False

    @initialize(setting=st.sampled_from(SETTINGS))
    def open(self, setting: tuple[SessionConfig, Capabilities]) -> None:
        config, capabilities = setting
        self.config = config
        self.rig = Rig(config, capabilities, SessionLimits(input_bytes=200_000))
        self.watch.see(self.rig.events, strict=True)

    # --- what tests ask for ----------------------------------------------------------------------------------------------

    def note(self, events: list[Any]) -> list[Any]:
        self.watch.see(events, strict=self.config.duplex_events)
        for key, response_id in self.rig.ids.items():
            self.answers.setdefault(key, Said(response_id))
        cut = {event.response_id for event in events if _cancelled(event)}
        for said in self.answers.values():
            if said.response_id in cut:
                said.cut_at = self.rig.now
        return events

    def command(self, kind: Any, **fields: Any) -> list[Any]:
        """Obey; a refused command changes nothing, and the error names it (I15)."""
        self.serial += 1
        command = kind(event_id=f"evt_{self.serial}", **fields)
        return self.checked(command, lambda: self.rig.obey(command))

    def checked(self, command: ClientCommand, obey: Any) -> list[Any]:
        before = fingerprint(self.rig.machine)
        events = self.note(obey())
        refused = errors(events)
        for error in refused:
            if error.error.event_id == command.event_id and error.error.code != "barge_in_unsupported":
                assert events == [error]
                assert fingerprint(self.rig.machine) == before, f"I15: refused, and something changed: {command}"
        return events

    def response_ids(self) -> list[str]:
        return [said.response_id for said in self.answers.values()]

    def pick_id(self, data: st.DataObject) -> str | None:
        return data.draw(st.sampled_from([None, "resp-unknown", *self.response_ids()]))

    def pick_item(self, data: st.DataObject) -> str:
        ids = ["", "item_unknown", *(f"item_{name}" for name in self.response_ids())]
        ids += [message.item_id for message in self.rig.machine.history()]
        return data.draw(st.sampled_from(ids))

    # --- the user's sound -------------------------------------------------------------------------------------

    @precondition(lambda self: self.config.turn_detection is None)
    @rule(
        duration_ms=st.integers(1, 1200),
        speech=booleans,
        action=st.sampled_from([None, None, None, "barge_in", "listen", "drop"]),
        force_barge_in=st.sampled_from([False, False, True]),
        force_listen=booleans,
        transcript=st.sampled_from([None, None, "ok", "tell me more"]),
    )
    def append(self, duration_ms: int, speech: bool, action: str | None, **flags: Any) -> None:
        self.note(self.rig.appends(duration_ms, speech=speech, overlap_action=action, **flags))

    @precondition(lambda self: self.config.turn_detection is not None)
    @rule(duration_ms=st.integers(32, 2400), flips=st.integers(0, 3), pause=booleans)
    def append_detected(self, duration_ms: int, flips: int, pause: bool) -> None:
        edges, step = [], duration_ms / (flips + 1)
        speaking = self.speaking
        for place in range(1, flips + 1):
            speaking = not speaking
            edges.append(("started" if speaking else "stopped", round(place * step)))
        if pause and speaking and not edges:
            edges = [("paused", 1), ("resumed", round(step / 2))]
        self.voiced_ms = self.voiced_ms + duration_ms if speaking and self.speaking else float(duration_ms)
        self.speaking = speaking
        self.note(self.rig.hears(duration_ms, *edges, speaking=speaking, voiced_ms=self.voiced_ms))

    @rule(asked=booleans, is_speech=st.sampled_from([None, None, False]))
    def commit(self, asked: bool, is_speech: bool | None) -> None:
        self.speaking = False
        self.command(CommitAudio, response_create=asked, is_speech=is_speech)

    @precondition(lambda self: not self.config.native)
    @rule(duration_ms=st.integers(200, 1500))
    def ask(self, duration_ms: int) -> None:
        """A whole question, which is what most conversations are made of."""
        if self.config.turn_detection is None:
            self.note(self.rig.appends(duration_ms, speech=True))
            self.commit(True, None)
        elif not self.speaking:
            edges = (("started", 100), ("stopped", duration_ms))
            self.note(self.rig.hears(duration_ms, *edges, voiced_ms=duration_ms - 100))

    # --- the client -------------------------------------------------------------------------------------------

    @rule(kind=st.sampled_from([ClearInput, CancelInput, BargeIn]))
    def plain(self, kind: Any) -> None:
        self.speaking = False
        self.command(kind)

    @rule(data=st.data(), kind=st.sampled_from([CancelResponse, ClearOutputAudio]))
    def stop_output(self, data: st.DataObject, kind: Any) -> None:
        self.command(kind, response_id=self.pick_id(data))

    @rule(
        modalities=st.sampled_from([None, ("text",), ("audio", "text")]),
        in_history=booleans,
        unsupported=st.sampled_from([(), (), ("voice",)]),
    )
    def create_response(self, modalities: Any, in_history: bool, unsupported: Any) -> None:
        options = ResponseOptions(modalities=modalities, in_history=in_history)
        self.command(CreateResponse, options=options, unsupported=unsupported)

    @rule(data=st.data())
    def items(self, data: st.DataObject) -> None:
        kind = data.draw(st.sampled_from([CreateItem, CreateItem, DeleteItem, RetrieveItem]))
        if kind is not CreateItem:
            self.command(kind, item_id=self.pick_item(data))
            return
        text = data.draw(st.sampled_from(["", "Hello."]))
        role = data.draw(st.sampled_from(["user", "system", "assistant"]))
        item_id = data.draw(st.sampled_from([f"item_c{self.serial}", "item_c1"]))
        previous = data.draw(st.sampled_from([None, None, "root", self.pick_item(data) or None]))
        item = text_item(text, item_id=item_id, role=role)
        self.command(CreateItem, item=item, previous_item_id=previous)

    @rule(data=st.data(), end_ms=playback_ms, index=st.sampled_from([0, 0, 0, 1]))
    def truncate(self, data: st.DataObject, end_ms: int, index: int) -> None:
        self.command(TruncateItem, item_id=self.pick_item(data), audio_end_ms=end_ms, content_index=index)

    @rule(data=st.data(), played=playback_ms, committed=playback_ms, truncate=booleans)
    def acknowledge(self, data: st.DataObject, played: int, committed: int, truncate: bool) -> None:
        response_id = self.pick_id(data)
        events = self.command(
            AcknowledgePlayback, played_ms=played, committed_ms=committed, response_id=response_id, truncate=truncate
        )
        if not errors(events):
            self.acknowledged = True
            item_id = events[-1].event["item_id"]
            for said in self.answers.values():
                if item_id == f"item_{said.response_id}":
                    said.committed_ms = max(said.committed_ms, committed)

    @rule(data=st.data())
    def housekeeping(self, data: st.DataObject) -> None:
        names = st.sampled_from(["user_started", "assistant_done", "anything", "close", "timeout"])
        voices = st.sampled_from([None, "alto"])
        command = data.draw(
            st.one_of(
                st.just((AppendText, {"text": "words"})),
                st.just((ResumeSession, {"session_id": "duplex-0123", "resume_token": "x"})),
                st.just((AcknowledgeEvents, {"server_event_seq": 1})),
                st.just((Heartbeat, {})),
                names.map(lambda name: (SignalTurn, {"event": name})),
                voices.map(lambda voice: (UpdateSession, {"session": {"voice": voice}})),
            )
        )
        self.command(command[0], **command[1])

    # --- the model --------------------------------------------------------------------------------------------

    @precondition(lambda self: self.config.native)
    @rule()
    def model_begins(self) -> None:
        before = len(self.rig.events)
        self.rig.begins()
        self.note(self.rig.events[before:])

    @precondition(lambda self: self.answers)
    @rule(data=st.data(), characters=st.integers(0, 150), marked=st.sampled_from([True, True, True, False]))
    def model_speaks(self, data: st.DataObject, characters: int, marked: bool) -> None:
        """Also in answers that are over: whatever they say then is not heard."""
        key = data.draw(st.sampled_from([*self.answers, *self.rig.alive]))
        said, length_ms = self.answers[key], characters * MS_PER_CHARACTER
        total = said.characters + characters
        mark = TextMark(total, total * MS_PER_CHARACTER) if marked else None
        events = self.note(self.rig.speaks(key, length_ms, "x" * characters, mark))
        if key not in self.rig.alive:
            assert events == []
            return
        said.characters, said.aligned = total, said.aligned and marked
        if said.began_at is None and length_ms:
            said.began_at = self.rig.now

    @rule(data=st.data())
    def model_writes(self, data: st.DataObject) -> None:
        if self.answers:
            key = data.draw(st.sampled_from(list(self.answers)))
            said = self.answers[key]
            said.aligned, said.characters = False, said.characters + len("word ")
            self.note(self.rig.learn(ResponseText(key, "word ")))

    @precondition(lambda self: self.rig.alive)
    @rule(
        data=st.data(),
        status=st.sampled_from([ResponseStatus.COMPLETED, *ResponseStatus]),
        yielded=booleans,
    )
    def model_ends(self, data: st.DataObject, status: ResponseStatus, yielded: bool) -> None:
        key = data.draw(st.sampled_from(self.rig.alive))
        yielded = yielded and status is ResponseStatus.COMPLETED and self.config.native
        self.note(self.rig.ends(key, status, "stop", yielded=yielded))
        assert self.rig.learn(ResponseEnded(key=key, status=ResponseStatus.COMPLETED)) == []

    @rule(data=st.data())
    def model_tells(self, data: st.DataObject) -> None:
        """Facts beside the answers; the opening of a turn's block is no news, alive or not."""
        self.serial += 1
        turn = data.draw(st.sampled_from([None, *self.answers]))
        fact = data.draw(
            st.sampled_from(
                [
                    ModelListened(),
                    ModelListened("buffering"),
                    UserHeard("what was said", turn, True),
                    UserHeard("what", turn, False),
                    FunctionCalled(FunctionCall("look", "{}", f"call_{self.serial}"), turn),
                    InputRefused(code="runtime_append_failed", message="no"),
                ]
            )
        )
        self.note(self.rig.learn(fact))
        if not self.config.native and turn is not None:
            assert self.rig.learn(ResponseOpened(turn)) == []

    # --- time and the end -------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.01, 0.3, 2.5]))
    def wait(self, seconds: float) -> None:
        self.rig.now += seconds

    @invariant()
    def nobody_is_forgotten(self) -> None:
        if hasattr(self, "rig"):
            assert set(self.response_ids()) <= self.watch.created

    @invariant()
    def history_holds_what_was_heard(self) -> None:
        """I14, for cut answers whose every word has its mark; a filter's delay may shift a mark by a character."""
        if not hasattr(self, "rig"):
            return
        words = {message.item_id: message.text for message in self.rig.machine.history()}
        for said in self.answers.values():
            if said.cut_at is None or not said.aligned or "audio" not in self.config.modalities:
                continue
            heard_ms = said.committed_ms
            if not self.acknowledged:
                heard_ms = 0 if said.began_at is None else (said.cut_at - said.began_at) * 1000
            assert len(words.get(f"item_{said.response_id}", "")) <= heard_ms / MS_PER_CHARACTER + 1

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        if self.serial % 2:
            self.command(CloseSession)
        else:
            while self.rig.alive:
                self.note(self.rig.ends(self.rig.alive[0], ResponseStatus.CANCELLED, "session_closed"))
            self.note(self.rig.perform(self.rig.machine.ending("idle_ttl_expired", expired=True)))
        assert self.watch.closed
        assert self.rig.learn(ModelListened()) == []


def _cancelled(event: Any) -> bool:
    return isinstance(event, ResponseDone) and event.response["status"] == "cancelled"


def test_any_conversation_keeps_its_invariants():
    run_state_machine_as_test(
        ConversationMachine, settings=settings(max_examples=150, stateful_step_count=50, deadline=None)
    )
