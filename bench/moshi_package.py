"""The `moshi` package on a checkpoint of ours: the same weights, another implementation. For comparison only.

It lies beside the environment, because its pins cannot be met together with torch 2.13:

    python -m pip install --no-deps --target .venv/peers-moshi moshi==0.2.13 einops sphn tqdm
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from duplex_engine.model_plugins.personaplex.files import CheckpointFiles
from duplex_engine.model_plugins.personaplex.sizes import CODEBOOKS, LmSizes, MimiSizes
from duplex_engine.model_plugins.personaplex.weights import check_lm, check_mimi

PLACE = Path(__file__).parent.parent / ".venv" / "peers-moshi"
DELAYS = [0, *([0, *[1] * (CODEBOOKS - 1)] * 2)]


def loaders() -> Any:
    """The package's module of loaders. Raises SystemExit with the way out when it is not installed."""
    if str(PLACE) not in sys.path:
        sys.path.append(str(PLACE))
    try:
        from moshi.models import loaders
    except ImportError as error:
        raise SystemExit(f"the moshi package cannot be imported ({error}); {__doc__}") from error
    return loaders


class MoshiPackage:
    """`rows` calls on one checkpoint with 8 inner steps, stepped together; the package's own defaults for sampling."""

    def __init__(self, files: CheckpointFiles, rows: int) -> None:
        config = json.loads(files.config.read_text())
        lm, mimi = check_lm(files.model, config), check_mimi(files.codec, config)
        self._lm = loaders().get_moshi_lm(files.model, _lm_arguments(lm), device="cpu", dtype=torch.float32)
        self._mimi = loaders().get_mimi(files.codec, _mimi_arguments(mimi), num_codebooks=CODEBOOKS)
        from moshi.models import LMGen

        self._generation = LMGen(self._lm, support_out_of_sync=True)
        self._generation.streaming_forever(rows)
        self._mimi.streaming_forever(rows)

    @torch.no_grad()
    def encode(self, sound: Tensor) -> Tensor:
        """Codes (R, 8, 1) of one frame of sound (R, 1, 1920)."""
        return self._mimi.encode(sound)

    def step(self, codes: Tensor) -> Tensor:
        """Tokens (R, 9, 1) of one frame, text first; negative before the first frame is complete."""
        return self._generation.step(codes)

    @torch.no_grad()
    def decode(self, codes: Tensor) -> Tensor:
        """Sound (R, 1, 1920)."""
        return self._mimi.decode(codes)


def _lm_arguments(sizes: LmSizes) -> dict[str, Any]:
    return {
        **loaders()._lm_kwargs,
        "dim": sizes.dim,
        "text_card": sizes.text_cards,
        "num_heads": sizes.heads,
        "num_layers": sizes.layers,
        "context": sizes.context,
        "depformer_dim": sizes.depth_dim,
        "depformer_dim_feedforward": int(4.125 * sizes.depth_dim),
        "depformer_num_heads": sizes.depth_heads,
        "depformer_num_layers": sizes.depth_layers,
        "delays": DELAYS,
    }


def _mimi_arguments(sizes: MimiSizes) -> dict[str, Any]:
    published = loaders()._mimi_config
    seanet = {**published["seanet"], "dimension": sizes.dim, "n_filters": sizes.filters}
    return {
        **published,
        "seanet": seanet,
        "quantizer": {
            **published["quantizer"],
            "dimension": sizes.codebook_dim,
            "n_q": sizes.codebooks,
            "input_dimension": sizes.dim,
            "output_dimension": sizes.dim,
        },
        "transformer": {
            **published["transformer"],
            "d_model": sizes.dim,
            "num_heads": sizes.heads,
            "num_layers": sizes.layers,
            "context": sizes.context,
            "dim_feedforward": sizes.hidden,
            "input_dimension": sizes.dim,
            "output_dimensions": [sizes.dim],
        },
    }
