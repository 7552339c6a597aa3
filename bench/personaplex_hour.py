"""An hour of one call with a tiny PersonaPlex: what a frame costs and how much memory it takes must not grow.

python bench/personaplex_hour.py [--minutes 60] [--seed 1]

Runs the device side in this process, as fast as it goes. Exits with 1 when the last part of the call costs more than the
part behind the first wrap of the window, or takes more memory.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from duplex_engine.model_plugins.contract import Work
from duplex_engine.model_plugins.personaplex.questions import Begin, Hear, Opening, Said
from duplex_engine.model_plugins.personaplex.sizes import FRAME_SAMPLES
from duplex_engine.model_plugins.personaplex.stepper import PersonaPlexStepper
from duplex_engine.model_plugins.personaplex.tiny import make_tiny

FRAMES_A_MINUTE = 750
COST_GROWTH = 1.15
MEMORY_GROWTH_MB = 4.0


def memory_mb() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def loaded(folder: Path) -> PersonaPlexStepper:
    """A stepper with one open call."""
    make_tiny(folder)
    stepper = PersonaPlexStepper(checkpoint=str(folder), slots=1)
    stepper.load(lambda what, done: None)
    opening = {"opening": Opening(voice="NATF2", persona=(), seed=1)}
    results = list(stepper.step(Work(opens=((0, opening),), items=((0, 0, Begin()),))))
    while not results:
        results = list(stepper.step(Work()))
    return stepper


def minute(stepper: PersonaPlexStepper, generator: np.random.Generator) -> float:
    """Talk for a minute; the median milliseconds of a frame."""
    costs = []
    sound = (0.1 * generator.standard_normal((FRAMES_A_MINUTE, FRAME_SAMPLES))).astype(np.float32)
    for frame in sound:
        began = time.perf_counter()
        (result,) = stepper.step(Work(items=((0, 1, Hear(frame.tobytes())),)))
        costs.append(time.perf_counter() - began)
        assert isinstance(result.outcome.unwrap(), Said)
    return 1000 * median(costs)


def main(arguments: argparse.Namespace) -> int:
    """Make the call and judge it."""
    generator = np.random.default_rng(arguments.seed)
    costs, memory = [], []
    with tempfile.TemporaryDirectory() as folder:
        stepper = loaded(Path(folder))
        for number in range(arguments.minutes):
            costs.append(minute(stepper, generator))
            memory.append(memory_mb())
            print(f"minute {number + 1:3d}: {costs[-1]:6.2f} ms a frame, {memory[-1]:7.1f} MB", flush=True)
    settled = max(2, arguments.minutes // 6)
    early, late = median(costs[1 : 1 + settled]), median(costs[-settled:])
    grown = memory[-1] - memory[settled - 1]
    print(f"{arguments.minutes} minutes: {early:.2f} ms a frame early, {late:.2f} late; memory grew by {grown:+.1f} MB")
    return int(late > COST_GROWTH * early or grown > MEMORY_GROWTH_MB)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=int, default=60, help="of the call (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="of the user's sound")
    sys.exit(main(parser.parse_args()))
