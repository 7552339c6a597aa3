"""A call that is over, as its caller heard it: run by a foreign client in a process of its own, read by a test."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from duplex_engine.testing.caller import DELTA, Caller, Heard, Line
from duplex_engine.testing.invariants import (
    labels_never_decrease,
    nothing_after_its_end,
    numbers_increase,
    one_end_for_each_beginning,
    one_last_word,
)

CALL_S = 60
HERE = Path(__file__).parent

Fact = Mapping[str, Any]
PROMISES = (
    nothing_after_its_end,
    one_end_for_each_beginning,
    one_last_word,
    labels_never_decrease,
    numbers_increase,
)
"""What holds of every session, read on any clock."""


class Recorded(Caller):
    """A caller of whom only the record is left.

    `moves`: what it did, and when. `notes`: what its client made of it. `told`: what its client told it, in order.
    """

    def __init__(
        self,
        name: str,
        heard: Sequence[Heard],
        moves: Sequence[tuple[float, str]],
        notes: Mapping[str, Any],
        told: Sequence[Fact] = (),
    ) -> None:
        super().__init__(name, cast(Line, None))
        for event in heard:
            self.record(event)
        self.prompt = False
        self.moves = {move: at for at, move in moves}
        self.notes = notes
        self.told = told

    def noted(self, kind: str) -> list[Fact]:
        """Everything of this kind that its client told it."""
        return [fact for fact in self.told if fact["kind"] == kind]

    def one(self, event_type: str, **match: object) -> Heard:
        """The only such event."""
        (heard,) = self.all(event_type, **match)
        return heard

    def checks_out(self, *passed_over: str) -> None:
        """The session kept its promises, and complained of nothing but these codes. Raises AssertionError."""
        assert [heard.event for heard in self.all("error") if heard["code"] not in passed_over] == []
        violations = [violation for promise in PROMISES for violation in promise(self)]
        assert not violations, "\n".join(violations)

    def has_no_sound_after_done(self, response_id: object) -> None:
        """Nothing of a response may come once it is done. Raises AssertionError."""
        events = [heard for heard in self.heard if heard.event.get("response_id") == response_id]
        kinds = [heard.type for heard in events]
        assert DELTA not in kinds[kinds.index("response.done") :]

    def loudness(self, response_id: object) -> float:
        """RMS of all sound of a response; 1 is full scale."""
        samples = np.frombuffer(self.audio(response_id), "<i2") / 32768
        return float(np.sqrt(np.mean(np.square(samples))))


def run_call(
    script: str,
    *arguments: str,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    python: Path | str = sys.executable,
) -> Recorded:
    """Let `script` call, and read its record. Raises AssertionError, with what the script said, when it failed."""
    return run_program([str(python), str(HERE / script), *arguments], script, folder, environment)


def run_program(
    command: Sequence[str], name: str, folder: Path, environment: Mapping[str, str] | None = None
) -> Recorded:
    """The same for a program in any language, which is told `--record FILE`."""
    path = folder / "record.json"
    done = subprocess.run(
        [*command, "--record", str(path)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=CALL_S,
    )
    assert done.returncode == 0, f"{name} failed:\n{done.stdout}\n{_last_events(path)}"
    record = json.loads(path.read_text())
    heard = [Heard(line["at"], line["event"]) for line in record["heard"]]
    return Recorded(name, heard, record["moves"], record.get("notes", {}), record.get("told", ()))


def _last_events(path: Path) -> str:
    if not path.exists():
        return "there is no record"
    record = json.loads(path.read_text())
    return "\n".join(
        f"{line['at']:7.2f} {str(line)[:200]}" for line in (*record["heard"], *record.get("told", ()))[-40:]
    )
