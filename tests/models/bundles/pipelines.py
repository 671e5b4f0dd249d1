"""Small pipelines of diffusers with random weights, as folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file


def clip_tokenizer(folder: Path) -> int:
    """Write the files of CLIP's tokenizer for single letters; the number of tokens, of which the last two begin and end
    a text."""
    folder.mkdir(parents=True)
    letters = [chr(code) for code in range(33, 127)]
    words = [*letters, *(f"{letter}</w>" for letter in letters), "ab", "<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\na b\n")
    return len(words)


def of_diffusers(folder: Path, *, seed: int, **options: Any) -> np.ndarray:
    """The image, video or sound that the pipeline of diffusers in a folder makes."""
    import diffusers
    from transformers.utils import logging

    logging.disable_progress_bar()
    name = json.loads((folder / "model_index.json").read_text())["_class_name"]
    without: dict[str, Any] = {}
    if name == "StableDiffusion3Pipeline":
        without = {"text_encoder_3": None, "tokenizer_3": None}
        options["max_sequence_length"] = 77
    if name == "WanPipeline":  # diffusers loads its transformer only where accelerate is installed
        for place in folder.glob("transformer*"):
            kind = diffusers.WanTransformer3DModel
            without[place.name] = kind.from_config(kind.load_config(place)).eval()
            without[place.name].load_state_dict(load_file(place / "diffusion_pytorch_model.safetensors"))
    pipeline = getattr(diffusers, name).from_pretrained(folder, low_cpu_mem_usage=False, **without)
    pipeline.set_progress_bar_config(disable=True)
    made = pipeline(output_type="np", generator=torch.Generator().manual_seed(seed), **options)
    found: np.ndarray = next(iter(made.values()))[0]
    return found


def signal_to_noise(image: np.ndarray, wanted: np.ndarray) -> float:
    """In dB, of images from 0 to 1."""
    return float(-10 * np.log10(np.mean((image.astype(np.float64) - wanted) ** 2) + 1e-30))


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
        vae=autoencoder, text_encoder=text_encoder, unet=unet,
        tokenizer=CLIPTokenizer.from_pretrained(folder / "words", model_max_length=77),
        safety_checker=None, feature_extractor=None, requires_safety_checker=False,
        scheduler=PNDMScheduler(
            beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", skip_prk_steps=True, steps_offset=1
        ),
    )  # fmt: skip
    pipeline.save_pretrained(folder / "stable-diffusion")
    return folder / "stable-diffusion"


def stable_diffusion_controlnet(folder: Path) -> Path:
    """Stable Diffusion 1 with a ControlNet whose weights are not zero."""
    from diffusers import ControlNetModel, StableDiffusionControlNetPipeline, StableDiffusionPipeline

    plain = StableDiffusionPipeline.from_pretrained(stable_diffusion(folder), low_cpu_mem_usage=False)
    network = ControlNetModel.from_unet(plain.unet, conditioning_embedding_out_channels=(8, 8, 8, 8))
    torch.manual_seed(1)
    for module in (network.controlnet_down_blocks, network.controlnet_mid_block, network.controlnet_cond_embedding):
        for weight in module.parameters():
            torch.nn.init.normal_(weight, std=0.5)
    pipeline = StableDiffusionControlNetPipeline(
        **plain.components | {"controlnet": network}, requires_safety_checker=False
    )
    pipeline.save_pretrained(folder / "controlnet")
    return folder / "controlnet"


def stable_diffusion_3(folder: Path) -> Path:
    """Stable Diffusion 3 with images of 32 x 32, and a T5 that diffusers leaves out, too."""
    from diffusers import FlowMatchEulerDiscreteScheduler, SD3Transformer2DModel, StableDiffusion3Pipeline
    from transformers import CLIPTokenizer

    count = clip_tokenizer(folder / "words")
    torch.manual_seed(0)
    transformer = SD3Transformer2DModel(
        sample_size=4, patch_size=2, in_channels=16, num_layers=2, attention_head_dim=8, num_attention_heads=2,
        joint_attention_dim=48, caption_projection_dim=16, pooled_projection_dim=36, out_channels=16,
        pos_embed_max_size=8, dual_attention_layers=(0,), qk_norm="rms_norm",
    )  # fmt: skip
    pipeline = StableDiffusion3Pipeline(
        transformer=transformer, scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=small_autoencoder(16, shift_factor=0.0609, scaling_factor=1.5305, use_quant_conv=False,
                         use_post_quant_conv=False),
        text_encoder=_clip(count, 16, 12), text_encoder_2=_clip(count, 32, 24), text_encoder_3=None, tokenizer_3=None,
        tokenizer=CLIPTokenizer.from_pretrained(folder / "words", model_max_length=77),
        tokenizer_2=CLIPTokenizer.from_pretrained(folder / "words", model_max_length=77),
    )  # fmt: skip
    pipeline.save_pretrained(folder / "stable-diffusion-3")
    return folder / "stable-diffusion-3"


def stable_diffusion_xl(folder: Path) -> Path:
    """Stable Diffusion XL with images of 64 x 64."""
    from diffusers import EulerDiscreteScheduler, StableDiffusionXLPipeline, UNet2DConditionModel
    from transformers import CLIPTokenizer

    count = clip_tokenizer(folder / "words")
    torch.manual_seed(0)
    unet = UNet2DConditionModel(
        sample_size=8, block_out_channels=(16, 32), layers_per_block=1, cross_attention_dim=48,
        attention_head_dim=(2, 4), norm_num_groups=8, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), use_linear_projection=True, addition_embed_type="text_time",
        addition_time_embed_dim=8, transformer_layers_per_block=(1, 2), projection_class_embeddings_input_dim=72,
    )  # fmt: skip
    pipeline = StableDiffusionXLPipeline(
        vae=small_autoencoder(4, scaling_factor=0.13025), text_encoder=_clip(count, 16, None),
        text_encoder_2=_clip(count, 32, 24), unet=unet, add_watermarker=False,
        tokenizer=CLIPTokenizer.from_pretrained(folder / "words", model_max_length=77),
        tokenizer_2=CLIPTokenizer.from_pretrained(folder / "words", model_max_length=77),
        scheduler=EulerDiscreteScheduler(
            beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", steps_offset=1,
            timestep_spacing="leading",
        ),
    )  # fmt: skip
    pipeline.save_pretrained(folder / "stable-diffusion-xl")
    return folder / "stable-diffusion-xl"


def flux2_klein(folder: Path, is_distilled: bool = False) -> Path:
    """FLUX.2 klein with images of 32 x 32; its 27 layers of text and 512 tokens are fixed in diffusers."""
    from diffusers import (
        AutoencoderKLFlux2,
        FlowMatchEulerDiscreteScheduler,
        Flux2KleinPipeline,
        Flux2Transformer2DModel,
    )
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = qwen_tokenizer()
    torch.manual_seed(0)
    transformer = Flux2Transformer2DModel(
        in_channels=128, num_layers=1, num_single_layers=2, attention_head_dim=8, num_attention_heads=2,
        joint_attention_dim=48, timestep_guidance_channels=32, axes_dims_rope=(2, 2, 2, 2), guidance_embeds=False,
    )  # fmt: skip
    autoencoder = AutoencoderKLFlux2(
        block_out_channels=(8, 8, 8, 8), layers_per_block=1, norm_num_groups=4, latent_channels=32, sample_size=32
    )
    autoencoder.bn.running_mean.normal_()
    autoencoder.bn.running_var.uniform_(0.5, 2)
    text_encoder = Qwen3ForCausalLM(Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=28, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8,
    ))  # fmt: skip
    pipeline = Flux2KleinPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True), vae=autoencoder,
        text_encoder=text_encoder, tokenizer=tokenizer, transformer=transformer, is_distilled=is_distilled,
    )  # fmt: skip
    pipeline.save_pretrained(folder / "flux2-klein")
    return folder / "flux2-klein"


def qwen_tokenizer() -> Any:
    """A tokenizer of Qwen for single bytes, with a chat template."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import Qwen2Tokenizer

    vocabulary = {letter: number for number, letter in enumerate(sorted(ByteLevel.alphabet()))}
    made = Qwen2Tokenizer(vocab=vocabulary, merges=[])
    made.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    made.chat_template = (
        "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
        "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
    )
    return made


def _clip(count: int, width: int, projection: int | None) -> Any:
    """A text encoder of CLIP; with a projection, of another class."""
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    config = CLIPTextConfig(
        vocab_size=count, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=77, bos_token_id=count - 2, eos_token_id=count - 1, projection_dim=projection or 16,
    )  # fmt: skip
    return CLIPTextModel(config) if projection is None else CLIPTextModelWithProjection(config)


def small_autoencoder(channels: int, **options: Any) -> Any:
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        block_out_channels=(8,) * 4, layers_per_block=1, norm_num_groups=4, latent_channels=channels, sample_size=64,
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4, **options,
    )  # fmt: skip


def flux(folder: Path) -> Path:
    """FLUX.1 dev with images of 32 x 32; its 512 tokens are fixed in diffusers."""
    from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel
    from transformers import CLIPTokenizer, T5Config, T5EncoderModel

    count, words = clip_tokenizer(folder / "words"), t5_tokenizer()
    torch.manual_seed(0)
    transformer = FluxTransformer2DModel(
        in_channels=64, num_layers=1, num_single_layers=1, attention_head_dim=8, num_attention_heads=2,
        joint_attention_dim=16, pooled_projection_dim=24, guidance_embeds=True, axes_dims_rope=(2, 2, 4),
    )  # fmt: skip
    t5 = T5EncoderModel(T5Config(vocab_size=len(words), d_model=16, d_kv=8, d_ff=16, num_layers=2, num_heads=2))
    pipeline = FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
        vae=small_autoencoder(16, shift_factor=0.1159, scaling_factor=0.3611, use_quant_conv=False,
                         use_post_quant_conv=False),
        text_encoder=_clip(count, 24, None), text_encoder_2=t5, tokenizer_2=words, transformer=transformer,
        tokenizer=CLIPTokenizer.from_pretrained(folder / "words", model_max_length=77),
    )  # fmt: skip
    pipeline.save_pretrained(folder / "flux")
    return folder / "flux"


def t5_tokenizer() -> Any:
    """A tokenizer of T5 for single letters."""
    from transformers import T5Tokenizer

    letters = [chr(code) for code in range(97, 123)]
    pieces = ["<pad>", "</s>", "<unk>", "\u2581", *letters, *(f"\u2581{letter}" for letter in letters)]
    return T5Tokenizer(vocab=[(piece, 0.0 if place < 3 else -1.0) for place, piece in enumerate(pieces)], extra_ids=0)
