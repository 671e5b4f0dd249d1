"""The light tracer records what PyTorch's own tracer records, or leaves the function to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.nn import functional as F  # noqa: N812

from patcomp import TorchConverter
from patcomp.frontend_torch.decomposition import decompose
from patcomp.frontend_torch.decomposition.decompose import Decomposer
from patcomp.frontend_torch.decomposition.recording import NotRecordedError, recorded
from patcomp.pytorch import FakeTensorMode, pytree
from tests.frontend_torch.models import Function
from tests.operators.samples import name_of, operators, samples

OPERATORS = operators(torch.float32)


def described(graph: GraphModule | None) -> list[tuple[str | None, str]]:
    """The nodes of a graph with the types of their results."""

    def type_of(value: Tensor) -> Any:
        return value.dtype, tuple(value.shape), value.stride(), value.device

    nodes = () if graph is None else graph.graph.nodes
    return [(n.format_node(), str(pytree.tree_map_only(Tensor, type_of, n.meta.get("val")))) for n in nodes]


def expansions(program: ExportedProgram) -> dict[str, list[tuple[str | None, str]]]:
    """The graphs of a program's nodes, traced anew."""
    converter = TorchConverter()
    found, *_ = Decomposer(converter.rules, converter.lowerings).expansions(program)
    return {node.name: described(graph) for node, graph in found.items()}


def check(program: ExportedProgram, monkeypatch: pytest.MonkeyPatch) -> int:
    """Compare both tracers, and return how many nodes were left to PyTorch's tracer."""
    left = 0

    def counted(*args: Any) -> GraphModule:
        nonlocal left
        try:
            return recorded(*args)
        except NotRecordedError:
            left += 1
            raise

    def refused(*args: Any) -> GraphModule:
        raise NotRecordedError("a test")

    monkeypatch.setattr(decompose, "recorded", counted)
    light = expansions(program)
    monkeypatch.setattr(decompose, "recorded", refused)
    assert light == expansions(program)
    return left


OTHER_SPELLING = {"addbmm", "matrix_exp", "nn.functional.binary_cross_entropy_with_logits"}
"""Ops whose kernels in C++ are recorded, where PyTorch's tracer takes its formulas in Python; both are right."""

IMAGE, MATRIX = torch.ones(1, 4, 6, 6), torch.ones(3, 4)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: F.conv2d(x, torch.ones(8, 2, 3, 3), stride=2, padding="valid", groups=2), id="conv2d"),
        pytest.param(lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4)), id="batch_norm"),
        pytest.param(lambda x: F.layer_norm(x, (6,)), id="layer_norm"),
        pytest.param(lambda x: F.group_norm(x, 2), id="group_norm"),
        pytest.param(lambda x: F.linear(x.transpose(2, 3), torch.ones(5, 6), torch.ones(5)), id="linear"),
        pytest.param(lambda x: x.diff(dim=-1), id="several ops"),
        pytest.param(lambda x: x.chunk(2, 1)[1], id="several results, one used"),
        pytest.param(lambda x: x.new_zeros(3).to(torch.int32), id="no tensor among the arguments"),
        pytest.param(lambda x: F.glu(x, 1), id="an op made of ops made of ops"),
    ],
)
def test_records_what_pytorch_traces(function: Callable[[Tensor], object], monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.no_grad():
        assert check(torch.export.export(Function(function), (IMAGE,)), monkeypatch) == 0


def test_an_op_that_returns_its_argument_records_nothing() -> None:
    """PyTorch's tracer records a copy of it."""
    with torch.no_grad():
        program = torch.export.export(Function(lambda x: F.dropout(x, training=False) + 1), (IMAGE,))
    assert [node for node, _ in expansions(program)["dropout"]][1:] == ["return arg0_1"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "op", [pytest.param(op, marks=() if index % 40 == 7 else pytest.mark.slow) for index, op in enumerate(OPERATORS)],
    ids=name_of,
)  # fmt: skip
def test_records_what_pytorch_traces_of_its_samples(op: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if name_of(op) in OTHER_SPELLING:
        pytest.skip("recorded in another spelling")
    for sample in samples(op, torch.float32, limit=2):
        try:
            program = torch.export.export(sample.program, sample.program.tensors, strict=False)
        except Exception as error:  # PyTorch's exporter raises whatever its tracers raise
            pytest.skip(f"PyTorch does not export the sample: {type(error).__name__}")
        check(program, monkeypatch)


def _doubled(x: Tensor) -> Tensor:
    y = x.clone()
    y.mul_(2)
    return y


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (_doubled, "mul_"),
        (lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]), "not made of tensors|unknown origin|constant"),
        (lambda x: x * MATRIX, "unknown origin"),
    ],
    ids=["writes in place", "a tensor of numbers", "a tensor from elsewhere"],
)
def test_leaves_the_rest_to_pytorch(function: Callable[[Tensor], Tensor], reason: str) -> None:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode, pytest.raises(NotRecordedError, match=reason):
        recorded(function, [mode.from_tensor(MATRIX)], {})
