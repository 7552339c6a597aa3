"""The install step: bring the weights of the embedded voice onto this machine, then prove that they are the right ones.

Owns every download, the putting together of files from parts, and what the user is told meanwhile. Run by hand or by
`make`; the running server never calls it. Interrupted, it goes on where it stopped; repeated, it does nothing.
"""

import hashlib
import importlib.util
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from duplex_engine.errors import DuplexError
from duplex_engine.model_plugins.cascade.lock import (
    HubSource,
    LockedFile,
    LockedModel,
    PackageSource,
    Part,
    Source,
    locked_models,
)
from duplex_engine.model_plugins.cascade.models import (
    BLOCK_BYTES,
    LANGUAGE,
    ModelRefused,
    cache_directory,
    check,
    fetch_command,
    find_file,
    find_part,
    locate,
    mark_checked,
    models_in_use,
    sha256_of,
)
from duplex_engine.model_plugins.shared.progress import MEBIBYTE, Bar

HUB_VARIABLE: Final = "HF_ENDPOINT"
DEFAULT_HUB: Final = "https://huggingface.co"
HUB_PATIENCE_S: Final = 5.0
WATCH_PERIOD_S: Final = 0.3
PARTIAL: Final = 206


class FetchFailed(DuplexError):
    """A file could not be brought here; the message says what was tried."""


def fetch(llm: str) -> None:
    """Make every model that a cascade with this language model opens present and checked.

    Raises ModelMissing for a name or path that means nothing, or for a package of the extra that is not installed;
    FetchFailed when no source could deliver.
    """
    for model in models_in_use(llm):
        if isinstance(model, Path):
            _say(f"{LANGUAGE}: {model} (your own file, used as it is)")
        elif model.packaged:
            locate(model.name)
        else:
            for file in model.files:
                ensure(model, file)
    _say("The embedded voice is complete:")
    for model in models_in_use(llm):
        if isinstance(model, LockedModel):
            _say(f"  {_line(model)}")


def print_lock() -> None:
    """List every model of the lock: its role, licence, size, and whether it is on this machine."""
    for model in locked_models():
        present = "present" if all(find_file(file) for file in model.files) else f"missing: {fetch_command(model)}"
        alias = f" --llm {model.alias}" if model.alias else ""
        _say(f"{_line(model)}{alias}\n    {present}")
        for file in model.files:
            _say(f"    {file.name}  {file.size} bytes  sha256 {file.sha256}")


def _say(text: object) -> None:
    print(text, flush=True)  # the bars go to standard error, and the two should keep their order


def _line(model: LockedModel) -> str:
    return f"{model.role}: {model.name} {model.version}, licence {model.licence}, {model.size / MEBIBYTE:.1f} MiB"


def ensure(model: LockedModel, file: LockedFile) -> None:
    """Make one file present and checked, from the first source that delivers it. Raises FetchFailed."""
    if path := find_file(file):
        try:
            check(path, file, way_out=fetch_command(model))
        except ModelRefused as refusal:
            _say(refusal)
        else:
            return
    _say(f"Fetching {_line(model)}\n  {file.name} to {cache_directory()}")
    _make_room(file)
    failures: list[str] = []
    for source in file.sources:
        try:
            _fetch_from(source, file)
        except FetchFailed as failure:
            failures.append(str(failure))
            _say(f"  {failure}")
        else:
            return
    raise FetchFailed(f"{file.name} of {model.name} could not be fetched: {'; '.join(failures)}")


def _make_room(file: LockedFile) -> None:
    directory = cache_directory()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FetchFailed(
            f"the cache {directory} cannot be made ({error}); set DUPLEX_ENGINE_CACHE to another"
        ) from error
    needed = 3 * file.size  # a package, its files, and the file put together
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise FetchFailed(
            f"{directory} has {free // MEBIBYTE} MiB free, {needed // MEBIBYTE} MiB are needed meanwhile; "
            "make room or set DUPLEX_ENGINE_CACHE to a larger disk"
        )


def _fetch_from(source: Source, file: LockedFile) -> None:
    if isinstance(source, HubSource):
        _fetch_from_hub(source, file)
    else:
        _fetch_from_packages(source, file)


# --- From a hub ----------------------------------------------------------------------------------------------------


def _fetch_from_hub(source: HubSource, file: LockedFile) -> None:
    hub = os.environ.get(HUB_VARIABLE, DEFAULT_HUB).rstrip("/")
    url = f"{hub}/{source.repository}/resolve/main/{source.path}"
    partial = cache_directory() / f"{file.name}.part"
    try:
        _download(url, partial, file)
    except (OSError, HTTPException, ValueError) as error:
        raise FetchFailed(f"{source.repository} on {hub} did not deliver ({error})") from error
    with Bar("  checking it", file.size) as bar:
        digest = sha256_of(partial, bar.advance)
    _accept(partial, file, digest, f"{source.repository} on {hub}")


def _download(url: str, partial: Path, file: LockedFile) -> None:
    """Load `url` into `partial`, going on where an earlier attempt stopped."""
    have = partial.stat().st_size if partial.exists() else 0
    if have >= file.size:
        partial.unlink()
        have = 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    with opened(request) as response, Bar(f"  {file.name}", file.size) as bar:
        goes_on = response.status == PARTIAL
        with partial.open("ab" if goes_on else "wb") as target:
            bar.reach(have if goes_on else 0)
            while block := response.read(BLOCK_BYTES // 16):
                target.write(block)
                bar.advance(len(block))
    if (have := partial.stat().st_size) < file.size:
        raise ConnectionError(f"the connection ended after {have} of {file.size} bytes")


def opened(request: urllib.request.Request) -> Any:
    """The response, if it begins within five seconds, name look-up included, which no socket timeout covers."""
    arrival: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ask() -> None:
        try:
            arrival.put(urllib.request.urlopen(request, timeout=HUB_PATIENCE_S))
        except (OSError, HTTPException, ValueError) as error:
            arrival.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = arrival.get(timeout=HUB_PATIENCE_S)
    except queue.Empty:
        raise TimeoutError(f"no answer within {HUB_PATIENCE_S:g} s") from None
    if isinstance(answer, BaseException):
        raise answer
    return answer


# --- From packages -------------------------------------------------------------------------------------------------


def _fetch_from_packages(source: PackageSource, file: LockedFile) -> None:
    staging = cache_directory() / "packages"
    share = file.size // len(source.parts)
    paths: list[Path] = []
    with Bar(f"  {file.name}", file.size) as bar:
        for number, part in enumerate(source.parts):
            paths.append(
                find_part(part) or _staged(part, staging) or _installed(part, staging, bar, number * share, share)
            )
            bar.reach((number + 1) * share)
        bar.reach(file.size)
    fresh = cache_directory() / f"{file.name}.{os.getpid()}"
    digest = _joined(paths, fresh, file)
    _accept(fresh, file, digest, ", ".join(part.pin for part in source.parts))
    shutil.rmtree(staging, ignore_errors=True)


def _staged(part: Part, staging: Path) -> Path | None:
    path = staging / part.module / part.path
    return path if path.is_file() else None


def _installed(part: Part, staging: Path, bar: Bar, done: int, share: int) -> Path:
    """Let pip put the part's package, without what it depends on, into the staging directory."""
    if importlib.util.find_spec("pip") is None:
        raise FetchFailed(f"this Python has no pip to install {part.pin} with; run: {sys.executable} -m ensurepip")
    staging.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=staging, prefix="pip-") as scratch, tempfile.TemporaryFile("w+") as output:
        command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--quiet"]
        process = subprocess.Popen(
            [*command, "--no-deps", "--no-compile", "--no-cache-dir", "--target", str(staging), part.pin],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": scratch},
        )
        while not _ended(process):
            # The scratch directory holds the package twice in the end: as it came, and unpacked.
            bar.reach(done + min(share, _bytes_in(scratch) // 2))
        if process.returncode != 0:
            output.seek(0)
            raise FetchFailed(f"pip could not install {part.pin}: {_last_line(output)}")
    path = _staged(part, staging)
    if path is None:
        raise FetchFailed(f"{part.pin} was installed, but it has no {part.path}")
    return path


def _ended(process: "subprocess.Popen[bytes]") -> bool:
    try:
        process.wait(timeout=WATCH_PERIOD_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _bytes_in(directory: str) -> int:
    total = 0
    for where, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(where, name)).st_size
            except FileNotFoundError:
                continue  # pip has moved it meanwhile
    return total


def _last_line(lines: Iterable[str]) -> str:
    said = [line.strip() for line in lines if line.strip()]
    errors = [line for line in said if line.startswith("ERROR")]
    return (errors or said or ["no reason given"])[-1]


def _joined(paths: Iterable[Path], target: Path, file: LockedFile) -> str:
    """Put the parts together in `target`; the sha256 of the whole."""
    digest = hashlib.sha256()
    with target.open("wb") as whole, Bar("  putting it together", file.size) as bar:
        for path in paths:
            with path.open("rb") as part:
                while block := part.read(BLOCK_BYTES):
                    whole.write(block)
                    digest.update(block)
                    bar.advance(len(block))
    return digest.hexdigest()


def _accept(fresh: Path, file: LockedFile, digest: str, origin: str) -> None:
    """Give a complete file its name, if it is the right one; a wrong one is set aside."""
    if digest != file.sha256:
        aside = cache_directory() / f"{file.name}.refused"
        fresh.replace(aside)
        raise FetchFailed(
            f"what came from {origin} is not {file.name}: sha256 {digest}, expected {file.sha256}; set aside as {aside}"
        )
    path = cache_directory() / file.name
    fresh.replace(path)
    mark_checked(path, file)
