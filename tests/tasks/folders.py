"""Small checkpoints of each task, with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from patcomp.commands.torchvision import declare_operators

declare_operators()

_TEXT: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 96,
    "max_position_embeddings": 64, "pad_token_id": 0,
}  # fmt: skip
_IMAGE: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
_SEQUENCES: dict[str, Any] = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "vocab_size": 96, "num_mel_bins": 8,
    "max_source_positions": 20, "max_target_positions": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 1,
}  # fmt: skip

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "ViTForImageClassification": ("vit", _IMAGE),
    "ResNetForImageClassification": ("resnet", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}),
    "Dinov2Model": ("dinov2", {**_IMAGE, "patch_size": 8}),
    "SegformerForSemanticSegmentation": (
        "segformer",
        {"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [16, 32],
         "patch_sizes": [7, 3], "strides": [4, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2],
         "decoder_hidden_size": 16, "image_size": 64},
    ),
    "BertModel": ("bert", _TEXT),
    "BertForSequenceClassification": ("bert", _TEXT),
    "BertForTokenClassification": ("bert", _TEXT),
    "BertForMaskedLM": ("bert", _TEXT),
    "CLIPModel": (
        "clip",
        {"projection_dim": 24, "vision_config": _IMAGE,
         "text_config": {**_TEXT, "max_position_embeddings": 20, "eos_token_id": 2}},
    ),
    "WhisperForConditionalGeneration": ("whisper", _SEQUENCES),
    "T5ForConditionalGeneration": (
        "t5",
        {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 96, "pad_token_id": 0,
         "decoder_start_token_id": 0, "eos_token_id": 1},
    ),
}  # fmt: skip


def folder(path: Path, name: str) -> Any:
    """A model of a class, which is saved in a folder too."""
    import transformers

    kind, settings = MODELS[name]
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **settings)
    model = getattr(transformers, name)(config).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, 0, max(parameter.shape[-1], 8) ** -0.5)
    model.save_pretrained(path)
    return model
