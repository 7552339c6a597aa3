"""The device side of PersonaPlex: all calls in one batch, one frame of each that has input in every step.

Owns which slots are ready, which prompts are still being read, and the order of one step: forget, read a piece of a prompt,
encode, think, decode. Codes never leave the device. Knows no Trio and no sessions.
"""

import time
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from statistics import median

import attrs
import numpy as np
import structlog
import torch
from outcome import Error, Value

from duplex_engine.model_plugins.contract import Progress, Result, Work
from duplex_engine.model_plugins.personaplex.calls import Calls
from duplex_engine.model_plugins.personaplex.checkpoint import Checkpoint
from duplex_engine.model_plugins.personaplex.mimi import Codec
from duplex_engine.model_plugins.personaplex.program import FrameProgram
from duplex_engine.model_plugins.personaplex.prompt import prompt_rows
from duplex_engine.model_plugins.personaplex.questions import Begin, Hear, Measure, Opening, Said
from duplex_engine.model_plugins.personaplex.sampling import Sampling
from duplex_engine.model_plugins.personaplex.sizes import FRAME_SAMPLES, CheckpointRejected
from duplex_engine.model_plugins.personaplex.snapshot import Reading, Snapshot, Snapshots

log = structlog.get_logger()


@attrs.define(eq=False)
class Slot:
    """A let slot. `ready`: its prompt has been read and copied. `waiting`: questions that came before that."""

    opening: Opening
    ready: bool = False
    waiting: deque[tuple[int, object]] = attrs.Factory(deque)


class PersonaPlexStepper:
    """The program of the one worker. Raises CheckpointRejected from `load` when the checkpoint is not what it should be."""

    def __init__(
        self, *, checkpoint: str, slots: int, device: str = "cpu", threads: int = 1, snapshot_bytes: int = 1 << 30
    ) -> None:
        self._path = Path(checkpoint)
        self._slots_count = slots
        self._device_name = device
        self._threads = threads
        self._slots: dict[int, Slot] = {}
        self._reading: tuple[Hashable, Reading] | None = None
        self._snapshots = Snapshots(snapshot_bytes)

    def load(self, progress: Progress) -> None:
        """Read the checkpoint and make room for all slots."""
        torch.set_num_threads(self._threads)
        # On a CPU oneDNN's convolutions are no faster at any width, and several times slower for narrow ones.
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
        device = torch.device(self._device_name)
        self._checkpoint = Checkpoint.load(self._path, device, progress)
        self._calls = Calls(self._checkpoint.model, self._slots_count)
        self._codec = Codec(self._checkpoint.mimi, self._slots_count)
        context = self._checkpoint.model.sizes.context
        self._program = FrameProgram(self._calls, self._codec, device=device, context=context)
        self._program.record()
        self._sound = np.zeros((self._slots_count, FRAME_SAMPLES), np.float32)
        self._device = device

    def close(self) -> None:
        """Say how much could not be recorded; nothing is held outside memory."""
        if self._program.eager_frames:
            log.warning("frames_ran_eagerly", frames=self._program.eager_frames)

    def step(self, work: Work) -> Iterable[Result]:
        """One step: at most one frame of every call, and one piece of one prompt."""
        results: list[Result] = []
        self._obey(work)
        self._read_on(results)
        frames = self._due(results)
        if frames:
            results += self._frame(frames)
        return results

    # --- what changes ---------------------------------------------------------------------------------------------

    def _obey(self, work: Work) -> None:
        for slot in work.resets:
            self._slots.pop(slot, None)
            self._calls.close(slot)
        dropped = set(work.drops)
        for let in self._slots.values():
            let.waiting = deque(question for question in let.waiting if question[0] not in dropped)
        for slot, specification in work.opens:
            self._let(slot, specification)
        for slot, ticket, payload in work.items:
            self._slots[slot].waiting.append((ticket, payload))

    def _let(self, slot: int, specification: Mapping[str, object]) -> None:
        opening = specification["opening"]
        assert isinstance(opening, Opening)
        self._slots[slot] = Slot(opening)
        self._codec.reset_encoder(slot)
        self._codec.reset_decoder(slot)

    def _read_on(self, results: list[Result]) -> None:
        """Open every slot whose prompt has been read; else read one more piece of the first one that has not."""
        for slot, let in self._slots.items():
            if let.ready:
                continue
            key = _prompt_of(let.opening)
            snapshot = self._snapshots.get(key)
            if snapshot is None:
                try:
                    snapshot = self._read_piece(key, let.opening)
                except CheckpointRejected as error:
                    results += self._give_up(let, error)
                    continue
            if snapshot is None:
                return
            self._open(slot, let, snapshot)

    def _read_piece(self, key: Hashable, opening: Opening) -> Snapshot | None:
        if self._reading is None or self._reading[0] != key:
            voice = self._checkpoint.voice(opening.voice)
            self._reading = key, Reading(self._checkpoint.model, voice, prompt_rows(voice, opening.persona))
        snapshot = self._reading[1].advance()
        if snapshot is not None:
            self._reading = None
            # The first prompt is the rehearsal's, the operator's default: it is read before anybody waits for it.
            self._snapshots.put(key, snapshot, pinned=not len(self._snapshots))
        return snapshot

    def _open(self, slot: int, let: Slot, snapshot: Snapshot) -> None:
        opening = let.opening
        self._calls.open(
            slot,
            snapshot,
            Sampling(
                text_temperature=opening.text_temperature,
                text_top_k=opening.text_top_k,
                audio_temperature=opening.audio_temperature,
                audio_top_k=opening.audio_top_k,
                seed=opening.seed,
            ),
        )
        let.ready = True

    def _give_up(self, let: Slot, error: Exception) -> list[Result]:
        failed = [Result(ticket, Error(error)) for ticket, _ in let.waiting]
        let.waiting.clear()
        return failed

    # --- one frame ------------------------------------------------------------------------------------------------

    def _due(self, results: list[Result]) -> dict[int, int]:
        """The ticket of every slot that has a frame to be heard now; its sound is in place."""
        due: dict[int, int] = {}
        for slot, let in self._slots.items():
            while let.ready and let.waiting and slot not in due:
                ticket, question = let.waiting.popleft()
                match question:
                    case Hear(samples=samples):
                        self._sound[slot] = np.frombuffer(samples, np.float32)
                        due[slot] = ticket
                    case Begin():
                        results.append(Result(ticket, Value(None)))
                    case Measure(frames=frames):
                        results.append(Result(ticket, Value(self._measure(frames))))
                    case _:
                        results.append(Result(ticket, Error(TypeError(f"not a question: {question!r}"))))
        return due

    def _frame(self, due: Mapping[int, int]) -> list[Result]:
        rows = sorted(due)
        pcm, texts = self._program.run(rows, self._sound)
        return [
            Result(due[row], Value(Said(pcm[row].astype("<i2").tobytes(), texts[row], rolled=self._calls.rolls(row))))
            for row in rows
        ]

    def _measure(self, frames: int) -> float:
        everybody = range(self._slots_count)
        self._sound[:] = 0
        seconds = []
        for _ in range(frames):
            began = time.perf_counter()
            self._program.run(everybody, self._sound)
            seconds.append(time.perf_counter() - began)
        for slot in everybody:
            self._calls.close(slot)
            self._codec.reset_encoder(slot)
            self._codec.reset_decoder(slot)
        for let in self._slots.values():
            let.ready = False
        return median(seconds)


def _prompt_of(opening: Opening) -> tuple[str, tuple[int, ...]]:
    return opening.voice, opening.persona
