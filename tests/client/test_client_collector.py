"""The collector: what it counts, joins and measures, and the acknowledgement of everything collected."""

import pytest
import trio
from client_peer import Line, Peer

from duplex_engine.client import DuplexClient, EventCollector, acknowledge_collected_playback, wait_for_condition

URL = "ws://h"


def delta(response_id: str, at_ms: int, audio: str = "AAAA") -> dict:
    return {
        "type": "response.output_audio.delta",
        "response_id": response_id,
        "delta": audio,
        "sample_rate_hz": 24_000,
        "metadata": {"audio_duration_ms": at_ms, "vllm_omni": {"stage_metrics": {"0": {"num_tokens_out": at_ms}}}},
    }


def collected() -> EventCollector:
    collector = EventCollector()
    for at_s, event in [
        (1.0, {"type": "response.created", "response": {"id": "a"}}),
        (1.2, {"type": "response.output_audio_transcript.delta", "response_id": "a", "delta": "Hel"}),
        (1.5, delta("a", 400)),
        (1.9, delta("a", 800)),
        (1.9, {"type": "response.output_audio_transcript.delta", "response_id": "a", "delta": "lo"}),
        (2.5, delta("a", 1000)),
        (2.6, {"type": "response.done", "response_id": "a", "response": {"id": "a"}}),
        (3.0, {"type": "error", "error": {"code": "bad_event"}}),
        (4.0, {"type": "response.created", "response_id": "b"}),
    ]:
        collector.add(event, received_at_s=at_s)
    return collector


def test_counting_and_joining():
    collector = collected()
    assert collector.count("response.output_audio.delta") == 3
    assert collector.response_ids == ["a", "b"]
    assert collector.response_text("a") == "Hello"
    assert collector.audio_bytes("a") == collector.audio_bytes() == bytes(9)
    assert (collector.response_is_done("a"), collector.response_is_done("b")) == (True, False)
    assert [event["error"]["code"] for event in collector.errors()] == ["bad_event"]
    assert collector.first_received_at("response.output_audio.delta", after_s=1.6) == 1.9
    assert collector.last_received_at("response.output_audio.delta") == 2.5
    assert collector.first_received_at("nothing") is collector.last_received_at("nothing") is None


def test_timing_of_one_response():
    summary = collected().timing_summary(after_s=0, input_committed_at_s=0.5, response_id="a")
    output, metrics = summary["audio_output"], summary["request_metrics"]
    assert output["chunk_count"] == 3
    assert output["response_created_to_first_audio_ms"] == 500
    assert output["commit_to_first_audio_ms"] == 1000
    assert output["inter_chunk_interval_ms"] == {"count": 2, "mean": 500, "p50": 400, "p95": 600, "max": 600}
    assert output["chunk_duration_ms"]["max"] == 400
    assert output["max_chunk_gap_ms"] == pytest.approx(600)
    assert (metrics["ttft_ms"], metrics["ttfp_ms"]) == (700, 1000)
    assert (metrics["audio_generation_ms"], metrics["audio_duration_ms"]) == (2000, 1000)
    assert summary["stages"] == {"0": {"num_tokens_out": 1000}}


def test_timing_without_audio_is_empty_and_the_servers_figures_win():
    collector = collected()
    assert collector.timing_summary(after_s=3.5) == {}
    collector.add(delta("b", 100) | {"response_request_metrics": {"ttfp_ms": 12.5}}, received_at_s=5.0)
    assert collector.timing_summary(after_s=3.5, response_id="b")["request_metrics"]["ttfp_ms"] == 12.5
    window = collector.global_timing_summary(
        after_s=0, window_started_at_s=1.0, response_ids=["a", "b"], measurement_origin={"ttfp": "here"}
    )
    assert (window["ttfp_ms"], window["audio_generation_ms"], window["audio_duration_ms"]) == (500, 4000, 1100)


async def test_collecting_a_session_and_acknowledging_it(autojump_clock, nursery):
    async def script(line: Line) -> None:
        await line.open()
        await line.receive("input_audio_buffer.commit")
        await line.respond("a", b"\0\0" * 2400)
        await line.respond("b")
        await line.respond("c")
        await line.done("c")
        await line.serve_until_closed()

    peer = Peer(nursery, script)
    collector = EventCollector()
    async with trio.open_nursery() as collecting, DuplexClient(URL, connect=peer.connect) as client:
        await collecting.start(collector.consume, client)
        await client.commit()
        await wait_for_condition(lambda: collector.response_is_done("c"), timeout_s=5, label="c")
        await acknowledge_collected_playback(client, collector)
    sent = [event for event in peer.lines[0].received if event["type"] == "playback.ack"]
    assert [(event["response_id"], event["item_id"], event["played_ms"]) for event in sent] == [
        ("a", "item_a", 100),
        ("b", "item_b", 0),
    ]
    assert collector.count("session.closed") == 1


async def test_a_condition_that_never_holds_is_named(autojump_clock):
    with pytest.raises(TimeoutError, match="the moon did not come within 3 s"):
        await wait_for_condition(lambda: False, timeout_s=3, label="the moon")
