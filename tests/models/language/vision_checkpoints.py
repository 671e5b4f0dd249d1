"""Small vision-language models of every tower, with random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from patcomp.torchvision import declare_operators
from patcomp_models.language.vision.tower import Tower
from patcomp_models.language.vision.videos import VIDEOS
from tests.helpers.small_settings import small_of
from tests.models.language.vision_types import SMALL_TYPES

declare_operators()

VOCABULARY, IMAGE_TOKEN = 96, 90
BEGIN = 5
"""The token before an image in all prompts, which some models look for."""
CONTEXT = 1024
_TEXT: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "intermediate_size": 48, "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_VISION: dict[str, Any] = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
_MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}
_GRID: dict[str, Any] = {
    "depth": 3, "hidden_size": 32, "intermediate_size": 40, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2,
    "temporal_patch_size": 2, "out_hidden_size": 32,
}  # fmt: skip
_WINDOWS = ["sliding_attention", "full_attention", "full_attention"]
_GEMMA4_VISION: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16,
    "intermediate_size": 40, "patch_size": 8, "pooling_kernel_size": 2, "position_embedding_size": 24,
    "use_clipped_linears": True,
}  # fmt: skip
_GEMMA4_TOKENS = {"boi_token_id": 91, "eoi_token_id": 92, "video_token_id": 93, "audio_token_id": 94}

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
    "aya_vision": {
        "text_config": {"model_type": "cohere2", **_TEXT, "layer_types": ["sliding_attention", "full_attention"]},
        "vision_config": {"model_type": "siglip_vision_model", **_VISION, "vision_use_head": False},
    },
    "cohere2_vision": {
        "text_config": {"model_type": "cohere2", **_TEXT, "layer_types": ["sliding_attention", "full_attention"]},
        "vision_config": {"model_type": "siglip_vision_model", **_VISION, "vision_use_head": False},
        "alignment_intermediate_size": 48,
    },
    "lfm2_vl": {
        "text_config": {"model_type": "lfm2", **_TEXT, "layer_types": ["conv", "full_attention"],
                        "block_auto_adjust_ff_dim": False},
        "vision_config": {"model_type": "siglip2_vision_model", **_VISION, "num_patches": 9},
        "downsample_factor": 2,
        "projector_hidden_size": 40,
    },
    "qwen2_vl": {
        "text_config": {**_TEXT, "rope_parameters": _MROPE},
        "vision_config": {"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 2,
                          "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2},
    },
    "qwen2_5_vl": {
        "text_config": {**_TEXT, "rope_parameters": _MROPE},
        "vision_config": {**_GRID, "window_size": 16, "fullatt_block_indexes": [1]},
    },
    "qwen3_vl": {
        "text_config": {**_TEXT, "rope_parameters": _MROPE},
        "vision_config": {**_GRID, "depth": 2, "num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1]},
    },
    "qwen3_vl_moe": {
        "text_config": {**_TEXT, "rope_parameters": _MROPE, "num_experts": 4, "num_experts_per_tok": 2,
                        "moe_intermediate_size": 24},
        "vision_config": {**_GRID, "depth": 2, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]},
    },
    "qwen3_5": {
        "text_config": {**_TEXT, "layer_types": ["linear_attention", "full_attention"], "head_dim": 16,
                        "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2,
                        "linear_num_value_heads": 4},
        "vision_config": {**_GRID, "depth": 2, "num_position_embeddings": 16},
    },
    "gemma3n": {
        "text_config": {**_TEXT, "num_hidden_layers": 3, "layer_types": _WINDOWS, "sliding_window": 8,
                        "num_kv_shared_layers": 1, "hidden_size_per_layer_input": 4, "vocab_size_per_layer_input": 84,
                        "intermediate_size": 48, "activation_sparsity_pattern": [0.5, 0.0, 0.0], "laurel_rank": 4},
        "vision_config": {"hidden_size": 2048, "vocab_size": 4, "vocab_offset": 84,
                          "model_args": {"channel_multiplier": 0.1, "msfa_output_resolution": 2}},
        "audio_config": {"hidden_size": 32, "conf_num_hidden_layers": 1, "conf_num_attention_heads": 2,
                         "vocab_size": 8, "vocab_offset": 88, "sscp_conv_channel_size": [4, 4]},
        "vision_soft_tokens_per_image": 4, "audio_token_id": 89, "audio_soft_tokens_per_image": 12,
    },
    "gemma4": {
        "text_config": {**_TEXT, "num_hidden_layers": 3, "layer_types": _WINDOWS, "sliding_window": 8,
                        "num_kv_shared_layers": 1, "hidden_size_per_layer_input": 4, "vocab_size_per_layer_input": 96,
                        "global_head_dim": 16, "use_double_wide_mlp": True},
        "vision_config": _GEMMA4_VISION,
        **_GEMMA4_TOKENS,
    },
    "gemma4_unified": {
        "text_config": {**_TEXT, "layer_types": _WINDOWS[:2], "sliding_window": 8, "global_head_dim": 16,
                        "attention_k_eq_v": True, "num_global_key_value_heads": 1},
        "vision_config": {"patch_size": 4, "pooling_kernel_size": 2, "mm_embed_dim": 24, "mm_posemb_size": 24,
                          "output_proj_dims": 24},
        **_GEMMA4_TOKENS,
    },
}  # fmt: skip
"""What differs from the defaults, by `model_type`."""
SETTINGS |= {kind: small_of(kind, changes) for kind, changes in SMALL_TYPES.items()}
TWO_VIEWS = {
    "vision_config": small_of(
        "deepseek_ocr2",
        SMALL_TYPES["deepseek_ocr2"]
        | {"vision_config.sam_config.image_size": 128, "vision_config.sam_config.patch_size": 2,
           "vision_config.sam_config.global_attn_indexes": []},
    )["vision_config"]
}  # fmt: skip
"""16 x 16 tokens for images of 128 x 128, and 12 x 12 for parts of 96 x 96."""
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "paligemma of gemma": ("paligemma", {"text_config": {"model_type": "gemma", **_TEXT}}),
    "llava of siglip": (
        "llava",
        {
            "text_config": {"model_type": "qwen2", **_TEXT},
            "vision_config": {"model_type": "siglip_vision_model", **_VISION},
            "vision_feature_layer": -1,
            "vision_feature_select_strategy": "full",
        },
    ),
    "llava of pixtral": (
        "llava",
        {
            "text_config": {"model_type": "mistral", **_TEXT},
            "vision_config": {"model_type": "pixtral", **_VISION, "head_dim": 12},
            "vision_feature_layer": -1,
            "vision_feature_select_strategy": "full",
        },
    ),
    "gemma3 without a row for the image token": (
        "gemma3",
        {"text_config": {**SETTINGS["gemma3"]["text_config"], "vocab_size": IMAGE_TOKEN}},
    ),
    "deepseek_ocr2 of two views": ("deepseek_ocr2", TWO_VIEWS),
    "gemma4 with experts, whose images see themselves": (
        "gemma4",
        {
            "text_config": {
                **_TEXT, "layer_types": _WINDOWS[:2], "sliding_window": 8, "global_head_dim": 16,
                "hidden_size_per_layer_input": 0, "use_bidirectional_attention": "vision", "attention_k_eq_v": True,
                "num_global_key_value_heads": 1, "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2,
                "moe_intermediate_size": 24,
            },
            "vision_config": {**_GEMMA4_VISION, "use_clipped_linears": False, "standardize": True},
        },
    ),
}  # fmt: skip
"""Further models: the tower, and what else differs."""

OF_TIMM = ("gemma3n",)
"""Models whose tower is one of timm."""
SIZE = 32
"""The side of the image, of all of them."""
SHAPES = (32, 48), (48, 16)
"""Height and width of further images, of those that take any shape."""
PROCESSOR = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.3, 0.25], "size": {"height": SIZE, "width": SIZE}}
"""The settings of an image processor that goes with them."""


SQUARE = {"height": SIZE, "width": SIZE}
SPECIAL = {
    "idefics3": ("<fake_token_around_image>", "<global-img>"),
    "gemma3": ("<start_of_image>", "<end_of_image>"),
    "internvl": ("<img>", "</img>"),
    "lfm2_vl": ("<|image_start|>", "<|image_end|>"),
    "llava": (),
    "mistral3": ("[IMG_BREAK]", "[IMG_END]"),
}
NAMED = {
    "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image>",
    "start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<image>",
    "image_start_token": "<|image_start|>", "image_end_token": "<|image_end|>",
    "image_thumbnail_token": "<|img_thumbnail|>", "video_token": "<video>",
}  # fmt: skip
"""Attributes of the tokenizers that these processors are used with."""


def checkpoint(kind: str) -> nn.Module:
    """A model in eval mode, with outputs of order one, of a tower or a variant."""
    from transformers import AutoConfig, AutoModelForImageTextToText

    if kind in OF_TIMM:
        pytest.importorskip("timm")
    torch.manual_seed(0)
    tower, changes = VARIANTS.get(kind, (kind, {}))
    config = AutoConfig.for_model(tower, **{**SETTINGS[tower], **changes})
    config.image_token_id = IMAGE_TOKEN
    if hasattr(config, "vision_start_token_id") or "omni_" in tower:
        config.vision_start_token_id = BEGIN
    if tower in VIDEOS and "omni_" not in tower:
        config.video_token_id = IMAGE_TOKEN + 1
    if getattr(config, "vision_config", config).model_type == "timm_wrapper":
        pytest.importorskip("timm")
    model = AutoModelForImageTextToText.from_config(config).eval()
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, 0, max(parameter[0].numel(), 8) ** -0.5)
        elif "norm" in name or ".ln_" in name:
            nn.init.uniform_(parameter, 0.5, 1.5)
        else:
            nn.init.normal_(parameter, 0, 0.2)
    return model


def prompt(count: int) -> list[int]:
    """12 tokens and those of an image between them."""
    words = torch.randint(3, 80, (12,), generator=torch.Generator().manual_seed(1)).tolist()
    return [*words[:4], BEGIN, *[IMAGE_TOKEN] * count, *words[5:]]


def pixels(seed: int = 2) -> torch.Tensor:
    """An image that is prepared, (1, 3, size, size)."""
    return torch.randn(1, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(seed))


def generated(model: Any, tower: Tower, tokens: list[int], image: torch.Tensor, new: int) -> tuple[list[int], Tensor]:
    """The tokens of the model's own greedy generation, and their logits, (new, vocabulary)."""
    ids = torch.tensor([tokens])
    with tower.mended():
        made = model.generate(
            input_ids=ids, **{"attention_mask": torch.ones_like(ids), **tower.given(image, ids)}, max_new_tokens=new,
            do_sample=False, pad_token_id=0, eos_token_id=-1, output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
    return made.sequences[0, len(tokens) :].tolist(), torch.cat(made.logits)


def picture(width: int, height: int) -> Any:
    """A picture of Pillow whose parts differ."""
    image = pytest.importorskip("PIL.Image")
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    channels = [127 + 120 * np.sin(x / 5 + y / 9), 255 * x / width, 255 * y / height]
    return image.fromarray(np.stack(channels, -1).astype(np.uint8))


def words(*special: str, image: str = "<image>") -> Any:
    """A tokenizer of a few words and the image token; further special tokens may be given."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    known = ["<unk>", "<s>", "</s>", *(f"word{number}" for number in range(3, IMAGE_TOKEN)), image, *special]
    assert len(known) <= VOCABULARY
    model = models.WordLevel({word: number for number, word in enumerate(known)}, unk_token="<unk>")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([image, *special])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>")


def folder(path: Path, kind: str = "smolvlm") -> Path:
    """A checkpoint folder with a tokenizer, and the settings of an image processor."""
    checkpoint(kind).save_pretrained(path)
    tokenizer = words("<fake_token_around_image>", "<global-img>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(path)
    (path / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    return path


TEMPLATE = "{% for each in messages %}User: {% if each.image %}{{ '<image>' }}{% endif %}{{ each.text }}{% endfor %}"
