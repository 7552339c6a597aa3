import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from transport_peer import Peer
from trio.testing import memory_stream_pair

from duplex_engine.server.http1 import HttpConnection, HttpLimits, Request

LIMITS = HttpLimits(head_bytes=2_000, body_bytes=1_000, read_s=10, write_s=5)
UPGRADE = b"GET /v1/realtime?duplex=1 HTTP/1.1\r\nHost: t\r\nUpgrade: WebSocket\r\nConnection: x, Upgrade\r\n\r\n"


async def serve_all(http, seen):
    """Answer every request with its own body, until there is none left or one wants a WebSocket."""
    while (request := await http.next_request()) is not None:
        seen.append(request)
        if request.wants_websocket:
            return
        await http.respond(200, request.body or b"{}")


async def conversation(wire, *, close=True):
    """Send bytes at once; returns the requests that the server read and everything that it answered."""
    server, client = memory_stream_pair()
    seen = []
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def _():
            await serve_all(HttpConnection(server, LIMITS), seen)
            await server.aclose()

        await client.send_all(wire)
        if close:
            await client.send_eof()
        answer = b"".join([part async for part in client])
    return seen, answer


async def test_a_request_is_read_completely():
    head = b"POST /v1/chat?a=1&b=%20x&a=2 HTTP/1.1\r\nHost: t\r\nX-One: a\r\nX-One: b\r\nContent-Length: 5\r\n\r\n"
    (request,), answer = await conversation(head + b"hello")
    assert (request.method, request.path, request.body) == ("POST", "/v1/chat", b"hello")
    assert request.query == {"a": "1", "b": " x"}
    assert request.header("x-one") == "a, b"
    assert request.header("x-two") is None
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nhello")


async def test_a_connection_is_kept_for_further_requests():
    get = b"GET /%d HTTP/1.1\r\nHost: t\r\n\r\n"
    seen, answer = await conversation(get % 1 + get % 2 + get % 3)
    assert [request.path for request in seen] == ["/1", "/2", "/3"]
    assert answer.count(b"HTTP/1.1 200") == 3


@pytest.mark.parametrize("head", [b"GET / HTTP/1.0\r\n\r\n", b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"])
async def test_a_client_that_wants_one_answer_gets_one(head):
    seen, answer = await conversation(head * 2, close=False)
    assert len(seen) == 1
    assert answer.count(b"HTTP/1.1 200") == 1


async def test_a_head_request_gets_the_head():
    _, answer = await conversation(b"HEAD / HTTP/1.1\r\nHost: t\r\n\r\n")
    assert b"content-length: 2" in answer.lower()
    assert answer.endswith(b"\r\n\r\n")


async def test_chunked_bodies_and_expectations():
    head = b"POST / HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"
    server, client = memory_stream_pair()
    peer, seen = Peer(client), []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_all, HttpConnection(server, LIMITS), seen)
        await peer.send(head)
        assert (await peer.read_head())[0] == "HTTP/1.1 100 "
        await peer.send(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        assert (await peer.read_head())[0] == "HTTP/1.1 200 OK"
        assert await peer.read(5) == b"abcde"
        await client.aclose()
    assert seen[0].body == b"abcde"


async def test_an_upgrade_is_handed_on_with_the_bytes_behind_it():
    (request,), answer = await conversation(UPGRADE + b"\x81\x80mask")
    assert request.wants_websocket
    assert request.trailing == b"\x81\x80mask"
    assert answer == b""


async def test_a_refused_upgrade_is_an_ordinary_answer():
    server, client = memory_stream_pair()
    peer = Peer(client)
    http = HttpConnection(server, LIMITS)
    await peer.send(UPGRADE)
    request = await http.next_request()
    await http.respond(401, b'{"error":"Unauthorized"}')
    assert (await peer.read_head())[0] == "HTTP/1.1 401 Unauthorized"
    assert await peer.read(24) == b'{"error":"Unauthorized"}'
    await peer.send(b"GET /health HTTP/1.1\r\nHost: t\r\n\r\n")
    assert (await http.next_request()).path == "/health"
    assert request.wants_websocket


@pytest.mark.parametrize(
    ("headers", "offered"),
    [
        ((), ()),
        (((b"sec-websocket-protocol", b"realtime, key.abc"),), ("realtime", "key.abc")),
        (((b"sec-websocket-protocol", b"a"), (b"sec-websocket-protocol", b" b ,, c")), ("a", "b", "c")),
    ],
)
def test_subprotocols(headers, offered):
    request = Request(method="GET", path="/", target="/", query={}, headers=headers)
    assert request.subprotocols == offered
    assert not request.wants_websocket


async def test_a_printed_request_shows_no_credential():
    wire = b"GET /v1/realtime?api_key=SECRET HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer SECRET\r\n\r\n"
    (request,), _ = await conversation(wire)
    assert request.query["api_key"] == "SECRET"
    assert "SECRET" not in repr(request)
    assert "/v1/realtime" in repr(request)


@pytest.mark.parametrize(
    ("wire", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS greeting\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: minus\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n\r\nhalf", 400),
        (b"GET / HTTP/1.1\r\nHost: t\r\nX: " + b"x" * 3_000, 431),
        (b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1001\r\n\r\n" + b"x" * 1_001, 413),
    ],
)
async def test_what_is_no_request_is_refused(wire, status, autojump_clock):
    seen, answer = await conversation(wire)
    assert seen == []
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"connection: close" in answer.lower()


async def test_half_a_request_is_waited_for_so_long(autojump_clock):
    start = trio.current_time()
    seen, answer = await conversation(b"GET / HTTP/1.1\r\nHost:", close=False)
    assert seen == []
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert trio.current_time() - start == pytest.approx(12)


async def test_a_slow_body_counts_too(autojump_clock):
    _, answer = await conversation(b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n\r\nhalf", close=False)
    assert answer.startswith(b"HTTP/1.1 408 ")


async def test_a_silent_peer_gets_silence(autojump_clock):
    assert await conversation(b"", close=False) == ([], b"")
    assert await conversation(b"", close=True) == ([], b"")


async def test_a_peer_that_takes_no_answer_is_given_up(autojump_clock):
    server, client = trio.testing.lockstep_stream_pair()
    http = HttpConnection(server, LIMITS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.send_all, b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
        await http.next_request()
    start = trio.current_time()
    await http.respond(200, b"x" * 100)
    assert trio.current_time() - start == pytest.approx(5)
    assert await http.next_request() is None


@given(st.binary(max_size=300))
def test_noise_never_raises(noise):
    async def main():
        await conversation(noise)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
