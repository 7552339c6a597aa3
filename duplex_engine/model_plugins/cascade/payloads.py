"""What the cascade's two halves say to each other: one frozen class per question and answer.

Owns the payloads that cross to the worker processes and back. Never computes; imports nothing that needs weights, so
both halves can afford it.
"""

import attrs
import numpy as np
from numpy.typing import NDArray

RECOGNISER_RATE_HZ = 16_000
VOICE_RATE_HZ = 22_050

Samples = NDArray[np.float32]


@attrs.frozen(eq=False)
class RecogniseAudio:
    """What was said? `samples`: float32 mono (n,) at 16 kHz, -1..1. One answer: `str`, empty when nothing was."""

    samples: Samples


@attrs.frozen
class ChatMessage:
    """One message as a chat model reads it; `role` is system, user or assistant."""

    role: str
    content: str


@attrs.frozen(kw_only=True)
class Prompt:
    """What comes next in this conversation? Answers: `TextDelta`s, then one `Completion` as the last.

    `max_tokens` 0 writes nothing: the model only reads the messages, so that a later prompt that begins alike is
    answered sooner. `temperature` None: the model's own. `seed` None: a fresh one. `grammar`: what may be written, in the
    notation of the runtime; None: anything.
    """

    messages: tuple[ChatMessage, ...]
    max_tokens: int = 120
    temperature: float | None = None
    seed: int | None = None
    grammar: str | None = None


@attrs.frozen
class TextDelta:
    """The next characters that the model wrote."""

    text: str


@attrs.frozen(kw_only=True)
class Completion:
    """How a prompt ended. `reason`: "stop", "length" (max_tokens or the context ran out) or "cancelled".

    `cached_tokens` of the `prompt_tokens` had been read before.
    """

    reason: str
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


@attrs.frozen
class Speak:
    """Say this. `text` as the model wrote it; `speed` 1.0 is normal, 2.0 twice as fast. One answer: `SpokenClause`."""

    text: str
    speed: float = 1.0


@attrs.frozen
class SpokenClause:
    """The sound of a clause: `pcm` int16 little-endian mono at 22,050 Hz, empty when nothing in it can be said."""

    pcm: bytes
