"""The whole server on real sockets and in real processes: start, refusals, TLS, draining, the second signal."""

import json
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing
from server_rig import DUPLEX, Caller, Talker

from duplex_engine.config import EngineConfig
from duplex_engine.engine import open_engine
from duplex_engine.errors import ConfigRejected
from duplex_engine.model_plugins.contract import Rehearsal
from duplex_engine.server.app import serve
from duplex_engine.server.settings import ServeConfig

PATIENCE_S = 20


async def page(port: int, path: str) -> tuple[int, bytes]:
    """Status and body of one plain request."""
    caller = Caller(await trio.open_tcp_stream("127.0.0.1", port))
    await caller.send(f"GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n".encode())
    head = await caller.read_head()
    length = next(int(line.split(": ")[1]) for line in head if line.startswith("content-length"))
    body = await caller.read(length)
    await caller.stream.aclose()
    return int(head[0].split()[1]), body


async def caller_on(port: int) -> Caller:
    caller = Caller(await trio.open_tcp_stream("127.0.0.1", port))
    status, _ = await caller.upgrade(DUPLEX)
    assert status.startswith("HTTP/1.1 101"), status
    return caller


@attrs.define
class Slow(Talker):
    """Warms up when it is told to."""

    go: trio.Event = attrs.Factory(trio.Event)

    async def warm_up(self, rehearsal: Rehearsal) -> None:
        await self.go.wait()


# --- inside this process ------------------------------------------------------------------------------------------


async def test_the_port_answers_503_until_the_engine_is_ready() -> None:
    plugin = Slow()
    with trio.fail_after(PATIENCE_S):
        async with open_engine(EngineConfig(plugin=""), plugin=plugin, wait_ready=False) as engine:
            async with trio.open_nursery() as nursery:
                (url,) = await nursery.start(partial(serve, engine, ServeConfig(port=0), signals=()))
                port = int(url.rpartition(":")[2])
                assert await page(port, "/health") == (503, b'{"status":"unhealthy","reason":"warming up"}')
                early = Caller(await trio.open_tcp_stream("127.0.0.1", port))
                status, headers = await early.upgrade(DUPLEX)
                assert status == "HTTP/1.1 503 Service Unavailable"
                assert headers["retry-after"] == "1"
                await early.stream.aclose()
                plugin.go.set()
                await engine.wait_ready()
                assert (await page(port, "/health"))[0] == 200
                await (await caller_on(port)).open()
                assert b"duplex_engine_sessions 0" in (await page(port, "/metrics"))[1]
                nursery.cancel_scope.cancel()


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    """A certificate for 127.0.0.1 and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command to make a certificate")
    files = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    request = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*request.split(), "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
    return files


async def test_tls(certificate: tuple[str, str]) -> None:
    trust = ssl.create_default_context(cafile=certificate[0])
    config = ServeConfig(port=0, tls_cert=certificate[0], tls_key=certificate[1])
    with trio.fail_after(PATIENCE_S):
        async with open_engine(EngineConfig(plugin=""), plugin=Talker()) as engine, trio.open_nursery() as nursery:
            (url,) = await nursery.start(partial(serve, engine, config, signals=()))
            assert url.startswith("https://127.0.0.1:")
            port = int(url.rpartition(":")[2])
            plain = Caller(await trio.open_tcp_stream("127.0.0.1", port))
            await plain.send(b"GET /health HTTP/1.1\r\nHost: test\r\n\r\n")
            assert not (await plain.stream.receive_some()).startswith(b"HTTP")
            stream = await trio.open_ssl_over_tcp_stream("127.0.0.1", port, ssl_context=trust, https_compatible=True)
            caller = Caller(stream)
            await caller.upgrade(DUPLEX)
            await caller.open()
            await caller.asks()
            assert (await caller.hears("response.done"))["response"]["status"] == "completed"
            await caller.say("session.close")
            await caller.hears("session.closed")
            assert (await caller.farewell())[0] == 1000
            nursery.cancel_scope.cancel()


async def test_a_hundred_calls_that_are_cut_off_leave_nothing_behind() -> None:
    with trio.fail_after(PATIENCE_S):
        async with open_engine(EngineConfig(plugin=""), plugin=Talker()) as engine, trio.open_nursery() as nursery:
            (url,) = await nursery.start(partial(serve, engine, ServeConfig(port=0), signals=()))
            port = int(url.rpartition(":")[2])
            await trio.testing.wait_all_tasks_blocked()
            before = trio.lowlevel.current_statistics().tasks_living
            for number in range(100):
                caller = await caller_on(port)
                if number % 4:
                    await caller.open()
                if number % 4 > 1:
                    await caller.asks()
                caller.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                await caller.stream.aclose()
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert engine.snapshot().seats_taken == 0
            assert trio.lowlevel.current_statistics().tasks_living == before
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        (ServeConfig(host="0.0.0.0", port=0), "allow-anonymous"),
        (ServeConfig(port=0, tls_cert="/nowhere.pem", tls_key="/nowhere.pem"), "for TLS"),
        (ServeConfig(host="no-such-host.invalid", port=0, api_key="k"), "cannot listen on no-such-host.invalid"),
    ],
)
async def test_a_server_that_cannot_listen_says_why(config: ServeConfig, complaint: str) -> None:
    async with open_engine(EngineConfig(plugin=""), plugin=Talker()) as engine:
        with pytest.raises(ConfigRejected, match=complaint):
            await serve(engine, config, signals=())


# --- a process of its own -----------------------------------------------------------------------------------------

SCRIPT = 'forever { listen 5; speak "on and on and on" for 30 }'


@attrs.define
class Running:
    """A server in a process of its own."""

    process: trio.Process
    said: bytes = b""

    @property
    def port(self) -> int:
        """Where it listens, as it said on standard output or in its log."""
        port = re.search(rb"http://127\.0\.0\.1:(\d+)", self.said)
        assert port, self.said
        return int(port.group(1))

    async def until_ready(self) -> None:
        """Wait until it says that it is ready, on either stream."""
        async with trio.open_nursery() as nursery:
            for stream in (self.process.stdout, self.process.stderr):
                nursery.start_soon(self._read, stream, nursery.cancel_scope)

    async def _read(self, stream: trio.abc.ReceiveStream, enough: trio.CancelScope) -> None:
        async for data in stream:
            self.said += data
            if re.search(rb'ready on|"ready"', self.said):
                enough.cancel()

    async def ends(self) -> int:
        """Its exit code."""
        return await self.process.wait()

    async def everything_logged(self) -> bytes:
        """The whole log of a server that is ending."""
        async for data in self.process.stderr:
            self.said += data
        return self.said


@asynccontextmanager
async def running(*flags: str) -> AsyncIterator[Running]:
    command = [sys.executable, "-m", "duplex_engine.server", "--plugin", "scripted", "--port", "0", *flags]
    with trio.fail_after(PATIENCE_S):
        process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            server = Running(process)
            await server.until_ready()
            yield server
        finally:
            process.kill()
            await process.wait()


async def test_sigterm_drains_and_the_last_words_are_heard() -> None:
    async with running("--drain-grace", "0.5", "--option", f"script={SCRIPT}") as server:
        talking, silent = await caller_on(server.port), await caller_on(server.port)
        await talking.open({"extra_body": {"auto_response": True}})
        await silent.open()
        server.process.send_signal(signal.SIGTERM)
        closed = await talking.hears("session.closed")
        assert closed["reason"] == "shutdown"
        assert await talking.farewell() == (1000, "shutdown")
        assert (await silent.hears("session.closed"))["reason"] == "shutdown"
        assert await server.ends() == 0


async def test_while_draining_the_door_is_shut_and_conversations_go_on() -> None:
    async with running("--drain-grace", "10") as server:
        caller = await caller_on(server.port)
        await caller.open()
        server.process.send_signal(signal.SIGTERM)
        while True:
            try:
                await (await trio.open_tcp_stream("127.0.0.1", server.port)).aclose()
            except OSError:
                break
        await caller.say("session.heartbeat")
        await caller.hears("session.heartbeat_ack")
        await caller.say("session.close")
        await caller.hears("session.closed")
        assert await caller.farewell() == (1000, "client_close")
        assert await server.ends() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_at_once(number: signal.Signals) -> None:
    async with running("--drain-grace", "600") as server:
        caller = await caller_on(server.port)
        await caller.open()
        server.process.send_signal(number)
        await caller.say("session.heartbeat")
        await caller.hears("session.heartbeat_ack")
        await trio.sleep(0.3)
        server.process.send_signal(number)
        assert await caller.close_code() == 1001
        assert await server.ends() == 0


async def test_an_engine_that_dies_tells_its_clients_and_ends_with_one() -> None:
    script = 'forever { speak "a" for 0.1; crash }'
    async with running("--option", "mode=turn", "--option", f"script={script}") as server:
        bystander, cause = await caller_on(server.port), await caller_on(server.port)
        await bystander.open()
        await cause.open()
        for _ in range(3):
            await cause.asks()
            await cause.hears("response.done", errors=True)
            while (await page(server.port, "/ready"))[0] != 200:
                pass  # its worker starts again
        await cause.asks()
        assert (await bystander.hears("error"))["error"]["code"] == "engine_dead"
        assert (await bystander.next_event())["reason"] == "engine_dead"
        assert await bystander.close_code() == 1011
        assert await server.ends() == 1
        assert b"failed more than 3 times" in (await server.everything_logged()).splitlines()[-1]


async def test_a_port_in_use_is_told_and_ends_with_two() -> None:
    async with running() as server:
        command = [sys.executable, "-m", "duplex_engine.server", "--plugin", "scripted", "--port", str(server.port)]
        second = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
        assert second.returncode == 2
        assert b"already in use; choose another with --port" in second.stderr
        assert b"Traceback" not in second.stderr


async def test_json_logs_are_json_and_name_the_session() -> None:
    async with running("--log-format", "json") as server:
        caller = await caller_on(server.port)
        session = (await caller.open())["session"]["id"]
        await caller.say("session.close")
        await caller.hears("session.closed")
        server.process.terminate()
        lines = [json.loads(line) for line in (await server.everything_logged()).splitlines()]
    about_it = [line["event"] for line in lines if line.get("session_id") == session]
    assert {"session_opened", "session_ended"} <= set(about_it)
    assert [line["models"][0]["licence"] for line in lines if line["event"] == "starting"] == ["Apache-2.0"]
