"""What was heard is what counts: acknowledgements, truncation, and clients that never acknowledge."""

from duplex_engine.testing.caller import Caller, Heard
from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore

WORDS = "one two three four five six seven eight nine ten"
SCRIPT = f'speak "{WORDS}" for 5; speak "{{history}}" for 1'


async def first_answer(caller: Caller) -> Heard:
    await caller.appends(1.0)
    await caller.commits()
    return await caller.hears("response.created")


async def history(caller: Caller) -> str:
    """What the model believes was said: its second answer repeats it."""
    await caller.appends(1.0)
    await caller.commits()
    done = await caller.hears("response.done", status="completed")
    return caller.transcript(done["response_id"])


@explore
async def test_after_an_interruption_the_history_holds_what_was_acknowledged() -> None:
    async with open_rig(mode="turn", lead_s=0.2, script=SCRIPT) as rig:
        async with rig.caller() as caller:
            answer = await first_answer(caller)
            await caller.waits(3.0)
            await caller.acks(1000, response_id=answer["response_id"])
            await caller.hears("playback.acknowledged", played_ms=1000)
            await caller.interrupts()
            done = await caller.hears("response.done", status="cancelled")
            assert done["transcript"] in WORDS[:10]
            heard = await history(caller)
        said = heard.partition("assistant: ")[2].split(" | ")[0]
        assert said
        assert said in WORDS[:10]


@explore
async def test_a_late_acknowledgement_gives_words_back() -> None:
    async with open_rig(mode="turn", lead_s=0.2, script=SCRIPT) as rig:
        async with rig.caller() as caller:
            answer = await first_answer(caller)
            await caller.waits(3.0)
            await caller.acks(500, response_id=answer["response_id"])
            await caller.interrupts()
            await caller.hears("response.done", status="cancelled")
            await caller.waits(1.0)
            await caller.acks(2000, response_id=answer["response_id"])
            await caller.hears("playback.acknowledged", played_ms=2000)
            heard = await history(caller)
        assert "one two three" in heard
        assert "six" not in heard


@explore
async def test_repeated_and_smaller_acknowledgements_change_nothing() -> None:
    async with open_rig(mode="turn", lead_s=0.2, script=SCRIPT) as rig:
        async with rig.caller() as caller:
            answer = await first_answer(caller)
            await caller.waits(3.0)
            for played_ms in (1000, 1000, 300, 0, -5):
                await caller.acks(played_ms, response_id=answer["response_id"])
                ledger = (await caller.hears("playback.acknowledged"))["playback"]
                assert isinstance(ledger, dict)
                assert ledger["played_ms"] == ledger["committed_ms"] == 1000
            await caller.acks(1e9, response_id=answer["response_id"])
            ledger = (await caller.hears("playback.acknowledged"))["playback"]
            assert isinstance(ledger, dict)
            assert ledger["played_ms"] == ledger["sent_ms"]


@explore
async def test_acknowledging_what_never_was_is_one_error() -> None:
    async with open_rig(mode="turn", lead_s=0.2, script=SCRIPT) as rig:
        async with rig.caller() as caller:
            await first_answer(caller)
            unknown = await caller.acks(100, response_id="resp_unknown")
            await caller.hears("error", code="playback_item_not_found", event_id=unknown)
            mismatch = await caller.acks(100, response_id=caller.responses()[0], item_id="item_other")
            await caller.hears("error", code="playback_item_mismatch", event_id=mismatch)
            await caller.hears("response.done", status="completed")


@explore
async def test_truncation_after_partial_playback_is_for_good() -> None:
    async with open_rig(mode="turn", script=SCRIPT) as rig:
        async with rig.caller() as caller:
            answer = await first_answer(caller)
            await caller.hears("response.done", status="completed")
            item_id = f"item_{answer['response_id']}"
            await caller.waits(2.0)
            await caller.sends("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=1000)
            await caller.hears("conversation.item.truncated", audio_end_ms=1000)
            await caller.acks(5000, response_id=answer["response_id"])
            heard = await history(caller)
        assert "assistant: one tw" in heard
        assert "three" not in heard


@explore
async def test_a_client_that_never_acknowledges_gets_its_next_answer() -> None:
    async with open_rig(mode="turn", script=SCRIPT) as rig:
        async with rig.caller() as caller:
            await first_answer(caller)
            await caller.hears("response.done", status="completed")
            heard = await history(caller)
        assert heard == f"assistant: {WORDS}"


@explore
async def test_without_acknowledgements_an_interruption_leaves_what_was_played() -> None:
    async with open_rig(mode="turn", script=SCRIPT) as rig:
        async with rig.caller() as caller:
            await first_answer(caller)
            await caller.waits(0.2)
            await caller.hears("response.output_audio.delta")
            await caller.waits(0.3)
            await caller.cancels()
            await caller.hears("response.done", status="cancelled")
            heard = await history(caller)
        assert "one" in heard
        assert "four" not in heard
