"""Unpack the reference client (`vllm_omni.clients`) from its wheel, without the package's other modules.

Importing the real package would pull in vLLM; its clients need only `pybase64` and `websockets`.
Usage: python tests/peers/install.py FOLDER
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

REQUIREMENT = "vllm-omni==0.30.0"
FILES = "vllm_omni/clients/"


def main(folder: Path) -> None:
    package = folder / "vllm_omni"
    (package / "clients").mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("")
    with tempfile.TemporaryDirectory() as downloads:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--disable-pip-version-check",
            "--no-deps",
            "-q",
            "-d",
            downloads,
        ]
        subprocess.run([*pip, REQUIREMENT], check=True)
        (wheel,) = Path(downloads).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.startswith(FILES) and name.endswith(".py"):
                    (folder / name).write_bytes(archive.read(name))
    print(f"{REQUIREMENT}: {len(list((package / 'clients').glob('*.py')))} client files in {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
