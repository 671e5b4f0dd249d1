"""States that nested blocks read: the blocks read a copy.

The runtime aborts if a handle is written while a nested block still refers to its content.
"""

from __future__ import annotations

from collections.abc import Sequence

from patcomp.defects.copies import NESTING, copy_of
from patcomp.defects.defect import Defect, Probe
from patcomp.ir.module import IRModule, callee
from patcomp.ir.traits import View
from patcomp.ir.xdsl import Operation, SSAValue, is_inside, ops_inside
from patcomp.patterns.statistics import Statistics


def own_captured_states(module: IRModule, statistics: Statistics) -> None:
    """Insert copies of the states that nested blocks, or called graphs with nested blocks, read from outside."""
    for op in ops_inside(module.op):
        if op.name == "coreai.invoke":
            if any(map(_is_state, op.operands)) and _has_blocks(op, module):
                _copy(op, [op], module, statistics)
        elif op.name in NESTING:
            _copy(op, ops_inside(op), module, statistics)


def _copy(op: Operation, users: Sequence[Operation], module: IRModule, statistics: Statistics) -> None:
    """Insert copies before an op of the outside states that its nested blocks, or a called graph, read."""
    copies: dict[SSAValue, SSAValue] = {}
    for user in users:
        for index, operand in enumerate(user.operands):
            if _is_state(operand) and not is_inside(operand, op):
                if operand not in copies:
                    copies[operand] = copy_of(operand, op, module)
                    statistics.record("own captured state", True, 0.0)
                user.operands[index] = copies[operand]


def _has_blocks(invoke: Operation, module: IRModule) -> bool:
    """Whether a called graph, or one that it calls, has branches or loops."""
    called = module.graph(callee(invoke))
    return any(
        op.name in NESTING or (op.name == "coreai.invoke" and _has_blocks(op, module)) for op in ops_inside(called)
    )  # fmt: skip


def _is_state(value: SSAValue) -> bool:
    """Whether a value is the memory of a handle, or a view of it."""
    op = value.owner
    if not isinstance(op, Operation):
        return False
    return op.name == "coreai.read_handle" or (op.has_trait(View) and _is_state(op.operands[0]))


DEFECT = Defect(
    name="captured_states",
    says="The runtime aborts if a state is written that a branch or a loop has read.",
    mend=own_captured_states,
    ops=("coreai.read_handle",),
    after=("repeated_in_loops",),  # a loop no longer reads the states of what moves in front of it
    probes=(
        Probe(
            program="""
coreai.graph @main(%h: !coreai.handle<tensor<2xf32>> {coreai.name = "h"}, %x: tensor<2xf32> {coreai.name = "x"},
    %c: tensor<i1> {coreai.name = "c"})
    -> (!coreai.token {coreai.name = "h"}, tensor<2xf32> {coreai.name = "y"}) {
  %start = coreai.create_token : !coreai.token
  %old, %read = coreai.read_handle %h, %start : (<tensor<2xf32>>, !coreai.token) -> (tensor<2xf32>, !coreai.token)
  %y = coreai.if %c {
    %a = coreai.add %x, %old : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    coreai.yield %a : tensor<2xf32>
  } else {
    %b = coreai.exp %x : tensor<2xf32> -> tensor<2xf32>
    coreai.yield %b : tensor<2xf32>
  } : tensor<i1> -> tensor<2xf32>
  %written = coreai.write_handle %h, %y, %read : (<tensor<2xf32>>, tensor<2xf32>, !coreai.token) -> !coreai.token
  coreai.output %written, %y : !coreai.token, tensor<2xf32>
}
""",
            inputs={"x": [1, 2], "c": True},
            gives={"y": [4, 6]},
            symptom="dies",
            states={"h": [3, 4]},
        ),
    ),
)
