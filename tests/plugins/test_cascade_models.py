"""The model lock, and finding files by content."""

import hashlib
import sys
from pathlib import Path

import pytest

from duplex_engine.model_plugins.cascade import models
from duplex_engine.model_plugins.cascade.lock import (
    HubSource,
    LockedFile,
    LockedModel,
    PackageSource,
    Part,
    locked_models,
)
from duplex_engine.model_plugins.cascade.models import ModelMissing, ModelRefused

CONTENT = b"GGUF and what follows"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "cache"
    directory.mkdir()
    monkeypatch.setenv(models.CACHE_VARIABLE, str(directory))
    return directory


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Part:
    """An installed package that says so if anybody imports it."""
    directory = tmp_path / "site" / "weights_in_a_package" / "data"
    directory.mkdir(parents=True)
    (directory.parent / "__init__.py").write_text("raise AssertionError('imported')")
    (directory / "weights.bin").write_bytes(CONTENT)
    monkeypatch.syspath_prepend(directory.parent.parent)
    return Part(pin="weights-in-a-package==1", module="weights_in_a_package", path="data/weights.bin")


def locked(content: bytes, *parts: Part) -> LockedFile:
    sources = (PackageSource(parts or (Part("none==1", "no_such_package", "x"),)),)
    return LockedFile("weights.bin", len(content), hashlib.sha256(content).hexdigest(), sources)


def test_the_lock_is_complete() -> None:
    assert {model.role for model in locked_models()} == {
        "voice activity",
        "recognition",
        "language",
        "voice",
        "pronunciation",
    }
    files = [file for model in locked_models() for file in model.files]
    assert len({file.sha256 for file in files}) == len(files)
    for file in files:
        assert len(file.sha256) == 64
        assert file.size > 0
        assert all("==" in part.pin for part in file.parts)
    assert all(model.licence and model.version for model in locked_models())


def test_the_default_language_model_comes_from_the_hub_first_then_from_six_parts() -> None:
    (file,) = models.model_named("default").files
    hub, packages = file.sources
    assert isinstance(hub, HubSource)
    assert isinstance(packages, PackageSource)
    assert file.sha256 == "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
    assert [part.path for part in packages.parts] == [f"data/part0{number}.bin" for number in range(1, 7)]


@pytest.mark.parametrize("name", ["default", "LIGHT", "qwen2.5-coder-0.5b-instruct"])
def test_a_language_model_by_name(name: str) -> None:
    assert isinstance(models.chosen_language_model(name), LockedModel)


def test_a_language_model_of_ones_own(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(CONTENT)
    assert models.locate_language_model(str(path)) == path
    description = models.describe(str(path))[-1]
    assert (description["name"], description["licence"]) == ("mine.gguf", "unknown")


@pytest.mark.parametrize("content", [b"", b"PK something"])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model"
    path.write_bytes(content)
    with pytest.raises(ModelMissing, match="not a GGUF file"):
        models.chosen_language_model(str(path))


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ModelMissing, match=r"neither a file nor one of: default .*, light "):
        models.chosen_language_model("nonesuch")
    with pytest.raises(ModelMissing, match="the lock has silero-vad, "):
        models.model_named("nonesuch")


def test_describe_names_licences_and_versions() -> None:
    described = models.describe("light")
    assert [entry["role"] for entry in described][-1] == "language"
    assert len(described) == 5
    assert all(entry["licence"] and entry["version"] and entry["bytes"] for entry in described)


def test_what_is_missing_is_answered_with_the_command(cache: Path) -> None:
    with pytest.raises(ModelMissing, match=r"run: python -m duplex_engine\.model_plugins\.cascade fetch --llm default"):
        models.locate_language_model("default")


def test_a_missing_runtime_is_answered_with_the_command() -> None:
    with pytest.raises(ModelMissing, match=r"run: pip install 'duplex-engine\[cascade\]'"):
        models.require("no_such_runtime")


def test_a_package_is_searched_and_not_imported(cache: Path, package: Part) -> None:
    file = locked(CONTENT, package)
    path = models.find_file(file)
    assert path is not None
    models.check(path, file, way_out="")
    assert package.module not in sys.modules


def test_the_cache_comes_before_packages(cache: Path, package: Part) -> None:
    (cache / "weights.bin").write_bytes(CONTENT)
    assert models.find_file(locked(CONTENT, package)) == cache / "weights.bin"


def test_parts_are_no_whole(cache: Path, package: Part) -> None:
    assert models.find_file(locked(CONTENT, package, package)) is None


@pytest.mark.parametrize("wrong", [b"GGUF and what Follows", b"GGUF"], ids=["content", "size"])
def test_a_wrong_file_in_the_cache_is_set_aside(cache: Path, wrong: bytes) -> None:
    path = cache / "weights.bin"
    path.write_bytes(wrong)
    with pytest.raises(ModelRefused, match=r"set aside as .*weights.bin.refused; run: fetch it"):
        models.check(path, locked(CONTENT), way_out="fetch it")
    assert not path.exists()
    assert (cache / "weights.bin.refused").read_bytes() == wrong


def test_a_wrong_file_elsewhere_is_left_alone(cache: Path, package: Part) -> None:
    path = models.find_part(package)
    assert path is not None
    with pytest.raises(ModelRefused, match="Its package is damaged"):
        models.check(path, locked(b"other"), way_out="install it")
    assert path.read_bytes() == CONTENT


def test_a_checked_file_is_read_once_until_it_changes(cache: Path) -> None:
    path = cache / "weights.bin"
    path.write_bytes(CONTENT)
    models.check(path, locked(CONTENT), way_out="")
    path.write_bytes(CONTENT[::-1])
    with pytest.raises(ModelRefused):
        models.check(path, locked(CONTENT), way_out="")


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(CONTENT)
    monkeypatch.setenv(models.CACHE_VARIABLE, str(path))  # a file: no directory can be made there
    models.check(path, locked(CONTENT), way_out="")
