"""Checkpoints of gpt-oss with MXFP4 experts, as OpenAI publishes them: blocks of 32 numbers of 4 bits, one exponent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from patcomp_models.checkpoints.loading import load_model
from patcomp_models.language import convert_language_model
from tests.models.language.checkpoints import SETTINGS, checkpoint, folder, generated

VALUES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
"""The magnitudes of the eight codes of FP4 E2M1; the fourth bit is the sign."""


def packed(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Blocks of bytes and exponents of a weight (experts, outputs, inputs), and the weight that they stand for."""
    blocks = weight.float().unflatten(-1, (-1, 32))
    exponents = (blocks.abs().amax(-1, keepdim=True) / 6).log2().ceil()
    scaled = blocks / 2**exponents
    codes = (scaled.abs()[..., None] - VALUES).abs().argmin(-1)
    rounded = VALUES[codes] * torch.where(scaled < 0, -1.0, 1.0) * 2**exponents
    codes = codes + 8 * (scaled < 0)
    pairs = codes.unflatten(-1, (16, 2))
    data = (pairs[..., 0] + 16 * pairs[..., 1]).to(torch.uint8)
    return data, (exponents[..., 0] + 127).to(torch.uint8), rounded.flatten(-2)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, dict[str, Tensor]]:
    """A checkpoint folder, and the weights of its experts by name."""
    from safetensors.torch import load_file, save_file

    monkeypatch.setitem(SETTINGS, "gpt_oss", {**SETTINGS["gpt_oss"], "intermediate_size": 64})
    path = folder(tmp_path / "source", "gpt_oss")
    expected = {}
    weights = load_file(path / "model.safetensors")
    for name in [name for name in weights if name.endswith(("gate_up_proj", "down_proj"))]:
        # transformers holds (experts, inputs, outputs)
        blocks, scales, rounded = packed(weights.pop(name).mT)
        weights |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        expected[name] = rounded.mT
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (path / "config.json").write_text(json.dumps(config))
    return path, expected


def test_packed_experts_stay_packed(source: tuple[Path, dict[str, Tensor]]) -> None:
    path, expected = source
    assert len(expected) == 4
    model = load_model(path, "float32", trust_remote_code=False)
    assert not [name for name, _ in model.named_parameters() if name in expected]
    for name, weight in expected.items():
        holder, _, own = name.rpartition(".")
        assert torch.equal(getattr(model.get_submodule(holder), own), weight)


@pytest.mark.slow
def test_a_bundle_of_packed_experts(source: tuple[Path, dict[str, Tensor]], tmp_path: Path) -> None:
    path, expected = source
    bundle = convert_language_model(path, out=tmp_path / "bundle", dtype="float32")
    floats = sum(weight.nbytes for weight in expected.values())
    rest = sum(weight.nbytes for weight in checkpoint("gpt_oss").parameters()) - floats
    assert (bundle.asset / "main.mlirb").stat().st_size < 1.02 * (rest + floats * 4.25 / 32) + 2**16
    model = checkpoint("gpt_oss")
    model.load_state_dict(expected, strict=False)
    prompt = [3, 80, 7, 33, 9, 44, 21, 5, 6]
    assert bundle.generate(prompt, 8) == generated(model, prompt, 8)
