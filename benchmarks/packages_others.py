"""Further rows of `benchmarks/packages.py`: vision, speech, time series, molecules, signals and tables."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from benchmarks.further import Build
from benchmarks.package_models import BATCH, Input, Open, fractions, made, noise, package, tokens, torch_module
from benchmarks.packages_spandrel import SPANDREL


def _batch_of_windows(model: Any, series: Any) -> Any:
    """A model of neuralforecast on series without further variables."""
    window = {"insample_y": series, "insample_mask": series.new_ones(series.shape)}
    return model({**window, "futr_exog": None, "hist_exog": None, "stat_exog": None})


def _forecast(name: str, **settings: Any) -> Build:
    return package(f"neuralforecast.models.{name}", noise(BATCH, 24, 1), call=_batch_of_windows, h=6, input_size=24,
                   **settings)  # fmt: skip


def _click_model(name: str, **settings: Any) -> Build:
    """A recommender of deepctr-torch, on two categories and three numbers a row."""

    def build() -> Any:
        columns = [
            made("deepctr_torch.inputs.SparseFeat", "user", 20, embedding_dim=4),
            made("deepctr_torch.inputs.SparseFeat", "item", 20, embedding_dim=4),
            made("deepctr_torch.inputs.DenseFeat", "numbers", 3),
        ]
        return made(f"deepctr_torch.models.{name}", columns, columns, dnn_hidden_units=(16, 8), **settings)

    def rows(sizes: tuple[int, ...]) -> Any:
        torch = torch_module()
        return torch.cat([torch.randint(0, 20, (sizes[0], 2)).float(), torch.randn(sizes[0], 3)], 1)

    return package(build, Input((Open("batch", 16, 5), 5), rows))


def _mask_decoder() -> Any:
    """The decoder of Segment Anything, which makes masks of the embeddings of an image and of prompts."""
    transformer = made("segment_anything.modeling.TwoWayTransformer", 2, 32, num_heads=4, mlp_dim=64)
    decoder = import_module("segment_anything.modeling").MaskDecoder
    return decoder(transformer_dim=32, transformer=transformer, iou_head_hidden_dim=32)


def _liquid_network() -> Any:
    wiring = made("ncps.wirings.AutoNCP", 16, 4)
    return made("ncps.torch.CfC", 6, wiring)


_GPT: dict[str, Any] = {
    "n_layer": 2, "n_head": 4, "n_embd": 32, "n_query_groups": 2, "block_size": 32, "vocab_size": 99,
    "padded_vocab_size": 99, "rotary_percentage": 1.0, "parallel_residual": False, "bias": False,
    "norm_class_name": "RMSNorm", "mlp_class_name": "LLaMAMLP", "intermediate_size": 64,
}  # fmt: skip

OTHERS: dict[str, dict[str, Build]] = {
    "spandrel": SPANDREL,
    "pytorchcv": {
        name: package(lambda name=name: made("pytorchcv.model_provider.get_model", name),
                      noise(BATCH, 3, size, size), select=lambda results: results[0] if isinstance(results, tuple)
                      else results)
        for name, size in {"lednet_cityscapes": 64, "lwopenpose2d_mobilenet_cmupan_coco": 64,
                           "centernet_resnet18_voc": 64, "octresnet10_ad2": 224}.items()
    },
    "python-doctr": {
        "db_mobilenet_v3_large": package("doctr.models.db_mobilenet_v3_large", noise(BATCH, 3, 64, 64),
                                         pretrained=False, pretrained_backbone=False, exportable=True),
        "crnn_mobilenet_v3_small": package("doctr.models.crnn_mobilenet_v3_small", noise(BATCH, 3, 32, 128),
                                           pretrained=False, pretrained_backbone=False, exportable=True),
        "vitstr_small": package("doctr.models.vitstr_small", noise(BATCH, 3, 32, 128), pretrained=False,
                                pretrained_backbone=False, exportable=True),
        "parseq": package("doctr.models.parseq", noise(BATCH, 3, 32, 128), pretrained=False,
                          pretrained_backbone=False, exportable=True),
    },
    "easyocr": {
        "CRNN": package("easyocr.model.vgg_model.Model", noise(Open("batch", 2, 3, least=2), 1, 64,
                        Open("width", 12, 9, multiple=8, least=4)), input_channel=1, output_channel=32,
                        hidden_size=16, num_class=97, fixed={"text": None}),
        "CRAFT": package("easyocr.craft.CRAFT", noise(BATCH, 3, 64, 64), pretrained=False),
    },
    "segment-anything": {"MaskDecoder": package(
        _mask_decoder, noise(1, 32, 8, 8), noise(1, 32, 8, 8), noise(1, Open("prompts", 3, 5), 32),
        noise(1, 32, 8, 8), fixed={"multimask_output": True})},
    "neuralforecast": {
        "NHITS": _forecast("NHITS", mlp_units=[[16, 16]] * 3),
        "TimesNet": _forecast("TimesNet", hidden_size=8, conv_hidden_size=8, encoder_layers=1, top_k=2),
        "Autoformer": _forecast("Autoformer", hidden_size=16, conv_hidden_size=16, n_head=2),
        "TFT": _forecast("TFT", hidden_size=16, n_head=2),
        "KAN": _forecast("KAN", hidden_size=16),
    },
    "itransformer": {"iTransformer": package("iTransformer.iTransformer", noise(BATCH, 24, 5), num_variates=5,
                                             lookback_len=24, depth=2, dim=32, heads=2, dim_head=16, pred_length=6)},
    "litgpt": {"GPT": package(lambda: made("litgpt.GPT", made("litgpt.Config", **_GPT)),
                              tokens(BATCH, Open("length", 12, 7, most=32), below=99))},
    "fair-esm": {"ESM2": package("esm.model.esm2.ESM2", tokens(BATCH, Open("length", 12, 7), below=24), num_layers=2,
                                 embed_dim=32, attention_heads=4, select=lambda results: results["logits"])},
    "braindecode": {
        name: package(f"braindecode.models.{name}", noise(BATCH, 8, size), n_chans=8, n_outputs=4, n_times=size,
                      sfreq=128)
        for name, size in {"EEGNet": 256, "EEGConformer": 512, "ATCNet": 512, "BIOT": 512}.items()
    },
    "egnn-pytorch": {"EGNN_Network": package(
        "egnn_pytorch.EGNN_Network", tokens(BATCH, 12, below=20), noise(BATCH, 12, 3), depth=2, dim=16,
        num_tokens=20, num_nearest_neighbors=4, norm_coors=True)},
    "point-transformer-pytorch": {"PointTransformerLayer": package(
        "point_transformer_pytorch.PointTransformerLayer", noise(BATCH, Open("points", 20, 13, least=8), 16),
        noise(BATCH, Open("points", 20, 13, least=8), 3), dim=16, pos_mlp_hidden_dim=16, num_neighbors=6)},
    "denoising-diffusion-pytorch": {"Unet": package(
        "denoising_diffusion_pytorch.Unet", noise(BATCH, 3, 32, 32), Input((BATCH,), lambda sizes:
        torch_module().rand(sizes) * 999), dim=16, dim_mults=(1, 2), flash_attn=False)},
    "tab-transformer-pytorch": {"FTTransformer": package(
        "tab_transformer_pytorch.FTTransformer", tokens(BATCH, 3, below=5), noise(BATCH, 4), categories=(5, 5, 5),
        num_continuous=4, dim=16, depth=2, heads=2, dim_head=8)},
    "bs-roformer": {"BSRoformer": package(
        "bs_roformer.BSRoformer", noise(1, 2048), dim=16, depth=1, heads=2, dim_head=8, stft_n_fft=128,
        stft_hop_length=32, stft_win_length=128, dim_freqs_in=65, freqs_per_bands=(5,) * 13, flash_attn=False)},
    "vector-quantize-pytorch": {
        "ResidualVQ": package("vector_quantize_pytorch.ResidualVQ", noise(BATCH, Open("length", 12, 7), 16), dim=16,
                              codebook_size=32, num_quantizers=3, select=lambda results: results[:2]),
        "FSQ": package("vector_quantize_pytorch.FSQ", noise(BATCH, Open("length", 12, 7), 4), levels=[8, 5, 5, 5]),
    },
    "neuraloperator": {"FNO": package("neuralop.models.FNO", noise(BATCH, 2, 32, 32), n_modes=(8, 8), in_channels=2,
                                      out_channels=1, hidden_channels=8, n_layers=2, own_weights=True)},
    "piq": {
        "SSIMLoss": package("piq.SSIMLoss", fractions(1, 3, 64, 64), fractions(1, 3, 64, 64)),
        "VSILoss": package("piq.VSILoss", fractions(1, 3, 64, 64), fractions(1, 3, 64, 64)),
    },
    "deepctr-torch": {name: _click_model(name) for name in ("DeepFM", "xDeepFM", "AutoInt")},
    "tabm": {"TabM": package(
        lambda: import_module("tabm").TabM.make(n_num_features=6, cat_cardinalities=[4, 4], d_out=2, n_blocks=2,
                                                d_block=16, k=4), noise(BATCH, 6), tokens(BATCH, 2, below=4),
        own_weights=True)},
    "ncps": {"CfC": package(_liquid_network, noise(BATCH, 12, 6), select=lambda results: results[0])},
    "conformer": {"Conformer": package("conformer.Conformer", noise(BATCH, Open("length", 20, 13), 32), dim=32,
                                       depth=2, heads=2, dim_head=16, conv_kernel_size=7)},
    "performer-pytorch": {"PerformerLM": package(
        "performer_pytorch.PerformerLM", tokens(BATCH, 16, below=99), num_tokens=99, max_seq_len=16, dim=32, depth=2,
        heads=2, dim_head=16, nb_features=16)},
    "local-attention": {"LocalTransformer": package(
        "local_attention.LocalTransformer", tokens(BATCH, 16, below=99), num_tokens=99, max_seq_len=32, dim=32,
        depth=2, heads=2, dim_head=16, local_attn_window_size=8)},
    "panns-inference": {"Cnn14": package("panns_inference.models.Cnn14", noise(1, 16000), sample_rate=16000,
                                         window_size=256, hop_size=160, mel_bins=64, fmin=50, fmax=8000,
                                         classes_num=10, select=lambda results: results["clipwise_output"])},
}  # fmt: skip
