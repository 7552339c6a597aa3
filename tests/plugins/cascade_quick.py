"""The cascade's Trio half on models that take simulated time and need no weights: for stories on the virtual clock."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from outcome import Value

from duplex_engine.audio.vad import EnergyDetector, SpeechDetector
from duplex_engine.model_plugins.cascade.payloads import (
    VOICE_RATE_HZ,
    Completion,
    Prompt,
    RecogniseAudio,
    Speak,
    SpokenClause,
    TextDelta,
)
from duplex_engine.model_plugins.cascade.plugin import CascadePlugin
from duplex_engine.model_plugins.contract import HostKind, Progress, Result, Work, WorkerSpec

WORDS = ("All", " right", " then,", " here", " it", " is.")
LOOK = ("<tool", '_call>\n{"name": "look",', ' "arguments": {"at": "it"}}\n</tool', "_call>")
WAVE = ('\n<tool_call>\n{"name": "wave"', "}\n</tool_call>")
WRITTEN = {
    "look": LOOK,
    "look for ever": (*LOOK, *("\n", *LOOK) * 50),
    "look and wave": ("One", " moment,", " please.", "\n", *LOOK, *WAVE),
    "dance": ("One", " moment.", ' <tool_call>{"name": "dance"}</tool_call>'),
}
"""What is written to these questions, token by token; to all others: WORDS."""
HEARD = "are you there"
STEP_S = 0.02


class Quick:
    """What the three have in common: nothing to load, and a step takes as long as it says when there is work."""

    seconds: ClassVar[float] = STEP_S

    def load(self, progress: Progress) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""

    def duration_s(self, work: Work) -> float:
        """The same for every step."""
        return self.seconds


class QuickRecogniser(Quick):
    """Always understands the same, if there is anything to hear."""

    def step(self, work: Work) -> Iterator[Result]:
        """Answer every item."""
        for _, ticket, payload in work.items:
            assert isinstance(payload, RecogniseAudio)
            yield Result(ticket, Value(HEARD if len(payload.samples) else ""))


class QuickLanguage(Quick):
    """Writes the same sentence, or what the question wants, a word a step; reads ahead in one step."""

    def __init__(self) -> None:
        self._running: dict[int, Iterator[str]] = {}

    def step(self, work: Work) -> Iterator[Result]:
        """The next word of every request."""
        for ticket in work.drops:
            self._running.pop(ticket, None)
        for _, ticket, payload in work.items:
            assert isinstance(payload, Prompt)
            question, offers = payload.messages[-1].content, "<tools>" in payload.messages[0].content
            words = LOOK if offers and question == HEARD else WRITTEN.get(question, WORDS)
            self._running[ticket] = iter(words if payload.max_tokens else ())
        for ticket, words_left in list(self._running.items()):
            if (word := next(words_left, None)) is not None:
                yield Result(ticket, Value(TextDelta(word)), last=False)
            else:
                del self._running[ticket]
                yield Result(ticket, Value(Completion(reason="stop", completion_tokens=len(WORDS))))


class QuickVoice(Quick):
    """Hums for 20 ms a character."""

    def step(self, work: Work) -> Iterator[Result]:
        """Answer every item."""
        for _, ticket, payload in work.items:
            assert isinstance(payload, Speak)
            yield Result(ticket, Value(SpokenClause(b"\x10\x10" * (VOICE_RATE_HZ // 50 * len(payload.text)))))


class QuickCascade(CascadePlugin):
    """The embedded voice without its weights."""

    def __init__(self) -> None:
        super().__init__(llm="light", lead_s=0.1, host="inline")

    def workers(self, max_sessions: int) -> Sequence[WorkerSpec]:
        """The same three workers, inline."""
        return tuple(
            WorkerSpec(
                name=name,
                stepper=f"{__name__}:{stepper.__name__}",
                slots=2 * max_sessions,
                host=HostKind.INLINE,
                step_timeout_s=1.0,
            )
            for name, stepper in (("recogniser", QuickRecogniser), ("language", QuickLanguage), ("voice", QuickVoice))
        )

    def detector(self) -> SpeechDetector:
        """Loud is speech."""
        return EnergyDetector()
