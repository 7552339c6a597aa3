"""Wire contract 6 beyond the checklist: the four modes, overlap row by row, soft and hard interruption, silent units."""

from typing import Any

import pytest
import trio
from wire_rig import DELTA, DONE, NATIVE, Event, Line, TurnWitness, Witness, house, native, turns

QUICK_VAD = {"turn_detection": {"type": "server_vad", "silence_duration_ms": 96}}
SLOWLY = 'forever { slow 0.5; speak "an answer that takes its time" for 2 }'


async def speech(line: Line, seconds: float = 0.5) -> None:
    """Speech, and silence after it that is long enough."""
    await line.append(seconds)
    await line.append(0.3, loud=False)


# --- 6.2: who ends a turn, who starts a response -------------------------------------------------------------------


async def test_native_the_model_answers_by_itself_and_a_commit_is_a_hint() -> None:
    async with house(native('listen 10; speak "by itself" for 0.4; listen')) as home:
        line = await home.open(NATIVE)
        for _ in range(5):
            await line.append(0.2)
        await line.until(DONE)
        assert "input_audio_buffer.committed" not in line.kinds
        assert line.kinds.count("input_audio_buffer.speech_started") == 1
        await line.commit(response_create=False)
        await line.until("input_audio_buffer.committed")
        assert line.kinds.count("input_audio_buffer.speech_stopped") == 1


async def test_native_with_vad_speech_has_edges_and_nothing_is_committed() -> None:
    async with house(native()) as home:
        line = await home.open({**QUICK_VAD, **NATIVE})
        for _ in range(3):
            await speech(line)
        await line.is_well()
        edges = [kind.rpartition(".")[2] for kind in line.kinds if kind.startswith("input_audio_buffer")]
        assert edges == ["speech_started", "speech_stopped"] * 3
        items = {event["item_id"] for event in line.all("input_audio_buffer.speech_started")}
        assert len(items) == 1, "several pairs under the id of the turn that is not committed"


async def test_native_with_vad_the_model_may_not_begin_while_the_user_speaks() -> None:
    witness = Witness()
    async with house(witness) as home:
        line = await home.open({**QUICK_VAD, **NATIVE})
        await line.append(0.8, loud=False)
        await line.append(0.8)
        await line.append(0.8, loud=False)
        await line.append(0.8, loud=False)
        await witness.until_units(40)
        assert [unit.force_listen for unit in witness.units] == [False] * 10 + [True] * 20 + [False] * 10


async def test_detection_that_is_switched_off_and_on_in_mid_speech_loses_nothing() -> None:
    witness = TurnWitness()
    async with house(witness) as home:
        line = await home.open(QUICK_VAD)
        await line.append(1)
        await line.say("session.update", session={"turn_detection": None})
        await speech(line, 1)
        await line.is_well()
        assert "input_audio_buffer.committed" not in line.kinds
        await line.say("session.update", session=QUICK_VAD)
        await speech(line, 1)
        await line.until(DONE)
        heard = [len(turn.utterance.samples()) / 16_000 for turn in witness.turns if turn.utterance is not None]
        assert sum(heard) >= 3
        edges = [kind.rpartition(".")[2] for kind in line.kinds if "speech_" in kind]
        assert edges == ["speech_started", "speech_stopped"] * (len(edges) // 2)


@pytest.mark.parametrize("create", [True, False])
async def test_server_vad_ends_turns_and_the_server_answers_if_it_is_to(create: bool) -> None:
    detection = {**QUICK_VAD["turn_detection"], "create_response": create}
    async with house() as home:
        line = await home.open({"turn_detection": detection})
        await speech(line)
        await line.until("input_audio_buffer.committed")
        if not create:
            await line.is_well()
            assert "response.created" not in line.kinds
            await speech(line)
            await line.until("input_audio_buffer.committed")
            await line.say("response.create")
        answer = await line.until("response.created")
        await line.until(DONE, response_id=answer["response_id"])
        stops, commits = line.all("input_audio_buffer.speech_stopped"), line.all("input_audio_buffer.committed")
        assert [stop["item_id"] for stop in stops] == [commit["item_id"] for commit in commits]


async def test_push_to_talk_nothing_happens_until_the_client_commits() -> None:
    async with house() as home:
        line = await home.open({"turn_detection": None})
        await speech(line)
        await line.is_well()
        assert {"input_audio_buffer.committed", "response.created"}.isdisjoint(line.kinds)
        await line.commit()
        await line.until(DONE)


async def test_a_turn_model_that_can_detect_turns_takes_auto_response_and_null() -> None:
    async with house() as home:
        line = await home.open({"turn_detection": None, **NATIVE})
        detection = line.heard[0]["session"]["turn_detection"]
        assert (detection["type"], detection["silence_duration_ms"]) == ("server_vad", 450)
        await line.append(0.5)
        await line.append(0.6, loud=False)
        await line.until(DONE)
        await line.say("session.update", session={"turn_detection": None})
        updated = await line.until("session.updated")
        assert updated["session"]["turn_detection"] is None
        await speech(line, 1)
        await line.commit()
        await line.until("response.created")


async def test_positions_are_those_of_the_session_s_clock() -> None:
    async with house() as home:
        line = await home.open(QUICK_VAD)
        await line.append(1, loud=False)
        await speech(line, 0.64)
        started = await line.until("input_audio_buffer.speech_started")
        stopped = await line.until("input_audio_buffer.speech_stopped")
        assert started["audio_start_ms"] == pytest.approx(1000 - 300, abs=32)
        assert stopped["audio_end_ms"] == pytest.approx(1640 + 96, abs=33)


# --- 6.5: overlap -------------------------------------------------------------------------------------------------

ROWS: dict[str, tuple[dict[str, Any], float, bool, dict[str, Any], tuple[str, str]]] = {
    # what the append says, its length, whether it is loud, the session, and what is decided
    "2": ({"overlap_action": "interrupt"}, 0.2, True, {}, ("barge_in", "client_overlap_action")),
    "3": ({"overlap_action": "continue"}, 0.2, True, {}, ("listen", "client_overlap_action")),
    "4": ({"overlap_action": "drop"}, 0.2, True, {}, ("drop", "client_overlap_action")),
    "5": ({"force_barge_in": True}, 0.2, True, {}, ("barge_in", "client_force_barge_in")),
    "8": ({"force_listen": True}, 0.2, True, {}, ("listen", "client_force_listen")),
    "10": ({}, 0.2, False, {}, ("drop", "silence_or_noise")),
    "11": ({"transcript": "go on"}, 0.2, True, {}, ("listen", "short_ack_transcript")),
    "12": ({}, 0.2, True, {}, ("listen", "policy_listen_only")),
    "15": ({}, 0.9, True, QUICK_VAD, ("barge_in", "server_vad_speech_started")),
    "15 at once": (
        {},
        0.2,
        True,
        {**QUICK_VAD, "overlap_short_ack_ms": 0},
        ("barge_in", "server_vad_speech_started"),
    ),
    "15b": ({}, 0.2, True, QUICK_VAD, ("listen", "accumulating_overlap_speech")),
}


async def answering(home: Any, session: dict[str, Any]) -> Line:
    """A caller in the middle of an answer."""
    line: Line = await home.script(SLOWLY, **session)
    if "turn_detection" in session:
        await speech(line)
    else:
        await line.append(1)
        await line.commit()
    await line.until(DELTA)
    return line


@pytest.mark.parametrize("row", ROWS)
async def test_overlap_in_a_turn_session(row: str) -> None:
    fields, seconds, loud, session, decided = ROWS[row]
    async with house() as home:
        line = await answering(home, session)
        await line.append(seconds, loud=loud, **fields)
        decision = await line.until("overlap.decision")
        assert (decision["action"], decision["reason"]) == decided
        metadata = decision["metadata"]
        assert (metadata["action"], metadata["reason"], metadata["epoch"]) == (*decided, 0)
        done = await line.until(DONE)
        detected = "turn_detection" in session
        reason = {True: "turn_detected", False: "barge_in"}[detected]
        assert done["response"]["status"] == ("cancelled" if decided[0] == "barge_in" else "completed")
        if decided[0] == "barge_in":
            assert (done["response"]["status_details"]["reason"], metadata["cancel_reason"]) == (reason, reason)


async def test_overlap_that_was_short_is_told_and_changes_nothing() -> None:
    async with house() as home:
        line = await answering(home, QUICK_VAD)
        await speech(line, 0.3)
        decision = await line.until("overlap.decision", action="listen", reason="short_ack")
        committed = (await line.until("input_audio_buffer.committed"))["event"]
        assert (committed["overlap_ack"], decision["metadata"]["buffer_audio"]) == (True, False)
        done = await line.until(DONE)
        assert done["response"]["status"] == "completed"
        await line.is_well()
        assert line.kinds.count("response.created") == 1


async def test_a_model_without_barge_in_refuses_it_and_hears_the_sound() -> None:
    async with house(turns(script=SLOWLY, barge_in=False)) as home:
        line = await answering(home, {})
        event_id = await line.append(0.9, force_barge_in=True)
        decision = await line.until("overlap.decision")
        assert (decision["action"], decision["reason"]) == ("listen", "barge_in_unsupported")
        await line.refused("barge_in_unsupported", event_id=event_id)
        await line.refused("barge_in_unsupported", event_id=await line.say("barge_in"))
        await line.commit()
        flags = (await line.until("input_audio_buffer.committed"))["event"]
        assert flags["overlap_deferred"] is True
        await line.say("response.cancel")
        done = await line.until(DONE)
        assert done["response"]["status"] == "cancelled", "every model obeys response.cancel"


NATIVE_ROWS: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, str] | None]] = {
    "6": (QUICK_VAD, {}, ("barge_in", "server_vad_speech_started")),
    "2": ({}, {"overlap_action": "cancel"}, ("barge_in", "client_overlap_action")),
    "5": ({}, {"force_barge_in": True}, ("barge_in", "client_force_barge_in")),
    "listen_only": ({}, {}, None),
}


@pytest.mark.parametrize("row", NATIVE_ROWS)
async def test_overlap_in_a_native_session(row: str) -> None:
    session, fields, decided = NATIVE_ROWS[row]
    model = native('slow 0.5; speak "an answer that takes its time" for 2; listen')
    async with house(model) as home:
        line = await home.open({**session, **NATIVE})
        await line.append(0.1, loud=False)
        await line.until(DELTA)
        await line.append(0.4, **fields)
        done = await line.until(DONE)
        told = [(event["action"], event["reason"]) for event in line.all("overlap.decision")]
        assert told == ([decided] if decided else [])
        assert done["response"]["status"] == ("cancelled" if decided else "completed")


# --- 6.4: soft and hard interruption ------------------------------------------------------------------------------


async def test_a_model_that_yields_cancels_nothing() -> None:
    async with house(native('speak "I was about to say" for 0.4; yield; listen')) as home:
        line = await home.open(NATIVE)
        await line.append(0.2)
        done = await line.until(DONE)
        listen = line.all("response.listen", response_id=done["response_id"])[0]
        assert listen["response"]["id"] == done["response_id"]
        assert done["response"]["status"] == "completed"
        await line.say("session.update", session={})
        assert (await line.until("session.updated"))["session"]["epoch"] == 0


@pytest.mark.parametrize("by", ["speech", "barge_in", "output_audio_buffer.clear"])
async def test_an_answer_that_is_complete_and_still_playing_is_only_cleared(by: str) -> None:
    session = {**QUICK_VAD, "overlap_short_ack_ms": 0}
    async with house(turns(script='forever { slow 0.01; speak "a long answer" for 20 }')) as home:
        line = await home.open(session)
        await speech(line)
        done = await line.until(DONE)
        await (line.append(0.3) if by == "speech" else line.say(by))
        cleared = await line.until("output_audio_buffer.cleared")
        assert cleared["response_id"] == done["response_id"]
        assert line.kinds.count(DONE) == 1
        await line.say("session.update", session={})
        assert (await line.until("session.updated"))["session"]["epoch"] == 1
        if by == "speech":
            order = [
                kind for kind in line.kinds[line.heard.index(done) :] if kind.startswith(("input", "ov", "output"))
            ]
            assert order == ["input_audio_buffer.speech_started", "overlap.decision", "output_audio_buffer.cleared"]
            await line.append(0.3, loud=False)
            answer = await line.until("response.created")
            await line.until(DONE, response_id=answer["response_id"])


async def test_a_cancel_cannot_stop_the_playback_of_an_answer_that_is_complete() -> None:
    async with house(turns(script='forever { slow 0.01; speak "a long answer" for 20 }')) as home:
        line = await home.open()
        answer = await line.ask()
        await line.until(DONE)
        for fields in ({}, {"response_id": answer["response_id"]}):
            await line.refused("response_not_active", event_id=await line.say("response.cancel", **fields))
        await line.say("session.update", session={})
        assert (await line.until("session.updated"))["session"]["epoch"] == 0


EFFECTS: dict[str, tuple[str, int]] = {
    "response.cancel": ("client_cancelled", 1),
    "barge_in": ("barge_in", 1),
    "input.cancel": ("barge_in", 1),
    "output_audio_buffer.clear": ("output_audio_buffer_clear", 1),
}


@pytest.mark.parametrize("command", EFFECTS)
async def test_every_hard_interruption_says_its_reason_and_raises_the_epoch(command: str) -> None:
    reason, epoch = EFFECTS[command]
    async with house() as home:
        line = await answering(home, {})
        await line.say(command)
        done = await line.until(DONE)
        assert done["response"]["status_details"]["reason"] == reason
        await line.say("session.update", session={})
        assert (await line.until("session.updated"))["session"]["epoch"] == epoch


@pytest.mark.parametrize(("command", "epoch"), [("barge_in", 1), ("input.cancel", 1), ("input_audio_buffer.clear", 0)])
async def test_when_idle_the_input_is_cleared_and_an_interruption_counts(command: str, epoch: int) -> None:
    async with house() as home:
        line = await home.open()
        await line.append(0.5)
        await line.say(command)
        await line.until("input_audio_buffer.cleared")
        pairs = [kind.rpartition(".")[2] for kind in line.kinds if "speech_" in kind]
        assert pairs == ["speech_started", "speech_stopped"]
        await line.refused("input_audio_buffer_empty", event_id=await line.commit())
        await line.say("session.update", session={})
        assert (await line.until("session.updated"))["session"]["epoch"] == epoch


# --- 6.6: deferred turns ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "kept"),
    [("response.cancel", True), ("output_audio_buffer.clear", True), ("barge_in", False), ("input.cancel", False)],
)
async def test_what_becomes_of_a_deferred_turn_when_the_answer_is_cut(command: str, kept: bool) -> None:
    async with house() as home:
        line = await answering(home, {})
        await line.append(0.9)
        await line.commit(response_create=False)
        await line.until("input_audio_buffer.committed")
        await line.say(command)
        await line.until(DONE)
        event_id = await line.say("response.create")
        if kept:
            answer = await line.until("response.created")
            await line.until(DONE, response_id=answer["response_id"])
        else:
            await line.refused("response_create_without_input", event_id=event_id)


async def test_a_deferred_turn_that_was_asked_for_is_answered_right_after_a_cancel() -> None:
    async with house() as home:
        line = await answering(home, {})
        await line.append(0.9)
        await line.commit()
        await line.until("input_audio_buffer.committed")
        await line.say("response.cancel")
        cut = await line.until(DONE)
        answer = await line.until("response.created")
        assert cut["response"]["status"] == "cancelled"
        await line.until(DONE, response_id=answer["response_id"])


# --- 6.7: silent units --------------------------------------------------------------------------------------------


async def test_an_answer_goes_on_when_the_client_sends_nothing_more() -> None:
    async with house(
        native('listen 1; speak "on and on without a sound from you" for 0.8; listen', unit_ms=20)
    ) as home:
        line = await home.open(NATIVE)
        await line.append(0.04)
        began = trio.current_time()
        done: Event = await line.until(DONE)
        assert done["response"]["status"] == "completed"
        assert len(line.sound(done["response_id"])) == 2 * 24_000 * 8 // 10
        assert trio.current_time() - began > 0.6, "one unit each period, not all at once"
        assert line.kinds.count("input_audio_buffer.speech_started") == 1, "silent units are invisible"


@pytest.mark.parametrize("obedient", [True, False])
async def test_after_sixty_four_silent_units_the_model_has_to_listen(obedient: bool) -> None:
    script = 'listen 1; speak "a speech that would never end" for 60; listen'
    async with house(native(script, unit_ms=10, obedient=obedient)) as home:
        line = await home.open(NATIVE)
        await line.append(0.02)
        done = await line.until(DONE)
        listen = line.all("response.listen", response_id=done["response_id"])[0]
        assert listen["response"]["metadata"]["reason"] == "continuation_limit"
        assert listen["response"]["metadata"]["model_listen"] is False
        assert len(line.sound(done["response_id"])) <= 2 * 240 * 66
        assert line.kinds[line.heard.index(listen) + 1] == "response.output_audio.done"


@pytest.mark.parametrize("obedient", [True, False])
async def test_asked_by_a_client_a_model_that_hears_units_has_eight_of_silence(obedient: bool) -> None:
    script = 'speak "a b c d e f g h i j k l m n o p q r s t u v w x y z" for 1; speak "again" for 0.05'
    async with house(native(script, unit_ms=20, obedient=obedient)) as home:
        line = await home.open()
        for count in (1, 2):
            answer = await line.ask()
            done = await line.until(DONE, response_id=answer["response_id"])
            assert done["response"]["status"] == ("completed" if obedient or count == 2 else "incomplete")
            assert not line.all("response.listen", response_id=answer["response_id"]), "it simply ends"
        first = line.all("response.created")[0]["response_id"]
        assert 0 < len(line.sound(first)) <= 2 * 480 * 10
