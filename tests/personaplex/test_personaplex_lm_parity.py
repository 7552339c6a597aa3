"""The language model against an independent implementation of the same networks."""

import math

import pytest
import torch
from personaplex_kit import Tiny, random_rows
from torch import Tensor
from transformers_reference import depformer, reference_lm, temporal

from duplex_engine.model_plugins.personaplex.lm import Cache
from duplex_engine.model_plugins.personaplex.sizes import CODEBOOKS


def stepped(tiny: Tiny, rows: Tensor) -> Tensor:
    """Hidden states (positions, D), one position at a time."""
    model = tiny.model
    cache = Cache(model.sizes, 1, model.device, model.dtype)
    states = [
        model.step(model.embed(row.unsqueeze(0)), torch.tensor([position]), cache, model.sizes.context)
        for position, row in enumerate(rows)
    ]
    return torch.cat(states)


def extended(tiny: Tiny, rows: Tensor, chunk: int) -> Tensor:
    """Hidden states (positions, D), a chunk of positions at a time."""
    model, sizes = tiny.model, tiny.model.sizes
    keys = torch.empty(sizes.layers, len(rows), sizes.heads, sizes.head_dim)
    values = torch.empty_like(keys)
    states = [
        model.extend(model.embed(rows[start : start + chunk]), start, keys, values)
        for start in range(0, len(rows), chunk)
    ]
    return torch.cat(states)


@torch.inference_mode()
def test_a_sequence_is_thought_as_by_the_reference(tiny: Tiny) -> None:
    rows = random_rows(tiny, 120)
    hidden, logits = temporal(reference_lm(tiny.lm_file, tiny.model.sizes), rows, tiny.model.sizes.context)
    for ours in (stepped(tiny, rows), extended(tiny, rows, 120)):
        assert (ours - hidden).abs().max() < 1e-5
        assert (tiny.model.text_logits(ours) - logits).abs().max() < 1e-4
    assert logits.std() > 2  # a quiet model would agree with anything


@torch.inference_mode()
def test_a_sequence_that_outgrows_the_window_forgets_exactly_what_lies_beyond(narrow: Tiny) -> None:
    rows = random_rows(narrow, 90)
    model = reference_lm(narrow.lm_file, narrow.model.sizes)
    ours = stepped(narrow, rows)
    hidden, _ = temporal(model, rows, 24)
    assert (ours - hidden).abs().max() < 1e-5
    for wrong in (23, 25):
        hidden, _ = temporal(model, rows, wrong)
        assert (ours - hidden).abs().max() > 1e-3


@torch.inference_mode()
@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_positions_read_in_chunks_are_those_stepped_one_by_one(tiny: Tiny, chunk: int) -> None:
    rows = random_rows(tiny, 100)
    assert (extended(tiny, rows, chunk) - stepped(tiny, rows)).abs().max() < 1e-5


@torch.inference_mode()
def test_the_inner_steps_answer_as_those_of_the_reference(tiny: Tiny) -> None:
    rows = random_rows(tiny, 60)
    hidden, told = stepped(tiny, rows), rows[:, :CODEBOOKS]
    theirs = depformer(reference_lm(tiny.lm_file, tiny.model.sizes), hidden, told)
    depth = tiny.model.depth(hidden)
    ours = torch.stack([depth.step(k, told[:, k]) for k in range(CODEBOOKS)], dim=1)
    assert (ours - theirs).abs().max() < 2e-4
    assert torch.equal(ours.argmax(-1), theirs.argmax(-1))
    assert ours.std() > 2


@torch.inference_mode()
def test_half_the_precision_stays_close(tiny: Tiny) -> None:
    """bfloat16 is compared by what it is fed, never by the tokens it says."""
    rows = random_rows(tiny, 60)
    exact = tiny.model.text_logits(stepped(tiny, rows))
    half = tiny.as_bfloat16()
    rough = half.model.text_logits(stepped(half, rows))
    assert torch.cosine_similarity(exact, rough, dim=-1).min() > 0.999
    assert (exact.argmax(-1) == rough.argmax(-1)).sum() >= 57


def test_angles_are_exact_however_long_a_call_is(tiny: Tiny) -> None:
    """After a day an angle computed in single precision would be off by a few hundredths."""
    position, width = 24 * 3600 * 25 // 2, tiny.model.sizes.head_dim
    turned = tiny.model.rotation(torch.tensor([position]))[0]
    for pair in range(width // 2):
        angle = position * 10_000.0 ** (-2 * pair / width)
        assert abs(complex(turned[pair]) - complex(math.cos(angle), math.sin(angle))) < 1e-6
