"""Install the clients that others wrote, each into an environment of its own, because their pins conflict.

An environment whose requirements have not changed is left as it is.
Usage: python tests/peers/environments.py FOLDER makes FOLDER/peers-NAME for each of them.
"""

import subprocess
import sys
import time
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ENVIRONMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "openai-agents": ("openai-agents==0.24.0", "openai==3.57.0"),
    "pipecat": ("pipecat-ai==1.14.0", "openai==3.57.0"),
    "livekit": ("livekit-agents==1.8.9", "livekit-plugins-openai==1.8.9", "openai==3.57.0"),
}
STAMP: Final = "requirements.txt"
"""What an environment was made from; written last."""
PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def python_of(folder: Path, name: str) -> Path:
    """The interpreter of an environment, which may not be there."""
    return folder / f"peers-{name}" / "bin" / "python"


def install(folder: Path, name: str) -> None:
    """Make one environment, unless it is there. Raises CalledProcessError when pip fails."""
    python, wanted = python_of(folder, name), "\n".join(ENVIRONMENTS[name])
    stamp = folder / f"peers-{name}" / STAMP
    if stamp.exists() and stamp.read_text() == wanted:
        return
    began = time.monotonic()
    venv.create(folder / f"peers-{name}", clear=True, symlinks=True)
    # Modules are compiled when they are imported, which most of these never are.
    command = [*PIP, "--python", str(python), "install", "--no-compile", "--progress-bar", "on", *ENVIRONMENTS[name]]
    subprocess.run(command, check=True)
    stamp.write_text(wanted)
    print(f"{name}: ready after {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    for environment in ENVIRONMENTS:
        install(Path(sys.argv[1]), environment)
