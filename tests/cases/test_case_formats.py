"""An audio format that is agreed and not used, or misspelt and taken without a word."""

import base64
from collections.abc import Mapping

import pytest

from duplex_engine.protocol.session_config import Profile
from duplex_engine.testing.caller import Caller
from duplex_engine.testing.rig import open_rig
from duplex_engine.testing.schedules import run_story

SPELLINGS = {
    "pcm16": ("pcm16", "pcm", "pcm_s16le", "s16le", "audio/pcm", "audio/pcm16", "PCM16", "Audio/PCM"),
    "pcm_f32le": ("pcm_f32le", "f32le", "audio/pcm_f32le", "F32LE"),
    "g711_ulaw": ("g711_ulaw", "g711-ulaw", "ulaw", "mulaw", "audio/g711_ulaw", "audio/pcmu", "G711_ULAW"),
    "g711_alaw": ("g711_alaw", "g711-alaw", "alaw", "audio/g711_alaw", "audio/pcma", "Audio/PCMA"),
    "wav": ("wav", "audio/wav", "WAV"),
}
"""Every name of wire contract 5.1, by its canonical one."""
MEDIA = {
    "pcm16": "audio/pcm",
    "pcm_f32le": "audio/pcm_f32le",
    "g711_ulaw": "audio/pcmu",
    "g711_alaw": "audio/pcma",
    "wav": "audio/wav",
}
RATES = {"g711_ulaw": 8_000, "g711_alaw": 8_000}
INPUTS = [(name, canonical) for canonical in SPELLINGS if canonical != "wav" for name in SPELLINGS[canonical]]
OUTPUTS = [(name, canonical) for canonical in SPELLINGS if canonical != "pcm_f32le" for name in SPELLINGS[canonical]]
WAYS = ("flat", "nested", "object", "flat object")
ANSWERS = 'forever { speak "an answer" for 0.4 }'


def said(direction: str, name: object, way: str) -> dict[str, object]:
    """A session object that chooses a format for one direction."""
    if way == "flat":
        return {f"{direction}_audio_format": name}
    if way == "flat object":
        return {f"{direction}_audio_format": {"type": name}}
    return {"audio": {direction: {"format": name if way == "nested" else {"type": name}}}}


def formats(session: Mapping[str, object]) -> dict[str, object]:
    """Everything that a session object says about formats."""
    audio = session["audio"]
    assert isinstance(audio, Mapping)
    return {
        "input": session["input_audio_format"],
        "rate": session["sample_rate_hz"],
        "output": session["output_audio_format"],
        "audio.input": audio["input"]["format"],
        "audio.input.rate": audio["input"]["sample_rate_hz"],
        "audio.output": audio["output"]["format"],
        "audio.output.rate": audio["output"]["sample_rate_hz"],
    }


async def updated(caller: Caller, session: dict[str, object]) -> dict[str, object]:
    """Formats in force after an update that is accepted."""
    tag = str(len(caller.said))
    await caller.sends("session.update", session={**session, "metadata": {"tag": tag}})
    echo = (await caller.hears("session.updated", tag=tag))["session"]
    assert isinstance(echo, Mapping)
    return formats(echo)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("profile", Profile)
def test_every_name_is_echoed_in_both_spellings_and_used(way: str, profile: Profile) -> None:
    async def story() -> None:
        native_hz = 16_000 if profile is Profile.STRICT else 24_000
        async with open_rig(mode="turn", script=ANSWERS) as rig:
            for name, canonical in INPUTS:
                async with rig.caller(session={"turn_detection": None}, profile=profile) as caller:
                    echo = await updated(caller, said("input", name, way))
                    rate_hz = RATES.get(canonical, native_hz)
                    assert (echo["input"], echo["rate"], echo["audio.input.rate"]) == (canonical, rate_hz, rate_hz)
                    assert echo["audio.input"] == {"type": MEDIA[canonical], "rate": rate_hz}
            for name, canonical in OUTPUTS:
                async with rig.caller(session={"turn_detection": None}, profile=profile, marks=False) as caller:
                    echo = await updated(caller, said("output", name, way))
                    rate_hz = RATES.get(canonical, 24_000)
                    assert (echo["output"], echo["audio.output.rate"]) == (canonical, rate_hz)
                    assert echo["audio.output"] == {"type": MEDIA[canonical], "rate": rate_hz}
                    await caller.appends(1.0)
                    await caller.commits()
                    delta = await caller.hears("response.output_audio.delta")
                    assert (delta["format"], delta["sample_rate_hz"]) == (canonical, rate_hz)
                    await caller.hears("response.done", status="completed")

    run_story(story)


BAD = (
    "g711",
    "g711 ulaw",
    "u-law",
    "pcm24",
    "opus",
    "audio/opus",
    "mp3",
    "",
    " pcm16",
    16,
    True,
    ["pcm16"],
    {"type": 3},
)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("direction", ["input", "output"])
@pytest.mark.parametrize("profile", Profile)
def test_a_name_that_is_none_is_refused_and_changes_nothing(way: str, direction: str, profile: Profile) -> None:
    wrong_way = {"input": "wav", "output": "pcm_f32le"}[direction]

    async def story() -> None:
        async with open_rig(mode="turn", script=ANSWERS) as rig:
            async with rig.caller(session={"turn_detection": None}, profile=profile) as caller:
                before = await updated(caller, {})
                for name in (*BAD, wrong_way):
                    if way in ("nested", "flat") or not isinstance(name, dict):
                        session = {**said(direction, name, way), "metadata": {"tag": "refused"}}
                        refused = await caller.sends("session.update", session=session)
                        error = await caller.hears("error", code="unsupported_audio_format", event_id=refused)
                        place = f"{direction}_audio_format" if way.startswith("flat") else f"audio.{direction}.format"
                        assert str(error["param"]).startswith(place), error.event
                assert await updated(caller, {}) == before
                assert not caller.all("session.updated", tag="refused")

    run_story(story)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("profile", Profile)
def test_a_bad_name_in_an_append_or_a_request_is_refused_too(way: str, profile: Profile) -> None:
    async def story() -> None:
        async with open_rig(mode="turn", script=ANSWERS) as rig:
            async with rig.caller(session={"turn_detection": None}, profile=profile) as caller:
                for name in BAD:
                    refused = await caller.appends(0.1, format=name)
                    await caller.hears("error", code="unsupported_audio_format", event_id=refused)
                    await caller.appends(1.0)
                    await caller.commits(response_create=False)
                    refused = await caller.asks(**said("output", name, way))
                    await caller.hears("error", code="unsupported_audio_format", event_id=refused)
                    await caller.asks()
                    await caller.hears("response.done", status="completed")

    run_story(story)


@pytest.mark.parametrize("name", [*SPELLINGS["g711_ulaw"], *SPELLINGS["g711_alaw"]])
@pytest.mark.parametrize("profile", Profile)
def test_160_bytes_of_telephone_sound_are_20_milliseconds(name: str, profile: Profile) -> None:
    loud = base64.b64encode(bytes([*[0x80] * 8, *[0x00] * 8] * 10)).decode()

    async def story() -> None:
        async with open_rig(mode="turn", script=ANSWERS) as rig:
            for way in WAYS:
                detection = {"type": "server_vad", "silence_duration_ms": 200}
                session = {**said("input", name, way), "turn_detection": detection}
                async with rig.caller(session=session, profile=profile) as caller:
                    silence = base64.b64encode(bytes([0xFF if "ula" in name.lower() or "pcmu" in name else 0xD5] * 160))
                    for sound in [loud] * 50 + [silence.decode()] * 25:
                        await caller.sends("input_audio_buffer.append", audio=sound)
                    await caller.hears("input_audio_buffer.speech_started")
                    stopped = await caller.hears("input_audio_buffer.speech_stopped")
                    ended_ms = stopped["audio_end_ms"]
                    assert isinstance(ended_ms, int)
                    assert 1150 <= ended_ms <= 1300

    run_story(story)


@pytest.mark.parametrize("law", ["g711_ulaw", "g711_alaw"])
def test_a_telephone_answer_is_8000_samples_a_second(law: str) -> None:
    async def story() -> None:
        async with open_rig(mode="turn", script=ANSWERS) as rig:
            session: dict[str, object] = {"output_audio_format": law}
            async with rig.caller(session=session, marks=False) as caller:
                await caller.appends(1.0)
                await caller.commits()
                done = await caller.hears("response.done", status="completed")
                assert len(caller.audio(done["response_id"])) == pytest.approx(8_000 * 0.4, abs=80)
                assert caller.audio_ms(done["response_id"]) == pytest.approx(400, abs=10)

    run_story(story)
