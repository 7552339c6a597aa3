"""What is in a checkpoint's directory, said for a person: files, sizes, voices, and how many calls fit where.

Owns the report and the estimate of capacity. Looks at every tensor's name and shape, and loads none but the voices'.
"""

from collections.abc import Iterator
from typing import Final

import attrs
import torch

from duplex_engine.model_plugins.personaplex.checkpoint import load_voice
from duplex_engine.model_plugins.personaplex.files import NEEDED, CheckpointFiles, voice_names
from duplex_engine.model_plugins.personaplex.sizes import CheckpointRejected, LmSizes, MimiSizes
from duplex_engine.model_plugins.personaplex.text import open_vocabulary
from duplex_engine.model_plugins.personaplex.weights import (
    check_lm,
    check_mimi,
    lm_tensors,
    mimi_tensors,
    read_config,
    used_numbers,
)

GIGABYTE: Final = 10**9
MIB: Final = 1 << 20
WORK_BYTES: Final = 2 * GIGABYTE
"""Kept free for snapshots of prompts (1 GiB unless configured) and for the arithmetic of a step."""
MEMORIES: Final = (24, 48, 80, 141)
"""Memory of common accelerators in gigabytes."""


@attrs.frozen(kw_only=True)
class Needs:
    """Bytes of memory: of the weights that are loaded, and of one call however long."""

    weights: int
    call: int

    def calls(self, memory: int) -> int:
        """How many calls fit into so many bytes."""
        return max(0, (memory - self.weights - WORK_BYTES) // self.call)


def needs(lm: LmSizes, codec: MimiSizes, *, bytes_per_number: int) -> Needs:
    """What a checkpoint takes: 2 bytes per number on an accelerator, 4 on a CPU; the codec always takes 4."""
    return Needs(
        weights=bytes_per_number * used_numbers(lm_tensors(lm)) + 4 * used_numbers(mimi_tensors(codec)),
        call=lm.context * lm.bytes_per_position * bytes_per_number // 2 + codec.bytes_per_call,
    )


def report(files: CheckpointFiles) -> Iterator[str]:
    """Lines about the checkpoint, each as soon as it is known. Raises CheckpointRejected for whatever is not right."""
    for name in NEEDED:
        yield f"{name:<52} {(files.folder / name).stat().st_size:>18,} bytes"
    config = read_config(files.config)
    lm, codec = check_lm(files.model, config), check_mimi(files.codec, config)
    yield from _about_model(lm, codec)
    words = len(open_vocabulary(files.text).says)
    if words != lm.text_cards:
        raise CheckpointRejected(f"{files.text} has {words} pieces; the model says {lm.text_cards}")
    yield f"text: {words:,} pieces"
    yield from _about_voices(files, lm)
    yield from _about_capacity(lm, codec)


def _about_model(lm: LmSizes, codec: MimiSizes) -> Iterator[str]:
    yield (
        f"language model: {used_numbers(lm_tensors(lm)) / 1e6:,.1f} M numbers used; {lm.layers} layers of width {lm.dim}, "
        f"depformer {lm.depth_layers} of {lm.depth_dim}, {lm.depth_steps} steps in the file, "
        f"window {lm.context} positions ({lm.context * 0.08:.0f} s)"
    )
    yield (
        f"codec: {used_numbers(mimi_tensors(codec)) / 1e6:,.1f} M numbers; {codec.layers} layers of width {codec.dim} on "
        f"each side, {codec.codebooks} codebooks in the file"
    )


def _about_voices(files: CheckpointFiles, lm: LmSizes) -> Iterator[str]:
    names = voice_names(files.voices)
    frames = {load_voice(files.voices, name, lm).frames for name in names}
    yield f"{len(names)} voices, prompts of {min(frames)} to {max(frames)} frames: {', '.join(names)}"


def _about_capacity(lm: LmSizes, codec: MimiSizes) -> Iterator[str]:
    on_gpu = needs(lm, codec, bytes_per_number=2)
    yield (
        f"in memory as bfloat16: weights {on_gpu.weights / GIGABYTE:.2f} GB, a call "
        f"{on_gpu.call / MIB:,.1f} MiB; calls at once, by the memory of an accelerator alone (an estimate):"
    )
    yield "  " + ", ".join(f"{memory} GB: {on_gpu.calls(memory * GIGABYTE)}" for memory in MEMORIES)
    for number in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(number)
        yield f"  {device.name} in this machine, {device.total_memory / GIGABYTE:.0f} GB: {on_gpu.calls(device.total_memory)}"
