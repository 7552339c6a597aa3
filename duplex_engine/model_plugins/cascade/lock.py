"""The model lock as typed values: which models there are, and every file of theirs by content and origin.

Owns reading `models.toml`. Never looks at a disk or a network: `models` finds files, `fetch` brings them.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import attrs


@attrs.frozen
class Part:
    """A file inside a package of the package index. `pin` is what pip installs, `path` lies inside `module`."""

    pin: str
    module: str
    path: str


@attrs.frozen
class PackageSource:
    """The file is these parts, one after the other."""

    parts: tuple[Part, ...]


@attrs.frozen
class HubSource:
    """The file as a model hub publishes it."""

    repository: str
    path: str


Source = PackageSource | HubSource


@attrs.frozen
class LockedFile:
    """One file of weights: `size` in bytes, `sha256` in lower-case hexadecimal, `sources` in the order of trying."""

    name: str
    size: int
    sha256: str
    sources: tuple[Source, ...]

    @property
    def parts(self) -> tuple[Part, ...]:
        """All parts of all package sources."""
        return tuple(part for source in self.sources if isinstance(source, PackageSource) for part in source.parts)


@attrs.frozen
class LockedModel:
    """A model and its files. `packaged`: it comes with the extra and is never fetched. `alias`: a short name."""

    name: str
    role: str
    version: str
    licence: str
    files: tuple[LockedFile, ...]
    alias: str | None = None
    packaged: bool = False

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def known_as(self, name: str) -> bool:
        """Whether `name` is the name or the alias, in any case."""
        return name.lower() in (self.name, self.alias)


@cache
def locked_models() -> tuple[LockedModel, ...]:
    """Everything in the lock, in its order."""
    text = files(__package__).joinpath("models.toml").read_text(encoding="utf-8")
    return tuple(_model(entry) for entry in tomllib.loads(text)["model"])


def _model(entry: Mapping[str, Any]) -> LockedModel:
    own = {key: value for key, value in entry.items() if key != "file"}
    return LockedModel(**own, files=tuple(_file(file) for file in entry["file"]))


def _file(entry: Mapping[str, Any]) -> LockedFile:
    sources = tuple(_source(source) for source in entry["sources"])
    return LockedFile(name=entry["name"], size=entry["size"], sha256=entry["sha256"], sources=sources)


def _source(entry: Mapping[str, Any]) -> Source:
    if "hub" in entry:
        return HubSource(**entry["hub"])
    return PackageSource(tuple(Part(**part) for part in entry["parts"]))
