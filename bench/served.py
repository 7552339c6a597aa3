"""A server in another process, and what can be seen of it from outside: its figures, memory, files and threads.

For benchmarks on this machine (Linux); never for the product.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from duplex_engine.server.settings import ServeConfig, to_toml

READY_WITHIN_S = 20.0
GONE_WITHIN_S = 20.0


@attrs.frozen
class Served:
    """A running server. `pid`: its process; `port`: where it listens on 127.0.0.1; `log`: what it complains about."""

    pid: int
    port: int
    log: Path

    def metrics(self) -> dict[str, float]:
        """All series of `/metrics` by name and labels."""
        text = self._page("/metrics").decode()
        rows = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, value in rows}

    def cpu_s(self) -> float:
        """User and system time so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def open_files(self) -> int:
        """File descriptors, sockets among them."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def status(self, name: str) -> int:
        """A number of `/proc/PID/status`: `VmRSS` (KiB), `Threads`, ..."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])

    def complaints(self) -> list[str]:
        """The lines of its log so far."""
        return self.log.read_text().splitlines()

    def _page(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return bytes(answer.read())


@contextmanager
def served(config: ServeConfig) -> Iterator[Served]:
    """A server with this configuration for the block, ready; on a free port if it names none.

    Raises SystemExit when it does not become ready, or does not end well.
    """
    config = config if config.port else attrs.evolve(config, port=_free_port())
    with tempfile.TemporaryDirectory() as folder:
        settings, log = Path(folder, "server.toml"), Path(folder, "log")
        settings.write_text(to_toml(config))
        command = [sys.executable, "-m", "duplex_engine.server", "--config", str(settings)]
        with log.open("wb") as errors:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        server = Served(process.pid, config.port, log)
        try:
            _wait_ready(server, process)
            yield server
        finally:
            code: object = None
            process.send_signal(signal.SIGTERM)
            try:
                code = process.wait(GONE_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                code = f"none within {GONE_WITHIN_S:g} s"
            sys.stderr.write(log.read_text()[-4000:])
    if code != 0:
        raise SystemExit(f"the server ended with exit status {code}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_ready(server: Served, process: subprocess.Popen[bytes]) -> None:
    began = time.monotonic()
    while time.monotonic() < began + READY_WITHIN_S and process.poll() is None:
        try:
            server._page("/ready")
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server did not become ready")
