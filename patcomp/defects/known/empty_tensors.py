"""Sizes that may be 0: find them, and rewrite broadcasts and reshapes that the runtime cannot run with them.

The runtime uses the larger of two broadcast sizes for a result. So it aborts if an empty operand is broadcast with one
of size 1: `x[mask] * 2` if the mask selects nothing. It does not abort if the operand is broadcast by an op of its own.
Of the other ops, only `relu` broadcasts a constant. The runtime also refuses a reshape of an empty tensor with a size
of -1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from patcomp.defects.defect import Defect, Probe
from patcomp.defects.empty_operands import CHANGES, REDUCTIONS, operand_sizes, size_at
from patcomp.defects.registry import installed_version
from patcomp.ir import coreai
from patcomp.ir.builder import Builder
from patcomp.ir.constants import constant_integers, is_constant
from patcomp.ir.extents import MAY_BE_EMPTY
from patcomp.ir.module import IRModule, callee, graph_name
from patcomp.ir.types import is_empty, is_integer, shape_of, static_shape
from patcomp.ir.value import Value, replace_op
from patcomp.ir.xdsl import ComplexType, Operation, Pure, SSAValue, TensorType, ops_inside
from patcomp.patterns.statistics import Statistics

_BROADCASTING = "coreai.decomposable.broadcasting_"


def allow_empty(module: IRModule, statistics: Statistics) -> None:
    """Rewrite the ops that the runtime cannot run if a size is 0, or may be 0 because it depends on data."""
    for _ in range(2):  # the ops that it makes, too
        for _ in _rewritten(module, _unsure(module)):
            statistics.record("allow a size of 0", True, 0.0)


def ops_that_need_elements(module: IRModule) -> list[str]:
    """The names of the ops in which the runtime aborts if a dynamic dimension of an input or state is 0.

    `allow_empty` does not rewrite these ops, because a program is meant for inputs with elements. There are none where
    the defect is off.
    """
    if not DEFECT.is_on(installed_version()):
        return []
    copy = module.clone()
    states = (op.results[0] for op in ops_inside(copy.op) if op.name == "coreai.read_handle")
    arguments = (argument for graph in copy.entry_graphs for argument in graph.regions[0].block.args)
    given = [value for value in (*arguments, *states) if isinstance(value.type, TensorType)]
    return list(dict.fromkeys(_rewritten(copy, _sized_by(copy, given))))


def _rewritten(module: IRModule, unsure: set[SSAValue]) -> Iterator[str]:
    """Rewrite the ops that the runtime cannot run with these values empty; yield the name of each."""
    for op in ops_inside(module.op):
        if op.parent is None:
            continue  # it was in a branch or loop that is a constant now
        name = op.name
        change = _CHANGES.get("broadcasting" if name.startswith(_BROADCASTING) else name)
        if _is_empty_constant(op):
            change = _constant
        elif change is None or name.endswith("_matmul") or not _may_be_empty(op, unsure):
            continue
        with Builder(op.parent, before=op, blobs=module.blobs, location=op.location):
            changed = change(op)
        if changed:
            yield name


def _is_empty_constant(op: Operation) -> bool:
    """Whether an op's only result is an empty tensor."""
    computed = op.has_trait(Pure) and not is_constant(op) and len(op.results) == 1
    return computed and is_empty(op.results[0].type)


def _constant(op: Operation) -> bool:
    x = Value(op.results[0])
    if isinstance(x.element_type, ComplexType):
        return False  # the runtime has no complex constants
    replace_op(op, [coreai.constant(np.zeros(static_shape(x.ssa.type)), x.element_type).ssa])
    return True


def _may_be_empty(op: Operation, unsure: set[SSAValue]) -> bool:
    """Whether an operand or the result has a dynamic size and may be empty, or the op reduces an empty operand."""
    if op.name in REDUCTIONS and is_empty(op.operands[0].type):
        return True
    for value in (*op.operands, *op.results):
        shape = shape_of(value.type) if isinstance(value.type, TensorType) else ()
        if None in shape and (0 in shape or value in unsure):
            return True
    return False


def _reshape(op: Operation) -> bool:
    """Replace the -1 of a reshape by a size computed from the only dynamic dimension of its operand."""
    x, wanted, shape = Value(op.operands[0]), constant_integers(op.operands[1]), shape_of(op.results[0].type)
    if wanted is None or -1 not in wanted or x.shape.count(None) != 1 or 0 in x.shape:
        return False
    before, after = (math.prod(size for size in sizes if size is not None) for sizes in (x.shape, shape))
    size, common = size_at(x, x.shape.index(None)), math.gcd(before, after)
    if before != common:
        size = coreai.broadcasting_mul(size, before // common)
    if after != common:
        size = coreai.broadcasting_floor_divide(size, after // common)
    sizes = [size if number == -1 else int(number) for number in wanted]
    made = coreai.reshape(x, sizes, result_type=op.results[0].type)
    replace_op(op, [made.ssa])
    return True


def _relu(op: Operation) -> bool:
    """Replace the op by a choice between its operand and a zero of its shape."""
    x = Value(op.operands[0])
    zero = coreai.broadcast_to(coreai.constant(0.0, x.element_type), list(operand_sizes(x.shape, [x])))
    chosen = coreai.broadcasting_where(coreai.broadcasting_greater(zero, x), zero, x, result_type=op.results[0].type)
    replace_op(op, [chosen.ssa])
    return True


def _broadcast_operands(op: Operation) -> bool:
    """Broadcast the operands whose size differs from a result dimension that is dynamic or 0."""
    values, shape, changed = [Value(operand) for operand in op.operands], shape_of(op.results[0].type), False
    for index, value in enumerate(values):
        if any(size == 1 != wanted for size, wanted in _aligned(value, shape) if wanted in (0, None)):
            op.operands[index] = coreai.broadcast_to(value, list(operand_sizes(shape, values))).ssa
            changed = True
    return changed


def _aligned(value: Value, shape: tuple[int | None, ...]) -> Iterator[tuple[int | None, int | None]]:
    """Pairs of a value's size, 1 for missing dimensions, and the result's size."""
    missing = (1,) * (len(shape) - value.rank)
    return zip((*missing, *value.shape), shape, strict=True)


_MAKE_SIZES = {"coreai.broadcast_to", "coreai.non_zero", "coreai.range", "coreai.slice"}
_CHANGES = {**CHANGES, "broadcasting": _broadcast_operands, "coreai.relu": _relu, "coreai.reshape": _reshape}


def _unsure(module: IRModule) -> set[SSAValue]:
    """The values that may be empty although no input is, and the numbers computed from their sizes."""
    marked = [graph for graph in module.graphs if graph.attributes.pop(MAY_BE_EMPTY, None) is not None]
    makers = _MAKE_SIZES if marked else {"coreai.non_zero"}
    made = [op.results[0] for op in ops_inside(module.op) if op.name in makers]
    return _sized_by(module, [value for value in made if None in shape_of(value.type)])


def _sized_by(module: IRModule, waiting: list[SSAValue]) -> set[SSAValue]:
    """These values, and the values that may get a size from them."""
    callers = module.invokes()
    found: set[SSAValue] = set()
    while waiting:
        value = waiting.pop()
        if value not in found and _tells_sizes(value):
            found.add(value)
            for use in value.uses:
                waiting += _reached(use.operation, use.index, module, callers)
    return found


def _tells_sizes(value: SSAValue) -> bool:
    type_ = value.type
    return isinstance(type_, TensorType) and (None in shape_of(type_) or is_integer(type_.element_type))


def _reached(op: Operation, index: int, module: IRModule, callers: dict[str, list[Operation]]) -> Iterable[SSAValue]:
    """The values that an operand of an op may give its size to."""
    parent = op.parent_op()
    if op.name == "coreai.invoke":
        yield module.graph(callee(op)).regions[0].block.args[index]
    elif op.name == "coreai.output":
        assert parent is not None
        for caller in callers.get(graph_name(parent), ()):
            yield caller.results[index]
    elif op.name in ("coreai.yield", "coreai.condition") and parent is not None:
        yield from parent.results
        for region in parent.regions:
            yield from region.block.args
    else:
        yield from op.results
        for region in op.regions:
            yield from region.block.args


DEFECT = Defect(
    name="empty_tensors",
    says="The runtime aborts, or computes arbitrary numbers, in many ops if a dynamic size is 0.",
    mend=allow_empty,
    after=("moved_copies",),  # free
    probes=(
        Probe(
            program="""
coreai.graph @main(%x: tensor<?xf32> {coreai.name = "x"}) -> (tensor<?xf32> {coreai.name = "y"}) {
  %two = coreai.constant dense<2.0> : tensor<1xf32>
  %y = coreai.decomposable.broadcasting_mul %x, %two : (tensor<?xf32>, tensor<1xf32>) -> tensor<?xf32>
  coreai.output %y : tensor<?xf32>
}
""",
            inputs={"x": []},
            gives={"y": []},
            symptom="dies",
        ),
        Probe(
            program="""
coreai.graph @main(%x: tensor<?xf32> {coreai.name = "x"}) -> (tensor<?xf32> {coreai.name = "y"}) {
  %y = coreai.relu %x : (tensor<?xf32>) -> tensor<?xf32>
  coreai.output %y : tensor<?xf32>
}
""",
            inputs={"x": []},
            gives={"y": []},
            symptom="dies",
        ),
        Probe(
            program="""
coreai.graph @main(%x: tensor<?x2xf32> {coreai.name = "x"}) -> (tensor<?xf32> {coreai.name = "y"}) {
  %size = coreai.constant dense<-1> : tensor<1xsi32>
  %y = coreai.reshape %x, %size : (tensor<?x2xf32>, tensor<1xsi32>) -> tensor<?xf32>
  coreai.output %y : tensor<?xf32>
}
""",
            inputs={"x": np.zeros((0, 2))},
            gives={"y": []},
            symptom="is refused",
        ),
        Probe(
            program="""
coreai.graph @main(%x: tensor<?xf32> {coreai.name = "x"}) -> (tensor<1xf32> {coreai.name = "y"}) {
  %axis = coreai.constant dense<0> : tensor<1xsi32>
  %y = coreai.reduce_sum %x, %axis : (tensor<?xf32>, tensor<1xsi32>) -> tensor<1xf32>
  coreai.output %y : tensor<1xf32>
}
""",
            inputs={"x": []},
            gives={"y": [0]},
            symptom="is wrong",
        ),
        Probe(
            program="""
coreai.graph @main(%x: tensor<?xf32> {coreai.name = "x"}) -> (tensor<1xf32> {coreai.name = "y"}) {
  %axis = coreai.constant dense<0> : tensor<1xsi32>
  %y = coreai.reduce_product %x, %axis : (tensor<?xf32>, tensor<1xsi32>) -> tensor<1xf32>
  coreai.output %y : tensor<1xf32>
}
""",
            inputs={"x": []},
            gives={"y": [1]},
            symptom="is wrong",
        ),
        Probe(
            program="""
coreai.graph @main(%x: tensor<?x2xf32> {coreai.name = "x"}) -> (tensor<?x1xui32> {coreai.name = "y"}) {
  %axis = coreai.constant dense<1> : tensor<si32>
  %y = coreai.argmax %x, %axis : (tensor<?x2xf32>, tensor<si32>) -> tensor<?x1xui32>
  coreai.output %y : tensor<?x1xui32>
}
""",
            inputs={"x": np.zeros((0, 2))},
            gives={"y": np.zeros((0, 1))},
            symptom="dies",
        ),
        Probe(
            program="""
coreai.graph @main(%x: tensor<?x2xf32> {coreai.name = "x"}) -> (tensor<?x4xf32> {coreai.name = "y"}) {
  %sizes = coreai.constant dense<[0, 0, 1, 1]> : tensor<4xui32>
  %zero = coreai.constant dense<0.0> : tensor<f32>
  %y = coreai.pad %x, %sizes, %zero mode = <constant>
      : (tensor<?x2xf32>, tensor<4xui32>, tensor<f32>) -> tensor<?x4xf32>
  coreai.output %y : tensor<?x4xf32>
}
""",
            inputs={"x": np.zeros((0, 2))},
            gives={"y": np.zeros((0, 4))},
            symptom="dies",
        ),
        Probe(
            program="""
coreai.graph @main(%x: tensor<2xf32> {coreai.name = "x"}, %i: tensor<?x1xsi32> {coreai.name = "i"},
    %u: tensor<?xf32> {coreai.name = "u"})
    -> (tensor<2xf32> {coreai.name = "y"}) {
  %y = coreai.scatter_nd %x with %u at %i {
  ^bb0(%old: tensor<f32>, %new: tensor<f32>):
    coreai.yield %new : tensor<f32>
  } : (tensor<2xf32>, tensor<?xf32>, tensor<?x1xsi32>) to tensor<2xf32>
  coreai.output %y : tensor<2xf32>
}
""",
            inputs={"x": [1, 2], "i": np.zeros((0, 1)), "u": []},
            gives={"y": [1, 2]},
            symptom="dies",
        ),
    ),
)
