"""Small pipelines of diffusers with random weights, as folders."""

from __future__ import annotations

import json
from pathlib import Path

import torch


def clip_tokenizer(folder: Path) -> int:
    """Write the files of CLIP's tokenizer for single letters; the number of tokens, of which the last two begin and end
    a text."""
    folder.mkdir(parents=True)
    letters = [chr(code) for code in range(33, 127)]
    words = [*letters, *(f"{letter}</w>" for letter in letters), "ab", "<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\na b\n")
    return len(words)


def stable_diffusion(folder: Path) -> Path:
    """Stable Diffusion 1 with images of 64 x 64."""
    from diffusers import AutoencoderKL, PNDMScheduler, StableDiffusionPipeline, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    torch.manual_seed(0)
    unet = UNet2DConditionModel(
        sample_size=8, block_out_channels=(16, 32), layers_per_block=1, cross_attention_dim=32, attention_head_dim=4,
        norm_num_groups=8, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip
    autoencoder = AutoencoderKL(
        block_out_channels=(16,) * 4, layers_per_block=1, norm_num_groups=8, latent_channels=4, sample_size=64,
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
    )  # fmt: skip
    count = clip_tokenizer(folder / "words")
    text_encoder = CLIPTextModel(CLIPTextConfig(
        vocab_size=count, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=77, bos_token_id=count - 2, eos_token_id=count - 1,
    ))  # fmt: skip
    pipeline = StableDiffusionPipeline(
        vae=autoencoder, text_encoder=text_encoder, tokenizer=CLIPTokenizer.from_pretrained(folder / "words"),
        unet=unet, safety_checker=None, feature_extractor=None, requires_safety_checker=False,
        scheduler=PNDMScheduler(
            beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", skip_prk_steps=True, steps_offset=1
        ),
    )  # fmt: skip
    pipeline.save_pretrained(folder / "stable-diffusion")
    return folder / "stable-diffusion"
