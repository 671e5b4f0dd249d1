"""Small models that write latents of sound, with random weights, as folders."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers

from tests.models.bundles.speaking_models import small_tokenizer
from tests.models.bundles.speech_models import drawn_model, save


def pocket(folder: Path, name: str = "PocketTTS", flow: str = "lsd") -> Path:
    """Pocket TTS, or Gradium's Phonon, with latents of 6 numbers."""
    of_voice = {"audio_prompt_bos_token_id": 38} if name == "PocketTTS" else {"audio_prompt_dim": 10}
    config = getattr(transformers, f"{name}Config")(
        vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=64, latent_dim=6, pad_token_id=3, audio_prompt_token_id=36, audio_latent_token_id=37,
        audio_bos_token_id=39, **of_voice,
        flow_head_config={
            "hidden_size": 24, "num_hidden_layers": 2, "latent_dim": 6, "condition_dim": 32,
            "frequency_embedding_size": 8, "flow_type": flow},
    )  # fmt: skip
    torch.manual_seed(0)
    model = drawn_model(getattr(transformers, f"{name}ForConditionalGeneration")(config))
    with torch.no_grad():
        model.latent_mean.normal_()
        model.latent_std.uniform_(0.5, 2)
    model.generation_config = transformers.GenerationConfig(
        num_flow_steps=3, eos_threshold=0.3, min_frames_before_eos=4, temperature=0.7, do_sample=True, pad_token_id=3
    )
    return save(folder, model, small_tokenizer())


def vibe_voice(folder: Path) -> Path:
    """VibeVoice with latents of 6 numbers and frames of 8 samples."""
    codec = {"channels": 1, "kernel_size": 5, "num_filters": 4, "downsampling_ratios": [2, 4], "depths": [1, 1, 1],
             "layer_scale_init_value": 0.5}  # fmt: skip
    config = transformers.VibeVoiceConfig(
        text_config={
            "model_type": "qwen2", "vocab_size": 40, "hidden_size": 32, "intermediate_size": 48,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "max_position_embeddings": 64},
        audio_config={"model_type": "vibevoice_acoustic_tokenizer", "hidden_size": 6, **codec},
        semantic_model_config={"model_type": "vibevoice_acoustic_tokenizer_encoder", "hidden_size": 5, **codec},
        diffusion_head_config={"num_hidden_layers": 2, "intermediate_size": 48, "frequency_embedding_size": 8},
        pad_token_id=0, eos_token_id=39, audio_bos_token_id=36, audio_eos_token_id=37, audio_token_id=38,
    )  # fmt: skip
    torch.manual_seed(0)
    model = drawn_model(transformers.VibeVoiceForConditionalGeneration(config))
    with torch.no_grad():
        model.model.latent_scaling_factor.fill_(0.8)
        model.model.latent_bias_factor.fill_(0.1)
        # most tokens stand for a frame, and a sound begins, ends and begins again
        drawn = torch.randn(4, 32, generator=torch.Generator().manual_seed(13))
        model.lm_head.weight[36:40] = drawn * torch.tensor([[0.25], [0.1], [0.5], [0.1]])
    model.generation_config = transformers.GenerationConfig(
        eos_token_id=39, pad_token_id=0, guidance_scale=1.3, noise_scheduler_class="DPMSolverMultistepScheduler",
        noise_scheduler_config={"beta_schedule": "squaredcos_cap_v2", "prediction_type": "v_prediction"},
        num_diffusion_steps=4,
    )  # fmt: skip
    return save(folder, model, small_tokenizer())
