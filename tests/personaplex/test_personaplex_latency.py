"""How soon the agent can react: 160 ms, by construction, from the beginning of the frame in which something is heard.

80 ms until the frame is full, and 80 ms because what is to be said is decided a frame ahead: the step that brings frame p
decides text and meaning of frame p + 1, and only the colour of the sound of frame p, whose codes come one position later.
"""

import numpy as np
import torch
from personaplex_kit import PERSONA, Tiny, random_codes, random_sound, speak_alone, unwatched
from ring_reference import RingReference
from torch import Tensor
from transformers_reference import reference_lm

from duplex_engine.model_plugins.contract import Work
from duplex_engine.model_plugins.personaplex.questions import Hear, Opening, Said
from duplex_engine.model_plugins.personaplex.stepper import PersonaPlexStepper

FRAME_MS = 80
HEARD = 12
"""The frame in which there is an impulse."""
FRAMES = 20


def sounds() -> tuple[Tensor, Tensor]:
    """The same sound twice, with an impulse at the very end of one frame in the second."""
    quiet = 0.2 * random_sound(FRAMES, 1)
    loud = quiet.clone()
    loud[HEARD, -200:] = 0.9
    return quiet, loud


def first_difference(one: Tensor, other: Tensor) -> int:
    """The first frame in which they differ; as many as there are if there is none."""
    frames = (one != other).reshape(len(one), -1).any(-1).nonzero()
    return int(frames[0]) if len(frames) else len(one)


def answers(tiny: Tiny, sound: Tensor) -> tuple[Tensor, Tensor]:
    """What each step answers to the frame it brings: sound (frames, 1920) and text (frames,)."""
    stepper = PersonaPlexStepper(checkpoint=str(tiny.folder), slots=1)
    stepper.load(unwatched)
    opening = Opening(voice="NATF2", persona=tuple(tiny.persona(PERSONA)), text_temperature=0, audio_temperature=0)
    stepper.step(Work(opens=((0, {"opening": opening}),)))
    pcm, texts = [], []
    for ticket, frame in enumerate(sound):
        (result,) = stepper.step(Work(items=((0, ticket, Hear(frame.numpy().tobytes())),)))
        said = result.outcome.unwrap()
        assert isinstance(said, Said)
        pcm.append(np.frombuffer(said.pcm, "<i2").astype(np.int64))
        texts.append(said.text)
    return torch.from_numpy(np.stack(pcm)), torch.tensor(texts)


def test_every_step_answers_the_frame_it_brings_at_once(tiny: Tiny) -> None:
    """One frame out for each frame in, from the first; an impulse is in the sound of its own step."""
    (quiet, quiet_text), (loud, loud_text) = (answers(tiny, sound) for sound in sounds())
    assert len(quiet) == FRAMES
    assert first_difference(quiet, loud) == HEARD
    assert HEARD < first_difference(quiet_text, loud_text) < FRAMES


@torch.inference_mode()
def test_the_agent_reacts_160_ms_after_the_frame_began(tiny: Tiny) -> None:
    """Never sooner, and as soon as that if what is heard matters."""
    snapshot, quiet = tiny.snapshot(), random_codes(14, 3)
    said = speak_alone(tiny.model, snapshot, quiet)
    lags: dict[str, list[int]] = {"text": [], "meaning": [], "colour": []}
    for heard in range(4, 12):
        loud = quiet.clone()
        loud[heard] = (loud[heard] + 1000) % 2048
        other = speak_alone(tiny.model, snapshot, loud)
        for part, columns in (("text", [0]), ("meaning", [1]), ("colour", list(range(2, 9)))):
            lags[part].append(first_difference(said[:, columns], other[:, columns]) - heard)
    soonest = {part: min(several) for part, several in lags.items()}
    assert soonest == {"text": 1, "meaning": 1, "colour": 0}
    # The step that brings frame p decides meaning and text of frame p + 1, which is emitted one step later.
    assert FRAME_MS * (1 + soonest["meaning"]) == 160


@torch.inference_mode()
def test_the_reference_server_says_the_same_one_frame_later(tiny: Tiny) -> None:
    user = random_codes(30, 2)
    reference = RingReference(reference_lm(tiny.lm_file, tiny.model.sizes))
    bundle = tiny.bundle("NATF2")
    reference.hear_bundle(bundle["embeddings"], bundle["cache"])
    reference.read(tiny.persona())
    theirs = torch.tensor([reference.answer(frame[0]) for frame in user])
    ours = speak_alone(tiny.model, tiny.snapshot(), user)
    assert torch.equal(theirs[1:], ours[:-1])
    assert not (theirs == ours).all(-1).any()
