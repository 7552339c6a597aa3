"""The conformance checklist is complete: each of its 26 lines is at least one test in this folder, named by its number."""

import re
from pathlib import Path

LINES = range(1, 27)


def test_every_line_of_the_checklist_is_a_test() -> None:
    sources = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*_lines.py"))
    told = {int(number) for number in re.findall(r"^(?:async )?def test_line_(\d\d)_", sources, re.MULTILINE)}
    assert told == set(LINES)
