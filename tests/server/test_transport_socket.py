"""A WebSocket over memory streams, on the virtual clock."""

import itertools

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from transport_peer import BINARY, CLOSE, PING, PONG, TEXT, Peer, close_frame, echo, frame, header, serve
from trio.testing import lockstep_stream_pair, memory_stream_pair, wait_all_tasks_blocked
from trio_websocket import ConnectionClosed
from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, Ping, Pong, TextMessage

from duplex_engine.errors import ProtocolViolation, TransportStalled
from duplex_engine.server.http1 import HttpConnection
from duplex_engine.server.transport import BinaryMessage, accept_websocket


async def sleep_through(socket):
    await trio.sleep_forever()


class Gathering:
    """An application that takes what comes, and remembers it and how the socket ended."""

    def __init__(self):
        self.messages = []
        self.closed = None
        self.closed_at = None

    async def __call__(self, socket):
        try:
            while True:
                self.messages.append(await socket.receive())
        except ConnectionClosed as closed:
            self.closed = closed.reason
            self.closed_at = trio.current_time()


@pytest.fixture
async def open_peer(nursery):
    """Opens a peer whose server runs the given application."""

    async def start(app, pair=memory_stream_pair, subprotocol=None, **handshake):
        server, client = pair()
        nursery.start_soon(serve, server, app, subprotocol)
        peer = Peer(client)
        peer.status, peer.headers = await peer.upgrade(**handshake)
        return peer

    return start


async def test_messages_go_both_ways(open_peer, autojump_clock):
    peer = await open_peer(echo)
    assert peer.status == "HTTP/1.1 101 Switching Protocols"
    for text in [b"{}", "Grüße".encode(), b"x" * 70_000, b""]:
        await peer.send(frame(TEXT, text))
        assert await peer.next_text() == text


async def test_compression_is_declined_and_no_subprotocol_chosen(open_peer, autojump_clock):
    offer = ["Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits", "Sec-WebSocket-Protocol: realtime"]
    peer = await open_peer(echo, offer=offer)
    assert "sec-websocket-extensions" not in peer.headers
    assert "sec-websocket-protocol" not in peer.headers


async def test_the_chosen_subprotocol_is_told(open_peer, autojump_clock):
    peer = await open_peer(echo, subprotocol="realtime", offer=["Sec-WebSocket-Protocol: realtime, secret.key"])
    assert peer.headers["sec-websocket-protocol"] == "realtime"


async def test_frames_behind_the_handshake_are_not_lost(open_peer, autojump_clock):
    peer = await open_peer(echo, behind=frame(TEXT, b"early") + frame(TEXT, b"bird")[:3])
    await peer.send(frame(TEXT, b"bird")[3:])
    assert [await peer.next_text(), await peer.next_text()] == [b"early", b"bird"]


@pytest.mark.parametrize(
    "broken",
    [
        b"Sec-WebSocket-Version: 8\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        b"Sec-WebSocket-Version: 13\r\n",
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZQ==\r\nSec-WebSocket-Protocol: \xff\xfe\r\n",
    ],
)
async def test_an_incorrect_handshake_can_still_be_answered(broken, autojump_clock):
    server, client = memory_stream_pair()
    await client.send_all(
        b"GET / HTTP/1.1\r\nHost: t\r\nUpgrade: websocket\r\nConnection: upgrade\r\n" + broken + b"\r\n"
    )
    http = HttpConnection(server)
    request = await http.next_request()
    with pytest.raises(ProtocolViolation, match="bad_handshake"):
        async with accept_websocket(server, request):
            pytest.fail("opened")
    await http.respond(400, b"no")
    assert (await Peer(client).read_head())[0] == "HTTP/1.1 400 Bad Request"


async def test_a_ping_is_answered_while_nobody_reads(open_peer, autojump_clock):
    peer = await open_peer(sleep_through)
    start = trio.current_time()
    for number in range(20):
        await peer.send(frame(TEXT, b"append %d" % number))
    await peer.send(frame(PING, b"alive?"))
    assert await peer.next_frame() == (PONG, b"alive?")
    assert trio.current_time() == start


async def test_a_ping_between_fragments_is_answered_and_the_message_assembled(open_peer, autojump_clock):
    app = Gathering()
    peer = await open_peer(app)
    text = "Zwölf Boxkämpfer".encode()
    await peer.send(frame(TEXT, text[:3], fin=False) + frame(PING, b"p") + frame(0, b"", fin=False))
    assert await peer.next_frame() == (PONG, b"p")
    await peer.send(frame(0, text[3:4], fin=False) + frame(0, text[4:]) + frame(TEXT, b"next"))
    await wait_all_tasks_blocked()
    assert app.messages == [text, b"next"]


async def test_a_binary_message_is_told_apart(open_peer, autojump_clock):
    app = Gathering()
    peer = await open_peer(app)
    await peer.send(frame(BINARY, b"\x00\x01") + frame(TEXT, b"text"))
    await wait_all_tasks_blocked()
    assert app.messages == [BinaryMessage(b"\x00\x01"), b"text"]


async def test_a_close_is_answered_and_noticed_while_nobody_reads(open_peer, autojump_clock):
    noticed = []

    async def busy(socket):
        await trio.sleep(0.5)
        noticed.append((socket.closed.code, socket.closed.reason))

    peer = await open_peer(busy)
    await peer.send(frame(TEXT, b"last words") + close_frame(1001, b"bye"))
    assert await peer.close_code() == 1001
    assert await peer.at_end()
    await trio.sleep(1)
    assert noticed == [(1001, "bye")]


async def test_messages_before_a_close_are_still_taken(open_peer, autojump_clock):
    app = Gathering()

    async def late(socket):
        await trio.sleep(5)
        await app(socket)

    peer = await open_peer(late)
    await peer.send(frame(TEXT, b"one") + frame(TEXT, b"two") + close_frame())
    await trio.sleep(6)
    assert app.messages == [b"one", b"two"]
    assert app.closed.code == 1000


async def test_a_listener_gets_what_waited_and_what_comes(open_peer, autojump_clock):
    heard, reasons = [], []

    async def app(socket):
        assert await socket.receive() == b"hello"
        await trio.sleep(1)
        reasons.append(await socket.listen(heard.append))

    peer = await open_peer(app)
    await peer.send(frame(TEXT, b"hello") + frame(TEXT, b"a"))
    await trio.sleep(2)
    await peer.send(frame(TEXT, b"b") + frame(BINARY, b"c") + close_frame(1000))
    await trio.sleep(1)
    assert heard == [b"a", b"b", BinaryMessage(b"c")]
    assert reasons[0].code == 1000


async def test_others_have_their_turn_between_two_messages_of_one_write(open_peer, autojump_clock):
    order = []

    async def tick():
        while order.count("message") < 4:
            await trio.lowlevel.checkpoint()
            order.append("tick")

    async def listen(socket):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tick)
            await socket.listen(lambda message: order.append("message"))

    peer = await open_peer(listen)
    await peer.send(4 * frame(TEXT, b"{}") + close_frame())
    await peer.next_frame()
    assert order.count("message") == 4
    assert "message message message" not in " ".join(order), "two neighbours may be of two rounds, three may not"


async def test_a_cancelled_listener_leaves_the_rest_to_receive(open_peer, autojump_clock):
    heard, rest = [], Gathering()

    async def app(socket):
        with trio.move_on_after(1):
            await socket.listen(heard.append)
        await rest(socket)

    peer = await open_peer(app)
    await peer.send(frame(TEXT, b"a"))
    await trio.sleep(2)
    await peer.send(frame(TEXT, b"b"))
    await wait_all_tasks_blocked()
    assert (heard, rest.messages) == ([b"a"], [b"b"])


async def test_what_a_listener_raises_ends_its_own_socket_as_one_exception(autojump_clock):
    server, client = memory_stream_pair()
    caught = []

    def fail(message):
        raise RuntimeError("a bug")

    async def guarded():
        try:
            await serve(server, lambda socket: socket.listen(fail))
        except RuntimeError as error:
            caught.append(str(error))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(guarded)
        peer = Peer(client)
        await peer.upgrade()
        await peer.send(frame(TEXT, b"x"))
        assert await peer.close_code() == 1011
    assert caught == ["a bug"]


async def test_a_block_that_raises_closes_with_1011(autojump_clock):
    server, client = memory_stream_pair()

    async def crash(socket):
        await socket.receive()
        raise ZeroDivisionError

    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def _():
            with pytest.raises(ZeroDivisionError):
                await serve(server, crash)

        peer = Peer(client)
        await peer.upgrade()
        await peer.send(frame(TEXT, b"x"))
        assert await peer.close_code() == 1011


async def test_several_messages_arrive_in_order_from_one_write(autojump_clock):
    server, client = lockstep_stream_pair()
    sent = [b"a" * 10, b"b" * 300, b"c" * 70_000]

    async def app(socket):
        await socket.send_frames(sent, 5)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, server, app)
        peer = Peer(client)
        await peer.upgrade()
        assert [await peer.next_text() for _ in sent] == sent
        assert await peer.close_code() == 1000
        await peer.send(close_frame())
        assert await peer.at_end()


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (frame(TEXT, b"\xff\xfe"), 1007),
        (frame(TEXT, b"\xc3", fin=False) + frame(0, b"\x28"), 1007),
        (header(TEXT, 16 * 1024 * 1024 + 1), 1009),
        (header(BINARY, 16 * 1024 * 1024 + 1), 1009),
        (b"\x81\x05hello", 1002),
        (frame(0, b"stray"), 1002),
    ],
)
async def test_a_broken_protocol_is_closed_with_its_code(open_peer, wire, code, autojump_clock):
    app = Gathering()
    peer = await open_peer(app)
    await peer.send(frame(TEXT, b"before") + wire + b"\x00" * 20)
    assert await peer.close_code() == code
    await peer.stream.aclose()
    await wait_all_tasks_blocked()
    assert app.messages == [b"before"]
    assert app.closed.code == code


async def test_fragments_beyond_the_limit_close_with_1009(open_peer, autojump_clock):
    peer = await open_peer(Gathering())
    await peer.send(frame(TEXT, b"x" * 65_000, fin=False))
    for _ in range(258):
        await peer.send(frame(0, b"x" * 65_000, fin=False))
    assert await peer.close_code() == 1009


async def test_a_message_at_the_limit_arrives(open_peer, autojump_clock):
    app = Gathering()
    peer = await open_peer(app)
    await peer.send(frame(TEXT, b"x" * (16 * 1024 * 1024)))
    await wait_all_tasks_blocked()
    assert [len(message) for message in app.messages] == [16 * 1024 * 1024]


async def test_a_peer_that_breaks_the_protocol_and_stays_is_let_go(open_peer, autojump_clock):
    app = Gathering()
    peer = await open_peer(app)
    start = trio.current_time()
    await peer.send(frame(TEXT, b"\xff"))
    assert await peer.close_code() == 1007
    assert await peer.at_end()
    await trio.sleep(3)
    assert app.closed_at - start == 0


async def test_unread_input_is_bounded(open_peer, autojump_clock):
    taken = []

    async def app(socket):
        await trio.sleep(5)
        taken.append(socket._inbox_bytes)
        while True:
            taken.append(len(await socket.receive()))

    peer = await open_peer(app, pair=lockstep_stream_pair)
    with trio.move_on_after(4) as pushed_back:
        for _ in range(20):
            await peer.send(frame(TEXT, b"x" * (4 << 20)))
    assert pushed_back.cancelled_caught
    assert taken == []
    await trio.sleep(2)
    assert 32 << 20 < taken[0] < 40 << 20
    assert len(taken) > 8


async def test_a_cancelled_send_leaves_no_half_frame(autojump_clock):
    server, client = lockstep_stream_pair()
    outcomes = []

    async def app(socket):
        with trio.move_on_after(1) as impatient:
            await socket.send_frames([b"x" * 100_000], 10)
        outcomes.append(impatient.cancelled_caught)
        with trio.CancelScope() as already:
            already.cancel()
            await socket.send_frames([b"never sent"], 10)
        await socket.send_frames([b"whole"], 10)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, server, app)
        peer = Peer(client)
        await peer.upgrade()
        await peer.read(50)
        await trio.sleep(5)
        await peer.read(100_004 - 50 + 6)
        assert await peer.next_text() == b"whole"
        assert await peer.close_code() == 1000
        await client.aclose()
    assert outcomes == [False]


async def test_two_senders_never_mix(autojump_clock):
    server, client = lockstep_stream_pair()

    async def app(socket):
        async with trio.open_nursery() as nursery:
            for letter in (b"a", b"b", b"c"):
                nursery.start_soon(socket.send_frames, [letter * 30_000] * 3, 10)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, server, app)
        peer = Peer(client)
        await peer.upgrade()
        await peer.send(frame(PING, b"in between"))
        frames = [await peer.next_frame() for _ in range(10)]
        assert (PONG, b"in between") in frames
        texts = [payload for opcode, payload in frames if opcode == TEXT]
        assert await peer.close_code() == 1000
        await client.aclose()
    assert sorted(texts) == [letter * 30_000 for letter in (b"a", b"b", b"c") for _ in range(3)]
    assert all(texts[i] == texts[i + 1] == texts[i + 2] for i in (0, 3, 6))


async def test_a_peer_that_takes_nothing_costs_the_connection_in_time(autojump_clock):
    server, client = lockstep_stream_pair()
    times = []

    async def app(socket):
        start = trio.current_time()
        with pytest.raises(TransportStalled, match="within 3 s"):
            await socket.send_frames([b"x" * 1000], 3)
        times.append(trio.current_time() - start)
        with pytest.raises(ConnectionClosed):
            await socket.send_frames([b"more"], 3)
        with pytest.raises(ConnectionClosed):
            await socket.receive()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, server, app)
        peer = Peer(client)
        await peer.upgrade()
        await peer.read(10)
        await trio.sleep(10)
        with pytest.raises((EOFError, trio.BrokenResourceError)):
            await peer.read(2000)
    assert times == [3]


async def test_closing_a_dead_peer_is_bounded(autojump_clock):
    server, client = lockstep_stream_pair()
    times = []

    async def app(socket):
        start = trio.current_time()
        await socket.close(1001, "going away", 2)
        times.append(trio.current_time() - start)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, server, app)
        peer = Peer(client)
        await peer.upgrade()
    assert times == [2]


async def test_closing_a_peer_that_reads_but_never_answers_is_bounded(open_peer, autojump_clock):
    times = []

    async def app(socket):
        start = trio.current_time()
        await socket.close(1001, "going away", 2)
        times.append(trio.current_time() - start)

    peer = await open_peer(app)
    assert await peer.close_code() == 1001
    await trio.sleep(3)
    assert times == [2]


async def test_closing_is_answered_at_once_by_a_polite_peer(open_peer, autojump_clock):
    times = []

    async def app(socket):
        start = trio.current_time()
        await socket.close(4000, "done")
        times.append((trio.current_time() - start, socket.closed.code))

    peer = await open_peer(app)
    await peer.send(frame(TEXT, b"ignored") + frame(PING, b"ignored too"))
    assert await peer.close_code() == 4000
    await peer.send(close_frame(4000))
    await wait_all_tasks_blocked()
    assert times == [(0, 4000)]


async def test_closing_frees_a_writer_that_is_stuck(autojump_clock):
    server, client = lockstep_stream_pair()
    ended = []

    async def app(socket):
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def _():
                with pytest.raises(ConnectionClosed):
                    await socket.send_frames([b"x" * 1000], 60)
                ended.append(trio.current_time())

            await wait_all_tasks_blocked()
            await socket.close(1001, None, 2)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, server, app)
        peer = Peer(client)
        await peer.upgrade()
        start = trio.current_time()
    assert ended == [start + 2]


async def test_a_cancelled_block_still_says_goodbye(autojump_clock):
    server, client = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        @nursery.start_soon
        async def _():
            with scope:
                await serve(server, sleep_through)

        peer = Peer(client)
        await peer.upgrade()
        scope.cancel()
        assert await peer.close_code() == 1011


async def test_the_server_pings_and_a_peer_that_answers_stays(open_peer, autojump_clock):
    app = Gathering()
    peer = await open_peer(app)
    start = trio.current_time()
    for number in range(1, 6):
        opcode, payload = await peer.next_frame()
        assert opcode == PING
        assert trio.current_time() - start == pytest.approx(20 * number)
        await peer.send(frame(PONG, payload))
    assert app.closed is None


async def test_a_silent_peer_is_dropped(open_peer, autojump_clock):
    app = Gathering()
    peer = await open_peer(app)
    start = trio.current_time()
    await trio.sleep(100)
    assert app.closed.code == 1006
    assert app.closed_at - start == pytest.approx(40)
    assert (await peer.next_frame())[0] == PING
    assert await peer.at_end()


async def test_talking_without_answering_pings_is_not_enough(open_peer, autojump_clock):
    app = Gathering()
    peer = await open_peer(app)
    start = trio.current_time()
    try:
        while True:
            await peer.send(frame(TEXT, b"append"))
            await trio.sleep(1)
    except trio.BrokenResourceError:
        pass
    assert app.closed_at - start == pytest.approx(40)


async def test_a_pong_may_wait_for_the_end_of_a_long_frame(open_peer, autojump_clock):
    app = Gathering()
    peer = await open_peer(app)
    wire = frame(TEXT, b"x" * 100)
    for i in range(len(wire)):
        await peer.send(wire[i : i + 1])
        await trio.sleep(1)
    await wait_all_tasks_blocked()
    assert app.messages == [b"x" * 100]
    assert app.closed is None


async def test_half_a_frame_without_an_end_is_no_excuse(open_peer, autojump_clock):
    app = Gathering()
    peer = await open_peer(app)
    start = trio.current_time()
    await peer.send(frame(TEXT, b"x" * 100)[:50])
    await trio.sleep(100)
    assert app.closed_at - start == pytest.approx(40)


async def test_a_vanished_peer_is_noticed(open_peer, autojump_clock):
    app = Gathering()
    peer = await open_peer(app)
    await peer.send(frame(TEXT, b"half")[:5])
    await peer.stream.aclose()
    await wait_all_tasks_blocked()
    assert app.messages == []
    assert app.closed.code == 1006


async def test_trio_websockets_own_calls_still_work(open_peer, autojump_clock):
    async def app(socket):
        message = await socket.get_message()
        await socket.send_message(message * 2)
        await socket.send_message(await socket.get_message())
        await socket.aclose(4001)

    peer = await open_peer(app)
    await peer.send(frame(TEXT, b"ab") + frame(BINARY, b"\x00"))
    assert await peer.next_text() == b"abab"
    assert await peer.next_frame() == (BINARY, b"\x00")
    assert await peer.next_frame() == (CLOSE, b"\x0f\xa1")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.text(max_size=200), st.integers(0, 3)), max_size=6),
    st.lists(st.integers(0, 5_000), max_size=12),
)
def test_a_wsproto_client_hears_its_echo_however_its_bytes_are_cut(messages, cuts):
    client = Connection(ConnectionType.CLIENT)
    wire = b""
    for text, fragments in messages:
        for _ in range(fragments):
            wire += client.send(TextMessage("fragment ", message_finished=False)) + client.send(Ping(b"p"))
        wire += client.send(TextMessage(text))

    async def converse():
        server, stream = memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, server, echo)
            peer = Peer(stream)
            await peer.upgrade()
            edges = [0, *sorted(cut % (len(wire) + 1) for cut in cuts), len(wire)]
            for a, b in itertools.pairwise(edges):
                await peer.send(wire[a:b])
                await wait_all_tasks_blocked()
            await peer.send(client.send(CloseConnection(1000)))
            return b"".join([part async for part in stream])

    client.receive_data(trio.run(converse, clock=trio.testing.MockClock(autojump_threshold=0)))
    events = list(client.events())
    heard = [event.data for event in events if isinstance(event, TextMessage)]
    assert heard == ["fragment " * fragments + text for text, fragments in messages]
    assert isinstance(events[-1], CloseConnection)
    assert {type(event) for event in events} <= {TextMessage, Pong, CloseConnection}
