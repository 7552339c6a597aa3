"""Chat answers: whole and as a stream, in words and in sound, with calls of functions, and what the model is told."""

import base64
import io
import wave
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import trio
from chat_rig import HELLO, SOUND, Chatty, ask, turns
from server_rig import rigged
from trio.abc import Clock

from duplex_engine.conversation.facts import FunctionCall
from duplex_engine.testing.marks import MarkReader

SPOKEN = {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "pcm16"}}
USAGE = {
    "prompt_tokens": 30,
    "completion_tokens": 7,
    "total_tokens": 37,
    "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 10},
    "completion_tokens_details": {"audio_tokens": 2, "reasoning_tokens": 0},
}
SILENCE = {"type": "input_audio", "input_audio": {"data": base64.b64encode(bytes(9_600)).decode(), "format": "pcm16"}}


# --- in words ----------------------------------------------------------------------------------------------------


async def test_a_whole_answer(autojump_clock: Clock) -> None:
    async with rigged(Chatty()) as rig:
        reply = await ask(rig, model="any", temperature=0.5, max_tokens=9)
        assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
        answer = reply.json
        assert answer["id"].startswith("chatcmpl-")
        assert answer["created"] > 1_700_000_000
        assert {key: answer[key] for key in ("object", "model", "usage")} == {
            "object": "chat.completion",
            "model": "any",
            "usage": USAGE,
        }
        assert answer["choices"] == [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "All right.", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ]
        config = rig.engine.plugin.configs[-1]
        assert (config.model, config.temperature, config.max_response_output_tokens) == ("any", 0.5, 9)
        assert (config.turn_detection, config.native, config.speaks) == (None, False, False)
        assert rig.seats == 0


async def test_without_a_model_s_name_the_one_that_is_served_answers(autojump_clock: Clock) -> None:
    async with rigged(Chatty(), model_name="demo") as rig:
        assert (await ask(rig, model=None)).json["model"] == "demo"


@pytest.mark.parametrize("usage", [False, True])
async def test_a_stream(autojump_clock: Clock, usage: bool) -> None:
    async with rigged(Chatty()) as rig:
        reply = await ask(rig, stream=True, stream_options={"include_usage": usage})
        assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        assert reply.headers["cache-control"] == "no-cache"
        *lines, done = reply.lines
        assert done == "[DONE]"
        assert {(line["object"], line["id"], line["created"], line["model"]) for line in lines} == {
            ("chat.completion.chunk", lines[0]["id"], lines[0]["created"], "any")
        }
        assert reply.deltas == [
            {"role": "assistant", "content": "", "refusal": None},
            {"content": "All "},
            {"content": "right."},
            {},
        ]
        chunks = lines[:-1] if usage else lines
        assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, None, "stop"]
        assert [line["usage"] for line in lines if "usage" in line] == ([None] * 4 + [USAGE] if usage else [])
        if usage:
            assert lines[-1]["choices"] == []


@pytest.mark.parametrize(("reason", "told"), [("stop", "stop"), ("length", "length"), ("whatever", "stop")])
async def test_why_an_answer_ended(autojump_clock: Clock, reason: str, told: str) -> None:
    async with rigged(Chatty(reason=reason)) as rig:
        assert (await ask(rig)).json["choices"][0]["finish_reason"] == told
        assert (await ask(rig, stream=True)).lines[-2]["choices"][0]["finish_reason"] == told


async def test_an_answer_of_nothing(autojump_clock: Clock) -> None:
    async with rigged(Chatty(words=())) as rig:
        assert (await ask(rig)).message["content"] == ""
        assert (await ask(rig, **SPOKEN)).message["content"] == ""
        assert (await ask(rig, stream=True)).deltas == [{"role": "assistant", "content": "", "refusal": None}, {}]


# --- in sound ----------------------------------------------------------------------------------------------------


async def test_sound_on_request(autojump_clock: Clock) -> None:
    async with rigged(turns('speak "one two three" for 2', lead_s=0.1)) as rig:
        message = (await ask(rig, **SPOKEN)).message
        assert (message["content"], message["audio"]["transcript"]) == (None, "one two three")
        assert message["audio"]["id"].startswith("audio_")
        assert message["audio"]["expires_at"] > 1_700_000_000
        pcm = base64.b64decode(message["audio"]["data"])
        assert len(pcm) == 2 * 24_000 * 2
        MarkReader().hear("answer", pcm)


async def test_an_answer_does_not_take_as_long_as_it_sounds(autojump_clock: Clock) -> None:
    async with rigged(turns('speak "one two three" for 100', lead_s=0.1, step_ms=1)) as rig:
        begun = trio.current_time()
        await ask(rig, **SPOKEN)
        assert trio.current_time() - begun < 10


async def test_sound_as_a_file(autojump_clock: Clock) -> None:
    async with rigged(Chatty()) as rig:
        for audio in ({"format": "wav"}, {}):
            message = (await ask(rig, modalities=["text", "audio"], audio=audio)).message
            with wave.open(io.BytesIO(base64.b64decode(message["audio"]["data"]))) as file:
                assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
                assert file.readframes(file.getnframes()) == b"\1\2" * 2_002


async def test_sound_in_a_stream_can_be_joined_before_and_after_decoding(autojump_clock: Clock) -> None:
    async with rigged(Chatty(words=("All ", "right ", "then."))) as rig:
        reply = await ask(rig, stream=True, **SPOKEN)
        first, *deltas, last = reply.deltas
        assert (first, last) == ({"role": "assistant", "content": None, "refusal": None}, {})
        audio = [delta["audio"] for delta in deltas]
        assert "".join(part.get("transcript", "") for part in audio) == "All right then."
        pieces = [part["data"] for part in audio if "data" in part]
        sound = b"\1\2" * 3_003
        assert len(pieces) > 2
        assert b"".join(map(base64.b64decode, pieces)) == sound == base64.b64decode("".join(pieces))
        assert [part["id"] for part in audio if "id" in part] == [f"audio_{reply.lines[0]['id'][9:]}"]
        assert "id" in next(part for part in audio if "data" in part)
        assert audio[-1].keys() == {"expires_at"}


# --- calls -------------------------------------------------------------------------------------------------------

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
CALLS = [FunctionCall("look", '{"at":"me"}', "call_1"), FunctionCall("look", "{}", "call_2")]
CALLED = [
    {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at":"me"}'}},
    {"id": "call_2", "type": "function", "function": {"name": "look", "arguments": "{}"}},
]


@pytest.mark.parametrize(("words", "content"), [((), None), (("Wait.",), "Wait.")])
async def test_calls_of_functions(autojump_clock: Clock, words: Sequence[str], content: str | None) -> None:
    async with rigged(Chatty(words=words, calls=CALLS)) as rig:
        whole = (await ask(rig, tools=TOOLS, tool_choice="auto")).json["choices"][0]
        assert whole["finish_reason"] == "tool_calls"
        assert whole["message"]["content"] == content
        assert whole["message"]["tool_calls"] == CALLED
        stream = await ask(rig, tools=TOOLS, stream=True)
        assert [call for delta in stream.deltas for call in delta.get("tool_calls", ())] == [
            {"index": index, **call} for index, call in enumerate(CALLED)
        ]
        assert stream.lines[-2]["choices"][0]["finish_reason"] == "tool_calls"
        assert rig.engine.plugin.configs[-1].tools == (
            {"type": "function", "name": "look", "parameters": {"type": "object"}},
        )


async def test_the_whole_round_of_a_call(autojump_clock: Clock) -> None:
    async with rigged(plugin := Chatty()) as rig:
        messages = [
            {"role": "user", "content": "What is there?"},
            {"role": "assistant", "content": None, "tool_calls": CALLED},
            {"role": "tool", "tool_call_id": "call_2", "content": "a cat"},
            {"role": "tool", "tool_call_id": "call_1", "content": "a dog"},
        ]
        assert (await ask(rig, messages=messages)).message["content"] == "All right."
        assert plugin.heard == [
            ("user", "What is there?"),
            ("assistant", '{"at":"me"}'),
            ("assistant", "{}"),
            ("tool", "a cat"),
            ("tool", "a dog"),
        ]
        assert [(m.name, m.call_id) for m in plugin.turns[-1].history if m.role == "assistant"] == [
            ("look", "call_1"),
            ("look", "call_2"),
        ]


async def test_a_result_of_no_call_is_refused(autojump_clock: Clock) -> None:
    async with rigged(Chatty()) as rig:
        reply = await ask(rig, messages=[*HELLO, {"role": "tool", "tool_call_id": "call_9", "content": "x"}])
        assert (reply.status, reply.error["code"], reply.error["param"]) == (
            400,
            "invalid_function_call_output",
            "messages[1]",
        )
        assert rig.seats == 0


# --- what the model is told --------------------------------------------------------------------------------------


async def test_instructions_and_history(autojump_clock: Clock) -> None:
    async with rigged(plugin := Chatty()) as rig:
        messages: list[dict[str, Any]] = [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello."},
            {"role": "system", "content": "Be rude."},
            {"role": "user", "content": [{"type": "text", "text": "Who"}, {"type": "text", "text": "are you?"}]},
        ]
        await ask(rig, messages=messages)
        assert plugin.configs[-1].instructions == "Be brief."
        assert plugin.heard == [
            ("user", "Hi"),
            ("assistant", "Hello."),
            ("system", "Be rude."),
            ("user", "Who are you?"),
        ]


async def test_the_user_s_sound_is_heard(autojump_clock: Clock) -> None:
    async with rigged(plugin := Chatty()) as rig:
        question = {"role": "user", "content": [{"type": "text", "text": "Listen:"}, SOUND]}
        assert (await ask(rig, messages=[question])).message["content"] == "All right."
        assert plugin.turns[-1].utterance.sample_count == 16_000
        assert plugin.heard == [("user", "Listen:")]


async def test_sound_that_was_answered_is_only_words(autojump_clock: Clock) -> None:
    async with rigged(plugin := Chatty()) as rig:
        answer = {"role": "assistant", "content": "Fine."}
        messages = [
            {"role": "user", "content": [SOUND]},
            answer,
            {"role": "user", "content": [SILENCE]},
            answer,
            {"role": "user", "content": [SOUND, SOUND]},
        ]
        reply = await ask(rig, messages=messages)
        assert reply.message["content"] == "All right."
        assert reply.json["usage"] == USAGE
        assert plugin.turns[-1].utterance.sample_count == 32_000
        assert plugin.heard == [("user", "1.0 s of sound"), ("assistant", "Fine."), ("assistant", "Fine.")]


async def test_long_sound_is_heard_as_one(autojump_clock: Clock) -> None:
    async with rigged(plugin := Chatty()) as rig:
        pcm = (np.sin(np.arange(24_000 * 25) * 0.2) * 12_000).astype("<i2").tobytes()
        long = {"type": "input_audio", "input_audio": {"data": base64.b64encode(pcm).decode(), "format": "pcm16"}}
        question = {"role": "user", "content": [long]}
        assert (await ask(rig, messages=[question])).status == 200
        assert plugin.turns[-1].utterance.sample_count == 16_000 * 25
        await ask(rig, messages=[question, {"role": "assistant", "content": "Fine."}, *HELLO])
        assert plugin.heard == [("user", "25.0 s of sound"), ("assistant", "Fine."), ("user", "Hello")]


async def test_silence_alone_is_nothing_to_answer(autojump_clock: Clock) -> None:
    async with rigged(Chatty()) as rig:
        answered = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
        for before in ([], answered):
            for content in ([SILENCE], "", []):
                reply = await ask(rig, messages=[*before, {"role": "user", "content": content}])
                assert (reply.status, reply.error["code"]) == (400, "nothing_said")
        text = {"type": "text", "text": "Are you there?"}
        assert (await ask(rig, messages=[{"role": "user", "content": [SILENCE, text]}])).status == 200


async def test_many_messages_are_laid_out_one_after_the_other(autojump_clock: Clock) -> None:
    async with rigged(plugin := Chatty()) as rig:
        messages = [{"role": ("user", "assistant")[n % 2], "content": f"number {n}"} for n in range(1001)]
        assert (await ask(rig, messages=messages)).status == 200
        assert plugin.heard == [(message["role"], message["content"]) for message in messages]


async def test_a_long_message_and_one_that_is_too_long(autojump_clock: Clock) -> None:
    async with rigged(plugin := Chatty()) as rig:
        words = "word " * 40_000
        assert (await ask(rig, messages=[{"role": "user", "content": words}])).status == 200
        assert plugin.heard == [("user", words)]
        reply = await ask(rig, messages=[*HELLO, {"role": "user", "content": words * 2}])
        assert (reply.status, reply.error["code"], reply.error["param"]) == (413, "event_too_large", "messages[1]")
        assert rig.seats == 0
