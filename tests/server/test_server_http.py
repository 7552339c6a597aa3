"""The HTTP side: pages, keys, and who may become a WebSocket."""

import json
from typing import Any

import pytest
import structlog
from server_rig import Caller, Rig, Talker, rigged
from trio.abc import Clock

from duplex_engine import __version__

UPGRADE = ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
UPGRADE_KEY = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="


async def ask(caller: Caller, path: str, *headers: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the answer to one request."""
    await caller.send("\r\n".join([f"{method} {path} HTTP/1.1", "Host: test", *headers, "", ""]).encode())
    head = await caller.read_head()
    found = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
    length = 0 if method == "HEAD" else int(found["content-length"])
    return int(head[0].split()[1]), found, await caller.read(length)


async def asked(rig: Rig, path: str, *headers: str, method: str = "GET") -> tuple[int, Any]:
    """Status and JSON of the answer, on a connection of its own."""
    status, _, body = await ask(rig.connect(), path, *headers, method=method)
    return status, json.loads(body)


async def test_pages(autojump_clock: Clock) -> None:
    class Described(Talker):
        def describe(self) -> Any:
            return [{"role": "voice", "name": "nobody", "licence": "CC0"}]

    async with rigged(Described()) as rig:
        assert await asked(rig, "/health") == (200, {"status": "healthy"})
        assert await asked(rig, "/ready") == (200, {"status": "ready", "workers": {}})
        assert await asked(rig, "/version") == (200, {"version": __version__})
        status, models = await asked(rig, "/v1/models")
        assert (status, models["object"]) == (200, "list")
        (served,) = models["data"]
        assert (served["id"], served["object"], served["parent"]) == ("talker", "model", None)
        assert served["created"] > 1_700_000_000
        assert models["models"] == [{"role": "voice", "name": "nobody", "licence": "CC0"}]


async def test_one_connection_asks_for_several_pages(autojump_clock: Clock) -> None:
    async with rigged() as rig:
        caller = rig.connect()
        status, found, body = await ask(caller, "/")
        assert (status, found["content-type"]) == (200, "text/html; charset=utf-8")
        assert found["content-security-policy"].startswith("default-src 'none'; ")
        assert body.startswith(b"<!doctype html>")
        status, found, body = await ask(caller, "/metrics")
        assert (status, found["content-type"].split(";")[0]) == (200, "text/plain")
        for series in (
            *("sessions", "seats_taken", "seats_limit", "connections", "ready", "first_audio_seconds_bucket"),
            *("interruption_seconds_bucket", "input_age_seconds_bucket", "loop_lag_seconds_bucket"),
        ):
            assert f"duplex_engine_{series}".encode() in body
        assert (await ask(caller, "/health", method="HEAD"))[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nope", 404),
        ("GET", "/v1/nope", 404),
        ("GET", "/health/", 404),
        ("POST", "/health", 405),
        ("DELETE", "/v1/models", 405),
        ("GET", "/v1/realtime", 426),
        ("GET", "/v1/duplex?x=1", 426),
    ],
)
async def test_what_is_not_there(autojump_clock: Clock, method: str, path: str, status: int) -> None:
    async with rigged() as rig:
        got, body = await asked(rig, path, method=method)
        assert got == status
        assert body["error"]


async def test_an_upgrade_of_another_path_is_not_found(autojump_clock: Clock) -> None:
    async with rigged() as rig:
        assert (await asked(rig, "/nope", *UPGRADE, UPGRADE_KEY))[0] == 404
        assert (await asked(rig, "/v1/models", *UPGRADE, UPGRADE_KEY))[0] == 404


async def test_an_incorrect_handshake_is_a_bad_request_and_the_connection_goes_on(autojump_clock: Clock) -> None:
    async with rigged() as rig:
        caller = rig.connect()
        status, _, body = await ask(caller, "/v1/realtime?duplex=1", *UPGRADE)
        assert status == 400
        assert b"handshake" in body
        assert (await ask(caller, "/health"))[0] == 200
        assert rig.seats == 0


async def test_while_draining_nobody_new_is_let_in(autojump_clock: Clock) -> None:
    async with rigged() as rig:
        await rig.engine.drain(0)
        status, body = await asked(rig, "/v1/realtime?duplex=1", *UPGRADE, UPGRADE_KEY)
        assert (status, body["reason"]) == (503, "shutting down")
        assert (await asked(rig, "/ready"))[0] == 503
        assert (await asked(rig, "/health"))[0] == 200


KEYED = [
    ("/v1/models", ["Authorization: Bearer s3cret"]),
    ("/v1/models", ["authorization: bearer s3cret"]),
    ("/v1/models?api_key=s3cret", []),
    ("/v1/models", ["Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.s3cret"]),
]
UNKEYED = [
    ("/v1/models", []),
    ("/v1/models", ["Authorization: Bearer wrong"]),
    ("/v1/models", ["Authorization: Basic s3cret"]),
    ("/v1/models", ["Authorization: s3cret"]),
    ("/v1/models?api_key=", []),
    ("/v1/models?api_key=s3cret2", []),
    ("/v1/models", ["Sec-WebSocket-Protocol: openai-insecure-api-key."]),
    ("/v1/nope", []),
    ("/v1", []),
]


@pytest.mark.parametrize(("path", "headers"), KEYED)
async def test_the_key_is_taken_in_three_places(autojump_clock: Clock, path: str, headers: list[str]) -> None:
    async with rigged(api_key="s3cret") as rig:
        assert (await asked(rig, path, *headers))[0] == 200


@pytest.mark.parametrize(("path", "headers"), UNKEYED)
async def test_without_the_key_nothing_below_v1_is_shown(autojump_clock: Clock, path: str, headers: list[str]) -> None:
    async with rigged(api_key="s3cret") as rig:
        status, found, body = await ask(rig.connect(), path, *headers)
        assert (status, json.loads(body)) == (401, {"error": "Unauthorized"})
        assert found["www-authenticate"] == "Bearer"
        assert (await asked(rig, "/health"))[0] == 200


@pytest.mark.parametrize(
    ("path", "offer"),
    [
        ("/v1/realtime?duplex=1&autostart=0", ["Authorization: Bearer s3cret"]),
        ("/v1/realtime?duplex=1&autostart=0&api_key=s3cret", []),
        ("/v1/realtime", ["Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.s3cret, openai-beta.realtime-v1"]),
        ("/v1/duplex", ["Sec-WebSocket-Protocol: openai-insecure-api-key.s3cret"]),
    ],
)
async def test_a_keyed_upgrade(autojump_clock: Clock, path: str, offer: list[str]) -> None:
    async with rigged(api_key="s3cret") as rig:
        with structlog.testing.capture_logs() as logs:
            caller = rig.connect()
            status, headers = await caller.upgrade(path, offer=offer)
            assert status.startswith("HTTP/1.1 101")
            selected = "realtime" if offer and "realtime," in offer[0] else None
            assert headers.get("sec-websocket-protocol") == selected
            assert "sec-websocket-extensions" not in headers
            await caller.open()
        assert "s3cret" not in str(logs)


async def test_an_upgrade_without_the_key_is_refused_before_it_happens(autojump_clock: Clock) -> None:
    async with rigged(api_key="s3cret") as rig:
        with structlog.testing.capture_logs() as logs:
            status, body = await asked(rig, "/v1/realtime?duplex=1&api_key=guess3d", *UPGRADE, UPGRADE_KEY)
        assert (status, body) == (401, {"error": "Unauthorized"})
        assert "guess3d" not in str(logs)
        assert (await asked(rig, "/v1/duplex", *UPGRADE, UPGRADE_KEY))[0] == 401
        assert rig.seats == 0


@pytest.mark.parametrize(
    ("offer", "selected"),
    [
        ([], None),
        (["Sec-WebSocket-Protocol: realtime"], "realtime"),
        (["Sec-WebSocket-Protocol: openai-agents-sdk.1, realtime"], "realtime"),
        (["Sec-WebSocket-Protocol: openai-agents-sdk.1"], None),
        (["Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"], None),
    ],
)
async def test_subprotocols(autojump_clock: Clock, offer: list[str], selected: str | None) -> None:
    async with rigged() as rig:
        status, headers = await rig.connect().upgrade("/v1/realtime", offer=offer)
        assert status.startswith("HTTP/1.1 101")
        assert headers.get("sec-websocket-protocol") == selected
        assert "sec-websocket-extensions" not in headers
