"""Weights of a checkpoint that are one in the model: joined, stacked and moved as they are stored; experts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from patcomp_models.checkpoints.quantized.formats.float8 import Float8
from patcomp_models.checkpoints.quantized.joining import joined_weights, stacked, taken, transposed_weight
from patcomp_models.checkpoints.quantized.reading import fill
from patcomp_models.checkpoints.quantized.weight import PackedWeight, Unpacking
from patcomp_models.errors import LanguageModelError
from tests.models.language.stored import described, floats


def _weights(count: int) -> list[PackedWeight]:
    """Of one shape, in the forms that GPTQ gives: signed, with zero points, with offsets."""
    made = []
    for number in range(count):
        data, scale = torch.randint(0, 16, (6, 8)).to(torch.uint8), torch.rand(6, 2) + 0.5
        zero = torch.randint(0, 16, (6, 2)).to(torch.uint8)
        made.append([
            PackedWeight((data.to(torch.int16) - 8).to(torch.int8), 4, scale), PackedWeight(data, 4, scale, zero),
            PackedWeight(data, 4, scale, offset=-scale * 16),
        ][number % 3])  # fmt: skip
    return made


@pytest.mark.parametrize("count", [1, 2, 3])
def test_weights_of_several_forms_are_joined(count: int) -> None:
    torch.manual_seed(count)
    weights = _weights(count)
    wanted = [floats(weight) for weight in weights]
    close = {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(floats(stacked(weights)), torch.stack(wanted), **close)
    torch.testing.assert_close(floats(joined_weights(weights, 0)), torch.cat(wanted), **close)
    torch.testing.assert_close(floats(transposed_weight(stacked(weights))), torch.stack(wanted).mT, **close)
    order = torch.tensor([3, 1, 5, 0])
    torch.testing.assert_close(floats(taken(weights[0], 0, order)), wanted[0][order], **close)
    with pytest.raises(LanguageModelError, match="some of the weights that are one in the model are floats"):
        stacked([*weights, torch.ones(6, 8)])


def test_blocks_of_several_sizes_are_joined() -> None:
    data = torch.randint(-8, 8, (6, 8)).to(torch.int8)
    weights = [PackedWeight(data, 4, torch.rand(3, 2)), PackedWeight(data[:4], 4, torch.rand(2, 2))]
    made = joined_weights(weights, 0)
    assert torch.equal(floats(made), torch.cat([floats(weight) for weight in weights]))
    assert made.parameters["scale"].shape == (5, 2)
    one = PackedWeight(data.to(torch.float8_e4m3fn), 8, torch.ones(1, 1))
    assert torch.equal(floats(joined_weights([one, one], 1)), torch.cat([data, data], 1).float())


def test_other_orders_of_inputs_are_not_joined() -> None:
    first, second = (
        PackedWeight(torch.ones(2, 4, dtype=torch.int8), 4, torch.ones(2, 1), order=torch.tensor(order))
        for order in ([3, 1, 2, 0], [0, 2, 1, 3])
    )
    assert torch.equal(joined_weights([first, first], 0).order, first.order)  # type: ignore[union-attr, arg-type]
    for join in (lambda: joined_weights([first, second], 0), lambda: stacked([first, first])):
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
            stored = PackedWeight(data, 8, torch.ones([1] * data.dim()))
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
        both = PackedWeight(torch.randint(-8, 8, (3, 16, 8)).to(torch.int8), 4, torch.rand(3, 16, 2))
        down = PackedWeight(torch.randint(-8, 8, (3, 8, 8)).to(torch.int8), 4, torch.rand(3, 4, 1))
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
            self.weight = Unpacking(PackedWeight(data, 4, torch.rand(32, 2)), torch.float32, "w")

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.weight().T

    exported = export(Linear().eval(), (torch.randn(2, 64),))
    program = TorchConverter().add_exported_program(exported).to_coreai(target="gpu")
    assert program.module.blobs
    assert 32 * 64 not in [tensor.numel() for _, tensor in _CONSTANTS.get(program.module, {}).values()]
