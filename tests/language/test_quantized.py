"""Checkpoints in few bits: the floats of the libraries that wrote them, bundles of as many bytes, and bad files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from patcomp.language import LanguageModelError, convert_language_model
from patcomp.language.loading import load_model
from patcomp.language.quantized.formats.awq import AWQ
from patcomp.language.quantized.formats.float8 import Float8
from patcomp.language.quantized.formats.gptq import GPTQ
from patcomp.language.quantized.weight import StoredWeight, Unpacking

DATA = Path(__file__).parents[1] / "data" / "quantized"
FOLDERS = sorted(folder.name for folder in DATA.iterdir() if folder.is_dir())
PROMPT = [3, 41, 59, 26, 7]


def floats(stored: StoredWeight) -> Tensor:
    """The weight as the model computes with it, the inputs in the model's order."""
    made = Unpacking(stored, torch.float32, "w")()
    return made if stored.order is None else made[:, stored.order.argsort()]


@pytest.mark.parametrize("folder", FOLDERS)
def test_floats_are_those_of_the_library(folder: str) -> None:
    model = load_model(DATA / folder, "float32", trust_remote_code=False)
    for path, expected in load_file(DATA / folder / "floats.st").items():
        made = model.get_submodule(path).weight
        # compressed-tensors computes in float16, and floats of 4 bits in fewer digits
        tolerance = 0.0 if folder.startswith("mlx") else 3e-3 * float(expected.abs().max())
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


# ---- formats whose libraries cannot write a file here: packed as their sources define it ---------------


def packed(values: Tensor, bits: int, order: tuple[int, ...] = tuple(range(16))) -> Tensor:
    """Integers along the last axis in words of 32 bits: integer k of a word is `order[k]` of its integers."""
    count = 32 // bits
    words = []
    for row in values.reshape(-1, values.shape[-1]).tolist():
        made = []
        for start in range(0, len(row), count):
            word = sum(row[start + order[place]] << (bits * place) for place in range(count))
            made.append(word - (1 << 32) if word >= 1 << 31 else word)
        words.append(made)
    return torch.tensor(words, dtype=torch.int32).reshape(*values.shape[:-1], -1)


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from([2, 4, 8]), st.sampled_from(["gptq", "gptq_v2"]), st.booleans(), st.sampled_from(["middle", "any"]),
    st.integers(0, 1000),
)  # fmt: skip
def test_gptq(bits: int, version: str, has_order: bool, zeros: str, seed: int) -> None:
    torch.manual_seed(seed)
    outputs, inputs, group = 16, 32, 16
    data = torch.randint(0, 1 << bits, (outputs, inputs))
    groups = torch.arange(inputs) // group
    groups = groups[torch.randperm(inputs)] if has_order else groups
    scales = 0.01 + torch.rand(inputs // group, outputs).half()
    first = int(version == "gptq")
    zero = torch.randint(first, (1 << bits) + first, scales.shape)
    zero = torch.full_like(zero, 1 << (bits - 1)) if zeros == "middle" else zero
    config = {"quantization_config": {"quant_method": "gptq", "bits": bits, "checkpoint_format": version}}
    form = GPTQ.of(config)
    assert form is not None
    stored = form.read("w", {
        "qweight": packed(data, bits).T.contiguous(),
        "qzeros": packed(zero - first, bits), "scales": scales, "g_idx": groups.int(),
    })  # fmt: skip
    expected = torch.stack([
        scales[groups[k]].float() * (data[:, k] - zero[groups[k]]) for k in range(inputs)
    ], 1)  # fmt: skip
    torch.testing.assert_close(floats(stored), expected, rtol=1e-6, atol=1e-6)
    assert (stored.zero_point is None and stored.offset is None) == bool((zero == 1 << (bits - 1)).all())


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 1000))
def test_awq(seed: int) -> None:
    torch.manual_seed(seed)
    outputs, inputs, group = 16, 32, 16
    data, zero = torch.randint(0, 16, (inputs, outputs)), torch.randint(0, 16, (inputs // group, outputs))
    scales = 0.01 + torch.rand(zero.shape).half()
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    form = AWQ.of({"quantization_config": {"quant_method": "awq", "bits": 4, "version": "GEMM"}})
    assert form is not None
    stored = form.read("w", {"qweight": packed(data, 4, order), "qzeros": packed(zero, 4, order), "scales": scales})
    wide = [each.repeat_interleave(group, 0) for each in (scales.float(), zero)]
    torch.testing.assert_close(floats(stored), (wide[0] * (data - wide[1])).T, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [(128, 256), (192, 160), (130, 128)])
def test_float8_in_blocks(shape: tuple[int, int]) -> None:
    data = torch.randn(shape).to(torch.float8_e4m3fn)
    scales = torch.rand(-(-shape[0] // 128), -(-shape[1] // 128))
    form = Float8.of({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})
    assert form is not None
    stored = form.read("w", {"weight": data, "weight_scale_inv": scales})
    wide = scales.repeat_interleave(128, 0)[: shape[0]].repeat_interleave(128, 1)[:, : shape[1]]
    torch.testing.assert_close(floats(stored), data.float() * wide, rtol=1e-6, atol=0)


# ---- bad files ----------------------------------------------------------------------------------------

Change = Callable[[dict[str, Any], dict[str, Tensor]], None]
K = "model.layers.0.self_attn.k_proj"


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


@pytest.mark.parametrize(
    ("folder", "change", "said"),
    [
        ("mlx-4", changed(f"{K}.weight", lambda w: w[:, :7]),
         rf"{K}\.weight has 7 words a row, which are not 64 integers of 2 to 8 bits; the file is damaged"),
        ("mlx-4", changed(f"{K}.weight", lambda w: w[:16]), rf"{K}: MLX stores a weight of 16x64, and "),
        ("mlx-4", without(f"{K}.biases"), rf"the checkpoint lacks {K}\.biases, a part of a MLX weight"),
        ("mlx-4", without("model.norm.weight"), r"the checkpoint lacks model\.norm\.weight"),
        ("mlx-4", without(f"{K}.scales"), rf"the model has no place for {K}\.biases|lacks {K}\.weight|other shapes"),
        ("mlx-4", changed("model.norm.weight", lambda w: w[:8]), r"the checkpoint has other shapes for model\.norm\.w"),
        ("mlx-4", configured(mode="nvfp4"), "MLX's mode 'nvfp4'; affine and mxfp4 are read"),
        ("mlx-4", changed(f"{K}.scales", lambda w: w.float() * 1e6),
         rf"the scales of {K} have numbers that float16 cannot hold; pass dtype='bfloat16'"),
        ("ct-int4", configured(format="marlin-24"), "format 'marlin-24'; pack-quantized, int-quantized"),
        ("ct-int4", without(f"{K}.weight_shape"), rf"the checkpoint lacks {K}\.weight_shape"),
        ("ct-int4", configured(quant_method="vptq"), "are quantised .vptq, says quantization_config of config.json."),
        ("ct-int4", configured(quant_method="awq", version="gemv"), "AWQ of the kind gemv with 4 bits; gemm with 4 is"),
        ("ct-int4", configured(quant_method="gptq", bits=3), "the checkpoint is GPTQ of 3 bits; 2, 4 and 8 are read"),
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
