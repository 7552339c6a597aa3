"""The install step: bring a checkpoint's published files into a directory, and prove that they are what was published.

Owns every download and what the user is told meanwhile, above all why a hub refuses. Run by hand; the running server never
calls it. Interrupted, it goes on where it stopped; repeated, it does nothing.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from duplex_engine.errors import DuplexError
from duplex_engine.model_plugins.personaplex.files import CODEC, CONFIG, MODEL, REPOSITORY, TEXT, VOICES
from duplex_engine.model_plugins.personaplex.text import EXTRA_COMMAND
from duplex_engine.model_plugins.shared.progress import MEBIBYTE, Bar

HUB_VARIABLE: Final = "HF_ENDPOINT"
DEFAULT_HUB: Final = "https://huggingface.co"
ORDER: Final = (CONFIG, TEXT, VOICES, CODEC, MODEL)
"""Small files first, so that whatever is wrong shows before gigabytes have travelled."""
BLOCK_BYTES: Final = 1 << 20
PATIENCE_S: Final = 30.0
PARTIAL: Final = 206
SHA1_DIGITS: Final = 40
SHA256_DIGITS: Final = 64


class FetchFailed(DuplexError):
    """The files could not be brought here; the message says what to do. `exit_code` is the command's."""

    exit_code = 1


class HubRefused(FetchFailed):
    """The hub does not let this account have the files, or does not have them."""

    exit_code = 3


class HubUnreachable(FetchFailed):
    """No hub answered, or it went away in mid-file; what has arrived is kept."""

    exit_code = 4


@attrs.frozen(kw_only=True)
class Source:
    """Where a checkpoint is fetched from."""

    repository: str = REPOSITORY
    revision: str = "main"
    hub: str = attrs.Factory(lambda: os.environ.get(HUB_VARIABLE, DEFAULT_HUB).rstrip("/"))


@attrs.frozen(kw_only=True)
class Published:
    """A file as the hub has it. `digest`: sha256, or git's sha1 of a small file; None when the hub does not say."""

    name: str
    url: str
    size: int
    digest: str | None
    commit: str | None


def fetch(folder: Path, source: Source) -> None:
    """Make every file of the checkpoint present in `folder` and checked. Raises FetchFailed."""
    hub = _library()
    _say(f"Asking {source.hub} for {source.repository}")
    published = [_look_up(hub, name, source) for name in ORDER]
    missing = [file for file in published if not _fits(folder / file.name, file)]
    _say(
        f"{source.repository} at {published[0].commit or source.revision}, {_size(published)} in {len(published)} files"
    )
    if missing:
        _make_room(folder, missing)
        _say(f"Fetching {_size(missing)} to {folder}")
    for file in missing:
        _download(hub, folder, file, source)
    _say(f"The checkpoint in {folder} is complete.")


def _say(text: object) -> None:
    print(text, flush=True)  # the bars go to standard error, and the two should keep their order


def _size(files: list[Published]) -> str:
    return f"{sum(file.size for file in files) / MEBIBYTE:,.1f} MiB"


def _library() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.errors
        import huggingface_hub.utils
    except ImportError as error:
        raise FetchFailed(f"the package huggingface_hub cannot be imported ({error}); run: {EXTRA_COMMAND}") from error
    return huggingface_hub


def _look_up(hub: Any, name: str, source: Source) -> Published:
    with _refusals_explained(hub, name, source):
        url = hub.hf_hub_url(source.repository, name, revision=source.revision, endpoint=source.hub)
        found = hub.get_hf_file_metadata(url, endpoint=source.hub)
    if found.size is None:
        raise HubUnreachable(f"{source.hub} does not say how large {name} is; is it a model hub? Check {HUB_VARIABLE}")
    return Published(name=name, url=url, size=found.size, digest=found.etag, commit=found.commit_hash)


# --- what is here --------------------------------------------------------------------------------------------------


def _fits(path: Path, file: Published) -> bool:
    """Whether the bytes are there and the published ones, as far as the hub says what those are."""
    digest = file.digest or ""
    if not path.is_file() or path.stat().st_size != file.size:
        return False
    if len(digest) == SHA256_DIGITS:
        return _digest_of(path, file, hashlib.sha256()) == digest
    if len(digest) == SHA1_DIGITS:
        return _digest_of(path, file, hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)) == digest
    return True


def _digest_of(path: Path, file: Published, digest: "hashlib._Hash") -> str:
    with path.open("rb") as content, Bar(f"  checking {file.name}", file.size) as bar:
        while block := content.read(BLOCK_BYTES):
            digest.update(block)
            bar.advance(len(block))
    return digest.hexdigest()


def _make_room(folder: Path, missing: list[Published]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FetchFailed(f"the directory {folder} cannot be made ({error})") from error
    arrived = sum(part.stat().st_size for part in (_part(folder, file) for file in missing) if part.exists())
    needed = sum(file.size for file in missing) - arrived
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise FetchFailed(
            f"{folder} has {free // MEBIBYTE} MiB free, {needed // MEBIBYTE} MiB are needed; make room, or fetch elsewhere"
        )


def _part(folder: Path, file: Published) -> Path:
    """Where an unfinished download waits; another version of the same file waits elsewhere."""
    return folder / f"{file.name}.{(file.digest or 'unknown')[:12]}.part"


# --- what is not ---------------------------------------------------------------------------------------------------


def _download(hub: Any, folder: Path, file: Published, source: Source) -> None:
    part = _part(folder, file)
    part.touch()
    if part.stat().st_size > file.size:
        part.write_bytes(b"")
    have = part.stat().st_size
    with Bar(f"  {file.name}", file.size) as bar:
        bar.reach(have)
        while have < file.size:
            before = have
            failure = _go_on(hub, part, file, source, bar)
            have = part.stat().st_size
            if have <= before:
                raise failure or HubUnreachable(
                    f"{source.hub} sends no more of {file.name} than {have} of {file.size} bytes"
                )
    if not _fits(part, file):
        aside = part.with_suffix(".refused")
        part.replace(aside)
        raise FetchFailed(f"what arrived as {file.name} is not what was published; set aside as {aside}, fetch again")
    part.replace(folder / file.name)


def _go_on(hub: Any, part: Path, file: Published, source: Source, bar: Bar) -> HubUnreachable | None:
    """Ask for what is still missing, and append what arrives. Returns why the connection broke, if it did."""
    have = part.stat().st_size
    headers = {**hub.utils.build_hf_headers(), "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = hub.get_session().stream("GET", file.url, headers=headers, timeout=PATIENCE_S, follow_redirects=True)
    try:
        with _refusals_explained(hub, file.name, source), request as response:
            hub.utils.hf_raise_for_status(response)
            with part.open("ab" if response.status_code == PARTIAL else "wb") as target:
                for block in response.iter_bytes():
                    target.write(block)
                    bar.reach(target.tell())
    except HubUnreachable as failure:
        return failure
    return None


# --- why not -------------------------------------------------------------------------------------------------------


@attrs.frozen
class Reason:
    """What an error of the hub's library means. The first whose `error`, `status` and `login` all fit is given.

    `status`: of the HTTP answer; `login`: whether there is a token; None fits any.
    """

    error: str
    outcome: type[FetchFailed]
    sentence: str
    status: int | None = None
    login: bool | None = None


NOT_FOR_EVERYBODY: Final = (
    "there is no repository {repository} on {hub} that everybody may read; if it is private, log in with `hf auth login` "
    "(or set HF_TOKEN), and fetch again"
)
REASONS: Final = (
    Reason(
        "GatedRepoError",
        HubRefused,
        "{repository} is gated: accept its licence at {hub}/{repository}, log in with `hf auth login` (or set HF_TOKEN), "
        "and fetch again",
        login=False,
    ),
    Reason(
        "GatedRepoError",
        HubRefused,
        "{repository} is gated, and the account of your token has not been let in: accept the licence at "
        "{hub}/{repository} with that account, and fetch again",
    ),
    Reason("RevisionNotFoundError", HubRefused, "{repository} has no revision {revision!r}"),
    Reason(
        "EntryNotFoundError",
        HubRefused,
        "{repository} has no file {name} at revision {revision!r}, so it is no PersonaPlex checkpoint as published",
    ),
    Reason("RepositoryNotFoundError", HubRefused, NOT_FOR_EVERYBODY, login=False),
    Reason(
        "RepositoryNotFoundError", HubRefused, "there is no repository {repository} on {hub} that your token may read"
    ),
    Reason("HFValidationError", HubRefused, "{repository!r} is no name of a repository; expected OWNER/NAME"),
    Reason("OfflineModeIsEnabled", HubUnreachable, "HF_HUB_OFFLINE is set; unset it to fetch"),
    Reason("HfHubHTTPError", HubRefused, NOT_FOR_EVERYBODY, status=401, login=False),
    Reason(
        "HfHubHTTPError",
        HubRefused,
        "{hub} does not accept your token; log in again with `hf auth login` (or set HF_TOKEN), and fetch again",
        status=401,
    ),
    Reason(
        "HfHubHTTPError",
        HubRefused,
        "your token may not read {repository}: let it read gated repositories at {hub}/settings/tokens, and fetch again",
        status=403,
    ),
    Reason(
        "HfHubHTTPError",
        HubUnreachable,
        "{hub} answered with status {status}; fetch again later, what has arrived is kept",
    ),
    Reason(
        "HTTPError",
        HubUnreachable,
        "{hub} cannot be reached ({error}); check the network or HTTPS_PROXY, or name a mirror in HF_ENDPOINT, and "
        "fetch again: what has arrived is kept",
    ),
)


@contextmanager
def _refusals_explained(hub: Any, name: str, source: Source) -> Iterator[None]:
    expected = (hub.errors.HTTPError, hub.errors.OfflineModeIsEnabled, hub.errors.HFValidationError)
    try:
        yield
    except expected as error:
        raise explained(error, hub.get_token, name, source) from error


def explained(error: Exception, token: Callable[[], str | None], name: str, source: Source) -> FetchFailed:
    """What to tell the user about an error of the hub's library while it looked for the file `name`."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    status = getattr(getattr(error, "response", None), "status_code", None)
    login = token() is not None
    for reason in REASONS:
        fits = reason.error in kinds and reason.status in (None, status) and reason.login in (None, login)
        if fits:
            facts = {"name": name, "status": status, "error": str(error) or type(error).__name__}
            return reason.outcome(reason.sentence.format(**facts, **attrs.asdict(source)))
    return FetchFailed(f"{source.repository} could not be fetched from {source.hub}: {error}")
