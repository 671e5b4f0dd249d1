"""Unmodified models of packages that no test uses.

    python -m benchmarks.packages [--markdown] [--only NAME ...] [--source PACKAGE] [--jobs 1]

Each has a small configuration, image or length, and random weights, except those of `benchmarks/packages_trained.py`;
`benchmarks/further.py` measures it. With `--markdown`, the table is written to `docs/generated/further-packages.md`.
benchmarks/README.md says how to install the packages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from textwrap import fill
from typing import Any

from benchmarks.further import Build, Table, main
from benchmarks.package_models import BATCH, Input, Open, fractions, made, nested, noise, ones, package, steps, tokens
from benchmarks.package_models import torch_module as _torch
from benchmarks.packages_others import OTHERS
from benchmarks.packages_speechbrain import SPEECHBRAIN
from benchmarks.packages_trained import TRAINED


def _first(results: Any) -> Any:
    """The predictions of a detector without its raw ones, or the first of several results."""
    return results[0] if isinstance(results, tuple | list) else results


def _yolo(name: str, task: str = "Detection") -> Build:
    """A model of ultralytics by the name of its configuration, with the head as ultralytics' own exporter sets it."""

    def build() -> Any:
        model = made(f"ultralytics.nn.tasks.{task}Model", cfg=f"{name}.yaml", verbose=False)
        model.model[-1].dynamic = True
        return model

    return package(build, noise(BATCH, 3, 96, 96), select=_first)


def _diffusers(
    name: str, select: Callable[[Any], Any] = _first, /, *, fixed: Mapping[str, Any] | None = None, **arguments: Any
) -> Build:
    """A model of diffusers: inputs are those arguments that are `Input`, the others are settings."""
    named = {key: value for key, value in arguments.items() if isinstance(value, Input)}
    settings = {key: value for key, value in arguments.items() if not isinstance(value, Input)}
    fixed = {"return_dict": False, **(fixed or {})}
    return package(f"diffusers.{name}", named=named, fixed=fixed, select=select, **settings)


_SHORT = {"num_layers": 2, "attention_head_dim": 16, "num_attention_heads": 2}
_TEXT = noise(BATCH, 7, 16)
_LATENT = noise(BATCH, 4, 8, 8)
_VIDEO = noise(BATCH, 4, 2, 8, 8)
_BLOCKS = {"block_out_channels": (8, 16), "norm_num_groups": 4, "layers_per_block": 1}


_LUMINA: dict[str, Any] = {
    "sample_size": 8, "in_channels": 4, "hidden_size": 32, "num_layers": 2, "num_refiner_layers": 1,
    "num_attention_heads": 2, "num_kv_heads": 1, "multiple_of": 16, "axes_dim_rope": (4, 4, 8),
    "axes_lens": (16, 16, 16), "cap_feat_dim": 16,
}  # fmt: skip


def _with_a_mask_of_ones() -> Any:
    """Lumina 2 for captions without padding: the mask, of which it reads the lengths, is a constant."""

    class Unpadded(_torch().nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = made("diffusers.Lumina2Transformer2DModel", **_LUMINA)

        def forward(self, image: Any, timestep: Any, caption: Any) -> Any:
            mask = _torch().ones(caption.shape[:2], dtype=_torch().int64)
            return self.model(image, timestep, caption, mask, return_dict=False)

    return Unpadded()


def _vocos() -> Any:
    """The vocoder of spectrograms: its backbone and its head."""
    return _torch().nn.Sequential(
        made("vocos.models.VocosBackbone", input_channels=16, dim=32, intermediate_dim=64, num_layers=2),
        made("vocos.heads.ISTFTHead", dim=32, n_fft=64, hop_length=16),
    )


def _bigvgan() -> Any:
    settings = {
        "num_mels": 16, "upsample_rates": [4, 2], "upsample_kernel_sizes": [8, 4], "upsample_initial_channel": 16,
        "resblock": "1", "resblock_kernel_sizes": [3], "resblock_dilation_sizes": [[1, 3, 5]],
        "activation": "snakebeta", "snake_logscale": True,
    }  # fmt: skip
    return made("bigvgan.bigvgan.BigVGAN", made("bigvgan.env.AttrDict", settings))


def _seanet() -> Any:
    """The encoder and the decoder of EnCodec, in its original package."""
    settings = {"dimension": 16, "n_filters": 4, "ratios": [4, 2], "lstm": 1}
    return _torch().nn.Sequential(
        made("encodec.modules.seanet.SEANetEncoder", **settings),
        made("encodec.modules.seanet.SEANetDecoder", **settings),
    )


_IMAGE = noise(BATCH, 3, 64, 64)
_GREY = noise(BATCH, 1, 32, 32)
_VOLUME = noise(1, 1, 32, 32, 32)
_OPEN_IMAGE = noise(1, 3, Open("height", 2, 3, multiple=32), 64)

PACKAGES: dict[str, dict[str, Build]] = {
    "ultralytics": {
        **{name: _yolo(name) for name in (
            "yolov3-tiny", "yolov5n", "yolov8n", "yolov9t", "yolov10n", "yolo11n", "yolo12n", "yolo26n")},
        "yolo11n-seg": _yolo("yolo11n-seg", "Segmentation"),
        "yolo11n-pose": _yolo("yolo11n-pose", "Pose"),
        "yolo11n-obb": _yolo("yolo11n-obb", "OBB"),
        "rtdetr-resnet50": package("ultralytics.nn.tasks.RTDETRDetectionModel", noise(1, 3, 96, 96), select=_first,
                                   cfg="rtdetr-resnet50.yaml", verbose=False),
    },
    "libreyolo": {
        "yolox-nano": package("libreyolo.models.yolox.nn.LibreYOLOXModel", noise(BATCH, 3, 64, 64), config="n",
                              nb_classes=5),
    },
    "diffusers": {
        "UNet2DConditionModel": _diffusers(
            "UNet2DConditionModel", sample=_LATENT, timestep=steps(1), encoder_hidden_states=_TEXT, **_BLOCKS,
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D",
            "CrossAttnUpBlock2D"), cross_attention_dim=16, attention_head_dim=4),
        "UNet1DModel": _diffusers(
            "UNet1DModel", sample=noise(BATCH, 2, 64), timestep=steps(1), extra_in_channels=64, sample_size=64),
        "UNetMotionModel": _diffusers(
            "UNetMotionModel", sample=noise(1, 4, 2, 8, 8), timestep=steps(1), encoder_hidden_states=noise(2, 7, 16),
            **_BLOCKS, down_block_types=("CrossAttnDownBlockMotion", "DownBlockMotion"),
            up_block_types=("UpBlockMotion", "CrossAttnUpBlockMotion"), cross_attention_dim=16, num_attention_heads=2,
            motion_num_attention_heads=2),
        "ControlNetModel": _diffusers(
            "ControlNetModel", lambda results: results[1], sample=_LATENT, timestep=steps(1),
            encoder_hidden_states=_TEXT, controlnet_cond=noise(BATCH, 3, 64, 64), **_BLOCKS,
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), cross_attention_dim=16, attention_head_dim=4,
            conditioning_embedding_out_channels=(8, 16, 16, 16)),
        "SD3Transformer2DModel": _diffusers(
            "SD3Transformer2DModel", hidden_states=_LATENT, encoder_hidden_states=_TEXT,
            pooled_projections=noise(BATCH, 16), timestep=steps(BATCH), sample_size=8, in_channels=4, out_channels=4,
            joint_attention_dim=16, caption_projection_dim=32, pooled_projection_dim=16, pos_embed_max_size=8,
            **_SHORT),
        "FluxTransformer2DModel": _diffusers(
            "FluxTransformer2DModel", hidden_states=noise(BATCH, 16, 8), encoder_hidden_states=_TEXT,
            pooled_projections=noise(BATCH, 16), timestep=fractions(BATCH), img_ids=noise(16, 3), txt_ids=noise(7, 3),
            in_channels=8, num_single_layers=1, joint_attention_dim=16, pooled_projection_dim=16,
            axes_dims_rope=(4, 4, 8), **_SHORT),
        "WanTransformer3DModel": _diffusers(
            "WanTransformer3DModel", hidden_states=_VIDEO, timestep=steps(BATCH), encoder_hidden_states=_TEXT,
            in_channels=4, out_channels=4, text_dim=16, freq_dim=16, ffn_dim=32, rope_max_seq_len=32, **_SHORT),
        "LTXVideoTransformer3DModel": _diffusers(
            "LTXVideoTransformer3DModel", hidden_states=noise(BATCH, 8, 8), encoder_hidden_states=_TEXT,
            timestep=steps(BATCH), encoder_attention_mask=ones(BATCH, 7), in_channels=8, out_channels=8,
            cross_attention_dim=32, caption_channels=16, fixed={"num_frames": 2, "height": 2, "width": 2}, **_SHORT),
        "CogVideoXTransformer3DModel": _diffusers(
            "CogVideoXTransformer3DModel", hidden_states=noise(BATCH, 1, 4, 8, 8), encoder_hidden_states=_TEXT,
            timestep=steps(BATCH), in_channels=4, out_channels=4, text_embed_dim=16, time_embed_dim=8,
            max_text_seq_length=7, sample_width=8, sample_height=8, sample_frames=1, **_SHORT),
        "Lumina2Transformer2DModel": _diffusers(
            "Lumina2Transformer2DModel", hidden_states=noise(2, 4, 8, 8), timestep=steps(2),
            encoder_hidden_states=noise(2, 7, 16), encoder_attention_mask=ones(2, 7), **_LUMINA),
        "Lumina2Transformer2DModel, all tokens": package(
            _with_a_mask_of_ones, noise(BATCH, 4, 8, 8), steps(BATCH), noise(BATCH, 7, 16), select=_first),
        "SanaTransformer2DModel": _diffusers(
            "SanaTransformer2DModel", hidden_states=_LATENT, encoder_hidden_states=_TEXT, timestep=steps(BATCH),
            in_channels=4, out_channels=4, num_cross_attention_heads=2, cross_attention_head_dim=16,
            cross_attention_dim=32, caption_channels=16, sample_size=8, **_SHORT),
        "PixArtTransformer2DModel": _diffusers(
            "PixArtTransformer2DModel", hidden_states=_LATENT, encoder_hidden_states=_TEXT, timestep=steps(BATCH),
            cross_attention_dim=32, caption_channels=16, sample_size=8, out_channels=8,
            use_additional_conditions=False, **_SHORT),
        "AuraFlowTransformer2DModel": _diffusers(
            "AuraFlowTransformer2DModel", hidden_states=_LATENT, encoder_hidden_states=_TEXT, timestep=fractions(BATCH),
            sample_size=8, num_mmdit_layers=1, num_single_dit_layers=1, attention_head_dim=16, num_attention_heads=2,
            joint_attention_dim=16, caption_projection_dim=32, pos_embed_max_size=16),
        "HunyuanVideoTransformer3DModel": _diffusers(
            "HunyuanVideoTransformer3DModel", hidden_states=noise(1, 4, 2, 8, 8), timestep=steps(1),
            encoder_hidden_states=noise(1, 7, 16), encoder_attention_mask=ones(1, 7),
            pooled_projections=noise(1, 8), guidance=steps(1), in_channels=4, out_channels=4, num_single_layers=1,
            num_refiner_layers=1, text_embed_dim=16, pooled_projection_dim=8, rope_axes_dim=(4, 4, 8), **_SHORT),
        "ChromaTransformer2DModel": _diffusers(
            "ChromaTransformer2DModel", hidden_states=noise(BATCH, 16, 8), encoder_hidden_states=_TEXT,
            timestep=fractions(BATCH), img_ids=noise(16, 3), txt_ids=noise(7, 3), in_channels=8, num_single_layers=1,
            joint_attention_dim=16, axes_dims_rope=(4, 4, 8), approximator_num_channels=8,
            approximator_hidden_dim=16, approximator_layers=1, **_SHORT),
        "QwenImageTransformer2DModel": _diffusers(
            "QwenImageTransformer2DModel", hidden_states=noise(1, 16, 16), encoder_hidden_states=noise(1, 7, 16),
            encoder_hidden_states_mask=ones(1, 7), timestep=fractions(1), fixed={"img_shapes": [(1, 4, 4)]},
            in_channels=16, out_channels=4, joint_attention_dim=16, axes_dims_rope=(4, 4, 8), **_SHORT),
        "AutoencoderKL": _diffusers("AutoencoderKL", sample=_OPEN_IMAGE, **_BLOCKS,
                                    down_block_types=("DownEncoderBlock2D",) * 2,
                                    up_block_types=("UpDecoderBlock2D",) * 2),
        "AutoencoderDC": _diffusers(
            "AutoencoderDC", sample=_IMAGE, latent_channels=4, attention_head_dim=4,
            encoder_block_types=("ResBlock", "EfficientViTBlock"),
            decoder_block_types=("ResBlock", "EfficientViTBlock"), encoder_block_out_channels=(8, 8),
            decoder_block_out_channels=(8, 8), encoder_layers_per_block=(1, 1), decoder_layers_per_block=(1, 1),
            encoder_qkv_multiscales=((), (5,)), decoder_qkv_multiscales=((), (5,))),
        "AutoencoderKLWan": _diffusers("AutoencoderKLWan", sample=noise(1, 3, 5, 16, 16), base_dim=4, z_dim=16,
                                       dim_mult=[1, 1, 1, 1], num_res_blocks=1),
        "AutoencoderOobleck": _diffusers("AutoencoderOobleck", sample=noise(BATCH, 2, 256), encoder_hidden_size=8,
                                         downsampling_ratios=[2, 4], channel_multiples=[1, 2], decoder_channels=4,
                                         decoder_input_channels=4),
        "VQModel": _diffusers("VQModel", sample=_IMAGE, **_BLOCKS, down_block_types=("DownEncoderBlock2D",) * 2,
                              up_block_types=("UpDecoderBlock2D",) * 2, num_vq_embeddings=16),
    },
    "timm": {
        **{name: package("timm.create_model", noise(BATCH, 3, size, size), model_name=name, num_classes=10)
           for name, size in {
               "csatv2": 64, "lowformer_b0": 64, "cpubone_nano": 64, "efficientvim_m1": 64, "lcnetv2_base": 64,
               "fasternet_t0": 64, "shvit_s1": 64, "swiftformer_xs": 64, "rdnet_tiny": 64}.items()},
    },
    "torchaudio": {
        "Conformer": package("torchaudio.models.Conformer", noise(2, 20, 16), Input((2,), lambda sizes:
                             _torch().full(sizes, 20)), input_dim=16, num_heads=2, ffn_dim=32, num_layers=2,
                             depthwise_conv_kernel_size=7),
        "ConvTasNet": package("torchaudio.models.ConvTasNet", noise(BATCH, 1, 400), enc_num_feats=16,
                              msk_num_feats=8, msk_num_hidden_feats=16, msk_num_layers=3, msk_num_stacks=2),
        "HDemucs": package("torchaudio.models.HDemucs", noise(1, 2, 4096), sources=["drums", "bass"], channels=4,
                           nfft=256, depth=4),
        "WaveRNN": package("torchaudio.models.WaveRNN", noise(BATCH, 1, 32), noise(BATCH, 1, 16, 8),
                           upsample_scales=[2, 4], n_classes=16, hop_length=8, n_res_block=2, n_rnn=16, n_fc=16,
                           n_freq=16, n_hidden=16, n_output=16),
        "Squim": package("torchaudio.models.squim_objective_model", noise(1, 400), feat_dim=16, win_len=16,
                         d_model=16, nhead=2, hidden_dim=16, num_blocks=1, rnn_type="LSTM", chunk_size=8),
    },
    "speechbrain": SPEECHBRAIN,
    "demucs": {
        "HTDemucs": package("demucs.htdemucs.HTDemucs", noise(1, 2, 4096), sources=["drums", "bass"], channels=4,
                            nfft=256, depth=2, t_layers=2, t_heads=2, dconv_comp=2, samplerate=4096, segment=1),
    },
    "vocos": {"Vocos": package(_vocos, noise(BATCH, 16, 20))},
    "snac": {"SNAC": package("snac.SNAC", noise(1, 1, 1024), select=_first, encoder_dim=16, encoder_rates=[2, 4],
                             decoder_dim=64, decoder_rates=[4, 2], attn_window_size=8, codebook_size=16,
                             codebook_dim=4, vq_strides=[2, 1], noise=False)},
    "encodec": {"SEANet": package(_seanet, noise(1, 1, 640))},
    "bigvgan": {"BigVGAN": package(_bigvgan, noise(1, 16, Open("frames", 12, 20)))},
    "asteroid": {
        "DPRNN-TasNet": package("asteroid.models.DPRNNTasNet", noise(1, 1, 800), n_src=2, bn_chan=8, hid_size=8,
                                chunk_size=20, n_repeats=1, n_filters=16),
        "SuDoRM-RF": package("asteroid.models.SuDORMRFNet", noise(BATCH, 1, 840), n_src=2, bn_chan=8, num_blocks=2,
                             upsampling_depth=3, n_filters=16),
    },
    "openai-whisper": {
        "audio encoder": package("whisper.model.AudioEncoder", noise(BATCH, 16, 40), n_mels=16, n_ctx=20, n_state=32,
                                 n_head=4, n_layer=2),
        "text decoder": package("whisper.model.TextDecoder", tokens(BATCH, Open("length", 9, 5, least=2)),
                                noise(BATCH, 20, 32), n_vocab=99, n_ctx=16, n_state=32, n_head=4, n_layer=2),
    },
    "monai": {
        "SwinUNETR": package("monai.networks.nets.SwinUNETR", noise(1, 1, 64, 64), in_channels=1, out_channels=2,
                             feature_size=12, spatial_dims=2, depths=(1, 1, 1, 1), num_heads=(1, 2, 4, 8)),
        "SegResNet": package("monai.networks.nets.SegResNet", _VOLUME, blocks_down=(1, 1, 1), blocks_up=(1, 1)),
        "UNETR": package("monai.networks.nets.UNETR", _VOLUME, in_channels=1, out_channels=2, img_size=32,
                         feature_size=4, hidden_size=32, mlp_dim=64, num_heads=4),
        "MedNeXt": package("monai.networks.nets.MedNeXt", _GREY, spatial_dims=2, init_filters=4, kernel_size=3,
                           blocks_down=(1, 1), blocks_bottleneck=1, blocks_up=(1, 1)),
        "VoxelMorph": package("monai.networks.nets.VoxelMorph", noise(1, 1, 64, 64), noise(1, 1, 64, 64),
                              spatial_dims=2),
        "VQVAE": package("monai.networks.nets.VQVAE", _GREY, spatial_dims=2, in_channels=1, out_channels=1,
                         channels=(8, 16), num_res_layers=1, num_res_channels=(8, 16),
                         downsample_parameters=((2, 4, 1, 1),) * 2, upsample_parameters=((2, 4, 1, 1, 0),) * 2,
                         num_embeddings=16, embedding_dim=8, select=_first),
    },
    "kornia": {
        "HardNet": package("kornia.feature.HardNet", noise(BATCH, 1, 32, 32), pretrained=False),
        "XFeat": package("kornia.feature.xfeat.XFeatModel", noise(BATCH, 1, 64, 64)),
        "DISK": package("kornia.feature.DISK", noise(1, 3, 32, 32), method="heatmap_and_dense_descriptors"),
    },
    "segmentation-models-pytorch": {
        name: package(f"segmentation_models_pytorch.{name}", _OPEN_IMAGE, encoder_name=encoder, encoder_weights=None)
        for name, encoder in {"UnetPlusPlus": "resnet18", "MAnet": "resnet18", "Segformer": "mit_b0"}.items()
    },
    "open-clip-torch": {
        "CLIP": package("open_clip.model.CLIP", noise(1, 3, 32, 32), tokens(1, 12, below=99), select=_first,
                        embed_dim=32, vision_cfg={"layers": 2, "width": 64, "patch_size": 8, "image_size": 32},
                        text_cfg={"context_length": 12, "vocab_size": 99, "width": 64, "heads": 2, "layers": 2}),
    },
    "x-transformers": {
        "decoder": package("x_transformers.TransformerWrapper", tokens(BATCH, Open("length", 12, 7)), num_tokens=99,
                           max_seq_len=32, attn_layers=nested("x_transformers.Decoder", dim=32, depth=2, heads=4,
                           attn_dim_head=8, rotary_pos_emb=True, ff_glu=True, use_rmsnorm=True)),
        "encoder with ALiBi": package("x_transformers.TransformerWrapper", tokens(BATCH, Open("length", 12, 7)),
                                      num_tokens=99, max_seq_len=32, attn_layers=nested(
                                          "x_transformers.Encoder", dim=32, depth=2, heads=4, attn_dim_head=8,
                                          alibi_pos_bias=True, attn_pre_talking_heads=True)),
    },
    "vit-pytorch": {
        "CaiT": package("vit_pytorch.cait.CaiT", _IMAGE, image_size=64, patch_size=16, num_classes=10, dim=32, depth=2,
                        cls_depth=1, heads=2, mlp_dim=64, dim_head=16),
        "RegionViT": package("vit_pytorch.regionvit.RegionViT", noise(BATCH, 3, 224, 224), dim=(8, 16, 16, 32),
                             depth=(1, 1, 1, 1), num_classes=10),
        "CCT": package("vit_pytorch.cct.cct_2", noise(BATCH, 3, 32, 32), img_size=32, num_classes=10, n_conv_layers=1),
    },
    "mambapy": {"Mamba": package("mambapy.mamba.Mamba", noise(1, 12, 16), config=nested(
        "mambapy.mamba.MambaConfig", d_model=16, n_layers=2))},
    "pytorch-tabnet": {"TabNet": package("pytorch_tabnet.tab_network.TabNet", noise(BATCH, 8), select=_first,
                                         input_dim=8, output_dim=3, group_attention_matrix=nested("torch.eye", 8))},
    "rtdl-revisiting-models": {
        "FT-Transformer": package("rtdl_revisiting_models.FTTransformer", noise(BATCH, 8), fixed={"x_cat": None},
                                  n_cont_features=8, cat_cardinalities=[], d_out=2, n_blocks=2, d_block=16,
                                  attention_n_heads=2, attention_dropout=0.0, ffn_d_hidden=None,
                                  ffn_d_hidden_multiplier=1.3, ffn_dropout=0.0, residual_dropout=0.0),
    },
    "torch-geometric": {
        "GAT": package("torch_geometric.nn.GAT", noise(10, 8), tokens(2, 24, below=10), in_channels=8,
                       hidden_channels=8, num_layers=2, heads=2),
        "GCN": package("torch_geometric.nn.GCN", noise(10, 8), tokens(2, 24, below=10), in_channels=8,
                       hidden_channels=8, num_layers=2),
    },
    "efficientnet-pytorch": {"efficientnet-b0": package(lambda: import_module(
        "efficientnet_pytorch").EfficientNet.from_name("efficientnet-b0", image_size=64), noise(BATCH, 3, 64, 64))},
    "torchcrepe": {"CREPE": package("torchcrepe.model.Crepe", noise(BATCH, 1024), model="tiny")},
}  # fmt: skip

TABLE = Table(
    document="further-packages.md",
    heading="""# Further packages

`python -m benchmarks.packages --markdown` writes this page; [Benchmarks](../../benchmarks/README.md) says how
to install the packages. The models are from packages that no test uses, with small configurations, images or lengths.
{trained}

Each model is exported with `patcomp.export`, converted straight from export, and compared with eager PyTorch
on the evaluator and on the Core AI runtime. An error is the largest difference of an output, relative to the largest
value of eager's output; up to 1e-3 counts as equal. If a plain `torch.export.export` fails, the column `export` says
which step exported the model ([Exporting a model](../export.md)).

The last column is about a second export with dynamic sizes from 1: `batch`, or a length or height in the units of the
model (the text decoder of Whisper from 2 tokens, HiFi-GAN from 4 frames, the CRNN of easyocr from 2 images). This
program ran with another size than the example's, on the evaluator and on the runtime; the column has the larger error
of the two. The models are unchanged, except that the head of YOLO has `dynamic = True`, as ultralytics' own exporter
sets it: otherwise the head compares the sizes of the input with the sizes of the last run.

Some diffusion models multiply their times by 1000. Give them fractions, as their pipelines do: with times of 1000, the
angles of their embedding are 1e6, where one unit in the last place is 0.06, and the runtime multiplies constants in
another order than PyTorch.
""".replace(
        "{trained}",
        fill(
            f"Those of {', '.join(TRAINED)} have the trained weights that their packages ship (LPIPS those of its "
            "heads); all others have random weights.",
            120,
        ),
    ),
    models=PACKAGES | TRAINED | OTHERS,
    remarks={
        "ATD": "It sorts equal numbers with stable=False, whose order PyTorch leaves open, and groups them by position."
        " With stable=True in eager PyTorch, the error is 7e-7; in the next row all are one group",
        "FCPE, pitch of a wave": "It only prints a warning there; FCPE, latent takes the spectrogram",
        "Lumina2Transformer2DModel": "It reads the lengths of the captions from the mask; for captions without "
        "padding, make the mask of ones in the forward of a wrapper, as in the next row",
        "rtdetr-resnet50": "Two of its 300 boxes have scores 2e-7 apart, and rounding decides which is first; "
        "all others are equal",
        "x-vector": "Call its layers without try and except",
    },
)

if __name__ == "__main__":
    main("benchmarks.packages")
