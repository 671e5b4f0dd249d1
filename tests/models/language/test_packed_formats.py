"""Weights packed as the sources of libraries define it, and read again; `test_quantized` has files of the libraries."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor, nn

from patcomp_models.checkpoints.quantized.formats.auto_round import translated
from patcomp_models.checkpoints.quantized.formats.awq import AWQ
from patcomp_models.checkpoints.quantized.formats.base import CACHE_NOTE, PartsFormat
from patcomp_models.checkpoints.quantized.formats.bitnet import BitNet
from patcomp_models.checkpoints.quantized.formats.compressed_tensors import CompressedTensors
from patcomp_models.checkpoints.quantized.formats.float8 import Float8
from patcomp_models.checkpoints.quantized.formats.gemma import Gemma
from patcomp_models.checkpoints.quantized.formats.gpt_oss import GptOss
from patcomp_models.checkpoints.quantized.formats.gptq import GPTQ
from patcomp_models.checkpoints.quantized.formats.modelopt import ModelOpt
from patcomp_models.checkpoints.quantized.naming import Recipe, _of_experts
from patcomp_models.checkpoints.quantized.weight import E2M1
from patcomp_models.language import LanguageModelError
from tests.models.language.stored import described, floats

LEVELS = torch.tensor([*E2M1, *(-number for number in E2M1)])


def packed(values: Tensor, bits: int, order: tuple[int, ...] = tuple(range(16))) -> Tensor:
    """Integers along the last axis in words of 32 bits: integer k of a word is `order[k]` of its integers; of 3 bits,
    32 follow each other in 3 words."""
    count = 32 // bits if bits != 3 else 32
    words = []
    for row in values.reshape(-1, values.shape[-1]).tolist():
        made = []
        for start in range(0, len(row), count):
            places = range(count) if bits == 3 else order[:count]
            stream = sum(row[start + place] << (bits * number) for number, place in enumerate(places))
            for _ in range(3 if bits == 3 else 1):
                word, stream = stream % (1 << 32), stream >> 32
                made.append(word - (1 << 32) if word >= 1 << 31 else word)
        words.append(made)
    return torch.tensor(words, dtype=torch.int32).reshape(*values.shape[:-1], -1)


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from([2, 3, 4, 8]), st.sampled_from(["gptq", "gptq_v2"]), st.booleans(),
    st.sampled_from(["middle", "any"]), st.integers(0, 1000),
)  # fmt: skip
def test_gptq(bits: int, version: str, has_order: bool, zeros: str, seed: int) -> None:
    torch.manual_seed(seed)
    outputs, inputs, group = 32, 32, 16
    data = torch.randint(0, 1 << bits, (outputs, inputs))
    groups = torch.arange(inputs) // group
    groups = groups[torch.randperm(inputs)] if has_order else groups
    scales = 0.01 + torch.rand(inputs // group, outputs).half()
    first = int(version == "gptq")
    zero = torch.randint(first, (1 << bits) + first, scales.shape)
    zero = torch.full_like(zero, 1 << (bits - 1)) if zeros == "middle" else zero
    form = described(GPTQ, "gptq", bits=bits, checkpoint_format=version)
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
    form = described(AWQ, "awq", bits=4, version="GEMM")
    stored = form.read("w", {"qweight": packed(data, 4, order), "qzeros": packed(zero, 4, order), "scales": scales})
    wide = [each.repeat_interleave(group, 0) for each in (scales.float(), zero)]
    torch.testing.assert_close(floats(stored), (wide[0] * (data - wide[1])).T, rtol=1e-6, atol=1e-6)
    # gemv: a row for each output, and groups padded to whole words
    padded = torch.nn.functional.pad(zero.T, (0, 6))
    form = described(AWQ, "awq", bits=4, version="gemv", group_size=group)
    stored = form.read("w", {
        "qweight": packed(data.T, 4), "qzeros": packed(padded, 4), "scales": torch.nn.functional.pad(scales.T, (0, 6)),
    })  # fmt: skip
    torch.testing.assert_close(floats(stored), (wide[0] * (data - wide[1])).T, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [(128, 256), (192, 160), (130, 128)])
def test_float8_in_blocks(shape: tuple[int, int]) -> None:
    data = torch.randn(shape).to(torch.float8_e4m3fn)
    scales = torch.rand(-(-shape[0] // 128), -(-shape[1] // 128))
    form = described(Float8, "fp8", weight_block_size=[128, 128])
    stored = form.read("w", {"weight": data, "weight_scale_inv": scales})
    wide = scales.repeat_interleave(128, 0)[: shape[0]].repeat_interleave(128, 1)[:, : shape[1]]
    torch.testing.assert_close(floats(stored), data.float() * wide, rtol=1e-6, atol=0)

    pair = torch.stack([data, data])  # all experts in one tensor
    stored = form.read("w", {"weight": pair, "weight_scale_inv": torch.stack([scales, 2 * scales])})
    assert isinstance(stored.scale, Tensor)
    torch.testing.assert_close(floats(stored)[1], 2 * data.float() * wide, rtol=1e-6, atol=0)


def nibbles(data: Tensor) -> Tensor:
    return (data[..., ::2] | data[..., 1::2] << 4).to(torch.uint8)


def test_gpt_oss() -> None:
    torch.manual_seed(0)
    data, exponents = torch.randint(0, 16, (2, 6, 64)), torch.randint(120, 130, (2, 6, 2))
    form = described(GptOss, "mxfp4")
    assert form.places(["e.down_proj_blocks", "e.down_proj_scales", "e.down_proj_bias"]) == {
        "e.down_proj": {"blocks": "e.down_proj_blocks", "scales": "e.down_proj_scales"}
    }
    stored = form.read("w", {"blocks": nibbles(data).reshape(2, 6, 2, 16), "scales": exponents.to(torch.uint8)})
    expected = LEVELS[data] * torch.exp2(exponents - 127.0).repeat_interleave(32, -1)
    assert torch.equal(floats(stored), expected.mT)


def test_bitnet() -> None:
    torch.manual_seed(0)
    data = torch.randint(-1, 2, (8, 12))
    parts = (data + 1).reshape(4, 2, 12)
    packed_rows = sum(parts[place] << (2 * place) for place in range(4))
    assert isinstance(packed_rows, Tensor)
    tensors = {"weight": packed_rows.to(torch.uint8), "weight_scale": torch.tensor([4.0])}
    assert torch.equal(floats(described(BitNet, "bitnet").read("w", tensors)), data / 4)
    form = described(BitNet, "bitnet", linear_class="autobitlinear")
    assert torch.equal(floats(form.read("w", tensors)), data * 4.0)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_gemma(bits: int) -> None:
    data, scale = torch.randint(-(1 << (bits - 1)), 1 << (bits - 1), (6, 16)), torch.rand(6, 1) + 0.5
    form = described(Gemma, "gemma", num_bits=8, module_quant_configs={"mlp": {"num_bits": bits}})
    shifted = (data + (1 << (bits - 1))).reshape(6, -1, 8 // bits)
    stored = (shifted << (bits * torch.arange(8 // bits))).sum(-1).to(torch.uint8)
    tensors = {"weight": data.to(torch.int8) if bits == 8 else stored, "weight_scale": scale}
    torch.testing.assert_close(floats(form.read("a.mlp.up", tensors)), data * scale, rtol=1e-6, atol=0)
    assert form.places(["t.embedding_scale", "t.embedding_quantized"])["t.weight"]["weight"] == "t.embedding_quantized"


def test_nvfp4_of_modelopt_and_mxfp4_of_compressed_tensors() -> None:
    torch.manual_seed(0)
    data, scale = torch.randint(0, 16, (4, 64)), (torch.rand(4, 4) + 0.5).to(torch.float8_e4m3fn)
    whole = torch.tensor([0.25])
    form = described(ModelOpt, "modelopt", quant_algo="NVFP4")
    made = form.read("w", {"weight": nibbles(data), "weight_scale": scale, "weight_scale_2": whole})
    assert torch.equal(floats(made), LEVELS[data] * (scale.float() * 0.25).repeat_interleave(16, -1))
    exponents = torch.randint(120, 130, (4, 2)).to(torch.uint8)
    form = described(CompressedTensors, "compressed-tensors", format="mxfp4-pack-quantized", config_groups={})
    made = form.read("w", {"weight_packed": nibbles(data), "weight_scale": exponents})
    assert torch.equal(floats(made), LEVELS[data] * torch.exp2(exponents - 127.0).repeat_interleave(32, -1))
    tensors = {"weight": data.to(torch.float8_e4m3fn), "weight_scale": torch.tensor(0.5)}
    form = described(ModelOpt, "modelopt", quant_algo="FP8")
    assert torch.equal(floats(form.read("w", tensors)), data * 0.5)


@pytest.mark.parametrize(
    ("packing", "method", "version"),
    [("auto_round:auto_gptq", "gptq", "gptq"), (None, "gptq", "gptq"), ("auto_round", "gptq", "gptq_v2"),
     ("auto_round:gptqmodel", "gptq", "gptq_v2"), ("auto_round:auto_awq", "awq", None),
     ("auto_round:llm_compressor", "compressed-tensors", None)],
)  # fmt: skip
def test_packings_of_autoround(packing: str | None, method: str, version: str | None) -> None:
    given = {"quant_method": "auto-round", "packing_format": packing, "bits": 4, "act_bits": 8}
    made = translated({"quantization_config": given})["quantization_config"]
    assert (made["quant_method"], made.get("checkpoint_format")) == (method, version)
    if method == "compressed-tensors":
        found = CompressedTensors.of({"quantization_config": made})
        assert found is not None
        assert found.notes[0].endswith("its rounding of activations to 8 bits is left out")


def test_an_unknown_packing_of_autoround() -> None:
    given = {"quantization_config": {"quant_method": "auto-round", "packing_format": "auto_round:fake"}}
    with pytest.raises(LanguageModelError, match="AutoRound's packing 'auto_round:fake'; auto_round:auto_gptq, "):
        translated(given)


def test_groups_of_gptq_of_different_sizes() -> None:
    """Of 48 inputs in groups of 32, the second group is shorter, although 2 groups divide 48."""
    form = described(GPTQ, "gptq", bits=4)
    tensors = {
        "qweight": torch.zeros(6, 8, dtype=torch.int32), "qzeros": torch.zeros(2, 1, dtype=torch.int32),
        "scales": torch.ones(2, 8), "g_idx": torch.arange(48) // 32,
    }  # fmt: skip
    with pytest.raises(LanguageModelError, match="w has 48 inputs in 2 groups of different sizes"):
        form.read("w", tensors)
    assert form.read("w", {**tensors, "g_idx": torch.arange(48) // 24}).shape == (8, 48)


def test_integers_of_modelopt() -> None:
    torch.manual_seed(0)
    data, scale = torch.randint(-8, 8, (4, 32)), torch.rand(4, 2) + 0.5
    form = described(ModelOpt, "modelopt", quant_algo="W4A16_AWQ")
    pairs = (data[::2] & 15 | (data[1::2] & 15) << 4).to(torch.uint8)
    made = form.read("w", {"weight": pairs, "weight_scale": scale})
    assert torch.equal(floats(made), data * scale.repeat_interleave(16, 1))
    with pytest.raises(LanguageModelError, match="w has 4-bit integers with two scales"):
        form.read("w", {"weight": pairs, "weight_scale": scale, "weight_scale_2": torch.ones(())})
    with pytest.raises(LanguageModelError, match=r"w scales its inputs \(pre_quant_scale\)"):
        form.read("w", {"weight": pairs, "weight_scale": scale, "pre_quant_scale": torch.ones(32)})
    for dtype in (torch.int8, torch.float8_e4m3fn):
        made = form.read("w", {"weight": data.to(dtype), "weight_scale": scale[:, 0]})
        assert torch.equal(floats(made), data * scale[:, :1])


def test_a_last_group_that_is_shorter(tmp_path: Path) -> None:
    """20 inputs in groups of 16 are 16 and 4, and 20 divides by 2."""
    data, zero, scales = torch.randint(0, 16, (20, 8)), torch.randint(0, 16, (2, 8)), torch.rand(2, 8)
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    awq = {"qweight": packed(data, 4, order), "qzeros": packed(zero, 4, order), "scales": scales}
    weight = {"weight": torch.randint(-8, 8, (8, 20), dtype=torch.int8), "weight_scale": scales.T.contiguous()}
    groups = {"group_0": {"weights": {"group_size": 16}}}
    for form, parts in (
        (described(AWQ, "awq", bits=4, version="GEMM", group_size=16), awq),
        (described(CompressedTensors, "compressed-tensors", format="int-quantized", config_groups=groups), weight),
    ):
        save_file({f"w.{name}": part for name, part in parts.items()}, tmp_path / "file")
        with pytest.raises(
            LanguageModelError, match=r"w has 20 inputs in 2 groups, and config\.json says groups of 16"
        ):
            form.weights([tmp_path / "file"])["w.weight"]()


@pytest.mark.parametrize("form", [ModelOpt(), CompressedTensors()])
def test_scales_of_caches_are_no_weights(form: PartsFormat, tmp_path: Path) -> None:
    names = ["self_attn.k_proj.k_scale", "self_attn.v_proj.v_scale", "self_attn.k_scale", "self_attn.v_zero_point"]
    kept = "layers.0.self_attn.k_scales"
    save_file({name: torch.ones(1) for name in [kept, *(f"layers.0.{name}" for name in names)]}, tmp_path / "file")
    assert [*form.weights([tmp_path / "file"])] == [kept]
    assert described(ModelOpt, "modelopt", quant_algo="FP8", kv_cache_quant_algo="FP8").notes[-1] == CACHE_NOTE
    assert described(CompressedTensors, "compressed-tensors", kv_cache_scheme={"num_bits": 8}).notes == (CACHE_NOTE,)


def test_experts_that_a_checkpoint_names_otherwise() -> None:
    """llm-compressor calls Mixtral's w1, w2 and w3 as other models do."""
    experts = nn.Module()
    experts.register_parameter("gate_up_proj", nn.Parameter(torch.empty(2, 8, 3, device="meta")))
    experts.register_parameter("down_proj", nn.Parameter(torch.empty(2, 3, 4, device="meta")))
    model = nn.Module()
    model.layer = nn.Module()
    model.layer.mlp = nn.Module()
    model.layer.mlp.experts = experts

    name = "layer.block_sparse_moe.experts.{}.{}_proj.weight".format

    def made(which: str, number: int) -> tuple[str, Recipe] | None:
        return _of_experts(model, name(number, which), are_single=True)

    assert [found[0] for found in (made("up", 1), made("gate", 0)) if found] == ["layer.mlp.experts.gate_up_proj"] * 2
    target, recipe = made("gate", 1) or ("", Recipe(()))
    assert (target, recipe.stacks) == ("layer.mlp.experts.gate_up_proj", True)
    assert recipe.groups == (tuple(name(n, "gate") for n in range(2)), tuple(name(n, "up") for n in range(2)))
    parts = {name(n, which): torch.rand(4, 3) for n in range(2) for which in ("gate", "up")}
    assert torch.equal(recipe.made(parts.__getitem__)[1], torch.cat([parts[name(1, "gate")], parts[name(1, "up")]]))
    assert made("down", 2) is None  # there are two experts
