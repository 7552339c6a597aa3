"""Lost connections and the sessions behind them: tokens, replay, takeover, and every way in which a claim is refused."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
from server_rig import SPEECH, Caller, Rig, Talker, rigged
from transport_peer import PING, PONG, TEXT, close_frame, frame
from trio.abc import Clock

from duplex_engine.config import SessionLimits

LONG = Talker(pieces=100, resume=True)
Credentials = tuple[str, str]


def credentials(greeting: dict[str, Any]) -> Credentials:
    return greeting.get("session_id") or greeting["session"]["id"], greeting["resume_token"]


async def resume(rig: Rig, held: Credentials, seen: int = 0) -> Caller:
    caller = await rig.call()
    session_id, token = held
    await caller.say(
        "session.resume",
        session_id=session_id,
        resume_token=token,
        last_received_server_event_seq=seen,
        event_id="evt_r",
    )
    return caller


async def prove(caller: Caller) -> None:
    """Answer the ping that follows the greeting, as every WebSocket library does."""
    while True:
        opcode, payload = await caller.next_frame()
        if opcode == PING:
            await caller.send(frame(PONG, payload))
            await trio.testing.wait_all_tasks_blocked()
            return


async def frames_up_to(caller: Caller, kind: str) -> list[bytes]:
    """Text frames as they came, up to the first one of this type."""
    frames: list[bytes] = []
    while True:
        opcode, payload = await caller.next_frame()
        if opcode == TEXT:
            frames.append(payload)
            if json.loads(payload)["type"] == kind:
                return frames


def numbers(frames: list[bytes]) -> list[int]:
    return [json.loads(each)["server_event_seq"] for each in frames if "server_event_seq" in json.loads(each)]


async def test_the_greeting_carries_a_token_only_where_it_is_of_use(autojump_clock: Clock) -> None:
    async with rigged(Talker(resume=True)) as rig:
        created = await (await rig.call()).open()
        assert created["attachment_generation"] == 1
        assert len(created["resume_token"]) == 43
        assert "server_event_seq" not in created
        ga = await rig.call("/v1/realtime?model=m")
        assert "resume_token" not in await ga.hears("session.created")
        asking = await rig.call("/v1/realtime")
        await asking.say("session.update", session={"extra_body": {"resumable": True}})
        assert "resume_token" in await asking.hears("session.created")
    async with rigged(Talker(resume=False)) as rig:
        created = await (await rig.call()).open()
        assert not {"resume_token", "attachment_generation"} & set(created)


async def test_a_dropped_client_gets_all_it_missed_byte_by_byte(autojump_clock: Clock) -> None:
    async with rigged(LONG) as rig:
        caller, witness_frames = await rig.call(), []
        held = credentials(await caller.open())
        created = await caller.asks()
        await caller.hears("response.output_audio.delta")
        seen = (await caller.hears("response.output_audio.delta"))["server_event_seq"]
        await caller.stream.aclose()
        await trio.sleep(3)
        assert rig.seats == 1, "it lives on, and speaks on"

        back = await resume(rig, held, seen)
        resumed = await back.next_event()
        assert (resumed["type"], resumed["attachment_generation"]) == ("session.resumed", 2)
        assert resumed["session"]["id"] == held[0]
        assert resumed["session"]["capabilities"]["supports_session_resume"]
        assert resumed["resume_token"] != held[1]
        assert "server_event_seq" not in resumed
        first = await frames_up_to(back, "response.done")
        assert numbers(first) == list(range(seen + 1, seen + 1 + len(first)))
        assert json.loads(first[-1])["response_id"] == created["response_id"]

        await back.stream.aclose()
        await trio.sleep(1)
        witness = await resume(rig, credentials(resumed), seen)
        await witness.hears("session.resumed")
        witness_frames = await frames_up_to(witness, "response.done")
        assert witness_frames == first, "a replay is what was sent, unchanged"


async def test_a_token_is_good_once(autojump_clock: Clock) -> None:
    async with rigged(LONG) as rig:
        caller = await rig.call()
        held = credentials(await caller.open())
        await caller.stream.aclose()
        back = await resume(rig, held)
        await prove(back)
        late = await resume(rig, held)
        assert (await late.next_event())["error"]["code"] == "invalid_resume_token"
        assert await late.farewell() == (1008, "invalid_resume_token")
        await back.say("session.heartbeat")
        await back.hears("session.heartbeat_ack")


async def test_a_client_that_never_read_its_greeting_may_try_once_more(autojump_clock: Clock) -> None:
    async with rigged(LONG) as rig:
        caller = await rig.call()
        held = credentials(await caller.open())
        await caller.stream.aclose()
        for generation in (2, 3, 4):
            unlucky = await resume(rig, held)
            assert (await unlucky.next_event())["attachment_generation"] == generation
            await unlucky.stream.aclose()  # it may have read that, or not: no pong was ever seen
        back = await resume(rig, held)
        assert (await back.next_event())["type"] == "session.resumed"


async def test_a_takeover_tells_the_loser_and_its_retry_does_not_harm_the_winner(autojump_clock: Clock) -> None:
    async with rigged(LONG) as rig:
        loser = await rig.call()
        held = credentials(await loser.open())
        await loser.asks()
        seen = (await loser.hears("response.output_audio.delta"))["server_event_seq"]
        winner = await resume(rig, held, seen)
        taken = await winner.next_event()
        assert taken["type"] == "session.resumed"
        replaced = await loser.hears("session.replaced")
        assert replaced == {
            "type": "session.replaced",
            "event_id": replaced["event_id"],
            "session_id": held[0],
            "attachment_generation": 1,
        }
        await loser.say("response.cancel")
        assert await loser.farewell() == (1000, "session_replaced")
        await prove(winner)

        retry = await resume(rig, held, seen)
        assert (await retry.next_event())["error"]["code"] == "invalid_resume_token"
        done = await winner.hears("response.done")
        assert done["response"]["status"] == "completed", "nothing the loser said after its end took effect"


async def test_a_loser_that_does_not_read_is_cut_off_at_once(autojump_clock: Clock) -> None:
    async with rigged(LONG) as rig:
        ours, theirs = trio.testing.lockstep_stream_pair()
        stuck = Caller(ours)
        rig.receive(theirs)
        await stuck.upgrade("/v1/realtime?duplex=1&autostart=0")
        held = credentials(await stuck.open())
        await stuck.say("input_audio_buffer.append", audio=SPEECH)
        await stuck.say("input_audio_buffer.commit", response_create=True)
        await trio.sleep(1)  # from here on it reads nothing, and a write to it never ends
        began = trio.current_time()
        winner = await resume(rig, held)
        await winner.hears("session.resumed")
        assert trio.current_time() == began, "the winner does not wait for it"
        await trio.sleep(0.6)
        assert rig.reception.connections == 1


@pytest.mark.parametrize("rivals", [2, 5])
async def test_of_several_claimants_the_newest_wins(autojump_clock: Clock, rivals: int) -> None:
    async with rigged(LONG) as rig:
        caller = await rig.call()
        held = credentials(await caller.open())
        await caller.asks()
        await caller.stream.aclose()
        claimants = [await rig.call() for _ in range(rivals)]
        for claimant in claimants:
            session_id, token = held
            await claimant.say("session.resume", session_id=session_id, resume_token=token)
        ends: list[str] = []

        async def follow(claimant: Caller) -> None:
            await claimant.hears("session.resumed")
            while (event := await claimant.next_event())["type"] not in ("session.replaced", "response.done"):
                assert event["type"] != "error"
            ends.append(event["type"])

        async with trio.open_nursery() as nursery:
            for claimant in claimants:
                nursery.start_soon(follow, claimant)
        assert sorted(ends) == ["response.done"] + ["session.replaced"] * (rivals - 1)


Refused = Callable[[Rig, Caller, Credentials], Awaitable[Caller]]


async def _ahead(rig: Rig, attached: Caller, held: Credentials) -> Caller:
    return await resume(rig, held, 1_000)


async def _wrong_token(rig: Rig, attached: Caller, held: Credentials) -> Caller:
    return await resume(rig, (held[0], held[1][::-1]))


async def _unknown_session(rig: Rig, attached: Caller, held: Credentials) -> Caller:
    return await resume(rig, ("duplex-" + "0" * 32, held[1]))


async def _malformed(rig: Rig, attached: Caller, held: Credentials) -> Caller:
    caller = await rig.call()
    await caller.say("session.resume", session_id=held[0], resume_token=7, event_id="evt_r")
    return caller


async def _negative(rig: Rig, attached: Caller, held: Credentials) -> Caller:
    return await resume(rig, held, -1)


async def _trimmed(rig: Rig, attached: Caller, held: Credentials) -> Caller:
    await attached.say("session.heartbeat")
    last = await attached.hears("session.heartbeat_ack")
    await attached.say("session.event_ack", server_event_seq=last["server_event_seq"])
    await rig.settles()
    return await resume(rig, held, 1)


REFUSED: list[tuple[Refused, str]] = [
    (_malformed, "invalid_session_resume"),
    (_negative, "invalid_session_resume"),
    (_unknown_session, "session_resume_expired"),
    (_wrong_token, "invalid_resume_token"),
    (_ahead, "session_resume_conflict"),
    (_trimmed, "journal_gap"),
]


@pytest.mark.parametrize(("claim", "code"), REFUSED, ids=lambda value: getattr(value, "__name__", value))
async def test_a_refused_claim_changes_nothing_for_who_is_attached(
    autojump_clock: Clock, claim: Refused, code: str
) -> None:
    async with rigged(LONG) as rig:
        attached = await rig.call()
        held = credentials(await attached.open())
        refused = await claim(rig, attached, held)
        answer = await refused.next_event()
        if code == "journal_gap":
            assert (answer["type"], answer["session_id"], answer["reason"]) == (
                "session.resync_required",
                held[0],
                code,
            )
        else:
            assert (answer["error"]["code"], answer["error"]["event_id"]) == (code, "evt_r")
        assert "server_event_seq" not in answer
        assert await refused.farewell() == (1008, code)
        await attached.say("session.heartbeat")
        await attached.hears("session.heartbeat_ack")
        again = await resume(rig, held, 2)
        assert (await again.next_event())["type"] in ("session.resumed", "session.resync_required")


async def test_sessions_of_a_model_without_resume_cannot_be_resumed(autojump_clock: Clock) -> None:
    async with rigged(Talker(resume=False)) as rig:
        attached = await rig.call()
        session_id = (await attached.open())["session"]["id"]
        refused = await resume(rig, (session_id, "token"))
        assert (await refused.next_event())["error"]["code"] == "unsupported_session_resume"
        await attached.say("session.heartbeat")
        await attached.hears("session.heartbeat_ack")


async def test_a_session_cannot_be_resumed_on_top_of_another(autojump_clock: Clock) -> None:
    async with rigged(LONG) as rig:
        first, second = await rig.call(), await rig.call()
        session_id, token = credentials(await first.open())
        await second.open()
        await second.say("session.resume", session_id=session_id, resume_token=token, event_id="evt_r")
        assert (await second.next_event())["error"]["code"] == "unsupported_session_resume"
        for caller in (first, second):
            await caller.say("session.heartbeat")
            await caller.hears("session.heartbeat_ack")


async def test_an_overflowing_journal_ends_resuming_but_not_the_conversation(autojump_clock: Clock) -> None:
    async with rigged(LONG, session=SessionLimits(journal_bytes=40_000)) as rig:
        caller = await rig.call()
        held = credentials(await caller.open())
        await caller.asks()  # and acknowledges nothing
        before = await frames_up_to(caller, "session.resync_required")
        resync = json.loads(before[-1])
        assert resync["reason"] == "journal_overflow"
        assert "server_event_seq" not in resync
        after = await frames_up_to(caller, "response.done")
        assert numbers(before)
        assert not numbers(after), "later events carry no number"
        assert not [each for each in after if b"resync_required" in each], "it is said once"
        refused = await resume(rig, held, numbers(before)[-1])
        assert (await refused.next_event())["reason"] == "journal_gap"


async def test_a_long_absence_is_replayed_however_slow_the_output_limit_is(autojump_clock: Clock) -> None:
    """What piled up while nobody was there is no sign of a slow reader."""
    limits = SessionLimits(output_bytes=100_000, output_events=50)
    async with rigged(LONG, session=limits) as rig:
        caller = await rig.call()
        held = credentials(await caller.open())
        await caller.asks()
        await caller.stream.aclose()
        await trio.sleep(9.5)
        back = await resume(rig, held)
        frames = await frames_up_to(back, "response.done")
        assert sum(map(len, frames)) > 2 * limits.output_bytes
        await back.say("session.heartbeat")
        await back.hears("session.heartbeat_ack")


async def test_the_grace_ends_the_session_and_frees_its_seat(autojump_clock: Clock) -> None:
    async with rigged(LONG, max_sessions=1) as rig:
        caller = await rig.call()
        held = credentials(await caller.open())
        await caller.send(close_frame(1001))
        await trio.sleep(29)
        newcomer = await rig.call()
        await newcomer.say("session.update", session={})
        assert (await newcomer.next_event())["error"]["code"] == "resource_exhausted", "the seat is kept for it"
        await trio.sleep(2)
        assert rig.seats == 0
        late = await resume(rig, held)
        assert (await late.next_event())["error"]["code"] == "session_resume_expired"


async def test_coming_back_ends_the_grace(autojump_clock: Clock) -> None:
    async with rigged(LONG) as rig:
        caller = await rig.call()
        held = credentials(await caller.open())
        for _ in range(3):
            await caller.stream.aclose()
            await trio.sleep(25)
            caller = await resume(rig, held)
            held = credentials(await caller.hears("session.resumed"))
        await trio.sleep(15)
        await caller.say("session.heartbeat")
        await caller.hears("session.heartbeat_ack")


async def test_the_input_format_of_a_session_is_that_of_its_next_connection(autojump_clock: Clock) -> None:
    async with rigged(LONG) as rig:
        caller = await rig.call()
        held = credentials(await caller.open({"input_audio_format": "g711_ulaw", "sample_rate_hz": 8000}))
        await caller.stream.aclose()
        back = await resume(rig, held)
        session = (await back.hears("session.resumed"))["session"]
        assert (session["input_audio_format"], session["audio"]["input"]["sample_rate_hz"]) == ("g711_ulaw", 8000)


async def test_attempts_are_counted(autojump_clock: Clock) -> None:
    async with rigged(LONG) as rig:
        caller = await rig.call()
        held = credentials(await caller.open())
        await (await resume(rig, held)).hears("session.resumed")
        await (await resume(rig, (held[0], "no"))).next_event()
        text = rig.metrics.exposition(rig.engine).decode()
        assert 'duplex_engine_resumes_total{outcome="resumed"} 1.0' in text
        assert 'duplex_engine_resumes_total{outcome="invalid_resume_token"} 1.0' in text
