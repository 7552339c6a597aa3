"""A WebSocket over real sockets: what only a kernel can do wrong."""

import socket
import ssl
import struct

import pytest
import trio
from transport_peer import PONG, TEXT, Peer, close_frame, echo, frame, header, masked, real_server, serve
from trio_websocket import ConnectionClosed, open_websocket

from duplex_engine.errors import TransportStalled

pytestmark = pytest.mark.filterwarnings("error")


def reset(peer):
    """Close with a reset instead of a goodbye."""
    peer.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.stream.socket.close()


async def upgraded(connect):
    peer = await connect()
    await peer.upgrade()
    return peer


async def assert_lives(peer):
    await peer.send(frame(TEXT, b"still here?"))
    assert await peer.next_text() == b"still here?"


async def test_long_messages_both_ways():
    async with real_server(echo) as (connect, crashes):
        peer = await upgraded(connect)
        for text in [b"x" * (2 << 20), "ä".encode() * (1 << 20), b"{}"]:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(peer.send, frame(TEXT, text))
                assert await peer.next_text() == text
    assert crashes == []


async def test_a_ping_is_answered_while_nobody_reads():
    seen = trio.Event()

    async def busy(websocket):
        await seen.wait()

    async with real_server(busy) as (connect, _):
        peer = await upgraded(connect)
        await peer.send(frame(TEXT, b"x" * 5_000) * 20 + frame(9, b"alive?"))
        assert await peer.next_frame() == (PONG, b"alive?")
        await peer.send(close_frame(1001))
        assert await peer.close_code() == 1001
        assert await peer.at_end()
        seen.set()


async def test_a_message_over_the_limit_is_closed_with_1009_while_it_is_still_being_sent():
    async def gather(websocket):
        with pytest.raises(ConnectionClosed):
            await websocket.receive()

    async with real_server(gather) as (connect, crashes):
        peer = await upgraded(connect)

        async def send_it():
            payload = b"x" * (17 << 20)
            await peer.send(header(TEXT, len(payload)) + bytes(4) + payload)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_it)
            assert await peer.close_code() == 1009
    assert crashes == []


async def test_more_than_the_kernel_takes_at_once_arrives_whole():
    sent = [bytes([65 + number]) * (1 << 20) for number in range(8)]

    async def pour(websocket):
        await websocket.send_frames(sent, 20)
        await websocket.send_frames([b"end"], 20)

    async with real_server(pour) as (connect, crashes):
        peer = await upgraded(connect)
        assert [await peer.next_text() for _ in sent] == sent
        assert await peer.next_text() == b"end"
        assert await peer.close_code() == 1000
        await peer.send(close_frame())
    assert crashes == []


async def test_a_stalled_peer_costs_only_its_own_connection():
    stalled_for = []

    async def app(websocket):
        if await websocket.receive() == b"pour":
            start = trio.current_time()
            with pytest.raises(TransportStalled):
                await websocket.send_frames([b"x" * (64 << 20)], 0.3)
            stalled_for.append(trio.current_time() - start)
        else:
            await echo(websocket)

    async with real_server(app) as (connect, crashes):
        stalled, neighbour = await upgraded(connect), await upgraded(connect)
        await neighbour.send(frame(TEXT, b"echo"))
        await stalled.send(frame(TEXT, b"pour"))
        while not stalled_for:
            await assert_lives(neighbour)
        await assert_lives(neighbour)
        with pytest.raises((trio.BrokenResourceError, EOFError)):
            await stalled.read(70 << 20)
    assert 0.3 <= stalled_for[0] < 3
    assert crashes == []


async def test_rude_peers_end_alone():
    async def app(websocket):
        while True:
            message = await websocket.receive()
            if message == b"crash":
                raise ZeroDivisionError("a bug of the application")
            await websocket.send_frames([message], 5)

    async with real_server(app) as (connect, crashes):
        neighbour = await upgraded(connect)

        mid_handshake = await connect()
        await mid_handshake.send(b"GET /v1/realtime HTTP/1.1\r\nHost: t\r\nUpgr")
        reset(mid_handshake)
        await assert_lives(neighbour)

        straight_away = await connect()
        reset(straight_away)
        await assert_lives(neighbour)

        half_a_frame = await upgraded(connect)
        await half_a_frame.send(frame(TEXT, b"x" * 5_000)[:2_000])
        reset(half_a_frame)
        await assert_lives(neighbour)

        not_utf8 = await upgraded(connect)
        await not_utf8.send(frame(TEXT, b"\xff\xff"))
        assert await not_utf8.close_code() == 1007
        await assert_lives(neighbour)

        unlucky = await upgraded(connect)
        await unlucky.send(frame(TEXT, b"crash"))
        assert await unlucky.close_code() == 1011
        await assert_lives(neighbour)

        no_http = await connect()
        await no_http.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
        assert (await no_http.read_head())[0] == "HTTP/1.1 400 Bad Request"
        await assert_lives(neighbour)
    closed = [crash for crash in crashes if isinstance(crash, ConnectionClosed)]
    assert sorted(str(c.reason.code) for c in closed) == ["1006", "1006", "1007"]
    assert [crash.args for crash in crashes if crash not in closed] == [("a bug of the application",)]


async def test_a_peer_that_vanishes_during_a_send_is_noticed():
    outcomes = []

    async def pour(websocket):
        try:
            while True:
                await websocket.send_frames([b"x" * 100_000], 20)
        except ConnectionClosed:
            pass
        outcomes.append(websocket.closed.code)

    async with real_server(pour) as (connect, crashes):
        peer = await upgraded(connect)
        await peer.next_text()
        reset(peer)
        while not outcomes:
            await trio.lowlevel.checkpoint()
    assert outcomes == [1006]
    assert crashes == []


async def test_trio_websockets_client_gets_along():
    async with real_server(echo) as (connect, crashes):
        peer = await connect()
        port = peer.stream.socket.getpeername()[1]
        await peer.stream.aclose()
        async with open_websocket("127.0.0.1", port, "/v1/realtime?duplex=1", use_ssl=False) as client:
            for text in ["{}", "ü" * 100_000]:
                await client.send_message(text)
                assert await client.get_message() == text
            await client.ping(b"p")
    assert crashes == []


def contexts():
    """Both ends of a TLS without certificates, which is all that this needs."""
    ends = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in ends:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("AECDH-AES128-SHA:@SECLEVEL=0")
    ends[1].check_hostname = False
    ends[1].verify_mode = ssl.CERT_NONE
    return ends


async def test_over_tls():
    server_context, client_context = contexts()
    left, right = trio.socket.socketpair()
    server = trio.SSLStream(trio.SocketStream(left), server_context, server_side=True, https_compatible=True)
    client = trio.SSLStream(trio.SocketStream(right), client_context, https_compatible=True)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, server, echo)
            peer = Peer(client)
            await peer.upgrade()
            for text in [b"{}", b"y" * 300_000]:
                nursery.start_soon(peer.send, frame(TEXT, text))
                assert await peer.next_text() == text
            await peer.send(header(TEXT, 3) + bytes(4) + masked(b"\xff\xff\xff", bytes(4)))
            assert await peer.close_code() == 1007
            await client.aclose()
