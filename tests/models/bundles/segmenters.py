"""Small segmenters with random weights, as folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.models.bundles.pipelines import clip_tokenizer

_LAYERS: dict[str, Any] = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
_SIZE, _WIDE = 64, 128
_DECODER: dict[str, Any] = {
    "hidden_size": 32, "mlp_dim": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "iou_head_hidden_dim": 32,
}  # fmt: skip
_HIERA: dict[str, Any] = {
    "model_type": "sam2_hiera_det_model", "hidden_size": 16, "num_attention_heads": 1, "image_size": [_SIZE, _SIZE],
    "window_positional_embedding_background_size": [4, 4], "blocks_per_stage": [1, 1, 2, 1],
    "embed_dim_per_stage": [16, 32, 64, 128], "num_attention_heads_per_stage": [1, 2, 4, 8],
    "window_size_per_stage": [4, 2, 4, 2], "global_attention_blocks": [3],
}  # fmt: skip


def _random(model: Any) -> Any:
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, 0, max(parameter.shape[-1], 8) ** -0.5)
    return model.eval()


def photo(size: int) -> np.ndarray:
    """A square of random pixels."""
    return np.random.default_rng(2).integers(0, 256, (size, size, 3), dtype=np.uint8)


def sam(folder: Path) -> Any:
    """SAM with images of 64 x 64."""
    from transformers import SamConfig, SamImageProcessor, SamModel

    torch.manual_seed(0)
    vision = {
        "hidden_size": 32, "output_channels": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": _SIZE,
        "patch_size": 8, "mlp_dim": 64, "window_size": 4, "global_attn_indexes": [1], "num_pos_feats": 16,
    }  # fmt: skip
    prompts = {"hidden_size": 32, "image_size": _SIZE, "patch_size": 8, "mask_input_channels": 4}
    model = _random(
        SamModel(SamConfig(vision_config=vision, prompt_encoder_config=prompts, mask_decoder_config=_DECODER))
    )
    model.save_pretrained(folder)
    SamImageProcessor(
        size={"longest_edge": _SIZE}, pad_size={"height": _SIZE, "width": _SIZE}
    ).save_pretrained(folder)  # fmt: skip
    return model


def sam2(folder: Path) -> Any:
    """SAM 2 with images of 64 x 64."""
    from transformers import Sam2Config, Sam2ImageProcessor, Sam2Model

    torch.manual_seed(0)
    vision = {
        "backbone_config": _HIERA, "backbone_channel_list": [128, 64, 32, 16], "fpn_hidden_size": 32,
        "backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]],
    }  # fmt: skip
    prompts = {"hidden_size": 32, "image_size": _SIZE, "patch_size": 16, "mask_input_channels": 4}
    config = Sam2Config(vision_config=vision, prompt_encoder_config=prompts, mask_decoder_config=_DECODER)
    model = _random(Sam2Model(config))
    model.save_pretrained(folder)
    Sam2ImageProcessor(size={"height": _SIZE, "width": _SIZE}).save_pretrained(folder)
    return model


def sam3(folder: Path) -> Any:
    """SAM 3 with images of 112 x 112, and a tokenizer of letters."""
    from transformers import CLIPTokenizer, Sam3Config, Sam3ImageProcessor, Sam3Model

    torch.manual_seed(0)
    count = clip_tokenizer(folder / "words")
    backbone = {
        **_LAYERS, "model_type": "sam3_vit_model", "num_hidden_layers": 2, "image_size": 112, "patch_size": 14,
        "window_size": 4, "global_attn_indexes": [1], "pretrain_image_size": 56,
    }  # fmt: skip
    config = Sam3Config(
        vision_config={"backbone_config": backbone, "fpn_hidden_size": 32,
                       "backbone_feature_sizes": [[32, 32], [16, 16], [8, 8]]},
        text_config={**_LAYERS, "vocab_size": count, "num_hidden_layers": 2, "max_position_embeddings": 32,
                     "projection_dim": 32, "bos_token_id": count - 2, "eos_token_id": count - 1},
        geometry_encoder_config={**_LAYERS, "num_layers": 1}, detr_encoder_config={**_LAYERS, "num_layers": 1},
        detr_decoder_config={**_LAYERS, "num_layers": 1, "num_queries": 10},
        mask_decoder_config={"hidden_size": 32, "num_attention_heads": 2},
    )  # fmt: skip
    model = _random(Sam3Model(config))
    model.save_pretrained(folder / "sam3")
    Sam3ImageProcessor(size={"height": 112, "width": 112}).save_pretrained(folder / "sam3")
    CLIPTokenizer.from_pretrained(folder / "words").save_pretrained(folder / "sam3")
    file = folder / "sam3" / "tokenizer.json"
    assert json.loads(file.read_text())["model"]["merges"]
    return model


def sam3_video(folder: Path) -> Any:
    """SAM 3 for videos with frames of 112 x 112, and memories of 64 channels, as its attention needs them."""
    from transformers import CLIPTokenizer, Sam3ImageProcessor, Sam3VideoConfig, Sam3VideoModel

    torch.manual_seed(0)
    count = clip_tokenizer(folder / "words")
    width = {**_LAYERS, "hidden_size": _WIDE}
    vision = {
        "model_type": "sam3_vision_model", "fpn_hidden_size": _WIDE,
        "backbone_feature_sizes": [[32, 32], [16, 16], [8, 8]],
        "backbone_config": {
            **_LAYERS, "model_type": "sam3_vit_model", "num_hidden_layers": 1, "image_size": 112, "patch_size": 14,
            "window_size": 4, "global_attn_indexes": [0], "pretrain_image_size": 56,
        },
    }  # fmt: skip
    detector = {
        "model_type": "sam3", "vision_config": vision,
        "text_config": {**_LAYERS, "vocab_size": count, "num_hidden_layers": 1, "max_position_embeddings": 32,
                        "projection_dim": 32, "bos_token_id": count - 2, "eos_token_id": count - 1},
        "geometry_encoder_config": {**width, "num_layers": 1}, "detr_encoder_config": {**width, "num_layers": 1},
        "detr_decoder_config": {**width, "num_layers": 1, "num_queries": 4},
        "mask_decoder_config": {"hidden_size": _WIDE, "num_attention_heads": 2},
    }  # fmt: skip
    tracker = {
        "model_type": "sam3_tracker_video", "vision_config": vision, "image_size": 112, "num_maskmem": 3,
        "max_cond_frame_num": 2,
        "max_object_pointers_in_encoder": 3,
        "prompt_encoder_config": {"hidden_size": _WIDE, "image_size": 112, "patch_size": 14, "mask_input_channels": 4},
        "mask_decoder_config": {**_DECODER, "hidden_size": _WIDE, "num_hidden_layers": 1, "iou_head_hidden_dim": 32},
        "memory_attention_hidden_size": _WIDE, "memory_attention_num_layers": 1,
        "memory_attention_feed_forward_hidden_size": 64, "memory_attention_rope_feat_sizes": [8, 8],
        "memory_encoder_hidden_size": _WIDE, "mask_downsampler_embed_dim": _WIDE, "memory_fuser_embed_dim": _WIDE,
        "memory_fuser_intermediate_dim": 64, "memory_fuser_num_layers": 1,
    }  # fmt: skip
    config = Sam3VideoConfig(
        detector_config=detector, tracker_config=tracker, low_res_mask_size=32, recondition_on_trk_masks=False
    )
    model = _random(Sam3VideoModel(config))
    model.save_pretrained(folder / "sam3")
    Sam3ImageProcessor(size={"height": 112, "width": 112}).save_pretrained(folder / "sam3")
    CLIPTokenizer.from_pretrained(folder / "words").save_pretrained(folder / "sam3")
    return model
