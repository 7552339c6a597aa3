"""Conformance checklist, lines 2 to 4 and 26: how a connection begins, and who may."""

import json

import pytest
import trio
from transport_peer import BINARY, TEXT, Peer, frame
from wire_rig import GA, STRICT, House, house

KEY = "a-key-that-nobody-guesses"


async def test_line_02_an_id_that_the_client_chose_shows_up_nowhere() -> None:
    async with house() as home:
        line = await home.dial()
        theirs = {"session_id": "chosen-1", "id": "chosen-2", "object": "chosen-3", "state": "chosen-4"}
        await line.say("session.update", session={"model": "demo", **theirs})
        created = await line.until("session.created")
        assert created["session"]["model"] == "demo"
        await line.say("session.update", session={**theirs, "temperature": 0.5})
        assert (await line.until("session.updated"))["session"] == created["session"]
        assert (await line.until("session.updated"))["session"]["temperature"] == 0.5
        answer = await line.ask()
        await line.until("response.done", response_id=answer["response_id"])
        await line.say("session.close")
        await line.until("session.closed")
        assert not [words for words in line.raw if b"chosen-" in words]


FIRST_FRAMES = {
    "broken": (frame(TEXT, b'{"type": "session.upd'), "invalid_json"),
    "array": (frame(TEXT, b'[{"type": "session.update"}]'), "bad_event"),
    "no type": (frame(TEXT, b"{}"), "bad_event"),
    "unknown type": (frame(TEXT, b'{"type": "session.explode", "event_id": "evt_1"}'), "unknown_event"),
    "binary": (frame(BINARY, b'{"type": "session.update"}'), "bad_event"),
    "too large": (frame(TEXT, b" " * (15 * 1024 * 1024) + b"{}"), "event_too_large"),
    "bad configuration": (
        frame(TEXT, json.dumps({"type": "session.update", "session": {"input_audio_format": "opus"}}).encode()),
        "unsupported_audio_format",
    ),
    "late": (b"", "config_timeout"),
}


@pytest.mark.parametrize("fault", FIRST_FRAMES)
async def test_line_03_a_bad_first_frame_ends_the_connection_with_its_code(fault: str) -> None:
    first, code = FIRST_FRAMES[fault]
    async with house(max_sessions=1) as home:
        line = await home.dial()
        await line.send(first)
        error = await line.until("error", errors=True)
        assert error["error"]["code"] == code
        assert (error["error"]["type"], "server_event_seq" in error) == ("invalid_request_error", False)
        assert await line.hang_up_of_server() == (1008, code)
        assert line.kinds == ["error"]
        assert home.seats == 0
        await (await home.open()).is_well()


async def test_line_04_a_full_house_says_so_and_a_seat_is_free_right_after_the_last_word() -> None:
    async with house(max_sessions=2) as home:
        first, _ = await home.open(), await home.open()
        third = await home.dial()
        await third.say("session.update", session={})
        error = (await third.until("error", errors=True))["error"]
        assert (error["code"], error["type"]) == ("resource_exhausted", "rate_limit_error")
        assert error["message"] == "duplex_session_capacity_exhausted: limit=2"
        assert error["retryable"] is True
        assert await third.hang_up_of_server() == (1013, "resource_exhausted")
        for _ in range(20):
            next_in_row = await home.dial()
            await first.say("session.close")
            await first.until("session.closed")
            await next_in_row.say("session.update", session={})
            await next_in_row.until("session.updated")
            first = next_in_row
        assert home.seats == 2


def bearer(key: str) -> tuple[str, list[str]]:
    return STRICT, [f"Authorization: Bearer {key}"]


def query(key: str) -> tuple[str, list[str]]:
    return f"{STRICT}&api_key={key}", []


def subprotocol(key: str) -> tuple[str, list[str]]:
    return STRICT, [f"Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.{key}"]


@pytest.mark.parametrize("place", [bearer, query, subprotocol], ids=lambda place: place.__name__)
async def test_line_26_the_key_is_accepted_in_three_places_and_asked_for_before_the_upgrade(place) -> None:  # type: ignore[no-untyped-def]
    async with house(api_key=KEY) as home:
        path, headers = place(KEY)
        line = await home.dial(path, offer=headers)
        assert line.headers.get("sec-websocket-protocol") == ("realtime" if place is subprotocol else None)
        await line.say("session.update", session={})
        await line.until("session.updated")
        assert KEY.encode() not in b"".join(line.raw)
        for path, headers in (place("another"), (STRICT, []), (GA, [])):
            await is_turned_away(home, path, headers)
        assert (await home.get("/v1/models"))[0] == 401
        assert (await home.get("/v1/models", headers=[f"Authorization: Bearer {KEY}"]))[0] == 200
        assert await home.get("/health") == (200, b'{"status":"healthy"}')
        assert home.seats == 1


async def is_turned_away(home: House, path: str, headers: list[str]) -> None:
    """The upgrade is answered with 401 instead."""
    peer = Peer(await trio.open_tcp_stream("127.0.0.1", home.port))
    status, answered = await peer.upgrade(path, offer=headers)
    assert status.startswith("HTTP/1.1 401"), status
    assert await peer.read(int(answered["content-length"])) == b'{"error":"Unauthorized"}'
    await peer.stream.aclose()
