"""Races of the client under many schedules: reconnecting against sending, closing against reading."""

import random

import trio
import trio.testing
from client_peer import SESSION_ID, Line, Peer
from hypothesis import given, settings
from hypothesis import strategies as st

from duplex_engine.client import DuplexClient, DuplexSessionClosedError

URL = "ws://127.0.0.1:8099"
EXAMPLES = settings(max_examples=60, deadline=None)


def run_virtually(main) -> None:
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


async def chatter(line: Line, events: int) -> None:
    """Number events at random moments; what is numbered last may never be sent."""
    sent = random.randrange(events + 1)
    for number in range(events):
        event = line.number("some.event")
        if number < sent:
            await line.send(event)
        if random.random() < 0.3:
            await trio.sleep(random.random() * 0.01)


@EXAMPLES
@given(st.random_module(), st.integers(1, 3), st.integers(0, 20))
def test_reconnecting_against_sending(random_module, drops, events):
    """Whatever the moment of a drop: the program sees every event once, the server no command twice or out of order."""

    async def main() -> None:
        async def dropping(line: Line) -> None:
            await (line.open() if line.session.generation == 1 and not line.session.seq else line.resume())
            async with trio.open_nursery() as talking:
                talking.start_soon(listen, line)
                await chatter(line, events)
                await line.cut()

        async def listen(line: Line) -> None:
            while True:
                await line.receive()

        async def staying(line: Line) -> None:
            await line.resume()
            await chatter(line, events)
            for event in line.session.journal:
                await line.send(event)
            await line.serve_until_closed()

        async with trio.open_nursery() as servers:
            peer = Peer(servers, *[dropping] * drops, staying)
            async with DuplexClient(URL, connect=peer.connect) as client:
                stream = client.events()
                for number in range(10):
                    await client.send({"type": "numbered", "number": number})
                    await trio.sleep(random.random() * 0.3)
                await trio.sleep(60)
                await client.close()
                seen = [event.server_event_seq async for event in stream if event.server_event_seq]
            last = peer.lines[-1].session.seq
        assert seen in (list(range(1, last + 1)), list(range(2, last + 1)))
        numbers = [event["number"] for line in peer.lines for event in line.received if event["type"] == "numbered"]
        assert numbers == sorted(set(numbers))

    run_virtually(main)


@EXAMPLES
@given(st.random_module(), st.sampled_from(["close", "closed", "expired", "cut", "exception"]))
def test_closing_against_reading(random_module, ending):
    """However and whenever a session ends, every waiting task ends with it, soon and in the way it should."""

    async def main() -> None:
        async def script(line: Line) -> None:
            await line.open()
            await line.respond("r", b"\1\0")
            async with trio.open_nursery() as talking:
                talking.start_soon(line.serve_until_closed)
                for _ in range(20):
                    await line.audio("r", b"\2\0")
                    await trio.sleep(random.random() * 0.05)
                if ending in ("closed", "expired"):
                    await line.say(f"session.{ending}", session_id=SESSION_ID, reason="test")
                if ending == "cut":
                    await line.cut()

        ends: list[str] = []

        async def consume(name: str, stream) -> None:
            try:
                async for _ in stream:
                    pass
                ends.append(f"{name} quietly")
            except DuplexSessionClosedError:
                ends.append(f"{name} loudly")

        async def send(client: DuplexClient) -> None:
            try:
                while True:
                    await client.append_audio(b"\0\0" * 16)
                    await trio.sleep(random.random() * 0.02)
            except DuplexSessionClosedError:
                ends.append("sending")

        async with trio.open_nursery() as servers:
            peer = Peer(servers, script)
            async with trio.open_nursery() as consumers:
                try:
                    async with DuplexClient(URL, connect=peer.connect, reconnect=None) as client:
                        consumers.start_soon(consume, "events", client.events())
                        consumers.start_soon(consume, "responses", client.responses())
                        consumers.start_soon(consume, "audio", (await anext(client.responses())).audio())
                        consumers.start_soon(send, client)
                        await trio.sleep(random.random())
                        if ending == "close":
                            await client.close()
                        if ending == "exception":
                            raise ZeroDivisionError
                        await trio.sleep(2)
                except ZeroDivisionError:
                    pass
            servers.cancel_scope.cancel()
        loud = ending in ("expired", "cut")
        how = "loudly" if loud else "quietly"
        assert sorted(ends) == sorted([f"events {how}", f"responses {how}", "audio quietly", "sending"])
        assert trio.current_time() < 8

    run_virtually(main)
