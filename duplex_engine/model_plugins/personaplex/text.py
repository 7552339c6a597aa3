"""Words to tokens and back: the persona a call begins with, and what the agent says, one token a frame.

Owns the text vocabulary: what each token adds to the transcript, how a persona is wrapped and how long it may be. Imports
no torch; `sentencepiece` is imported when a vocabulary is opened.
"""

import codecs
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from duplex_engine.errors import ConfigRejected
from duplex_engine.model_plugins.personaplex.sizes import CheckpointRejected

PAD: Final = 3
SILENT: Final = frozenset(range(4))
"""Tokens that say nothing: a word is about to begin (0), begin and end of text (1, 2), a pause (3)."""
TAG: Final = "<system>"
SPACE: Final = "\u2581"
"""How the vocabulary spells a space."""
PERSONA_CHARACTERS: Final = 1000
"""Default bound of a persona, tags not counted: about 250 tokens, each of which takes a position of the context."""
EXTRA_COMMAND: Final = "pip install 'duplex-engine[personaplex]'"


def wrap_persona(text: str) -> str:
    """The persona between its tags, as the model was trained to read it; an empty one stays empty."""
    text = text.strip()
    if not text or (text.startswith(TAG) and text.endswith(TAG) and len(text) >= 2 * len(TAG)):
        return text
    return f"{TAG} {text} {TAG}"


@attrs.frozen
class Vocabulary:
    """The text tokens of a checkpoint. `says[token]`: its text, one byte of a character, or nothing at all."""

    says: Sequence[str | bytes]
    _processor: Any = attrs.field(repr=False)

    def persona(self, text: str, limit: int = PERSONA_CHARACTERS) -> tuple[int, ...]:
        """Tokens of a persona, tags included; none for an empty one. Raises ConfigRejected when it is too long."""
        if len(text.strip()) > limit:
            raise ConfigRejected(
                "invalid_duplex_runtime_config",
                f"the persona has {len(text.strip())} characters; at most {limit} are read",
                "instructions",
            )
        return tuple(self._processor.encode(wrap_persona(text)))

    def pieces(self) -> "Pieces":
        """A transcript to be told token by token."""
        return Pieces(self.says)


def open_vocabulary(path: Path) -> Vocabulary:
    """Read a SentencePiece file. Raises CheckpointRejected when it is none, ConfigRejected without `sentencepiece`."""
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError as error:
        raise ConfigRejected(
            "model_path_unavailable", f"the package sentencepiece cannot be imported ({error}); run: {EXTRA_COMMAND}"
        ) from error
    try:
        processor = SentencePieceProcessor()
        processor.LoadFromSerializedProto(path.read_bytes())
    except (OSError, RuntimeError) as error:
        raise CheckpointRejected(f"{path}: not a readable text tokenizer: {error}") from error
    return Vocabulary(tuple(_says(processor, token) for token in range(processor.get_piece_size())), processor)


def _says(processor: Any, token: int) -> str | bytes:
    piece: str = processor.id_to_piece(token)
    if token in SILENT or processor.is_control(token) or processor.is_unknown(token):
        return ""
    if processor.is_byte(token):
        return bytes([int(piece.strip("<>"), 16)])
    return piece.replace(SPACE, " ")


class Pieces:
    """The transcript of one call: every token in, the text that is complete with it out.

    Characters outside the vocabulary come as their bytes in UTF-8, one a token; they are held back until whole. What does
    not become a character is replaced by U+FFFD as soon as that is known, so nothing is held up behind it.
    """

    def __init__(self, says: Sequence[str | bytes]) -> None:
        self._says = says
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")

    def tell(self, token: int) -> str:
        """What this token adds, often nothing. A token outside the vocabulary says nothing."""
        said = self._says[token] if 0 <= token < len(self._says) else ""
        if isinstance(said, bytes):
            return self._bytes.decode(said)
        return self.end() + said if said else ""

    def end(self) -> str:
        """The last of it: a character that was begun and will not be completed is replaced."""
        return self._bytes.decode(b"", True)
