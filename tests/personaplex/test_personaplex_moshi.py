"""Model and codec against kyutai's package: where it is installed itself, everywhere by what it once said."""

import pytest
import torch
from moshi_reference import (
    DUPLEX,
    DUPLEX_NARROW,
    FRAMES,
    FRAMES_NARROW,
    HEARD,
    LIKELIEST,
    Golden,
    codec,
    forced,
    uncompiled,
)
from personaplex_kit import (
    Tiny,
    bare_snapshot,
    decode_alone,
    encode_alone,
    random_codes,
    random_rows,
    random_sound,
    speak_alone,
)
from torch import Tensor

from duplex_engine.model_plugins.personaplex.mimi import Codec
from duplex_engine.model_plugins.personaplex.sizes import CODEBOOKS


def duplex(tiny: Tiny, frames: int) -> Tensor:
    """Frames 1 to `frames` of a greedy call without a prompt."""
    return speak_alone(tiny.model, bare_snapshot(tiny.model), random_codes(frames + 1, 1)[1:])


def ours_forced(tiny: Tiny) -> tuple[Tensor, Tensor, Tensor]:
    """What `forced` asks of the reference."""
    model, sizes, rows = tiny.model, tiny.model.sizes, random_rows(tiny, 60)
    keys = torch.empty(sizes.layers, len(rows), sizes.heads, sizes.head_dim)
    hidden = model.extend(model.embed(rows), 0, keys, torch.empty_like(keys))
    depth = model.depth(hidden)
    return hidden, model.text_logits(hidden), torch.stack([depth.step(k, rows[:, k]) for k in range(CODEBOOKS)], 1)


@torch.inference_mode()
def test_a_call_says_what_the_reference_said(tiny: Tiny) -> None:
    assert torch.equal(duplex(tiny, FRAMES), DUPLEX.kept())


@torch.inference_mode()
def test_a_call_beyond_its_window_says_what_the_reference_said(narrow: Tiny) -> None:
    kept = DUPLEX_NARROW.kept()
    assert torch.equal(duplex(narrow, FRAMES_NARROW), kept)
    assert not torch.equal(kept, DUPLEX.kept()[:FRAMES_NARROW])


@torch.inference_mode()
def test_the_likeliest_tokens_are_those_of_the_reference(tiny: Tiny) -> None:
    _, text, inner = ours_forced(tiny)
    assert torch.equal(torch.cat([text.argmax(-1, keepdim=True), inner.argmax(-1)], 1), LIKELIEST.kept())


@torch.inference_mode()
def test_sound_is_heard_as_the_reference_heard_it(tiny: Tiny) -> None:
    assert torch.equal(encode_alone(Codec(tiny.checkpoint.mimi, 1), random_sound(100, 1)), HEARD.kept())


@torch.inference_mode()
def test_logits_are_those_of_the_reference(tiny: Tiny) -> None:
    for ours, theirs, limit in zip(ours_forced(tiny), forced(tiny), (1e-5, 1e-4, 1e-4), strict=True):
        assert (ours - theirs).abs().max() < limit


@torch.inference_mode()
def test_codes_sound_as_the_reference_plays_them(tiny: Tiny) -> None:
    mimi, codes = tiny.checkpoint.mimi, random_codes(100, 2)[:, 0]
    with uncompiled():
        theirs = codec(tiny.codec_file, mimi.sizes).decode(codes.T.unsqueeze(0)).view(100, -1)
    assert (decode_alone(Codec(mimi, 1), codes) - theirs).abs().max() < 2e-5


@pytest.mark.parametrize("golden", [DUPLEX, DUPLEX_NARROW, LIKELIEST, HEARD], ids=lambda golden: golden.name)
def test_the_golden_files_are_what_the_reference_says_now(golden: Golden, tiny: Tiny, narrow: Tiny) -> None:
    assert golden.kept().tolist() == golden.make(narrow if golden is DUPLEX_NARROW else tiny)
