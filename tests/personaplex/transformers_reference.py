"""The same networks from `transformers`, with a checkpoint's tensors under its names.

Its rotary embedding turns halves where the checkpoint's turns pairs, so rows of queries and keys change places. It has no
window in the temporal transformer, so the mask is given; its codec is used on a whole recording, never as a stream.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from transformers import MimiConfig, MimiModel, MoshiConfig, MoshiForConditionalGeneration

from duplex_engine.model_plugins.personaplex.sizes import CODEBOOKS, LmSizes, MimiSizes


def reference_lm(tensors: Mapping[str, Tensor], sizes: LmSizes) -> MoshiForConditionalGeneration:
    """The language model of a file's tensors (any number of inner steps; the first eight are used)."""
    config = MoshiConfig(
        vocab_size=sizes.text_cards,
        hidden_size=sizes.dim,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        audio_vocab_size=sizes.cards,
        ffn_dim=2 * sizes.hidden,
        num_codebooks=CODEBOOKS,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        audio_encoder_config={"model_type": "mimi", "num_filters": 2, "hidden_size": 16, "upsample_groups": 16},
        depth_decoder_config={
            "hidden_size": sizes.depth_dim,
            "num_hidden_layers": sizes.depth_layers,
            "num_attention_heads": sizes.depth_heads,
            "ffn_dim": 2 * sizes.depth_hidden,
        },
        attn_implementation="sdpa",
    )
    model = MoshiForConditionalGeneration(config).eval()
    state = dict(_temporal(tensors, sizes)) | dict(_depformer(tensors, sizes))
    result = model.load_state_dict(state, strict=False)
    assert not result.unexpected_keys, result.unexpected_keys
    assert all(name.startswith("audio_encoder.") for name in result.missing_keys), result.missing_keys
    return model


def _temporal(tensors: Mapping[str, Tensor], sizes: LmSizes) -> Mapping[str, Tensor]:
    state = {
        "decoder.model.embed_tokens.weight": tensors["text_emb.weight"],
        "decoder.model.norm.weight": tensors["out_norm.alpha"].flatten(),
        "decoder.lm_head.weight": tensors["text_linear.weight"],
    }
    for codebook in range(2 * CODEBOOKS):
        state[f"embed_tokens.{codebook}.weight"] = tensors[f"emb.{codebook}.weight"]
    for number in range(sizes.layers):
        ours, theirs = f"transformer.layers.{number}", f"decoder.model.layers.{number}"
        q, k, v = tensors[f"{ours}.self_attn.in_proj_weight"].chunk(3)
        state |= {
            f"{theirs}.self_attn.q_proj.linear.weight": halves(q, sizes.heads),
            f"{theirs}.self_attn.k_proj.linear.weight": halves(k, sizes.heads),
            f"{theirs}.self_attn.v_proj.linear.weight": v,
            f"{theirs}.self_attn.o_proj.linear.weight": tensors[f"{ours}.self_attn.out_proj.weight"],
            f"{theirs}.mlp.fc1.weight": tensors[f"{ours}.gating.linear_in.weight"],
            f"{theirs}.mlp.fc2.weight": tensors[f"{ours}.gating.linear_out.weight"],
            f"{theirs}.input_layernorm.weight": tensors[f"{ours}.norm1.alpha"].flatten(),
            f"{theirs}.post_attention_layernorm.weight": tensors[f"{ours}.norm2.alpha"].flatten(),
        }
    return state


def _depformer(tensors: Mapping[str, Tensor], sizes: LmSizes) -> Mapping[str, Tensor]:
    def stacked(pattern: str) -> Tensor:
        return torch.stack([tensors[pattern.format(k)] for k in range(CODEBOOKS)])

    state = {
        "depth_decoder.text_embed_tokens.weight": tensors["depformer_text_emb.weight"],
        "depth_decoder.input_projections.weight": stacked("depformer_in.{}.weight"),
        "depth_decoder.lm_heads.weight": stacked("linears.{}.weight"),
    }
    for k in range(CODEBOOKS - 1):
        state[f"depth_decoder.embed_tokens.{k}.weight"] = tensors[f"depformer_emb.{k}.weight"]
    for number in range(sizes.depth_layers):
        ours, theirs = f"depformer.layers.{number}", f"depth_decoder.layers.{number}"
        fused = tensors[f"{ours}.self_attn.in_proj_weight"].unflatten(0, (-1, 3, sizes.depth_dim))[:CODEBOOKS]
        out = tensors[f"{ours}.self_attn.out_proj.weight"].unflatten(0, (-1, sizes.depth_dim))[:CODEBOOKS]
        state |= {f"{theirs}.self_attn.{p}_proj.linear.weight": fused[:, i] for i, p in enumerate("qkv")}
        state |= {
            f"{theirs}.self_attn.o_proj.linear.weight": out,
            f"{theirs}.mlp.fc1.weight": stacked(f"{ours}.gating.{{}}.linear_in.weight"),
            f"{theirs}.mlp.fc2.weight": stacked(f"{ours}.gating.{{}}.linear_out.weight"),
            f"{theirs}.input_layernorm.weight": tensors[f"{ours}.norm1.alpha"].flatten(),
            f"{theirs}.post_attention_layernorm.weight": tensors[f"{ours}.norm2.alpha"].flatten(),
        }
    return state


def halves(weight: Tensor, heads: int) -> Tensor:
    """Rows of queries or keys: within each head, the first of every pair, then the second."""
    pairs = weight.view(heads, -1, 2, weight.shape[1])
    return pairs.transpose(1, 2).reshape(weight.shape)


def temporal(model: MoshiForConditionalGeneration, rows: Tensor, context: int) -> tuple[Tensor, Tensor]:
    """Normed hidden states (P, D) and text logits (P, text cards) of token rows (P, 17), as one sequence."""
    embedded = model.decoder.model.embed_tokens(rows[:, 0])
    for codebook in range(2 * CODEBOOKS):
        embedded = embedded + model.embed_tokens[codebook](rows[:, 1 + codebook])
    age = torch.arange(len(rows)).unsqueeze(1) - torch.arange(len(rows))
    mask = torch.zeros(len(rows), len(rows)).masked_fill((age < 0) | (age >= context), -torch.inf)
    hidden = model.decoder.model(inputs_embeds=embedded.unsqueeze(0), attention_mask=mask[None, None], use_cache=False)
    return hidden.last_hidden_state[0], model.decoder.lm_head(hidden.last_hidden_state[0])


def depformer(model: MoshiForConditionalGeneration, hidden: Tensor, told: Tensor) -> Tensor:
    """Logits (R, 8, cards) of all inner steps that are told (R, 8): the text token, then codes."""
    several = hidden.unsqueeze(1).expand(-1, CODEBOOKS, -1)
    answer: Tensor = model.depth_decoder(input_ids=told, last_hidden_state=several, use_cache=False).logits
    return answer


# --- The codec ----------------------------------------------------------------------------------------------------


def reference_codec(tensors: Mapping[str, Tensor], sizes: MimiSizes) -> MimiModel:
    """The codec of a file's tensors."""
    config = MimiConfig(
        hidden_size=sizes.dim,
        num_filters=sizes.filters,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.heads,
        intermediate_size=sizes.hidden,
        codebook_size=sizes.cards,
        codebook_dim=sizes.codebook_dim,
        vector_quantization_hidden_dimension=sizes.codebook_dim,
        num_quantizers=sizes.codebooks,
        upsample_groups=sizes.dim,
        sliding_window=sizes.context,
        attn_implementation="eager",
    )
    model = MimiModel(config).eval()
    state: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        state |= _codec_names(name, tensor, sizes)
    model.load_state_dict(state, strict=True)
    return model


RENAMED = (
    ("downsample.conv.conv.conv.", "downsample.conv."),
    ("upsample.convtr.convtr.convtr.", "upsample.conv."),
    (".convtr.convtr.", ".conv."),
    (".conv.conv.", ".conv."),
    ("encoder.model.", "encoder.layers."),
    ("decoder.model.", "decoder.layers."),
    ("_transformer.transformer.", "_transformer."),
    (".self_attn.out_proj.", ".self_attn.o_proj."),
    (".linear1.", ".mlp.fc1."),
    (".linear2.", ".mlp.fc2."),
    (".norm1.", ".input_layernorm."),
    (".norm2.", ".post_attention_layernorm."),
    (".layer_scale_1.", ".self_attn_layer_scale."),
    (".layer_scale_2.", ".mlp_layer_scale."),
    ("quantizer.rvq_first.", "quantizer.semantic_residual_vector_quantizer."),
    ("quantizer.rvq_rest.", "quantizer.acoustic_residual_vector_quantizer."),
    (".vq.layers.", ".layers."),
    ("._codebook._initialized", ".codebook.initialized"),
    ("._codebook.cluster_usage", ".codebook.cluster_usage"),
    ("._codebook.embedding_sum", ".codebook.embed_sum"),
)


def _codec_names(name: str, tensor: Tensor, sizes: MimiSizes) -> Mapping[str, Tensor]:
    for ours, theirs in RENAMED:
        name = name.replace(ours, theirs)
    prefix, fused, _ = name.partition("in_proj_weight")
    if not fused:
        return {name: tensor}
    q, k, v = tensor.chunk(3)
    parts = {"q": halves(q, sizes.heads), "k": halves(k, sizes.heads), "v": v}
    return {f"{prefix}{part}_proj.weight": weight for part, weight in parts.items()}


def encode_whole(model: MimiModel, sound: Tensor) -> Tensor:
    """Codes (frames, 8) of a recording (frames, 1920)."""
    codes: Tensor = model.encode(sound.reshape(1, 1, -1), num_quantizers=CODEBOOKS).audio_codes
    return codes[0].T


def decode_whole(model: MimiModel, codes: Tensor) -> Tensor:
    """The recording (frames, 1920) of codes (frames, 8)."""
    return model.decode(codes.T.unsqueeze(0)).audio_values.view(len(codes), -1)
