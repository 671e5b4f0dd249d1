"""Approximate result types of `aten` ops: of the inner ops of a rule's target, and of the ops in tests of a rule.

An op that replaces an op of the program has that op's exact types instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from patcomp.ir.aten import op_class
from patcomp.ir.aten_facts import OpFacts
from patcomp.ir.traits import Elementwise
from patcomp.ir.types import Shape, tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute


def guess_types(name: str, arguments: Mapping[str, Any], results: int) -> list[Attribute]:
    """The types of the results of an op: broadcasts, reductions, casts, slices and concatenations are known.

    Args:
        name: the op's name.
        arguments: its arguments by name.
        results: how many results it has.
    """
    tensors = [value for value in _flat(arguments.values()) if isinstance(value, Value)]
    if not tensors:
        return [tensor((), "f32")] * results
    op = op_class(name)
    shape: Shape = tensors[0].shape
    element: Any = arguments.get("dtype") or tensors[0].element_type
    if op.has_trait(Elementwise):
        shape = _broadcast([value.shape for value in tensors])
    shape = _shape_made(op.FACTS, arguments, shape)
    if name.startswith("aten.where"):
        element = tensors[-1].element_type
    if op.FACTS.truth:
        element = "i1"
    dims = arguments.get("dim")
    if "keepdim" in arguments and dims is not None:
        axes = {axis % max(len(shape), 1) for axis in (dims if isinstance(dims, list | tuple) else [dims])}
        kept = arguments["keepdim"]
        shape = tuple(1 if i in axes else n for i, n in enumerate(shape) if kept or i not in axes)
    return [tensor(made, element) for made in _cut_or_joined(op.FACTS.sizes, shape, arguments) or [shape] * results]


def _shape_made(facts: OpFacts, arguments: Mapping[str, Any], shape: Shape) -> Shape:
    """The shape of a view, permutation or product, if its arguments determine it.

    Args:
        facts: the op's facts.
        arguments: the op's arguments by name.
        shape: the shape of the first tensor among them.
    """
    size, dims, other = arguments.get("size"), arguments.get("dims"), arguments.get("mat2", arguments.get("other"))
    if isinstance(size, list | tuple) and all(type(each) is int for each in size):
        if all(each >= 0 for each in size):
            return tuple(size)
        if facts.elements == "in_order":  # the other sizes determine a size of -1
            return tuple(None if each < 0 else each for each in size)
    if facts.sizes == "permuted" and isinstance(dims, list) and len(dims) == len(shape):
        return tuple(shape[dim % len(shape)] for dim in dims)
    if facts.sizes == "unsqueezed":
        position = arguments["dim"] % (len(shape) + 1)
        return (*shape[:position], 1, *shape[position:])
    repeats = arguments.get("repeats")
    if facts.sizes == "along" and isinstance(repeats, int) and isinstance(arguments["dim"], int) and shape:
        axis = arguments["dim"] % len(shape)
        return tuple(n and n * repeats if i == axis else n for i, n in enumerate(shape))
    if facts.sizes == "product" and isinstance(other, Value) and shape and other.shape:
        return (*shape[:-1], other.shape[-1])
    return shape


def _cut_or_joined(sizes: str, shape: Shape, arguments: Mapping[str, Any]) -> list[Shape] | None:
    """The shapes of the results of a slice, split or concatenation; None for other ops."""
    dim = arguments.get("dim")
    if not isinstance(dim, int) or not shape:
        return None
    axis = dim % len(shape)
    before, size, after = shape[:axis], shape[axis], shape[axis + 1 :]
    if sizes == "joined" and all(part.rank == len(shape) for part in arguments["tensors"]):
        return [(*before, sum(part.shape[axis] or 0 for part in arguments["tensors"]), *after)]
    if sizes == "along" and "start" in arguments and size is not None:
        kept = range(size)[arguments["start"] : arguments["end"] : arguments["step"]]
        return [(*before, len(kept), *after)]
    if sizes == "along" and isinstance(arguments.get("split_sizes"), list):
        return [(*before, part, *after) for part in arguments["split_sizes"]]
    return None


def _flat(items: Any) -> list[Any]:
    return [leaf for item in items for leaf in (_flat(item) if isinstance(item, list | tuple) else [item])]


def _broadcast(shapes: Sequence[Shape]) -> Shape:
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(next((n for n in dims if n != 1), 1) for dims in zip(*padded, strict=True))
