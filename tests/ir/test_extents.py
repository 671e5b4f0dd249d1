"""Which dynamic sizes are known to be equal, on IR text."""

from __future__ import annotations

import pytest

from patcomp.ir.extents import drop_notes, extents, extents_of
from patcomp.ir.module import IRModule
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation

HEAD = """coreai.graph @main(
  %x: tensor<?x4x?x8xf32> {coreai.name = "x", patcomp.sizes = ["s0", "", "s1", ""]},
  %y: tensor<?x4x?x8xf32> {coreai.name = "y", patcomp.sizes = ["s0", "", "", ""]},
  %n: tensor<si64> {coreai.name = "n"}) -> (tensor<?x?xf32> {coreai.name = "z"}) {
    %b = aten.sym_size.int %x, dim = 0 : (tensor<?x4x?x8xf32>) -> tensor<si64>
    %l = aten.sym_size.int %x, dim = 2 : (tensor<?x4x?x8xf32>) -> tensor<si64>
    %four = coreai.constant dense<4> : tensor<si64>
    %rows = aten.mul.Tensor %four, %b : (tensor<si64>, tensor<si64>) -> tensor<si64>
"""
TAIL = """
    coreai.output %z : tensor<?x?xf32>
  }
"""

VIEW = "aten.view %x, size = [{}, {}] : (tensor<?x4x?x8xf32>, tensor<si64>, tensor<si64>) -> tensor<?x?xf32>"


def _ops(lines: str) -> tuple[IRModule, dict[str, Operation]]:
    module = IRModule.parse(f"module {{\n{HEAD}{lines}{TAIL}}}")
    graph = module.graph("main")
    return module, {result.name_hint or "": op for op in graph.walk() for result in op.results}


def _result(ops: dict[str, Operation], name: str) -> Value:
    return Value(ops[name].results[0])


SAME = {
    "a view has the sizes that it was given": (
        f"%z = {VIEW.format('%rows', '%l')}",
        "z",
        ["%rows", "%l"],
    ),
    "products are the same in any order": (
        "%again = aten.mul.Tensor %b, %four : (tensor<si64>, tensor<si64>) -> tensor<si64>\n"
        f"%z = {VIEW.format('%again', '%l')}",
        "z",
        ["%rows", "%l"],
    ),
    "arguments of one size": (
        f"%c = aten.sym_size.int %y, dim = 0 : (tensor<?x4x?x8xf32>) -> tensor<si64>\n%z = {VIEW.format('%c', '%l')}",
        "z",
        ["%b", "%l"],
    ),
    "axes that are permuted and summed": (
        "%p = aten.permute %x, dims = [2, 0, 1, 3] : (tensor<?x4x?x8xf32>) -> tensor<?x?x4x8xf32>\n"
        "%s = aten.select.int %p, dim = 3, index = 0 : (tensor<?x?x4x8xf32>) -> tensor<?x?x4xf32>\n"
        "%z = aten.sum.dim_IntList %s, dim = [2], keepdim = false : (tensor<?x?x4xf32>) -> tensor<?x?xf32>",
        "s",
        ["%l", "%b", 4],
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_sizes_that_are_the_same(name: str) -> None:
    lines, value, sizes = SAME[name]
    _, ops = _ops(lines)
    wanted = [_result(ops, size[1:]) if isinstance(size, str) else size for size in sizes]
    assert extents(_result(ops, value)) == extents_of(wanted)


def test_sizes_that_may_differ() -> None:
    lines = (
        f"%c = aten.sym_size.int %y, dim = 2 : (tensor<?x4x?x8xf32>) -> tensor<si64>\n%z = {VIEW.format('%b', '%l')}"
    )
    _, ops = _ops(lines)
    batch, length, other = (_result(ops, name) for name in ("b", "l", "c"))
    assert len({*extents_of([batch, length, other])}) == 3
    assert extents_of([-1]) != extents_of([-1]), "what is left of one tensor is not what is left of another"


def test_the_names_of_sizes_are_dropped() -> None:
    module, _ = _ops(f"%z = {VIEW.format('%rows', '%l')}")
    drop_notes(module.graph("main"))
    assert "patcomp.sizes" not in module.text()
    assert 'coreai.name = "x"' in module.text()
