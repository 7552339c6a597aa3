"""What the Trio side and the device side of PersonaPlex say to each other. Everything here pickles and imports no torch."""

import attrs


@attrs.frozen(kw_only=True)
class Opening:
    """What a slot is let for. `persona`: text tokens. Temperatures of 0: greedy. `seed` None: a random one."""

    voice: str
    persona: tuple[int, ...]
    text_temperature: float = 0.7
    text_top_k: int = 25
    audio_temperature: float = 0.8
    audio_top_k: int = 250
    seed: int | None = None


@attrs.frozen
class Begin:
    """Answered, with nothing, once the prompt has been read and the call can be stepped."""


@attrs.frozen
class Measure:
    """Answered with the seconds that a frame of all slots together takes: the median of `frames`. Nobody else may be there."""

    frames: int = 20


@attrs.frozen
class Hear:
    """One frame of the user: 1,920 float32 samples at 24 kHz as bytes."""

    samples: bytes


@attrs.frozen
class Said:
    """One frame of the agent: 1,920 samples of PCM16 at 24 kHz, and its text token.

    `rolled`: with this frame the window is full, and the prompt begins to leave it.
    """

    pcm: bytes
    text: int
    rolled: bool = False
