"""The client says things that make no sense: one error each, and everything goes on."""

import pytest

from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore, run_story

REFUSED = "invalid_duplex_runtime_config"
NONSENSE = [
    (b"\xff\xfe", "invalid_json"),
    (b"{", "invalid_json"),
    (b"[]", "bad_event"),
    (b"{}", "bad_event"),
    (b'{"type": 1, "event_id": "evt_x"}', "bad_event"),
    (b'{"type": "dance", "event_id": "evt_x"}', "unknown_event"),
    (b'{"type": "input_audio_buffer.append", "event_id": "evt_x"}', "bad_event"),
    (b'{"type": "input_audio_buffer.append", "audio": "?", "event_id": "evt_x"}', "bad_audio"),
    (b'{"type": "playback.ack", "played_ms": "x", "event_id": "evt_x"}', "bad_event"),
    (b'{"type": "response.cancel", "event_id": "evt_x"}', "response_not_active"),
    (b'{"type": "input_audio_buffer.commit", "event_id": "evt_x"}', "input_audio_buffer_empty"),
    (b'{"type": "response.create", "event_id": "evt_x"}', "response_create_without_input"),
    (b'{"type": "conversation.item.delete", "event_id": "evt_x"}', "missing_item_id"),
    (b'{"type": "conversation.item.retrieve", "item_id": "none", "event_id": "evt_x"}', "item_not_found"),
    (b'{"type": "turn.signal", "event": "timeout", "event_id": "evt_x"}', "bad_event"),
    (b'{"type": "input.text.append", "text": "hi", "event_id": "evt_x"}', "native_text_append_unsupported"),
    (b'{"type": "session.update", "session": {"model": "other"}, "event_id": "evt_x"}', "model_update_unsupported"),
    (b'{"type": "session.event_ack", "server_event_seq": 9999, "event_id": "evt_x"}', "invalid_event_ack"),
    (b'{"type": "session.update", "session": {"extra_body": {"script": "sing"}}, "event_id": "evt_x"}', REFUSED),
]


@pytest.mark.parametrize(("frame", "code"), NONSENSE, ids=[repr(frame)[:70] for frame, _ in NONSENSE])
def test_nonsense_is_one_error_and_changes_nothing(frame: bytes, code: str) -> None:
    async def story() -> None:
        async with open_rig(mode="turn", lead_s=0.2, script='speak "unmoved" for 2') as rig:
            async with rig.caller() as caller, rig.caller() as other:
                event_id = "evt_x" if b"evt_x" in frame else None
                await caller.sends_raw(frame, event_id=event_id)
                error = await caller.hears("error", code=code)
                assert event_id is None or error["event_id"] == event_id
                await caller.appends(1.0)
                await caller.commits()
                await caller.hears("response.created")
                await caller.hears("response.done", status="completed")
                assert len(caller.all("error")) == 1
            assert not other.all("error")

    run_story(story)


@explore
async def test_nonsense_during_an_answer_does_not_disturb_it() -> None:
    async with open_rig(mode="turn", lead_s=0.2, script='speak "unmoved" for 3') as rig:
        async with rig.caller() as caller:
            await caller.appends(1.0)
            await caller.commits()
            await caller.hears("response.created")
            for _ in range(20):
                await caller.sends_raw(b"[]")
                await caller.waits(0.1)
            done = await caller.hears("response.done", status="completed")
            assert caller.audio_ms(done["response_id"]) == 3000
            assert len(caller.all("error", code="bad_event")) == 20
