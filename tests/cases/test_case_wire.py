"""A fault that shows behind the real server alone: the cases once more, through a WebSocket."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from duplex_engine.testing.lines import LINE, Exchange
from duplex_engine.testing.schedules import Story, run_story

INSIDE = {
    "test_other_clients_read_of_the_running_answer_in_their_own_words": "speaks the other profile",
    "test_a_written_answer_is_told_from_its_beginning_to_its_end": "speaks the other profile",
    "test_clients_that_vanish_while_their_context_is_opened_leave_seat_and_slot": "looks at the session itself",
    "test_speech_over_ten_pieces_that_wait_withdraws_all_of_them": "reading is stopped",
}
"""Stories that can only be told inside the process, and why."""


def stories() -> Iterator[Story]:
    for path in sorted(Path(__file__).parent.glob("test_case_*.py")):
        if path.stem != Path(__file__).stem:
            module = vars(import_module(path.stem))
            yield from (test.story for name, test in module.items() if hasattr(test, "story") and name not in INSIDE)


@pytest.mark.parametrize("story", list(stories()), ids=lambda story: story.__name__)
def test_over_the_wire(story: Story) -> None:
    token = LINE.set(Exchange.over_the_wire)
    try:
        run_story(story)
    finally:
        LINE.reset(token)
