"""The arguments of an entry point when some of its dimensions are fixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from patcomp.emit.dims import Dims, Place
from patcomp.errors import EvaluationError
from patcomp.ir.types import HandleType, TensorType, shape_of, tensor
from patcomp.ir.xdsl import Attribute


def fixed_arguments(types: Mapping[str, Attribute], sizes: Mapping[Place, int]) -> dict[int, Attribute | int]:
    """The new types, by position, of arguments with fixed sizes; for a scalar argument its value.

    Args:
        types: the types of the arguments, by name in order.
        sizes: the fixed sizes.
    """
    arguments: dict[int, Attribute | int] = {}
    for index, (name, type_) in enumerate(types.items()):
        content = type_.tensor_type if isinstance(type_, HandleType) else type_
        if not isinstance(content, TensorType):
            continue
        if (name, None) in sizes:
            arguments[index] = sizes[name, None]
            continue
        shape = [sizes.get((name, axis), size) for axis, size in enumerate(shape_of(content))]
        fixed = tensor(shape, content.element_type, content.encoding)
        if fixed != content:
            arguments[index] = HandleType(fixed) if isinstance(type_, HandleType) else fixed
    return arguments


def static_sizes(types: Mapping[str, Attribute], dims: Dims, shapes: Mapping[str, Sequence[int]]) -> dict[Place, int]:
    """The size of each named dimension, solved from given input shapes.

    Raises:
        ValueError: an input does not exist, or its shape does not fit its type, its ranges or the others.
    """
    sizes: dict[Place, int] = {}
    for name, shape in shapes.items():
        type_ = types.get(name)
        content = type_.tensor_type if isinstance(type_, HandleType) else type_
        if not isinstance(content, TensorType):
            raise ValueError(f"there is no input {name!r}; there are {', '.join(types)}")
        whole = all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in shape)
        known = shape_of(content)
        fits = len(shape) == len(known) and all(old in (None, new) for old, new in zip(known, shape, strict=True))
        if not whole or not fits:
            raise ValueError(f"the input {name!r} of type {content} cannot have the shape {tuple(shape)}")
        sizes.update({(name, axis): size for axis, size in enumerate(shape)})
    try:
        dims.sizes(sizes)
    except EvaluationError as error:
        raise ValueError(str(error)) from None
    return sizes
