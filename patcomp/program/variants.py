"""Variants of an entry point whose inputs have given shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from patcomp.errors import EvaluationError
from patcomp.interface.dims import Dims, Place
from patcomp.interface.graphs import argument_types
from patcomp.ir.module import graph_name
from patcomp.ir.types import HandleType, TensorType, shape_of
from patcomp.ir.xdsl import Attribute

if TYPE_CHECKING:
    from patcomp.program.data import ProgramData


def static_variants(
    program: ProgramData, entrypoint: str, shapes_config: Mapping[str, Mapping[str, Sequence[int]]]
) -> tuple[dict[str, dict[Place, int]], dict[str, Dims]]:
    """The sizes of each variant of `AIProgram.set_static_shape_config` by its name, and the dimensions of all entry
    points with these variants.

    Raises:
        ValueError: there is no configuration, a name is taken, an input does not exist, or a shape does not fit.
    """
    types, dims = argument_types(program.module.graph(entrypoint)), program.dims.get(entrypoint, Dims())
    if not shapes_config:
        raise ValueError("shapes_config must have one configuration or more")
    variants: dict[str, dict[Place, int]] = {}
    new_dims = {name: value for name, value in program.dims.items() if name != entrypoint}
    for suffix, shapes in shapes_config.items():
        name = f"{entrypoint}_{suffix}"
        if name in (graph_name(graph) for graph in program.module.graphs):
            raise ValueError(f"there is a graph @{name} already")
        variants[name] = _static_sizes(types, dims, shapes)
        new_dims[name] = dims.given(dims.sizes(variants[name]))
    return variants, new_dims


def _static_sizes(types: Mapping[str, Attribute], dims: Dims, shapes: Mapping[str, Sequence[int]]) -> dict[Place, int]:
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
