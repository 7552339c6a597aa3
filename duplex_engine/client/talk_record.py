"""What was said on both sides of a talk, and when.

Owns the reading of events into answers and the timing summary. Pure: events and times come in, seconds of one clock.
"""

from typing import Any

import attrs

from duplex_engine.client.events import (
    AudioDelta,
    DuplexEvent,
    ErrorEvent,
    ResponseCreated,
    ResponseDone,
    TranscriptDelta,
)
from duplex_engine.client.media import PCM16_BYTES_PER_SAMPLE, Clip
from duplex_engine.client.playback import PlaybackClock
from duplex_engine.errors import DuplexError

__all__ = ["Answer", "TalkError", "TalkRecord", "Utterance"]

TRANSCRIBED = "conversation.item.input_audio_transcription.completed"


class TalkError(DuplexError):
    """The conversation did not go as it should; the message says what went wrong."""


@attrs.define
class Utterance:
    """One recording, spoken from `started_s` on; `transcripts` are the server's."""

    clip: Clip
    started_s: float
    transcripts: list[str] = attrs.Factory(list)
    speech_began_s: float = attrs.field(init=False)
    speech_ended_s: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        began_s, ended_s = self.clip.speech_bounds_s()
        self.speech_began_s = self.started_s + began_s
        self.speech_ended_s = self.started_s + ended_s

    @property
    def transcript(self) -> str:
        """What the server understood."""
        return " ".join(self.transcripts).strip()


@attrs.define
class Answer:
    """One response as it was heard; `pcm16` at `sample_rate_hz`.

    `stopped_by` is the event that cut it, `late_bytes` the audio that came after its end, which must be none.
    `acknowledged_ms` is for whoever acknowledges: None before the first time.
    """

    response_id: str
    pcm16: bytearray = attrs.Factory(bytearray)
    sample_rate_hz: int = 24_000
    transcript: str = ""
    heard_transcript: str | None = None
    status: str = "in_progress"
    reason: str | None = None
    first_audio_s: float | None = None
    last_audio_s: float | None = None
    done_s: float | None = None
    stopped_s: float | None = None
    stopped_by: str | None = None
    late_bytes: int = 0
    player: PlaybackClock = attrs.Factory(PlaybackClock)
    acknowledged_ms: int | None = None

    @property
    def received_s(self) -> float:
        """Length of the audio that arrived."""
        return len(self.pcm16) / (self.sample_rate_hz * PCM16_BYTES_PER_SAMPLE)

    @property
    def substantial(self) -> bool:
        """Whether it has sound or words."""
        return bool(self.pcm16 or self.transcript)

    def complete(self, now_s: float) -> bool:
        """Whether it was said, played and acknowledged to its end."""
        if self.status != "completed" or self.stopped_s is not None or not self.substantial:
            return False
        acknowledged = not self.pcm16 or self.acknowledged_ms == int(self.player.received_ms)
        return self.player.dry(now_s) and acknowledged

    def unacknowledged_ms(self, now_s: float) -> int | None:
        """The position to acknowledge, None if it is known already or nothing has been heard at all."""
        if self.first_audio_s is None:
            return None
        position_ms = int(self.player.position_ms(now_s))
        return None if position_ms == self.acknowledged_ms else position_ms

    def urgent(self, now_s: float) -> bool:
        """Whether the position is to be acknowledged at once: the first sound came, or it was cut."""
        edge = self.acknowledged_ms is None or self.stopped_s is not None
        return edge and self.unacknowledged_ms(now_s) is not None

    def learn(self, event: DuplexEvent, now_s: float) -> None:
        """Take in one of its events."""
        match event:
            case AudioDelta():
                self._hear(event.audio or b"", event.sample_rate_hz or self.sample_rate_hz, now_s)
            case TranscriptDelta():
                self.transcript += event.text or ""
            case ResponseDone():
                self._end(event.response, now_s)
            case _ if event.type == "output_audio_buffer.cleared":
                self._stop(event.type, now_s)

    def _hear(self, audio: bytes, sample_rate_hz: int, now_s: float) -> None:
        if self.done_s is not None or self.stopped_s is not None:
            self.late_bytes += len(audio)
            return
        self.first_audio_s = now_s if self.first_audio_s is None else self.first_audio_s
        self.last_audio_s = now_s
        self.sample_rate_hz = sample_rate_hz
        self.pcm16 += audio
        self.player.deliver(len(audio) * 1000 / (sample_rate_hz * PCM16_BYTES_PER_SAMPLE), now_s)

    def _end(self, response: Any, now_s: float) -> None:
        self.done_s = now_s
        self.status = str(response.get("status") or "completed")
        details = response.get("status_details")
        self.reason = details.get("reason") if isinstance(details, dict) else None
        if self.status == "cancelled":
            self._stop("response.done", now_s)
            self.heard_transcript = _item_transcript(response)

    def _stop(self, event_type: str, now_s: float) -> None:
        if self.stopped_s is None:
            self.stopped_s, self.stopped_by = now_s, event_type
            self.player.stop(now_s)


@attrs.define
class TalkRecord:
    """A talk so far. `interrupted_at`: how many answers there were when the second utterance began."""

    utterances: list[Utterance] = attrs.Factory(list)
    answers: list[Answer] = attrs.Factory(list)
    interrupted_at: int | None = None

    def learn(self, event: DuplexEvent, now_s: float) -> None:
        """Take in an event. Raises TalkError for a failed response and the server's own error for an `error` event."""
        match event:
            case ErrorEvent():
                raise event.to_exception()
            case ResponseCreated() if event.response_id:
                self.answers.append(Answer(event.response_id))
            case _ if event.type == TRANSCRIBED and self.utterances:
                self.utterances[-1].transcripts.append(event.text or "")
        for answer in self.answers:
            if answer.response_id == event.response_id:
                answer.learn(event, now_s)
                if answer.status == "failed":
                    raise TalkError(f"the answer failed on the server: {answer.reason or 'no reason given'}")

    def begin(self, clip: Clip, now_s: float) -> None:
        """The next recording begins to be spoken."""
        if self.utterances:
            self.interrupted_at = len(self.answers)
        self.utterances.append(Utterance(clip, now_s))

    def answers_to(self, utterance: int) -> list[Answer]:
        """The answers with sound or words that began while utterance 0 or 1 was the latest."""
        split = len(self.answers) if self.interrupted_at is None else self.interrupted_at
        return [a for a in (self.answers[:split], self.answers[split:])[utterance] if a.substantial]

    def answered(self, now_s: float) -> bool:
        """Whether the latest utterance has its answer, complete."""
        answers = self.answers_to(len(self.utterances) - 1)
        return bool(answers) and answers[-1].complete(now_s)

    def heard_ms(self, now_s: float) -> float:
        """How much of the running answer was heard; 0 if there is none."""
        if not self.answers or self.answers[-1].stopped_s is not None:
            return 0.0
        return self.answers[-1].player.position_ms(now_s)

    def summary(self) -> dict[str, Any]:
        """Everything as JSON: per utterance its transcript, its last answer and the times in between, in seconds."""
        turns = [self._turn(index) for index in range(len(self.utterances))]
        return {"turns": turns, "interruption": self._interruption(), "late_audio_bytes": self.late_bytes}

    @property
    def late_bytes(self) -> int:
        """Audio of any answer that came after its end or its cut."""
        return sum(answer.late_bytes for answer in self.answers)

    def _turn(self, index: int) -> dict[str, Any]:
        utterance, answers = self.utterances[index], self.answers_to(index)
        turn: dict[str, Any] = {
            "question": {"transcript": utterance.transcript, "duration_s": round(utterance.clip.duration_s, 3)},
            "answer": None,
        }
        if answers:
            answer = answers[-1]
            turn["answer"] = {
                "response_id": answer.response_id,
                "status": answer.status,
                "reason": answer.reason,
                "cut_by": answer.stopped_by,
                "transcript": answer.transcript,
                "heard_transcript": answer.heard_transcript,
                "received_s": round(answer.received_s, 3),
                "heard_s": round((answer.acknowledged_ms or 0) / 1000, 3),
                "end_of_speech_to_first_audio_s": _span(utterance.speech_ended_s, answer.first_audio_s),
                "end_of_speech_to_last_audio_s": _span(utterance.speech_ended_s, answer.last_audio_s),
            }
        return turn

    def _interruption(self) -> dict[str, Any] | None:
        if self.interrupted_at is None:
            return None
        began_s = self.utterances[1].speech_began_s
        cut = [answer for answer in self.answers_to(0) if answer.stopped_s is not None and answer.stopped_s >= began_s]
        if not cut:
            return {"cut_by": None}
        done_s = cut[-1].done_s
        return {
            "cut_by": cut[-1].stopped_by,
            "speech_to_cut_s": _span(began_s, cut[-1].stopped_s),
            # An answer that was said completely before it was cut has no `response.done` left to wait for.
            "speech_to_response_done_s": None if done_s is None or done_s < began_s else _span(began_s, done_s),
            "late_audio_bytes": cut[-1].late_bytes,
        }


def _span(start_s: float, end_s: float | None) -> float | None:
    return None if end_s is None else round(end_s - start_s, 3)


def _item_transcript(response: Any) -> str | None:
    """The words of a response's first item, as the server keeps them."""
    try:
        transcript = response["output"][0]["content"][0]["transcript"]
    except (KeyError, IndexError, TypeError):
        return None
    return transcript if isinstance(transcript, str) else None
