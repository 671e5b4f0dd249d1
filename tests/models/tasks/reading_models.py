"""Small models that read texts in images, with random weights, as folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from tests.models.tasks.folders import HGNET, IMAGE, draw

_TOKENS: dict[str, Any] = {"vocab_size": 48, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
_DECODER: dict[str, Any] = {
    **_TOKENS, "forced_eos_token_id": None, "d_model": 24, "decoder_layers": 2, "decoder_attention_heads": 4,
    "decoder_ffn_dim": 40, "max_position_embeddings": 32, "is_decoder": True, "add_cross_attention": True,
    "scale_embedding": True,
}  # fmt: skip
_SWIN: dict[str, Any] = {"image_size": [32, 48], "patch_size": 4, "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2],
                         "window_size": 4}  # fmt: skip
_GPT: dict[str, Any] = {**_TOKENS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32, "is_decoder": True,
                        "add_cross_attention": True}  # fmt: skip
_BERT: dict[str, Any] = {**_TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                         "intermediate_size": 48, "max_position_embeddings": 40, "is_decoder": True,
                         "add_cross_attention": True}  # fmt: skip
_LEARNED = {**_DECODER, "cross_attention_hidden_size": 32}
_SINUSOIDAL = {**_LEARNED, "use_learned_position_embeddings": False, "layernorm_embedding": False}

PAIRS: dict[str, tuple[tuple[str, dict[str, Any]], tuple[str, dict[str, Any]]]] = {
    "trocr": (("vit", IMAGE), ("trocr", _LEARNED)),
    "trocr of sinusoidal positions": (("deit", IMAGE), ("trocr", _SINUSOIDAL)),
    "donut": (("donut-swin", _SWIN), ("mbart", {**_DECODER, "d_model": 16})),
    "another width": (("vit", IMAGE), ("mbart", _DECODER)),
    "gpt2": (("vit", IMAGE), ("gpt2", _GPT)),
    "bert": (("vit", IMAGE), ("bert", _BERT)),
    "roberta": (("vit", IMAGE), ("roberta", _BERT)),
}
"""Configurations of an encoder of images and a decoder of texts."""


def image_to_text(path: Path, name: str, scale: float = 1) -> Any:
    """A model that writes what it reads in an image, which is saved in a folder too.

    Args:
        path: the folder.
        name: in `PAIRS`.
        scale: of the weights; if it is larger, the model writes more different tokens, and rounds more.
    """
    from transformers import AutoConfig, VisionEncoderDecoderConfig, VisionEncoderDecoderModel

    torch.manual_seed(0)
    configs = [AutoConfig.for_model(kind, **settings) for kind, settings in PAIRS[name]]
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(*configs)
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = 0, 1, 2
    model = draw(VisionEncoderDecoderModel(config).eval())
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data *= scale
    model.generation_config.decoder_start_token_id = 0
    model.generation_config.forced_eos_token_id = None
    model.save_pretrained(path)
    return model


_TEXT: dict[str, Any] = {"vocab_size": 48, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
                         "num_attention_heads": 4, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
_SEEN: dict[str, Any] = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40,
                         "image_size": 32, "patch_size": 8}  # fmt: skip
_T5GEMMA: dict[str, Any] = {**_TEXT, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 6,
                            "query_pre_attn_scalar": 8, "max_position_embeddings": 64, "dropout_rate": 0.0,
                            "layer_types": ["sliding_attention", "full_attention"]}  # fmt: skip
READERS: dict[str, tuple[str, dict[str, Any]]] = {
    "pix2struct": ("Pix2Struct", {
        "text_config": {"vocab_size": 48, "hidden_size": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4},
        "vision_config": {"hidden_size": 32, "patch_embed_hidden_size": 48, "patch_size": 4, "d_ff": 48, "d_kv": 8,
                          "num_hidden_layers": 2, "num_attention_heads": 4, "seq_len": 32},
    }),
    "pp_formulanet": ("PPFormulaNet", {
        "text_config": {"vocab_size": 48, "d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4,
                        "decoder_ffn_dim": 48, "max_position_embeddings": 32, "forced_eos_token_id": None},
        "vision_config": {**_SEEN, "num_attention_heads": 4, "mlp_dim": 48, "window_size": 2, "output_channels": 24,
                          "global_attn_indexes": [1], "post_conv_in_channels": 24, "post_conv_mid_channels": 32,
                          "post_conv_out_channels": 40, "decoder_hidden_size": 32},
    }),
    "t5gemma2": ("T5Gemma2", {
        "encoder": {"text_config": _T5GEMMA, "vision_config": {**_SEEN, "vision_use_head": False},
                    "mm_tokens_per_image": 4},
        "decoder": _T5GEMMA, "image_token_index": 40, "eoi_token_index": 42, "tie_word_embeddings": False,
    }),
    "blip": ("Blip", {
        "text_config": {**_TEXT, "sep_token_id": 3, "encoder_hidden_size": 24, "max_position_embeddings": 32},
        "vision_config": _SEEN,
    }),
}  # fmt: skip
"""Models that write about an image: the beginning of the name of their class, and their configuration."""


def reader(path: Path, name: str) -> tuple[Any, dict[str, torch.Tensor]]:
    """A model of `READERS`, which is saved in a folder too, and what its encoder reads."""
    import transformers

    torch.manual_seed(1)
    beginning, settings = READERS[name]
    config = transformers.AutoConfig.for_model(name, **settings)
    model = draw(getattr(transformers, f"{beginning}ForConditionalGeneration")(config).eval())
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.data *= 1 + torch.randn_like(parameter) / 2
    model.generation_config.decoder_start_token_id = 1
    model.generation_config.forced_eos_token_id = None
    model.save_pretrained(path)
    (path / "preprocessor_config.json").write_text(json.dumps({"size": {"height": 32, "width": 32}}))
    pixels = torch.randn(1, 3, 32, 32)
    if name == "pix2struct":
        places = torch.arange(12)
        rows = torch.cat([torch.stack([places // 3 + 1, places % 3 + 1], 1), torch.randn(12, 48)], 1)
        return model, {"flattened_patches": rows[None]}
    if name == "t5gemma2":
        return model, {"input_ids": torch.tensor([[5, 41, *[40] * 4, 42, 7, 8, 9, 30, 31, 33]]), "pixel_values": pixels}
    return model, {"pixel_values": pixels}


_HGNET: dict[str, Any] = {
    **HGNET, "out_features": ["stage1", "stage2", "stage3", "stage4"], "stage_downsample": [True] * 4,
    "stage_downsample_strides": [[2, 1], [1, 2], [2, 1], [2, 1]], "stem_strides": [2, 1, 1, 1, 1],
}  # fmt: skip
_RECOGNISER: dict[str, Any] = {"hidden_size": 16, "head_out_channels": 30}
LINES: dict[str, tuple[str, dict[str, Any], tuple[int, int]]] = {
    "PPOCRV5ServerRecForTextRecognition": (
        "pp_ocrv5_server_rec", {**_RECOGNISER, "num_attention_heads": 2, "backbone_config": _HGNET}, (48, 96)),
    "PPOCRV6SmallRecForTextRecognition": ("pp_ocrv6_small_rec", {**_RECOGNISER, "num_attention_heads": 2}, (48, 96)),
    "PPOCRV6TinyRecForTextRecognition": ("pp_ocrv6_tiny_rec", _RECOGNISER, (48, 96)),
    "PPOCRV5MobileDetForObjectDetection": ("pp_ocrv5_mobile_det", {}, (64, 96)),
}  # fmt: skip
"""Models of PP-OCR, with the size of an image."""


def lines(path: Path, name: str) -> Any:
    """A model that finds lines of text, or reads one, which is saved in a folder too."""
    import transformers

    torch.manual_seed(0)
    kind, settings, (height, width) = LINES[name]
    model = draw(getattr(transformers, name)(transformers.AutoConfig.for_model(kind, **settings)).eval())
    model.save_pretrained(path)
    (path / "preprocessor_config.json").write_text(json.dumps({"size": {"height": height, "width": width}}))
    return model
