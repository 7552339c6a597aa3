"""How weights are opened with onnxruntime here: one quiet thread a session, so that several models share few cores.

Owns the session options of recogniser and voice. Never chooses a model.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from duplex_engine.model_plugins.cascade.models import require

Array = NDArray[Any]

ENVIRONMENT: Final = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""For the processes of recogniser and voice, set before numpy is imported: what little is computed with numpy there
(pronouncing words that the lexicon lacks) is twenty times slower with more threads."""


class Node(Protocol):
    """An input or output of a graph."""

    name: str


class Graph(Protocol):
    """The part of an onnxruntime InferenceSession that is used here."""

    def run(self, outputs: Sequence[str] | None, inputs: Mapping[str, Array]) -> list[Array]: ...

    def get_inputs(self) -> Sequence[Node]: ...


def open_graph(path: Path) -> Graph:
    """Load a graph for one CPU thread. Raises ModelMissing without onnxruntime."""
    onnxruntime = require("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    # A thread that spins while it waits takes its core from the other workers.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    graph: Graph = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return graph


def integers(values: Sequence[int]) -> NDArray[np.int64]:
    """One row of int64, shape (1, n)."""
    return np.array([values], np.int64)
