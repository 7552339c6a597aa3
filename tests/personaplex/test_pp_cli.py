"""The command line for checkpoints: making a tiny one, and looking at one."""

import io
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import attrs
import pytest
import torch
from personaplex_kit import PUBLISHED

from duplex_engine.model_plugins.personaplex.__main__ import main
from duplex_engine.model_plugins.personaplex.files import CheckpointFiles
from duplex_engine.model_plugins.personaplex.inspection import GIGABYTE, needs
from duplex_engine.model_plugins.personaplex.plugin import PersonaPlexOptions, PersonaPlexPlugin
from duplex_engine.model_plugins.personaplex.sizes import MimiSizes
from duplex_engine.model_plugins.personaplex.weights import lm_tensors, mimi_tensors, used_numbers
from duplex_engine.server.settings import load_config, read_file

CODEC = MimiSizes(
    dim=512, filters=64, layers=8, heads=8, hidden=2048, codebook_dim=256, codebooks=32, cards=2048, context=250
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> CheckpointFiles:
    folder = tmp_path_factory.mktemp("made")
    assert main(["make-tiny", str(folder)]) == 0
    return CheckpointFiles(folder)


@pytest.fixture
def files(made: CheckpointFiles, tmp_path: Path) -> CheckpointFiles:
    """A checkpoint to spoil."""
    for path in made.folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return CheckpointFiles(tmp_path)


def archive(path: Path, **members: object) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            saved = io.BytesIO()
            torch.save(content, saved)
            member = tarfile.TarInfo(f"voices/{name}.pt")
            member.size = saved.tell()
            tar.addfile(member, io.BytesIO(saved.getvalue()))


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 1
    return capsys.readouterr().err


def test_a_tiny_checkpoint_is_reported(made: CheckpointFiles, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(made.folder)]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^model\.safetensors +[\d,]+ bytes$", said, re.MULTILINE)
    assert "2 layers of width 32, depformer 2 of 16, 16 steps in the file" in said
    assert "text: 384 pieces" in said
    assert "2 voices, prompts of 10 to 13 frames: NATF2, NATM1" in said
    assert "24 GB: " in said


def test_a_tiny_checkpoint_with_eight_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["make-tiny", str(tmp_path), "--steps", "8"]) == 0
    assert main(["check", str(tmp_path)]) == 0
    assert "8 steps in the file" in capsys.readouterr().out


def test_what_is_missing_is_named_with_the_command(files: CheckpointFiles, capsys: pytest.CaptureFixture[str]) -> None:
    files.codec.unlink()
    said = refusal(capsys, "check", str(files.folder))
    assert files.codec.name in said
    assert f"fetch {files.folder}" in said
    assert "is not a directory" in refusal(capsys, "check", str(files.folder / "nowhere"))


@pytest.mark.parametrize("name", ["model", "codec", "text", "voices"])
def test_files_that_are_cut_off(files: CheckpointFiles, capsys: pytest.CaptureFixture[str], name: str) -> None:
    path: Path = getattr(files, name)
    path.write_bytes(path.read_bytes()[:100])
    assert path.name in refusal(capsys, "check", str(files.folder))


def test_a_text_tokenizer_of_another_model(
    files: CheckpointFiles, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    from duplex_engine.model_plugins.personaplex.tiny import make_tiny

    other = make_tiny(tmp_path_factory.mktemp("other"), pieces=320)
    files.text.write_bytes(other.text.read_bytes())
    assert "has 320 pieces; the model says 384" in refusal(capsys, "check", str(files.folder))


class Spoils:
    """Runs code when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.path,))


def test_a_voice_that_would_run_code(
    files: CheckpointFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive(files.voices, EVIL0=Spoils(tmp_path / "spoilt"))
    assert "voice EVIL0: not a file of plain tensors" in refusal(capsys, "check", str(files.folder))
    assert not (tmp_path / "spoilt").exists()


def test_a_voice_of_another_model(files: CheckpointFiles, capsys: pytest.CaptureFixture[str]) -> None:
    archive(
        files.voices,
        NATF0={"embeddings": torch.zeros(3, 1, 1, 4096), "cache": torch.zeros(1, 17, 4, dtype=torch.int64)},
    )
    assert "voice NATF0: embeddings have the shape (3, 1, 1, 4096)" in refusal(capsys, "check", str(files.folder))


def test_without_the_extra_the_command_that_installs_it_is_said(made: CheckpointFiles) -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from duplex_engine.model_plugins.personaplex.__main__ import main\n"
        f"sys.exit(main(['check', {str(made.folder)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == ("error: the package torch is not installed; run: pip install 'duplex-engine[personaplex]'\n")


def test_help_is_quick_and_tells_the_exit_status() -> None:
    program = (
        "import sys\n"
        "from duplex_engine.model_plugins.personaplex.__main__ import parser\n"
        "print(parser().format_help())\n"
        "assert not {'torch', 'sentencepiece', 'huggingface_hub'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "exit status: 0 done" in done.stdout


def test_the_deploy_file_is_one(made: CheckpointFiles) -> None:
    config = load_config(read_file(Path(__file__).parents[2] / "deploy" / "personaplex.toml"))
    options = {**config.options, "checkpoint": str(made.folder)}
    plugin = PersonaPlexPlugin(**options)
    assert config.plugin == plugin.name
    left_alone = {"host", "threads"}
    assert set(config.options) | left_alone == {field.name for field in attrs.fields(PersonaPlexOptions)}
    assert config.limits.max_sessions == 4


def test_the_published_sizes() -> None:
    eight = lm_tensors(PUBLISHED)
    assert used_numbers(eight) == pytest.approx(7.688e9, rel=1e-4)
    assert len(eight) == 475
    assert used_numbers(mimi_tensors(CODEC)) == pytest.approx(79.3e6 + 16.8e6, rel=2e-3)


@pytest.mark.parametrize(("memory", "calls"), [(16, 0), (24, 3), (48, 19), (80, 39), (141, 77)])
def test_how_many_calls_fit(memory: int, calls: int) -> None:
    assert needs(PUBLISHED, CODEC, bytes_per_number=2).calls(memory * GIGABYTE) == calls


def test_a_cpu_takes_twice_the_room() -> None:
    on_gpu, on_cpu = (needs(PUBLISHED, CODEC, bytes_per_number=number) for number in (2, 4))
    assert on_cpu.weights > 1.9 * on_gpu.weights
    assert on_cpu.call == pytest.approx(2 * on_gpu.call, rel=0.02)
