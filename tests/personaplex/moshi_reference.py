"""The same networks from kyutai's package `moshi`, where it is installed, and what the golden files keep of it.

Its requirements fit no current release of torch, so it is installed without them into a folder of its own, which is put on
the path only when it is asked for: `pip install --no-deps --target FOLDER moshi==0.2.13 einops sphn tqdm`.
"""

import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import torch
from personaplex_kit import Tiny, random_codes, random_rows, random_sound
from torch import Tensor

from duplex_engine.model_plugins.personaplex.sizes import CODEBOOKS, LmSizes, MimiSizes

FOLDER: Final = Path(sys.prefix) / "peers-moshi"
GOLDEN: Final = Path(__file__).parent / "golden"
FRAMES: Final = 200
FRAMES_NARROW: Final = 100
"""A window of 24 is outgrown several times."""


def moshi(name: str) -> Any:
    """A module of the package; skips the test where it is not installed."""
    if not FOLDER.is_dir():
        pytest.skip(f"the package moshi is not in {FOLDER}")
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    return import_module(name)


@attrs.frozen
class Golden:
    """Token ids that the reference gives for a tiny checkpoint, and the file that keeps them."""

    name: str
    make: Callable[[Tiny], list[list[int]]]

    @property
    def path(self) -> Path:
        return GOLDEN / f"{self.name}.json"

    def kept(self) -> Tensor:
        """What the file says."""
        return torch.tensor(json.loads(self.path.read_text()))

    def keep(self, tiny: Tiny) -> None:
        """Ask the reference and write the file, one frame a line."""
        lines = ",\n".join(json.dumps(frame) for frame in self.make(tiny))
        self.path.write_text(f"[\n{lines}\n]\n")


def language_model(tensors: Mapping[str, Tensor], sizes: LmSizes) -> Any:
    """The language model of a file's tensors, cut to the steps that reach the agent."""
    loaders = moshi("moshi.models.loaders")
    feed_forward = 4.125
    assert sizes.hidden == 2 * int(feed_forward * sizes.dim) // 3
    arguments = loaders._lm_kwargs | {
        "dim": sizes.dim,
        "text_card": sizes.text_cards,
        "card": sizes.cards,
        "num_heads": sizes.heads,
        "num_layers": sizes.layers,
        "context": sizes.context,
        "depformer_dim": sizes.depth_dim,
        "depformer_dim_feedforward": int(feed_forward * sizes.depth_dim),
        "depformer_num_heads": sizes.depth_heads,
        "depformer_num_layers": sizes.depth_layers,
    }
    model = moshi("moshi.models.lm").LMModel(device="cpu", dtype=torch.float32, **arguments)
    model.load_state_dict(dict(eight_steps(tensors, sizes)), strict=True)
    return model.eval()


def eight_steps(tensors: Mapping[str, Tensor], sizes: LmSizes) -> Mapping[str, Tensor]:
    """The tensors without the inner steps that guess what the user says."""
    kept = dict(tensors)
    for k in range(CODEBOOKS, sizes.depth_steps):
        kept.pop(f"depformer_emb.{k - 1}.weight")
        for name in (f"depformer_in.{k}.weight", f"linears.{k}.weight"):
            kept.pop(name)
        for number in range(sizes.depth_layers):
            for part in ("linear_in", "linear_out"):
                kept.pop(f"depformer.layers.{number}.gating.{k}.{part}.weight")
    for number in range(sizes.depth_layers):
        for part, rows in (("in_proj_weight", 3), ("out_proj.weight", 1)):
            name = f"depformer.layers.{number}.self_attn.{part}"
            kept[name] = kept[name][: CODEBOOKS * rows * sizes.depth_dim]
    return kept


def codec(tensors: Mapping[str, Tensor], sizes: MimiSizes) -> Any:
    """The codec of a file's tensors."""
    loaders = moshi("moshi.models.loaders")
    seanet = loaders._seanet_kwargs | {"dimension": sizes.dim, "n_filters": sizes.filters}
    quantizer = loaders._quantizer_kwargs | {
        "dimension": sizes.codebook_dim,
        "n_q": sizes.codebooks,
        "bins": sizes.cards,
        "input_dimension": sizes.dim,
        "output_dimension": sizes.dim,
    }
    transformer = loaders._transformer_kwargs | {
        "d_model": sizes.dim,
        "num_heads": sizes.heads,
        "num_layers": sizes.layers,
        "context": sizes.context,
        "dim_feedforward": sizes.hidden,
        "input_dimension": sizes.dim,
        "output_dimensions": [sizes.dim],
    }
    made = loaders._mimi_config | {"seanet": seanet, "quantizer": quantizer, "transformer": transformer}
    model = loaders.get_mimi(None, made)
    model.load_state_dict(dict(tensors), strict=True)
    return model


def uncompiled() -> Any:
    """A block in which the package compiles nothing."""
    return moshi("moshi.utils.compile").no_compile()


@torch.no_grad()
def duplex_run(tiny: Tiny, frames: int = FRAMES) -> list[list[int]]:
    """Text and codes of frames 1 to `frames` of a greedy call without a prompt; the user's codes mean nothing."""
    model = language_model(tiny.lm_file, tiny.model.sizes)
    with uncompiled():
        generator = moshi("moshi.models.lm").LMGen(model, use_sampling=False)
        with generator.streaming(1):
            said = [generator.step(frame.unsqueeze(-1)) for frame in random_codes(frames + 1, 1)]
    return [frame[0, :, 0].tolist() for frame in said[1:]]


@torch.no_grad()
def forced(tiny: Tiny) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, text logits and logits of all inner steps for 60 positions whose tokens are given."""
    model, rows = language_model(tiny.lm_file, tiny.model.sizes), random_rows(tiny, 60)
    with uncompiled():
        hidden, text = model.forward_text(rows.T.unsqueeze(0))
        inner = model.forward_depformer_training(rows.T.unsqueeze(0), hidden)
    return hidden[0], text[0, 0], inner[0].transpose(0, 1)


def likeliest(tiny: Tiny) -> list[list[int]]:
    """The likeliest tokens of all 60 positions."""
    _, text, inner = forced(tiny)
    return torch.cat([text.argmax(-1, keepdim=True), inner.argmax(-1)], dim=1).tolist()


@torch.no_grad()
def heard(tiny: Tiny) -> list[list[int]]:
    """Codes of 100 frames of sound, as one recording."""
    with uncompiled():
        model = codec(tiny.codec_file, tiny.checkpoint.mimi.sizes)
        return model.encode(random_sound(100, 1).view(1, 1, -1))[0].T.tolist()


DUPLEX = Golden("duplex", duplex_run)
DUPLEX_NARROW = Golden("duplex_narrow", partial(duplex_run, frames=FRAMES_NARROW))
LIKELIEST = Golden("likeliest", likeliest)
HEARD = Golden("heard", heard)
