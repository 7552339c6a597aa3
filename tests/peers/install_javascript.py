"""Install the JavaScript clients that the tests call, at the versions that `javascript/package.json` pins.

There is no lock file, so that whatever registry npm is configured for is asked.
Usage: python tests/peers/install_javascript.py FOLDER
"""

import shutil
import subprocess
import sys
from pathlib import Path

NODE = 20
PACKAGES = Path(__file__).parent / "javascript" / "package.json"
WANTED = f"the tests run JavaScript clients: install Node.js {NODE} or later, with npm (nodejs.org, or your system's packages)"


def main(folder: Path) -> None:
    check_node()
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(PACKAGES, folder)
    npm = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    subprocess.run(npm, cwd=folder, check=True)


def check_node() -> None:
    """End with a word on what is missing, if something is."""
    missing = [program for program in ("node", "npm") if shutil.which(program) is None]
    if missing:
        sys.exit(f"{' and '.join(missing)} not found; {WANTED}")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.removeprefix("v").partition(".")[0]) < NODE:
        sys.exit(f"this is Node.js {version}; {WANTED}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
