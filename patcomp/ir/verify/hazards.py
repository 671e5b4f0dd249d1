"""Well-formed IR that no version of the toolchain can save or run: weights, indices, tables, states, element types.

What a version does wrong is in `patcomp.defects`. Checks that need only shapes are part of the inference of result
types (`RuntimeRefusalError` in `patcomp.ir.infer`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from patcomp.defects import detectors as detectors_of_ops
from patcomp.ir.attributes import EnumerationAttr
from patcomp.ir.constants import constant_integers, constant_values, is_constant
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.module import IRModule
from patcomp.ir.types import (
    BIT_WIDTHS,
    ELEMENT_TYPES,
    HandleType,
    element_name,
    is_integer,
    is_static,
    shape_of,
    static_shape,
    storage_bytes,
)
from patcomp.ir.xdsl import (
    DenseIntOrFPElementsAttr,
    DenseResourceAttr,
    FunctionType,
    SSAValue,
    TensorType,
    maker_of,
)


class OfTheModel(str):
    """A problem that comes from numbers in the model itself, and not from a rule."""


Hazard = Callable[[CoreaiOp, IRModule], Iterator[str]]
"""The problems of an op; `patcomp.defects` has such functions, too."""

_HAZARDS: dict[str, list[Hazard]] = {}


def _hazard(*names: str) -> Callable[[Hazard], Hazard]:
    def register(function: Hazard) -> Hazard:
        for name in names:
            _HAZARDS.setdefault(name if name.startswith("coreaix.") else f"coreai.{name}", []).append(function)
        return function

    return register


def hazards(*, finished: bool) -> Mapping[str, Sequence[Hazard]]:
    """The checks of ops with correct types, by the op's name: those of this file, and those of the toolchain's defects.

    Args:
        finished: whether no stage follows that mends.
    """
    found: dict[str, Sequence[Hazard]] = dict(_HAZARDS)
    for name, detectors in detectors_of_ops(finished=finished).items():
        found[name] = (*found.get(name, ()), *detectors)
    return found


@_hazard("coreaix.cast", "coreaix.view")
def _not_saved(op: CoreaiOp, module: IRModule) -> Iterator[str]:
    yield "an asset has no form for this op, so it cannot be saved"


@_hazard("constant")
def _constant(op: CoreaiOp, module: IRModule) -> Iterator[str]:
    value = op.properties["value"]
    if isinstance(value, DenseResourceAttr):
        key, type_ = value.resource_handle.data, op.results[0].type
        if key in module.blobs.without_values:
            return
        if key not in module.blobs:
            yield f"there is no weight `{key}`; saving would abort the process"
        elif isinstance(type_, TensorType) and is_static(type_):
            size = module.blobs[key].data.nbytes
            wanted = storage_bytes(static_shape(type_), type_.element_type)
            if size != wanted:
                yield f"weight `{key}` has {size} bytes, but {type_} takes {wanted}"
    elif isinstance(value, DenseIntOrFPElementsAttr):
        count = math.prod(static_shape(value.type))
        size = len(value.data.data) // max(1, value.type.element_type.compile_time_size)
        if size not in (1, count):
            yield f"the constant holds {size} values for {count} elements"


@_hazard(
    *("divide", "floor_divide", "modulo"),
    *(f"decomposable.broadcasting_{name}" for name in ("divide", "floor_divide", "modulo")),
)
def _divide(op: CoreaiOp, module: IRModule) -> Iterator[str]:
    divisor = op.operands[1]
    if isinstance(divisor.type, TensorType) and is_integer(divisor.type.element_type):
        values = constant_values(divisor, module.blobs)
        if values is not None and (values == 0).any():
            yield "an integer division by zero aborts the process"


@_hazard("pad")
def _pad(op: CoreaiOp, module: IRModule) -> Iterator[str]:
    mode = op.properties["padding_mode"]
    if isinstance(mode, EnumerationAttr) and mode.data != "constant" and not is_constant(op.operands[2]):
        yield f"the padding value must be a constant when the mode is {mode.data}"


@_hazard("interpolate")
def _interpolate(op: CoreaiOp, module: IRModule) -> Iterator[str]:
    for value, name in zip(op.operands[1:], ("output_shape", "scale", "offset"), strict=True):
        if not is_static(value.type):
            yield f"operand `{name}` must have a static length"


@_hazard("blockwise_shift_scale")
def _shifted_floats(op: CoreaiOp, module: IRModule) -> Iterator[str]:
    data, _, shift, _ = op.operands
    element = element_name(data.type.element_type)  # type: ignore[attr-defined]
    if element not in ("f8E4M3FN", "f8E5M2", "f4E2M1FN"):
        return
    known = constant_values(shift)  # the toolchain sees no bytes of stored constants either
    if known is None or known.any():
        yield f"data of {element} needs an offset1 that is a constant of zeros in the text; use c.constant(0, ...)"


@_hazard("lut_to_dense")
def _lut(op: CoreaiOp, module: IRModule) -> Iterator[str]:
    indices, lut = shape_of(op.operands[0].type), shape_of(op.operands[1].type)
    element = op.operands[0].type.element_type  # type: ignore[attr-defined]
    entries = 1 << BIT_WIDTHS[element_name(element)]
    if lut[-2] not in (None, entries):
        yield f"a table for {element_name(element)} indices has {entries} entries, not {lut[-2]}"
    for axis, (dim, blocks) in enumerate(zip(indices, lut[:-2], strict=True)):
        if dim is not None and blocks is not None and (blocks == 0 or dim % blocks):
            yield f"dimension {axis} of the indices ({dim}) is not divisible by the table's ({blocks})"


@_hazard("gather_along_axis", "scatter_along_axis")
def _index_along_axis(op: CoreaiOp, module: IRModule) -> Iterator[str]:
    axis, indices = constant_integers(op.operands[-1]), constant_values(op.operands[1])
    shape = shape_of(op.operands[0].type)
    if axis is not None and indices is not None and indices.size:
        dim = shape[axis[0] % len(shape)]
        if dim is not None and not (-dim <= indices.min() and indices.max() < dim):
            yield OfTheModel(f"indices from {indices.min()} to {indices.max()} leave the dimension of {dim}")


@_hazard("gather_nd", "scatter_nd")
def _index_vectors(op: CoreaiOp, module: IRModule) -> Iterator[str]:
    indices, shape = constant_values(op.operands[1]), shape_of(op.operands[0].type)
    if indices is None or not indices.size:
        return
    for column, dim in zip(range(indices.shape[-1]), shape, strict=False):
        low, high = indices[..., column].min(), indices[..., column].max()
        if dim is not None and not (-dim <= low and high < dim):
            yield OfTheModel(f"indices from {low} to {high} leave dimension {column} ({dim})")


@_hazard("read_handle", "write_handle")
def _token(op: CoreaiOp, module: IRModule) -> Iterator[str]:
    handle, token = op.operands[0], op.operands[-1]
    if any(other is not handle for other in _handles_of(token, set())):
        yield "its token comes from another handle"
    if op.name == "coreai.write_handle" and isinstance(handle.type, HandleType):
        given = op.operands[1].type
        if given != handle.type.tensor_type:
            yield f"the data must have exactly the handle's type {handle.type.tensor_type}"


def _handles_of(token: SSAValue, seen: set[SSAValue]) -> Iterator[SSAValue]:
    """The handles whose reads and writes a token follows."""
    if token in seen:
        return
    seen.add(token)
    maker = maker_of(token)
    if maker is None:
        return
    if maker.name in ("coreai.read_handle", "coreai.write_handle"):
        yield maker.operands[0]
    elif maker.name == "coreai.join_token":
        for operand in maker.operands:
            yield from _handles_of(operand, seen)


@_hazard("graph")
def _graph(graph: CoreaiOp, module: IRModule) -> Iterator[str]:
    signature = graph.properties["function_type"]
    assert isinstance(signature, FunctionType)
    for type_ in (*signature.inputs, *signature.outputs):
        tensor_type = type_.tensor_type if isinstance(type_, HandleType) else type_
        if isinstance(tensor_type, TensorType) and element_name(tensor_type.element_type) not in ELEMENT_TYPES:
            yield f"Core AI has no element type {tensor_type.element_type}, so {type_} cannot be saved"
