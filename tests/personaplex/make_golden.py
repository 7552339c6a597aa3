"""Ask kyutai's package `moshi` for the golden files of these tests: python tests/personaplex/make_golden.py"""

import tempfile
from pathlib import Path

import torch
from moshi_reference import DUPLEX, DUPLEX_NARROW, HEARD, LIKELIEST
from personaplex_kit import NARROW, Tiny


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        wide = Tiny.make(Path(folder) / "wide")
        narrow = Tiny.make(Path(folder) / "narrow", **NARROW)
        for golden, tiny in ((DUPLEX, wide), (DUPLEX_NARROW, narrow), (LIKELIEST, wide), (HEARD, wide)):
            golden.keep(tiny)
            print(f"{golden.path.name}: {len(golden.kept())} frames")


if __name__ == "__main__":
    main()
