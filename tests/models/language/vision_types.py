"""What small models of types that see need beside the sizes of `tests/helpers/small_settings.py`."""

from __future__ import annotations

from typing import Any

_ROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
_GLM: dict[str, Any] = {
    "text_config.num_attention_heads": 2, "text_config.num_key_value_heads": 1, "text_config.head_dim": 16,
    "text_config.rope_parameters": {**_ROPE, "partial_rotary_factor": 0.5},
}  # fmt: skip
_CLIP: dict[str, Any] = {
    "model_type": "clip_vision_model", "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 40, "image_size": 32, "patch_size": 8,
}  # fmt: skip
_SIGLIP = {**_CLIP, "model_type": "siglip_vision_model", "vision_use_head": False}
CANVASES = [[32, 64], [64, 32], [64, 64], [32, 96], [96, 32], [96, 96]]
"""The sizes of canvases that tiles of 32 x 32 fill, as LLaVA-NeXT has them."""
_TILED: dict[str, Any] = {"image_grid_pinpoints": CANVASES, "vision_config": _CLIP}
_MUSE: dict[str, Any] = {
    "vision_config.layer_types": ["window_attention", "full_attention"], "vision_config.pos_emb_height": 4,
    "vision_config.pos_emb_width": 4, "vision_config.max_position_embeddings": 16,
    "text_config.layer_rope_theta": [10000, 0], "out_hidden_size": 128,
}  # fmt: skip
_TIMM = {"model_type": "timm_wrapper", "do_pooling": True}
_AUDIO = {
    f"audio_config.{name}": size
    for name, size in {
        "d_model": 16, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 16, "output_dim": 32,
        "num_mel_bins": 16, "downsample_hidden_size": 8,
    }.items()
}  # fmt: skip
_MINICPM = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40, "image_size": 64,
    "patch_size": 4, "insert_layer_id": 0,
}  # fmt: skip
SMALL_TYPES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("glm4v", "glm46v", "glmga", "glm4v_moe", "glm_ocr"), _GLM),
    **{kind: {} for kind in (
        "qwen3_5_moe", "cosmos3_edge", "exaone4_5", "hyperclovax_vision_v2", "lfm3_vl", "minimax_m3_vl", "got_ocr2",
        "pp_chart2table", "qianfan_ocr", "deepseek_vl", "janus", "shieldgemma2",
    )},
    "hunyuan_vl": {
        "text_config.rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 1, 1]},
        "vision_config.max_image_size": 64, "vision_config.temporal_patch_size": 1, "text_config.head_dim": 8,
    },
    "minicpmv4_6": {"image_token_id": 90, "insert_layer_id": 0, "vision_config": _MINICPM},
    "minicpm_ocr": {"image_token_id": 90, "insert_layer_id": 0, "vision_config": _MINICPM},
    "video_llama_3": {},
    "deepseek_ocr2": {
        "text_config.mlp_layer_types": ["dense", "sparse"], "text_config.num_experts_per_tok": 2,
        "vision_config.sam_config.downsample_channels": [48, 32], "vision_config.sam_config.global_attn_indexes": [1],
        "vision_config.sam_config.output_channels": 24, "vision_config.sam_config.window_size": 2,
    },
    "nemotron_h_omni": {
        "image_token_id": 90, "vision_hidden_size": 32, "vision_config.patch_dim": 192,
        "vision_config.video_patch_dim": 384, "text_config.moe_shared_expert_intermediate_size": 24,
        "text_config.mamba_num_heads": 4, "text_config.mamba_head_dim": 16, "text_config.n_groups": 2,
        "text_config.ssm_state_size": 8, "text_config.chunk_size": 8,
    },
    "ernie4_5_vl_moe": {
        "text_config.rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]},
        "text_config.moe_intermediate_size": [24, 16], "text_config.moe_num_experts": 4, "text_config.moe_k": 2,
        "text_config.mlp_layer_types": ["dense", "sparse"],
    },
    "qwen2_5_omni_thinker": {
        "text_config.rope_parameters": _ROPE, "vision_config.window_size": 16, **_AUDIO,
    },
    "qwen3_omni_moe_thinker": {
        "text_config.rope_parameters": _ROPE, "vision_config.deepstack_visual_indexes": [0, 1], **_AUDIO,
    },
    "mistral3": {"vision_config.patch_size": 4, "spatial_merge_size": 2},
    "lighton_ocr": {"vision_config.patch_size": 4, "spatial_merge_size": 2},
    "cosmos3_omni": {"vision_config.deepstack_visual_indexes": [0, 1]},
    "ovis2": {"visual_indicator_token_ids": [91, 92, 93, 94, 95]},
    "paddleocr_vl": {"text_config.rope_parameters": _ROPE},
    "kimi_k25": {"text_config.num_key_value_heads": 4},
    "vipllava": {"vision_feature_layer": [-2, -1]},
    "llama4": {
        "text_config.intermediate_size_mlp": 48, "text_config.no_rope_layers": [1, 0], "text_config.moe_layers": [1],
        "text_config.layer_types": None, "text_config.num_experts_per_tok": 1, "vision_config.intermediate_size": 128,
        **{f"vision_config.{name}_dim": 32 for name in ("projector_input", "projector_output", "vision_output")},
    },
    "granite_docling": {"vision_config.deepstack_visual_indexes": [0, 1], "vision_config.scale_factor": 2},
    "fast_vlm": {"vision_config": {
        **_TIMM, "architecture": "fastvit_t8", "global_pool": "avg", "hidden_size": 128,
        "model_args": {"inference_mode": True, "layers": [1] * 4, "embed_dims": [8, 16, 32, 64]},
    }},
    "perception_lm": {"projector_pooling_ratio": 2, "vision_config": {
        **_TIMM, "architecture": "vit_pe_core_large_patch14_336", "num_classes": 0, "global_pool": "map",
        "model_args": {"embed_dim": 32, "depth": 2, "num_heads": 4, "img_size": [32, 32], "patch_size": 8,
                       "global_pool": "", "use_post_transformer_norm": False, "init_values": 0.1,
                       "ref_feat_shape": [4, 4]},
    }},
    "llava_next": _TILED,
    "llava_next_video": _TILED,
    "video_llava": {},
    "cohere_compass": {
        "vision_config.deepstack_visual_indexes": [0, 1],
        "text_config.layer_types": ["sliding_attention", "full_attention"],
        "text_config.rope_parameters": {"full_attention": None, "sliding_attention": _ROPE},
    },
    "muse_glimmer": _MUSE,
    "muse_spark": {**_MUSE, "audio_config.num_hidden_layers": 4,
                   **{f"audio_config.{name}": [size] * 4 for name, size in (("hidden_sizes", 16), ("depths", 1))}},
    "dots3_note": {
        "text_config.layer_types": ["sliding_attention", "indexed_attention"], "text_config.rope_parameters": None,
        "text_config.head_dim": 8,
        "text_config.num_key_value_heads": 4, "text_config.mlp_layer_types": ["dense", "sparse"],
        "text_config.per_layer_config": {0: {
            "num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": 16, "kv_lora_rank": 16, "head_dim": 16,
            "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8,
        }},
        "vision_config.per_layer_config": None, "vision_config.mlp_layer_types": ["dense", "dense"],
        "audio_config.downsample_hidden_size": 16, "audio_config.adapter_input_size": 32,
        **{f"{part}_config.adapter_out_dim": 32 for part in ("vision", "audio")}, "vision_config.adapter_in_dim": 32,
    },
    "mistral_large4": {
        "text_config.kv_source_layers": [0, 1], "text_config.num_key_value_heads": 4,
        "text_config.mlp_layer_types": ["dense", "sparse"], "text_config.indexer_types": ["full", "full"],
    },
    "llava_onevision": {"image_grid_pinpoints": CANVASES, "vision_config": _SIGLIP,
                        "vision_aspect_ratio": "anyres_max_2"},
    "granite4_vision": {
        "image_grid_pinpoints": CANVASES, "vision_config": {**_SIGLIP, "hidden_size": 64},
        "vision_feature_select_strategy": "full", "deepstack_layer_map": [[-1, 0], [0, 1]],
        "spatial_target_layers": [1, 2, 0, 2], "downsample_rate": "1/2", "text_config.num_hidden_layers": 3,
    },
    "idefics2": {
        "perceiver_config": {"resampler_n_latents": 4, "resampler_depth": 1, "resampler_n_heads": 2,
                             "resampler_head_dim": 16, "num_key_value_heads": 1, "hidden_size": 32},
    },
    "chameleon": {
        "vocabulary_map": {"<image>": 90, **{f"IMGIMG{chr(65 + code)}Z": 80 + code for code in range(10)}},
        "vq_config": {"embed_dim": 8, "num_embeddings": 10, "latent_channels": 8, "resolution": 32,
                      "base_channels": 32, "channel_multiplier": [1, 1, 1, 1], "num_res_blocks": 1},
    },
    "emu3": {
        "vocabulary_map": {"<image>": 90, "<|extra_200|>": 89,
                           **{f"<|visual token {code:06d}|>": 79 + code for code in range(10)}},
        "vq_config": {"codebook_size": 10, "embed_dim": 8, "latent_channels": 8, "base_channels": 32, "hidden_size": 32,
                      "channel_multiplier": [1, 1, 1, 1], "num_res_blocks": 1},
    },
    "blip-2": {
        "num_query_tokens": 4, "text_config": {
            "model_type": "opt", "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "ffn_dim": 48,
            "num_attention_heads": 4, "max_position_embeddings": 1024, "word_embed_proj_dim": 32, "pad_token_id": 0,
            "bos_token_id": 1, "eos_token_id": 2,
        },
        "qformer_config": {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                           "intermediate_size": 48, "encoder_hidden_size": 32},
    },
    "fuyu": {"text_config": {
        "model_type": "persimmon", "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48,
        "num_attention_heads": 4, "max_position_embeddings": 1024, "pad_token_id": 0, "bos_token_id": 1,
        "eos_token_id": 2,
    }},
    "aria": {"projector_patch_to_query_dict": {16: 4}},
}  # fmt: skip
"""What else the settings of a type need to be small."""
