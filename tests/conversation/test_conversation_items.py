"""Conversation items: creation, places, deletion, and what the history shows of them (wire contract 3.8, 3.9)."""

import attrs
import pytest
from conversation_rig import (
    CASCADE,
    COMMITTED,
    MODEL_DECIDES,
    NATIVE,
    STARTED,
    Rig,
    error_of,
    feeds,
    only,
    sound,
    text_item,
    types,
)
from hypothesis import given
from hypothesis import strategies as st

from duplex_engine.audio.pcm import float_to_pcm16
from duplex_engine.config import SessionLimits
from duplex_engine.conversation.effects import Overheard
from duplex_engine.conversation.facts import FunctionCall, FunctionCalled
from duplex_engine.conversation.items import Item, Items
from duplex_engine.protocol.commands import (
    AppendAudio,
    CommitAudio,
    CreateItem,
    CreateResponse,
    DeleteItem,
    RetrieveItem,
)
from duplex_engine.protocol.events import InputCommitted, ItemAdded, ItemDeleted, ItemDone, ItemRetrieved
from duplex_engine.protocol.formats import Encoding

SEES = attrs.evolve(CASCADE, image_input=True)
PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}


def create(rig, item, audio=(), previous=None):
    return rig.obey(CreateItem(item=item, audio=tuple(audio), previous_item_id=previous, event_id="c"))


def spoken(duration_ms, *, loud=True, **fields):
    return AppendAudio(audio=float_to_pcm16(sound(duration_ms, loud)), **fields)


def audio_item(*transcripts, item_id="item_audio", more=()):
    content = [{"type": "input_audio", "transcript": transcript} for transcript in transcripts]
    return {**text_item("", item_id=item_id), "content": [*content, *more]}


# --- places ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=30))
def test_places(steps):
    """Against a plain list: after an item, at the front, at the end; removal keeps the order of the rest."""
    items, expected = Items(), []
    for serial, (place, remove) in enumerate(steps):
        if remove and expected:
            gone = expected.pop(place % len(expected))
            items.remove(gone)
            continue
        after = ["root", None, *expected][place % (len(expected) + 2)]
        at = 0 if after == "root" else len(expected) if after is None else expected.index(after) + 1
        before = items.add(Item(id=f"i{serial}"), after)
        assert before == (expected[at - 1] if at else None)
        expected.insert(at, f"i{serial}")
        assert items.before(f"i{serial}") == before
    assert [item.id for item in items] == expected
    assert items.last_id == (expected[-1] if expected else None)
    assert items.before("nobody") is None


def test_insertion_by_previous_item_id():
    rig = Rig()
    create(rig, text_item("b", item_id="b"))
    said = create(rig, text_item("a", item_id="a"), previous="root")
    assert types(said) == ["item.added", "item.created", "item.done"]
    assert only(said, ItemAdded).previous_item_id is None
    create(rig, text_item("c", item_id="c"))
    said = create(rig, text_item("a2", item_id="a2"), previous="a")
    assert {event.previous_item_id for event in said} == {"a"}
    assert [message.text for message in rig.machine.history()] == ["a", "a2", "b", "c"]


def test_an_id_in_use_and_an_unknown_place_are_refused():
    rig = Rig()
    create(rig, text_item("a", item_id="a"))
    error = error_of(create(rig, text_item("b", item_id="a")))
    assert (error.code, error.param, error.event_id) == ("bad_event", "item.id", "c")
    error = error_of(create(rig, text_item("b", item_id="b"), previous="nobody"))
    assert (error.code, error.param) == ("item_not_found", "previous_item_id")
    assert [message.text for message in rig.machine.history()] == ["a"]


def test_a_turn_that_began_before_an_answer_comes_before_it():
    rig = Rig(MODEL_DECIDES, NATIVE)
    create(rig, text_item("first", item_id="first"))
    rig.appends(400, speech=True, transcript="Hello")
    answer = rig.begins()
    rig.speaks(answer, 400, "Hi")
    rig.ends(answer)
    committed = only(rig.obey(CommitAudio()), InputCommitted)
    assert committed.previous_item_id == "first"
    assert [message.text for message in rig.machine.history()] == ["first", "Hello", "Hi"]


def test_a_turn_that_began_in_an_empty_conversation_is_first():
    rig = Rig(MODEL_DECIDES, NATIVE)
    rig.appends(400, speech=True)
    rig.begins()
    assert only(rig.obey(CommitAudio()), InputCommitted).previous_item_id is None


# --- create ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["user", "system", "assistant"])
def test_texts_join_the_history(role):
    rig = Rig()
    said = create(rig, text_item("Be brief.", role=role))
    assert types(said) == ["item.added", "item.created", "item.done"]
    assert "_previous_item_id" not in only(said, ItemDone).item
    assert [(message.role, message.text) for message in rig.machine.history()] == [(role, "Be brief.")]


def test_an_empty_message_of_the_user_is_not_stored():
    rig = Rig()
    assert types(create(rig, text_item("", item_id="e"))) == ["item.added", "item.created"]
    assert error_of(rig.obey(RetrieveItem(item_id="e"))).code == "item_not_found"


def test_other_types_are_stored():
    rig = Rig()
    item = {"id": "m", "object": "realtime.item", "type": "mcp_call", "status": "completed", "server_label": "x"}
    assert types(create(rig, item)) == ["item.added", "item.created", "item.done"]
    assert only(rig.obey(RetrieveItem(item_id="m")), ItemRetrieved).item == item
    assert rig.machine.history() == ()


def test_a_spoken_item_is_a_committed_turn():
    rig = Rig()
    said = create(rig, audio_item("What", "time?"), [spoken(200, transcript="What"), spoken(300, transcript="time?")])
    assert types(said) == [
        "item.added",
        "item.created",
        "committed",
        "item.input_audio_transcription.completed",
        "item.done",
    ]
    assert only(said, ItemAdded).item["content"][0] == {"type": "input_audio", "transcript": "What"}
    assert types(rig.obey(CreateResponse())) == STARTED
    turn = rig.offered
    assert (turn.item_id, turn.transcript, turn.history) == ("item_audio", "What time?", ())
    assert turn.utterance.sample_count == 16 * 500
    assert turn.utterance.over


def test_a_spoken_item_reaches_a_native_model():
    rig = Rig(MODEL_DECIDES, NATIVE)
    said = create(rig, audio_item(""), [spoken(200, encoding=Encoding.PCM16, sample_rate_hz=16_000)])
    assert types(said) == COMMITTED
    assert [(len(feed.samples), feed.commit) for feed in feeds(rig.effects)] == [(3200, False), (0, True)]
    assert rig.machine.busy


def test_silent_parts_are_skipped():
    rig = Rig()
    assert types(create(rig, audio_item(""), [spoken(200, loud=False)])) == ["item.added", "item.created", "item.done"]
    assert error_of(rig.obey(CreateResponse())).code == "response_create_without_input"


def test_text_beside_sound_stays_in_the_history():
    rig = Rig()
    create(rig, audio_item("", more=[{"type": "input_text", "text": "In French."}]), [spoken(200)])
    rig.obey(CreateResponse())
    assert [message.text for message in rig.offered.history] == ["In French."]


def test_undecodable_sound_is_refused():
    rig = Rig()
    broken = AppendAudio(audio=b"\x00\x00\xc0\x7f", encoding=Encoding.F32, sample_rate_hz=16_000)
    assert error_of(create(rig, audio_item(""), [broken])).code == "bad_audio"
    assert rig.machine.history() == ()


def test_too_much_sound_is_refused():
    rig = Rig(limits=SessionLimits(input_bytes=10_000))
    assert error_of(create(rig, audio_item(""), [spoken(200)])).code == "input_backpressure"
    assert rig.machine.pending_input_bytes == 0


# --- pictures ------------------------------------------------------------------------------------------------------------


def test_pictures_need_a_model_that_sees():
    item = {**text_item(""), "content": [PICTURE]}
    assert error_of(create(Rig(), item)).code == "unsupported"
    rig = Rig(capabilities=SEES)
    said = create(rig, item)
    assert types(said) == ["item.added", "item.created", "item.done"]
    assert only(said, ItemAdded).item["content"] == [{"type": "input_image"}], "pictures are not said again"
    assert rig.machine.history()[0].images == (PICTURE["image_url"],)


@pytest.mark.parametrize("limits", [SessionLimits(image_items=2), SessionLimits(image_bytes=80)])
def test_the_history_holds_so_many_pictures(limits):
    rig = Rig(capabilities=SEES, limits=limits)
    for name in ("a", "b"):
        assert types(create(rig, {**text_item("", item_id=name), "content": [PICTURE]}))[-1] == "item.done"
    assert error_of(create(rig, {**text_item("", item_id="c"), "content": [PICTURE]})).code == "input_backpressure"
    rig.obey(DeleteItem(item_id="a"))
    assert types(create(rig, {**text_item("", item_id="c"), "content": [PICTURE]}))[-1] == "item.done"


def test_pictures_beside_sound_are_an_item_of_their_own():
    rig = Rig(capabilities=SEES)
    said = create(rig, audio_item("", more=[PICTURE]), [spoken(200)])
    assert types(said) == [*COMMITTED, "item.added", "item.created", "item.done"]
    assert said[-1].item["id"] == "item_audio_image"
    assert said[-1].previous_item_id == "item_audio"
    rig.obey(CreateResponse())
    assert [message.item_id for message in rig.offered.history] == ["item_audio_image"]


# --- outputs of calls ----------------------------------------------------------------------------------------------------


def output(call_id, item_id="o"):
    return {"id": item_id, "type": "function_call_output", "status": "completed", "call_id": call_id, "output": "42"}


def test_outputs_belong_to_calls():
    rig = Rig()
    error = error_of(create(rig, output("call_1")))
    assert (error.code, error.param) == ("invalid_function_call_output", "item.call_id")
    rig.learn(FunctionCalled(FunctionCall("look", "{}", "call_1")))
    assert types(create(rig, output("call_1"))) == ["item.added", "item.created", "item.done"]
    error = error_of(create(rig, output("call_1", "o2")))
    assert (error.code, error.param) == ("invalid_function_call_output", "item.output")


def test_a_client_may_bring_a_call_along():
    rig = Rig()
    call = {"id": "f", "type": "function_call", "status": "completed", "name": "look", "call_id": "call_1"}
    said = create(rig, {**call, "arguments": '{"at":"me"}'})
    assert types(said) == ["item.added", "item.created", "item.done"]
    assert said[-1].item == {**call, "object": "realtime.item", "arguments": '{"at":"me"}'}
    (message,) = rig.machine.history()
    assert (message.role, message.name, message.call_id, message.text) == ("assistant", "look", "call_1", '{"at":"me"}')
    assert error_of(rig.obey(CreateResponse())).code == "response_create_without_input"
    create(rig, output("call_1"))
    rig.obey(CreateResponse())
    assert [message.role for message in rig.offered.history] == ["assistant", "tool"]


# --- delete, retrieve ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [DeleteItem, RetrieveItem])
@pytest.mark.parametrize(("item_id", "code"), [("", "missing_item_id"), ("nobody", "item_not_found")])
def test_items_that_are_not_there(command, item_id, code):
    error = error_of(Rig().obey(command(item_id=item_id, event_id="x")))
    assert (error.code, error.param, error.event_id) == (code, "item_id", "x")


def test_a_deleted_text_is_not_answered():
    rig = Rig()
    create(rig, text_item("Hi", item_id="a"))
    assert rig.obey(DeleteItem(item_id="a")) == [ItemDeleted(item_id="a")]
    assert rig.machine.history() == ()
    assert error_of(rig.obey(CreateResponse())).code == "response_create_without_input"


def test_a_deleted_turn_takes_its_sound_along():
    rig = Rig()
    rig.appends(400, speech=True)
    item_id = only(rig.obey(CommitAudio()), InputCommitted).item_id
    rig.effects.clear()
    rig.obey(DeleteItem(item_id=item_id))
    (overheard,) = [effect for effect in rig.effects if isinstance(effect, Overheard)]
    assert overheard.utterance.dropped
    assert rig.machine.pending_input_bytes == 0
    assert error_of(rig.obey(CreateResponse())).code == "response_create_without_input"


def test_an_answer_whose_item_is_deleted_goes_on_outside_of_the_history():
    rig = Rig()
    turn = rig.asks()
    rig.obey(DeleteItem(item_id=f"item_{rig.ids[turn]}"))
    rig.speaks(turn, 400, "Hello")
    assert types(rig.ends(turn))[-1] == "rate_limits.updated"
    assert rig.machine.history() == ()


def test_an_answer_can_be_looked_at_while_it_is_given():
    rig = Rig()
    turn = rig.asks()
    rig.speaks(turn, 400, "Hello")
    item = only(rig.obey(RetrieveItem(item_id=f"item_{rig.ids[turn]}")), ItemRetrieved).item
    assert (item["status"], item["content"][0]["transcript"]) == ("in_progress", "Hello")


def test_a_client_cannot_have_more_kept_than_the_limit_and_deleting_makes_room():
    rig = Rig(limits=SessionLimits(item_bytes=8 * 1024))
    assert "error" not in types(create(rig, text_item("x" * 5000, item_id="long")))
    rig.appends(200, speech=True)
    assert "error" not in types(rig.obey(CommitAudio()))
    rig.appends(200, speech=True)
    before = rig.machine.history()
    for refused in (create(rig, text_item("short")), rig.obey(CommitAudio(event_id="c"))):
        assert (error_of(refused).code, error_of(refused).event_id) == ("input_backpressure", "c")
    assert rig.machine.history() == before
    rig.obey(DeleteItem(item_id="long"))
    assert "error" not in types(rig.obey(CommitAudio())), "the refused turn is still there"
