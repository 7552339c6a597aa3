"""Wire contract 8, 9 and appendix B beyond the checklist: what was heard, and every bound with its default and its error."""

from typing import Any

import attrs
import pytest
import trio
from test_input_lines import speech
from test_playback_lines import SPEECH, acknowledge, history, until_sound, words_heard
from wire_rig import DONE, GA, NATIVE, Line, Witness, b64, eventually, house, numbers, pieces, tone, turns

from duplex_engine.actors.patience import ABANDONED_AFTER_S
from duplex_engine.audio.vad import WINDOW_RATE_HZ, WINDOW_SAMPLES
from duplex_engine.config import SessionLimits
from duplex_engine.conversation.detection import BAND, LOWEST_FLOOR, SHORTEST_SPEECH_MS
from duplex_engine.model_plugins.contract import Epoch
from duplex_engine.protocol import decode_append, handshake, resume
from duplex_engine.protocol.session_config import SessionConfig, TurnDetection
from duplex_engine.server import transport

MIB = 1024 * 1024

# --- 8: the ledger ------------------------------------------------------------------------------------------------

INTERRUPTED = f'slow 0.2; speak "{SPEECH}" for 8; slow 0.05; speak "{{history}}" for 1'


async def transcript(line: Line, response_id: str) -> str:
    """What the item of an answer says now."""
    await line.say("conversation.item.retrieve", item_id=f"item_{response_id}")
    item = (await line.until("conversation.item.retrieved"))["item"]
    return str(item["content"][0]["transcript"])


async def cut_off(line: Line, *, sent_ms: int, by: str = "response.cancel", acknowledged_ms: int | None = None) -> str:
    """An answer that was cut off after so much of it had come."""
    answer: str = (await line.ask())["response_id"]
    await until_sound(line, answer, sent_ms)
    if acknowledged_ms is not None:
        await acknowledge(line, answer, acknowledged_ms)
    await line.say(by)
    await line.until(DONE, response_id=answer)
    return answer


async def test_sound_that_was_on_its_way_may_still_be_acknowledged_after_a_cancel() -> None:
    async with house() as home:
        line = await home.script(INTERRUPTED)
        answer = await cut_off(line, sent_ms=3000, acknowledged_ms=800)
        assert await transcript(line, answer) == words_heard(line, answer, 800)
        event = await acknowledge(line, answer, 2400)
        assert event["history_committed"] is True
        later = words_heard(line, answer, 2400)
        assert len(later) > len(words_heard(line, answer, 800))
        assert await transcript(line, answer) == later
        assert await history(line) == f"assistant: {later}"


async def test_what_was_not_heard_when_the_output_was_cleared_never_will_be() -> None:
    async with house() as home:
        line = await home.script(INTERRUPTED)
        answer = await cut_off(line, sent_ms=3000, by="output_audio_buffer.clear", acknowledged_ms=800)
        capped = words_heard(line, answer, 800)
        await acknowledge(line, answer, 3000)
        assert await transcript(line, answer) == capped
        assert await history(line) == f"assistant: {capped}"


async def test_the_lowest_cap_counts() -> None:
    async with house() as home:
        line = await home.script(INTERRUPTED)
        answer = await cut_off(line, sent_ms=3000, acknowledged_ms=2400)
        for cap in (2000, 900, 1500):
            await line.say("conversation.item.truncate", item_id=f"item_{answer}", content_index=0, audio_end_ms=cap)
            await line.until("conversation.item.truncated", audio_end_ms=cap)
        assert await transcript(line, answer) == words_heard(line, answer, 900)


async def test_cut_with_nothing_acknowledged_by_one_who_does_nothing_is_in_the_history() -> None:
    async with house() as home:
        line = await home.script(INTERRUPTED)
        first = await cut_off(line, sent_ms=1000, acknowledged_ms=0)
        assert await transcript(line, first) == ""
        assert await history(line) == ""


async def test_who_never_acknowledges_is_taken_to_have_heard_what_there_was_time_for() -> None:
    async with house() as home:
        line = await home.script(f'slow 0.02; speak "{SPEECH}" for 20; speak "{{history}}" for 1')
        answer: str = (await line.ask())["response_id"]
        created_at = trio.current_time()
        await until_sound(line, answer, 80)
        sounded_at = trio.current_time()
        await until_sound(line, answer, 8000)
        await trio.sleep(max(0.0, sounded_at + 3 - trio.current_time()))
        least_ms = round((trio.current_time() - sounded_at) * 1000)
        await line.say("output_audio_buffer.clear")
        await line.until("output_audio_buffer.cleared")
        most_ms = round((trio.current_time() - created_at) * 1000) + 1
        said = await history(line)
        heard = said.removeprefix("assistant: ")
        most, least = words_heard(line, answer, most_ms), words_heard(line, answer, least_ms)
        assert len(least) <= len(heard) <= len(most)
        assert most.startswith(heard)


@pytest.mark.parametrize(("policy", "said"), [("ack_only", ""), ("commit_all_on_done", f"assistant: {SPEECH}")])
async def test_a_policy_in_the_first_object_is_honoured(policy: str, said: str) -> None:
    async with house() as home:
        script = f'slow 0.05; speak "{SPEECH}" for 0.4; speak "{{history}}" for 1'
        line = await home.script(script, playback_commit_policy=policy)
        assert line.heard[0]["session"]["playback_commit_policy"] == policy
        first = await line.ask()
        await line.until(DONE)
        if policy == "ack_only":
            await line.append(1)
            await line.commit(response_create=False)
            await line.refused("response_already_active", event_id=await line.say("response.create"))
            await acknowledge(line, first["response_id"], 0)
            await line.say("output_audio_buffer.clear")
            await line.until("output_audio_buffer.cleared")
            await line.say("response.create")
            second = await line.until("response.created")
            await line.until(DONE, response_id=second["response_id"])
            assert line.words(second["response_id"]) == said
        else:
            assert await history(line) == said


async def test_the_first_acknowledgement_turns_the_policy_for_good() -> None:
    async with house() as home:
        line = await home.script(f'forever {{ slow 0.05; speak "{SPEECH}" for 0.4 }}')
        assert line.heard[0]["session"]["playback_commit_policy"] == "commit_all_on_done"
        answer = await line.ask()
        await line.until(DONE)
        await acknowledge(line, answer["response_id"], 400)
        await line.say("session.update", session={})
        assert (await line.until("session.updated"))["session"]["playback_commit_policy"] == "ack_only"


ACKNOWLEDGEMENTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "mismatch": ({"response_id": "resp_a", "item_id": "item_resp_b"}, "playback_item_mismatch", "item_id"),
    "unknown response": ({"response_id": "resp_a"}, "playback_item_not_found", "response_id"),
    "unknown item": ({"item_id": "item_resp_a"}, "playback_item_not_found", "item_id"),
    "nothing said yet": ({}, "playback_item_not_found", "response_id"),
}


@pytest.mark.parametrize("case", ACKNOWLEDGEMENTS)
async def test_acknowledgements_of_nothing(case: str) -> None:
    fields, code, param = ACKNOWLEDGEMENTS[case]
    async with house() as home:
        line = await home.open()
        error = await line.refused(code, event_id=await line.say("playback.ack", played_ms=10, **fields))
        assert error["param"] == param


async def test_an_item_of_the_user_or_one_that_was_deleted_cannot_be_acknowledged() -> None:
    async with house() as home:
        line = await home.open()
        answer = await line.ask()
        await line.until(DONE)
        mine = line.all("input_audio_buffer.committed")[0]["item_id"]
        theirs = f"item_{answer['response_id']}"
        await line.say("conversation.item.delete", item_id=theirs)
        await line.until("conversation.item.deleted")
        for item_id in (mine, theirs):
            await line.refused(
                "playback_item_not_found", event_id=await line.say("playback.ack", played_ms=1, item_id=item_id)
            )


# --- 9.3: input ---------------------------------------------------------------------------------------------------


async def test_a_turn_holds_sixteen_mebibytes_and_a_clear_makes_room() -> None:
    async with house() as home:
        line = await home.open()
        for _ in range(4):
            await line.append(60)
        await line.refused("input_backpressure", event_id=await line.append(60))
        await line.append(10)
        await line.commit(response_create=False)
        await line.until("input_audio_buffer.committed")
        error = await line.refused("input_backpressure", event_id=await line.append(60))
        assert "16777216" in error["message"]
        await line.say("input_audio_buffer.clear")
        await line.until("input_audio_buffer.cleared")
        await line.ask()
        await line.until(DONE)


@attrs.define(eq=False)
class Busy(Witness):
    """A model that takes nothing in until it is let to."""

    name: str = "busy"
    free: trio.Event = attrs.Factory(trio.Event)

    async def converse(self, epoch: Epoch) -> None:
        await self.free.wait()
        await super().converse(epoch)


@pytest.mark.parametrize("mode", ["native", "turn"])
async def test_sound_inside_items_counts_like_any_other(mode: str) -> None:
    model = Busy() if mode == "native" else turns()
    async with house(model) as home:
        line = await home.open(NATIVE if mode == "native" else {})
        item = {"role": "user", "content": [{"type": "input_audio", "audio": b64(tone(60))}]}
        for _ in range(4):
            await line.say("conversation.item.create", item=item)
            await line.until("conversation.item.done")
        event_id = await line.say("conversation.item.create", item=item)
        await line.refused("input_backpressure", event_id=event_id)
        assert line.kinds.count("conversation.item.added") == 4
        await line.say("input_audio_buffer.clear")
        await line.until("input_audio_buffer.cleared")
        await line.say("conversation.item.create", item=item)
        await line.until("conversation.item.done")


@pytest.mark.parametrize("path", ["strict", "ga"])
async def test_input_that_waits_is_told_once_a_second_with_what_was_refused(path: str) -> None:
    model = Busy()
    limits = SessionLimits(lag_notice_ms=200, input_bytes=4 * 16_000 * 4)
    async with house(model, limits=limits) as home:
        line = await home.open(NATIVE, **({"path": GA} if path == "ga" else {}))
        rate_hz = {"sample_rate_hz": 16_000}
        began = trio.current_time()
        for _ in range(5):
            await line.append(1, **rate_hz)
        await line.refused("input_backpressure", event_id="evt_6")
        for _ in range(14):
            await trio.sleep(0.1)
            await line.append(0.001, **rate_hz)
        await line.is_well()
        waited_s = trio.current_time() - began
        notices = line.all("session.lagging")
        if path == "ga":
            assert notices == []
        else:
            assert 1 <= len(notices) <= 1 + int(waited_s)
            assert 1000 <= notices[0]["dropped_ms"] <= 1014
            assert all(notice["dropped_ms"] <= 14 for notice in notices[1:])
            assert all(notice["input_age_ms"] >= 200 for notice in notices)
            assert numbers(line.heard) == list(range(1, 1 + len(numbers(line.heard))))
        model.free.set()
        await model.until_units(50)
        await line.append(1, **rate_hz)
        await model.until_units(60)


async def test_more_commands_than_the_mailbox_takes_are_refused_and_the_rest_is_obeyed() -> None:
    async with house(limits=SessionLimits(mailbox_commands=10)) as home:
        line = await home.open()
        await line.say_together(*({"type": "input_audio_buffer.clear"} for _ in range(40)))
        await eventually(lambda: len(line.all("input_audio_buffer.cleared", "error")) == 40)
        assert {event["error"]["code"] for event in line.all("error")} <= {"input_backpressure"}
        await line.is_well()


@pytest.mark.parametrize("size", [2, 640])
async def test_a_recording_sent_in_one_burst_of_small_pieces_is_heard_whole(size: int) -> None:
    witness = Witness()
    async with house(witness) as home:
        line = await home.open(NATIVE)
        sound = speech(2000 * size / 32_000, 16_000)
        appends = [{"type": "input_audio_buffer.append", "audio": b64(piece)} for piece in pieces(sound, size)]
        await line.say_together(*appends)
        await line.commit()
        await line.until("input_audio_buffer.committed")
        await witness.until_units(len(sound) // 2560 + bool(len(sound) % 2560))
        heard = (witness.samples[: len(sound) // 2] * 32_768).round().astype("<i2").tobytes()
        assert heard == sound


def item(size: int) -> dict[str, Any]:
    """A `conversation.item.create` with so many characters."""
    content = [{"type": "input_text", "text": "x" * size}]
    return {"type": "conversation.item.create", "item": {"role": "user", "content": content}}


BURSTS: dict[str, tuple[list[dict[str, Any]], str, int]] = {
    "a long history": ([item(500)] * 250, "conversation.item.done", 250),
    "long items": ([item(100_000)] * 30, "conversation.item.done", 30),
    "heartbeats": ([{"type": "session.heartbeat"}] * 3000, "session.heartbeat_ack", 3001),
}


@pytest.mark.parametrize("burst", BURSTS)
async def test_a_client_is_not_taken_for_a_slow_reader_of_the_answers_to_its_own_burst(burst: str) -> None:
    commands, kind, count = BURSTS[burst]
    async with house() as home:
        line = await home.open()
        await line.say_together(*commands)
        await line.say("session.heartbeat")
        await eventually(lambda: len(line.all(kind)) == count)
        await eventually(lambda: "session.heartbeat_ack" in line.kinds)
        assert not line.all("error")
        await line.ask()
        await line.until(DONE)


async def test_a_client_that_reads_none_of_the_answers_to_its_burst_is_dropped() -> None:
    async with house(write_deadline_s=0.5) as home:
        line = await home.dial_deaf()
        await line.say("session.update", session={})
        await line.say_together(*[item(100_000)] * 100)
        await home.until_seats(1)
        await home.until_seats(0, within_s=5)


async def test_acknowledgements_of_a_long_replay_may_come_all_at_once() -> None:
    async with house() as home:
        line = await home.open()
        await line.is_well()
        await line.say_together(*({"type": "session.event_ack", "server_event_seq": 1} for _ in range(3000)))
        await line.is_well()
        assert not line.all("error")


PICTURE = "data:image/png;base64," + b64(b"\x89PNG" + bytes(600_000))


async def test_pictures_in_the_history_are_bounded() -> None:
    model = turns()
    facts = model.capabilities
    model.capabilities = lambda most: attrs.evolve(facts(most), image_input=True)  # type: ignore[method-assign]
    async with house(model) as home:
        line = await home.open()
        part = {"type": "input_image", "image_url": PICTURE}
        for _ in range(5):
            await line.say("conversation.item.create", item={"role": "user", "content": [part]})
            await line.until("conversation.item.done")
        event_id = await line.say("conversation.item.create", item={"role": "user", "content": [part]})
        await line.refused("input_backpressure", event_id=event_id)
        assert line.kinds.count("conversation.item.added") == 5, "a refused item leaves no trace"


# --- appendix B ---------------------------------------------------------------------------------------------------

LIMITS, SESSION, DETECTION = SessionLimits(), SessionConfig(), TurnDetection()

CONSTANTS: dict[str, tuple[Any, Any]] = {
    "first frame": (handshake.FIRST_FRAME_S, 10),
    "session idle": (LIMITS.idle_ttl_s, 300),
    "socket receive timeout": (SESSION.idle_timeout_s, 300),
    "disconnect grace": (LIMITS.disconnect_grace_s, 30),
    "an open that nobody claims": (ABANDONED_AFTER_S, 10),
    "journal": ((LIMITS.journal_s, LIMITS.journal_bytes), (60, 8 * MIB)),
    "resume token": (resume.TOKEN_BYTES, 32),
    "server hard cap": (transport.MAX_MESSAGE_BYTES, 16 * MIB),
    "pending input": (LIMITS.input_bytes, 16 * MIB),
    "commits": (LIMITS.pending_turns, 4),
    "output buffer": ((LIMITS.output_bytes, LIMITS.output_events), (2 * MIB, 512)),
    "images": ((LIMITS.image_items, LIMITS.image_bytes), (8, 4 * MIB)),
    "frames": ((decode_append.PICTURE_CHARACTERS, decode_append.PICTURES_PER_APPEND), (4_000_000, 2)),
    "short acknowledgement": (SESSION.overlap_short_ack_ms, 700),
    "barge-in": (SESSION.overlap_barge_in_ms, 1200),
    "rms floor": (SESSION.overlap_silence_rms, 0.003),
    "vad threshold": (DETECTION.threshold, 0.5),
    "vad prefix": (DETECTION.prefix_padding_ms, 300),
    "vad silence": (DETECTION.silence_duration_ms, 500),
    "vad shortest speech": ((DETECTION.min_speech_duration_ms, SHORTEST_SPEECH_MS), (96, 32)),
    "vad band": ((BAND, LOWEST_FLOOR), (0.15, 0.01)),
    "vad windows": ((WINDOW_SAMPLES, WINDOW_RATE_HZ), (512, 16_000)),
    "silence continuation": ((LIMITS.silence_units_native, LIMITS.silence_units_turn), (64, 8)),
    "pings": ((transport.PING_EVERY_S, transport.PONG_WITHIN_S), (20, 20)),
    "lag notice": (LIMITS.lag_notice_ms, 1000),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_are_those_of_the_contract(name: str) -> None:
    value, wanted = CONSTANTS[name]
    assert value == wanted
