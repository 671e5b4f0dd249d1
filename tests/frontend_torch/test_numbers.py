"""Sizes as inputs and outputs: Python numbers that differ from run to run."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

import patcomp
from patcomp import EvaluationError, TorchConverter
from patcomp.emit.native import Native
from tests.frontend_torch.models import assert_same, converted, run_on


class Counted(nn.Module):
    """A number as an input, sizes and conditions as outputs, an input's size that is the number's double."""

    def forward(self, x: torch.Tensor, n: int, y: dict[str, torch.Tensor]) -> Any:
        size = x.shape[0] * n
        cut = y["first"][:, :n].sum(1) * n
        return {"size": size, "large": size > 5, "half": n / 2, "n": n, "same": x.repeat(n, 1), "cut": (cut, 3)}


SHAPES = {
    "x": {0: Dim("batch", min=1, max=16)},
    "n": Dim.DYNAMIC(min=1, max=9),
    "y": {"first": {0: Dim("rows", min=1)}},
}


def inputs(batch: int, n: int, rows: int) -> tuple[Any, ...]:
    return torch.randn(batch, 4), n, {"first": torch.randn(rows, 20)}


def test_numbers_in_and_out(native: Native) -> None:
    model = Counted()
    program = converted(model, inputs(3, 2, 5), SHAPES)
    assert str(program.signature()).count("si32") == 3
    for sizes in ((3, 2, 5), (1, 9, 1), (16, 5, 2)):
        args = inputs(*sizes)
        assert_same(program.run(*args), model(*args))
        assert_same(run_on(native, program, args), model(*args))
    assert program.verify_against(model, inputs(4, 3, 7), backends=["evaluator"]).passed


def test_numbers_by_name() -> None:
    program = converted(Counted(), inputs(3, 2, 5), SHAPES, input_names=["a", "count", "b"])
    outputs = program.run({"a": torch.randn(3, 4), "count": torch.tensor(4), "b": torch.randn(2, 20)})
    assert [v.tolist() for name, v in outputs.items() if v.ndim == 0] == [12, True, 2.0, 4]
    with pytest.raises(EvaluationError, match=r"'count' must be of dtype int32, got float32"):
        program.run(torch.randn(3, 4), 2.5, {"first": torch.randn(2, 20)})


FIXED_BY_THE_EXPORT: dict[str, Callable[..., Any]] = {
    "a number that export proves": lambda x, n: (x.shape[1], x[:, :2].shape[1], x * n),
    "a number that is another's size": lambda x, n: (x + torch.ones(n, 1), n),
}


@pytest.mark.parametrize("name", FIXED_BY_THE_EXPORT)
def test_numbers_that_are_known(name: str, native: Native) -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor, n: int) -> Any:
            return FIXED_BY_THE_EXPORT[name](x, n)

    program = converted(Model(), (torch.randn(3, 4), 3), {"x": {0: Dim.AUTO}, "n": Dim.AUTO})
    for size in (3, 6):
        args = torch.randn(size, 4), size
        assert_same(program.run(*args), Model()(*args))
        assert_same(run_on(native, program, args), Model()(*args))


class Halved(nn.Module):
    """Sizes by way of tensors of constants, whose numbers export reads itself: the reads stay as dead nodes."""

    def __init__(self, writes: bool):
        super().__init__()
        self.writes = writes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = torch.div(x.shape[1], 2, rounding_mode="trunc")
        y = x.view(x.shape[0], count, 2) * 1
        return y.add_(1) if self.writes else y


@pytest.mark.parametrize("form", ["straight", "decomposed", "saved"])
@pytest.mark.parametrize("writes", [False, True])
def test_dead_reads_of_constants(form: str, writes: bool) -> None:
    model, x = Halved(writes), torch.randn(2, 6)
    exported = torch.export.export(model, (x,), strict=False)
    assert any(str(node.target) == "aten.item.default" and not node.users for node in exported.graph.nodes)
    if form == "decomposed":
        exported = exported.run_decompositions()
    elif form == "saved":
        file = io.BytesIO()
        torch.export.save(
            patcomp.export(model, (x,)), file
        )  # PyTorch itself cannot load what it saves with a dead read
        exported = torch.export.load(io.BytesIO(file.getvalue()))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    program.verify_against(model, (x,), backends=["evaluator"]).check()
