"""The client in an environment of its own: what it may need, what it must not, what its import costs."""

import subprocess
import sys

BLOCKED = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""

HEAVY = {"numpy", "torch", "vllm", "soxr", "structlog", "prometheus_client", "websockets", "onnxruntime"}
OPTIONAL = {"orjson", "pybase64"}


def run(code: str) -> str:
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


def test_it_imports_and_works_without_anything_heavy_or_optional():
    code = BLOCKED.format(absent=HEAVY | OPTIONAL) + (
        "import duplex_engine.client, duplex_engine.client.cli, duplex_engine.client.websocket\n"
        "from duplex_engine.client import DuplexClient, SessionConfig, audio_data_url\n"
        "import duplex_engine.client.presets.personaplex, duplex_engine.client.presets.minicpm_o_4_5\n"
        "DuplexClient('ws://h', config=SessionConfig())\n"
        "print(audio_data_url(b'x'))"
    )
    assert run(code) == "data:audio/wav;base64,eA=="


def test_it_loads_no_engine_and_no_server():
    code = "import duplex_engine.client.cli, sys\nprint([m for m in sys.modules if m.startswith('duplex_engine.')])"
    parts = {name.split(".")[1] for name in eval(run(code))}
    assert parts == {"client", "protocol", "errors"}


def test_its_import_is_cheap():
    code = "import time; a = time.process_time(); import duplex_engine.client; print(time.process_time() - a)"
    # One good run is enough: other work on the machine makes the rest slower, nothing makes one faster.
    costs: list[float] = []
    while len(costs) < 20 and min(costs, default=1.0) >= 0.25:
        costs.append(float(run(code)))
    assert min(costs) < 0.25


def test_the_command_answers_help_as_a_module():
    finished = subprocess.run(
        [sys.executable, "-m", "duplex_engine.client", "talk", "--help"], capture_output=True, text=True, check=True
    )
    assert "--interrupt-wav" in finished.stdout
