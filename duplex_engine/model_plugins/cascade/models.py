"""Finding the cascade's weights on this machine, by content.

Owns the cache directory, the search (cache first, then installed packages, which are searched and never imported) and
the check of every file against the lock. Never fetches: what is missing is an error that carries the command to run.
"""

import hashlib
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from duplex_engine.errors import DuplexError
from duplex_engine.model_plugins.cascade.lock import LockedFile, LockedModel, Part, locked_models

LANGUAGE: Final = "language"
CACHE_VARIABLE: Final = "DUPLEX_ENGINE_CACHE"
EXTRA_COMMAND: Final = "pip install 'duplex-engine[cascade]'"
GGUF_MAGIC: Final = b"GGUF"
BLOCK_BYTES: Final = 1 << 22


class ModelMissing(DuplexError):
    """A model, or the package that runs it, is not on this machine; the message says which command brings it."""


class ModelRefused(DuplexError):
    """A file is there, but it is not the one the lock names."""


# --- What to look for ----------------------------------------------------------------------------------------------


def model_named(name: str) -> LockedModel:
    """The locked model with this name or alias. Raises ModelMissing."""
    for model in locked_models():
        if model.known_as(name):
            return model
    known = ", ".join(model.name for model in locked_models())
    raise ModelMissing(f"there is no model {name!r}; the lock has {known}")


def locked(choice: str) -> bool:
    """Whether `--llm` means one of the models in the lock, and not a file of the user's own."""
    return any(model.role == LANGUAGE and model.known_as(choice) for model in locked_models())


def chosen_language_model(choice: str) -> LockedModel | Path:
    """What `--llm` means: a locked language model by name or alias, else a GGUF file of the user's own.

    Raises ModelMissing for a path that does not exist or is no GGUF file, and for any other word.
    """
    languages = [model for model in locked_models() if model.role == LANGUAGE]
    for model in languages:
        if model.known_as(choice):
            return model
    path = Path(choice).expanduser()
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(GGUF_MAGIC)) != GGUF_MAGIC:
                raise ModelMissing(f"{path} is not a GGUF file, the only kind of language model that can be loaded")
        return path
    known = ", ".join(f"{model.alias} ({model.name})" for model in languages)
    raise ModelMissing(f"language model {choice!r} is neither a file nor one of: {known}")


def models_in_use(llm: str) -> tuple[LockedModel | Path, ...]:
    """Every model that a cascade with this language model opens, in the order of the lock."""
    chosen = chosen_language_model(llm)
    fixed = tuple(model for model in locked_models() if model.role != LANGUAGE)
    return (*fixed, chosen)


def describe(llm: str) -> Sequence[Mapping[str, object]]:
    """The models in use: role, name, version, licence, bytes."""
    return [_description(model) for model in models_in_use(llm)]


def _description(model: LockedModel | Path) -> Mapping[str, object]:
    if isinstance(model, Path):
        return {
            "role": LANGUAGE,
            "name": model.name,
            "version": "your own file",
            "licence": "unknown",
            "bytes": model.stat().st_size,
        }
    return {
        "role": model.role,
        "name": model.name,
        "version": model.version,
        "licence": model.licence,
        "bytes": model.size,
    }


# --- Where it is ---------------------------------------------------------------------------------------------------


def cache_directory() -> Path:
    """Where fetched weights live: `$DUPLEX_ENGINE_CACHE`, else `~/.cache/duplex-engine`."""
    configured = os.environ.get(CACHE_VARIABLE)
    return Path(configured).expanduser() if configured else Path.home() / ".cache" / "duplex-engine"


def locate(name: str) -> Mapping[str, Path]:
    """The files of a locked model by file name, checked. Raises ModelMissing or ModelRefused."""
    model = model_named(name)
    return {file.name: _locate_file(model, file) for file in model.files}


def locate_language_model(choice: str) -> Path:
    """The GGUF file that `choice` means, checked when it is a locked one. Raises ModelMissing or ModelRefused."""
    chosen = chosen_language_model(choice)
    return chosen if isinstance(chosen, Path) else _locate_file(chosen, chosen.files[0])


def require(package: str) -> Any:
    """Import a runtime package of the extra. Raises ModelMissing when it is not installed."""
    try:
        return import_module(package)
    except ImportError as error:
        raise ModelMissing(f"the package {package} cannot be imported ({error}); run: {EXTRA_COMMAND}") from error


def find_file(file: LockedFile) -> Path | None:
    """Where this file lies as a whole, in the cache or in an installed package; content unchecked."""
    cached = cache_directory() / file.name
    if cached.is_file():
        return cached
    return find_part(file.parts[0]) if len(file.parts) == 1 else None


def find_part(part: Part) -> Path | None:
    """Where an installed package has this part. The package is not imported."""
    spec = importlib.util.find_spec(part.module)
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(next(iter(spec.submodule_search_locations))) / part.path
    return path if path.is_file() else None


def fetch_command(model: LockedModel) -> str:
    """What to run to get this model."""
    if model.packaged:
        return EXTRA_COMMAND
    return f"python -m duplex_engine.model_plugins.cascade fetch --llm {model.alias or model.name}"


def _locate_file(model: LockedModel, file: LockedFile) -> Path:
    path = find_file(file)
    if path is None:
        raise ModelMissing(f"{file.name} of model {model.name} is not on this machine; run: {fetch_command(model)}")
    check(path, file, way_out=fetch_command(model))
    return path


# --- Whether it is the right one -----------------------------------------------------------------------------------


def check(path: Path, file: LockedFile, *, way_out: str) -> None:
    """Compare a file with the lock. Raises ModelRefused; a wrong file in the cache is set aside for a fresh fetch.

    A file that was right once is not read again while its path, size and time of change stay the same.
    """
    if _read(_record(file)) == _stamp(path):
        return
    actual = sha256_of(path) if path.stat().st_size == file.size else "(not computed: wrong size)"
    if actual != file.sha256:
        raise ModelRefused(_refusal(path, file, actual, way_out))
    mark_checked(path, file)


def mark_checked(path: Path, file: LockedFile) -> None:
    """Note that this file is the right one, so that it is not read again to find out."""
    # The note only saves time: where the cache cannot be written, files are simply read again next time.
    record = _record(file)
    try:
        record.parent.mkdir(parents=True, exist_ok=True)
        fresh = record.with_name(f"{record.name}.{os.getpid()}")
        fresh.write_text(_stamp(path), encoding="utf-8")
        fresh.replace(record)
    except OSError:
        return


def sha256_of(path: Path, advance: Callable[[int], None] = lambda count: None) -> str:
    """The sha256 of a file; `advance` is told the bytes of each block read."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
            advance(len(block))
    return digest.hexdigest()


def _refusal(path: Path, file: LockedFile, actual: str, way_out: str) -> str:
    size = path.stat().st_size
    found = f"{path} is not the {file.name} of the model lock: {size} bytes with sha256 {actual}"
    wanted = f"expected {file.size} bytes with sha256 {file.sha256}"
    if path.parent == cache_directory():
        aside = path.with_name(path.name + ".refused")
        path.replace(aside)
        return f"{found}, {wanted}. It was set aside as {aside}; run: {way_out}"
    return f"{found}, {wanted}. Its package is damaged or another release; run: {way_out} --force-reinstall"


def _record(file: LockedFile) -> Path:
    return cache_directory() / "verified" / file.sha256


def _stamp(path: Path) -> str:
    status = path.stat()
    return f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"


def _read(record: Path) -> str | None:
    try:
        return record.read_text(encoding="utf-8")
    except OSError:
        return None
