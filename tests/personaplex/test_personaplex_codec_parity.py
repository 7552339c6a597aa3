"""The codec, a frame at a time, against an independent implementation on the whole recording."""

import torch
from personaplex_kit import Tiny, decode_alone, encode_alone, random_codes, random_sound
from transformers_reference import decode_whole, encode_whole, reference_codec

from duplex_engine.model_plugins.personaplex.mimi import Codec


@torch.inference_mode()
def test_sound_is_coded_as_by_the_reference(tiny: Tiny) -> None:
    mimi = tiny.checkpoint.mimi
    sound = random_sound(120, 1)
    ours = encode_alone(Codec(mimi, 1), sound)
    assert torch.equal(ours, encode_whole(reference_codec(tiny.codec_file, mimi.sizes), sound))
    assert len(ours[:, 0].unique()) > 20  # a codec that hears nothing would agree with anything


@torch.inference_mode()
def test_codes_sound_as_those_of_the_reference(tiny: Tiny) -> None:
    mimi = tiny.checkpoint.mimi
    codes = random_codes(120, 2)[:, 0]
    ours = decode_alone(Codec(mimi, 1), codes)
    theirs = decode_whole(reference_codec(tiny.codec_file, mimi.sizes), codes)
    assert (ours - theirs).abs().max() < 2e-5
    assert theirs.std() > 0.05


@torch.inference_mode()
def test_a_stream_beyond_the_window_is_the_whole_recording(tiny: Tiny, narrow: Tiny) -> None:
    """Two positions of a frame are written before the first looks back: the ring has one cell more than the window."""
    for checkpoint, frames in ((narrow, 80), (tiny, 180)):
        mimi = checkpoint.checkpoint.mimi
        reference = reference_codec(checkpoint.codec_file, mimi.sizes)
        sound, codes = random_sound(frames, 3), random_codes(frames, 4)[:, 0]
        assert 2 * frames > mimi.sizes.context
        assert torch.equal(encode_alone(Codec(mimi, 1), sound), encode_whole(reference, sound))
        assert (decode_alone(Codec(mimi, 1), codes) - decode_whole(reference, codes)).abs().max() < 2e-5


@torch.inference_mode()
def test_the_first_frame_of_a_stream_is_coded_as_the_first_of_a_recording(tiny: Tiny) -> None:
    """Also on a row that has coded something else before."""
    codec = Codec(tiny.checkpoint.mimi, 2)
    first, second = random_sound(9, 5), random_sound(9, 6)
    encode_alone(codec, first, row=1)
    decode_alone(codec, random_codes(9, 7)[:, 0], row=1)
    codec.reset_encoder(1)
    codec.reset_decoder(1)
    reference = reference_codec(tiny.codec_file, tiny.checkpoint.mimi.sizes)
    assert torch.equal(encode_alone(codec, second, row=1), encode_whole(reference, second))
    codes = random_codes(9, 8)[:, 0]
    assert (decode_alone(codec, codes, row=1) - decode_whole(reference, codes)).abs().max() < 2e-5
