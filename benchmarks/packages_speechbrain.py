"""Rows of `benchmarks/packages.py`: networks of SpeechBrain, for speakers, recognition, separation and enhancement."""

from __future__ import annotations

from typing import Any

from benchmarks.further import Build
from benchmarks.package_models import BATCH, Open, fractions, made, nested, noise, package, tokens, torch_module

_LOBES = "speechbrain.lobes.models"
_RECOGNISER: dict[str, Any] = {
    "tgt_vocab": 20, "input_size": 16, "d_model": 16, "nhead": 2, "num_encoder_layers": 1, "num_decoder_layers": 1,
    "d_ffn": 32, "csgu_linear_units": 32, "kernel_size": 5,
}  # fmt: skip


def _recogniser(**settings: Any) -> Build:
    """A model of speech and text, on spectra and on the words so far."""
    return package(f"{_LOBES}.transformer.TransformerASR.TransformerASR", noise(1, Open("frames", 24, 15, least=4), 16),
                   tokens(1, 7, below=20), normalize_before=True, **_RECOGNISER, **settings)  # fmt: skip


def _separator() -> Any:
    """SepFormer: the encoder of a wave, the masks of two voices, and the decoder."""
    path = f"{_LOBES}.dual_path"
    blocks = [made(f"{path}.SBTransformerBlock", num_layers=1, d_model=16, nhead=2, d_ffn=32, norm_before=True,
                   use_positional_encoding=True) for _ in range(2)]  # fmt: skip
    masks = made(f"{path}.Dual_Path_Model", in_channels=16, out_channels=16, intra_model=lambda: blocks[0],
                 inter_model=lambda: blocks[1], num_layers=1, K=10)  # fmt: skip
    encoder = made(f"{path}.Encoder", kernel_size=8, out_channels=16)
    decoder = made(f"{path}.Decoder", in_channels=16, out_channels=1, kernel_size=8, stride=4, bias=False)
    return torch_module().nn.ModuleList([encoder, masks, decoder])


def _separated(model: Any, wave: Any) -> Any:
    encoder, masks, decoder = model
    seen = encoder(wave)
    return torch_module().stack([decoder(mask * seen) for mask in masks(seen)], -1)


SPEECHBRAIN: dict[str, Build] = {
    "ECAPA-TDNN": package(f"{_LOBES}.ECAPA_TDNN.ECAPA_TDNN", noise(2, 40, 16), input_size=16,
                          channels=[16] * 4 + [48], attention_channels=8, res2net_scale=2, se_channels=8,
                          lin_neurons=8),
    "x-vector": package(f"{_LOBES}.Xvector.Xvector", noise(2, 40, 16), in_channels=16, tdnn_channels=[16] * 5,
                        lin_neurons=8),
    "ResNet of speakers": package(f"{_LOBES}.ResNet.ResNet", noise(2, 40, 16), input_size=16, channels=[8] * 4,
                                  block_sizes=[1] * 4, lin_neurons=8),
    "HiFi-GAN": package(f"{_LOBES}.HifiGAN.HifiganGenerator", noise(1, 16, Open("frames", 12, 20, least=4)),
                        in_channels=16, out_channels=1, resblock_type="1", resblock_dilation_sizes=[[1, 3, 5]],
                        resblock_kernel_sizes=[3], upsample_kernel_sizes=[8, 4], upsample_initial_channel=16,
                        upsample_factors=[4, 2]),
    "CNN14": package(f"{_LOBES}.Cnn14.Cnn14", noise(BATCH, 64, 64), mel_bins=64, emb_dim=32),
    "Transformer": _recogniser(),
    "Conformer": _recogniser(encoder_module="conformer", attention_type="RelPosMHAXL", causal=False),
    "Branchformer": _recogniser(encoder_module="branchformer", attention_type="RelPosMHAXL", causal=False),
    "SepFormer": package(_separator, noise(1, 200), call=_separated),
    "Conv-TasNet": package(f"{_LOBES}.conv_tasnet.MaskNet", noise(1, 16, 40), N=16, B=8, H=16, P=3, X=2, R=1, C=2),
    "RE-SepFormer": package(f"{_LOBES}.resepformer.ResourceEfficientSeparator", noise(1, 16, 40), input_dim=16, unit=16,
                            layer=2, segment_size=10, mem_type="av", causal=False,
                            seg_model=nested(f"{_LOBES}.resepformer.SBTransformerBlock_wnormandskip", num_layers=1,
                                             d_model=16, nhead=2, d_ffn=32),
                            mem_model=nested(f"{_LOBES}.resepformer.SBTransformerBlock_wnormandskip", num_layers=1,
                                             d_model=16, nhead=2, d_ffn=32)),
    "CRDNN": package(f"{_LOBES}.CRDNN.CRDNN", noise(2, 24, 16), input_size=16, cnn_blocks=1, cnn_channels=[8],
                     rnn_layers=1, rnn_neurons=8, dnn_blocks=1, dnn_neurons=8, inter_layer_pooling_size=[2]),
    "ContextNet": package(f"{_LOBES}.ContextNet.ContextNet", noise(2, 24, 16), input_shape=(2, 24, 16), out_channels=16,
                          conv_channels=[8] * 3, strides=[1, 2, 1], num_blocks=3, num_layers=2,
                          residuals=[True] * 3),
    "EnhanceResnet": package(f"{_LOBES}.EnhanceResnet.EnhanceResnet", noise(1, 4000),
                             channel_counts=[8, 8, 8], dense_nodes=16),
    "MetricGAN": package(f"{_LOBES}.MetricGAN.EnhancementGenerator", fractions(2, 20, 17),
                         call=lambda model, x: model(x, lengths=x.new_ones(len(x))), input_size=17),
    "DiffWave": package(f"{_LOBES}.DiffWave.DiffWave", noise(1, 1, 64), tokens(1, below=20), input_channels=16,
                        residual_layers=2, residual_channels=8, dilation_cycle_length=2, total_steps=20,
                        unconditional=True),
    "RNNLM": package(f"{_LOBES}.RNNLM.RNNLM", tokens(2, 9, below=20), output_neurons=20, embedding_dim=8, rnn_layers=1,
                     rnn_neurons=8, dnn_neurons=8),
    "TransformerLM": package(f"{_LOBES}.transformer.TransformerLM.TransformerLM", tokens(2, 9, below=20), vocab=20,
                             d_model=16, nhead=2, num_encoder_layers=1, d_ffn=32),
    "CNNTransformerSE": package(f"{_LOBES}.transformer.TransformerSE.CNNTransformerSE", noise(2, 20, 16), d_model=16,
                                output_size=16, nhead=2, num_layers=1, d_ffn=32),
}  # fmt: skip
