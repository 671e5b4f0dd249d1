"""One program for all sizes: networks with dynamic batch and length, and what they are with sizes fixed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from patcomp import AIProgram, TorchConverter, get_decomp_table
from patcomp.emit.native import Native
from patcomp.torchvision import declare_operators
from tests.helpers.as_users_run import AS_USERS_RUN
from tests.helpers.workers import in_one_worker

pytestmark = AS_USERS_RUN

declare_operators()  # the models are imported below, where they are made

BATCH, LENGTH = Dim("batch", min=1, max=16), Dim("length", min=2, max=64)
LENGTHS = [(2, 7), (3, 5), (1, 12), (4, 2), (5, 33)]


class Bert(nn.Module):
    def __init__(self) -> None:
        from transformers import BertConfig, BertModel

        super().__init__()
        config = BertConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, vocab_size=100,
            max_position_embeddings=64, attn_implementation="eager",
        )  # fmt: skip
        self.model = BertModel(config)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> Any:
        output = self.model(input_ids=tokens, attention_mask=mask)
        return output.last_hidden_state, output.pooler_output


class Llama(nn.Module):
    def __init__(self) -> None:
        from transformers import LlamaConfig, LlamaForCausalLM

        super().__init__()
        config = LlamaConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64,
            vocab_size=100, max_position_embeddings=64, attn_implementation="sdpa",
        )  # fmt: skip
        self.model = LlamaForCausalLM(config)

    def forward(self, tokens: torch.Tensor) -> Any:
        return (self.model(input_ids=tokens, use_cache=False).logits,)


class ResNet(nn.Module):
    def __init__(self) -> None:
        from torchvision.models.resnet import BasicBlock, ResNet

        super().__init__()
        self.model = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10)

    def forward(self, image: torch.Tensor) -> Any:
        return (self.model(image),)


def _tokens(batch: int, length: int) -> torch.Tensor:
    return torch.randint(100, (batch, length))


def _masked(batch: int, length: int) -> tuple[torch.Tensor, ...]:
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[0, length // 2 + 1 :] = 0
    return _tokens(batch, length), mask


MODELS: dict[str, tuple[Callable[[], nn.Module], dict[str, Any], list[tuple[torch.Tensor, ...]]]] = {
    "bert": (
        Bert,
        {"tokens": {0: BATCH, 1: LENGTH}, "mask": {0: BATCH, 1: LENGTH}},
        [_masked(*size) for size in LENGTHS],
    ),
    "llama": (Llama, {"tokens": {0: BATCH, 1: LENGTH}}, [(_tokens(*size),) for size in LENGTHS]),
    "resnet": (
        ResNet,
        {"image": {0: BATCH, 2: 32 * Dim("rows", min=1, max=4), 3: 32 * Dim("columns", min=1, max=4)}},
        [(torch.randn(b, 3, h, w),) for b, h, w in ((2, 64, 64), (3, 64, 96), (1, 32, 64), (4, 96, 96), (5, 64, 32))],
    ),
}


def convert(model: nn.Module, args: tuple[torch.Tensor, ...], shapes: Any = None) -> AIProgram:
    exported = torch.export.export(model, args, dynamic_shapes=shapes, strict=False)
    exported = exported.run_decompositions(get_decomp_table())
    return TorchConverter().add_exported_program(exported).to_coreai()


@cache
def dynamic(name: str) -> tuple[nn.Module, AIProgram]:
    torch.manual_seed(0)
    make, shapes, calls = MODELS[name]
    model = make().eval()
    return model, convert(model, calls[0], shapes)


def check(model: nn.Module, program: AIProgram, args: tuple[torch.Tensor, ...], native: Native) -> None:
    with torch.no_grad():
        expected = model(*args)
    inputs = dict(zip(program.input_names(), (x.int() if x.dtype == torch.int64 else x for x in args), strict=True))
    for outputs in (program.run(inputs), native.run(program.module, inputs)):
        for name, wanted in zip(program.output_names(), expected, strict=True):
            torch.testing.assert_close(torch.as_tensor(outputs[name]), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", in_one_worker(MODELS))
def test_five_shapes(name: str, native: Native) -> None:
    model, program = dynamic(name)
    for args in MODELS[name][2]:
        check(model, program, args, native)


def ops(program: AIProgram) -> Counter[str]:
    """How often each op occurs; constants aside, of which equal ones may be one or several."""
    return Counter(op.name for graph in program.module.graphs for op in graph.walk() if op.name != "coreai.constant")


@pytest.mark.parametrize("name", in_one_worker(MODELS))
def test_with_all_sizes_fixed_it_is_the_static_program(name: str, native: Native) -> None:
    model, program = dynamic(name)
    args = MODELS[name][2][1]
    static = convert(model, args)
    assert program.composites == static.composites
    if name != "resnet":
        assert program.composites["scaled_dot_product_attention"] == 2
    fixed = program.specialize(_sizes(program, args))
    assert "?" not in str(fixed)
    assert ops(fixed) == ops(static)
    check(model, fixed, args, native)


@pytest.mark.xdist_group("llama")  # whose program it shares
def test_with_the_batch_fixed(native: Native) -> None:
    model, program = dynamic("llama")
    fixed = program.specialize({"batch": 3})
    assert fixed.signature().inputs[0].shape == (3, "length")
    check(model, fixed, MODELS["llama"][2][1], native)


def _sizes(program: AIProgram, args: tuple[torch.Tensor, ...]) -> dict[str, int]:
    values = dict(zip(program.input_names(), args, strict=True))
    dims = program.dims["main"]
    return dims.sizes({(name, axis): values[name].shape[axis] for name, axis in dims.extents if axis is not None})
