"""The programs of `bench/` in small: crowds of rude clients over real sockets, and what one polite client costs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(program: str, *arguments: str) -> list[str]:
    """Run a program of `bench/` on this checkout; the lines it printed. Fails when it found a fault."""
    ended = subprocess.run(
        [sys.executable, f"bench/{program}", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
    return ended.stdout.splitlines()


@pytest.mark.parametrize("mode", ["turn", "native"])
def test_a_storm_of_cancels_over_real_sockets(mode: str) -> None:
    lines = run("storm.py", "--sessions", "10", "--cancels", "20", "--seed", "7", "--mode", mode)
    assert "cancels: 200" in lines
    assert lines[-1].endswith("0 faults")


def test_clients_who_die_at_random_moments_leave_nothing_behind() -> None:
    """Memory is left out: so few cycles say nothing about it."""
    lines = run("churn.py", "--cycles", "300", "--at-once", "25", "--seed", "7", "--growth", "100")
    assert lines[-1].endswith("0 faults")


def test_an_append_takes_six_steps_in_five_passes_of_the_scheduler() -> None:
    """More would be a message path that has grown a hop: look which task has steps that it had not."""
    lines = run("append_cost.py", "--appends", "500")
    found = re.search(r"([\d.]+) passes, ([\d.]+) steps", "\n".join(lines))
    assert found is not None, lines
    passes, steps = map(float, found.groups())
    assert passes < 5.5, lines
    assert steps < 6.5, lines
