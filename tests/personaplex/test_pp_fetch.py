"""The install step, against a hub on this machine."""

import hashlib
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import attrs
import huggingface_hub.constants
import pytest

from duplex_engine.model_plugins.personaplex.__main__ import main
from duplex_engine.model_plugins.personaplex.fetch import FetchFailed, HubRefused, HubUnreachable, Source, fetch
from duplex_engine.model_plugins.personaplex.files import MODEL, NEEDED, REPOSITORY

LARGE = 300_000
CONTENTS = {name: random.Random(name).randbytes(LARGE if name == MODEL else 1000) for name in NEEDED}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def git_sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@attrs.define
class Hub:
    """What the hub serves, how it behaves, and what it was asked for. `url`: where it is."""

    url: str
    files: dict[str, bytes] = attrs.Factory(lambda: dict(CONTENTS))
    refusal: tuple[int, dict[str, str]] | None = None
    cuts: list[int] = attrs.Factory(list)
    ranges_work: bool = True
    tokens: list[str | None] = attrs.Factory(list)
    tokens_at_the_store: list[str | None] = attrs.Factory(list)
    downloads: list[tuple[str, str | None]] = attrs.Factory(list)

    @property
    def source(self) -> Source:
        return Source(hub=self.url)


class Answering(BaseHTTPRequestHandler):
    """Large files as a hub stores them: the name says digest and size, and sends you elsewhere for the bytes."""

    hub: Hub

    def do_HEAD(self) -> None:
        self._named()

    def do_GET(self) -> None:
        if self.path.startswith("/store/"):
            self._stored(self.path.removeprefix("/store/"))
        else:
            self._named()

    def _named(self) -> None:
        self.hub.tokens.append(self.headers.get("Authorization"))
        if self.hub.refusal:
            status, headers = self.hub.refusal
            return self._answer(status, headers)
        repository, _, rest = self.path[1:].partition("/resolve/")
        revision, _, name = rest.partition("/")
        if repository != REPOSITORY:
            return self._answer(404, {"X-Error-Code": "RepoNotFound"})
        if revision != "main":
            return self._answer(404, {"X-Error-Code": "RevisionNotFound"})
        if name not in self.hub.files:
            return self._answer(404, {"X-Error-Code": "EntryNotFound"})
        content = self.hub.files[name]
        facts = {"X-Repo-Commit": "c0ffee" + "0" * 34}
        if name == MODEL:
            facts |= {"X-Linked-Etag": f'"{sha256(content)}"', "X-Linked-Size": str(len(content))}
            return self._answer(
                302, {**facts, "Location": f"{self.hub.url}/store/{name}".replace("127.0.0.1", "localhost")}
            )
        return self._bytes(name, content, {**facts, "ETag": f'"{git_sha1(content)}"'})

    def _stored(self, name: str) -> None:
        self.hub.tokens_at_the_store.append(self.headers.get("Authorization"))
        self._bytes(name, self.hub.files[name], {})

    def _bytes(self, name: str, content: bytes, headers: dict[str, str]) -> None:
        asked = self.headers.get("Range") if self.command == "GET" else None
        if self.command == "GET":
            self.hub.downloads.append((name, asked))
        starts = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.hub.ranges_work else 0
        body = content[starts:]
        self._answer(206 if starts else 200, {**headers, "Content-Length": str(len(body))}, length=False)
        if self.command == "GET":
            cut = self.hub.cuts.pop(0) if name == MODEL and self.hub.cuts else None
            self.wfile.write(body[:cut])

    def _answer(self, status: int, headers: dict[str, str], *, length: bool = True) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if length:
            self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "no token"))
    handler = type("Handler", (Answering,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        handler.hub = Hub(f"http://127.0.0.1:{server.server_address[1]}")
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield handler.hub
        server.shutdown()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "made" / "for it"


def found(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_all_files_arrive_checked_and_the_second_time_nothing_travels(
    hub: Hub, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch(folder, hub.source)
    assert found(folder) == CONTENTS
    said = capsys.readouterr()
    assert f"{REPOSITORY} at c0ffee" in said.out
    assert "model.safetensors" in said.err
    assert "100%" in said.err
    assert [name for name, _ in hub.downloads][-1] == MODEL, "what is small comes first"
    assert len(hub.downloads) == len(NEEDED)
    fetch(folder, hub.source)
    assert len(hub.downloads) == len(NEEDED)
    assert "complete" in capsys.readouterr().out


def test_an_empty_file_is_a_file(hub: Hub, folder: Path) -> None:
    hub.files["config.json"] = b""
    fetch(folder, hub.source)
    assert found(folder) == hub.files


def test_a_broken_connection_is_taken_up_where_it_broke(hub: Hub, folder: Path) -> None:
    hub.cuts = [100_000, 50_000]
    fetch(folder, hub.source)
    assert found(folder) == CONTENTS
    assert [asked for name, asked in hub.downloads if name == MODEL] == [None, "bytes=100000-", "bytes=150000-"]


def test_a_hub_that_sends_nothing_more_is_given_up_and_what_arrived_is_kept(hub: Hub, folder: Path) -> None:
    hub.cuts = [100_000, 0]
    with pytest.raises(HubUnreachable, match="what has arrived is kept"):
        fetch(folder, hub.source)
    assert not (folder / MODEL).exists()
    assert [path.stat().st_size for path in folder.glob("*.part")] == [100_000]
    hub.downloads.clear()
    fetch(folder, hub.source)
    assert found(folder) == CONTENTS
    assert hub.downloads == [(MODEL, "bytes=100000-")]


def test_a_hub_without_ranges_begins_anew(hub: Hub, folder: Path) -> None:
    hub.cuts = [100_000]
    hub.ranges_work = False
    fetch(folder, hub.source)
    assert found(folder) == CONTENTS


def test_half_of_another_version_is_not_gone_on_with(hub: Hub, folder: Path) -> None:
    hub.cuts = [100_000, 0]
    with pytest.raises(HubUnreachable):
        fetch(folder, hub.source)
    hub.files[MODEL] = CONTENTS[MODEL][::-1]
    fetch(folder, hub.source)
    assert (folder / MODEL).read_bytes() == CONTENTS[MODEL][::-1]


def test_a_file_of_the_same_size_that_is_another_one_is_replaced(hub: Hub, folder: Path) -> None:
    fetch(folder, hub.source)
    (folder / MODEL).write_bytes(bytes(LARGE))
    (folder / "config.json").write_bytes(bytes(1000))
    hub.downloads.clear()
    fetch(folder, hub.source)
    assert found(folder) == CONTENTS
    assert [name for name, _ in hub.downloads] == ["config.json", MODEL]


def test_wrong_bytes_are_set_aside(hub: Hub, folder: Path) -> None:
    fetch(folder, hub.source)
    (folder / MODEL).unlink()
    part = folder / f"{MODEL}.{sha256(CONTENTS[MODEL])[:12]}.part"
    part.write_bytes(bytes(1000))
    with pytest.raises(FetchFailed, match=r"is not what was published; set aside as .*\.refused, fetch again"):
        fetch(folder, hub.source)
    assert not (folder / MODEL).exists()
    fetch(folder, hub.source)
    assert (folder / MODEL).read_bytes() == CONTENTS[MODEL]


def test_a_login_is_used_and_does_not_follow_to_another_host(
    hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    fetch(folder, hub.source)
    assert set(hub.tokens) == {"Bearer hf_mine"}
    assert set(hub.tokens_at_the_store) == {None}


GATED = {"X-Error-Code": "GatedRepo"}


@pytest.mark.parametrize(
    ("refusal", "token", "outcome", "sentence"),
    [
        ((401, GATED), None, HubRefused, r"is gated: accept its licence at http://.*/nvidia/personaplex-7b-v1, log in"),
        ((403, GATED), "hf_mine", HubRefused, r"account of your token has not been let in: accept the licence at http"),
        ((401, {}), None, HubRefused, r"no repository nvidia/personaplex-7b-v1 on http.* log in with `hf auth login`"),
        ((404, {"X-Error-Code": "RepoNotFound"}), "hf_mine", HubRefused, r"no repository .* that your token may read"),
        (
            (401, {"X-Error-Message": "Invalid credentials in Authorization header"}),
            "hf_old",
            HubRefused,
            r"does not accept your token; log in again",
        ),
        (
            (403, {"X-Error-Message": "enable gated repos"}),
            "hf_narrow",
            HubRefused,
            r"let it read gated repositories at http",
        ),
        ((404, {"X-Error-Code": "RevisionNotFound"}), None, HubRefused, r"has no revision 'main'"),
        ((404, {"X-Error-Code": "EntryNotFound"}), None, HubRefused, r"no file config\.json at revision 'main'"),
        ((503, {}), None, HubUnreachable, r"answered with status 503; fetch again later"),
        ((429, {}), None, HubUnreachable, r"answered with status 429; fetch again later"),
    ],
)
def test_refusals_say_the_way_out_in_one_sentence(
    hub: Hub,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    refusal: tuple[int, dict[str, str]],
    token: str | None,
    outcome: type[FetchFailed],
    sentence: str,
) -> None:
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    hub.refusal = refusal
    with pytest.raises(outcome, match=sentence) as refused:
        fetch(folder, hub.source)
    assert "\n" not in str(refused.value)
    assert not folder.exists(), "nothing is made before it is known that something can be had"


@pytest.mark.parametrize(
    ("source", "outcome", "sentence"),
    [
        (
            Source(hub="http://127.0.0.1:9"),
            HubUnreachable,
            r"127\.0\.0\.1:9 cannot be reached .* name a mirror in HF_ENDPOINT",
        ),
        (Source(hub="http://127.0.0.1:9", repository="a/b/c"), HubRefused, "'a/b/c' is no name of a repository"),
        (Source(hub="127.0.0.1:9"), HubUnreachable, "cannot be reached"),
    ],
)
def test_what_cannot_be_asked(
    hub: Hub, folder: Path, source: Source, outcome: type[FetchFailed], sentence: str
) -> None:
    with pytest.raises(outcome, match=sentence):
        fetch(folder, source)


def test_offline_mode_is_named(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(HubUnreachable, match="HF_HUB_OFFLINE is set"):
        fetch(folder, hub.source)


def test_the_disk_is_looked_at_first(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huge = 1 << 60

    def claims(self: Answering) -> None:
        self._answer(200, {"ETag": '"x"', "Content-Length": str(huge)}, length=False)

    monkeypatch.setattr(Answering, "do_HEAD", claims)
    with pytest.raises(FetchFailed, match=r"MiB free, .* MiB are needed"):
        fetch(folder, hub.source)


@pytest.mark.parametrize(
    ("refusal", "status"),
    [(None, 0), ((401, GATED), 3), ((403, GATED), 3), ((404, {"X-Error-Code": "EntryNotFound"}), 3), ((503, {}), 4)],
)
def test_exit_status(
    hub: Hub,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    refusal: tuple[int, dict[str, str]] | None,
    status: int,
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    hub.refusal = refusal
    assert main(["fetch", str(folder)]) == status
    assert ("error: " in capsys.readouterr().err) == (status != 0)


def test_a_directory_that_cannot_be_made(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FetchFailed, match="cannot be made"):
        fetch(tmp_path / "file" / "below", hub.source)
