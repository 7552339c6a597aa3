"""What a call begins with: read in one pass it leaves the same conversation as read frame by frame."""

import attrs
import pytest
import torch
from personaplex_kit import GREEDY, PERSONA, Tiny, random_codes, speak_alone
from ring_reference import RingReference
from torch import Tensor
from transformers_reference import reference_lm

from duplex_engine.model_plugins.personaplex.prompt import (
    SILENCE,
    SINE,
    Voice,
    voice_from_bundle,
    voice_rows,
)
from duplex_engine.model_plugins.personaplex.sampling import Sampling
from duplex_engine.model_plugins.personaplex.snapshot import Snapshots
from duplex_engine.model_plugins.personaplex.tiny import VOICES, voice_bundle, voice_codes, voice_sound

FRAMES = 69


def spoken_voice(tiny: Tiny, name: str) -> Tensor:
    """The codes of a voice's prompt, from its sound."""
    frames, pitch_hz = VOICES[name]
    return voice_codes(tiny.checkpoint.mimi, voice_sound(frames, pitch_hz))


def by_ring(reference: RingReference, persona: list[int], user: Tensor) -> Tensor:
    """What the reference says: it answers a frame one call later."""
    reference.read(persona)
    said = [reference.answer(frame[0]) for frame in [*user, user[-1]]]
    return torch.tensor(said[1:])


@torch.inference_mode()
@pytest.mark.parametrize(("voice", "persona"), [("NATF2", PERSONA), ("NATM1", "")])
def test_a_prompt_read_at_once_is_the_prompt_stepped_through(tiny: Tiny, voice: str, persona: str) -> None:
    user = random_codes(FRAMES, 1)
    bundle = tiny.bundle(voice)
    reference = RingReference(reference_lm(tiny.lm_file, tiny.model.sizes))
    reference.hear_bundle(bundle["embeddings"], bundle["cache"])
    theirs = by_ring(reference, tiny.persona(persona), user)
    ours = speak_alone(tiny.model, tiny.snapshot(voice, persona), user)
    assert torch.equal(ours, theirs)
    assert len(ours[:, 0].unique()) > 20
    assert len(ours[:, 1].unique()) > 20


@torch.inference_mode()
def test_a_voice_heard_as_sound_is_stepped_through_to_the_same_conversation(tiny: Tiny) -> None:
    """From codes on both sides: no file, so nothing is rounded in between."""
    user, codes = random_codes(FRAMES, 2), spoken_voice(tiny, "NATM1")
    reference = RingReference(reference_lm(tiny.lm_file, tiny.model.sizes))
    reference.hear_voice(codes)
    theirs = by_ring(reference, tiny.persona(), user)
    heard = voice_from_bundle("heard", exact_bundle(tiny, codes), tiny.model.sizes)
    assert torch.equal(speak_alone(tiny.model, tiny.snapshot(heard), user), theirs)


def exact_bundle(tiny: Tiny, codes: Tensor) -> dict[str, Tensor]:
    """A voice's file with inputs in float32."""
    rows = voice_rows(codes, tiny.model.sizes)
    bundle = voice_bundle(tiny.model, codes)
    return bundle | {"embeddings": tiny.model.embed(rows[: len(codes) - 1]).view(bundle["embeddings"].shape)}


@torch.inference_mode()
@pytest.mark.parametrize("name", VOICES)
def test_a_voice_in_the_archive_is_its_sound(tiny: Tiny, name: str) -> None:
    """Its inputs are rounded in the file, so they are rounded here before the conversations are compared."""
    codes = spoken_voice(tiny, name)
    voice = tiny.checkpoint.voice(name)
    rows = voice_rows(codes, tiny.model.sizes)
    heard = Voice(
        name=name,
        embeddings=tiny.model.embed(rows[: len(codes) - 1]).bfloat16(),
        last_row=rows[len(codes) - 1],
        pending=rows[len(codes)],
    )
    assert voice.frames == len(codes)
    assert torch.equal(voice.last_row, heard.last_row)
    user = random_codes(FRAMES, 3)
    ours = speak_alone(tiny.model, tiny.snapshot(name), user)
    assert torch.equal(ours, speak_alone(tiny.model, tiny.snapshot(heard), user))
    rough = (voice.embeddings.float() - tiny.model.embed(rows[: len(codes) - 1])).abs().max()
    assert rough < 0.02


@torch.inference_mode()
def test_the_sound_of_a_voice_is_heard_to_its_end(tiny: Tiny) -> None:
    """Its last position and its last delayed codes change what is said: leaving them out would be heard."""
    user, voice = random_codes(FRAMES, 4), tiny.checkpoint.voice("NATF2")
    said = speak_alone(tiny.model, tiny.snapshot("NATF2"), user)
    silent = torch.tensor([3, *SILENCE, *SINE])
    for changed in (attrs.evolve(voice, last_row=silent), attrs.evolve(voice, pending=silent)):
        other = speak_alone(tiny.model, tiny.snapshot(changed), user)
        assert not torch.equal(said, other)


@torch.inference_mode()
@pytest.mark.parametrize("chunk", [1, 5, 64])
def test_a_prompt_read_in_pieces_is_the_same(tiny: Tiny, chunk: int) -> None:
    user = random_codes(FRAMES, 5)
    whole = speak_alone(tiny.model, tiny.snapshot(chunk=1000), user)
    assert torch.equal(speak_alone(tiny.model, tiny.snapshot(chunk=chunk), user), whole)


@torch.inference_mode()
def test_a_checkpoint_without_unheard_steps_says_the_same(tiny: Tiny, eight_steps: Tiny) -> None:
    user = random_codes(FRAMES, 6)
    for sampling in (GREEDY, Sampling(seed=4)):
        ours = speak_alone(tiny.model, tiny.snapshot(), user, sampling)
        assert torch.equal(speak_alone(eight_steps.model, eight_steps.snapshot(), user, sampling), ours)


def test_snapshots_make_room_for_newer_ones_but_keep_what_is_pinned(tiny: Tiny) -> None:
    one = tiny.snapshot()
    kept = Snapshots(2 * one.nbytes)
    kept.put("pinned", one, pinned=True)
    kept.put("old", one)
    assert kept.get("old") is one
    kept.put("new", one)
    assert kept.get("old") is None
    assert kept.get("pinned") is one
    assert kept.get("new") is one
    assert len(kept) == 2
    kept.put("newest", one)
    assert kept.get("new") is None
