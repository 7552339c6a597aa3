"""What one tick of PersonaPlex costs, against the `moshi` package stepping the same weights in the same run.

    python bench/personaplex_tick.py                      # everything, about ten minutes
    python bench/personaplex_tick.py --sizes tiny --rounds 60

A tick hears one frame of every call and says one: encode, model, decode. Costs are CPU time on one thread, the least of
several rounds in which both sides take turns, in milliseconds; 80 ms would be all of a core. Weights are random; they are
written to a temporary directory. The checks at the end decide the exit status:

* a call in a batch of 8 costs at most the given share of a call alone;
* no tick is slower than the package's (the whole one, and the model's part of it); mid-old, which is bound by reading the
  window from memory on both sides, is shown and not judged.

Host share: the cost of the same layers with tiny widths, where nothing but Python, dispatch and bookkeeping is left.
The package is optional (`--alone` measures without it): see bench/moshi_package.py for how to install it.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import attrs
import torch
from moshi_package import MoshiPackage, loaders
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from duplex_engine.model_plugins.contract import Work
from duplex_engine.model_plugins.personaplex.calls import Calls
from duplex_engine.model_plugins.personaplex.checkpoint import Checkpoint
from duplex_engine.model_plugins.personaplex.files import CheckpointFiles
from duplex_engine.model_plugins.personaplex.lm import LanguageModel
from duplex_engine.model_plugins.personaplex.prompt import prompt_rows
from duplex_engine.model_plugins.personaplex.questions import Begin, Hear, Opening
from duplex_engine.model_plugins.personaplex.sampling import Sampling
from duplex_engine.model_plugins.personaplex.sizes import CODEBOOKS, FRAME_SAMPLES
from duplex_engine.model_plugins.personaplex.snapshot import Reading, Snapshot
from duplex_engine.model_plugins.personaplex.stepper import PersonaPlexStepper
from duplex_engine.model_plugins.personaplex.tiny import make_tiny

os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # the profiler's own remarks
BATCHES = (1, 2, 4, 8)
REPLAYED = 150
"""Frames of a prompt, for the comparison of ways to begin a call."""
MILLISECONDS = 1000.0


@attrs.frozen(kw_only=True)
class Size:
    """A model to measure. `share`: what a call in a batch of 8 may cost of a call alone; None: not judged.

    `judged`: whether its ticks are compared with the package's. `host`: the size whose cost is the host's part of this one;
    None: all of it is. `age`: tokens of the persona, so that the calls are about 30 frames older when they are measured.
    `batches`: calls at once. `rounds`: times as many rounds as asked for.
    """

    name: str
    knobs: dict[str, int]
    share: float | None = None
    judged: bool = True
    host: str | None = None
    age: int = 70
    batches: tuple[int, ...] = BATCHES
    rounds: int = 1


NARROW = {"dim": 64, "heads": 2, "depth_dim": 32, "depth_heads": 2}
MID_DEPTH = {"layers": 12, "depth_layers": 4}
MID = {**MID_DEPTH, "dim": 1024, "heads": 8, "depth_dim": 256, "depth_heads": 8, "context": 3000}
SIZES = {
    size.name: size
    for size in (
        Size(name="tiny", knobs={**NARROW, "layers": 2, "depth_layers": 2, "context": 256}, share=0.25, rounds=3),
        Size(name="deep", knobs={**NARROW, "layers": 32, "depth_layers": 6, "context": 256}, share=0.25, rounds=2),
        Size(name="mid-host", knobs={**NARROW, **MID_DEPTH, "context": 256}, rounds=2),
        Size(name="mid", knobs=MID, share=0.36, host="mid-host"),
        Size(name="mid-old", knobs=MID, judged=False, host="mid-host", age=2900, batches=(1, 8)),
    )
}
MEANINGS = {
    "tiny": "2 + 2 layers of width 64 and 32",
    "deep": "32 + 6 layers, as many as the real model, of width 64 and 32",
    "mid-host": "12 + 4 layers of width 64 and 32: the host's part of mid",
    "mid": "12 + 4 layers of width 1024 and 256, window 3000",
    "mid-old": "the same with calls of nearly four minutes, which look back at all of the window",
}


@attrs.define
class Cost:
    """Milliseconds of one tick, the least seen."""

    whole: float = float("inf")
    model: float = float("inf")
    operators: int = 0


# --- both sides ----------------------------------------------------------------------------------------------------


class Ours:
    """`rows` calls in the middle of a conversation: as the server steps them, and the model's part alone."""

    def __init__(self, files: CheckpointFiles, rows: int, age: int) -> None:
        self._rows = range(rows)
        self._stepper = PersonaPlexStepper(checkpoint=str(files.folder), slots=rows)
        self._stepper.load(unwatched)
        self._tickets = 0
        persona = tuple(10 + token % 300 for token in range(age))
        self._stepper.step(
            Work(
                opens=tuple((row, {"opening": Opening(voice="NATF2", persona=persona, seed=row)}) for row in self._rows)
            )
        )
        while not self.tick(torch.zeros(rows, FRAME_SAMPLES)):
            pass
        model = Checkpoint.load(files.folder, torch.device("cpu"), unwatched).model
        self._calls = Calls(model, rows)
        for row in self._rows:
            self._calls.open(row, made_up(model, age), Sampling(seed=row))

    def tick(self, sound: Tensor) -> int:
        """One frame of everybody; how many answers there were."""
        items = []
        for row in self._rows:
            self._tickets += 1
            items.append((row, self._tickets, Hear(sound[row].numpy().tobytes())))
        return len(list(self._stepper.step(Work(items=tuple(items)))))

    def step(self, codes: Tensor) -> None:
        """The model's part of it."""
        self._calls.step(self._rows, codes)


class Theirs:
    """The same calls in the package."""

    def __init__(self, files: CheckpointFiles, rows: int) -> None:
        self._package = MoshiPackage(files, rows)
        for _ in range(3):
            self.tick(torch.zeros(rows, FRAME_SAMPLES))

    def tick(self, sound: Tensor) -> None:
        """One frame of everybody."""
        tokens = self._package.step(self._package.encode(sound.unsqueeze(1)))
        self._package.decode(tokens[:, 1:].clamp(min=0))

    def step(self, codes: Tensor) -> None:
        """The model's part of it."""
        self._package.step(codes.unsqueeze(2))


def unwatched(*_: object) -> None:
    """Loading these takes no time."""


def made_up(model: LanguageModel, positions: int) -> Snapshot:
    """A state of so many positions that means nothing."""
    sizes = model.sizes
    random = torch.Generator().manual_seed(1)
    shape = (sizes.layers, positions, sizes.heads, sizes.head_dim)
    return Snapshot(
        keys=torch.randn(shape, generator=random),
        values=torch.randn(shape, generator=random),
        hidden=torch.randn(sizes.dim, generator=random),
        tail=torch.zeros(CODEBOOKS, dtype=torch.int64),
        user_tail=torch.zeros(CODEBOOKS, dtype=torch.int64),
    )


# --- measuring -----------------------------------------------------------------------------------------------------


def cost_of(work: Callable[[], object]) -> float:
    """CPU time of this thread in milliseconds."""
    began = time.thread_time()
    work()
    return (time.thread_time() - began) * MILLISECONDS


def operators_of(work: Callable[[], object]) -> int:
    """Operator calls that Python makes in it; those that they make themselves are not counted."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        work()
    return sum(event.cpu_parent is None and event.name.startswith("aten::") for event in seen.events())


def measured(sides: Sequence[Ours | Theirs], rows: int, rounds: int) -> list[Cost]:
    """What a tick costs each side; they take turns."""
    costs = [Cost() for _ in sides]
    random = torch.Generator().manual_seed(2)
    for _ in range(rounds):
        sound = 0.1 * torch.randn(rows, FRAME_SAMPLES, generator=random)
        codes = torch.randint(0, 2048, (rows, CODEBOOKS), generator=random)
        for cost, side in zip(costs, sides, strict=True):
            cost.whole = min(cost.whole, cost_of(partial(side.tick, sound)))
            cost.model = min(cost.model, cost_of(partial(side.step, codes)))
    for cost, side in zip(costs, sides, strict=True):
        cost.operators = operators_of(partial(side.step, codes))
    return costs


@attrs.frozen
class Beginning:
    """Milliseconds of the ways to begin a call with a prompt of `REPLAYED` frames."""

    copied: float
    read_at_once: float
    replayed: float
    opened: float


def beginning(files: CheckpointFiles, step_ms: float, rounds: int) -> Beginning:
    """Restore a snapshot, read the prompt in chunks, or step through it (`step_ms` each, as a call alone costs)."""
    checkpoint = Checkpoint.load(files.folder, torch.device("cpu"), unwatched)
    voice = checkpoint.voice("NATF2")
    persona = tuple(10 + token for token in range(REPLAYED - voice.frames - 12))
    read: list[Snapshot] = []

    def read_at_once() -> None:
        reading = Reading(checkpoint.model, voice, prompt_rows(voice, persona))
        while (snapshot := reading.advance()) is None:
            pass
        read.append(snapshot)

    at_once = min(cost_of(read_at_once) for _ in range(3))
    calls = Calls(checkpoint.model, 2)
    copied = min(cost_of(lambda: calls.open(1, read[0], Sampling(seed=1))) for _ in range(rounds))
    stepper = PersonaPlexStepper(checkpoint=str(files.folder), slots=2)
    stepper.load(unwatched)
    opening = {"opening": Opening(voice="NATF2", persona=persona, seed=1)}

    def open_in_the_server() -> None:
        work = Work(resets=(1,), opens=((1, opening),), items=((1, 1, Begin()),))
        while not stepper.step(work):
            work = Work()

    open_in_the_server()
    opened = min(cost_of(open_in_the_server) for _ in range(rounds))
    return Beginning(copied, at_once, REPLAYED * step_ms, opened)


# --- reporting -----------------------------------------------------------------------------------------------------


@attrs.define
class Run:
    """Everything measured so far: costs by size and batch, ours first."""

    costs: dict[tuple[str, int], list[Cost]] = attrs.Factory(dict)
    beginnings: dict[str, Beginning] = attrs.Factory(dict)

    def table(self) -> Iterator[str]:
        """All costs."""
        yield (
            f"{'':15} | {'tick, ms':>8} {'a call':>8} {'of alone':>8} {'host':>5} | {'model':>8} {'operators':>9} "
            "| package: tick, model, operators; times ours"
        )
        for (name, rows), costs in self.costs.items():
            ours = costs[0]
            alone = self.costs[name, 1][0].whole
            line = (
                f"{name:9} {rows:5} | {ours.whole:8.2f} {ours.whole / rows:8.2f} {ours.whole / rows / alone:8.3f} "
                f"{self.host_share(name, rows):>5} | {ours.model:8.2f} {ours.operators:9} |"
            )
            for theirs in costs[1:]:
                line += (
                    f" {theirs.whole:8.2f} {theirs.model:8.2f} {theirs.operators:6}"
                    f" {theirs.whole / ours.whole:5.1f}x {theirs.model / ours.model:5.1f}x"
                )
            yield line

    def host_share(self, name: str, rows: int) -> str:
        """The part of a tick that is the host's, in percent."""
        host = SIZES[name].host
        if host is None:
            return "all"
        if (host, rows) not in self.costs:
            return "?"
        return f"{self.costs[host, rows][0].whole / self.costs[name, rows][0].whole:.0%}"

    def ways_to_begin(self) -> Iterator[str]:
        """Snapshots against replay."""
        for name, way in self.beginnings.items():
            yield (
                f"{name}: a prompt of {REPLAYED} frames: copied {way.copied:.2f} ms, read at once {way.read_at_once:.1f} ms "
                f"({way.read_at_once / way.copied:,.0f}x), frame by frame {way.replayed:,.0f} ms "
                f"({way.replayed / way.copied:,.0f}x); opened or restarted in the server {way.opened:.2f} ms"
            )

    def checks(self) -> Iterator[tuple[bool, str]]:
        """Whether each promise is kept, and how closely."""
        for name, size in SIZES.items():
            if size.share is not None and (name, BATCHES[-1]) in self.costs:
                alone, many = (self.costs[name, rows][0].whole for rows in (1, BATCHES[-1]))
                share = many / BATCHES[-1] / alone
                yield (
                    share <= size.share,
                    f"{name}: a call among {BATCHES[-1]} costs {share:.3f} of one alone, at most {size.share}",
                )
        for (name, rows), (ours, *theirs) in self.costs.items():
            for package in theirs if SIZES[name].judged else ():
                for part, mine, other in (("tick", ours.whole, package.whole), ("model", ours.model, package.model)):
                    yield mine <= other, f"{name}, {rows} calls: {part} {mine:.2f} ms, the package's {other:.2f} ms"


def chosen() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes",
        default=",".join(SIZES),
        help="which, with commas: " + "; ".join(f"{name}: {meaning}" for name, meaning in MEANINGS.items()),
    )
    parser.add_argument(
        "--rounds", type=int, default=12, help="rounds for mid; smaller sizes take two or three times as many"
    )
    parser.add_argument("--alone", action="store_true", help="measure without the package")
    options = parser.parse_args()
    unknown = set(options.sizes.split(",")) - set(SIZES)
    if unknown:
        parser.error(f"there is no size {', '.join(sorted(unknown))}; known: {', '.join(SIZES)}")
    return options


def run(options: argparse.Namespace, scratch: Path) -> Run:
    """Measure what was asked for, saying so meanwhile."""
    result = Run()
    for name in options.sizes.split(","):
        size = SIZES[name]
        print(f"{name}: {MEANINGS[name]}", flush=True)
        files = made(scratch, size)
        for rows in size.batches:
            sides: list[Ours | Theirs] = [Ours(files, rows, size.age)]
            if not options.alone:
                sides.append(Theirs(files, rows))
            costs = result.costs[name, rows] = measured(sides, rows, options.rounds * size.rounds)
            print(f"  {rows} calls: " + ", the package ".join(f"{cost.whole:.2f} ms" for cost in costs), flush=True)
        if size.share is not None:
            result.beginnings[name] = beginning(files, result.costs[name, 1][0].whole, options.rounds)
    return result


def made(scratch: Path, size: Size) -> CheckpointFiles:
    """A checkpoint of this size; those of the same knobs share one."""
    folder = scratch / "-".join(map(str, size.knobs.values()))
    return CheckpointFiles(folder) if folder.exists() else make_tiny(folder, steps=CODEBOOKS, **size.knobs)


def main() -> int:
    """Measure, print, judge."""
    options = chosen()
    torch.set_num_threads(1)
    if not options.alone:
        loaders()
    with tempfile.TemporaryDirectory(prefix="personaplex-tick-") as scratch:
        result = run(options, Path(scratch))
    print("\n" + "\n".join(result.table()))
    print("\n" + "\n".join(result.ways_to_begin()) + "\n")
    failed = 0
    for kept, promise in result.checks():
        failed += not kept
        print(f"{'ok  ' if kept else 'FAIL'} {promise}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
