"""How JavaScript clients are called: programs of their own beside the packages they import, and the certificates they trust."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest
import trustme
from peer_kit import recording
from peer_record import Recorded, run_program
from peer_server import Server, serving

RATE_HZ = 24_000
PACKAGES = Path(sys.prefix) / "peers-javascript" / "node_modules"
CALLS = Path(__file__).parent / "javascript"
EXAMPLES = Path(__file__).parents[2] / "examples"
ANSWER_S = 30
QUESTIONS = ("what_time_is_it", "how_do_you_say_grapefruit")
SCRIPT = """
listen 0.2; hear "What time is it?"; speak "An answer that is long enough to be talked over by anybody." for 6
listen 0.2; hear "How do you say grapefruit?"; speak "A short answer." for 1.2
listen 0.1; speak "Hello to you." for 1
listen 0.1; call weather {"city": "Rome"}; wait 0.3
listen 0.1; speak "It is sunny." for 1
listen 0.1; speak "Hello in writing." for 1
"""
"""An answer to talk over, a short one, one to a written question; a call that takes a while, what comes of it; a last one."""

needs_packages = pytest.mark.skipif(
    not PACKAGES.is_dir(),
    reason=f"no JavaScript clients in {PACKAGES}; `make test` installs them (tests/peers/install_javascript.py)",
)


@attrs.frozen
class Certificates:
    """A server's certificate for 127.0.0.1, and who signed it. Paths of PEM files."""

    authority: Path
    chain: Path
    key: Path

    @property
    def flags(self) -> tuple[str, ...]:
        """What makes a server speak TLS with it."""
        return "--tls-cert", str(self.chain), "--tls-key", str(self.key)


def certify(folder: Path) -> Certificates:
    """Make a certificate that nobody but the tests trusts."""
    made = Certificates(folder / "authority.pem", folder / "chain.pem", folder / "key.pem")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(made.authority))
    certificate.private_key_pem.write_to_path(str(made.key))
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(str(made.chain), append=True)
    return made


@contextmanager
def telling(
    folder: Path, *flags: str, script: str = SCRIPT, lead_s: float = 0.4, authority: Path | None = None
) -> Iterator[Server]:
    """A server for the block that plays `script`, turn by turn; `lead_s`: how far sound runs ahead of its playing."""
    options = ("mode=turn", f"lead_s={lead_s}", f"script={script}")
    chosen = (f"--option={option}" for option in options)
    with serving(folder, "--plugin", "scripted", *chosen, *flags, authority=authority) as server:
        yield server


def run_node(
    program: str, call: str, server: Server, folder: Path, *, key: str = "any", node: tuple[str, ...] = ()
) -> Recorded:
    """One call of a JavaScript client, after which nobody is left on the line. `node`: flags of Node.js itself."""
    calls = folder / "calls"
    shutil.copytree(CALLS, calls)
    _provide(calls)
    for name in QUESTIONS:
        (folder / f"{name}.pcm").write_bytes(recording(f"{name}.wav", RATE_HZ))
    command = ["node", *node, str(calls / program), call, server.url, "--key", key, "--recordings", str(folder)]
    record = run_program(command, program, folder, _environment(server, key))
    server.wait_empty()
    return record


def run_example(name: str, url: str, folder: Path, *, server: Server, key: str = "any") -> str:
    """What one of the guide's programs prints. Raises AssertionError when it fails."""
    _provide(folder)
    program = shutil.copy(EXAMPLES / name, folder)
    command = ["node", program, url, "What time is it?"]
    done = subprocess.run(command, env=_environment(server, key), capture_output=True, text=True, timeout=ANSWER_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _provide(folder: Path) -> None:
    """Let the programs in `folder` import the packages."""
    packages = folder / "node_modules"
    if not packages.exists():
        packages.symlink_to(PACKAGES)


def _environment(server: Server, key: str) -> dict[str, str]:
    trusted = {} if server.authority is None else {"NODE_EXTRA_CA_CERTS": str(server.authority)}
    return {**os.environ, **trusted, "OPENAI_API_KEY": key}
