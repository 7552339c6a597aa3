"""Many calls in one batch: none of them can tell who else is there, whatever happens to the others."""

import random
from collections.abc import Sequence

import attrs
import torch
from personaplex_kit import PERSONA, Tiny, decode_alone, encode_alone, random_codes, random_sound, speak_alone
from torch import Tensor
from transformers_reference import decode_whole, encode_whole, reference_codec

from duplex_engine.model_plugins.contract import Result, Work
from duplex_engine.model_plugins.personaplex.calls import Calls
from duplex_engine.model_plugins.personaplex.mimi import Codec
from duplex_engine.model_plugins.personaplex.questions import Hear, Opening, Said
from duplex_engine.model_plugins.personaplex.sampling import Sampling
from duplex_engine.model_plugins.personaplex.stepper import PersonaPlexStepper

SLOTS = 8


@attrs.define(eq=False)
class Life:
    """One session on a slot: how it is opened, all it asks, and all it was answered."""

    opening: Opening
    sound: Tensor
    slot: int
    asked: list[Hear] = attrs.Factory(list)
    answers: list[Said] = attrs.Factory(list)

    def ask(self) -> Hear:
        """The next frame."""
        question = Hear(self.sound[len(self.asked) % len(self.sound)].numpy().tobytes())
        self.asked.append(question)
        return question

    def hear_back(self, results: Sequence[Result], ticket: int) -> bool:
        """Keep the answer to `ticket`, if it is there."""
        for result in results:
            if result.ticket == ticket:
                answer = result.outcome.unwrap()
                if answer is not None:
                    assert isinstance(answer, Said)
                    self.answers.append(answer)
                return True
        return False


def loaded(tiny: Tiny, slots: int = SLOTS) -> PersonaPlexStepper:
    stepper = PersonaPlexStepper(checkpoint=str(tiny.folder), slots=slots)
    stepper.load(lambda *_: None)
    return stepper


def new_life(tiny: Tiny, number: int, slot: int, chance: random.Random) -> Life:
    temperature = chance.choice([0.0, 0.8])
    opening = Opening(
        voice=chance.choice(["NATF2", "NATM1"]),
        persona=tuple(tiny.persona(chance.choice(["", PERSONA, "Bob."]))),
        text_temperature=temperature,
        audio_temperature=temperature,
        seed=number,
    )
    return Life(opening, random_sound(40, number), slot)


def storm(tiny: Tiny, stepper: PersonaPlexStepper, steps: int, chance: random.Random) -> list[Life]:
    """Sessions that come, hold and go at random. All of them, also those cut off."""
    lives: list[Life] = []
    here: dict[int, Life] = {}
    open_tickets: dict[int, int] = {}
    tickets = 0
    for _ in range(steps):
        resets, opens, items = [], [], []
        for slot in range(SLOTS):
            life = here.get(slot)
            if life is None:
                if chance.random() < 0.4:
                    life = new_life(tiny, len(lives), slot, chance)
                    lives.append(life)
                    here[slot] = life
                    opens.append((slot, {"opening": life.opening}))
            elif chance.random() < 0.05:
                del here[slot]
                open_tickets.pop(slot, None)
                resets.append(slot)
            elif slot not in open_tickets and chance.random() < 0.7:
                tickets += 1
                open_tickets[slot] = tickets
                items.append((slot, tickets, life.ask()))
        results = list(stepper.step(Work(resets=tuple(resets), opens=tuple(opens), items=tuple(items))))
        open_tickets = {
            slot: ticket for slot, ticket in open_tickets.items() if not here[slot].hear_back(results, ticket)
        }
    return lives


def told_again(stepper: PersonaPlexStepper, life: Life, slot: int) -> Life:
    """The same session once more, with all other slots empty."""
    again = Life(life.opening, life.sound, slot)
    stepper.step(Work(resets=tuple(range(SLOTS)), opens=((slot, {"opening": life.opening}),)))
    for ticket, question in enumerate(life.asked):
        results = list(stepper.step(Work(items=((slot, ticket, question),))))
        while not again.hear_back(results, ticket):
            results = list(stepper.step(Work()))
    return again


def test_a_session_among_others_is_the_session_alone_to_the_bit(tiny: Tiny) -> None:
    chance = random.Random(1)
    lives = storm(tiny, loaded(tiny), 50, chance)
    alone = loaded(tiny)
    compared = 0
    for life in lives:
        again = told_again(alone, life, chance.randrange(SLOTS))
        assert life.answers == again.answers[: len(life.answers)]
        compared += len(life.answers)
    assert len(lives) > 12
    assert compared > 120


def test_windows_that_wrap_at_different_times_do_not_disturb_each_other(narrow: Tiny) -> None:
    """Rows at unlike positions, held at random, across several turns of their rings."""
    model = narrow.model
    calls, width = Calls(model, 4), 4
    snapshot = narrow.snapshot(persona="")
    sampling = Sampling(seed=3)
    user = random_codes(60, 5, rows=width)
    chance, fed = random.Random(7), [0] * width
    said: list[list[Tensor]] = [[] for _ in range(width)]
    for tick in range(100):
        for row in range(width):
            if tick == 6 * row:
                calls.open(row, snapshot, sampling)
        rows = [row for row in range(width) if tick >= 6 * row and chance.random() < 0.7 and fed[row] < 60]
        if not rows:
            continue
        frame = calls.step(rows, torch.stack([user[min(fed[row], 59), row] for row in range(width)]))
        for row in rows:
            said[row].append(torch.cat([frame.text[row].view(1), frame.codes[row]]))
            fed[row] += 1
    for row in range(width):
        alone = speak_alone(model, snapshot, user[: fed[row], row : row + 1], sampling, rows=width, row=width - 1)
        assert fed[row] > 50
        assert torch.equal(torch.stack(said[row]), alone)


def test_a_snapshot_begins_the_same_call_on_any_row_again_and_again(tiny: Tiny) -> None:
    snapshot, user = tiny.snapshot(), random_codes(69, 6)
    calls = Calls(tiny.model, 4)
    first = speak_alone(tiny.model, snapshot, user, rows=4)
    calls.open(2, snapshot, Sampling(seed=1))
    for frame in user[:30]:
        calls.step([2], frame.expand(4, -1))
    for row in (2, 3):
        assert torch.equal(speak_alone(tiny.model, snapshot, user, rows=4, row=row), first)


def test_rows_of_the_codec_that_hold_at_random_are_the_recordings_alone(tiny: Tiny) -> None:
    mimi, width, frames = tiny.checkpoint.mimi, 4, 54
    sounds = [random_sound(frames, 10 + row) for row in range(width)]
    codes = [random_codes(frames, 20 + row)[:, 0] for row in range(width)]
    codec, chance, fed = Codec(mimi, width), random.Random(2), [0] * width
    heard: list[list[Tensor]] = [[] for _ in range(width)]
    played: list[list[Tensor]] = [[] for _ in range(width)]
    while min(fed) < frames:
        stepped = torch.tensor([fed[row] < frames and chance.random() < 0.6 for row in range(width)])
        now = [min(fed[row], frames - 1) for row in range(width)]
        encoded = codec.encode(torch.stack([sounds[row][now[row]] for row in range(width)]), stepped)
        decoded = codec.decode(torch.stack([codes[row][now[row]] for row in range(width)]), stepped)
        for row in range(width):
            if stepped[row]:
                heard[row].append(encoded[row])
                played[row].append(decoded[row])
                fed[row] += 1
    reference = reference_codec(tiny.codec_file, mimi.sizes)
    alone = Codec(mimi, width)
    for row in range(width):
        alone.reset_encoder(0)
        alone.reset_decoder(0)
        assert torch.equal(torch.stack(heard[row]), encode_whole(reference, sounds[row]))
        assert torch.equal(torch.stack(heard[row]), encode_alone(alone, sounds[row]))
        assert torch.equal(torch.stack(played[row]), decode_alone(alone, codes[row]))
        assert (torch.stack(played[row]) - decode_whole(reference, codes[row])).abs().max() < 2e-5
