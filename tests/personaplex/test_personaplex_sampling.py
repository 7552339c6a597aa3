"""Drawing tokens: the distribution, and streams that depend on nothing but a call's own seed and age."""

import attrs
import pytest
import torch
from personaplex_kit import CPU, GREEDY, Tiny, random_codes, speak_alone
from torch import Tensor

from duplex_engine.model_plugins.personaplex.calls import Calls
from duplex_engine.model_plugins.personaplex.sampling import MAX_TOP_K, Draws, Sampling
from duplex_engine.model_plugins.personaplex.sizes import CODEBOOKS

ROWS = 500
FRAMES = 25
"""Of eight codes for each row: 1e5 draws in all."""


def chance_of_worse(drawn: Tensor, probabilities: Tensor) -> float:
    """p of a chi-square test that tokens (N,) follow the probabilities (cards,); rare ones are taken together."""
    expected = probabilities * len(drawn)
    counts = torch.bincount(drawn, minlength=len(probabilities)).double()
    assert not counts[probabilities == 0].any()
    common = expected >= 5
    counts = torch.cat([counts[common], counts[~common].sum().view(1)])
    expected = torch.cat([expected[common], expected[~common].sum().view(1)])
    used = expected > 0
    statistic = ((counts - expected)[used] ** 2 / expected[used]).sum()
    return float(torch.special.gammaincc((used.sum() - 1).double() / 2, statistic / 2))


def expected_of(logits: Tensor, temperature: float, top_k: int) -> Tensor:
    """Softmax of logits over temperature, of the k likeliest."""
    spread = (logits.double() / temperature).softmax(-1)
    kept = torch.zeros_like(spread).scatter(0, logits.topk(top_k).indices, 1.0)
    return spread * kept / (spread * kept).sum()


@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(text_temperature=1.5, text_top_k=3, audio_temperature=0.3, audio_top_k=40)],
)
def test_draws_follow_the_softmax_of_the_likeliest(sampling: Sampling) -> None:
    draws = Draws(ROWS, CPU)
    for row in range(ROWS):
        draws.begin(row, attrs.evolve(sampling, seed=row))
    random = torch.Generator().manual_seed(1)
    text_logits, audio_logits = torch.randn(384, generator=random), 2 * torch.randn(512, generator=random)
    texts, codes = [], []
    for _ in range(FRAMES):
        noise = draws.next_frame(list(range(ROWS)))
        texts.append(draws.draw(text_logits.expand(ROWS, -1), noise[:, 0], text=True))
        for codebook in range(CODEBOOKS):
            codes.append(draws.draw(audio_logits.expand(ROWS, -1), noise[:, 1 + codebook], text=False))
    text = expected_of(text_logits, sampling.text_temperature, sampling.text_top_k)
    audio = expected_of(audio_logits, sampling.audio_temperature, sampling.audio_top_k)
    assert chance_of_worse(torch.cat(texts), text) > 1e-3
    assert chance_of_worse(torch.cat(codes), audio) > 1e-3


def test_the_check_of_a_distribution_can_fail() -> None:
    drawn = torch.tensor([0] * 520 + [1] * 480)
    assert chance_of_worse(drawn, torch.tensor([0.5, 0.5])) > 0.1
    assert chance_of_worse(drawn, torch.tensor([0.4, 0.6])) < 1e-6


@torch.inference_mode()
def test_a_seed_says_the_same_whoever_else_is_there(tiny: Tiny) -> None:
    snapshot, user, frames = tiny.snapshot(), random_codes(30, 1), 30
    mine = Sampling(seed=7)
    calls = Calls(tiny.model, 4)
    others = [Sampling(seed=1), mine, GREEDY, Sampling(seed=7, audio_temperature=0.5)]
    for row, sampling in enumerate(others):
        calls.open(row, snapshot, sampling)
    said = [calls.step([0, 1, 2, 3], user[frame].expand(4, -1)) for frame in range(frames)]
    among = torch.stack([torch.cat([frame.text[1:2], frame.codes[1]]) for frame in said])
    assert torch.equal(among, speak_alone(tiny.model, snapshot, user, mine, rows=4, row=3))
    assert torch.equal(among, speak_alone(tiny.model, snapshot, user, mine))
    assert not torch.equal(among, speak_alone(tiny.model, snapshot, user, Sampling(seed=8)))
    assert not torch.equal(among, speak_alone(tiny.model, snapshot, user, GREEDY))


@torch.inference_mode()
def test_calls_without_a_seed_differ(tiny: Tiny) -> None:
    snapshot, user = tiny.snapshot(), random_codes(8, 1)
    said = [speak_alone(tiny.model, snapshot, user, Sampling()) for _ in range(2)]
    assert not torch.equal(*said)


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(text_top_k=1, audio_top_k=1, seed=1)])
def test_the_likeliest_is_taken_without_temperature_or_choice(sampling: Sampling) -> None:
    draws = Draws(3, CPU)
    for row in range(3):
        draws.begin(row, sampling)
    logits = torch.randn(3, 2048, generator=torch.Generator().manual_seed(2))
    noise = draws.next_frame([0, 1, 2])
    for number in range(1 + CODEBOOKS):
        assert torch.equal(draws.draw(logits, noise[:, number], text=number == 0), logits.argmax(-1))


def test_text_and_sound_have_settings_of_their_own() -> None:
    draws = Draws(1, CPU)
    draws.begin(0, Sampling(text_temperature=0, seed=3))
    logits = torch.randn(1, 2048, generator=torch.Generator().manual_seed(3))
    drawn = set()
    for _ in range(20):
        noise = draws.next_frame([0])
        assert draws.draw(logits, noise[:, 0], text=True) == logits.argmax()
        drawn.add(int(draws.draw(logits, noise[:, 1], text=False)))
    assert len(drawn) > 5
    assert drawn <= set(logits.topk(MAX_TOP_K).indices[0].tolist())
