"""Words to tokens and back, on vocabularies trained on the spot."""

import io
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from duplex_engine.errors import ConfigRejected
from duplex_engine.model_plugins.personaplex.sizes import CheckpointRejected
from duplex_engine.model_plugins.personaplex.text import Pieces, Vocabulary, open_vocabulary, wrap_persona

SENTENCES = [
    f"you are a {who} who {does} the {what}"
    for who in ("wise teacher", "friend", "clerk", "cook")
    for does in ("explains", "enjoys", "sells")
    for what in ("weather", "bread", "question", "music", "sea")
]


def train(path: Path, pieces: int, *, byte_fallback: bool) -> Vocabulary:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_writer=model,
        model_type="bpe",
        vocab_size=pieces,
        byte_fallback=byte_fallback,
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=3,
        normalization_rule_name="identity",
        num_threads=1,
        minloglevel=2,
        hard_vocab_limit=False,
    )
    path.write_bytes(model.getvalue())
    return open_vocabulary(path)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return train(tmp_path_factory.mktemp("text") / "with_bytes.model", 384, byte_fallback=True)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return train(tmp_path_factory.mktemp("text") / "without.model", 80, byte_fallback=False)


def told(vocabulary: Vocabulary, tokens: list[int]) -> list[str]:
    pieces = vocabulary.pieces()
    return [*(pieces.tell(token) for token in tokens), pieces.end()]


def tokens_of(vocabulary: Vocabulary, text: str) -> list[int]:
    return list(vocabulary._processor.encode(text))


# --- what the agent says -------------------------------------------------------------------------------------------

WORDS = ("", "", "", "", " the", "re", " ", b"\xe2", b"\x82", b"\xac", b"\xf0", b"\x9f", b"A")
"""Tokens 0 to 3 say nothing; 4 to 6 are text; 7 to 9 are the bytes of a euro sign; 10 and 11 begin an emoji."""


@pytest.mark.parametrize(
    ("tokens", "deltas"),
    [
        ([0, 1, 2, 3], ["", "", "", "", ""]),
        ([4, 5], [" the", "re", ""]),
        ([3, 4, 3, 3, 5, 0], ["", " the", "", "", "re", "", ""]),
        ([7, 8, 9], ["", "", "€", ""]),
        ([7, 3, 8, 0, 9], ["", "", "", "", "€", ""]),
        ([12, 7, 8, 9, 12], ["A", "", "", "€", "A", ""]),
        ([7, 8, 4], ["", "", "\ufffd the", ""]),
        ([7, 7, 8, 9], ["", "\ufffd", "", "€", ""]),
        ([7, 8], ["", "", "\ufffd"]),
        ([8, 4], ["\ufffd", " the", ""]),
        ([10, 11, 7, 8, 9, 4], ["", "", "\ufffd", "", "€", " the", ""]),
        ([13, 4000, -1, 4], ["", "", "", " the", ""]),
    ],
)
def test_deltas(tokens: list[int], deltas: list[str]) -> None:
    pieces = Pieces(WORDS)
    assert [*(pieces.tell(token) for token in tokens), pieces.end()] == deltas
    assert pieces.end() == ""


@given(st.lists(st.integers(-1, len(WORDS))))
def test_nothing_is_held_up_and_nothing_said_is_lost(tokens: list[int]) -> None:
    pieces = Pieces(WORDS)
    whole = b""
    held = 0
    transcript = ""
    for token in tokens:
        delta = pieces.tell(token)
        transcript += delta
        said = WORDS[token] if 0 <= token < len(WORDS) else ""
        whole += said.encode() if isinstance(said, str) else said
        held = held + 1 if isinstance(said, bytes) and not delta else (held if not said else 0)
        assert held <= 3, "a character has at most four bytes, so three may wait"
    assert transcript + pieces.end() == whole.decode("utf-8", "replace")


def test_two_calls_do_not_share_half_a_character() -> None:
    one, other = Pieces(WORDS), Pieces(WORDS)
    assert [one.tell(7), other.tell(4), one.tell(8), other.tell(9), one.tell(9)] == ["", " the", "", "\ufffd", "€"]


# --- a real vocabulary ---------------------------------------------------------------------------------------------

PLAIN = st.text(st.characters(exclude_categories=("Cs",), exclude_characters=" \u2581\0")).filter(bool)
"""Words of any script. The vocabulary writes U+2581 for a space, so that one cannot be told from it; a NUL ends C strings."""


@given(words=st.lists(PLAIN, min_size=1, max_size=6))
def test_any_text_gives_itself_back_token_by_token(vocabulary: Vocabulary, words: list[str]) -> None:
    text = " ".join(words)
    assert "".join(told(vocabulary, tokens_of(vocabulary, text))) == f" {text}"


def test_whole_words_come_as_one_delta_and_other_scripts_character_by_character(vocabulary: Vocabulary) -> None:
    tokens = tokens_of(vocabulary, "the sea 海")
    deltas = [delta for delta in told(vocabulary, tokens) if delta]
    assert deltas[:2] == [" the", " sea"]
    assert deltas[-1] == "海"
    assert "".join(deltas) == " the sea 海"


def test_tokens_that_say_nothing(vocabulary: Vocabulary, small: Vocabulary) -> None:
    for each in (vocabulary, small):
        assert [each.says[token] for token in range(4)] == [""] * 4
    assert sum(isinstance(said, bytes) for said in vocabulary.says) == 256
    assert not any(isinstance(said, bytes) for said in small.says)


def test_a_vocabulary_without_bytes_passes_over_what_it_does_not_know(small: Vocabulary) -> None:
    assert "".join(told(small, tokens_of(small, "the 海 sea"))) == " the  sea"


# --- personas ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wrapped"),
    [
        ("You are a cook.", "<system> You are a cook. <system>"),
        ("  You are a cook.\n", "<system> You are a cook. <system>"),
        ("<system> You are a cook. <system>", "<system> You are a cook. <system>"),
        (" <system>You are a cook.<system> ", "<system>You are a cook.<system>"),
        ("<system> half", "<system> <system> half <system>"),
        ("half <system>", "<system> half <system> <system>"),
        ("<system>", "<system> <system> <system>"),
        ("", ""),
        (" \n\t", ""),
    ],
)
def test_a_persona_stands_between_tags(text: str, wrapped: str) -> None:
    assert wrap_persona(text) == wrapped


@given(st.text())
def test_wrapping_twice_is_wrapping_once(text: str) -> None:
    once = wrap_persona(text)
    assert wrap_persona(once) == once


def test_a_persona_is_plain_tokens_without_begin_and_end(vocabulary: Vocabulary) -> None:
    tokens = vocabulary.persona("you are a cook")
    assert "".join(told(vocabulary, list(tokens))) == " <system> you are a cook <system>"
    assert not set(tokens) & {1, 2}
    assert vocabulary.persona("  ") == ()


@pytest.mark.parametrize(("limit", "characters", "fits"), [(1000, 1000, True), (1000, 1001, False), (5, 6, False)])
def test_the_bound_of_a_persona(vocabulary: Vocabulary, limit: int, characters: int, fits: bool) -> None:
    text = f" {'x' * characters}\n"
    if fits:
        assert vocabulary.persona(text, limit)
        return
    with pytest.raises(ConfigRejected, match=f"the persona has {characters} characters; at most {limit} are read"):
        vocabulary.persona(text, limit)


# --- the file ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x0a\xff\xff\xff"])
def test_a_file_that_is_no_vocabulary(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.model"
    path.write_bytes(content)
    with pytest.raises(CheckpointRejected, match=r"broken\.model: not a readable text tokenizer"):
        open_vocabulary(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointRejected, match=r"absent\.model: not a readable text tokenizer"):
        open_vocabulary(tmp_path / "absent.model")
