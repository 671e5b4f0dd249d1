"""Loop-carried values that share memory with other values, or that are read after the runtime has written over them.

The runtime carries values by reference and computes in place: the initial value of a loop may change while the loop
runs (even a constant, which other loops may share), and the result of a nested `if` or `while` is the same memory in
every iteration. So each initial value of a `coreai.while`, and each value that its body yields, must be the result of
an op with no other use. All others are copied.

The runtime keeps each value that a loop carries in one memory, where it also puts the next one. The runtime does not
see every read: a flip, a gather or a matrix product reads elements that it has just overwritten. With a `tile` or a
broadcast in between, an op may overwrite a value that a later op still reads. A counter that is read after a nested
loop may be lost, and its loop never ends. Values that the body computes itself are safe, so the body reads a copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from patcomp.defects.copies import NESTING, copy_of, is_made
from patcomp.defects.defect import Defect, Probe
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.module import IRModule
from patcomp.ir.traits import Elementwise
from patcomp.ir.xdsl import Block, BlockArgument, Operation, OpResult, SSAValue, TensorType, ops_inside
from patcomp.patterns.statistics import Statistics

_BLOCKS = {*NESTING, "coreai.invoke"}
"""Ops that may run nested blocks with carried values of their own."""


def read_unsafely(body: Block) -> Iterator[BlockArgument]:
    """The values carried by a loop that its body may read after they were written over.

    A value is safe if one op reads it, neither in a nested block nor after one, which is elementwise (a copy, for
    example) or updates elements of it.

    Args:
        body: the second block of a `coreai.while`.
    """
    at_first = set(takewhile(lambda op: op.name not in _BLOCKS, body.ops))
    for carried in body.args:
        uses = list(carried.uses)
        readers = {use.operation for use in uses}
        if not isinstance(carried.type, TensorType) or not readers - {body.last_op}:
            continue
        (reader, *others) = readers
        is_update = isinstance(reader, CoreaiOp) and bool(reader.ROW.updates) and [use.index for use in uses] == [0]
        if others or reader not in at_first or not (reader.has_trait(Elementwise) or is_update):
            yield carried


def own_carried_values(module: IRModule, statistics: Statistics) -> None:
    """Copy the initial and yielded values of loops that have other uses, and carried values that are read unsafely."""
    for loop in ops_inside(module.op):
        if loop.name == "coreai.while":
            _copy(loop, module, statistics)


def _copy(loop: Operation, module: IRModule, statistics: Statistics) -> None:
    body = loop.regions[1].block
    assert body.first_op is not None
    assert body.last_op is not None
    for holder in (loop, body.last_op):
        for index, operand in enumerate(holder.operands):
            if not _is_own(operand, holder) and isinstance(operand.type, TensorType):
                holder.operands[index] = copy_of(operand, holder, module)
                statistics.record("own carried value", True, 0.0)
    first = body.first_op
    for carried in list(read_unsafely(body)):
        uses = list(carried.uses)
        copy = copy_of(carried, first, module)
        for use in uses:
            use.operation.operands[use.index] = copy
        statistics.record("own carried value", True, 0.0)


def _is_own(value: SSAValue, holder: Operation) -> bool:
    """Whether an op in the holder's block computed a value that has no other use."""
    if not isinstance(value, OpResult) or not is_made(value, holder):
        return False
    return value.op.name not in NESTING and len(list(value.uses)) == 1


def _detect(loop: CoreaiOp, module: IRModule) -> Iterator[str]:
    unsafe = [str(value.index) for value in read_unsafely(loop.regions[1].block)]
    if unsafe:
        yield (
            f"its body reads carried value {', '.join(unsafe)} after the runtime may have written over it; read a "
            "copy, the maximum of the value and itself"
        )


DEFECT = Defect(
    name="carried_values_in_place",
    says="The runtime writes over values that a loop carries, before or while they are read.",
    detect={"coreai.while": _detect},
    mend=own_carried_values,
    ops=("coreai.while",),
    after=("captured_states",),  # free; after the mends before, which change what loops carry and read
    probes=(
        Probe(
            program="""
coreai.graph @main(%x: tensor<3xf32> {coreai.name = "x"}) -> (tensor<3xf32> {coreai.name = "y"}) {
  %zero = coreai.constant dense<0> : tensor<si32>
  %start = coreai.add %zero, %zero : (tensor<si32>, tensor<si32>) -> tensor<si32>
  %init = coreai.add %x, %x : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %steps, %y = coreai.while %start, %init {
  ^bb0(%i: tensor<si32>, %a: tensor<3xf32>):
    %three = coreai.constant dense<3> : tensor<si32>
    %more = coreai.greater %three, %i : (tensor<si32>, tensor<si32>) -> tensor<i1>
    coreai.condition %more, %i, %a : (tensor<i1>, tensor<si32>, tensor<3xf32>)
  } do {
  ^bb0(%i: tensor<si32>, %a: tensor<3xf32>):
    %one = coreai.constant dense<1> : tensor<si32>
    %next = coreai.add %i, %one : (tensor<si32>, tensor<si32>) -> tensor<si32>
    %axis = coreai.constant dense<0> : tensor<1xsi32>
    %turned = coreai.reverse %a, %axis : (tensor<3xf32>, tensor<1xsi32>) -> tensor<3xf32>
    coreai.yield %next, %turned : tensor<si32>, tensor<3xf32>
  } : (tensor<si32>, tensor<3xf32>) -> (tensor<si32>, tensor<3xf32>)
  coreai.output %y : tensor<3xf32>
}
""",
            inputs={"x": [1, 2, 3]},
            gives={"y": [6, 4, 2]},
            symptom="is wrong",
        ),
    ),
)
