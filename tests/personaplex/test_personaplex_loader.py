"""A checkpoint that is not what it should be is refused with the name of what is wrong; a voice never runs code."""

import io
import json
import math
import os
import pickle
import tarfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import attrs
import pytest
import torch
from outcome import Error
from personaplex_kit import CPU, PUBLISHED, Tiny, unwatched
from safetensors.torch import load_file, save_file
from torch import Tensor

from duplex_engine.errors import ConfigRejected
from duplex_engine.model_plugins.contract import Work
from duplex_engine.model_plugins.personaplex.checkpoint import Checkpoint
from duplex_engine.model_plugins.personaplex.files import CODEC, MODEL, NEEDED, VOICES, find_checkpoint, voice_names
from duplex_engine.model_plugins.personaplex.questions import Hear, Opening, Said
from duplex_engine.model_plugins.personaplex.sizes import CheckpointRejected, MimiSizes, lm_sizes, mimi_sizes
from duplex_engine.model_plugins.personaplex.stepper import PersonaPlexStepper
from duplex_engine.model_plugins.personaplex.tiny import make_tiny
from duplex_engine.model_plugins.personaplex.weights import lm_tensors, load_lm, mimi_tensors, read_config

Tensors = dict[str, Tensor]


def load(folder: Path) -> Checkpoint:
    return Checkpoint.load(folder, CPU, unwatched)


def change(folder: Path, name: str, how: Callable[[Tensors], object]) -> None:
    """Write a file of tensors anew."""
    tensors = load_file(folder / name)
    how(tensors)
    save_file(tensors, folder / name)


def longer(tensors: Tensors, name: str) -> None:
    tensors[name] = torch.cat([tensors[name], tensors[name][:1]])


# --- Sizes and tensors ----------------------------------------------------------------------------------------------


def test_sizes_are_read_off_the_shapes(tiny: Tiny, eight_steps: Tiny) -> None:
    sizes = tiny.model.sizes
    assert (sizes.dim, sizes.layers, sizes.heads, sizes.hidden, sizes.context) == (32, 2, 2, 88, 256)
    assert (sizes.depth_dim, sizes.depth_layers, sizes.depth_heads, sizes.depth_hidden) == (16, 2, 2, 44)
    assert (sizes.text_cards, sizes.cards, sizes.depth_steps) == (384, 2048, 16)
    assert attrs.evolve(sizes, depth_steps=8) == eight_steps.model.sizes
    assert tiny.checkpoint.mimi.sizes == MimiSizes(
        dim=32, filters=2, layers=1, heads=2, hidden=32, codebook_dim=8, codebooks=8, cards=2048, context=250
    )


@pytest.mark.parametrize(("steps", "tensors", "parameters"), [(16, 475, 8.371e9), (8, 355, 7.688e9)])
def test_the_published_model_has_the_expected_tensors(steps: int, tensors: int, parameters: float) -> None:
    sizes = attrs.evolve(PUBLISHED, depth_steps=steps)
    wanted = lm_tensors(sizes)
    assert len(wanted) == tensors
    assert sum(math.prod(what.shape) for what in wanted.values()) == pytest.approx(parameters, rel=1e-4)
    assert lm_sizes({name: what.shape for name, what in wanted.items()}, {}) == sizes
    assert sizes.bytes_per_position == 512 * 1024


def test_the_published_codec_has_the_expected_tensors() -> None:
    sizes = MimiSizes(
        dim=512,
        filters=64,
        layers=8,
        heads=8,
        hidden=2048,
        codebook_dim=256,
        codebooks=32,
        cards=2048,
        context=250,
    )
    shapes = {name: what.shape for name, what in mimi_tensors(sizes).items()}
    assert mimi_sizes(shapes, {}) == sizes
    codebooks = sum(math.prod(shape) for name, shape in shapes.items() if name.endswith("embedding_sum"))
    others = sum(math.prod(shape) for name, shape in shapes.items() if "_codebook" not in name)
    assert codebooks == pytest.approx(16.8e6, rel=1e-2)
    assert others == pytest.approx(79.3e6, rel=1e-2)


def test_steps_that_nobody_hears_are_not_loaded(tiny: Tiny, eight_steps: Tiny) -> None:
    loaded = {}
    for checkpoint in (tiny, eight_steps):
        config = read_config(checkpoint.files.config)
        _, loaded[checkpoint.folder] = load_lm(checkpoint.files.model, config, CPU, torch.float32, unwatched)
    less, more = loaded[eight_steps.folder], loaded[tiny.folder]
    assert less.keys() == more.keys()
    assert all(torch.equal(less[name], more[name]) for name in less)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        (MODEL, "text_emb.weight"),
        (MODEL, "emb.15.weight"),
        (MODEL, "transformer.layers.1.self_attn.out_proj.weight"),
        (MODEL, "depformer_emb.14.weight"),
        (MODEL, "depformer.layers.0.gating.15.linear_in.weight"),
        (CODEC, "encoder.model.0.conv.conv.weight"),
        (CODEC, "decoder.model.14.conv.conv.bias"),
        (CODEC, "decoder_transformer.transformer.layers.0.layer_scale_2.scale"),
        (CODEC, "quantizer.rvq_rest.vq.layers.3._codebook._initialized"),
    ],
)
def test_tensors_that_are_missing_misshapen_or_unknown_are_named(folder: Path, file: str, name: str) -> None:
    whole = (folder / file).read_bytes()
    change(folder, file, lambda tensors: tensors.pop(name))
    with pytest.raises(CheckpointRejected, match=r"emb\.N\.weight" if name == "emb.15.weight" else name) as missing:
        load(folder)
    assert "missing" in str(missing.value) or "expected 16" in str(missing.value)

    (folder / file).write_bytes(whole)
    change(folder, file, lambda tensors: longer(tensors, name))
    with pytest.raises(CheckpointRejected, match=r"expected"):
        load(folder)

    (folder / file).write_bytes(whole)
    change(folder, file, lambda tensors: tensors.update({f"{name}.extra": torch.zeros(1)}))
    with pytest.raises(CheckpointRejected, match=f"{name}.extra is not part of this model"):
        load(folder)


def test_many_problems_are_not_all_told(folder: Path) -> None:
    change(folder, MODEL, lambda tensors: tensors.update({f"strange.{n}": torch.zeros(1) for n in range(9)}))
    with pytest.raises(CheckpointRejected, match=r"strange.4 and 4 more is not part"):
        load(folder)


def test_steps_that_disagree_are_refused(folder: Path) -> None:
    change(folder, MODEL, lambda tensors: tensors.pop("linears.15.weight"))
    with pytest.raises(CheckpointRejected, match=r"in_proj_weight has 768 rows for 15 steps of width 16; expected 720"):
        load(folder)


@pytest.mark.parametrize("file", [MODEL, CODEC])
@pytest.mark.parametrize("damage", [b"", b"not tensors at all", None])
def test_a_damaged_file_is_named(folder: Path, file: str, damage: bytes | None) -> None:
    whole = (folder / file).read_bytes()
    (folder / file).write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    with pytest.raises(CheckpointRejected, match=f"{file}: not a readable safetensors file"):
        load(folder)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"num_heads": 0}', "num_heads is 0; expected a positive integer"),
        ('{"num_heads": true}', "num_heads is True"),
        ('{"num_heads": 5}', "num_heads 5 does not divide the width 32"),
        ('{"num_heads": 2, "depformer_num_heads": 3}', "depformer_num_heads 3 does not divide the width 16"),
        ('{"mimi": 3}', "mimi is not an object"),
        ('{"mimi": {"num_heads": 7}}', "mimi.num_heads 7 does not divide the width 32"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(folder: Path, config: str, says: str) -> None:
    whole = json.loads((folder / "config.json").read_text())
    try:
        merged = json.dumps(whole | json.loads(config))
    except (json.JSONDecodeError, TypeError):
        merged = config
    (folder / "config.json").write_text(merged)
    with pytest.raises(CheckpointRejected, match=says):
        load(folder)


def test_without_a_word_in_the_configuration_the_published_sizes_hold(folder: Path) -> None:
    """The published one is empty; 32 heads do not fit the tiny model, and the message says so."""
    (folder / "config.json").write_text("")
    with pytest.raises(CheckpointRejected, match="does not divide"):
        load(folder)


@pytest.mark.parametrize("name", NEEDED)
def test_a_missing_file_is_named_with_the_way_out(folder: Path, name: str) -> None:
    assert find_checkpoint(str(folder)).folder == folder
    (folder / name).unlink()
    with pytest.raises(ConfigRejected, match=f"lacks {name}"):
        find_checkpoint(str(folder))


# --- Voices ---------------------------------------------------------------------------------------------------------


def pack(folder: Path, members: dict[str, bytes]) -> None:
    """Write the archive anew."""
    with tarfile.open(folder / VOICES, "w:gz") as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def saved(value: object) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


class Intruder:
    """A pickle that runs a command when it is loaded."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self._path}",)


def test_a_voice_that_would_run_code_is_refused_and_does_not(folder: Path) -> None:
    mark = folder / "was here"
    attacks = {
        "ZIPPED": saved({"embeddings": Intruder(mark), "cache": torch.zeros(1)}),
        "PLAIN": pickle.dumps(Intruder(mark), protocol=2),
    }
    pack(folder, {f"voices/{name}.pt": data for name, data in attacks.items()})
    checkpoint = load(folder)
    for name in attacks:
        with pytest.raises(CheckpointRejected, match=f"voice {name}: not a file of plain tensors"):
            checkpoint.voice(name)
    assert not mark.exists()


def test_damaged_voices_are_refused(folder: Path, tiny: Tiny) -> None:
    whole = saved(tiny.bundle("NATF2"))
    damaged = {f"CUT{length}": whole[:length] for length in (0, 1, 20, 300, len(whole) - 30)}
    damaged |= {f"BENT{place}": whole[:place] + b"\xff\x00\xff" + whole[place + 3 :] for place in range(0, 400, 7)}
    pack(folder, {f"voices/{name}.pt": data for name, data in damaged.items()})
    checkpoint = load(folder)
    usable = set()
    for name in damaged:
        with suppress(CheckpointRejected):
            usable.add(checkpoint.voice(name).name)
    assert len(usable) < len(damaged) // 2  # some bytes do not matter


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda bundle: [1, 2], "expected a dictionary"),
        (lambda bundle: {"embeddings": bundle["embeddings"]}, "expected a dictionary with embeddings and cache"),
        (lambda bundle: bundle | {"cache": "ring"}, "must be tensors"),
        (lambda bundle: bundle | {"embeddings": torch.zeros(9, 1, 1, 64)}, r"64\); expected \(frames, 1, 1, 32\)"),
        (lambda bundle: bundle | {"embeddings": torch.zeros(9, 1, 1, 32, dtype=torch.int64)}, "expected"),
        (lambda bundle: bundle | {"cache": bundle["cache"][:, :16]}, r"expected \(1, 17, 4\)"),
        (lambda bundle: bundle | {"cache": bundle["cache"].float()}, "cache"),
        (lambda bundle: bundle | {"cache": bundle["cache"] + 5000}, "the last row hold tokens outside"),
        (lambda bundle: bundle | {"cache": torch.where(torch.arange(4) == 2, 3000, bundle["cache"])}, "the pending codes"),
    ],
)  # fmt: skip
def test_a_voice_of_another_model_is_refused(
    folder: Path, tiny: Tiny, change: Callable[[dict[str, Tensor]], object], says: str
) -> None:
    bundle = tiny.bundle("NATF2")  # of 10 frames: the pending codes are in column 2
    pack(folder, {"voices/OTHER.pt": saved(change(bundle))})
    with pytest.raises(CheckpointRejected, match=says):
        load(folder).voice("OTHER")


def test_only_members_with_the_name_of_a_voice_are_voices(folder: Path, tiny: Tiny) -> None:
    good = saved(tiny.bundle("NATF2"))
    strange = ["../voices/UP.pt", "voices/../voices/ROUND.pt", "/voices/ROOT.pt", "voices/deep/voices/DEEP.pt"]
    strange += ["voices/._HIDDEN.pt", "voices/NOTE.txt", "other/voices/ELSEWHERE.pt", "voices/a b.pt"]
    pack(folder, dict.fromkeys([*strange, "./voices/NATM0.pt", "voices/VARF4.pt"], good))
    assert voice_names(folder / VOICES) == ["NATM0", "VARF4"]
    checkpoint = load(folder)
    assert checkpoint.voice("NATM0").frames == 10
    for name in ("UP", "ROUND", "ROOT", "DEEP", "._HIDDEN", "../voices/UP", "voices/VARF4"):
        with pytest.raises(CheckpointRejected, match="no usable"):
            checkpoint.voice(name)
    assert not (folder.parent / "voices").exists()


def test_a_link_in_the_archive_is_no_voice(folder: Path) -> None:
    with tarfile.open(folder / VOICES, "w:gz") as tar:
        for name, kind in (("voices/SOFT.pt", tarfile.SYMTYPE), ("voices/HARD.pt", tarfile.LNKTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/hostname"
            tar.addfile(member)
    with pytest.raises(CheckpointRejected, match="there is no voices"):
        voice_names(folder / VOICES)


@pytest.mark.parametrize("part", [0, 0.3, 0.9])
def test_a_damaged_archive_is_named(folder: Path, part: float) -> None:
    whole = (folder / VOICES).read_bytes()
    (folder / VOICES).write_bytes(whole[: int(part * len(whole))])
    with pytest.raises(CheckpointRejected, match=f"{VOICES}: "):
        [load(folder).voice(name) for name in voice_names(folder / VOICES)]


# --- On the device --------------------------------------------------------------------------------------------------


def test_one_call_that_cannot_begin_disturbs_nobody(tiny: Tiny) -> None:
    stepper = PersonaPlexStepper(checkpoint=str(tiny.folder), slots=3)
    stepper.load(unwatched)
    frame = Hear(torch.zeros(1920).numpy().tobytes())
    openings = [
        Opening(voice="NOBODY", persona=()),
        Opening(voice="NATF2", persona=(5,) * 300),
        Opening(voice="NATF2", persona=()),
    ]
    results = stepper.step(
        Work(
            opens=tuple((slot, {"opening": opening}) for slot, opening in enumerate(openings)),
            items=tuple((slot, slot, frame) for slot in range(3)),
        )
    )
    outcomes = {result.ticket: result.outcome for result in results}
    assert isinstance(outcomes[0], Error)
    assert isinstance(outcomes[0].error, CheckpointRejected)
    assert isinstance(outcomes[1], Error)
    assert isinstance(outcomes[1].error, CheckpointRejected)
    assert "322 positions; the window has 256" in str(outcomes[1].error)
    assert isinstance(outcomes[2].unwrap(), Said)


# --- The tiny checkpoint itself -------------------------------------------------------------------------------------


def test_a_tiny_checkpoint_is_the_same_to_the_byte_each_time(tmp_path: Path) -> None:
    first, second, other = (make_tiny(tmp_path / str(n), seed=seed) for n, seed in enumerate((0, 0, 1)))
    for name in NEEDED:
        assert (first.folder / name).read_bytes() == (second.folder / name).read_bytes()
    assert first.model.read_bytes() != other.model.read_bytes()
    assert first.text.read_bytes() == other.text.read_bytes()


def test_a_tiny_checkpoint_has_any_depth(tmp_path: Path) -> None:
    files = make_tiny(tmp_path, layers=5, depth_layers=3, dim=48, heads=3, depth_dim=24, depth_heads=1, pieces=320)
    sizes = load(files.folder).model.sizes
    assert (sizes.layers, sizes.depth_layers, sizes.dim, sizes.hidden, sizes.text_cards) == (5, 3, 48, 132, 320)
