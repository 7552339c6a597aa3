"""Conformance checklist, lines 5 to 11: lost connections, two claimants, journals with bounds, and how long anyone waits."""

import base64
import json
from contextlib import suppress
from typing import Any

import pytest
import trio
from transport_peer import TEXT, frame
from wire_rig import DELTA, DONE, STRICT, Event, House, Line, eventually, house, numbers, turns

from duplex_engine.config import SessionLimits

SPEECH = 'slow 0.3; speak "one two three four five six seven eight nine ten eleven twelve" for 4'
FOREVER = f"forever {{ {SPEECH} }}"


def lasting(script: str = FOREVER) -> Any:
    """A model whose sessions can be resumed."""
    return turns(script=script, resume=True)


def greeting(line: Line) -> Event:
    """`session.created` or `session.resumed` of this connection."""
    (event,) = line.all("session.created", "session.resumed")
    return event


def last_number(line: Line) -> int:
    """The highest number this connection has heard."""
    return max(numbers(line.heard), default=0)


async def resume(home: House, before: Line, seen: int | None = None, *, token: str | None = None) -> Line:
    """A new connection that claims the session of an older one; `seen`: its last number, or what it says instead."""
    line = await home.dial(STRICT)
    hello = greeting(before)
    await line.say(
        "session.resume",
        session_id=hello["session"]["id"],
        resume_token=hello["resume_token"] if token is None else token,
        last_received_server_event_seq=last_number(before) if seen is None else seen,
    )
    return line


async def resumed(home: House, before: Line, seen: int | None = None) -> Line:
    """The same, after it has succeeded."""
    line = await resume(home, before, seen)
    await line.until("session.resumed")
    return line


async def is_refused(line: Line, code: str) -> None:
    """The claim is refused, and its connection ends."""
    error = (await line.until("error", errors=True))["error"]
    assert error["code"] == code
    assert await line.hang_up_of_server() == (1008, code)


# --- line 5 -------------------------------------------------------------------------------------------------------


async def test_line_05_numbers_grow_from_one_and_a_replay_is_what_was_said_byte_by_byte() -> None:
    async with house(lasting()) as home:
        line = await home.open()
        answer = await line.ask()
        await line.until(DONE, response_id=answer["response_id"])
        await line.is_well()
        assert "server_event_seq" not in line.heard[0]
        assert line.kinds[:2] == ["session.created", "session.updated"]
        assert numbers(line.heard) == list(range(1, len(line.heard)))
        await line.drop()
        again = await resumed(home, line, seen=3)
        await eventually(lambda: last_number(again) == last_number(line))
        assert "server_event_seq" not in again.heard[0]
        assert again.raw[1:] == line.raw[4:]
        await again.say("session.heartbeat")
        await eventually(lambda: last_number(again) == last_number(line) + 1)
        assert numbers(again.heard) == list(range(4, 2 + last_number(line)))


# --- line 6 -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drops", [1, 5])
async def test_line_06_dropped_inside_a_response_nothing_is_lost_and_nothing_comes_twice(drops: int) -> None:
    async with house(lasting()) as home:
        lines = [await home.open()]
        answer: str = (await lines[0].ask())["response_id"]
        for _ in range(drops):
            await lines[-1].until(DELTA)
            await lines[-1].until(DELTA)
            await lines[-1].drop()
            await trio.sleep(0.05)
            lines.append(await resumed(home, lines[-1]))
        done = await lines[-1].until(DONE, response_id=answer)
        await check_whole([event for line in lines for event in line.heard], answer, done)
        generations = [greeting(line)["attachment_generation"] for line in lines]
        assert generations == list(range(1, drops + 2))
        tokens = [greeting(line)["resume_token"] for line in lines]
        assert len(set(tokens)) == drops + 1
        assert all(len(base64.urlsafe_b64decode(token + "=")) == 32 for token in tokens)
        await lines[-1].is_well()
        for token in (*tokens[:-1], "x" * 43):
            await is_refused(await resume(home, lines[-1], token=token), "invalid_resume_token")
        await lines[-1].is_well()


async def check_whole(events: list[Event], answer: str, done: Event) -> None:
    """Every number once, and all the sound of the answer."""
    said = numbers(events)
    assert said == list(range(1, said[-1] + 1))
    assert done["response"]["status"] == "completed"
    sound = [base64.b64decode(event["delta"]) for event in events if event["type"] == DELTA]
    assert sum(map(len, sound)) == 2 * 24_000 * 4
    assert [event["response_id"] for event in events if event["type"] == DELTA] == [answer] * len(sound)


# --- line 7 -------------------------------------------------------------------------------------------------------


async def test_line_07_the_loser_of_a_takeover_is_told_and_its_retry_does_not_harm_the_winner() -> None:
    async with house(lasting()) as home:
        loser = await home.open()
        answer = await loser.ask()
        await loser.until(DELTA)
        winner = await resumed(home, loser)
        replaced = await loser.until("session.replaced")
        assert replaced["session_id"] == greeting(loser)["session"]["id"]
        assert replaced["attachment_generation"] == 1
        assert "server_event_seq" not in replaced
        assert await loser.hang_up_of_server() == (1000, "session_replaced")
        assert greeting(winner)["attachment_generation"] == 2
        await winner.is_well()
        await is_refused(await resume(home, loser), "invalid_resume_token")
        await winner.until(DONE, response_id=answer["response_id"], errors=True)
        both = [event for line in (loser, winner) for event in line.heard]
        heard = numbers(both)
        assert set(heard) == set(range(1, heard[-1] + 1))
        assert numbers(winner.heard) == sorted(set(numbers(winner.heard)))
        assert home.seats == 1


async def test_line_07_what_a_loser_still_says_is_ignored() -> None:
    async with house(lasting()) as home:
        loser = await home.open()
        winner = await resumed(home, loser)
        with suppress(trio.BrokenResourceError):  # or it has heard already that it is not wanted any more
            await loser.say("session.close")
        await winner.is_well()
        await winner.is_well()
        assert home.seats == 1


# --- line 8 -------------------------------------------------------------------------------------------------------


async def test_line_08_below_what_was_trimmed_there_is_a_gap_and_the_session_lives_on() -> None:
    async with house(lasting()) as home:
        line = await home.open()
        for _ in range(5):
            await line.is_well()
        await line.say("session.event_ack", server_event_seq=4)
        await line.is_well()
        await line.drop()
        late = await resume(home, line, seen=3)
        gap = await late.until("session.resync_required")
        assert (gap["reason"], gap["session_id"]) == ("journal_gap", greeting(line)["session"]["id"])
        assert "server_event_seq" not in gap
        assert await late.hang_up_of_server() == (1008, "journal_gap")
        again = await resumed(home, line, seen=4)
        await again.is_well()
        await eventually(lambda: last_number(again) == 8)
        assert numbers(again.heard) == [5, 6, 7, 8]


async def test_line_08_an_event_that_was_never_sent_cannot_have_been_seen() -> None:
    async with house(lasting()) as home:
        line = await home.open()
        await is_refused(await resume(home, line, seen=99), "session_resume_conflict")
        await line.refused("invalid_event_ack", event_id=await line.say("session.event_ack", server_event_seq=99))
        await line.is_well()


async def test_line_08_an_overflow_is_said_once_and_then_events_have_no_number() -> None:
    async with house(lasting(), limits=SessionLimits(journal_bytes=60_000)) as home:
        line = await home.open()
        answer = await line.ask()
        done = await line.until(DONE, response_id=answer["response_id"])
        assert done["response"]["status"] == "completed"
        await line.is_well()
        (notice,) = line.all("session.resync_required")
        assert (notice["reason"], "server_event_seq" in notice) == ("journal_overflow", False)
        place = line.heard.index(notice)
        assert numbers(line.heard[:place]) == list(range(1, place))
        assert numbers(line.heard[place:]) == []
        assert len(line.sound(answer["response_id"])) == 2 * 24_000 * 4
        late = await resume(home, line)
        gap = await late.until("session.resync_required", errors=True)
        assert gap["reason"] == "journal_gap"
        await line.is_well()


# --- line 9 -------------------------------------------------------------------------------------------------------


async def test_line_09_a_claim_whose_socket_dies_may_be_made_once_more_with_the_old_token() -> None:
    async with house(lasting()) as home:
        line = await home.open()
        await line.is_well()
        await line.drop()
        await activation_fails(home, line)
        again = await resumed(home, line)
        assert greeting(again)["attachment_generation"] == 3
        await again.is_well()
        await is_refused(await resume(home, again, token=greeting(line)["resume_token"]), "invalid_resume_token")
        await again.is_well()


async def activation_fails(home: House, before: Line) -> None:
    """A claim is made, and its connection dies before anything of the answer is read."""
    line = Line(await trio.open_tcp_stream("127.0.0.1", home.port))
    await line.upgrade(STRICT)
    hello = greeting(before)
    claim = {"session_id": hello["session"]["id"], "resume_token": hello["resume_token"]}
    words = json.dumps({"type": "session.resume", **claim, "last_received_server_event_seq": last_number(before)})
    await line.send(frame(TEXT, words.encode()))
    await line.stream.receive_some(1)  # the answer is on its way
    line.over.set()
    await line.drop()


# --- line 10 ------------------------------------------------------------------------------------------------------

GRACE_S, IDLE_S = 0.4, 1.2


async def test_line_10_a_seat_is_kept_for_the_grace_and_free_after_it() -> None:
    async with house(lasting(), limits=SessionLimits(disconnect_grace_s=GRACE_S), max_sessions=1) as home:
        line = await home.open()
        left_at = trio.current_time()
        await line.drop()
        assert home.seats == 1
        await home.until_seats(0, within_s=GRACE_S + 5)
        assert trio.current_time() - left_at >= GRACE_S
        await is_refused(await resume(home, line), "session_resume_expired")
        await (await home.open()).is_well()


async def test_line_10_without_resuming_a_lost_connection_frees_its_seat_at_once() -> None:
    async with house(max_sessions=1) as home:
        for _ in range(10):
            line = await home.open()
            await line.ask()
            await line.drop()
            await home.until_seats(0, within_s=1)


async def test_line_10_an_idle_session_says_that_it_has_expired() -> None:
    async with house(lasting(), limits=SessionLimits(idle_ttl_s=IDLE_S)) as home:
        line = await home.open()
        began = trio.current_time()
        expired = await line.until("session.expired")
        assert expired["reason"] == "idle_ttl_expired"
        assert IDLE_S - 0.1 <= trio.current_time() - began < IDLE_S + 5
        assert await line.hang_up_of_server() == (1000, "idle_ttl_expired")
        assert home.seats == 0
        assert line.kinds[-1] == "session.expired"
        assert expired["server_event_seq"] == last_number(line)


# --- line 11 ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("resumable", [True, False])
async def test_line_11_heartbeats_alone_keep_a_session_alive_past_both_limits(resumable: bool) -> None:
    model = turns(script=FOREVER, resume=resumable)
    async with house(model, limits=SessionLimits(idle_ttl_s=IDLE_S)) as home:
        line = await home.open({"idle_timeout_s": IDLE_S})
        began = trio.current_time()
        while trio.current_time() - began < 3 * IDLE_S:
            await line.is_well()
            await trio.sleep(IDLE_S / 8)
        assert home.seats == 1
        assert "session.expired" not in line.kinds


async def test_line_11_acknowledgements_of_events_keep_the_socket_but_not_the_session() -> None:
    async with house(lasting(), limits=SessionLimits(idle_ttl_s=4 * IDLE_S)) as home:
        line = await home.open({"idle_timeout_s": IDLE_S})
        with trio.move_on_after(3 * IDLE_S):
            while not line.over.is_set():
                await line.say("session.event_ack", server_event_seq=1)
                await trio.sleep(IDLE_S / 8)
        assert not line.over.is_set(), "the socket was given up, although it was not silent"
        with trio.move_on_after(3 * IDLE_S):
            while not line.over.is_set():
                await line.say("session.event_ack", server_event_seq=1)
                await trio.sleep(IDLE_S / 8)
        assert line.all("session.expired")


async def test_line_11_a_socket_that_is_silent_is_given_up_and_its_session_can_be_resumed() -> None:
    async with house(lasting()) as home:
        line = await home.open({"idle_timeout_s": IDLE_S})
        assert (await line.hang_up_of_server())[0] == 1001
        assert home.seats == 1
        await (await resumed(home, line)).is_well()
