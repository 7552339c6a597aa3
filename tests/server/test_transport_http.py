import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from transport_peer import Peer
from trio.testing import memory_stream_pair

from duplex_engine.server.http1 import BodyRefused, HttpConnection, HttpLimits, Request

LIMITS = HttpLimits(head_bytes=2_000, body_bytes=1_000, read_s=10, body_s=20, write_s=5)
UPGRADE = b"GET /v1/realtime?duplex=1 HTTP/1.1\r\nHost: t\r\nUpgrade: WebSocket\r\nConnection: x, Upgrade\r\n\r\n"


async def serve_all(http, seen):
    """Answer every request with its own body, until there is none left or one wants a WebSocket."""
    while (request := await http.next_request()) is not None:
        seen.append(request)
        if request.wants_websocket:
            return
        try:
            await http.respond(200, await http.read_body() or b"{}")
        except BodyRefused as refused:
            await http.respond(refused.status, refused.message.encode())


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
    assert (request.method, request.path, request.body_bytes) == ("POST", "/v1/chat", 5)
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
    assert [request.has_body for request in seen] == [True]


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
        (b"GET / HTTP/1.1\r\nHost: t\r\nX: " + b"x" * 3_000, 431),
        (UPGRADE[:-2] + b"Content-Length: 2\r\n\r\nhi", 400),
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


POST = b"POST / HTTP/1.1\r\nHost: t\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("wire", "close", "status"),
    [
        (POST + b"Content-Length: 9\r\n\r\nhalf", False, 408),
        (POST + b"Content-Length: 9\r\n\r\nhalf", True, 400),
        (POST + b"Content-Length: 1001\r\nExpect: 100-continue\r\n\r\n", False, 413),
        (POST + b"Content-Length: 1001\r\n\r\n" + b"x" * 1_001, True, 413),
        (CHUNKED + b"3e9\r\n" + b"x" * 1_001, False, 413),
        (CHUNKED + b"no number\r\n", False, 400),
    ],
)
async def test_a_body_that_cannot_be_read_ends_the_connection(autojump_clock, wire, close, status):
    seen, answer = await conversation(wire, close=close)
    assert len(seen) == 1
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"connection: close" in answer.lower()


async def test_who_does_not_want_the_body_ends_the_connection(autojump_clock):
    server, client = memory_stream_pair()
    peer, http = Peer(client), HttpConnection(server, LIMITS)
    await peer.send(POST + b"Expect: 100-continue\r\nContent-Length: 900\r\n\r\n")
    assert (await http.next_request()).method == "POST"
    await http.respond(401)
    head = await peer.read_head()
    assert (head[0], "connection: close" in [line.lower() for line in head]) == ("HTTP/1.1 401 Unauthorized", True)
    assert await http.next_request() is None


async def test_an_answer_part_by_part():
    server, client = memory_stream_pair()
    peer, http = Peer(client), HttpConnection(server, LIMITS)
    await peer.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
    await http.next_request()
    assert await http.begin(200, "text/event-stream")
    assert "transfer-encoding: chunked" in [line.lower() for line in await peer.read_head()]
    assert await http.send_part(b"one")
    assert await peer.read(8) == b"3\r\none\r\n"
    assert await http.end()
    assert await peer.read(5) == b"0\r\n\r\n"
    assert not await http.send_part(b"more")
    assert not await http.end()
    await peer.send(b"GET /next HTTP/1.1\r\nHost: t\r\n\r\n")
    assert (await http.next_request()).path == "/next"


async def test_an_old_client_knows_the_end_by_the_end_of_the_connection():
    server, client = memory_stream_pair()
    peer, http = Peer(client), HttpConnection(server, LIMITS)
    await peer.send(b"GET / HTTP/1.0\r\n\r\n")
    await http.next_request()
    await http.begin(200, "text/event-stream")
    await peer.read_head()
    await http.send_part(b"one")
    await http.end()
    assert await peer.read(3) == b"one"
    assert await http.next_request() is None


async def test_a_peer_that_is_gone_is_noticed_and_an_early_request_kept(autojump_clock):
    server, client = memory_stream_pair()
    http = HttpConnection(server, LIMITS)
    await client.send_all(b"GET /1 HTTP/1.1\r\nHost: t\r\n\r\nGET /2 HTTP/1.1\r\n")
    assert (await http.next_request()).path == "/1"
    with trio.move_on_after(1):
        await http.until_gone()
        pytest.fail("nobody has gone")
    await client.send_all(b"Host: t\r\n\r\nGET /3 HTTP/1.1\r\nHost: t\r\n\r\n")
    with trio.move_on_after(1):
        await http.until_gone()
        pytest.fail("nobody has gone")
    await http.respond(200)
    assert (await http.next_request()).path == "/2"
    await client.send_eof()
    await http.until_gone()
    await http.respond(200)
    assert (await http.next_request()).path == "/3"
    await http.respond(200)
    assert await http.next_request() is None


async def test_no_more_than_a_head_is_read_early(autojump_clock):
    server, client = memory_stream_pair()
    http = HttpConnection(server, LIMITS)
    await client.send_all(b"GET /1 HTTP/1.1\r\nHost: t\r\n\r\n")
    await http.next_request()
    await client.send_all(b"x" * 3_000)
    with trio.move_on_after(1):
        await http.until_gone()
    await client.send_eof()
    with trio.move_on_after(1) as waited:
        await http.until_gone()
    assert waited.cancelled_caught


async def test_an_answer_that_is_cancelled_is_given_up(autojump_clock):
    server, client = trio.testing.lockstep_stream_pair()
    http = HttpConnection(server, LIMITS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.send_all, b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
        await http.next_request()
    with trio.move_on_after(1) as cut:
        await http.respond(200, b"x" * 100)
    assert cut.cancelled_caught
    await http.respond(500)
    assert not await http.send_part(b"more")
    assert await http.next_request() is None


async def test_a_long_answer_has_time_for_its_length(autojump_clock):
    server, client = trio.testing.lockstep_stream_pair()
    http = HttpConnection(server, LIMITS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.send_all, b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
        await http.next_request()
        nursery.start_soon(http.respond, 200, b"x" * 1_000_000)
        received = 0
        while received < 1_000_000:
            await trio.sleep(2)
            received += len(await client.receive_some(300_000))


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
