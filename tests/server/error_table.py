"""Every error code that a client can meet, as a table: how to meet it, what the error says, and what follows.

`TABLE` is read by `test_error_codes.py`. `NOT_YET` says why no client can meet the remaining codes.
"""

import base64
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from itertools import repeat
from typing import Any

import attrs
import trio
import trio.testing
from server_rig import SPEECH, Caller, Rig, Talker
from transport_peer import BINARY, TEXT, frame

from duplex_engine.audio.pcm import Samples
from duplex_engine.audio.vad import SpeechDetector
from duplex_engine.config import SessionLimits
from duplex_engine.conversation.effects import Turn
from duplex_engine.errors import DetectorFailed
from duplex_engine.model_plugins.cascade.plan import plan_session, replan_session
from duplex_engine.model_plugins.contract import Epoch, ModelPlugin, Response, SessionPlan
from duplex_engine.model_plugins.scripted.plugin import ScriptedPlugin
from duplex_engine.protocol.session_config import SessionConfig

FAULT, OURS, RATE = "invalid_request_error", "server_error", "rate_limit_error"
MIB = 1024 * 1024
PATIENCE_S = 100


# --- what happens before an error ----------------------------------------------------------------------------------


class Theirs(Enum):
    """Something that belongs to the neighbour's session; the value is where its greeting says it."""

    SESSION_ID = "session_id"
    TOKEN = "resume_token"


@attrs.define
class Scene:
    """One client and the server it talks to. `beside`: where things may run on. `said`: what the server said so far.

    `theirs`: the `session.created` of its neighbour.
    """

    rig: Rig
    beside: trio.Nursery
    caller: Caller
    theirs: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True)
    said: list[dict[str, Any]] = attrs.Factory(list)

    @property
    def kinds(self) -> list[str]:
        """The types of what the server said."""
        return [event["type"] for event in self.said]

    async def until(self, kind: str) -> dict[str, Any]:
        """The next event of this type."""
        while True:
            event = await self.caller.next_event()
            self.said.append(event)
            if event["type"] == kind:
                return event

    async def take(self, step: "Step") -> None:
        """A command is sent, bytes go out as they are, a string is an event to wait for, anything else is done."""
        if isinstance(step, str):
            await self.until(step)
        elif isinstance(step, bytes):
            await self.caller.send(step)
        elif isinstance(step, Mapping):
            await self.caller.send(text(json.dumps({key: self._filled_in(value) for key, value in step.items()})))
        else:
            await step(self)

    def _filled_in(self, value: Any) -> Any:
        if value is Theirs.SESSION_ID:
            return self.theirs["session"]["id"]
        return self.theirs[value.value] if isinstance(value, Theirs) else value


Step = Mapping[str, Any] | bytes | str | Callable[[Scene], Awaitable[None]]


class Then(Enum):
    """What becomes of the caller: everything goes on, its connection ends, or its session does."""

    GOES_ON = "goes on"
    ENDS = "ends"
    CLOSES = "closes"


@attrs.frozen
class Row:
    """One way to meet a code.

    `offence`: the frame that is refused, last of all; None: the error has no frame for its cause. A command carries the
    id `evt_1`, which the error has to name; in bytes none can be read. `before`: steps that come first. `after`: what
    the client does about it. `session`: what
    the caller opens with; None: it does not, the offence is its first frame. `deaf`: the server's writes wait for it.
    """

    code: str
    param: str | None = None
    offence: Mapping[str, Any] | bytes | None = None
    type: str = attrs.field(default=FAULT, kw_only=True)
    before: Sequence[Step] = attrs.field(default=(), kw_only=True)
    after: Sequence[Step] = attrs.field(default=(), kw_only=True)
    session: Mapping[str, Any] | None = attrs.field(factory=dict, kw_only=True)
    plugin: Callable[[], ModelPlugin] = attrs.field(kw_only=True)
    limits: SessionLimits = attrs.field(default=SessionLimits(), kw_only=True)
    seats: int = attrs.field(default=10, kw_only=True)
    deaf: bool = attrs.field(default=False, kw_only=True)
    then: Then = attrs.field(default=Then.GOES_ON, kw_only=True)
    close_code: int = attrs.field(default=1000, kw_only=True)
    retryable: bool | None = attrs.field(default=None, kw_only=True)

    @property
    def next_turn(self) -> Sequence[Step]:
        """How to be answered once more."""
        return WAIT_FOR_WORD if self.plugin is native else TURN

    @property
    def neighbour(self) -> Mapping[str, Any]:
        """What somebody opens with who shares nothing with the caller but the server."""
        return {"extra_body": {"worker": "other", "auto_response": self.plugin is native}}

    def __str__(self) -> str:
        where = {Then.GOES_ON: "", Then.ENDS: " ends", Then.CLOSES: " closes"}[self.then]
        return f"{self.code} {self.param or ''}{where}"


# --- plugins -------------------------------------------------------------------------------------------------------


def scripted(**options: Any) -> Callable[[], ModelPlugin]:
    """A scripted plugin with a worker for the caller and one for its neighbour."""
    return lambda: ScriptedPlugin(**{"workers": ("voice", "other"), "lead_s": 0.2, **options})


turns = scripted(mode="turn", script='forever { speak "still here" for 1 }')
resumable = scripted(mode="turn", script='forever { speak "still here" for 1 }', resume=True)
uninterruptible = scripted(mode="turn", script='forever { speak "still here" for 1 }', barge_in=False)
native = scripted(mode="native", script='forever { listen 5; speak "still here" for 0.8 }', barge_in=False)


@attrs.frozen
class Stumbling(SessionPlan):
    """Whether the next answer falls over a bug, turn after turn."""

    stumbles: Iterator[bool]


@attrs.define
class Clumsy(Talker):
    """A plugin with a bug that a session's instructions bring out: at the `opening`, `once`, or `always`."""

    def plan(self, config: SessionConfig) -> SessionPlan:
        if config.instructions == "opening":
            raise ZeroDivisionError("a bug of the plugin")
        return Stumbling({"once": iter([True]), "always": repeat(True)}.get(config.instructions or "", iter(())))

    async def answer(self, epoch: Epoch, turn: Turn, response: Response) -> None:
        assert isinstance(epoch.plan, Stumbling)
        if next(epoch.plan.stumbles, False):
            raise ZeroDivisionError("a bug of the plugin")
        await super().answer(epoch, turn, response)


class BrokenDetector:
    """A detector that cannot judge."""

    def probability(self, window: Samples) -> float:
        """Never says anything."""
        raise DetectorFailed("the detector is broken")

    def reset(self) -> None:
        """Nothing is remembered."""


@attrs.define
class HardOfHearing(Talker):
    """A plugin whose detector is broken."""

    def detector(self) -> SpeechDetector:
        return BrokenDetector()


@attrs.define
class OneVoice(Talker):
    """Takes and refuses what the embedded voice does, without its models."""

    def plan(self, config: SessionConfig) -> SessionPlan:
        return plan_session(config)

    def replan(self, plan: Any, config: SessionConfig, patch: Mapping[str, object], *, started: bool) -> SessionPlan:
        return replan_session(plan, config)


# --- what clients do -----------------------------------------------------------------------------------------------


def text(words: str) -> bytes:
    """A text message."""
    return frame(TEXT, words.encode())


def say(kind: str, **fields: Any) -> dict[str, Any]:
    """A command that can be named."""
    return {"type": kind, "event_id": "evt_1", **fields}


def update(**session: Any) -> dict[str, Any]:
    """A `session.update`."""
    return say("session.update", session=session)


def append(**fields: Any) -> dict[str, Any]:
    """An append of a second of speech, unless `fields` say otherwise."""
    return say("input_audio_buffer.append", **{"audio": SPEECH, **fields})


def item(**fields: Any) -> dict[str, Any]:
    """A `conversation.item.create`."""
    return say("conversation.item.create", item={"role": "user", **fields})


RESUME: dict[str, Any] = {"session_id": "duplex-1", "resume_token": "t", "last_received_server_event_seq": 0}


def picture(url: str) -> dict[str, Any]:
    """An item with a picture."""
    return item(content=[{"type": "input_image", "image_url": url}])


def claim(**fields: Any) -> dict[str, Any]:
    """A `session.resume` of the neighbour's session."""
    return say("session.resume", **{**RESUME, "session_id": Theirs.SESSION_ID, **fields})


SPEAK = {"type": "input_audio_buffer.append", "audio": SPEECH}
COMMIT = {"type": "input_audio_buffer.commit", "response_create": True}
SEND_OUTPUT = {
    "type": "conversation.item.create",
    "item": {"type": "function_call_output", "call_id": "call_7_1", "output": ""},
}
ASK: tuple[Step, ...] = (SPEAK, COMMIT, "response.created")
TURN: tuple[Step, ...] = (*ASK, "response.done")
WAIT_FOR_WORD: tuple[Step, ...] = (
    {"type": "input_audio_buffer.append", "audio": base64.b64encode(bytes(2 * 16_000 * 2)).decode()},
    "response.created",
    "response.done",
)
"""A turn with a model that begins by itself."""
TYPE = {"type": "conversation.item.create", "item": {"content": [{"type": "input_text", "text": "Hi"}]}}
JPEG = base64.b64encode(b"\xff\xd8\xff\xe0").decode()
DETECTED = {"turn_detection": {"type": "server_vad"}}
NATIVE = {"extra_body": {"auto_response": True}}
CALLS = 'call f; call f; wait 1; forever { listen 5; speak "still here" for 0.8 }'
CALLING = {"extra_body": {"auto_response": True, "mark": 7, "script": CALLS}}
BAD_CALL = 'fail function_call_parse_error "no such function"; speak "again" for 1'


async def crash_a_worker(scene: Scene) -> None:
    """Somebody else's answer takes the first worker down."""
    other = await scene.rig.call()
    await other.open({"extra_body": {"script": "crash"}})
    await other.asks()
    while (await other.next_event())["type"] != "response.done":
        pass
    await other.say("session.close")
    await other.hears("session.closed")
    await other.farewell()


async def begin_to_drain(scene: Scene) -> None:
    """The server was told to stop; those who are there may stay for a while."""
    scene.rig.reception.stop.set()
    scene.beside.start_soon(scene.rig.engine.drain, PATIENCE_S)
    await trio.testing.wait_all_tasks_blocked()


async def read_nothing_for_a_while(scene: Scene) -> None:
    """The client does something else."""
    await trio.sleep(2)


# --- the table -----------------------------------------------------------------------------------------------------

turn = partial(Row, plugin=turns)
"""A row of a turn model whose session goes on."""
door = partial(Row, plugin=turns, session=None, then=Then.ENDS, close_code=1008)
"""A row of an opening that fails."""
later = partial(door, close_code=1013, retryable=True)
"""The same, worth another try."""

TABLE: list[Row] = [
    # frames
    turn("bad_event", "audio", say("input_audio_buffer.append")),
    turn("bad_event", "type", {"type": 7, "event_id": "evt_1"}),
    turn("bad_event", "played_ms", say("playback.ack", played_ms=True)),
    turn("bad_event", "sample_rate_hz", append(sample_rate_hz=True)),
    turn("bad_event", None, text("[]")),
    turn("bad_event", None, frame(BINARY, b"\0\1")),
    turn("bad_audio", "audio", append(audio="?")),
    turn("invalid_json", None, text("{")),
    turn("invalid_json", None, text('{"type":"playback.ack","event_id":"evt_1","played_ms":NaN}')),
    turn("unknown_event", "type", say("session.explode")),
    turn("event_too_large", None, text("{}" + " " * (15 * MIB - 1))),
    turn("invalid_event_ack", "server_event_seq", say("session.event_ack", server_event_seq=-1)),
    turn("invalid_event_ack", "server_event_seq", say("session.event_ack", server_event_seq=99)),
    turn("unsupported_audio_format", "format", append(format="opus")),
    turn("invalid_video_frames", "video_frames[0]", append(video_frames=["?"])),
    turn("invalid_image", "item.content[0].image_url", picture("http://example.org/b.jpg")),
    turn("invalid_input_modality", "video_frames", append(video_frames=[JPEG])),
    turn("unsupported", "item.content", picture(f"data:image/jpeg;base64,{JPEG}")),
    turn("native_text_append_unsupported", "text", say("input.text.append", text="Hi")),
    turn("missing_item_id", "item_id", say("conversation.item.delete")),
    turn("item_not_found", "item_id", say("conversation.item.retrieve", item_id="none")),
    turn("invalid_function_call_output", "item.call_id", item(type="function_call_output", call_id="x", output="")),
    Row(
        "function_response_backlog",
        "item.output",
        item(type="function_call_output", call_id="call_7_2", output=""),
        type=RATE,
        plugin=native,
        session=CALLING,
        limits=SessionLimits(function_outputs=1),
        before=[SPEAK, "response.done", "response.done", SEND_OUTPUT],
    ),
    # opening and admission
    door("config_timeout"),
    door("invalid_json", None, text("{")),
    door("bad_event", None, text("[]")),
    door("bad_event", None, frame(BINARY, b"{}")),
    door("unknown_event", "type", say("session.explode")),
    door("invalid_session_config", None, update(metadata={"long": "x" * MIB})),
    turn("invalid_session_config", None, update(metadata={"long": "x" * MIB})),
    later("resource_exhausted", None, update(), type=RATE, seats=1),
    later("warming_up", None, update(), type=OURS, before=[crash_a_worker]),
    later("draining", None, update(), type=OURS, before=[begin_to_drain]),
    door("invalid_voice", "voice", update(voice="alloy"), plugin=OneVoice),
    turn("invalid_voice", "voice", update(voice="alloy"), plugin=OneVoice),
    # resuming
    door("invalid_session_resume", "session_id", say("session.resume")),
    door("unsupported_session_resume", None, say("session.resume", **RESUME)),
    turn("unsupported_session_resume", None, say("session.resume", **RESUME)),
    door("session_resume_expired", None, say("session.resume", **RESUME), plugin=resumable),
    door("invalid_resume_token", "resume_token", claim(), plugin=resumable),
    door(
        "session_resume_conflict",
        "last_received_server_event_seq",
        claim(resume_token=Theirs.TOKEN, last_received_server_event_seq=1_000_000),
        plugin=resumable,
    ),
    turn("unsupported_session_resume", None, say("session.resume", **RESUME), plugin=resumable),
    # configuration
    door("unsupported_audio_format", "input_audio_format", update(input_audio_format="opus")),
    door("unsupported_turn_detection", "turn_detection.type", update(turn_detection={"type": "telepathy"})),
    turn("unsupported_turn_detection", "turn_detection.type", update(turn_detection={"type": "telepathy"})),
    door("invalid_duplex_runtime_config", "extra_body.script", update(extra_body={"script": "sing"})),
    turn("invalid_duplex_runtime_config", "extra_body.script", update(extra_body={"script": "sing"})),
    turn("model_update_unsupported", "model", update(model="another")),
    turn("ref_audio_update_unsupported", "ref_audio", update(ref_audio="data:audio/wav;base64,")),
    turn("voice_update_after_audio_unsupported", "voice", update(voice="bass"), before=TURN),
    # turns and responses
    turn(
        "input_backpressure",
        None,
        append(),
        type=RATE,
        limits=SessionLimits(input_bytes=100_000),
        before=[SPEAK],
        after=[{"type": "input_audio_buffer.clear"}, "input_audio_buffer.cleared"],
    ),
    turn("input_audio_buffer_empty", None, say("input_audio_buffer.commit")),
    turn("server_vad_unavailable", None, append(), type=OURS, plugin=HardOfHearing, session=DETECTED),
    turn("barge_in_unsupported", None, say("barge_in"), plugin=uninterruptible),
    turn("barge_in_unsupported", None, append(force_barge_in=True), plugin=native, session=NATIVE),
    turn("response_already_active", None, say("response.create"), before=ASK),
    turn("response_not_active", None, say("response.cancel")),
    turn("response_not_active", "response_id", say("response.cancel", response_id="resp_none")),
    turn("response_create_without_input", None, say("response.create")),
    turn("text_only_turn_unsupported", None, say("response.create"), plugin=native, session=NATIVE, before=[TYPE]),
    turn(
        "unsupported_native_response_options",
        "response.temperature",
        say("response.create", response={"temperature": 1}),
    ),
    turn("playback_item_mismatch", "item_id", say("playback.ack", played_ms=1, response_id="a", item_id="b")),
    turn("playback_item_not_found", "response_id", say("playback.ack", played_ms=1, response_id="resp_none")),
    # the session and the engine
    door("internal_error", None, update(instructions="opening"), type=OURS, plugin=Clumsy, close_code=1011),
    turn("internal_error", type=OURS, plugin=Clumsy, session={"instructions": "once"}, before=ASK),
    turn(
        "context_length_exceeded",
        plugin=scripted(mode="turn", script='forever { speak "still here" for 1 }', context_units=100),
        session={"extra_body": {"script": 'speak "far too much" for 9'}},
        before=[SPEAK, COMMIT],
        then=Then.CLOSES,
    ),
    turn("function_call_parse_error", type=OURS, session={"extra_body": {"script": BAD_CALL}}, before=ASK),
    turn("engine_error", type=OURS, session={"extra_body": {"script": 'fail; speak "again" for 1'}}, before=ASK),
    turn(
        "model_unavailable",
        type=OURS,
        plugin=Clumsy,
        session={"instructions": "always"},
        limits=SessionLimits(failed_epochs=1),
        before=[*TURN, *TURN],
        then=Then.CLOSES,
    ),
    turn(
        "output_overflow",
        type=RATE,
        limits=SessionLimits(output_events=20),
        deaf=True,
        before=[SPEAK, COMMIT, read_nothing_for_a_while],
        then=Then.CLOSES,
    ),
]

_OTHER_MODELS = "comes with the models that can say it"
_NO_SUCH_CALL = "there is no such call of an engine that could fail: a session talks to its model in the same program"
_ACCEPTED = "what the code refuses is accepted here"

NOT_YET: dict[str, str] = {
    **dict.fromkeys(
        (
            *("prefill_unavailable", "model_path_unavailable", "ref_audio_required", "unsupported_ref_audio_path"),
            *("unsupported_nemotron_duplex_mode", "invalid_sliding_window_config", "instructions_update_unsupported"),
            *("persona_update_unsupported", "voice_update_unsupported", "sliding_window_update_unsupported"),
            "nemotron_function_call_parse_error",
        ),
        _OTHER_MODELS,
    ),
    **dict.fromkeys(
        (
            *("timeout", "engine_backpressure", "failed_precondition", "not_found", "stale_fence"),
            *("runtime_touch_failed", "runtime_signal_failed", "runtime_abort_failed", "runtime_append_failed"),
            *("runtime_append_task_failed", "runtime_data_plane_stream_failed"),
            *("runtime_data_plane_text_without_audio", "realtime_input_failed", "runtime_resume_failed"),
        ),
        _NO_SUCH_CALL,
    ),
    "playback_ack_too_late": _ACCEPTED,
    "session_exists": "ids are given by the server",
    "unknown_session": "a connection has one session, and ends with it",
    "session_closed": "what comes behind session.close finds nobody any more, and the last word is on its way already",
    "session_update_aborted": "an append that was refused leaves nothing behind that an update could wait for",
    "commit_aborted": "an append that was refused leaves nothing behind that a commit could wait for",
    "invalid_argument": "said of the settings of a server, before anybody can connect",
    "engine_dead": "said to everybody when the engine has failed (test_server_conversation.py)",
}
