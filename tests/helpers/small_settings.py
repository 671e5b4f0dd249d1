"""Small settings of a type of transformers, from the defaults of its configuration.

`small_of` gives each size by its name, so that the parts of a model fit each other. `a_sixteenth` knows no names
of types, and is for models of all kinds.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

_SIZES: dict[str, int] = {
    name: size
    for size, names in {
        1: "n_group topk_group n_shared_experts num_shared_experts first_k_dense_replace",
        2: "num_hidden_layers num_layers n_layer n_layers depth vt_num_hidden_layers num_key_value_heads "
           "num_experts_per_tok num_experts_per_token moe_topk linear_num_key_heads swa_num_key_value_heads "
           "encoder_layers decoder_layers num_expert_group short_conv_kernel_size zero_expert_num "
           "n_layers_per_attn_res_block split_ngram_parts num_kv_heads spatial_merge_size temporal_patch_size",
        4: "num_attention_heads num_heads n_head n_heads linear_num_value_heads linear_num_heads num_experts "
           "rotary_dim n_routed_experts num_local_experts encoder_attention_heads decoder_attention_heads "
           "swa_num_attention_heads mm_tokens_per_image",
        8: "head_dim d_head dim_head qk_nope_head_dim qk_rope_head_dim v_head_dim linear_key_head_dim "
           "linear_value_head_dim linear_head_dim swa_head_dim attention_head_size d_rel hc_lowrank sliding_window "
           "hidden_size_per_layer_input sliding_window_size attention_window_size query_pre_attn_scalar patch_size "
           "loop_gate_rank",
        16: "qk_head_dim q_lora_rank kv_lora_rank index_topk index_head_dim rel_extent local_attn_chunk_length "
            "lsh_attn_chunk_length num_position_embeddings",
        24: "moe_intermediate_size shared_expert_intermediate_size moe_shared_expert_intermediate_size "
            "expert_ffn_hidden_size",
        32: "hidden_size embedding_dim n_embd d_model dim embedding_size emb_dim embed_dim word_embed_proj_dim "
            "out_hidden_size projection_dim image_size lru_width ple_embed_dim pronunciation_embed_dim "
            "shape_embed_dim output_dim projector_hidden_size text_hidden_size mm_hidden_size projection_hidden_size",
        48: "intermediate_size ffn_dim n_inner d_ff d_inner dff dim_ff encoder_ffn_dim decoder_ffn_dim mlp_dim "
            "ffn_hidden_size feed_forward_size",
        96: "vocab_size vocab_size_per_layer_input decoder_vocab_size unpadded_vocab_size pronunciation_vocab_size "
            "shape_vocab_size",
        128: "ngram_vocab_size_base",
        1024: "max_position_embeddings n_positions n_ctx max_seq_len",
    }.items()
    for name in names.split()
}  # fmt: skip
_LAYERS = ("num_hidden_layers", "num_layers", "n_layer")
_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_DERIVED = (
    "transformers_version", "architectures", "dtype", "_name_or_path", "id2label", "label2id", "per_layer_config",
)  # fmt: skip
"""What a configuration makes of other settings."""


def small_of(kind: str, changes: Mapping[str, Any], first: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The settings of a small model of a type of transformers, from the defaults of its configuration.

    Args:
        kind: the `model_type`.
        changes: what else a type needs to be small, by dotted names: `text_config.head_dim`.
        first: settings without which a type has no defaults.
    """
    from transformers import AutoConfig

    made = _part(AutoConfig.for_model(kind, **(first or {})).to_dict(), changes, "")
    del made["model_type"]
    return made


def _part(settings: Mapping[str, Any], changes: Mapping[str, Any], path: str) -> dict[str, Any]:
    layers = next((settings[name] for name in _LAYERS if name in settings), 0)
    kept = next((size for name in _LAYERS if (size := changes.get(path + name))), 2)
    own = {name[len(path) :]: each for name, each in changes.items() if name.rpartition(".")[0] + "." == (path or ".")}
    made: dict[str, Any] = {}
    further = 91
    for name, value in settings.items():
        if value is None or name in _DERIVED:
            continue
        if isinstance(value, dict) and name.endswith(("config", "decoder")):
            made[name] = _part(value, changes, f"{path}{name}.")
        elif name == "head_dim" and isinstance(value, int) and (rope := settings.get("qk_rope_head_dim")):
            made[name] = max(_SIZES[name] * value // rope, _SIZES[name])
        elif name == "num_key_value_heads" and "kv_lora_rank" in settings:
            made[name] = _SIZES["num_attention_heads"]
        elif name in _SIZES and not isinstance(value, bool) and isinstance(value, int | list | tuple):
            made[name] = _SIZES[name] if isinstance(value, int) else [_SIZES[name]] * len(value)
        elif name in _SPECIAL:
            made[name] = _SPECIAL[name]
        elif _is_token(name, value) and (not path or value >= _SIZES["vocab_size"]):
            is_image = name.startswith("image_token")
            made[name] = 90 if is_image else min(further, 95)
            further += not is_image
        elif name == "rope_parameters" and "mrope_section" in value:
            made[name] = {**copy.deepcopy(value), "mrope_section": [2, 1, 1]}
        elif isinstance(value, list) and len(value) == layers > kept:
            other = next((each for each in value if each != value[0]), value[0])
            made[name] = ([value[0], other] * kept)[:kept]
        elif name == "is_decoder" and not settings.get("is_encoder_decoder"):
            made[name] = True
        else:
            made[name] = value
    return made | own


def _is_token(name: str, value: Any) -> bool:
    return name.endswith(("_token_id", "_token_index")) and isinstance(value, int)


# ---- models of all kinds ------------------------------------------------------------------------------

_WIDTH = re.compile(
    r"hidden|embed|dim|channel|width|intermediate|ffn|d_model|d_kv|d_ff|d_inner|filter|projection|rank|size"
)
_NO_WIDTH = re.compile(
    r"vocab|image|patch|kernel|stride|window|crop|type|batch|chunk|block_size|pool|num_hidden|hidden_layers|"
    r"num_channels|in_channels|dimension|input_size|grid|frame|tubelet|spec_size|max_|num_|layers$|group|state_size"
)
_COUNT = re.compile(r"(^|_)(num_hidden_layers|n_layers?|num_layers|encoder_layers|decoder_layers|num_blocks)$")
_DIVISOR = 16
_MOST = {"num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_queries": 20}


def a_sixteenth(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a configuration with fewer layers, a sixteenth of each width, and few tokens."""
    return {name: value for name, value in _divided(settings).items() if name not in (*_DERIVED, "model_type")}


def _divided(settings: Mapping[str, Any]) -> dict[str, Any]:
    layers = next((settings[name] for name in settings if _COUNT.search(name) and type(settings[name]) is int), 0)
    made = {}
    for name, value in settings.items():
        if isinstance(value, list) and len(value) == layers > 2 and name != "depths":
            kinds = [each for place, each in enumerate(value) if each not in value[:place]][:2]
            made[name] = (kinds * 2)[:2]  # one layer of each of two kinds
        elif name not in ("out_features", "out_indices", "stage_names"):
            made[name] = _smaller(name, value)
    return made


def _smaller(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return value if name in ("id2label", "label2id", "rope_parameters", "rope_scaling") else _divided(value)
    if isinstance(value, list) and value and all(type(each) is int for each in value):
        if name == "depths":
            return [min(each, 2) for each in value]
        return value if _COUNT.search(name) else [_smaller(name, each) for each in value]
    if type(value) is not int:
        return value
    if "vocab_size" in name:
        return min(value, 256)
    if name.endswith("token_id"):
        return value if value < 256 else value % 200 + 3
    if _COUNT.search(name):
        return min(value, 2)
    if name in ("max_position_embeddings", "n_positions", "max_seq_len"):
        return value if value <= 128 else 128 + value % 64  # RoBERTa's 514 are 2 more than a power of two
    if name in _MOST:
        return min(value, _MOST[name])
    if value >= 64 and _WIDTH.search(name) and not _NO_WIDTH.search(name):
        return max(value // _DIVISOR, 8)
    return value
