"""Shape ops that undo or repeat one another."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.constants import constant_integers
from patcomp.ir.infer import broadcast_shapes
from patcomp.ir.value import Value
from patcomp.patterns import OpView, optimization
from patterns_catalog.optimize.bounds import RESHAPES, producer


@optimization("coreai.cast")
def drop_identity_cast(op: OpView, c: Coreai) -> Value | None:
    "a cast to the type that the value has is the value"
    return op.input if op.input.type == op.result else None


@optimization(*RESHAPES)
def merge_reshapes(op: OpView, c: Coreai) -> Value | None:
    "one reshape for a chain of static reshapes, expand_dims and shrink_dims; none where the shape stays"
    op.ignore(*op.arguments[1:], because="the result type has the shape")
    x = op.input
    while (before := producer(x, *RESHAPES)) is not None:
        x = Value(before.operands[0])
    if x.type == op.result and x.is_static:
        return x
    if (x is op.input and op.op_name == "coreai.reshape") or None in op.result.shape or not x.is_static:
        return None
    return c.reshape(x, list(op.result.static_shape))


@optimization("coreai.transpose")
def merge_transposes(op: OpView, c: Coreai) -> Value | None:
    "one transpose for two; none where the order stays"
    permutation = constant_integers(op.permutation.ssa)
    if permutation is None:
        return None
    if list(permutation) == sorted(permutation):
        return op.input
    before = producer(op.input, "coreai.transpose")
    first = constant_integers(before.operands[1]) if before is not None else None
    if before is None or first is None:
        return None
    source, combined = Value(before.operands[0]), [first[axis] for axis in permutation]
    return source if combined == sorted(combined) else c.transpose(source, combined)


@optimization("coreai.slice")
def size_of_transposed(op: OpView, c: Coreai) -> Value | None:
    """a size of a transposed tensor is a size of the tensor

    The runtime loses a tensor where a size is read of a transposed state that is written to and transposed again.
    """
    starts, ends, strides = (constant_integers(bounds.ssa) for bounds in (op.start_indices, op.end_indices, op.strides))
    cast = producer(op.input, "coreai.cast")
    read = producer(op.input if cast is None else Value(cast.operands[0]), "coreai.get_shape")
    transpose = None if read is None else producer(Value(read.operands[0]), "coreai.transpose")
    permutation = None if transpose is None else constant_integers(transpose.operands[1])
    if transpose is None or permutation is None or starts is None or ends is None or strides is None:
        return None
    if starts[0] < 0 or ends[0] != starts[0] + 1:
        return None  # more sizes than one
    axis = permutation[starts[0]]
    sizes = c.cast(c.get_shape(Value(transpose.operands[0])), op.result.element_type)
    return c.slice(sizes, [axis], [axis + 1], [1])


@optimization("coreai.transpose")
def transpose_of_unit_dims(op: OpView, c: Coreai) -> Value | None:
    "a transpose that only moves dimensions of size 1 is a reshape"
    permutation = constant_integers(op.permutation.ssa)
    x = op.input
    if permutation is None or not x.is_static:
        return None
    moved = [axis for axis in permutation if x.shape[axis] != 1]
    return c.reshape(x, list(op.result.static_shape)) if moved == sorted(moved) else None


@optimization("coreai.broadcast_to", "coreai.broadcast_in_dims", "coreai.slice", "coreai.tile")
def drop_identity(op: OpView, c: Coreai) -> Value | None:
    "shape ops that give back their input"
    x = op[op.arguments[0]]
    if x.type != op.result or not x.is_static:
        return None
    if op.op_name == "coreai.slice":
        strides = constant_integers(op.strides.ssa)
        if strides is None or any(stride != 1 for stride in strides):
            return None
    op.ignore(*op.arguments[1:], because="the shape stays, so nothing is cut, repeated or moved")
    return x


@optimization("coreai.decomposable.broadcasting_add", "coreai.decomposable.broadcasting_mul",
              "coreai.decomposable.broadcasting_sub", "coreai.decomposable.broadcasting_divide")  # fmt: skip
def drop_broadcast_before_broadcast(op: OpView, c: Coreai) -> Value | None:
    "these ops broadcast by themselves"
    sides = [op.input, op.other]
    shortened = []
    for side in sides:
        before = producer(side, "coreai.broadcast_to")
        shortened.append(Value(before.operands[0]) if before is not None else side)
    if shortened == sides or None in op.result.shape:
        return None
    for candidate in (shortened, [shortened[0], sides[1]], [sides[0], shortened[1]]):
        if candidate != sides and broadcast_shapes(*(side.shape for side in candidate)) == op.result.shape:
            return getattr(c, op.op_name.rpartition(".")[2])(*candidate)
    return None
