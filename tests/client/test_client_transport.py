"""Addresses, the WebSocket handshake and its failures, keep-alive, other transports; real sockets, also with TLS."""

import json
import shutil
import ssl

import pytest
import trio
import trio.testing
from client_peer import SESSION_ID, Line, Peer, serve_quietly
from trio_websocket import serve_websocket

from duplex_engine.client import DuplexClient, DuplexConnectionError, build_realtime_url
from duplex_engine.client.transport import session_url
from duplex_engine.errors import ConnectionLost


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("ws://host:8099", "ws://host:8099/v1/realtime?duplex=1&model=m&autostart=0"),
        ("ws://host:8099/", "ws://host:8099/v1/realtime?duplex=1&model=m&autostart=0"),
        ("http://host", "ws://host/v1/realtime?duplex=1&model=m&autostart=0"),
        ("https://host/v1/duplex", "wss://host/v1/duplex?duplex=1&model=m&autostart=0"),
        ("//host", "ws://host/v1/realtime?duplex=1&model=m&autostart=0"),
        ("ws://h/p?a=&model=other&autostart=1", "ws://h/p?a=&model=other&autostart=0&duplex=1"),
        ("ws://[::1]:80/x?duplex=on", "ws://[::1]:80/x?duplex=on&model=m&autostart=0"),
    ],
)
def test_session_addresses(url, expected):
    assert session_url(url, model="m") == expected


def test_built_addresses_keep_what_they_have():
    assert build_realtime_url("http://h/v1/realtime", "m") == "ws://h/v1/realtime?duplex=1&model=m"
    assert (
        build_realtime_url("ws://h/v1/realtime?model=a", "m", autostart=False, extra_query={"resume": "1"})
        == "ws://h/v1/realtime?duplex=1&model=a&resume=1&autostart=0"
    )
    with pytest.raises(ValueError, match="no server address"):
        build_realtime_url("gopher://h", None)


async def test_the_key_goes_into_the_query_of_a_connect_of_your_own(autojump_clock, nursery):
    peer = Peer(nursery, serve_quietly)
    async with DuplexClient("ws://h", api_key="k", connect=peer.connect):
        pass
    assert peer.query["api_key"] == "k"


@pytest.mark.parametrize("end", ["at once", "after the request"])
async def test_a_server_that_speaks_no_websocket(autojump_clock, nursery, end):
    async def connect(url: str) -> trio.abc.Stream:
        ours, theirs = trio.testing.memory_stream_pair()
        nursery.start_soon(hang_up, theirs)
        return ours

    async def hang_up(stream: trio.abc.Stream) -> None:
        if end != "at once":
            await stream.receive_some()
        await stream.aclose()

    with pytest.raises(DuplexConnectionError, match=r"ws://h/v1/realtime closed the connection during the WebSocket"):
        async with DuplexClient("ws://h", api_key="secret", connect=connect):
            pytest.fail("entered")


async def test_a_server_that_refuses_the_upgrade(autojump_clock, nursery):
    async def connect(url: str) -> trio.abc.Stream:
        ours, theirs = trio.testing.memory_stream_pair()
        nursery.start_soon(answer, theirs)
        return ours

    async def answer(stream: trio.abc.Stream) -> None:
        await stream.receive_some()
        await stream.send_all(b'HTTP/1.1 401 Unauthorized\r\nContent-Length: 24\r\n\r\n{"error":"Unauthorized"}')

    with pytest.raises(DuplexConnectionError, match=r'HTTP 401 \{"error":"Unauthorized"\}') as refused:
        async with DuplexClient("ws://h", api_key="secret", connect=connect):
            pytest.fail("entered")
    assert "secret" not in str(refused.value)


async def test_a_server_that_never_answers_the_upgrade(autojump_clock, nursery):
    ours, _theirs = trio.testing.memory_stream_pair()

    async def connect(url: str) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        return ours

    with pytest.raises(DuplexConnectionError, match="within 10 s"):
        async with DuplexClient("ws://h", connect=connect):
            pytest.fail("entered")
    assert trio.current_time() == pytest.approx(10)


async def test_a_connect_that_never_returns(autojump_clock):
    async def connect(url: str) -> trio.abc.Stream:
        await trio.sleep_forever()
        raise AssertionError

    with pytest.raises(DuplexConnectionError, match="no connection to ws://h/v1/realtime within 10 s"):
        async with DuplexClient("ws://h", connect=connect):
            pytest.fail("entered")


async def test_a_dead_connection_is_noticed_without_traffic(autojump_clock, nursery):
    async def dead(line: Line) -> None:
        await line.open()
        # From here on nothing is read: pings stay unanswered.
        line.ws._reader_running = False
        await trio.sleep_forever()

    async def back(line: Line) -> None:
        await line.resume()
        await line.serve_until_closed()

    peer = Peer(nursery, dead, back)
    async with DuplexClient("ws://h", connect=peer.connect, heartbeat_interval_s=None) as client:
        await client.wait_for("connection.resumed", timeout_s=100)
        assert 40 <= trio.current_time() < 42.5
        await trio.sleep(300)
        assert len(peer.lines) == 2
    nursery.cancel_scope.cancel()


class ChannelTransport:
    """A transport of one's own: two memory channels."""

    def __init__(self, outgoing, incoming) -> None:
        self.outgoing, self.incoming = outgoing, incoming

    async def send(self, data: str) -> None:
        await self.outgoing.send(data)

    async def recv(self) -> str | bytes:
        return await self.incoming.receive()

    async def close(self) -> None:
        self.outgoing.close()
        self.incoming.close()


async def test_a_transport_of_messages_instead_of_bytes(autojump_clock, nursery):
    async def connect(url: str) -> ChannelTransport:
        to_server, at_server = trio.open_memory_channel[str](8)
        to_client, at_client = trio.open_memory_channel[str | bytes](8)
        nursery.start_soon(serve, at_server, to_client)
        return ChannelTransport(to_server, at_client)

    async def serve(at_server, to_client) -> None:
        update = json.loads(await at_server.receive())
        assert update["type"] == "session.update"
        for message in (b"binary", "not json", "[]", '"text"'):
            await to_client.send(message)
        await to_client.send(json.dumps({"type": "session.created", "session": {"id": SESSION_ID}}))
        async for message in at_server:
            if json.loads(message)["type"] == "session.close":
                await to_client.send(json.dumps({"type": "session.closed", "reason": "client_close"}))

    async with DuplexClient("ws://h", connect=connect) as client:
        assert client.session_id == SESSION_ID
        events = client.events()
    assert [event.type async for event in events] == ["session.closed"]


def handler(lines: list[Line], peer: Peer):
    async def serve(request) -> None:
        ws = await request.accept()
        line = Line(peer.session, ws, ws._stream, request.path)
        line.headers = {name.decode().lower(): value.decode() for name, value in request.headers}
        lines.append(line)
        await line.open()
        await line.receive("input_audio_buffer.commit")
        await line.respond("r", b"\1\0" * 24_000, text="Hello.")
        await line.done("r")
        await line.serve_until_closed()

    return serve


async def converse(url: str, **options) -> bytes:
    async with DuplexClient(url, api_key="sesame", **options) as client:
        await client.stream_pcm(b"\0\0" * 16_000, realtime=False)
        await client.commit()
        response = await anext(client.responses())
        audio = b"".join([chunk async for chunk in response.audio()])
        await client.ack_playback(response.played_ms, response_id=response.response_id)
        return audio


async def test_over_a_real_socket(nursery):
    lines: list[Line] = []
    with trio.fail_after(20):
        server = await nursery.start(serve_websocket, handler(lines, Peer(nursery)), "127.0.0.1", 0, None)
        assert await converse(f"ws://127.0.0.1:{server.port}") == b"\1\0" * 24_000
    assert lines[0].headers["authorization"] == "Bearer sesame"
    assert "sesame" not in lines[0].path
    assert lines[0].received[-2]["played_ms"] == 1000
    nursery.cancel_scope.cancel()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command to make a certificate")
async def test_over_tls(nursery, tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    request = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    await trio.run_process([*request.split(), "-keyout", key, "-out", certificate], capture_stderr=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    with trio.fail_after(20):
        server = await nursery.start(serve_websocket, handler([], Peer(nursery)), "127.0.0.1", 0, context)
        url = f"wss://127.0.0.1:{server.port}"
        trusting = ssl.create_default_context(cafile=certificate)
        assert await converse(url, ssl_context=trusting) == b"\1\0" * 24_000
        with pytest.raises(ConnectionLost, match="certificate verify failed"):
            await converse(url)
    nursery.cancel_scope.cancel()


async def test_a_closed_port_is_one_clear_line():
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    await listeners[0].aclose()
    with pytest.raises(ConnectionLost) as refused:
        await converse(f"ws://127.0.0.1:{port}")
    assert "cannot connect to ws://127.0.0.1" in str(refused.value)
    assert "refused" in str(refused.value)
    assert "sesame" not in str(refused.value)
