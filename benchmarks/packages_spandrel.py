"""Rows of `benchmarks/packages.py`: the architectures of spandrel, which restore and enlarge images."""

from __future__ import annotations

from typing import Any

from benchmarks.further import Build
from benchmarks.package_models import BATCH, Open, fractions, noise, package


def _row(path: str, size: int = 16, channels: int = 3, /, **settings: Any) -> Build:
    """A class in `spandrel.architectures`, on square images."""
    return package(f"spandrel.architectures.{path}", noise(BATCH, channels, size, size), **settings)


def _first(results: Any) -> Any:
    return results[0]


def _style_network() -> dict[str, int]:
    return {"dim_in": 8, "dim_out": 16, "depth": 2}


_OPEN_IMAGE = noise(1, 3, Open("height", 2, 3, multiple=16), 32)
_SHORT: dict[str, Any] = {"depths": (2,), "num_heads": (2,), "embed_dim": 16}
_OF_WINDOWS: dict[str, Any] = {**_SHORT, "window_size": 8, "img_size": 16, "upscale": 2, "upsampler": "pixelshuffle"}
_UNET: dict[str, Any] = {"nc": [8, 16, 16, 16], "nb": 1}

SPANDREL: dict[str, Build] = {
    "HAT": _row("HAT.HAT", embed_dim=24, depths=(1, 1), num_heads=(2, 2), window_size=8, upscale=2, num_feat=16,
                squeeze_factor=4, img_size=16),
    "ATD": _row("ATD.ATD", embed_dim=24, depths=(2,), num_heads=(2,), window_size=8, category_size=32, num_tokens=8,
                upscale=2, upsampler="pixelshuffledirect", img_size=16),
    "ATD, one category": _row("ATD.ATD", embed_dim=24, depths=(2,), num_heads=(2,), window_size=8, category_size=256,
                              num_tokens=8, upscale=2, upsampler="pixelshuffledirect", img_size=16),
    "AuraSR": _row("AuraSR.AuraSR", dim=8, image_size=64, input_image_size=16, style_network=lambda: _style_network(),
                   up_dim_mults=(1, 2), down_dim_mults=(2,), full_attn=(False, True), attn_depths=(1, 1),
                   mid_attn_depth=1, self_attn_dim_head=8, self_attn_heads=2, num_conv_kernels=2,
                   resnet_block_groups=2),
    "CRAFT": _row("CRAFT.CRAFT", embed_dim=24, depths=[2], num_heads=[6], upscale=2),
    "Compact": _row("Compact.Compact", num_feat=8, num_conv=2),
    "DAT": _row("DAT.DAT", embed_dim=16, depth=[2], num_heads=[2], img_size=16, split_size=[2, 4]),
    "DCTLSA": _row("DCTLSA.DCTLSA", nf=20, upscale=2),
    "DITN": _row("DITN.DITN", dim=12, ITL_blocks=1, SAL_blocks=1, upscale=2),
    "DRCT": _row("DRCT.DRCT", **_OF_WINDOWS, gc=8),
    "DRUNet": _row("DRUNet.DRUNet", 16, 4, in_nc=4, out_nc=3, **_UNET),
    "DnCNN": _row("DnCNN.DnCNN", in_nc=3, out_nc=3, nc=8, nb=4),
    "ESRGAN": _row("ESRGAN.ESRGAN", num_filters=8, num_blocks=1),
    "FBCNN": _row("FBCNN.FBCNN", select=_first, nc=[8, 8, 8, 512], nb=1),
    "FDAT": _row("FDAT.FDAT", scale=2, embed_dim=16, num_groups=1, depth_per_group=2, num_heads=2, mid_dim=8),
    "FFTformer": _row("FFTformer.FFTformer", 32, dim=8, num_blocks=[1, 1, 1], num_refinement_blocks=1),
    "GFPGAN": _row("GFPGAN.GFPGAN", 32, out_size=32, num_style_feat=16, num_mlp=2, narrow=0.0625, input_is_latent=True,
                   different_w=True, sft_half=True, select=_first, fixed={"randomize_noise": False}),
    "GRL": _row("GRL.GRL", embed_dim=12, upscale=2, upsampler="pixelshuffle", depths=[2], num_heads_window=[2],
                num_heads_stripe=[2], img_size=16),
    "HVICIDNet": package("spandrel.architectures.HVICIDNet.HVICIDNet", fractions(BATCH, 3, 16, 16),
                         channels=[4, 4, 8, 16], heads=[1, 2, 4, 8]),
    "IPT": _row("IPT.IPT", 48, patch_size=48, n_feats=4, num_heads=2, num_layers=1, scale=[2]),
    "KBNet_l": _row("KBNet.KBNet_l", dim=24, num_blocks=[1, 1, 1, 1], num_refinement_blocks=1, heads=[1, 2, 2, 2]),
    "KBNet_s": _row("KBNet.KBNet_s", width=8, middle_blk_num=1, enc_blk_nums=[1, 1], dec_blk_nums=[1, 1]),
    "LaMa": package("spandrel.architectures.LaMa.LaMa", noise(1, 3, 64, 64), noise(1, 1, 64, 64), in_nc=4),
    "MMRealSR": _row("MMRealSR.MMRealSR", num_in_ch=3, num_out_ch=3, num_feat=8, num_block=1, num_grow_ch=4,
                     num_feats=[8, 8, 8, 8], num_blocks=[1, 1, 1, 1], select=_first),
    "MixDehazeNet": _row("MixDehazeNet.MixDehazeNet", 64, embed_dims=[8, 8, 16, 8, 8], depths=[1, 1, 1, 1, 1]),
    "MoESR": _row("MoESR.MoESR", dim=8, n_blocks=1, n_block=1, scale=2),
    "MoSR": _row("MoSR.MoSR", dim=8, n_block=2, upscale=2),
    "NAFNet": _row("NAFNet.NAFNet", width=8, enc_blk_nums=[1, 1], dec_blk_nums=[1, 1]),
    "OmniSR": _row("OmniSR.OmniSR", num_feat=16, up_scale=2),
    "PLKSR": _row("PLKSR.PLKSR", dim=8, n_blocks=2, upscaling_factor=2),
    "RealPLKSR": _row("PLKSR.RealPLKSR", dim=8, n_blocks=2, upscaling_factor=2),
    "RealPLKSR, DySample": _row("PLKSR.RealPLKSR", dim=16, n_blocks=1, upscaling_factor=2, dysample=True),
    "RCAN": _row("RCAN.RCAN", scale=2, n_resgroups=1, n_resblocks=2, n_feats=16,
                 call=lambda model, images: model(images.clone())),
    "RGT": _row("RGT.RGT", embed_dim=16, depth=[2], num_heads=[2], img_size=16),
    "UpCunet2x": package("spandrel.architectures.RealCUGAN.UpCunet2x", _OPEN_IMAGE),
    **{name: _row(f"RealCUGAN.{name}", size)
       for name, size in {"UpCunet2x_fast": 96, "UpCunet3x": 32, "UpCunet4x": 32}.items()},
    "RestoreFormer": _row("RestoreFormer.RestoreFormer", 32, n_embed=16, embed_dim=32, ch=32, ch_mult=(1, 2),
                          num_res_blocks=1, resolution=32, z_channels=32, select=_first),
    "RetinexFormer": _row("RetinexFormer.RetinexFormer", n_feat=8, stage=1),
    "SAFMN": _row("SAFMN.SAFMN", dim=8, n_blocks=1, upscaling_factor=2),
    "SAFMNBCIE": _row("SAFMNBCIE.SAFMNBCIE", dim=8, n_blocks=1, num_layers=1),
    "SCUNet": _row("SCUNet.SCUNet", 64, config=[2, 2, 2, 2, 2, 2, 2], dim=64),
    "SPAN": package("spandrel.architectures.SPAN.SPAN", fractions(1, 3, Open("height", 2, 3, multiple=16), 32),
                    num_in_ch=3, num_out_ch=3, feature_channels=16, upscale=2, img_range=1.0),
    "SeemoRe": package("spandrel.architectures.SeemoRe.SeemoRe", noise(1, 3, 16, 16), scale=2, num_experts=3,
                       num_layers=1, embedding_dim=16),
    "SwiftSRGAN": _row("SwiftSRGAN.SwiftSRGAN", num_channels=8, num_blocks=1, upscale_factor=2),
    "Swin2SR": _row("Swin2SR.Swin2SR", **_OF_WINDOWS),
    "SwinIR": _row("SwinIR.SwinIR", **_OF_WINDOWS),
    "Uformer": _row("Uformer.Uformer", 128, img_size=128, embed_dim=8, depths=[1] * 9, 
                    num_heads=[1, 1, 2, 2, 2, 2, 2, 1, 1]),
}  # fmt: skip
