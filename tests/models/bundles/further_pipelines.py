"""Small pipelines of diffusers for hosts that are not Swift, and SANA-Sprint, with random weights, as folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from tests.models.bundles.pipelines import qwen_tokenizer, small_autoencoder, t5_tokenizer

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "qwen_image": {"image_size": 32},
    "z_image": {"image_size": 48},
    "sana": {"image_size": 32},
    "wan": {"image_size": 16, "width": 32, "frames": 5},
    "wan_2": {"image_size": 16, "width": 32, "frames": 5},
    "wan_2_small": {"image_size": 32, "width": 64, "frames": 5},
    "ltx_video": {"image_size": 32, "width": 64, "frames": 9},
    "ltx_video_timed": {"image_size": 32, "width": 64, "frames": 9},
    "stable_audio": {},
}
"""Of the conversion, by the name of a function."""
_SIZE = {"height": 32, "width": 32}
_SMALL = {"height": 48, "width": 48}
_WAN = {"height": 16, "width": 32, "num_frames": 5}
_LTX = {"height": 32, "width": 64, "num_frames": 9}
_EXACT = {"use_resolution_binning": False}
_GUIDED = {"prompt": "ab a", "negative_prompt": "c", "guidance_scale": 4.0}
_PLAIN = {"prompt": "b", "guidance_scale": 1.0}
RUNS: Mapping[str, Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]] = {
    "qwen_image": [
        ({"prompt": "ab a", "negative_prompt": "c", "true_cfg_scale": 4.0, **_SIZE}, {"guidance": 4.0}),
        ({"prompt": "b", "true_cfg_scale": 1.0, **_SIZE}, {}),
    ],
    "z_image": [
        ({**_GUIDED, "negative_prompt": "c" * 40, **_SMALL}, {"guidance": 4.0}),
        ({"prompt": "b", "guidance_scale": 0.0, **_SMALL}, {"guidance": 0.0}),
    ],
    "sana": [
        ({**_GUIDED, **_EXACT, **_SIZE}, {"guidance": 4.0}), ({**_PLAIN, **_EXACT, **_SIZE}, {"guidance": 1.0}),
    ],
    "wan": [({**_GUIDED, **_WAN}, {"guidance": 4.0}), ({**_PLAIN, **_WAN}, {"guidance": 1.0})],
    "wan_2": [({**_GUIDED, **_WAN}, {"guidance": 4.0}), ({**_PLAIN, **_WAN}, {"guidance": 1.0})],
    "wan_2_small": [
        ({**_GUIDED, **_SIZE, "width": 64, "num_frames": 5}, {"guidance": 4.0}),
        ({**_PLAIN, **_SIZE, "width": 64, "num_frames": 5}, {"guidance": 1.0}),
    ],
    "ltx_video": [({**_GUIDED, **_LTX}, {"guidance": 4.0}), ({**_PLAIN, **_LTX}, {"guidance": 1.0})],
    "ltx_video_timed": [({**_GUIDED, **_LTX}, {"guidance": 4.0}), ({**_PLAIN, **_LTX}, {"guidance": 1.0})],
    "stable_audio": [
        (_GUIDED, {"guidance": 4.0}), ({**_PLAIN, "guidance_scale": 4.0}, {"guidance": 4.0}),
        (_PLAIN, {"guidance": 1.0}),
    ],
}  # fmt: skip
"""Arguments of the pipeline of diffusers, and those of `generate_image` for the same, besides the texts."""


def qwen_image(folder: Path) -> Path:
    """Qwen-Image with images of 32 x 32; its 546 tokens are fixed in diffusers."""
    from diffusers import (
        AutoencoderKLQwenImage,
        FlowMatchEulerDiscreteScheduler,
        QwenImagePipeline,
        QwenImageTransformer2DModel,
    )
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    tokenizer = qwen_tokenizer()
    torch.manual_seed(0)
    text_encoder = Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tokenizer), "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2,
            "num_attention_heads": 2, "num_key_value_heads": 1,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]},
        },
        vision_config={"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16, "out_hidden_size": 16},
    ))  # fmt: skip
    transformer = QwenImageTransformer2DModel(
        num_layers=2, attention_head_dim=8, num_attention_heads=2, joint_attention_dim=16, axes_dims_rope=(2, 2, 4)
    )
    pipeline = QwenImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
        vae=AutoencoderKLQwenImage(base_dim=8, dim_mult=[1, 1, 2, 2], num_res_blocks=1), text_encoder=text_encoder,
        tokenizer=tokenizer, transformer=transformer,
    )  # fmt: skip
    pipeline.save_pretrained(folder / "qwen-image")
    return folder / "qwen-image"


def z_image(folder: Path) -> Path:
    """Z-Image with images of 48 x 48, of 9 patches; its 512 tokens are fixed in diffusers."""
    from diffusers import FlowMatchEulerDiscreteScheduler, ZImagePipeline, ZImageTransformer2DModel
    from transformers import Qwen3Config, Qwen3Model

    tokenizer = qwen_tokenizer()
    torch.manual_seed(0)
    text_encoder = Qwen3Model(Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8,
    ))  # fmt: skip
    transformer = ZImageTransformer2DModel(
        dim=16, n_layers=2, n_refiner_layers=1, n_heads=2, n_kv_heads=2, cap_feat_dim=16, axes_dims=[2, 2, 4]
    )
    for token in (transformer.x_pad_token, transformer.cap_pad_token):
        torch.nn.init.normal_(token)
    pipeline = ZImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=small_autoencoder(16, shift_factor=0.1159, scaling_factor=0.3611, use_quant_conv=False,
                              use_post_quant_conv=False),
        text_encoder=text_encoder, tokenizer=tokenizer, transformer=transformer,
    )  # fmt: skip
    pipeline.save_pretrained(folder / "z-image")
    return folder / "z-image"


def sana(folder: Path) -> Path:
    """SANA with images of 32 x 32; its 300 tokens and the instruction before them are fixed in diffusers."""
    from diffusers import AutoencoderDC, DPMSolverMultistepScheduler, SanaPipeline, SanaTransformer2DModel
    from transformers import Gemma2Config, Gemma2Model

    tokenizer = gemma_tokenizer()
    torch.manual_seed(0)
    text_encoder = Gemma2Model(Gemma2Config(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, sliding_window=64,
    ))  # fmt: skip
    transformer = SanaTransformer2DModel(
        in_channels=4, out_channels=4, num_layers=2, num_attention_heads=2, attention_head_dim=8,
        num_cross_attention_heads=2, cross_attention_head_dim=8, cross_attention_dim=16, caption_channels=16,
        sample_size=8,
    )  # fmt: skip
    autoencoder = AutoencoderDC(
        latent_channels=4, attention_head_dim=4, encoder_block_types=("ResBlock", "EfficientViTBlock"),
        decoder_block_types=("ResBlock", "EfficientViTBlock"), encoder_block_out_channels=(8, 8),
        decoder_block_out_channels=(8, 8), encoder_layers_per_block=(1, 1), decoder_layers_per_block=(1, 1),
        encoder_qkv_multiscales=((), (5,)), decoder_qkv_multiscales=((), (5,)), upsample_block_type="interpolate",
        downsample_block_type="stride_conv", scaling_factor=0.41407,
    )  # fmt: skip
    pipeline = SanaPipeline(
        tokenizer=tokenizer, text_encoder=text_encoder, vae=autoencoder, transformer=transformer,
        scheduler=DPMSolverMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0, algorithm_type="dpmsolver++"
        ),
    )  # fmt: skip
    pipeline.save_pretrained(folder / "sana")
    return folder / "sana"


def sana_sprint(folder: Path) -> Path:
    """SANA-Sprint with images of 64 x 64, which are 2 x 2 latents of 32 channels."""
    from diffusers import AutoencoderDC, SanaSprintPipeline, SanaTransformer2DModel, SCMScheduler
    from transformers import Gemma2Config, Gemma2Model

    tokenizer = gemma_tokenizer()
    torch.manual_seed(0)
    text_encoder = Gemma2Model(Gemma2Config(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, sliding_window=64,
    ))  # fmt: skip
    transformer = SanaTransformer2DModel(
        in_channels=32, out_channels=32, num_layers=1, num_attention_heads=2, attention_head_dim=8,
        num_cross_attention_heads=2, cross_attention_head_dim=8, cross_attention_dim=16, caption_channels=16,
        sample_size=2, guidance_embeds=True, guidance_embeds_scale=0.1, qk_norm="rms_norm_across_heads",
    )  # fmt: skip
    blocks, widths, ones = ("ResBlock",) * 6, (8, 8, 8, 8, 8, 32), (1,) * 6
    autoencoder = AutoencoderDC(
        latent_channels=32, attention_head_dim=4, encoder_block_types=blocks, decoder_block_types=blocks,
        encoder_block_out_channels=widths, decoder_block_out_channels=widths, encoder_layers_per_block=ones,
        decoder_layers_per_block=ones, encoder_qkv_multiscales=((),) * 6, decoder_qkv_multiscales=((),) * 6,
        upsample_block_type="interpolate", downsample_block_type="stride_conv", scaling_factor=0.41407,
    )  # fmt: skip
    pipeline = SanaSprintPipeline(
        tokenizer=tokenizer, text_encoder=text_encoder, vae=autoencoder, transformer=transformer,
        scheduler=SCMScheduler(),
    )  # fmt: skip
    pipeline.save_pretrained(folder / "sana-sprint")
    return folder / "sana-sprint"


def gemma_tokenizer() -> Any:
    """A tokenizer of Gemma for single letters."""
    from transformers import GemmaTokenizer

    letters = ["\u2581", "\n", *(chr(code) for code in range(33, 127))]
    words = ["<pad>", "<eos>", "<bos>", "<unk>", *letters]
    made = GemmaTokenizer(vocab={word: number for number, word in enumerate(words)}, merges=[])
    return made


def wan(folder: Path) -> Path:
    """Wan 2.1 with videos of 5 frames of 16 x 32; its 512 tokens are fixed in diffusers."""
    return _wan(folder, {"base_dim": 8, "dim_mult": [1, 1, 2, 2], "num_res_blocks": 1}, 16)


def wan_2(folder: Path) -> Path:
    """Wan 2.2 A14B, of two transformers."""
    autoencoder = {"base_dim": 8, "dim_mult": [1, 1, 2, 2], "num_res_blocks": 1}
    return _wan(folder, autoencoder, 16, has_two=True, boundary_ratio=0.8)


def wan_2_small(folder: Path) -> Path:
    """Wan 2.2 TI2V, with a time for each patch, and an autoencoder with patches."""
    autoencoder = {
        "base_dim": 8, "z_dim": 4, "dim_mult": [1, 1, 2, 2], "num_res_blocks": 1, "is_residual": True, "patch_size": 2,
        "in_channels": 12, "out_channels": 12, "scale_factor_spatial": 16, "latents_mean": [0.1, -0.2, 0.3, 0.0],
        "latents_std": [0.8, 1.2, 0.9, 1.1],
    }  # fmt: skip
    return _wan(folder, autoencoder, 4, expand_timesteps=True)


def _wan(folder: Path, autoencoder: dict[str, Any], channels: int, *, has_two: bool = False, **options: Any) -> Path:
    from diffusers import AutoencoderKLWan, FlowMatchEulerDiscreteScheduler, WanPipeline, WanTransformer3DModel
    from transformers import UMT5Config, UMT5EncoderModel

    words = t5_tokenizer()
    torch.manual_seed(0)
    text_encoder = UMT5EncoderModel(
        UMT5Config(vocab_size=len(words), d_model=16, d_kv=8, d_ff=16, num_layers=2, num_heads=2)
    )
    transformers = [
        WanTransformer3DModel(
            num_attention_heads=2, attention_head_dim=12, text_dim=16, freq_dim=16, ffn_dim=32, num_layers=2,
            in_channels=channels, out_channels=channels,
        )
        for _ in range(2)
    ]  # fmt: skip
    pipeline = WanPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0), text_encoder=text_encoder, tokenizer=words,
        vae=AutoencoderKLWan(**autoencoder), transformer=transformers[0],
        transformer_2=transformers[1] if has_two else None, **options,
    )  # fmt: skip
    pipeline.save_pretrained(folder / "wan")
    return folder / "wan"


def ltx_video(folder: Path) -> Path:
    """LTX-Video 0.9.0 with videos of 9 frames of 32 x 64; its 128 tokens are fixed in diffusers."""
    return _ltx_video(folder)


def ltx_video_timed(folder: Path) -> Path:
    """LTX-Video 0.9.5, whose decoder takes a time."""
    return _ltx_video(folder, timestep_conditioning=True)


def _ltx_video(folder: Path, **options: Any) -> Path:
    from diffusers import (
        AutoencoderKLLTXVideo,
        FlowMatchEulerDiscreteScheduler,
        LTXPipeline,
        LTXVideoTransformer3DModel,
    )
    from transformers import T5Config, T5EncoderModel

    words = t5_tokenizer()
    torch.manual_seed(0)
    transformer = LTXVideoTransformer3DModel(
        in_channels=8, out_channels=8, num_attention_heads=2, attention_head_dim=8, cross_attention_dim=16,
        num_layers=2, caption_channels=16,
    )  # fmt: skip
    autoencoder = AutoencoderKLLTXVideo(
        latent_channels=8, block_out_channels=(8, 8, 8, 8), decoder_block_out_channels=(8, 8, 8, 8),
        layers_per_block=(1, 1, 1, 1, 1), decoder_layers_per_block=(1, 1, 1, 1, 1), **options,
    )  # fmt: skip
    autoencoder.latents_mean.normal_()
    autoencoder.latents_std.uniform_(0.5, 2)
    t5 = T5EncoderModel(T5Config(vocab_size=len(words), d_model=16, d_kv=8, d_ff=16, num_layers=2, num_heads=2))
    pipeline = LTXPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True), vae=autoencoder,
        text_encoder=t5, tokenizer=words, transformer=transformer,
    )  # fmt: skip
    pipeline.save_pretrained(folder / "ltx-video")
    return folder / "ltx-video"


def stable_audio(folder: Path) -> Path:
    """Stable Audio with sounds of 64 samples in two channels, and texts of 16 tokens."""
    from diffusers import (
        AutoencoderOobleck,
        EDMDPMSolverMultistepScheduler,
        StableAudioDiTModel,
        StableAudioPipeline,
        StableAudioProjectionModel,
    )
    from transformers import T5Config, T5EncoderModel

    words = t5_tokenizer()
    words.model_max_length = 16
    torch.manual_seed(0)
    transformer = StableAudioDiTModel(
        sample_size=16, in_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=2,
        num_key_value_attention_heads=1, out_channels=4, cross_attention_dim=8, time_proj_dim=8,
        global_states_input_dim=32, cross_attention_input_dim=16,
    )  # fmt: skip
    autoencoder = AutoencoderOobleck(
        encoder_hidden_size=8, downsampling_ratios=[2, 2], decoder_channels=4, decoder_input_channels=4,
        audio_channels=2, channel_multiples=[1, 2], sampling_rate=16,
    )  # fmt: skip
    t5 = T5EncoderModel(T5Config(vocab_size=len(words), d_model=16, d_kv=8, d_ff=16, num_layers=2, num_heads=2))
    pipeline = StableAudioPipeline(
        vae=autoencoder, text_encoder=t5, tokenizer=words, transformer=transformer,
        projection_model=StableAudioProjectionModel(16, 16, min_value=0, max_value=512),
        scheduler=EDMDPMSolverMultistepScheduler(
            solver_order=2, prediction_type="v_prediction", sigma_data=1.0, sigma_schedule="exponential"
        ),
    )  # fmt: skip
    pipeline.save_pretrained(folder / "stable-audio")
    return folder / "stable-audio"
