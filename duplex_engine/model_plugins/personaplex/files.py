"""Where a checkpoint's files are: names as published, in a directory, or brought from a model hub.

Owns the names, and what to say when a file is missing or a hub refuses. Reads no tensors and imports no torch.
"""

import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final

import attrs

from duplex_engine.errors import ConfigRejected
from duplex_engine.model_plugins.personaplex.sizes import CheckpointRejected

REPOSITORY: Final = "nvidia/personaplex-7b-v1"
CONFIG: Final = "config.json"
MODEL: Final = "model.safetensors"
CODEC: Final = "tokenizer-e351c8d8-checkpoint125.safetensors"
TEXT: Final = "tokenizer_spm_32k_3.model"
VOICES: Final = "voices.tgz"
NEEDED: Final = (CONFIG, MODEL, CODEC, TEXT, VOICES)
VOICE: Final = re.compile(r"voices/([A-Za-z0-9][\w-]*)\.pt")
"""What a voice's member of the archive is called; whatever else lies there is no voice."""
VOICE_BYTES: Final = 64 * 1024 * 1024
"""More than any voice needs."""


@attrs.frozen
class CheckpointFiles:
    """A directory that holds all files of a checkpoint."""

    folder: Path

    @property
    def config(self) -> Path:
        """What shapes cannot tell; the published one is empty."""
        return self.folder / CONFIG

    @property
    def model(self) -> Path:
        """The language model."""
        return self.folder / MODEL

    @property
    def codec(self) -> Path:
        """The audio codec."""
        return self.folder / CODEC

    @property
    def text(self) -> Path:
        """The text tokenizer."""
        return self.folder / TEXT

    @property
    def voices(self) -> Path:
        """The archive of voices."""
        return self.folder / VOICES


def find_checkpoint(place: str) -> CheckpointFiles:
    """The files in a directory. Raises ConfigRejected naming what is missing and the command that brings it."""
    folder = Path(place).expanduser()
    if not folder.is_dir():
        raise ConfigRejected(
            "model_path_unavailable",
            f"{place} is not a directory; bring the published files with "
            f"`python -m duplex_engine.model_plugins.personaplex fetch {place}`, "
            f"or make a tiny model with `... personaplex make-tiny {place}`",
            "checkpoint",
        )
    missing = [name for name in NEEDED if not (folder / name).is_file()]
    if missing:
        raise ConfigRejected(
            "model_path_unavailable",
            f"{folder} lacks {', '.join(missing)}; `python -m duplex_engine.model_plugins.personaplex fetch {place}` "
            "brings what is missing",
            "checkpoint",
        )
    return CheckpointFiles(folder)


def voice_names(archive: Path) -> Sequence[str]:
    """Names of all voices in the archive, without their suffix, in order. Raises CheckpointRejected."""
    with _opened(archive) as tar:
        names = sorted({name for member in tar if (name := _voice_in(member))})
    if not names:
        raise CheckpointRejected(f"{archive}: there is no voices/NAME.pt in it")
    return names


def read_voice(archive: Path, name: str) -> bytes:
    """The bytes of a voice, read from the archive where it is: nothing is ever extracted. Raises CheckpointRejected."""
    with _opened(archive) as tar:
        for member in tar:
            if _voice_in(member) == name and member.size <= VOICE_BYTES:
                file = tar.extractfile(member)
                if file is not None:
                    return file.read()
    raise CheckpointRejected(f"{archive}: there is no usable voices/{name}.pt in it")


def _voice_in(member: tarfile.TarInfo) -> str | None:
    """The name of the voice that a member of the archive is."""
    match = VOICE.fullmatch(str(PurePosixPath(member.name)))
    return match[1] if match and member.isfile() else None


@contextmanager
def _opened(archive: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(archive) as tar:
            yield tar
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise CheckpointRejected(f"{archive}: not a readable archive: {error}") from error
