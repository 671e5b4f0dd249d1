"""Formats whose libraries cannot write a file here: weights packed as their sources define it, and read again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from patcomp.language.errors import LanguageModelError
from patcomp.language.quantized.formats.awq import AWQ
from patcomp.language.quantized.formats.base import Format
from patcomp.language.quantized.formats.bitnet import BitNet
from patcomp.language.quantized.formats.compressed_tensors import CompressedTensors
from patcomp.language.quantized.formats.float8 import Float8
from patcomp.language.quantized.formats.gemma import Gemma
from patcomp.language.quantized.formats.gpt_oss import GptOss
from patcomp.language.quantized.formats.gptq import GPTQ
from patcomp.language.quantized.formats.modelopt import ModelOpt
from patcomp.language.quantized.joining import joined, stacked, taken, transposed
from patcomp.language.quantized.reading import fill
from patcomp.language.quantized.weight import E2M1, StoredWeight, Unpacking

LEVELS = torch.tensor([*E2M1, *(-number for number in E2M1)])


def floats(stored: Any) -> Tensor:
    """The weight as the model computes with it, the inputs in the model's order."""
    made = Unpacking(stored, torch.float32, "w")()
    return made if stored.order is None else made[:, stored.order.argsort()]


def described(form: type[Format], method: str, **entries: Any) -> Format:
    found = form.of({"quantization_config": {"quant_method": method, **entries}})
    assert found is not None
    return found


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


# ---- weights that are one in the model ------------------------------------------------------------------


def _weights(count: int) -> list[StoredWeight]:
    """Of one shape, in the forms that GPTQ gives: signed, with zero points, with offsets."""
    made = []
    for number in range(count):
        data, scale = torch.randint(0, 16, (6, 8)).to(torch.uint8), torch.rand(6, 2) + 0.5
        zero = torch.randint(0, 16, (6, 2)).to(torch.uint8)
        made.append([
            StoredWeight((data.to(torch.int16) - 8).to(torch.int8), 4, scale), StoredWeight(data, 4, scale, zero),
            StoredWeight(data, 4, scale, offset=-scale * 16),
        ][number % 3])  # fmt: skip
    return made


@pytest.mark.parametrize("count", [1, 2, 3])
def test_weights_of_several_forms_are_joined(count: int) -> None:
    torch.manual_seed(count)
    weights = _weights(count)
    wanted = [floats(weight) for weight in weights]
    close = {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(floats(stacked(weights)), torch.stack(wanted), **close)
    torch.testing.assert_close(floats(joined(weights, 0)), torch.cat(wanted), **close)
    torch.testing.assert_close(floats(transposed(stacked(weights))), torch.stack(wanted).mT, **close)
    order = torch.tensor([3, 1, 5, 0])
    torch.testing.assert_close(floats(taken(weights[0], 0, order)), wanted[0][order], **close)
    with pytest.raises(LanguageModelError, match="some of the weights that are one in the model are floats"):
        stacked([*weights, torch.ones(6, 8)])


def test_blocks_of_several_sizes_are_joined() -> None:
    data = torch.randint(-8, 8, (6, 8)).to(torch.int8)
    weights = [StoredWeight(data, 4, torch.rand(3, 2)), StoredWeight(data[:4], 4, torch.rand(2, 2))]
    made = joined(weights, 0)
    assert torch.equal(floats(made), torch.cat([floats(weight) for weight in weights]))
    assert made.parameters["scale"].shape == (5, 2)
    one = StoredWeight(data.to(torch.float8_e4m3fn), 8, torch.ones(1, 1))
    assert torch.equal(floats(joined([one, one], 1)), torch.cat([data, data], 1).float())


def test_other_orders_of_inputs_are_not_joined() -> None:
    first, second = (
        StoredWeight(torch.ones(2, 4, dtype=torch.int8), 4, torch.ones(2, 1), order=torch.tensor(order))
        for order in ([3, 1, 2, 0], [0, 2, 1, 3])
    )
    assert torch.equal(joined([first, first], 0).order, first.order)  # type: ignore[union-attr, arg-type]
    for join in (lambda: joined([first, second], 0), lambda: stacked([first, first])):
        with pytest.raises(LanguageModelError, match="in different orders"):
            join()


def _mixture(kind: str) -> Any:
    import transformers

    config = {
        "mixtral": transformers.MixtralConfig, "qwen3_moe": transformers.Qwen3MoeConfig,
        "gpt_oss": transformers.GptOssConfig,
    }[kind](
        hidden_size=16, intermediate_size=8, moe_intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, head_dim=16, vocab_size=12, num_experts=2, num_local_experts=2, num_experts_per_tok=1,
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config).eval()


@pytest.mark.parametrize(("kind", "names"), [
    ("mixtral", ("block_sparse_moe.experts.{}.w1", "block_sparse_moe.experts.{}.w3", "block_sparse_moe.experts.{}.w2")),
    ("qwen3_moe", ("mlp.experts.{}.gate_proj", "mlp.experts.{}.up_proj", "mlp.experts.{}.down_proj")),
    ("mixtral", ("block_sparse_moe.switch_mlp.gate_proj", "block_sparse_moe.switch_mlp.up_proj",
                 "block_sparse_moe.switch_mlp.down_proj")),
    ("gpt_oss", ("mlp.experts.gate_proj", "mlp.experts.up_proj", "mlp.experts.down_proj")),
])  # fmt: skip
def test_experts_are_joined_as_the_model_wants_them(kind: str, names: tuple[str, str, str]) -> None:
    wanted = _mixture(kind)
    layer, own = "model.layers.0", wanted.state_dict()
    for key in ("gate_up_proj", "down_proj"):  # small numbers, which float8 has
        own[f"{layer}.mlp.experts.{key}"].copy_(torch.randint(-8, 9, own[f"{layer}.mlp.experts.{key}"].shape) / 8)
    experts = {key: own.pop(f"{layer}.mlp.experts.{key}") for key in ("gate_up_proj", "down_proj")}
    if kind == "gpt_oss":
        both, down = (experts[key].mT for key in ("gate_up_proj", "down_proj"))
        parts = [both[:, ::2], both[:, 1::2], down]
        bias = own.pop(f"{layer}.mlp.experts.gate_up_proj_bias").normal_()
        own[f"{layer}.mlp.experts.gate_proj.bias"], own[f"{layer}.mlp.experts.up_proj.bias"] = (
            bias[:, ::2],
            bias[:, 1::2],
        )
        own[f"{layer}.mlp.experts.down_proj.bias"] = own.pop(f"{layer}.mlp.experts.down_proj_bias")
        wanted.model.layers[0].mlp.experts.gate_up_proj_bias.data.copy_(bias)
    else:
        parts = [*experts["gate_up_proj"].chunk(2, 1), experts["down_proj"]]
    weights: dict[str, Any] = {name: (lambda value=value: value) for name, value in own.items()}
    for name, part in zip(names, parts, strict=True):
        for number in range(2) if "{}" in name else [None]:
            data = (part if number is None else part[number]).contiguous().to(torch.float8_e4m3fn)
            stored = StoredWeight(data, 8, torch.ones([1] * data.dim()))
            weights[f"{layer}.{name.format(number)}.weight"] = lambda stored=stored: stored
    made = _mixture(kind)
    with torch.device("meta"):
        for module in made.modules():
            for key, parameter in [*module.named_parameters(recurse=False)]:
                setattr(module, key, nn.Parameter(torch.empty_like(parameter, device="meta")))
    fill(made, "here", described(Float8, "fp8"), weights, torch.float32)
    tokens = torch.tensor([[3, 1, 4, 1, 5]])
    assert torch.equal(made(tokens).logits, wanted(tokens).logits)
    assert not [name for name, _ in made.named_parameters() if name.endswith("experts.gate_up_proj")]


class _Experts(nn.Module):
    """Two experts for each token, as transformers computes them, with weights of 4 bits."""

    def __init__(self) -> None:
        super().__init__()
        both = StoredWeight(torch.randint(-8, 8, (3, 16, 8)).to(torch.int8), 4, torch.rand(3, 16, 2))
        down = StoredWeight(torch.randint(-8, 8, (3, 8, 8)).to(torch.int8), 4, torch.rand(3, 4, 1))
        self.both, self.down = (Unpacking(weight, torch.float32, "w") for weight in (both, down))

    def forward(self, x: Tensor, scores: Tensor) -> Tensor:
        weights, choices = scores.topk(2, -1)
        expert = choices.reshape(-1)
        gate, up = torch.bmm(self.both()[expert], x.repeat_interleave(2, 0).unsqueeze(-1)).squeeze(-1).chunk(2, -1)
        out = torch.bmm(self.down()[expert], (nn.functional.silu(gate) * up).unsqueeze(-1)).squeeze(-1)
        return (out * weights.reshape(-1, 1)).view(x.shape[0], 2, 8).sum(1)


def test_experts_in_few_bits_have_the_form_of_the_gpu() -> None:
    from patcomp import TorchConverter, export

    torch.manual_seed(0)
    model, inputs = _Experts().eval(), (torch.randn(4, 8), torch.randn(4, 3))
    tokens = torch.export.Dim("tokens", min=2, max=64)
    exported = export(model, inputs, dynamic_shapes=({0: tokens}, {0: tokens}))
    program = TorchConverter().add_exported_program(exported, ["x", "scores"], ["y"]).to_coreai(target="gpu")
    assert str(program).count("coreai.invoke @gather_mm") == 3  # gate, up, down; none for gate and up together
    made = program.run({"x": inputs[0], "scores": inputs[1]})["y"]
    torch.testing.assert_close(torch.as_tensor(made), model(*inputs), rtol=1e-5, atol=1e-5)


def test_weights_do_not_stay_unpacked_after_a_conversion() -> None:
    from patcomp import TorchConverter, export
    from patcomp.evaluate.machine import _CONSTANTS

    class Linear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            data = torch.randint(-8, 8, (32, 64)).to(torch.int8)
            self.weight = Unpacking(StoredWeight(data, 4, torch.rand(32, 2)), torch.float32, "w")

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.weight().T

    exported = export(Linear().eval(), (torch.randn(2, 64),))
    program = TorchConverter().add_exported_program(exported).to_coreai(target="gpu")
    assert program.module.blobs
    assert 32 * 64 not in [tensor.numel() for _, tensor in _CONSTANTS.get(program.module, {}).values()]
