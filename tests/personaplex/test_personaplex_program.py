"""A frame on the device: nothing of it is looked at by the host, and what is not recorded is run and counted.

There is no CUDA device here. What can be recorded is checked on torch's `meta` device, which has shapes and no values: code
that looks at a value, or brings one along from the host, raises there as it would while recording.
"""

from typing import Any

import attrs
import numpy as np
import pytest
import torch
from personaplex_kit import Tiny
from torch import Tensor

from duplex_engine.model_plugins.personaplex.calls import Calls
from duplex_engine.model_plugins.personaplex.lm import LanguageModel
from duplex_engine.model_plugins.personaplex.mimi import Codec, Mimi
from duplex_engine.model_plugins.personaplex.program import FrameProgram

META = torch.device("meta")
ROWS = 6


def moved(value: Any) -> Any:
    """The same weights without their values."""
    if isinstance(value, Tensor):
        return value.to(META)
    if isinstance(value, tuple | list):
        return type(value)(moved(part) for part in value)
    if isinstance(value, dict):
        return {name: moved(part) for name, part in value.items()}
    if attrs.has(type(value)):
        return attrs.evolve(
            value, **{field.name: moved(getattr(value, field.name)) for field in attrs.fields(type(value))}
        )
    return value


def without_values(tiny: Tiny, context: int) -> FrameProgram:
    sizes = attrs.evolve(tiny.model.sizes, context=context)
    model = LanguageModel(sizes, moved(tiny.model.weights))
    mimi = tiny.checkpoint.mimi
    codec = Codec(Mimi(mimi.sizes, moved(mimi.tensors)), ROWS)
    return FrameProgram(Calls(model, ROWS), codec, device=META, context=context)


def on_cpu(tiny: Tiny, rows: int = 2) -> FrameProgram:
    model = tiny.model
    calls, codec = Calls(model, rows), Codec(tiny.checkpoint.mimi, rows)
    return FrameProgram(calls, codec, device=torch.device("cpu"), context=model.sizes.context)


@pytest.mark.parametrize("count", [1, 2, 4, ROWS])
@pytest.mark.parametrize("cells", [256, 512, 3000])
def test_a_frame_can_be_recorded(tiny: Tiny, count: int, cells: int) -> None:
    without_values(tiny, 3000).compute(count, cells)


def test_looking_at_a_value_would_be_noticed(tiny: Tiny) -> None:
    program = without_values(tiny, 3000)
    program.compute(1, 256)
    with pytest.raises((RuntimeError, NotImplementedError)):
        program._text[0].item()


@pytest.mark.parametrize(("used", "computed"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, ROWS), (6, ROWS)])
def test_rows_come_in_powers_of_two(tiny: Tiny, used: int, computed: int) -> None:
    assert without_values(tiny, 3000).computed(used) == computed
    assert on_cpu(tiny, ROWS).computed(used) == ROWS, "a CPU rounds differently for other numbers of rows"


@pytest.mark.parametrize(
    ("context", "visible", "cells"),
    [(3000, 64, 256), (3000, 256, 256), (3000, 257, 512), (3000, 2049, 3000), (3000, 3000, 3000), (300, 257, 300)],
)
def test_cells_come_in_recorded_numbers(tiny: Tiny, context: int, visible: int, cells: int) -> None:
    assert without_values(tiny, context).looked_at(visible) == cells
    assert on_cpu(tiny).looked_at(visible) == visible


def test_what_was_not_recorded_runs_and_is_counted(tiny: Tiny) -> None:
    program = without_values(tiny, 3000)
    for _ in range(3):
        program._replay(1, 256)
    assert program.eager_frames == 3


def test_on_a_cpu_running_is_no_fallback(tiny: Tiny) -> None:
    program = on_cpu(tiny)
    program.record()
    pcm, text = program.run([1], np.zeros((2, 1920), np.float32))
    assert (pcm.shape, len(text), program.eager_frames) == ((2, 1920), 2, 0)


def test_a_recording_is_replayed_with_the_frame_in_its_memory(tiny: Tiny) -> None:
    program, direct = on_cpu(tiny), on_cpu(tiny)

    class Recording:
        """What a recorded frame does: the same on the same memory."""

        replayed = 0

        def replay(self) -> None:
            self.replayed += 1
            program.compute(2, 64)

    recording = Recording()
    program._recorded[2, 64] = recording  # type: ignore[assignment]
    sound = np.random.default_rng(0).standard_normal((2, 1920)).astype(np.float32)
    for _ in range(3):
        pcm, text = program.run([0, 1], sound)
        expected_pcm, expected_text = direct.run([0, 1], sound)
        assert np.array_equal(pcm, expected_pcm)
        assert text == expected_text
    assert recording.replayed == 3
