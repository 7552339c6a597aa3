"""One tiny checkpoint for all tests of PersonaPlex, and one thread for its arithmetic."""

from pathlib import Path

import pytest
import torch
from personaplex_kit import NARROW, Tiny

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """The tiny checkpoint, loaded."""
    return Tiny.make(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """The same weights with short windows: 24 positions for the model, 20 for the codec."""
    return Tiny.make(tmp_path_factory.mktemp("narrow"), **NARROW)


@pytest.fixture(scope="session")
def eight_steps(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """The same weights in a file without the steps of the depformer that nobody hears."""
    return Tiny.make(tmp_path_factory.mktemp("eight"), steps=8)


@pytest.fixture
def folder(tiny: Tiny, tmp_path: Path) -> Path:
    """A copy of the tiny checkpoint that a test may damage."""
    for path in tiny.folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path
