"""Branches of the same ops: one gets a copy, so that the toolchain does not merge them.

It merges the two branches of a `coreai.if` where they are the same ops, and gives what differs, such as constants and
values from outside, to the one that remains. If a result has a dynamic size, the runtime then takes the values of the
first branch, whatever the condition is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from patcomp.defects.copies import copy_of, is_copy
from patcomp.defects.defect import Defect, Probe
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.module import IRModule
from patcomp.ir.types import is_open
from patcomp.ir.xdsl import Operation, Region, ops_inside
from patcomp.patterns.statistics import Statistics


def are_merged(branches: Operation) -> bool:
    """Whether the branches of a `coreai.if` with a result of dynamic size are the same ops.

    The toolchain merges more branches than these, because it first inlines composites; the mend does not rely on this.
    """
    first, second = branches.regions
    return has_open_result(branches) and _ops(first) == _ops(second)


def has_open_result(branches: Operation) -> bool:
    """Whether a `coreai.if` has a result of dynamic size."""
    return any(is_open(result.type) for result in branches.results)


def count_ops(branch: Region) -> int:
    """How many ops a branch has, with those of nested blocks and without constants."""
    return len(_ops(branch))


def _ops(branch: Region) -> list[Any]:
    ops = (op for op in ops_inside(branch) if op.name != "coreai.constant")
    return [(op.name, op.properties, [result.type for result in op.results]) for op in ops]


def tell_branches_apart(module: IRModule, statistics: Statistics) -> None:
    """Insert a copy of a result at the end of one branch of each `coreai.if` that the toolchain might merge.

    The branch of more ops gets the copy: the other one may end in such an op itself, `relu(x)` beside `x`.
    """
    for branches in ops_inside(module.op):
        if branches.name != "coreai.if" or not has_open_result(branches):
            continue
        last = max(branches.regions, key=count_ops).block.last_op
        assert last is not None
        index, value = next((index, value) for index, value in enumerate(last.operands) if is_open(value.type))
        if is_copy(value, last) and not are_merged(branches):
            continue  # the program was optimized before
        last.operands[index] = copy_of(value, last, module)
        statistics.record("own branch result", True, 0.0)


def _detect(branches: CoreaiOp, module: IRModule) -> Iterator[str]:
    if branches.regions[1].blocks and branches.results and are_merged(branches):
        yield (
            "the toolchain merges its branches, which are the same ops, and the runtime then takes the values of the "
            "first in any case; yield a copy in one branch, the maximum of the value and itself"
        )


DEFECT = Defect(
    name="merged_branches",
    says="The toolchain merges branches of the same ops, and then takes the values of the first for any condition.",
    detect={"coreai.if": _detect},
    mend=tell_branches_apart,
    ops=("coreai.if",),
    after=("choices_of_outside_values",),  # free
    probes=(
        Probe(
            program="""
coreai.graph @main(%x: tensor<?xf32> {coreai.name = "x"})
    -> (tensor<?xf32> {coreai.name = "y"}) {
  %zero = coreai.constant dense<0> : tensor<1xsi32>
  %one = coreai.constant dense<1> : tensor<1xsi32>
  %first = coreai.slice %x, %zero, %one, %one
    : (tensor<?xf32>, tensor<1xsi32>, tensor<1xsi32>, tensor<1xsi32>) -> tensor<1xf32>
  %scalar = coreai.constant dense<> : tensor<0xsi32>
  %number = coreai.reshape %first, %scalar : (tensor<1xf32>, tensor<0xsi32>) -> tensor<f32>
  %limit = coreai.constant dense<0.0> : tensor<f32>
  %c = coreai.greater %number, %limit : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %y = coreai.if %c {
    %three = coreai.constant dense<3.0> : tensor<f32>
    %a = coreai.decomposable.broadcasting_mul %x, %three : (tensor<?xf32>, tensor<f32>) -> tensor<?xf32>
    coreai.yield %a : tensor<?xf32>
  } else {
    %two = coreai.constant dense<2.0> : tensor<f32>
    %b = coreai.decomposable.broadcasting_mul %x, %two : (tensor<?xf32>, tensor<f32>) -> tensor<?xf32>
    coreai.yield %b : tensor<?xf32>
  } : tensor<i1> -> tensor<?xf32>
  coreai.output %y : tensor<?xf32>
}
""",
            inputs={"x": [-1, 2]},
            gives={"y": [-2, 4]},
            symptom="is wrong",
        ),
    ),
)
