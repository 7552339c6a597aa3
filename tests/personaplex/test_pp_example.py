"""The page's example, told by a tiny checkpoint behind the real server."""

import subprocess
import sys
import wave
from pathlib import Path

from peer_server import serving
from personaplex_kit import Tiny

ROOT = Path(__file__).parents[2]
PLUGIN = "duplex_engine.model_plugins.personaplex.plugin:PersonaPlexPlugin"


def test_the_example_hears_what_is_said_while_it_speaks(tiny: Tiny, tmp_path: Path) -> None:
    question, answer = ROOT / "tests" / "data" / "what_time_is_it.wav", tmp_path / "answer.wav"
    with serving(
        tmp_path, "--plugin", PLUGIN, "--option", f"checkpoint={tiny.folder}", "--option", "admit_below_ms=1000"
    ) as server:
        done = subprocess.run(
            [
                sys.executable,
                str(ROOT / "examples" / "talk_full_duplex.py"),
                server.websocket_url,
                str(question),
                str(answer),
            ],
            capture_output=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.strip(), "it babbles, and what it says is printed"
    with wave.open(str(question)) as asked, wave.open(str(answer)) as said:
        spoken_s, heard_s = said.getnframes() / 24_000, asked.getnframes() / 16_000
    assert 0.5 * heard_s < spoken_s <= heard_s
