"""The model decides to listen: the client is told, but not twelve times a second."""

from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import explore


@explore
async def test_listening_is_told_once_a_second() -> None:
    async with open_rig(script="listen") as rig:
        async with rig.caller() as caller:
            await caller.speaks(4.0)
            listens = caller.all("response.listen")
            assert 4 <= len(listens) <= 6
            assert all("response_id" not in listen.event for listen in listens)


@explore
async def test_every_commit_of_a_native_session_is_followed_by_a_listen_or_an_answer() -> None:
    async with open_rig(script="listen") as rig:
        async with rig.caller() as caller:
            for _ in range(3):
                await caller.speaks(0.2)
                await caller.commits()
                await caller.hears("input_audio_buffer.committed")
                await caller.hears("response.listen")
            assert not caller.responses()


@explore
async def test_a_silent_commit_is_answered_by_a_listen() -> None:
    async with open_rig(mode="turn", script='speak "unwanted" for 1') as rig:
        async with rig.caller() as caller:
            await caller.is_silent(0.4)
            await caller.commits()
            await caller.hears("input_audio_buffer.committed", no_response=True)
            await caller.hears("response.listen", reason="silence_or_noise")
            await caller.hears_nothing_of("response.created", for_s=2)
