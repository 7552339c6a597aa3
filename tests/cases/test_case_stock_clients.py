"""What stock clients expect of the first words of a connection without saying so, and what their parsers refuse later."""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import pytest
from server_rig import rigged
from trio.abc import Clock

from duplex_engine.model_plugins.scripted.plugin import ScriptedPlugin
from duplex_engine.protocol import events
from duplex_engine.protocol.session_config import Profile
from duplex_engine.testing.caller import Caller as Person
from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import run_story

GA, DUPLEX = "/v1/realtime?model=m", "/v1/realtime?duplex=1&model=m&autostart=0"
PCM = {"type": "audio/pcm", "rate": 24_000}

# --- the first words --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["turn", "native"])
async def test_a_client_that_names_a_model_is_spoken_to_first(autojump_clock: Clock, mode: str) -> None:
    async with rigged(ScriptedPlugin(mode=mode)) as rig:
        caller = await rig.call(GA)
        created, updated = await caller.next_event(), await caller.next_event()
        assert [created["type"], updated["type"]] == ["session.created", "session.updated"]
        assert created["session"]["model"] == "m"


async def test_a_client_that_configures_first_is_answered_then_and_not_before(autojump_clock: Clock) -> None:
    async with rigged(ScriptedPlugin(mode="turn")) as rig:
        caller = await rig.call(DUPLEX)
        await rig.settles()
        await caller.say("session.update", session={"instructions": "be brief"})
        created = await caller.next_event()
        assert (created["type"], created["session"]["instructions"]) == ("session.created", "be brief")


OFFERS: list[tuple[str, str | None]] = [
    ("realtime, openai-insecure-api-key.KEY", "realtime"),
    ("openai-insecure-api-key.KEY, realtime", "realtime"),
    ("realtime,openai-insecure-api-key.KEY,openai-agents-sdk.0.4.2", "realtime"),
    ("realtime, openai-insecure-api-key.KEY, openai-organization.o, openai-project.p", "realtime"),
    ("openai-insecure-api-key.KEY, openai-beta.realtime-v1, realtime", "realtime"),
    ("openai-insecure-api-key.KEY", None),
]


@pytest.mark.parametrize(("offer", "chosen"), OFFERS)
async def test_a_browser_gets_realtime_and_gives_its_key_beside_it(
    autojump_clock: Clock, offer: str, chosen: str | None
) -> None:
    async with rigged(ScriptedPlugin(mode="turn"), api_key="KEY") as rig:
        caller = rig.connect()
        status, headers = await caller.upgrade(GA, offer=[f"Sec-WebSocket-Protocol: {offer}"])
        assert status.startswith("HTTP/1.1 101")
        assert headers.get("sec-websocket-protocol") == chosen
        assert (await caller.next_event())["type"] == "session.created"
        wrong = rig.connect()
        refused, _ = await wrong.upgrade(GA, offer=[f"Sec-WebSocket-Protocol: {offer.replace('KEY', 'KEX')}"])
        assert refused.startswith("HTTP/1.1 401")


TRANSCRIPTION = {"model": "gpt-4o-mini-transcribe"}
OPENINGS: dict[str, dict[str, Any]] = {
    "nested, semantic": {
        "type": "realtime",
        "model": "gpt-realtime",
        "output_modalities": ["audio"],
        "instructions": "You are a helpful assistant.",
        "audio": {
            "input": {
                "format": PCM,
                "transcription": TRANSCRIPTION,
                "noise_reduction": None,
                "turn_detection": {"type": "semantic_vad", "create_response": True, "interrupt_response": True},
            },
            "output": {"format": PCM, "voice": "alloy", "speed": 1},
        },
        "tools": [],
        "tool_choice": "auto",
        "tracing": "auto",
        "truncation": "auto",
        "prompt": None,
    },
    "nested, server": {
        "type": "realtime",
        "audio": {
            "input": {
                "turn_detection": {
                    "type": "server_vad",
                    "threshold": 0.5,
                    "prefix_padding_ms": 300,
                    "silence_duration_ms": 200,
                    "idle_timeout_ms": None,
                    "create_response": True,
                    "interrupt_response": True,
                },
                "noise_reduction": {"type": "far_field"},
            },
            "output": {"voice": "marin"},
        },
        "include": ["item.input_audio_transcription.logprobs"],
        "max_output_tokens": "inf",
        "tracing": {"workflow_name": "w"},
    },
    "flat": {
        "modalities": ["text", "audio"],
        "voice": "alloy",
        "input_audio_format": "pcm16",
        "output_audio_format": "pcm16",
        "input_audio_transcription": TRANSCRIPTION,
        "input_audio_noise_reduction": None,
        "turn_detection": {"type": "semantic_vad", "eagerness": "high", "create_response": True},
        "temperature": 0.8,
        "max_response_output_tokens": 4096,
        "speed": 1.0,
        "tool_choice": "none",
        "tools": [{"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}}],
    },
    "a tracing of its own": {"type": "realtime", "tracing": "auto"},
}


@pytest.mark.parametrize("mode", ["turn", "native"])
@pytest.mark.parametrize("opening", OPENINGS)
def test_how_frameworks_open_is_accepted_and_echoed_as_it_is_in_force(opening: str, mode: str) -> None:
    session = OPENINGS[opening]

    async def story() -> None:
        async with open_rig(mode=mode) as rig, rig.caller(session={}, profile=Profile.GA) as person:
            for _ in range(2):
                await person.sends("session.update", session=session)
            await person.waits(0.1)
            assert not person.all("error")
            echo: Any = person.all("session.updated")[-1]["session"]
            assert check_session(echo) == []
            asked = session.get("turn_detection", session.get("audio", {}).get("input", {}).get("turn_detection"))
            if asked is not None:
                shown = echo["audio"]["input"]["turn_detection"]
                assert shown["type"] == asked["type"]
                assert {"create_response", "interrupt_response"} <= shown.keys() or mode == "native"
            assert echo["tracing"] == session.get("tracing")

    run_story(story)


@pytest.mark.parametrize("profile", Profile)
def test_the_metadata_of_a_request_comes_back_in_its_answer_as_a_client_can_read_it(profile: Profile) -> None:
    asked = {"client_event_id": "response_create_7f", "nested": {"a": [1]}, "number": 7, "nothing": None}

    async def story() -> None:
        async with open_rig(mode="turn", script='forever { speak "an answer" for 0.2 }') as rig:
            session = {"turn_detection": None, "metadata": {"topic": "tea"}}
            async with rig.caller(session=session, profile=profile) as person:
                await person.types("hello")
                await person.asks(metadata=asked)
                for kind in ("response.created", "response.done"):
                    response: Any = (await person.hears(kind))["response"]
                    assert response["metadata"]["client_event_id"] == "response_create_7f"
                    assert response["metadata"]["topic"] == "tea"
                    if profile is Profile.GA:
                        assert all(isinstance(value, str) for value in response["metadata"].values())

    run_story(story)


# --- what strict parsers refuse ---------------------------------------------------------------------------------------

Check = Callable[[Any], bool]
Rule = tuple[str, Check]


def text(value: object) -> bool:
    return isinstance(value, str)


def some(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def whole(value: object) -> bool:
    return type(value) is int and value >= 0


def nothing_or(check: Check) -> Check:
    return lambda value: value is None or check(value)


def one_of(*allowed: object) -> Check:
    return lambda value: value in allowed


def sound(value: object) -> bool:
    return isinstance(value, str) and len(base64.b64decode(value, validate=True)) % 2 == 0 and bool(value)


def strings(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(entry, str) for entry in value.values())


def faults(value: Any, rules: Sequence[Rule], where: str) -> list[str]:
    """Rules that an object breaks; every key they name has to be there."""
    if not isinstance(value, dict):
        return [f"{where} is {value!r}"]
    return [
        f"{where}.{key} is {value.get(key, 'absent')!r}"
        for key, right in rules
        if key not in value or not right(value[key])
    ]


PARTS: Mapping[str, Mapping[str, Sequence[Rule]]] = {
    "user": {
        "input_text": [("text", text)],
        "input_audio": [("transcript", nothing_or(text))],
        "input_image": [],
    },
    "assistant": {"output_text": [("text", text)], "output_audio": [("transcript", nothing_or(text))]},
    "system": {"input_text": [("text", text)]},
}
ITEMS: Mapping[str, Sequence[Rule]] = {
    "message": [("role", one_of(*PARTS)), ("content", lambda value: isinstance(value, list))],
    "function_call": [("name", some), ("call_id", some), ("arguments", text)],
    "function_call_output": [("call_id", some), ("output", text)],
}
ANY_ITEM: Sequence[Rule] = [
    ("id", some),
    ("type", one_of(*ITEMS)),
    ("object", one_of("realtime.item")),
    ("status", one_of("in_progress", "completed", "incomplete")),
]


def check_item(item: Any) -> list[str]:
    found = faults(item, ANY_ITEM, "item")
    if found:
        return found
    found = faults(item, ITEMS[item["type"]], "item")
    if item["type"] == "message" and not found:
        for part in item["content"]:
            rules = PARTS[item["role"]].get(part.get("type"))
            found += [f"item has a part {part}"] if rules is None else faults(part, rules, "part")
    return found


DETAILS = {"completed": {None}, "in_progress": {None}, "cancelled": {"turn_detected", "client_cancelled"}}
RESPONSE: Sequence[Rule] = [
    ("id", some),
    ("object", one_of("realtime.response")),
    ("status", one_of("in_progress", "completed", "cancelled", "failed", "incomplete")),
    ("output", lambda value: isinstance(value, list)),
    ("output_modalities", lambda value: isinstance(value, list) and set(value) <= {"audio", "text"}),
    ("metadata", nothing_or(strings)),
]
USAGE: Sequence[Rule] = [
    ("total_tokens", whole),
    ("input_tokens", whole),
    ("output_tokens", whole),
    ("input_token_details", lambda value: all(map(whole, value.values()))),
    ("output_token_details", lambda value: all(map(whole, value.values()))),
]


def check_response(response: Any) -> list[str]:
    found = faults(response, RESPONSE, "response")
    if found:
        return found
    status, details = response["status"], response["status_details"]
    if status in ("in_progress", "completed"):
        found += [] if details is None else [f"{status} has details {details}"]
    else:
        found += faults(details, [("type", one_of(status))], "status_details")
        reason = details.get("reason")
        known = {
            "cancelled": ("turn_detected", "client_cancelled"),
            "incomplete": ("max_output_tokens", "content_filter"),
        }
        if reason is not None and reason not in known.get(status, ()):
            found.append(f"{status} has the reason {reason}")
        if status == "failed":
            found += faults(details.get("error"), [("type", some), ("code", some)], "status_details.error")
    if status != "in_progress":
        found += faults(response.get("usage"), USAGE, "usage")
    return found + [fault for item in response["output"] for fault in check_item(item)]


def check_session(session: Any) -> list[str]:
    rules: Sequence[Rule] = [
        ("id", some),
        ("object", one_of("realtime.session")),
        ("type", one_of("realtime")),
        ("model", some),
        ("output_modalities", lambda value: isinstance(value, list)),
        ("tools", lambda value: isinstance(value, list)),
        ("tool_choice", lambda value: isinstance(value, str | dict)),
        ("max_output_tokens", lambda value: value == "inf" or type(value) is int),
    ]
    found = faults(session, rules, "session")
    for direction in ("input", "output"):
        side = session["audio"][direction]
        found += [] if side["format"] == PCM else [f"{direction} is {side['format']}"]
    detection = session["audio"]["input"]["turn_detection"]
    if detection is not None:
        found += faults(detection, [("type", one_of("server_vad", "semantic_vad"))], "turn_detection")
    return found


PLACE: Sequence[Rule] = [("previous_item_id", nothing_or(some))]
PIECE: Sequence[Rule] = [("response_id", some), ("item_id", some), ("output_index", whole), ("content_index", whole)]
PART: Sequence[Rule] = [("part", lambda value: value.get("type") in ("audio", "text"))]
CALLED: Sequence[Rule] = [("response_id", some), ("item_id", some), ("output_index", whole), ("call_id", some)]
RULES: Mapping[str, Sequence[Rule]] = {
    "session.created": [],
    "session.updated": [],
    "session.closed": [],
    "session.heartbeat_ack": [],
    "input_audio_buffer.speech_started": [("audio_start_ms", whole), ("item_id", some)],
    "input_audio_buffer.speech_stopped": [("audio_end_ms", whole), ("item_id", some)],
    "input_audio_buffer.committed": [*PLACE, ("item_id", some)],
    "input_audio_buffer.cleared": [],
    "conversation.item.added": PLACE,
    "conversation.item.created": PLACE,
    "conversation.item.done": PLACE,
    "conversation.item.retrieved": [],
    "conversation.item.deleted": [("item_id", some)],
    "conversation.item.truncated": [("item_id", some), ("content_index", whole), ("audio_end_ms", whole)],
    "conversation.item.input_audio_transcription.delta": [("item_id", some), ("content_index", whole), ("delta", some)],
    "conversation.item.input_audio_transcription.completed": [
        ("item_id", some),
        ("content_index", whole),
        ("transcript", text),
        ("usage", lambda value: value.get("type") in ("duration", "tokens")),
    ],
    "response.created": [],
    "response.done": [],
    "response.output_item.added": [("response_id", some), ("output_index", whole)],
    "response.output_item.done": [("response_id", some), ("output_index", whole)],
    "response.content_part.added": [*PIECE, *PART],
    "response.content_part.done": [*PIECE, *PART],
    "response.output_audio.delta": [*PIECE, ("delta", sound)],
    "response.output_audio.done": PIECE,
    "response.output_audio_transcript.delta": [*PIECE, ("delta", some)],
    "response.output_audio_transcript.done": [*PIECE, ("transcript", text)],
    "response.output_text.delta": [*PIECE, ("delta", some)],
    "response.output_text.done": [*PIECE, ("text", text)],
    "response.function_call_arguments.delta": [*CALLED, ("delta", text)],
    "response.function_call_arguments.done": [*CALLED, ("name", some), ("arguments", text)],
    "rate_limits.updated": [("rate_limits", lambda value: isinstance(value, list))],
    "output_audio_buffer.cleared": [("response_id", some)],
    "playback.acknowledged": [],
    "error": [],
}
"""Every event that a stock client may be sent, and what has to stand in it."""
INSIDE: Mapping[str, Callable[[Any], list[str]]] = {
    "item": check_item,
    "response": check_response,
    "session": check_session,
    "error": lambda error: faults(error, [("type", some), ("code", some), ("message", some)], "error"),
}
OURS = {"server_event_seq", "resume_token", "attachment_generation", "epoch"}
"""What only clients of the other profile know."""
NEVER = {
    "session.created",  # the greeting is the connection's, and looks as `session.updated` does
    "conversation.item.input_audio_transcription.delta",  # of models that recognise as they hear
    "session.resumed",
    "session.replaced",
    "session.resync_required",
    "session.expired",
    "session.lagging",
    "turn.event",
    "response.speak",
    "response.listen",
    "overlap.decision",
}
"""Events that this call has not, and why the rest of them has to be in it: a rule that nothing is held to is none."""


async def converses(person: Person) -> None:
    """A call in which everything happens that can."""
    await person.sends("session.heartbeat")
    await person.sends("session.update", session=OPENINGS["nested, server"])
    await person.speaks(1.2)
    await person.is_silent(0.8)
    spoken = await person.hears("response.created")
    await person.hears("response.done", status="completed", response_id=spoken["response_id"])
    await person.acks(200, response_id=spoken["response_id"])
    await person.sends(
        "conversation.item.truncate", item_id=f"item_{spoken['response_id']}", audio_end_ms=200, content_index=0
    )
    await person.sends("conversation.item.retrieve", item_id=f"item_{spoken['response_id']}")
    await person.speaks(1.2)
    await person.is_silent(0.6)
    await person.hears("response.created")
    await person.speaks(1.2)
    await person.hears("response.done", status="cancelled")
    await person.is_silent(0.8)
    await person.hears("response.done", status="failed")
    await person.sends("session.update", session={"audio": {"input": {"turn_detection": None}}})
    await person.types("a question", id="item_mine")
    await person.asks(output_modalities=["text"], metadata={"client_event_id": "evt", "nested": {"a": 1}})
    await person.hears("response.done", status="completed")
    await person.types("call me")
    await person.asks()
    call = await person.hears("response.function_call_arguments.done")
    await person.waits(3)
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
    await person.sends("conversation.item.create", item=output, previous_item_id="root")
    await person.asks()
    await person.hears("response.created")
    await person.sends("output_audio_buffer.clear")
    await person.hears("output_audio_buffer.cleared")
    await person.sends("conversation.item.delete", item_id="item_mine")
    audio = {"type": "input_audio", "audio": person._sound(0.5, 0.1), "transcript": "spoken"}
    await person.sends("conversation.item.create", item={"type": "message", "role": "user", "content": [audio]})
    system = {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "be kind"}]}
    await person.sends("conversation.item.create", item=system)
    await person.appends(0.4, loudness=0.0)
    await person.commits()
    await person.appends(0.4)
    await person.sends("input_audio_buffer.clear")
    await person.cancels()
    await person.commits()
    await person.sends("conversation.item.retrieve", item_id="item_none")
    await person.asks(output_audio_format="flac")
    await person.waits(1)


SCRIPT = """
listen 0.1; hear "what time is it"; speak "time for tea" for 0.4
listen 0.1; speak "a long answer" for 20
listen 0.1; fail server_error "no"
listen 0.1; speak "written" for 0.4
listen 0.1; speak "let me see" for 0.2; call look_up {"city": "Oslo"}
forever { listen 0.1; speak "it rains" for 2 }
"""


async def converses_natively(person: Person) -> None:
    """A call with a model that decides by itself."""
    await person.sends("session.update", session=OPENINGS["nested, semantic"])
    await person.speaks(0.8)
    first = await person.hears("response.created")
    await person.hears("response.done", status="completed", response_id=first["response_id"])
    await person.speaks(0.8)
    await person.hears("response.created")
    await person.waits(0.3)
    await person.cancels()
    await person.hears("response.done", status="cancelled")
    await person.speaks(0.8)
    call = await person.hears("response.function_call_arguments.done")
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
    await person.sends("conversation.item.create", item=output)
    await person.speaks(0.8)
    await person.commits()
    await person.asks()
    await person.sends("input_audio_buffer.clear")
    await person.types("hello")
    await person.waits(2)


NATIVE_SCRIPT = """
listen 4; hear "what time is it"; speak "time for tea" for 0.4
listen 4; speak "a long answer" for 20
listen 4; speak "let me see" for 0.2; call look_up {"city": "Oslo"}
forever { listen 8; speak "it rains" for 0.8 }
"""
CALLS = {"turn": (SCRIPT, converses), "native": (NATIVE_SCRIPT, converses_natively)}


def recorded(mode: str) -> list[Mapping[str, Any]]:
    """Every event of one call."""
    heard: list[Mapping[str, Any]] = []
    script, converse = CALLS[mode]

    async def story() -> None:
        async with open_rig(mode=mode, script=script) as rig:
            async with rig.caller(session={}, profile=Profile.GA) as person:
                person._rate_hz = 24_000
                await converse(person)
            heard.extend(happening.event for happening in person.heard)

    run_story(story)
    return heard


@pytest.fixture(scope="module", params=CALLS)
def call(request: pytest.FixtureRequest) -> list[Mapping[str, Any]]:
    """A call, recorded once."""
    return recorded(request.param)


def test_every_event_of_a_call_obeys_the_rules_of_strict_parsers(call: list[Mapping[str, Any]]) -> None:
    broken = []
    for event in call:
        rules = RULES.get(event["type"])
        found = ["nobody knows this event"] if rules is None else faults(event, [("event_id", some), *rules], "event")
        found += [f"it has {key}" for key in OURS & event.keys()]
        found += [fault for key, check in INSIDE.items() if key in event for fault in check(event[key])]
        broken += [f"{event['type']}: {fault}" for fault in found]
    assert broken == []
    assert len({event["event_id"] for event in call}) == len(call)


def test_every_event_that_a_stock_client_can_be_sent_is_in_the_call() -> None:
    call = recorded("turn")
    kinds = {event.TYPE for event in get_args(events.ServerEvent)}
    assert RULES.keys() <= kinds
    assert kinds - NEVER - {event["type"] for event in call} == set()
    statuses = {event["response"]["status"] for event in call if event["type"] == "response.done"}
    assert statuses == {"completed", "cancelled", "failed"}


def test_no_event_names_an_answer_or_an_item_that_was_not_told_of(call: list[Mapping[str, Any]]) -> None:
    responses: set[object] = set()
    items: set[object] = set()
    promised = (
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
    )
    for event in call:
        kind = event["type"]
        if kind == "response.created":
            responses.add(event["response"]["id"])
        if kind == "conversation.item.added":
            items.add(event["item"]["id"])
        if event.get("response_id") is not None:
            assert event["response_id"] in responses, event
        if kind not in promised and event.get("item_id") is not None:
            assert event["item_id"] in items, event
        if event.get("previous_item_id") is not None:
            assert event["previous_item_id"] in items, event
