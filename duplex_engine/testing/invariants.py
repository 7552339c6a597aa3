"""What holds of every session, whatever its story was (architecture, invariants I1 to I16).

Owns the checks over what a caller said and heard. Slots, seats and foreign sound are checked by the rig while it runs;
the scripted stepper checks the slots from the device's side.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from duplex_engine.testing.caller import DELTA, LAST_WORDS, Caller, Heard

FRAME_S = 0.2
TERMINALS = frozenset(
    {
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "response.output_text.done",
        "response.output_item.done",
        "response.listen",
        "response.done",
    }
)
INTERRUPTING = frozenset({"response.cancel", "barge_in", "input.cancel", "output_audio_buffer.clear"})
OPENING = (
    "response.created",
    "conversation.item.added",
    "conversation.item.created",
    "response.output_item.added",
)
CLOSING = (
    "response.listen",
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "conversation.item.done",
    "response.done",
)
"""The end of a response, in its order; what needs no sound and no words is always there."""
ENDING = CLOSING[-3:]
ANSWERED_BY = {DELTA: "response.output_audio.done", "response.content_part.added": "response.content_part.done"}
"""What has begun, and how the end of a response says that it is over."""
ASIDE = frozenset({"output_audio_buffer.cleared", "conversation.item.retrieved"})
"""Events about a response that may come at any time: for the player, and because somebody asked."""
EPOCH_PLACES = (("epoch",), ("metadata", "epoch"), ("session", "epoch"), ("event", "epoch"))


def check_record(caller: Caller, *, lead_s: float | None = None, timed: bool = True) -> None:
    """Check everything one caller said and heard. Raises AssertionError that lists all violations.

    `lead_s`: the plugin's pacing, None if it does not pace. `timed`: the clock is virtual, so that moments can be
    compared as well.
    """
    violations = [violation for check in (CHECKS + TIMED_CHECKS if timed else CHECKS) for violation in check(caller)]
    if lead_s is not None and caller.prompt:
        violations += paced(caller, lead_s)
    assert not violations, f"{caller.name}'s session broke its promises:\n" + "\n".join(violations)


def nothing_after_its_end(caller: Caller) -> Iterator[str]:
    """I1: after a response's terminal event no event carries that response (but for what the player is told)."""
    over: set[object] = set()
    for heard in caller.heard:
        response_id = heard.event.get("response_id")
        if response_id in over and heard.type != "output_audio_buffer.cleared":
            yield f"I1: {heard.type} of {response_id} at {heard.at:g} came after its response.done"
        if heard.type == "response.done":
            over.add(response_id)


def one_end_for_each_beginning(caller: Caller) -> Iterator[str]:
    """I2: every response that was created is done exactly once, before its session's last word."""
    created, done = caller.responses(), [heard["response_id"] for heard in caller.all("response.done")]
    for response_id in created:
        if done.count(response_id) > 1 or (caller.ended and response_id not in done):
            yield f"I2: {response_id} was done {done.count(response_id)} times"
    yield from (f"I2: {response_id} was done, but never created" for response_id in done if response_id not in created)


def whole_and_in_order(caller: Caller) -> Iterator[str]:
    """I2: a response opens in its order, and each of its terminals comes once, in theirs, with nothing in between."""
    for response_id, life in _told(caller).items():
        end = next((place for place, event_type in enumerate(life) if event_type in CLOSING), len(life))
        places = [CLOSING.index(event_type) if event_type in CLOSING else -1 for event_type in life[end:]]
        if tuple(life[: len(OPENING)]) != OPENING or places != sorted(set(places)) or -1 in places:
            yield f"I2: the events of {response_id} are out of order: {life}"
        if "response.done" not in life:
            continue
        if tuple(life[-len(ENDING) :]) != ENDING:
            yield f"I2: the end of {response_id} lacks something: {life[end:]}"
        yield from (
            f"I2: {begun} of {response_id} was not followed by {over}"
            for begun, over in ANSWERED_BY.items()
            if begun in life and over not in life
        )
    for heard, following in itertools.pairwise(caller.heard):
        if heard.type == "response.done" and following.type != "rate_limits.updated":
            yield f"I2: {following.type} at {following.at:g} came between response.done and rate_limits.updated"


def one_last_word(caller: Caller) -> Iterator[str]:
    """I3: a session has exactly one terminal event, its last."""
    last_words = [heard.type for heard in caller.heard if heard.type in LAST_WORDS]
    if len(last_words) > 1 or (last_words and not caller.ended):
        yield f"I3: last words {last_words}, and the last event is {caller.heard[-1].type}"


def labels_never_decrease(caller: Caller) -> Iterator[str]:
    """I4: epoch labels never decrease; all events of a response but its terminals carry one label."""
    highest = 0
    of_response: dict[object, int] = {}
    for heard in caller.heard:
        epoch = _epoch(heard.event)
        if epoch is None:
            continue
        if epoch < highest:
            yield f"I4: {heard.type} at {heard.at:g} carries epoch {epoch} after {highest}"
        highest = max(highest, epoch)
        response_id = heard.event.get("response_id")
        if response_id is None or heard.type in TERMINALS:
            continue
        if of_response.setdefault(response_id, epoch) != epoch:
            yield f"I4: {response_id} has events of the epochs {of_response[response_id]} and {epoch}"


def numbers_increase(caller: Caller) -> Iterator[str]:
    """I5: sequence numbers strictly increase, and have no gap unless an answer was cut (its deltas may be purged).

    The first number may be any: a recorder may have been switched on late.
    """
    cut = bool(caller.all("response.done", status="cancelled"))
    last: int | None = None
    for heard in caller.heard:
        number = heard.event.get("server_event_seq")
        if not isinstance(number, int):
            continue
        if last is not None and (number <= last or (number > last + 1 and not cut)):
            yield f"I5: {heard.type} at {heard.at:g} has number {number} after {last}"
        last = number


def interruptions_take_no_time(caller: Caller) -> Iterator[str]:
    """I11: an answer ends at the instant it is interrupted."""
    lives = list(_lives(caller))
    for said in caller.said if caller.prompt else ():
        if said.command["type"] not in INTERRUPTING:
            continue
        for response_id, created, done in lives:
            if created < said.at < done and _meant(said.command, response_id):
                yield f"I11: {said.command['type']} at {said.at:g}, but {response_id} went on until {done:g}"


def no_more_than_heard(caller: Caller) -> Iterator[str]:
    """I14: an interrupted answer's item holds no more than was acknowledged or, without any acknowledgement, played.

    It takes the alignment marks of `strict` to tell.
    """
    acknowledged = [said for said in caller.said if said.command["type"] == "playback.ack"]
    for done in caller.all("response.done", status="cancelled"):
        deltas = [heard for heard in caller.all(DELTA, response_id=done["response_id"]) if "metadata" in heard.event]
        if not deltas or any(said.at <= done.at for said in acknowledged):
            limit_ms = max((_committed_ms(said.command) for said in acknowledged if said.at <= done.at), default=0.0)
        else:
            limit_ms = (done.at - deltas[0].at) * 1000
        if not deltas or (caller.absent and not acknowledged):  # what was replayed was sent at another time
            continue
        words, most = _item_transcript(done), _characters(deltas, limit_ms)
        if not caller.transcript(done["response_id"]).startswith(words):
            yield f"I14: the item of {done['response_id']} says {words!r}, which is not what was said"
        if len(words) > most:
            yield f"I14: the item of {done['response_id']} holds {words!r}, but only {most} characters were heard"


def errors_name_their_cause(caller: Caller) -> Iterator[str]:
    """I15: the error event of a command names it."""
    known = {str(said.command["event_id"]) for said in caller.said}
    for heard in caller.all("error"):
        error = heard.event["error"]
        assert isinstance(error, Mapping)
        event_id = error.get("event_id")
        if event_id is not None and event_id not in known:
            yield f"I15: the error {error} names a command that was never sent"


def paced(caller: Caller, lead_s: float) -> Iterator[str]:
    """I13: sound (PCM16) never runs ahead of its due time by more than the lead and one frame."""
    for response_id in caller.responses():
        deltas = caller.all(DELTA, response_id=response_id)
        sent_ms = 0.0
        for heard in deltas:
            ahead_s = sent_ms / 1000 - (heard.at - deltas[0].at)
            if ahead_s > lead_s + FRAME_S + 1e-6:
                yield f"I13: sound of {response_id} at {heard.at:g} is {ahead_s:g} s ahead; the lead is {lead_s:g} s"
            sent_ms += len(heard.pcm) * 500 / int(str(heard["sample_rate_hz"]))


CHECKS: tuple[Callable[[Caller], Iterator[str]], ...] = (
    nothing_after_its_end,
    one_end_for_each_beginning,
    whole_and_in_order,
    one_last_word,
    labels_never_decrease,
    numbers_increase,
    errors_name_their_cause,
)
TIMED_CHECKS = (interruptions_take_no_time, no_more_than_heard)


def _epoch(event: Mapping[str, object]) -> int | None:
    for place in EPOCH_PLACES:
        value: object = event
        for key in place:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, int):
            return value
    return None


def _told(caller: Caller) -> Mapping[object, Sequence[str]]:
    """The types of all events of each response in the order they came, but for what is said aside."""
    lives: dict[object, list[str]] = {heard["response_id"]: [] for heard in caller.all("response.created")}
    of_item = {f"item_{response_id}": response_id for response_id in lives}
    for heard in caller.heard:
        response_id = heard.event.get("response_id")
        item = heard.event.get("item")
        if response_id is None and heard.type.startswith("conversation.item.") and isinstance(item, Mapping):
            response_id = of_item.get(str(item["id"]))
        further = heard.event.get("output_index", 0) != 0  # a call in ga, which has a life of its own
        if response_id in lives and heard.type not in ASIDE and not further:
            lives[response_id].append(heard.type)
    return lives


def _lives(caller: Caller) -> Iterator[tuple[object, float, float]]:
    ends = {heard["response_id"]: heard.at for heard in caller.all("response.done")}
    for heard in caller.all("response.created"):
        response_id = heard["response_id"]
        if response_id in ends:
            yield response_id, heard.at, ends[response_id]


def _meant(command: Mapping[str, object], response_id: object) -> bool:
    return command.get("response_id") in (None, response_id)


def _committed_ms(command: Mapping[str, object]) -> float:
    return float(str(command.get("committed_ms", command["played_ms"])))


def _item_transcript(done: Heard) -> str:
    try:
        return str(done["transcript"])
    except KeyError:
        return ""


def _characters(deltas: list[Heard], limit_ms: float) -> int:
    """The most characters that can have been spoken in `limit_ms`: the next alignment mark at or after it."""
    most = 0
    for heard in deltas:
        marks = heard["audio_text_marks"]
        assert isinstance(marks, list)
        for mark in marks:
            most = int(mark["text_chars"])
            if mark["audio_end_ms"] >= limit_ms:
                return most
    return most
