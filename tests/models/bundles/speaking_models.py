"""Small models that speak, with random weights, as folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers

from tests.models.bundles.speech_models import drawn_model, save


def speech_t5(folder: Path, **options: Any) -> Path:
    """SpeechT5 for small letters, which makes two frames in each step, with its vocoder."""
    letters = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *"abcdefghijklmnopqrstuvwxyz "]
    tokenizer = _tokenizer(letters)
    bins = 8
    settings: dict[str, Any] = {
        "vocab_size": len(letters), "hidden_size": 32, "encoder_layers": 2, "decoder_layers": 2,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
        "num_mel_bins": bins, "reduction_factor": 2, "speech_decoder_prenet_units": 16, "speaker_embedding_dim": 6,
        "speech_decoder_postnet_layers": 3, "speech_decoder_postnet_units": 12, "max_speech_positions": 100,
        "max_text_positions": 60, "encoder_max_relative_position": 10, **options,
    }  # fmt: skip
    torch.manual_seed(0)
    model = drawn_model(transformers.SpeechT5ForTextToSpeech(transformers.SpeechT5Config(**settings)))
    vocoder = transformers.SpeechT5HifiGanConfig(
        model_in_dim=bins, upsample_initial_channel=16, upsample_rates=[4, 2], upsample_kernel_sizes=[8, 4],
        resblock_kernel_sizes=[3], resblock_dilation_sizes=[[1, 3]],
    )  # fmt: skip
    save(folder / "vocoder", drawn_model(transformers.SpeechT5HifiGan(vocoder)))
    return save(folder, model, tokenizer)


def small_tokenizer() -> Any:
    """A tokenizer of small letters."""
    return _tokenizer(["<unk>", "<pad>", *"abcdefghijklmnopqrstuvwxyz "])


def _tokenizer(words: list[str]) -> Any:
    from tokenizers import Tokenizer, models

    pieces = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, [], unk_token="<unk>"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=pieces, unk_token="<unk>", pad_token="<pad>")


def bark(folder: Path) -> Path:
    """Bark with texts of 8 tokens, two codebooks of the coarse model and four of the fine one."""
    shared = {"hidden_size": 16, "num_heads": 2, "num_layers": 2, "block_size": 64, "bias": True}
    config = transformers.BarkConfig(
        semantic_config={**shared, "input_vocab_size": 60, "output_vocab_size": 24},
        coarse_acoustics_config={**shared, "input_vocab_size": 60, "output_vocab_size": 60},
        fine_acoustics_config={**shared, "input_vocab_size": 18, "output_vocab_size": 18, "n_codes_total": 4,
                               "n_codes_given": 2},
        codec_config={
            "model_type": "encodec", "target_bandwidths": [1.6], "sampling_rate": 400, "upsampling_ratios": [4, 2],
            "num_filters": 4, "hidden_size": 16, "num_lstm_layers": 1, "codebook_size": 16, "kernel_size": 3,
            "last_kernel_size": 3, "num_residual_layers": 1},
    )  # fmt: skip
    torch.manual_seed(0)
    model = drawn_model(transformers.BarkModel(config))
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("embed"):
                buffer.normal_(generator=torch.Generator().manual_seed(2))
    model.generation_config = transformers.GenerationConfig(
        semantic_config={
            "eos_token_id": 20, "text_encoding_offset": 24, "text_pad_token": 58, "semantic_infer_token": 59,
            "semantic_vocab_size": 20, "max_input_semantic_length": 8, "semantic_rate_hz": 25, "max_new_tokens": 10},
        coarse_acoustics_config={
            "coarse_semantic_pad_token": 56, "coarse_rate_hz": 25, "n_coarse_codebooks": 2, "coarse_infer_token": 57,
            "max_coarse_input_length": 10, "max_coarse_history": 20, "sliding_window_len": 12},
        fine_acoustics_config={"max_fine_history_length": 16, "max_fine_input_length": 32, "n_fine_codebooks": 4},
        sample_rate=400, codebook_size=16,
    )  # fmt: skip
    return save(folder, model, small_tokenizer())


def csm(folder: Path) -> Path:
    """CSM with four codebooks, whose codec is Mimi."""
    from tests.models.bundles.streaming_models import MIMI

    shared = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
              "num_key_value_heads": 2, "head_dim": 8, "num_codebooks": 4, "vocab_size": 20}  # fmt: skip
    config = transformers.CsmConfig(
        **shared, text_vocab_size=40, max_position_embeddings=64, codebook_eos_token_id=0, codebook_pad_token_id=19,
        audio_token_id=38, audio_eos_token_id=39, pad_token_id=1, bos_token_id=2, tie_codebooks_embeddings=True,
        depth_decoder_config={**shared, "hidden_size": 24, "backbone_hidden_size": 32, "max_position_embeddings": 5},
        codec_config={"model_type": "mimi", **MIMI},
    )  # fmt: skip
    torch.manual_seed(0)
    model = drawn_model(transformers.CsmForConditionalGeneration(config))
    with torch.no_grad():
        model.lm_head.weight.normal_(0, 1)
        model.depth_decoder.codebooks_head.weight.normal_(0, 1)
        model.embed_text_tokens.weight.normal_(0, 1)
        model.backbone_model.embed_tokens.embed_audio_tokens.weight.normal_(0, 0.5)
    model.generation_config = transformers.GenerationConfig(pad_token_id=1, bos_token_id=2)
    return save(folder, model, _tokenizer([f"<{number}>" for number in range(40)]))


def fast_speech(folder: Path, *, has_vocoder: bool = True, longer: float = 1.3, **told: Any) -> Path:
    """FastSpeech 2 with 8 bins of spectrograms.

    Args:
        folder: of the model.
        has_vocoder: whether it makes samples.
        longer: is added to the logarithms of durations.
        told: further settings.
    """
    config = transformers.FastSpeech2ConformerConfig(
        vocab_size=20, hidden_size=16, num_mel_bins=8, encoder_layers=1, decoder_layers=1, encoder_linear_units=24,
        decoder_linear_units=24, encoder_num_attention_heads=2, decoder_num_attention_heads=2,
        speech_decoder_postnet_layers=2, speech_decoder_postnet_units=12, duration_predictor_channels=12,
        pitch_predictor_channels=12, pitch_predictor_layers=2, energy_predictor_channels=12, **told,
    )  # fmt: skip
    vocoder = transformers.FastSpeech2ConformerHifiGanConfig(
        model_in_dim=8, upsample_initial_channel=16, upsample_rates=[4, 2], upsample_kernel_sizes=[8, 4],
        resblock_kernel_sizes=[3], resblock_dilation_sizes=[[1, 3]],
    )  # fmt: skip
    both = transformers.FastSpeech2ConformerWithHifiGanConfig(
        model_config=config.to_dict(), vocoder_config=vocoder.to_dict()
    )
    torch.manual_seed(0)
    kind = transformers.FastSpeech2ConformerWithHifiGan if has_vocoder else transformers.FastSpeech2ConformerModel
    model = drawn_model(kind(both if has_vocoder else config))
    with torch.no_grad():
        predictor = getattr(model, "model", model).duration_predictor
        predictor.linear.bias.fill_(longer)
        for name, buffer in model.named_buffers():
            if name.endswith("running_var"):
                buffer.uniform_(0.5, 2)
            elif name.endswith("running_mean"):
                buffer.normal_()
    save(folder, model)
    (folder / "vocab.json").write_text(json.dumps({f"<{number}>": number for number in range(20)}))
    return folder


def seamless(folder: Path) -> Path:
    """SeamlessM4T from text to speech, of two languages."""
    layers = {
        f"{part}_{name}": value
        for part in ("encoder", "decoder", "t2u_encoder", "t2u_decoder")
        for name, value in (("layers", 2), ("ffn_dim", 48), ("attention_heads", 4))
    }
    config = transformers.SeamlessM4TConfig(
        vocab_size=29, hidden_size=32, max_position_embeddings=64, t2u_vocab_size=30, t2u_max_position_embeddings=64,
        speech_encoder_layers=1, speech_encoder_attention_heads=2, speech_encoder_intermediate_size=32,
        unit_hifi_gan_vocab_size=28, unit_embed_dim=8, lang_embed_dim=4, spkr_embed_dim=4, vocoder_num_langs=2,
        vocoder_num_spkrs=3, upsample_initial_channel=16, upsample_rates=[4, 2], upsample_kernel_sizes=[8, 4],
        resblock_kernel_sizes=[3], resblock_dilation_sizes=[[1, 3]], scale_embedding=False, pad_token_id=1,
        eos_token_id=3, bos_token_id=2, decoder_start_token_id=3, **layers,
    )  # fmt: skip
    torch.manual_seed(0)
    model = drawn_model(transformers.SeamlessM4TForTextToSpeech(config))
    with torch.no_grad():
        for part in (model.shared, model.text_decoder.layer_norm, model.t2u_model.lm_head,
                     model.t2u_model.model.decoder.layer_norm):  # fmt: skip
            part.weight.normal_()  # a token is not followed by itself
        model.shared.weight[1] = 0  # nor by padding, and control symbols are no units
        model.t2u_model.lm_head.weight[:4] = 0
        model.vocoder.dur_predictor.proj.bias.fill_(1.0)
    model.generation_config = transformers.GenerationConfig(
        text_decoder_lang_to_code_id={"eng": 5, "fra": 6}, t2u_lang_code_to_id={"eng": 5, "fra": 6},
        vocoder_lang_code_to_id={"eng": 0, "fra": 1}, pad_token_id=1, eos_token_id=3, bos_token_id=2,
        decoder_start_token_id=3,
    )  # fmt: skip
    return save(folder, model, small_tokenizer())
