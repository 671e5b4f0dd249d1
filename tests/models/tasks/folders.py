"""Small checkpoints of each task, with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from patcomp.torchvision import declare_operators

declare_operators()

_TEXT: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 96,
    "max_position_embeddings": 64, "pad_token_id": 0,
}  # fmt: skip
IMAGE: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
_SEQUENCES: dict[str, Any] = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "vocab_size": 96, "num_mel_bins": 8,
    "max_source_positions": 20, "max_target_positions": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 1,
}  # fmt: skip

_RESNET: dict[str, Any] = {
    "model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1],
    "layer_type": "basic", "out_features": ["stage4"],
}  # fmt: skip
_DETR: dict[str, Any] = {
    "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None, "backbone_config": _RESNET,
    "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "num_queries": 10, "image_size": 64,
}  # fmt: skip
_SEVERAL = {**_RESNET, "out_features": ["stage2", "stage3", "stage4"]}
_RT_DETR: dict[str, Any] = {
    "encoder_hidden_dim": 32, "encoder_in_channels": [16, 16, 16], "encoder_layers": 1, "encoder_ffn_dim": 48,
    "encoder_attention_heads": 4, "d_model": 32, "num_queries": 10, "decoder_in_channels": [32, 32, 32],
    "decoder_ffn_dim": 48, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_n_points": 2,
    "num_denoising": 0, "image_size": 64,
}  # fmt: skip
_DINO: dict[str, Any] = {
    **IMAGE, "model_type": "dinov2", "num_hidden_layers": 4, "out_indices": [1, 2, 3, 4],
    "reshape_hidden_states": False, "apply_layernorm": True,
}  # fmt: skip
HGNET: dict[str, Any] = {
    "model_type": "hgnet_v2", "stem_channels": [3, 8, 16], "hidden_sizes": [16] * 4, "depths": [1] * 4,
    "stage_in_channels": [16] * 4, "stage_mid_channels": [8] * 4, "stage_out_channels": [16] * 4,
    "stage_num_blocks": [1] * 4, "stage_numb_of_layers": [1] * 4, "out_features": ["stage2", "stage3", "stage4"],
}  # fmt: skip

_LAGGED: dict[str, Any] = {
    "prediction_length": 8, "context_length": 16, "lags_sequence": [1, 2, 3], "num_time_features": 2, "d_model": 16,
    "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "num_parallel_samples": 1,
}  # fmt: skip
_PATCHED: dict[str, Any] = {
    "context_length": 32, "prediction_length": 8, "num_input_channels": 3, "patch_length": 4, "patch_stride": 4,
    "d_model": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "num_layers": 2, "ffn_dim": 24, "num_targets": 5,
    "scaling": "std",
}  # fmt: skip
_TIMES_FM: dict[str, Any] = {
    "patch_length": 4, "context_length": 32, "horizon_length": 8, "num_hidden_layers": 2, "hidden_size": 16,
    "intermediate_size": 24, "head_dim": 8, "num_attention_heads": 2, "quantiles": [0.1, 0.5, 0.9],
}  # fmt: skip
SERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "TimesFmModelForPrediction": ("timesfm", _TIMES_FM),
    "TimesFm2_5ModelForPrediction": (
        "timesfm2_5", {**_TIMES_FM, "output_quantile_len": 16, "num_key_value_heads": 2, "decode_index": 2}),
    "PatchTSTForPrediction": ("patchtst", {**_PATCHED, "loss": "nll"}),
    "PatchTSTForClassification": ("patchtst", _PATCHED),
    "PatchTSTForRegression": ("patchtst", _PATCHED),
    "PatchTSMixerForPrediction": ("patchtsmixer", {**_PATCHED, "d_model": 8}),
    "PatchTSMixerForTimeSeriesClassification": ("patchtsmixer", {**_PATCHED, "d_model": 8}),
    "PatchTSMixerForRegression": ("patchtsmixer", {**_PATCHED, "d_model": 8}),
    "TimeSeriesTransformerForPrediction": (
        "time_series_transformer", {**_LAGGED, "num_static_categorical_features": 1, "cardinality": [5],
                                    "embedding_dimension": [4], "num_static_real_features": 1}),
    "InformerForPrediction": ("informer", {**_LAGGED, "attention_type": "full", "distil": False}),
    "AutoformerForPrediction": ("autoformer", {**_LAGGED, "label_length": 6, "moving_average": 5}),
}  # fmt: skip
"""Models of time series."""

_HEARS: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 32,
    "conv_dim": [16, 16, 16], "conv_stride": [5, 2, 2], "conv_kernel": [10, 3, 3], "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4, "classifier_proj_size": 16, "tdnn_dim": [16, 16], "tdnn_kernel": [3, 1],
    "tdnn_dilation": [1, 1], "xvector_output_dim": 16, "num_labels": 5,
}  # fmt: skip
_OWL: dict[str, Any] = {
    "projection_dim": 32, "vision_config": IMAGE, "text_config": {**_TEXT, "max_position_embeddings": 12},
}  # fmt: skip
_HEARS_FAST = {**_HEARS, "num_hidden_layers": 1, "conv_dim": [16], "conv_stride": [5], "conv_kernel": [10]}
"""With one convolution, because the export of each further one with an open number of samples takes seconds."""
_HEARD: dict[str, tuple[str, dict[str, Any], str]] = {
    "Data2VecAudio": ("data2vec-audio", {"conv_pos_kernel_size": 3}, "whole frames speakers"),
    "Hubert": ("hubert", {}, "whole"),
    "SEW": ("sew", {"squeeze_factor": 2}, "whole"),
    "SEWD": ("sew-d", {}, "whole"),
    "UniSpeech": ("unispeech", {}, "whole"),
    "UniSpeechSat": ("unispeech-sat", {}, "whole frames speakers"),
    "Wav2Vec2": ("wav2vec2", {}, "whole speakers"),
    "Wav2Vec2Bert": ("wav2vec2-bert", {"feature_projection_input_dim": 20}, "whole frames"),
    "WavLM": ("wavlm", {}, "frames"),
}  # fmt: skip
"""Models of samples, with the heads that are compared."""
_LONG = ("Data2VecAudio", "Wav2Vec2", "WavLM")
"""Those with several convolutions."""
_HEARING_HEADS = {
    "whole": "ForSequenceClassification", "frames": "ForAudioFrameClassification", "speakers": "ForXVector",
}  # fmt: skip
HEADS: dict[str, tuple[str, dict[str, Any]]] = {
    "BertForQuestionAnswering": ("bert", _TEXT),
    "DistilBertForQuestionAnswering": ("distilbert", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48,
                                                      "vocab_size": 96, "max_position_embeddings": 64}),
    "BertForMultipleChoice": ("bert", _TEXT),
    "BertForNextSentencePrediction": ("bert", _TEXT),
    "LayoutLMForTokenClassification": ("layoutlm", _TEXT),
    "LayoutLMForQuestionAnswering": ("layoutlm", _TEXT),
    "LayoutLMv3ForQuestionAnswering": (
        "layoutlmv3", {**_TEXT, "input_size": 32, "image_size": 32, "patch_size": 8, "coordinate_size": 4,
                       "shape_size": 8, "has_relative_attention_bias": False, "has_spatial_attention_bias": False,
                       "max_position_embeddings": 66, "pad_token_id": 1}),
    "ASTForAudioClassification": ("audio-spectrogram-transformer", {**IMAGE, "max_length": 64, "num_mel_bins": 32,
                                                                    "frequency_stride": 8, "time_stride": 8}),
    **{f"{name}{_HEARING_HEADS[head]}": (kind, {**(_HEARS if name in _LONG else _HEARS_FAST), **own})
       for name, (kind, own, heads) in _HEARD.items() for head in heads.split()},
    "WhisperForAudioClassification": ("whisper", {**_SEQUENCES, "classifier_proj_size": 16}),
    "OwlViTForObjectDetection": ("owlvit", _OWL),
    "Owlv2ForObjectDetection": ("owlv2", _OWL),
}  # fmt: skip
"""Models whose inputs are more than a text or an image."""

_T5: dict[str, Any] = {
    "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 96, "pad_token_id": 0,
    "decoder_start_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
_TRANSLATES: dict[str, Any] = {**_SEQUENCES, "max_position_embeddings": 64}
_GEMMA: dict[str, Any] = {
    **_TEXT, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 4, "query_pre_attn_scalar": 8,
    "layer_types": ["sliding_attention", "full_attention"],
}  # fmt: skip
TRANSLATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "T5ForConditionalGeneration": ("t5", _T5),
    "MT5ForConditionalGeneration": ("mt5", {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "UMT5ForConditionalGeneration": ("umt5", _T5),
    "T5GemmaForConditionalGeneration": (
        "t5gemma", {"encoder": _GEMMA, "decoder": {**_GEMMA, "cross_attention_hidden_size": 32}, "vocab_size": 96,
                    "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}),
    "BartForConditionalGeneration": ("bart", _TRANSLATES),
    "MBartForConditionalGeneration": ("mbart", _TRANSLATES),
    "PLBartForConditionalGeneration": ("plbart", _TRANSLATES),
    "MarianMTModel": ("marian", _TRANSLATES),
    "PegasusForConditionalGeneration": ("pegasus", _TRANSLATES),
    "M2M100ForConditionalGeneration": ("m2m_100", _TRANSLATES),
    "BlenderbotForConditionalGeneration": ("blenderbot", _TRANSLATES),
    "BlenderbotSmallForConditionalGeneration": ("blenderbot-small", _TRANSLATES),
    "MvpForConditionalGeneration": ("mvp", _TRANSLATES),
    "EncoderDecoderModel": (
        "encoder-decoder", {"encoder": {"model_type": "bert", **_TEXT}, "decoder_start_token_id": 1, "pad_token_id": 0,
                            "decoder": {"model_type": "bert", **_TEXT, "is_decoder": True,
                                        "add_cross_attention": True}}),
}  # fmt: skip
"""Models that write one text for another."""

_SAPIENS: dict[str, Any] = {
    **IMAGE, "num_key_value_heads_per_layer": [4, 2], "num_first_full_attention_layers": 1,
    "num_last_full_attention_layers": 0,
    "head_config": {"model_type": "sapiens2_head", "upsample_out_channels": [16], "conv_out_channels": [16]},
}  # fmt: skip

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "ViTForImageClassification": ("vit", IMAGE),
    "Sapiens2ForNormalEstimation": ("sapiens2", _SAPIENS),
    "Sapiens2ForPointmapEstimation": ("sapiens2", _SAPIENS),
    "ResNetForImageClassification": ("resnet", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}),
    "Dinov2Model": ("dinov2", {**IMAGE, "patch_size": 8}),
    "SegformerForSemanticSegmentation": (
        "segformer",
        {"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [16, 32],
         "patch_sizes": [7, 3], "strides": [4, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2],
         "decoder_hidden_size": 16, "image_size": 64},
    ),
    "YolosForObjectDetection": ("yolos", {**IMAGE, "image_size": [32, 48], "num_detection_tokens": 10}),
    "DetrForObjectDetection": ("detr", _DETR),
    "ConditionalDetrForObjectDetection": ("conditional_detr", _DETR),
    "DeformableDetrForObjectDetection": (
        "deformable_detr", {**_DETR, "decoder_layers": 2, "image_size": [64, 96], "backbone_config": _SEVERAL}),
    "TableTransformerForObjectDetection": ("table-transformer", _DETR),
    "RTDetrForObjectDetection": (
        "rt_detr", {**_RT_DETR, "backbone_config": {**_SEVERAL, "model_type": "rt_detr_resnet"}}),
    "RTDetrV2ForObjectDetection": (
        "rt_detr_v2", {**_RT_DETR, "backbone_config": {**_SEVERAL, "model_type": "rt_detr_resnet"}}),
    "DFineForObjectDetection": ("d_fine", {**_RT_DETR, "backbone_config": HGNET}),
    "DetrForSegmentation": (
        "detr", {**_DETR, "d_model": 64, "encoder_attention_heads": 8, "decoder_attention_heads": 8,
                 "backbone_config": {**_RESNET, "out_features": ["stage1", "stage2", "stage3", "stage4"]}}),
    "DepthAnythingForDepthEstimation": (
        "depth_anything", {"backbone_config": _DINO, "reassemble_hidden_size": 32, "patch_size": 8,
                           "neck_hidden_sizes": [8, 16, 16, 16], "fusion_hidden_size": 16, "head_hidden_size": 8}),
    "VitPoseForPoseEstimation": (
        "vitpose", {"backbone_config": {**IMAGE, "model_type": "vitpose_backbone", "image_size": [32, 24],
                                        "patch_size": [8, 8], "out_indices": [2]}}),
    "SuperPointForKeypointDetection": (
        "superpoint", {"encoder_hidden_sizes": [8, 8, 16, 16], "decoder_hidden_size": 16,
                       "descriptor_decoder_dim": 16, "image_size": 64}),
    "VitMatteForImageMatting": (
        "vitmatte", {"backbone_config": {**IMAGE, "model_type": "vitdet", "image_size": 64, "patch_size": 16,
                                         "num_channels": 4, "out_features": ["stage2"]},
                     "hidden_size": 32, "fusion_hidden_sizes": [16, 16, 8, 8]}),
    "Swin2SRForImageSuperResolution": (
        "swin2sr", {"image_size": 32, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4,
                    "upscale": 2}),
    "VideoMAEForVideoClassification": ("videomae", {**IMAGE, "num_frames": 4}),
    "VJEPA2ForVideoClassification": (
        "vjepa2", {"patch_size": 8, "crop_size": 32, "frames_per_clip": 4, "hidden_size": 48, "num_attention_heads": 4,
                   "num_hidden_layers": 2, "pred_hidden_size": 48, "pred_num_attention_heads": 4,
                   "pred_num_hidden_layers": 1}),
    "DINOv3ViTModel": ("dinov3_vit", {**IMAGE, "num_register_tokens": 2}),
    "SiglipModel": (
        "siglip",
        {"vision_config": IMAGE, "text_config": {**_TEXT, "max_position_embeddings": 20, "projection_size": 32}},
    ),
    "ClapModel": (
        "clap",
        {"projection_dim": 24, "text_config": {**_TEXT, "pad_token_id": 1, "max_position_embeddings": 22},
         "audio_config": {"spec_size": 128, "hidden_size": 128, "num_mel_bins": 32, "patch_size": 4,
                          "patch_stride": [4, 4], "patch_embeds_hidden_size": 16, "depths": [1, 1, 1, 1],
                          "num_attention_heads": [2, 2, 2, 2], "window_size": 4}},
    ),
    "BertModel": ("bert", _TEXT),
    "BertForSequenceClassification": ("bert", _TEXT),
    "BertForTokenClassification": ("bert", _TEXT),
    "BertForMaskedLM": ("bert", _TEXT),
    "CLIPModel": (
        "clip",
        {"projection_dim": 24, "vision_config": IMAGE,
         "text_config": {**_TEXT, "max_position_embeddings": 20, "eos_token_id": 2}},
    ),
    "WhisperForConditionalGeneration": ("whisper", _SEQUENCES),
    "MarkupLMForTokenClassification": ("markuplm", {**_TEXT, "xpath_unit_hidden_size": 8, "max_depth": 4}),
    **HEADS,
    **TRANSLATORS,
    **SERIES,
}  # fmt: skip


def folder(path: Path, name: str) -> Any:
    """A model of a class, which is saved in a folder too."""
    import transformers

    kind, settings = MODELS[name]
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **settings)
    model = draw(getattr(transformers, name)(config).eval())
    model.save_pretrained(path)
    return model


def draw(model: Any) -> Any:
    """A model whose outputs vary."""
    for name, buffer in model.named_buffers():
        if name == "final_logits_bias":  # of BART, which is zero at first
            buffer.normal_()
    for parameter in model.parameters():
        if parameter.ndim > 1 and parameter.requires_grad:  # otherwise it is a table of positions, and not saved
            summed = parameter[0].numel() if parameter.ndim == 4 else parameter.shape[-1]
            torch.nn.init.normal_(parameter, 0, max(summed, 8) ** -0.5)
    return model
