"""Unmodified architectures of torchvision, timm and transformers that no test converts.

    python -m benchmarks.architectures [--markdown] [--only NAME ...] [--source LIBRARY] [--jobs 1]

Each has random weights and a small configuration or a small image; `benchmarks/further.py` measures it. With
`--markdown`, the table is written to `docs/generated/further-architectures.md`. Needs `pip install 'patcomp[test]'
timm`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from benchmarks.further import Build, Table, main

if TYPE_CHECKING:
    from tests.networks.zoo import Example

# ---- how to build them -----------------------------------------------------------------------------


def _selecting(model: Any, select: Callable[[Any], Any], *args: Any) -> Example:
    """A model of which one tensor is looked at."""
    from torch import nn

    from tests.networks.architectures import randomized
    from tests.networks.zoo import Example

    class Selecting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: Any) -> Any:
            return select(self.model(*tensors))

    return Example(randomized(Selecting()), args)


def _vision(name: str, *shape: int, select: Callable[[Any], Any] = lambda result: result, **settings: Any) -> Build:
    """A model of torchvision; the shape is that of its image or video."""

    def build() -> Example:
        import torch
        from torchvision.models import get_model

        model = get_model(name, weights=None, **settings)
        return _selecting(model, select, torch.randn(1, 3, *shape))

    return build


def _raft() -> Example:
    import torch
    from torchvision.models.optical_flow import raft_small

    class Flow(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = raft_small(weights=None)

        def forward(self, first: torch.Tensor, second: torch.Tensor) -> Any:
            return self.model(first, second, num_flow_updates=2)

    return _selecting(Flow(), lambda flows: flows[-1], torch.randn(1, 3, 128, 128), torch.randn(1, 3, 128, 128))


def _pyramid() -> Example:
    import torch
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

    backbone = resnet_fpn_backbone(backbone_name="resnet18", weights=None)
    return _selecting(backbone, lambda levels: levels["1"], torch.randn(1, 3, 64, 64))


def _timm(name: str, size: int) -> Build:
    """A model of timm for images of a size."""

    def build() -> Example:
        import timm
        import torch

        model = timm.create_model(name, pretrained=False, num_classes=10)
        return _selecting(model, lambda result: result, torch.randn(1, 3, size, size))

    return build


def _hugging(
    name: str,
    inputs: dict[str, tuple[int, ...]],
    output: str = "last_hidden_state",
    *,
    config: str = "",
    **settings: Any,
) -> Build:
    """A model of transformers by the name of its class.

    Args:
        inputs: the shape of each input; those called `..._ids` are tokens, those called `..._mask` are 1.
        config: the name of its configuration, if it is not that of the model.
    """

    def build() -> Example:
        import torch
        import transformers

        from tests.networks.architectures import Model, randomized
        from tests.networks.zoo import Example

        known = config or next(
            name.removesuffix(ending) + "Config"
            for ending in ("ForConditionalGeneration", "ForCausalLM", "ForPreTraining", "Model")
            if name.endswith(ending)
        )
        made = {key: value() if callable(value) else value for key, value in settings.items()}
        model = randomized(getattr(transformers, name)(getattr(transformers, known)(**made)))

        def tensor(key: str, shape: tuple[int, ...]) -> torch.Tensor:
            if key.endswith(("_ids", "timesteps")):
                return torch.randint(3, 30, shape)
            return torch.ones(shape, dtype=torch.int64) if key.endswith("_mask") else torch.randn(shape)

        return Example(Model(model, tuple(inputs), output), tuple(tensor(*item) for item in inputs.items()))

    return build


def _config(name: str, **settings: Any) -> Callable[[], Any]:
    """A nested configuration of transformers, made when it is needed."""

    def build() -> Any:
        import transformers

        return getattr(transformers, name)(**settings)

    return build


# ---- the list --------------------------------------------------------------------------------------

_TEXT: dict[str, Any] = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "max_position_embeddings": 64,
}  # fmt: skip
_DECODER = {**_TEXT, "num_key_value_heads": 2, "use_cache": False, "pad_token_id": 0}
_TOKENS = {"input_ids": (1, 12)}
_LONG = {"input_ids": (1, 32)}
_PAIR = {"input_ids": (1, 12), "decoder_input_ids": (1, 7)}
_SEQ2SEQ: dict[str, Any] = {
    "vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64,
    "use_cache": False,
}  # fmt: skip
_SPEECH: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "conv_dim": (16, 16), "conv_kernel": (10, 3), "conv_stride": (5, 2), "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
}  # fmt: skip
_WAVE = {"input_values": (1, 400)}
_IMAGE = {"pixel_values": (1, 3, 32, 32)}
_TOWER: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip

ARCHITECTURES: dict[str, dict[str, Build]] = {
    "transformers": {
        "mamba": _hugging("MambaModel", _TOKENS, vocab_size=99, hidden_size=32, num_hidden_layers=2, state_size=8,
                          use_cache=False),
        "mamba2": _hugging("Mamba2Model", _TOKENS, vocab_size=99, hidden_size=32, num_hidden_layers=2, state_size=8,
                           num_heads=8, head_dim=8, n_groups=2, chunk_size=8, use_cache=False),
        "rwkv": _hugging("RwkvModel", _TOKENS, vocab_size=99, hidden_size=32, num_hidden_layers=2, use_cache=False,
                         context_length=32, attention_hidden_size=32),
        "recurrent_gemma": _hugging("RecurrentGemmaModel", _TOKENS, vocab_size=99, hidden_size=32, num_hidden_layers=3,
                                    num_attention_heads=4, intermediate_size=64, use_cache=False, pad_token_id=0,
                                    attention_window_size=8),
        "jamba": _hugging("JambaModel", _TOKENS, **_DECODER | {"num_experts": 2, "attn_layer_offset": 1,
                          "attn_layer_period": 2, "expert_layer_offset": 1, "expert_layer_period": 2,
                          "use_mamba_kernels": False, "mamba_d_state": 8, "mamba_dt_rank": 4}),
        "fnet": _hugging("FNetModel", _TOKENS, **{k: v for k, v in _TEXT.items() if k != "num_attention_heads"}),
        "nystromformer": _hugging("NystromformerModel", _LONG, **_TEXT, num_landmarks=8, segment_means_seq_len=32),
        "funnel": _hugging("FunnelModel", _TOKENS, vocab_size=99, d_model=32, n_head=4, d_head=8, d_inner=64,
                           block_sizes=[1, 1], num_decoder_layers=1),
        "big_bird": _hugging("BigBirdModel", {"input_ids": (1, 64)}, **_TEXT | {"max_position_embeddings": 128},
                             block_size=8, num_random_blocks=1),
        "longformer": _hugging("LongformerModel", _LONG, **_TEXT, attention_window=8, pad_token_id=1),
        "reformer": _hugging("ReformerModel", {"input_ids": (1, 64)}, vocab_size=99, hidden_size=32,
                             num_attention_heads=2, attention_head_size=16, attn_layers=["local", "local"],
                             axial_pos_shape=(8, 8), axial_pos_embds_dim=(16, 16), feed_forward_size=64,
                             local_attn_chunk_length=16, is_decoder=True, use_cache=False,
                             max_position_embeddings=64),
        "perceiver": _hugging("PerceiverModel", {"inputs": (1, 20, 24)}, d_model=24, d_latents=32, num_latents=6,
                              num_blocks=1, num_self_attends_per_block=2, num_self_attention_heads=4,
                              num_cross_attention_heads=4),
        "xlnet": _hugging("XLNetModel", _TOKENS, vocab_size=99, d_model=32, n_layer=2, n_head=4, d_inner=64,
                          use_mems_eval=False),
        "mpnet": _hugging("MPNetModel", _TOKENS, **_TEXT),
        "convbert": _hugging("ConvBertModel", _TOKENS, **_TEXT, embedding_size=32),
        "mobilebert": _hugging("MobileBertModel", _TOKENS, **_TEXT, embedding_size=16, intra_bottleneck_size=16),
        "esm": _hugging("EsmModel", _TOKENS, **_TEXT, position_embedding_type="rotary", pad_token_id=1,
                        mask_token_id=32),
        "modernbert": _hugging("ModernBertModel", _TOKENS, **_TEXT, pad_token_id=0),
        "roformer": _hugging("RoFormerModel", _TOKENS, **_TEXT, embedding_size=32),
        "gpt_neo": _hugging("GPTNeoModel", _TOKENS, vocab_size=99, hidden_size=32, num_layers=2, num_heads=4,
                            attention_types=[[["global", "local"], 1]], max_position_embeddings=64, window_size=4,
                            use_cache=False),
        "gptj": _hugging("GPTJModel", _TOKENS, vocab_size=99, n_embd=32, n_layer=2, n_head=4, rotary_dim=4,
                         n_positions=64, use_cache=False),
        "codegen": _hugging("CodeGenModel", _TOKENS, vocab_size=99, n_embd=32, n_layer=2, n_head=4, rotary_dim=4,
                            n_positions=64, n_ctx=64, use_cache=False),
        "mpt": _hugging("MptModel", _TOKENS, vocab_size=99, d_model=32, n_layers=2, n_heads=4, max_seq_len=64,
                        use_cache=False),
        "falcon": _hugging("FalconModel", _TOKENS, vocab_size=99, hidden_size=32, num_hidden_layers=2,
                           num_attention_heads=4, use_cache=False),
        "cohere": _hugging("CohereModel", _TOKENS, **_DECODER),
        "deepseek_v3": _hugging("DeepseekV3Model", _TOKENS, **_DECODER | {"num_key_value_heads": 4}, q_lora_rank=16,
                                kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8,
                                n_routed_experts=4, num_experts_per_tok=2, n_group=2, topk_group=1,
                                moe_intermediate_size=16, first_k_dense_replace=1),
        "diffllama": _hugging("DiffLlamaModel", _TOKENS, **_DECODER),
        "pegasus": _hugging("PegasusModel", _PAIR, **_SEQ2SEQ),
        "prophetnet": _hugging("ProphetNetModel", _PAIR, vocab_size=99, hidden_size=32, encoder_ffn_dim=64,
                               num_encoder_layers=2, num_encoder_attention_heads=4, decoder_ffn_dim=64,
                               num_decoder_layers=2, num_decoder_attention_heads=4, max_position_embeddings=64,
                               use_cache=False),
        "switch_transformers": _hugging("SwitchTransformersModel", _PAIR, vocab_size=99, d_model=32, d_kv=8, d_ff=64,
                                        num_layers=2, num_decoder_layers=2, num_heads=4, num_experts=2,
                                        num_sparse_encoder_layers=1, num_sparse_decoder_layers=1, use_cache=False),
        "led": _hugging("LEDModel", {"input_ids": (1, 16), "decoder_input_ids": (1, 7)}, vocab_size=99, d_model=32,
                        encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
                        encoder_ffn_dim=64, decoder_ffn_dim=64, attention_window=8, max_encoder_position_embeddings=64,
                        max_decoder_position_embeddings=64, use_cache=False),
        "hubert": _hugging("HubertModel", _WAVE, **_SPEECH),
        "wavlm": _hugging("WavLMModel", _WAVE, **_SPEECH),
        "wav2vec2_conformer": _hugging("Wav2Vec2ConformerModel", _WAVE, **_SPEECH),
        "audio_spectrogram": _hugging("ASTModel", {"input_values": (1, 48, 16)}, hidden_size=32, num_hidden_layers=2,
                                      num_attention_heads=4, intermediate_size=64, patch_size=8, frequency_stride=4,
                                      time_stride=4, max_length=48, num_mel_bins=16),
        "encodec": _hugging("EncodecModel", {"input_values": (1, 1, 640)}, "audio_values", hidden_size=32,
                            num_filters=4, upsampling_ratios=[4, 2], codebook_size=16,
                            codebook_dim=32, num_lstm_layers=1),
        "dac": _hugging("DacModel", {"input_values": (1, 1, 640)}, "audio_values", encoder_hidden_size=8,
                        downsampling_ratios=[2, 4], decoder_hidden_size=32, upsampling_ratios=[4, 2], n_codebooks=2,
                        codebook_size=16, codebook_dim=4),
        "mimi": _hugging("MimiModel", {"input_values": (1, 1, 1920)}, "audio_values", hidden_size=32, num_filters=4,
                         num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, head_dim=8,
                         intermediate_size=64, codebook_size=16, codebook_dim=16,
                         vector_quantization_hidden_dimension=16,
                         num_quantizers=4, num_semantic_quantizers=1, upsampling_ratios=[4, 2], use_cache=False,
                         upsample_groups=32),
        "univnet": _hugging("UnivNetModel", {"input_features": (1, 8, 16), "noise_sequence": (1, 8, 8)}, "waveforms",
                            model_in_channels=8, model_hidden_channels=8, num_mel_bins=16,
                            resblock_kernel_sizes=[3, 3], resblock_stride_sizes=[2, 2],
                            resblock_dilation_sizes=[[1, 3], [1, 3]], kernel_predictor_hidden_channels=8),
        "dpt": _hugging("DPTForDepthEstimation", _IMAGE, "predicted_depth", config="DPTConfig", **_TOWER
                        | {"num_hidden_layers": 4}, backbone_out_indices=[0, 1, 2, 3],
                        neck_hidden_sizes=[8, 8, 16, 16], fusion_hidden_size=16),
        "swinv2": _hugging("Swinv2Model", _IMAGE, image_size=32, patch_size=2, embed_dim=16, depths=[2, 2],
                           num_heads=[2, 4], window_size=4),
        "swin2sr": _hugging("Swin2SRForImageSuperResolution", {"pixel_values": (1, 3, 16, 16)}, "reconstruction",
                            config="Swin2SRConfig", image_size=16, embed_dim=16, depths=[2, 2], num_heads=[2, 2],
                            window_size=4, upscale=2),
        "cvt": _hugging("CvtModel", _IMAGE, embed_dim=[8, 16, 32], num_heads=[1, 2, 4], depth=[1, 2, 3]),
        "pvt_v2": _hugging("PvtV2Model", _IMAGE, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1],
                           num_attention_heads=[1, 2, 3, 4]),
        "glpn": _hugging("GLPNForDepthEstimation", _IMAGE, "predicted_depth", config="GLPNConfig",
                         hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 3, 4],
                         decoder_hidden_size=8),
        "detr": _hugging("DetrForObjectDetection", {"pixel_values": (1, 3, 64, 64)}, "pred_boxes", config="DetrConfig",
                         d_model=32, encoder_layers=1, decoder_layers=2, encoder_attention_heads=4,
                         decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, num_queries=6,
                         use_timm_backbone=False, use_pretrained_backbone=False,
                         backbone_config=_config("ResNetConfig", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1],
                                                 embedding_size=8, out_features=["stage4"], layer_type="basic")),
        "upernet": _hugging("UperNetForSemanticSegmentation", {"pixel_values": (1, 3, 64, 64)}, "logits",
                            config="UperNetConfig", hidden_size=16, pool_scales=[1, 2], use_auxiliary_head=False,
                            num_labels=5, backbone_config=_config(
                                "ConvNextConfig", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1],
                                out_features=["stage1", "stage2", "stage3", "stage4"])),
        "sam": _hugging("SamVisionModel", {"pixel_values": (1, 3, 32, 32)}, config="SamVisionConfig", hidden_size=32,
                        num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8, window_size=2,
                        global_attn_indexes=[1], output_channels=16, mlp_dim=64),
        "videomae": _hugging("VideoMAEModel", {"pixel_values": (1, 4, 3, 32, 32)}, **_TOWER, num_frames=4),
        "timesformer": _hugging("TimesformerModel", {"pixel_values": (1, 4, 3, 32, 32)}, **_TOWER, num_frames=4),
        "vilt": _hugging("ViltModel", {"input_ids": (1, 12), "pixel_values": (1, 3, 32, 32)}, **_TOWER, vocab_size=99,
                         max_position_embeddings=64),
        "blip": _hugging("BlipModel", {"input_ids": (1, 12), "pixel_values": (1, 3, 32, 32)}, "logits_per_image",
                         text_config={**_TEXT, "projection_dim": 32}, vision_config=_TOWER, projection_dim=32),
        "patchtst": _hugging("PatchTSTModel", {"past_values": (1, 32, 3)}, num_input_channels=3, context_length=32,
                             patch_length=8, patch_stride=8, d_model=32, num_attention_heads=4, num_hidden_layers=2,
                             ffn_dim=64),
        "decision_transformer": _hugging("DecisionTransformerModel", {
            "states": (1, 5, 6), "actions": (1, 5, 3), "rewards": (1, 5, 1), "returns_to_go": (1, 5, 1),
            "timesteps": (1, 5)},
            "action_preds", state_dim=6, act_dim=3, hidden_size=32, n_layer=2, n_head=4, max_ep_len=32),
        "superpoint": _hugging("SuperPointForKeypointDetection", {"pixel_values": (1, 3, 32, 32)}, "scores",
                               config="SuperPointConfig", encoder_hidden_sizes=[8, 8, 16, 16],
                               decoder_hidden_size=16, descriptor_decoder_dim=16),
    },
    "torchvision": {
        **{name: _vision(name, 64, 64, num_classes=10) for name in (
            "squeezenet1_1", "densenet121", "shufflenet_v2_x0_5", "mnasnet0_5", "regnet_y_400mf")},
        **{name: _vision(name, 64, 64, select=lambda result: result["out"], weights_backbone=None) for name in (
            "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large")},
        "googlenet": _vision("googlenet", 64, 64, num_classes=10, aux_logits=False, init_weights=False),
        "inception_v3": _vision("inception_v3", 96, 96, num_classes=10, aux_logits=False, init_weights=False),
        "maxvit_t": _vision("maxvit_t", 224, 224, num_classes=10),
        "mvit_v2_s": _vision("mvit_v2_s", 16, 224, 224, num_classes=10),
        "r3d_18": _vision("r3d_18", 8, 32, 32, num_classes=10),
        "raft_small": _raft,
        "resnet18 with a feature pyramid": _pyramid,
        "s3d": _vision("s3d", 14, 224, 224, num_classes=10),
        "swin3d_t": _vision("swin3d_t", 4, 32, 32, num_classes=10),
        "vgg11_bn": _vision("vgg11_bn", 32, 32, num_classes=10),
    },
    "timm": {
        **{name: _timm(name, 64) for name in (
            "edgenext_xx_small", "eca_nfnet_l0", "efficientvit_b0", "fastvit_t8", "ghostnet_100", "mambaout_femto",
            "mobilenetv4_conv_small", "mobilevit_xxs", "poolformer_s12", "starnet_s1")},
        **{name: _timm(name, 224) for name in (
            "coatnet_nano_rw_224", "efficientformer_l1", "gmlp_ti16_224", "hiera_tiny_224", "levit_128s",
            "mixer_s32_224", "xcit_nano_12_p16_224")},
    },
}  # fmt: skip

TABLE = Table(
    document="further-architectures.md",
    heading="""# Further architectures

`python -m benchmarks.architectures --markdown` writes this page; it needs timm beside the extras of the tests. The
table has unmodified models of torchvision, timm and transformers that no test converts, with random weights and small
configurations. Each model is exported with `patcomp.export`, converted, and compared with eager PyTorch on the
evaluator and on the Core AI runtime. An error is the largest difference, relative to eager's largest value. If a plain
`torch.export.export` fails, the column `export` says which step exported the model ([Exporting a
model](../export.md)). Models of other packages are on [a page of their own](further-packages.md).
""",
    models=ARCHITECTURES,
    remarks={
        "nystromformer": "In a trace, transformers makes a mask of ones that does not fit this model's shapes",
        "switch_transformers": "In a trace, transformers makes no mask, and the model reads one",
        "vilt": "The model draws at random which patches of the image it takes; embed the image outside of the program",
    },
)

if __name__ == "__main__":
    main("benchmarks.architectures")
