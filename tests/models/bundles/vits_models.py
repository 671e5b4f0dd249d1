"""Small models of VITS, with random weights, as folders with their tokenizers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers

from tests.models.bundles.speech_models import drawn_model, save


def vits(folder: Path, **options: Any) -> Path:
    """VITS for small letters."""
    folder.mkdir(parents=True)
    letters = ["_", *"abcdefghijklmnopqrstuvwxyz "]
    (folder / "vocab.json").write_text(json.dumps({letter: number for number, letter in enumerate(letters)}))
    tokenizer = transformers.VitsTokenizer(
        str(folder / "vocab.json"), pad_token="_", unk_token="_", phonemize=False, normalize=False
    )
    settings: dict[str, Any] = {
        "vocab_size": len(letters), "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "ffn_dim": 24,
        "flow_size": 16, "spectrogram_bins": 9, "prior_encoder_num_flows": 2, "prior_encoder_num_wavenet_layers": 2,
        "posterior_encoder_num_wavenet_layers": 1, "upsample_initial_channel": 16, "upsample_rates": [4, 4],
        "upsample_kernel_sizes": [8, 8], "resblock_kernel_sizes": [3], "resblock_dilation_sizes": [[1, 3]],
        "duration_predictor_num_flows": 2, "duration_predictor_filter_channels": 16, "duration_predictor_flow_bins": 4,
        "depth_separable_num_layers": 1, **options,
    }  # fmt: skip
    torch.manual_seed(0)
    return save(folder, drawn_model(transformers.VitsModel(transformers.VitsConfig(**settings))), tokenizer)
