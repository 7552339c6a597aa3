"""A frame as the device runs it: sound in, codes, thought, sound out, in fixed memory, recorded where that pays.

Owns the buffers between host and device, the number of rows and cells a frame is run with, and the recordings of frames on a
CUDA device, where launching thousands of kernels costs more than what they compute. What cannot be recorded runs eagerly;
that is said once and counted. Knows nothing of slots and prompts.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import structlog
import torch

from duplex_engine.model_plugins.personaplex.calls import Calls
from duplex_engine.model_plugins.personaplex.mimi import Codec
from duplex_engine.model_plugins.personaplex.sampling import DRAWS, MAX_TOP_K
from duplex_engine.model_plugins.personaplex.sizes import FRAME_SAMPLES

FULL_SCALE = 32767
CELLS = (256, 512, 1024, 2048)
"""Numbers of visible cells that frames are recorded for, beside the whole window."""
WARM_RUNS = 2

log = structlog.get_logger()


class FrameProgram:
    """Frames of all rows of `calls` and `codec`. `eager_frames`: how many ran eagerly where recordings were wanted."""

    def __init__(self, calls: Calls, codec: Codec, *, device: torch.device, context: int) -> None:
        rows = calls.rows
        self.eager_frames = 0
        self._calls, self._codec = calls, codec
        self._device, self._rows = device, rows
        self._cells = (*(cells for cells in CELLS if cells < context), context)
        self._sound = torch.zeros(rows, FRAME_SAMPLES, device=device)
        self._stepped = torch.zeros(rows, dtype=torch.bool, device=device)
        self._noise = torch.zeros(rows, DRAWS, MAX_TOP_K, device=device)
        self._pcm = torch.zeros(rows, FRAME_SAMPLES, dtype=torch.int16, device=device)
        self._text = torch.zeros(rows, dtype=torch.int64, device=device)
        self._recorded: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}

    def run(self, rows: Sequence[int], sound: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int16], list[int]]:
        """One frame of these rows, ascending. `sound`: (all rows, 1920). Returns PCM16 (R, 1920) and R text tokens."""
        count = self.computed(rows[-1] + 1)
        stepped = torch.zeros(count, dtype=torch.bool)
        stepped[list(rows)] = True
        self._stepped[:count] = stepped.to(self._device)
        self._sound[:count] = torch.from_numpy(sound[:count]).to(self._device)
        self._noise.copy_(self._calls.noise(rows))
        self._replay(count, self.looked_at(self._calls.visible(count)))
        self._calls.stepped(rows)
        return self._pcm[:count].cpu().numpy(), self._text[:count].tolist()

    def computed(self, used: int) -> int:
        """How many rows a frame computes when the first `used` take part: the next power of two.

        On a CPU all of them: kernels round differently for other numbers of rows, and nobody may hear who else is there.
        """
        return self._rows if self._device.type == "cpu" else min(1 << (used - 1).bit_length(), self._rows)

    def looked_at(self, visible: int) -> int:
        """How many cells a frame looks at when `visible` are needed: on a CPU no more, else the next recorded number."""
        return visible if self._device.type == "cpu" else min(cells for cells in self._cells if cells >= visible)

    def _replay(self, count: int, cells: int) -> None:
        recording = self._recorded.get((count, cells))
        if recording is not None:
            recording.replay()
            return
        self.eager_frames += self._device.type != "cpu"
        self.compute(count, cells)

    @torch.inference_mode()
    def compute(self, count: int, cells: int) -> None:
        """The first `count` rows from sound to sound, on the device alone: all of it in memory that stays where it is."""
        stepped = self._stepped[:count]
        codes = self._codec.encode(self._sound[:count], stepped)
        frame = self._calls.compute(codes, stepped, self._noise, cells)
        sound = self._codec.decode(frame.codes, stepped)
        self._pcm[:count] = (sound.clamp(-1, 1) * FULL_SCALE).round().to(torch.int16)
        self._text[:count] = frame.text

    def record(self) -> None:
        """Record a frame for every number of rows and cells, where the device can. No call may be open: rows are written."""
        if self._device.type != "cuda":
            return
        counts = sorted({self.computed(used) for used in range(1, self._rows + 1)})
        try:
            for count in reversed(counts):  # the largest first: the smaller ones fit into its memory
                for cells in reversed(self._cells):
                    self._recorded[count, cells] = self._recording(count, cells)
        except RuntimeError as error:
            self._recorded.clear()
            log.warning("frames_run_eagerly", device=str(self._device), cause=str(error))

    def _recording(self, count: int, cells: int) -> torch.cuda.CUDAGraph:
        for _ in range(WARM_RUNS):  # libraries choose their kernels, which must not happen while recording
            self.compute(count, cells)
        torch.cuda.synchronize(self._device)
        recording = torch.cuda.CUDAGraph()
        shared = next(iter(self._recorded.values()), None)
        with torch.cuda.graph(recording, pool=None if shared is None else shared.pool()):
            self.compute(count, cells)
        return recording
