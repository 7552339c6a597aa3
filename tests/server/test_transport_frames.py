"""The frame cutter against wsproto: whatever a client sends, in whatever portions, is read as wsproto reads it."""

import itertools
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transport_peer import BINARY, CLOSE, MASK, PING, PONG, TEXT, frame, header, masked
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage

from duplex_engine.server import frames
from duplex_engine.server.frames import FrameCutter, Leftover, Violation, text_frames

LIMIT = 1_000_000
lengths = st.one_of(st.integers(0, 140), st.sampled_from([125, 126, 65_535, 65_536, 70_000]))
texts = st.one_of(st.text(max_size=80), lengths.map(lambda n: "é" * (n // 2)), lengths.map(lambda n: "x" * n))


@st.composite
def conversations(draw):
    """Frames of a correct client: (bytes on the wire, what they mean in order)."""
    wire, meaning = [], []
    for kind in draw(st.lists(st.sampled_from(["text", "fragments", "binary", "ping", "pong"]), max_size=8)):
        if kind == "text":
            text = draw(texts)
            wire.append(frame(TEXT, text.encode()))
            meaning.append(text.encode())
        elif kind == "fragments":
            text = "".join(draw(st.lists(texts, max_size=3))).encode()
            edges = [0, *sorted(draw(st.lists(st.integers(0, len(text)), max_size=3))), len(text)]
            for number, (a, b) in enumerate(itertools.pairwise(edges)):
                fin = number == len(edges) - 2
                wire.append(frame(0 if number else TEXT, text[a:b], fin))
                if not fin and draw(st.booleans()):
                    wire.append(frame(PING, b"between"))
                    meaning.append(Ping(b"between"))
            meaning.append(text)
        elif kind == "binary":
            data = draw(st.binary(max_size=300))
            wire.append(frame(BINARY, data))
            meaning.append(("binary", data))
        elif kind == "ping":
            wire.append(frame(PING, b"are you there"))
            meaning.append(Ping(b"are you there"))
        else:
            wire.append(frame(PONG, b"I am"))
            meaning.append(Pong(b"I am"))
    return b"".join(wire), meaning


def read(chunks, cutter=None):
    """What a server makes of these chunks: cutter first, wsproto for what the cutter leaves."""
    cutter, wsproto = cutter or FrameCutter(LIMIT), Connection(ConnectionType.SERVER)
    meaning, parts = [], []
    for chunk in chunks:
        for piece in cutter.cut(chunk):
            if isinstance(piece, Leftover):
                wsproto.receive_data(piece.data)
                for event in wsproto.events():
                    if not isinstance(event, TextMessage | BytesMessage):
                        meaning.append(event)
                        continue
                    parts.append(event.data)
                    if event.message_finished:
                        text = isinstance(event, TextMessage)
                        meaning.append("".join(parts).encode() if text else ("binary", b"".join(parts)))
                        parts = []
            else:
                meaning.append(piece)
    return meaning


def portions(wire, cuts):
    edges = [0, *sorted(cut % (len(wire) + 1) for cut in cuts), len(wire)]
    return [wire[a:b] for a, b in itertools.pairwise(edges)]


@settings(max_examples=150, deadline=None)
@given(conversations(), st.lists(st.integers(0, 300_000), max_size=30))
def test_any_portions_of_a_correct_client_mean_the_same(conversation, cuts):
    wire, meaning = conversation
    assert read(portions(wire, cuts)) == meaning


@settings(max_examples=20, deadline=None)
@given(conversations())
def test_byte_by_byte(conversation):
    wire, meaning = conversation
    if len(wire) < 5000:
        assert read([wire[i : i + 1] for i in range(len(wire))]) == meaning


@st.composite
def noises(draw):
    """Bytes that are nearly a conversation, or nothing like one; long enough behind that every header is complete."""
    noise = bytearray(draw(st.one_of(st.binary(max_size=100), conversations().map(lambda c: c[0][:3000]))))
    for at in draw(st.lists(st.integers(0, 3000), max_size=4)):
        if noise:
            noise[at % len(noise)] = draw(st.integers(0, 255))
    return bytes(noise) + bytes(16)


@settings(max_examples=300, deadline=None)
@given(noises(), st.lists(st.integers(0, 3000), max_size=5))
def test_noise_means_what_wsproto_says_it_means(noise, cuts):
    plain = Connection(ConnectionType.SERVER)
    plain.receive_data(noise)
    expected = [event.code for event in plain.events() if isinstance(event, CloseConnection)]
    cutter = FrameCutter(LIMIT)
    heard = read(portions(noise, cuts), cutter)
    codes = [m.code for m in heard if isinstance(m, CloseConnection | Violation)]
    # The cutter judges the length of a message by the header alone, and the text of a frame only once it is whole.
    if codes[:1] != [frames.TOO_LONG] and not (cutter.mid_frame and expected[:1] == [frames.NOT_UTF8]):
        assert codes[:1] == expected[:1]


@pytest.mark.parametrize("length", [0, 1, 125, 126, 65_535, 65_536, 100_000])
def test_one_whole_text_frame_never_leaves_the_short_path(length):
    text = (b"abc\xc3\xa9" * (length // 5 + 1))[: length - length % 5] + b"." * (length % 5)
    assert FrameCutter(LIMIT).cut(frame(TEXT, text)) == [text]


def test_a_message_longer_than_allowed_is_refused_by_its_header_alone():
    assert FrameCutter(100).cut(header(TEXT, 101) + MASK) == [
        Violation(1009, "a message may be at most 100 bytes long")
    ]
    assert FrameCutter(100).cut(frame(TEXT, b"x" * 100)) == [b"x" * 100]


@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_fragments_count_together(opcode):
    cutter = FrameCutter(100)
    pieces = cutter.cut(frame(opcode, b"x" * 60, fin=False) + frame(PING, b"y" * 60) + frame(0, b"x" * 41, fin=False))
    assert [type(piece) for piece in pieces] == [Leftover, Leftover, Violation]
    exactly = frame(opcode, b"x" * 60, fin=False) + frame(0, b"x" * 40)
    assert len(read([exactly * 3], FrameCutter(100))) == 3


def test_whole_messages_do_not_count_together():
    assert FrameCutter(100).cut(frame(TEXT, b"x" * 100) * 5) == [b"x" * 100] * 5


@pytest.mark.parametrize("payload", [b"\xff", b"ok \xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"])
def test_text_must_be_utf8(payload):
    good = frame(TEXT, b"fine")
    (first, violation) = FrameCutter(LIMIT).cut(good + frame(TEXT, payload) + good)
    assert first == b"fine"
    assert violation.code == 1007


@pytest.mark.parametrize(
    "broken",
    [
        bytes((0x81, 5)) + b"hello",
        bytes((0x89, 0)),
        bytes((0xC1, 0x80)) + MASK,
        bytes((0x83, 0x80)) + MASK,
        struct.pack("!BBH", 0x81, 0xFE, 5) + MASK + masked(b"hello"),
        struct.pack("!BBQ", 0x81, 0xFF, 5) + MASK + masked(b"hello"),
        frame(0, b"no message to go on with"),
        frame(TEXT, b"open", fin=False) + frame(TEXT, b"another"),
        frame(PING, b"", fin=False),
        header(PING, 126) + MASK,
        frame(CLOSE, b"1"),
    ],
    ids=[
        "unmasked", "unmasked ping", "reserved bit", "reserved opcode", "long 16-bit length", "long 64-bit length",
        "stray continuation", "text inside fragments", "fragmented ping", "long ping", "short close",
    ],
)  # fmt: skip
def test_broken_frames_are_protocol_errors(broken):
    meaning = read([broken])
    assert isinstance(meaning[-1], CloseConnection)
    assert meaning[-1].code == 1002


@given(st.lists(texts, max_size=6))
def test_what_the_server_writes_a_client_reads(messages):
    client = Connection(ConnectionType.CLIENT)
    client.receive_data(text_frames([text.encode() for text in messages]))
    read_back, parts = [], []
    for event in client.events():
        parts.append(event.data)
        if event.message_finished:
            read_back.append("".join(parts))
            parts = []
    assert read_back == messages


@given(st.binary(max_size=300), st.binary(min_size=4, max_size=4))
def test_unmasking_without_the_compiled_routine(data, mask):
    assert frames._xor_by_numpy(data, mask) == frames.unmask(data, mask)
    assert frames._xor_by_numpy(bytearray(data), bytearray(mask)) == frames.unmask(data, mask)


def test_a_message_in_many_portions_costs_no_more_than_its_length():
    cutter, wire = FrameCutter(1 << 24), frame(TEXT, b"x" * (4 << 20))
    pieces = [piece for i in range(0, len(wire), 1000) for piece in cutter.cut(wire[i : i + 1000])]
    assert pieces == [b"x" * (4 << 20)]
    assert cutter.mid_frame is False
    assert cutter._held.__sizeof__() < 100_000
