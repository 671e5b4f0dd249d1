"""Small vision-language models of every tower, with random weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from patcomp.commands.torchvision import declare_operators

declare_operators()

VOCABULARY, IMAGE_TOKEN = 96, 90
CONTEXT = 1024
_TEXT: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "intermediate_size": 48, "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_VISION: dict[str, Any] = {
    "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 40, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
_MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}
_GRID: dict[str, Any] = {
    "depth": 3, "hidden_size": 32, "intermediate_size": 40, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2,
    "temporal_patch_size": 2, "out_hidden_size": 32,
}  # fmt: skip

SETTINGS: dict[str, dict[str, Any]] = {
    "llava": {
        "text_config": {"model_type": "llama", **_TEXT},
        "vision_config": {"model_type": "clip_vision_model", **_VISION},
        "vision_feature_layer": -2,
    },
    "gemma3": {
        "text_config": {"model_type": "gemma3_text", **_TEXT, "num_hidden_layers": 3, "sliding_window": 8,
                        "query_pre_attn_scalar": 8,
                        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
        "vision_config": {"model_type": "siglip_vision_model", **_VISION},
        "mm_tokens_per_image": 4,
    },
    "paligemma": {
        "text_config": {"model_type": "gemma2", **_TEXT, "sliding_window": 8, "query_pre_attn_scalar": 8,
                        "num_hidden_layers": 3},
        "vision_config": {"model_type": "siglip_vision_model", **_VISION, "projection_dim": 32},
        "projection_dim": 32,
    },
    "idefics3": {
        "text_config": {"model_type": "llama", **_TEXT},
        "vision_config": _VISION,
        "scale_factor": 2,
    },
    "smolvlm": {
        "text_config": {"model_type": "llama", **_TEXT},
        "vision_config": _VISION,
        "scale_factor": 2,
    },
    "internvl": {
        "text_config": {"model_type": "qwen2", **_TEXT},
        "vision_config": {**_VISION, "image_size": [32, 32], "patch_size": [8, 8], "use_qk_norm": True},
        "downsample_ratio": 0.5,
    },
    "lfm2_vl": {
        "text_config": {"model_type": "lfm2", **_TEXT, "layer_types": ["conv", "full_attention"],
                        "block_auto_adjust_ff_dim": False},
        "vision_config": {"model_type": "siglip2_vision_model", **_VISION, "num_patches": 9},
        "downsample_factor": 2,
        "projector_hidden_size": 40,
    },
    "qwen2_5_vl": {
        "text_config": {**_TEXT, "rope_parameters": _MROPE},
        "vision_config": {**_GRID, "window_size": 16, "fullatt_block_indexes": [1]},
    },
    "qwen3_vl": {
        "text_config": {**_TEXT, "num_hidden_layers": 3, "rope_parameters": _MROPE},
        "vision_config": {**_GRID, "num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1]},
    },
}  # fmt: skip
"""What differs from the defaults, by `model_type`."""

SIZE = 32
"""The side of the image, of all of them."""


def checkpoint(kind: str) -> nn.Module:
    """A model in eval mode, with outputs of order one."""
    from transformers import AutoConfig, AutoModelForImageTextToText

    torch.manual_seed(0)
    token = {"image_token_index" if kind in ("llava", "gemma3", "paligemma") else "image_token_id": IMAGE_TOKEN}
    config = AutoConfig.for_model(kind, **SETTINGS[kind], **token)
    config.image_token_id = IMAGE_TOKEN
    model = AutoModelForImageTextToText.from_config(config).eval()
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, 0, max(parameter[0].numel(), 8) ** -0.5)
        elif "norm" in name or ".ln_" in name:
            nn.init.uniform_(parameter, 0.5, 1.5)
        else:
            nn.init.normal_(parameter, 0, 0.2)
    return model
