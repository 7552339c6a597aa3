"""The program of the page on tools, as it stands there, against a server that plays a script."""

import subprocess
import sys
from pathlib import Path

from peer_server import serving

SCRIPT = 'call get_weather {"city": "Oslo"}; await; speak "They say {output}" for 0.4'
EXAMPLE = Path(__file__).parents[2] / "examples" / "tools.py"


def test_the_program_answers_the_call_and_prints_what_is_said_then(tmp_path: Path) -> None:
    with serving(tmp_path, "--plugin", "scripted", "--option=mode=turn", f"--option=script={SCRIPT}") as server:
        command = [sys.executable, EXAMPLE, f"{server.websocket_url}/v1/realtime", "What is the weather in Oslo?"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    called, said = done.stdout.splitlines()
    assert called == 'get_weather({"city": "Oslo"})'
    assert said.startswith("They say")
    assert "light rain" in said
