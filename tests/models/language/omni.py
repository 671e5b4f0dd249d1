"""Small folders of Qwen Omni in the form of the published ones: the thinker, weights of what speaks, the processor."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tests.models.language.vision_checkpoints import picture

IMAGE, VIDEO, AUDIO = (f"<|vision_bos|><|{name}|><|vision_eos|>" for name in ("IMAGE", "VIDEO", "AUDIO"))
AUDIO = AUDIO.replace("vision", "audio")
_NAMES = {
    "image_token": "<|IMAGE|>", "video_token": "<|VIDEO|>", "audio_token": "<|AUDIO|>",
    "vision_bos_token": "<|vision_bos|>", "vision_eos_token": "<|vision_eos|>", "audio_bos_token": "<|audio_bos|>",
    "audio_eos_token": "<|audio_eos|>",
}  # fmt: skip
_WORDS = ["<s>", "</s>", "<pad>", "<unk>", *string.ascii_lowercase, *_NAMES.values()]
_WORDS += [f"x{number}" for number in range(len(_WORDS), 96)]
_ID = {name.replace("_token", "_token_id"): _WORDS.index(word) for name, word in _NAMES.items()}
_STARTS = {
    f"{kind}_{place}_token_id": _ID[f"{kind}_{short}_token_id"]
    for kind in ("vision", "audio") for place, short in (("start", "bos"), ("end", "eos"))
}  # fmt: skip
_TEXT = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 4096,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]},
}  # fmt: skip
_HEARS = {"num_mel_bins": 128, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 32, "d_model": 16,
          "output_dim": 32}  # fmt: skip
_SEES = {"depth": 2, "hidden_size": 32, "intermediate_size": 40, "num_heads": 2, "spatial_merge_size": 2,
         "temporal_patch_size": 2, "out_hidden_size": 32}  # fmt: skip
THINKERS: dict[str, dict[str, Any]] = {
    "Qwen2_5Omni": {
        "audio_config": {**_HEARS, "n_window": 100}, "text_config": _TEXT, "position_id_per_seconds": 25,
        "vision_config": {**_SEES, "patch_size": 14, "window_size": 112, "fullatt_block_indexes": [1]},
        "seconds_per_chunk": 2, "audio_token_index": _ID["audio_token_id"], "image_token_index": _ID["image_token_id"],
        "video_token_index": _ID["video_token_id"], **_STARTS,
    },
    "Qwen3OmniMoe": {
        "audio_config": {**_HEARS, "n_window": 50, "n_window_infer": 800, "downsample_hidden_size": 8},
        "text_config": {**_TEXT, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
        "vision_config": {**_SEES, "patch_size": 16, "num_position_embeddings": 16,
                          "deepstack_visual_indexes": [0, 1]},
        "position_id_per_seconds": 13, "seconds_per_chunk": 2,
        **{name: _ID[name] for name in ("audio_token_id", "image_token_id", "video_token_id")}, **_STARTS,
    },
}  # fmt: skip
SIDE = {"Qwen2_5Omni": 56, "Qwen3OmniMoe": 64}
"""The side of a square of four tokens."""


def film(frames: int, height: int = 32, width: int = 48) -> np.ndarray:
    """A video whose frames differ, (frames, height, width, 3)."""
    return np.stack([np.roll(np.asarray(picture(width, height)), 7 * number, 1) for number in range(frames)])


def omni(folder: Path, name: str) -> tuple[Any, Any]:
    """Write a folder; the thinker and the processor in it.

    Args:
        folder: to write.
        name: the beginning of the classes of transformers.
    """
    import transformers as tf
    from safetensors.torch import load_file, save_file

    config = getattr(tf, f"{name}Config")(thinker_config=THINKERS[name], enable_audio_output=False)
    torch.manual_seed(2)
    thinker = getattr(tf, f"{name}ThinkerForConditionalGeneration")(config.thinker_config).eval()
    for path, weight in thinker.named_parameters():
        if weight.ndim > 1:
            inputs = weight.shape[-1] if weight.ndim == 3 else weight[0].numel()
            nn.init.normal_(weight, 0, 1 if "embed_tokens" in path or "lm_head" in path else 2 * max(inputs, 8) ** -0.5)
        elif "norm" in path or ".ln_" in path:
            nn.init.uniform_(weight, 0.5, 1.5)
        else:
            nn.init.normal_(weight, 0, 0.2)
    thinker.save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    whole = {f"thinker.{path.removeprefix('thinker.')}": weight for path, weight in weights.items()}
    save_file({**whole, "talker.codec_head.weight": torch.zeros(4, 4)}, folder / "model.safetensors", {"format": "pt"})
    told = {**config.to_dict(), "architectures": [f"{name}ForConditionalGeneration"]}
    (folder / "config.json").write_text(json.dumps(told, default=str))
    processor = _processor(tf, name)
    processor.save_pretrained(folder)
    return thinker, processor


def _processor(tf: Any, name: str) -> Any:
    from tokenizers import Tokenizer, decoders, models

    pieces = Tokenizer(models.BPE({word: number for number, word in enumerate(_WORDS)}, [], unk_token="<unk>"))
    pieces.decoder = decoders.Fuse()
    tokenizer = tf.PreTrainedTokenizerFast(
        tokenizer_object=pieces, unk_token="<unk>", eos_token="</s>", pad_token="<pad>", extra_special_tokens=_NAMES
    )
    side = SIDE[name]
    settings = {"patch_size": side // 4, "merge_size": 2, "temporal_patch_size": 2,
                "size": {"shortest_edge": (side // 2) ** 2, "longest_edge": (2 * side) ** 2}}  # fmt: skip
    return getattr(tf, f"{name}Processor")(
        tf.Qwen2VLImageProcessor(**settings), tf.Qwen2VLVideoProcessor(**settings, do_sample_frames=False),
        tf.WhisperFeatureExtractor(feature_size=128), tokenizer,
    )  # fmt: skip
