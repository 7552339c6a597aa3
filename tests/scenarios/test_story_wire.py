"""The same stories, told through the real server and a WebSocket."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from duplex_engine.testing.lines import LINE, Exchange
from duplex_engine.testing.schedules import Story, run_story

GA = "callers speak the strict profile on the wire"
INSIDE = {
    "test_a_reader_that_stops_reading_is_told_and_dropped": "reading is stopped",
    "test_sound_of_a_cancelled_answer_that_nobody_took_is_withdrawn": "reading is stopped",
    "test_a_lost_client_frees_its_seat_and_the_next_caller_hears_nothing_of_it": "looks at the session itself",
    "test_a_resumable_session_waits_for_its_client_and_then_expires": "looks at the session itself",
    "test_more_commands_than_the_mailbox_takes_are_refused_one_by_one": "a socket hands commands over one by one",
    "test_a_model_goes_on_by_itself_when_it_gets_the_output": "a socket hands commands over one by one",
    "test_clients_that_vanish_while_their_context_is_opened_leave_seat_and_slot": "looks at the session itself",
    "test_speech_over_ten_pieces_that_wait_withdraws_all_of_them": "reading is stopped",
    "test_other_clients_read_of_the_running_answer_in_their_own_words": GA,
    "test_a_written_answer_is_told_from_its_beginning_to_its_end": GA,
}
"""Stories that can only be told inside the process, and why."""


TOLD = ("scenarios/test_story_*.py", "cases/test_case_*.py")
"""Where stories are."""


def stories() -> Iterator[Story]:
    here = Path(__file__)
    for path in sorted(path for pattern in TOLD for path in here.parents[1].glob(pattern)):
        if path.stem != here.stem:
            module = vars(import_module(path.stem))
            yield from (test.story for name, test in module.items() if hasattr(test, "story") and name not in INSIDE)


@pytest.mark.parametrize("story", list(stories()), ids=lambda story: story.__name__)
def test_over_the_wire(story: Story) -> None:
    token = LINE.set(Exchange.over_the_wire)
    try:
        run_story(story)
    finally:
        LINE.reset(token)
