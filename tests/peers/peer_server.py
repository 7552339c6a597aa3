"""A server in a process of its own, as a person would start it."""

import re
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

START_S = 100
STOP_S = 15
LEAVE_S = 5
GLANCE_S = 0.1


RUNNING: list["Server"] = []
"""All servers that run now, for whoever reports a failure."""


@attrs.define(eq=False)
class Server:
    """A server process. `url`: of its HTTP side. `authority`: the certificates to trust it by, where it speaks TLS."""

    process: subprocess.Popen[bytes]
    log: Path
    authority: Path | None = None
    url: str = ""
    _opener: urllib.request.OpenerDirector = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        trust = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=self.authority))
        # Straight to the server, whatever the environment says about proxies.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), trust)

    @property
    def websocket_url(self) -> str:
        """Where its WebSocket side is."""
        return self.url.replace("http", "ws", 1)

    def words(self) -> str:
        """Everything it said so far."""
        return self.log.read_text(errors="replace")

    def wait_ready(self) -> None:
        """Wait until sessions can be opened. Raises AssertionError when that never happens."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.process.poll() is None:
            self.url = self.url or _address(self.words())
            if self.url and self.status("/ready") == 200:
                return
            time.sleep(GLANCE_S)
        raise AssertionError(f"the server was not ready within {START_S} s:\n{self.words()}")

    def wait_empty(self) -> None:
        """Wait until nobody is left on the line. Raises AssertionError when somebody stays."""
        deadline = time.monotonic() + LEAVE_S
        while (taken := self._sessions()) and time.monotonic() < deadline:
            time.sleep(GLANCE_S)
        assert taken == 0, f"{taken:g} sessions are left {LEAVE_S} s after their clients went"

    def status(self, path: str) -> int:
        """The HTTP status of a page; 0 when nobody answers."""
        try:
            with self._opener.open(f"{self.url}{path}", timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refusal:
            return refusal.code
        except OSError:
            return 0

    def _sessions(self) -> float:
        with self._opener.open(f"{self.url}/metrics") as page:
            lines = page.read().decode().splitlines()
        (line,) = (line for line in lines if line.startswith("duplex_engine_sessions "))
        return float(line.split()[-1])


@contextmanager
def serving(folder: Path, *flags: str, authority: Path | None = None) -> Iterator[Server]:
    """A server on a free port for the block; `authority`: who signed its certificate, if it is told to speak TLS."""
    log = folder / "server.log"
    command = [sys.executable, "-m", "duplex_engine.server", "--port", "0", "--drain-grace", "1", *flags]
    with log.open("wb") as out:
        server = Server(subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT), log, authority)
    try:
        RUNNING.append(server)
        server.wait_ready()
        yield server
    finally:
        RUNNING.remove(server)
        server.process.terminate()
        try:
            code = server.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            server.process.kill()
            raise AssertionError(f"the server did not stop within {STOP_S} s:\n{server.words()}") from None
    assert code == 0, f"the server ended with {code}:\n{server.words()}"


def _address(words: str) -> str:
    found = re.search(r"listening on (https?://[^\s,]+)", words)
    return found[1] if found else ""
