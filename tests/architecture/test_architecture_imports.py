"""Who may import whom, and how light an import has to be. Each check runs in an interpreter of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

BLOCK = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError("this test has no " + name)

sys.meta_path.insert(0, Absent())
import {module}
"""

LIGHT = [
    ("duplex_engine", ("torch", "vllm", "numpy", "trio")),
    ("duplex_engine.engine", ("torch", "vllm")),
    ("duplex_engine.server.cli", ("torch", "vllm")),
    ("duplex_engine.client", ("torch", "vllm", "numpy", "soxr")),
    ("duplex_engine.protocol.codec", ("torch", "vllm", "numpy", "soxr", "trio")),
    ("duplex_engine.conversation.machine", ("torch", "vllm", "trio")),
    ("duplex_engine.model_plugins.scripted.stepper", ("torch", "vllm", "trio")),
    ("duplex_engine.model_plugins.personaplex.plugin", ("torch", "safetensors", "sentencepiece", "huggingface_hub")),
    ("duplex_engine.model_plugins.personaplex.stepper", ("transformers", "sentencepiece", "huggingface_hub", "trio")),
]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("module", "blocked"), LIGHT, ids=[module for module, _ in LIGHT])
def test_an_import_is_light(module: str, blocked: tuple[str, ...]) -> None:
    done = run(sys.executable, "-c", BLOCK.format(module=module, blocked=set(blocked)))
    assert done.returncode == 0, done.stderr


def test_the_check_for_light_imports_can_fail() -> None:
    done = run(sys.executable, "-c", BLOCK.format(module="duplex_engine.audio.pcm", blocked={"numpy"}))
    assert "this test has no numpy" in done.stderr


def test_layers_hold() -> None:
    """The contracts of `pyproject.toml`."""
    done = run(str(Path(sys.executable).parent / "lint-imports"))
    assert done.returncode == 0, done.stdout + done.stderr
