"""Checkpoints in few bits: the floats of the libraries that wrote them, bundles of as many bytes, and bad files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from patcomp_models.checkpoints.loading import load_model
from patcomp_models.language import LanguageModelError, convert_language_model

DATA = Path(__file__).parents[2] / "data" / "quantized"
FOLDERS = sorted(folder.name for folder in DATA.iterdir() if folder.is_dir())
PROMPT = [3, 41, 59, 26, 7]


HALF = ("bnb-nf4-double", "torchao-int4")
"""The libraries round the floats of these to float16."""


@pytest.mark.parametrize("folder", FOLDERS)
def test_floats_are_those_of_the_library(folder: str) -> None:
    model = load_model(DATA / folder, "float32", trust_remote_code=False)
    for path, expected in load_file(DATA / folder / "floats.st").items():
        holder, _, name = path.rpartition(".")
        is_experts = holder.endswith("experts")  # of these the file has every eighth row
        layer = model.get_submodule(holder if is_experts else path)
        made = getattr(layer, name)[:, ::8] if is_experts else layer.weight
        made = made[:, layer.order.argsort()] if hasattr(layer, "order") else made
        made = made.half().float() if folder in HALF else made
        # compressed-tensors computes in float16, and floats of 4 bits in fewer digits; HQQ subtracts first
        tolerance = {"ct": 3e-3, "hqq": 3e-7}.get(folder.partition("-")[0], 0.0) * float(expected.abs().max())
        torch.testing.assert_close(made, expected, rtol=0, atol=tolerance)
    assert not [name for name, parameter in model.named_parameters() if parameter.is_meta]
    assert bool(model(torch.tensor([PROMPT])).logits.isfinite().all())


def _stored_bytes(folder: Path) -> int:
    return (folder / "model.safetensors").stat().st_size


@pytest.mark.parametrize(
    "folder",
    [name if name in ("mlx-4-tied", "ct-uint4") else pytest.param(name, marks=pytest.mark.slow) for name in FOLDERS],
)
def test_a_bundle_has_the_bits_of_the_file(folder: str, tmp_path: Path) -> None:
    # the conversion compares the program and the asset with the model, whose weights are those of the file
    bundle = convert_language_model(DATA / folder, out=tmp_path / "bundle", tokenizer=False, dtype="float32")
    model = load_model(DATA / folder, "float32", trust_remote_code=False)
    tokens = model.generate(torch.tensor([PROMPT]), max_new_tokens=4, do_sample=False, pad_token_id=0)
    assert bundle.generate(PROMPT, 4) == tokens[0, len(PROMPT) :].tolist()
    halved = convert_language_model(DATA / folder, out=tmp_path / "half", tokenizer=False, check=False)
    size = (halved.asset / "main.mlirb").stat().st_size
    assert size <= 1.02 * _stored_bytes(DATA / folder) + 2**16
    plain = sum(parameter.numel() for parameter in model.parameters()) * 2
    assert size < plain + 0.7 * _stored_bytes(DATA / folder) + 2**16


# ---- bad files ----------------------------------------------------------------------------------------

Change = Callable[[dict[str, Any], dict[str, Tensor]], None]
K = "model.layers.0.self_attn.k_proj"
EXPERTS = "model.layers.0.mlp.switch_mlp"


def changed(name: str, edit: Callable[[Tensor], Tensor]) -> Change:
    def change(config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        tensors[name] = edit(tensors[name]).contiguous()

    return change


def without(name: str) -> Change:
    def change(config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        del tensors[name]

    return change


def configured(**entries: Any) -> Change:
    def change(config: dict[str, Any], tensors: Mapping[str, Tensor]) -> None:
        config[next(key for key in ("quantization", "quantization_config") if key in config)].update(entries)

    return change


def of_a_tied_head(config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    config["tie_word_embeddings"] = True
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] * 2


@pytest.mark.parametrize(
    ("folder", "change", "said"),
    [
        ("mlx-4", changed(f"{K}.weight", lambda w: w[:, :7]),
         rf"{K}\.weight has 7 words a row, which are not 64 integers of 2 to 8 bits; the file is"),
        ("mlx-4", changed(f"{K}.weight", lambda w: w[:16]),
         rf"the scales of {K} are 32x\d, which do not divide 16x64; the file"),
        ("mlx-4", lambda config, tensors: config.update(intermediate_size=96),
         r"mlp\.(gate|down|up)_proj: MLX stores a weight of 64x64, and the model has"),
        ("mlx-4", without(f"{K}.biases"), rf"the checkpoint lacks {K}\.biases, a part of a MLX weight"),
        ("mlx-4", without("model.norm.weight"), r"missing model\.norm\.weight"),
        ("mlx-4", without(f"{K}.scales"), rf"unexpected {K}\.biases|lacks {K}\.weight|another shape"),
        ("mlx-4", changed("model.norm.weight", lambda w: w[:8]),
         r"model\.norm\.weight has another shape"),
        ("mlx-4", configured(mode="int4"), "MLX's mode 'int4'; affine, mxfp4, nvfp4 and mxfp8 are read"),
        ("mlx-4", changed(f"{K}.scales", lambda w: w.float() * 1e6),
         rf"the scales of {K} have numbers that float16 cannot hold; pass dtype='bfloat16'"),
        ("ct-int4", of_a_tied_head, r"lm_head\.weight is model\.embed_tokens\.weight \(tie_word_embeddings\), and"),
        ("ct-int4", configured(format="marlin-24"), "format 'marlin-24'; pack-quantized, int-quantized"),
        ("ct-int4", without(f"{K}.weight_shape"), rf"the checkpoint lacks {K}\.weight_shape"),
        ("ct-int4", configured(quant_method="vptq"), "are quantised .vptq, says quantization_config of config.json."),
        ("ct-int4", configured(quant_method="awq", version="marlin"),
         "AWQ of the kind marlin with 4 bits; gemm and gemv"),
        ("ct-int4", configured(quant_method="gptq", format="gptq", bits=5),
         "the checkpoint is GPTQ of 5 bits in the format gptq; 2, 3, 4 and 8 bits"),
        ("ct-int4", configured(quant_method="gptq", bits=4, checkpoint_format="marlin"),
         "the checkpoint is GPTQ of 4 bits in the format marlin; 2, 3, 4 and 8 bits"),
        ("ct-int4", configured(quant_method="gptq", format="gptq", bits=4),
         r"unexpected .*layers\.0\.mlp\.down_proj\.weight_packed"),
        ("bnb-nf4-double", changed(f"{K}.weight", lambda w: w[:100]),
         rf"the parts of {K} do not make a bitsandbytes weight \(weight 100x1 uint8, .*; the file is damaged"),
        ("bnb-nf4-double", without(f"{K}.weight.quant_map"),
         rf"the checkpoint lacks {K}\.weight\.quant_map, a part of"),
        ("bnb-int8", changed(f"{K}.SCB", lambda w: w[:3]), rf"the scales of {K} are 3x1, which do not divide 32x64"),
        ("torchao-int4", without(f"{K}._weight_scale"),
         rf"the checkpoint lacks {K}\._weight_scale, a part of a torchao"),
        ("hqq-3", changed(f"{K}.W_q", lambda w: w[:3]), rf"the parts of {K} do not make a HQQ weight"),
        ("hqq-3", changed(f"{K}.axis", torch.zeros_like),
         rf"{K} has groups along the outputs .*; quantise with axis=1"),
        ("quanto-int4", changed(f"{K}.weight._scale", lambda w: w[:5]),
         rf"the parts of {K} do not make a quanto weight"),
        ("mlx-4-moe", without(f"{EXPERTS}.up_proj.weight"), rf"lacks {EXPERTS}\.up_proj\.weight, a part of a MLX"),
        ("mlx-4-moe", changed(f"{EXPERTS}.up_proj.biases", lambda w: w[:3]),
         "the offsets of .*up_proj are 3x64x1, which"),
    ],
)  # fmt: skip
def test_bad_files(folder: str, change: Change, said: str, tmp_path: Path) -> None:
    shutil.copytree(DATA / folder, tmp_path / "folder")
    config = json.loads((tmp_path / "folder" / "config.json").read_text())
    tensors = load_file(tmp_path / "folder" / "model.safetensors")
    change(config, tensors)
    (tmp_path / "folder" / "config.json").write_text(json.dumps(config))
    save_file(tensors, tmp_path / "folder" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(LanguageModelError, match=said) as raised:
        convert_language_model(tmp_path / "folder", out=tmp_path / "bundle", tokenizer=False)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "bundle").exists()


def test_names_in_a_wrapper(tmp_path: Path) -> None:
    """DataParallel was around the model."""
    shutil.copytree(DATA / "mlx-4", tmp_path / "folder")
    file = tmp_path / "folder" / "model.safetensors"
    save_file({f"module.{name}": each for name, each in load_file(file).items()}, file, metadata={"format": "pt"})
    ids = torch.tensor([PROMPT])
    made, wanted = (
        load_model(each, "float32", trust_remote_code=False)(ids).logits
        for each in (tmp_path / "folder", DATA / "mlx-4")
    )
    assert torch.equal(made, wanted)


def test_options_that_do_not_go_with_few_bits(tmp_path: Path) -> None:
    for options, said in (
        ({"allow_missing": "lm_head.*"}, r"in few bits \(MLX\), and all must be there; leave allow_missing="),
        ({"float32": ["lm_head"]}, "float32= names Linear, whose weights are stored in few bits"),
    ):
        with pytest.raises(LanguageModelError, match=said):
            convert_language_model(DATA / "mlx-4", out=tmp_path / "bundle", tokenizer=False, **options)
