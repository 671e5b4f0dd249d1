"""Weights in a stored form: transposed and joined as they are stored, with the same numbers, and stored once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from patcomp import AIProgram, TorchConverter
from patcomp.compression.scheme import is_unpacking
from patcomp.emit.native import Native
from patcomp.ir.weights import stored_weights
from patcomp.ir.xdsl import ops_inside

UNPACKED = {
    "block": lambda weight: torch.ops.coreai.constexpr_blockwise_shift_scale(
        weight.data, weight.scales, zero_point=weight.zeros, input_dtype=torch.int4
    ),
    "offset": lambda weight: torch.ops.coreai.constexpr_blockwise_shift_scale(
        weight.data, weight.scales, minval=weight.offsets, input_dtype=torch.int8
    ),
    "table": lambda weight: torch.ops.coreai.lut_to_dense(weight.indices, weight.tables, 0),
    "pairs": lambda weight: torch.ops.coreai.lut_to_dense(weight.pairs, weight.entries, 0),
    "scaled table": lambda weight: torch.ops.coreai.constexpr_blockwise_shift_scale(
        torch.ops.coreai.lut_to_dense(weight.indices, weight.tables, 0), weight.scales
    ),
    "stored scale": lambda weight: torch.ops.coreai.constexpr_blockwise_shift_scale(
        weight.data,
        torch.ops.coreai.constexpr_blockwise_shift_scale(weight.levels, weight.scales[:, :1].contiguous()),
        input_dtype=torch.int4,
    ),
    "slice": lambda weight: torch.ops.quantized_decomposed.dequantize_per_channel(
        weight.data, weight.scales[:, 0].contiguous(), weight.none, 0, -128, 127, torch.int8
    ),
}


class Weight(nn.Module):
    """A weight of `rows` x `columns` in one of several stored forms."""

    def __init__(self, rows: int, columns: int, kind: str, blocks: int = 2):
        super().__init__()
        self.unpack: Callable[[Weight], Tensor] = UNPACKED[kind]

        def drawn(low: int, high: int, *sizes: int, dtype: torch.dtype = torch.int8) -> Tensor:
            return torch.randint(low, high, sizes, dtype=dtype)

        for name, value in {
            "data": drawn(-8, 8, rows, columns),
            "scales": 0.1 + torch.rand(rows, blocks),
            "offsets": torch.randn(rows, blocks),
            "zeros": drawn(-3, 3, rows, blocks),
            "none": torch.zeros(rows, dtype=torch.int64),
            "levels": drawn(1, 60, rows, blocks),
            "indices": drawn(0, 16, rows, columns, dtype=torch.uint8),
            "tables": torch.randn(rows // 2, 1, 16, 1),
            "pairs": drawn(0, 4, rows // 2, columns, dtype=torch.uint8),
            "entries": torch.randn(1, 1, 4, 2),
        }.items():
            self.register_buffer(name, value)

    def forward(self) -> Tensor:
        return self.unpack(self)


class Products(nn.Module):
    """Self-attention, whose three products read one input, and a last product."""

    def __init__(self, kind: str, keys: int = 1):
        super().__init__()
        torch.manual_seed(0)
        self.query, self.key, self.value = (Weight(8 * count, 32, kind) for count in (4, keys, keys))
        self.last = Weight(16, 32, kind)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            functional.linear(x, weight()).view(1, x.shape[1], -1, 8).transpose(1, 2)
            for weight in (self.query, self.key, self.value)
        )
        y = functional.scaled_dot_product_attention(query, key, value, enable_gqa=True)
        return functional.linear(y.transpose(1, 2).flatten(2), self.last())


def converted(model: nn.Module, *inputs: Tensor, target: Any = "gpu") -> AIProgram:
    return TorchConverter().add_exported_program(torch.export.export(model.eval(), inputs)).to_coreai(target=target)


def moved_weights(program: AIProgram) -> list[str]:
    """The ops on unpacked weights that are no products."""
    return [
        use.operation.name
        for op in ops_inside(program.module.op)
        if is_unpacking(op)
        for use in op.results[0].uses
        if "matmul" not in use.operation.name and not is_unpacking(use.operation)
    ]


@pytest.mark.parametrize("kind", UNPACKED)
@pytest.mark.parametrize("keys", [1, 4])
def test_attention_has_two_products_of_stored_weights(kind: str, keys: int) -> None:
    model, x = Products(kind, keys), torch.randn(1, 5, 32)
    program = converted(model, x)
    assert str(program).split("coreai.graph @main")[1].count("broadcasting_batch_matmul") == 2
    assert moved_weights(program) == []
    program.verify_against(model, (x,), backends=["evaluator"]).check()


def test_runs(native: Native) -> None:
    for kind in UNPACKED:
        model, x = Products(kind), torch.randn(1, 5, 32)
        program = converted(model, x)
        (made,) = native.run(program.module, {"x": x.numpy()}).values()
        torch.testing.assert_close(torch.from_numpy(made), model(x), rtol=1e-4, atol=1e-4)


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(sorted(UNPACKED)), st.sampled_from([2, 4, 6]), st.sampled_from([2, 4, 8]), st.data())
def test_any_order_of_axes(kind: str, rows: int, columns: int, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(3)))
    weight = Weight(rows, columns * 8, kind, data.draw(st.sampled_from([1, 2, columns])))

    class Moved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, x: Tensor) -> Tensor:
            return x * self.weight()[:, None].permute(order)

    x = torch.randn(1)
    program = converted(Moved(), x)
    assert moved_weights(program) == ["coreai.decomposable.broadcasting_mul"]
    program.verify_against(Moved(), (x,), backends=["evaluator"]).check()


class Tied(nn.Module):
    """A table of embeddings that is the head, too."""

    def __init__(self, kind: str | None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = Weight(2048, 256, kind, 8) if kind else None
        self.floats = None if kind else nn.Parameter(torch.randn(2048, 256))

    def forward(self, tokens: Tensor) -> Tensor:
        weight = self.floats if self.weight is None else self.weight()
        assert weight is not None
        return functional.linear(functional.embedding(tokens, weight), weight)


@pytest.mark.parametrize(
    ("kind", "target", "times"),
    [(None, "gpu", 1), (None, "cpu", 2), ("block", "gpu", 1), ("table", "neural_engine", 1)],
)
def test_a_head_that_is_the_table_of_embeddings_is_stored_once(kind: str | None, target: str, times: int) -> None:
    model, tokens = Tied(kind), torch.arange(3)[None]
    program = converted(model, tokens, target=target)
    large = [weight for weight in stored_weights(program.module) if weight.shape in ((2048, 256), (256, 2048))]
    assert len(large) == times
    if target != "neural_engine":  # it computes in float16
        program.verify_against(model, (tokens,), backends=["evaluator"]).check()
