"""What callers heard and when, as text that a person can read and a test can compare.

Owns rendering and comparison. Events of one instant stand on one line and compare as a set; an expectation speaks only
about the types it mentions.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import unified_diff

import attrs

from duplex_engine.testing.caller import Caller, Heard

DETAIL = {
    "response.done": "status",
    "response.listen": "reason",
    "error": "code",
    "session.closed": "reason",
    "session.expired": "reason",
    "overlap.decision": "action",
}
"""What is worth telling of an event beside its type, by the key it stands under."""

NOISE = re.compile(r"\.delta|rate_limits|conversation\.item|content_part|output_item|session\.updated|speak$")
"""Events that `render` leaves out unless asked."""


@attrs.frozen
class Moment:
    """One event: seconds since the rig began, and its label."""

    at: float
    type: str
    label: str


class Timeline:
    """The events of all callers in the order of time. Responses are called r1, r2, ... per caller."""

    def __init__(self, began_at: float, callers: Sequence[Caller]) -> None:
        moments = [moment for caller in callers for moment in _moments(began_at, caller, len(callers) > 1)]
        self.moments = sorted(moments, key=lambda moment: moment.at)

    def render(self, *, noise: bool = False) -> str:
        """One line for each instant: its time and what was heard then."""
        return "\n".join(_lines(moment for moment in self.moments if noise or not NOISE.search(moment.type)))

    def expect(self, golden: str) -> None:
        """Compare with lines `TIME  LABEL, LABEL, ...`; raises AssertionError with the difference.

        Only events of types that the expectation mentions are compared; on one line their order means nothing.
        """
        wanted = [line for line in map(_normal, golden.strip().splitlines()) if line]
        types = {label.split(": ")[-1].split(" ")[0] for line in wanted for label in line.split("  ", 1)[1].split(", ")}
        found = [_normal(line) for line in _lines(moment for moment in self.moments if moment.type in types)]
        if wanted != found:
            difference = "\n".join(unified_diff(wanted, found, "expected", "heard", lineterm=""))
            raise AssertionError(f"the timeline is not as expected:\n{difference}\n\nall of it:\n{self.render()}")

    def precedes(self, earlier: str, later: str) -> bool:
        """Whether every event labelled `earlier` came before every event labelled `later`, and both came."""
        labels = [moment.label for moment in self.moments]
        if earlier not in labels or later not in labels:
            return False
        return len(labels) - 1 - labels[::-1].index(earlier) < labels.index(later)


def _moments(began_at: float, caller: Caller, named: bool) -> Iterable[Moment]:
    names: dict[object, str] = {}
    for heard in caller.heard:
        if heard.type == "response.created":
            names[heard["response_id"]] = f"r{len(names) + 1}"
        label = _label(heard, names)
        yield Moment(round(heard.at - began_at, 3), heard.type, f"{caller.name}: {label}" if named else label)


def _label(heard: Heard, names: dict[object, str]) -> str:
    parts = [heard.type]
    response_id = heard.event.get("response_id")
    if response_id in names:
        parts.append(names[response_id])
    if heard.type in DETAIL:
        parts.append(str(heard[DETAIL[heard.type]]))
    return " ".join(parts)


def _lines(moments: Iterable[Moment]) -> list[str]:
    instants: dict[float, list[str]] = {}
    for moment in moments:
        instants.setdefault(moment.at, []).append(moment.label)
    return [f"{at:g}  {', '.join(_counted(labels))}" for at, labels in instants.items()]


def _counted(labels: Sequence[str]) -> Iterable[str]:
    for label, count in Counter(labels).items():
        yield label if count == 1 else f"{label} x{count}"


def _normal(line: str) -> str:
    """The line with its labels in alphabetical order."""
    time, _, labels = line.strip().partition(" ")
    if not time:
        return ""
    return f"{float(time):g}  {', '.join(sorted(label.strip() for label in labels.split(',')))}"
