"""Well-formed IR on which the Core AI toolchain aborts, fails or computes wrong numbers.

Each check says what happens, as observed with coreai-core 1.0.0b3. Checks that need only shapes are part of the
inference of result types (`RuntimeRefusalError` in `patcomp.ir.infer`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from patcomp.ir.attributes import EnumerationAttr
from patcomp.ir.casts import is_dropped
from patcomp.ir.constants import constant_integers, constant_values, is_constant
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.in_place import is_unsafe_condition, read_unsafely
from patcomp.ir.merged_branches import are_merged
from patcomp.ir.module import names_of
from patcomp.ir.scatters import reuses_lost_memory
from patcomp.ir.types import (
    BIT_WIDTHS,
    ELEMENT_TYPES,
    HandleType,
    ImageType,
    TokenType,
    element_name,
    is_integer,
    is_static,
    shape_of,
    static_shape,
    storage_bytes,
)
from patcomp.ir.verify.run import VerifierRun
from patcomp.ir.xdsl import (
    ArrayAttr,
    DenseIntOrFPElementsAttr,
    DenseResourceAttr,
    DictionaryAttr,
    FunctionType,
    SSAValue,
    TensorType,
    maker_of,
)


class OfTheModel(str):
    """A problem that comes from numbers in the model itself, and not from a rule."""


Hazard = Callable[[CoreaiOp, VerifierRun], Iterator[str]]

_HAZARDS: dict[str, list[Hazard]] = {}


def _hazard(*names: str) -> Callable[[Hazard], Hazard]:
    def register(function: Hazard) -> Hazard:
        for name in names:
            _HAZARDS.setdefault(name if name.startswith("coreaix.") else f"coreai.{name}", []).append(function)
        return function

    return register


def hazards_of(op: CoreaiOp, verification: VerifierRun) -> Iterable[str]:
    """The problems that an op with correct types would cause in the toolchain or the runtime."""
    name = op.name
    if name not in _HAZARDS and name not in _REFUSED_OPS and name not in _REFUSED_ELEMENTS:
        return ()
    return _hazards(op, verification)


def _hazards(op: CoreaiOp, verification: VerifierRun) -> Iterator[str]:
    for hazard in _HAZARDS.get(op.name, ()):
        yield from hazard(op, verification)
    if op.name in _REFUSED_OPS:
        yield _REFUSED_OPS[op.name]
    refused = _REFUSED_ELEMENTS.get(op.name)
    if refused is not None:
        for value in op.operands:
            if isinstance(value.type, TensorType) and element_name(value.type.element_type) in refused[0]:
                yield f"the element type {element_name(value.type.element_type)} {refused[1]}"
                break


_ABORTS = "an asset with this op aborts the process that loads it; use reduce_sum, reduce_max, ..."
_NOT_SAVED = "an asset has no form for this op, so it cannot be saved"
_REFUSED_OPS = {
    "coreai.reduce": _ABORTS, "coreai.reduce_index": _ABORTS, "coreaix.cast": _NOT_SAVED, "coreaix.view": _NOT_SAVED
}  # fmt: skip


# ---- element types that only the verifier of the toolchain accepts --------------------------------

_F4 = ({"f4E2M1FN", "f8E8M0FNU"}, "cannot be saved in this op")
_COMPLEX_SAVE = ({"complex<f32>"}, "cannot be saved in this op")
_COMPLEX_RUN = ({"complex<f32>"}, "has no kernel for this op")
_BOOL_RUN = ({"i1"}, "has no kernel for this op; use the logical op, or the same-shape op")

_REFUSED_ELEMENTS: dict[str, tuple[set[str], str]] = {
    **{
        f"coreai.{name}": _F4
        for name in (
            "transpose", "expand_dims", "shrink_dims", "broadcast_to", "broadcast_in_dims", "concat", "split",
            "slice", "slice_update", "reverse", "where", "decomposable.broadcasting_where",
        )
    },
    "coreai.gather_along_axis": _COMPLEX_SAVE,
    "coreai.scatter_along_axis": _COMPLEX_SAVE,
    "coreai.pad": ({"complex<f32>"}, "aborts the process in this op"),
    "coreai.decomposable.broadcasting_equal": _COMPLEX_RUN,
    "coreai.decomposable.broadcasting_not_equal": _COMPLEX_RUN,
    "coreai.decomposable.broadcasting_add": _BOOL_RUN,
    "coreai.decomposable.broadcasting_mul": _BOOL_RUN,
    "coreai.decomposable.broadcasting_greater": ({"i1"}, "cannot be saved in this op"),
    "coreai.greater": ({"f8E4M3FN", "f8E5M2"}, "has no kernel for this op"),
}  # fmt: skip


# ---- ops ------------------------------------------------------------------------------------------


@_hazard("constant")
def _constant(op: CoreaiOp, verification: VerifierRun) -> Iterator[str]:
    value = op.properties["value"]
    if isinstance(value, DenseResourceAttr):
        key, type_ = value.resource_handle.data, op.results[0].type
        if key in verification.module.blobs.without_values:
            return
        if key not in verification.module.blobs:
            yield f"there is no weight `{key}`; saving would abort the process"
        elif isinstance(type_, TensorType) and is_static(type_):
            size = verification.module.blobs[key].data.nbytes
            wanted = storage_bytes(static_shape(type_), type_.element_type)
            if size != wanted:
                yield f"weight `{key}` has {size} bytes, but {type_} takes {wanted}"
    elif isinstance(value, DenseIntOrFPElementsAttr):
        count = math.prod(static_shape(value.type))
        size = len(value.data.data) // max(1, value.type.element_type.compile_time_size)
        if size not in (1, count):
            yield f"the constant holds {size} values for {count} elements"


@_hazard("cast")
def _cast(op: CoreaiOp, verification: VerifierRun) -> Iterator[str]:
    if is_dropped(op.operands[0]):
        yield "the toolchain drops the cast of its operand, which changes numbers; compute a copy in between"


@_hazard("if")
def _if(op: CoreaiOp, verification: VerifierRun) -> Iterator[str]:
    if not op.regions[1].blocks:
        yield "without an else branch, saving aborts the process"
    elif not op.results:
        yield "without results it has no effect, and the toolchain cannot read its own text of it"
    elif verification.finished and are_merged(op):
        yield (
            "the toolchain merges its branches, which are the same ops, and the runtime then takes the values of the "
            "first in any case; yield a copy in one branch, the maximum of the value and itself"
        )
    if verification.finished and any(reuses_lost_memory(region.block) for region in op.regions if region.blocks):
        yield (
            "a branch computes the values of a scatter after another scatter into a tensor of dynamic size, on which "
            "the runtime ends the process; compute the values before the first scatter"
        )


@_hazard("while")
def _while(op: CoreaiOp, verification: VerifierRun) -> Iterator[str]:
    if not verification.finished:
        return
    unsafe = [str(value.index) for value in read_unsafely(op.regions[1].block)]
    if unsafe:
        yield (
            f"its body reads carried value {', '.join(unsafe)} after the runtime may have written over it; read a "
            "copy, the maximum of the value and itself"
        )
    if is_unsafe_condition(op):
        yield "its condition computes in the memory of carried values; compute it in the body and carry the result"


@_hazard("write_handle")
def _write_handle(op: CoreaiOp, verification: VerifierRun) -> Iterator[str]:
    parent = op.parent_op()
    while parent is not None and parent.name != "coreai.graph":
        if parent.name in ("coreai.if", "coreai.while"):
            yield f"a write inside {parent.name} aborts the process; yield the value and write it outside"
            return
        parent = parent.parent_op()


@_hazard("scatter_nd")
def _scatter_nd(op: CoreaiOp, verification: VerifierRun) -> Iterator[str]:
    block = op.regions[0].blocks[0] if op.regions[0].blocks else None
    yielded = block.last_op if block is not None else None
    if block is None or yielded is None or len(list(block.ops)) != 1 or len(block.args) != 2:
        yield "its region must take the old and the new value and hold nothing but a yield"
    elif list(yielded.operands) != [block.args[1]]:
        yield "it always stores the update, whatever its region yields, so the region must yield its second argument"


@_hazard(
    *("divide", "floor_divide", "modulo"),
    *(f"decomposable.broadcasting_{name}" for name in ("divide", "floor_divide", "modulo")),
)
def _divide(op: CoreaiOp, verification: VerifierRun) -> Iterator[str]:
    divisor = op.operands[1]
    if isinstance(divisor.type, TensorType) and is_integer(divisor.type.element_type):
        values = constant_values(divisor, verification.module.blobs)
        if values is not None and (values == 0).any():
            yield "an integer division by zero aborts the process"


@_hazard("pad")
def _pad(op: CoreaiOp, verification: VerifierRun) -> Iterator[str]:
    mode = op.properties["padding_mode"]
    if isinstance(mode, EnumerationAttr) and mode.data != "constant" and not is_constant(op.operands[2]):
        yield f"the padding value must be a constant when the mode is {mode.data}"


@_hazard("interpolate")
def _interpolate(op: CoreaiOp, verification: VerifierRun) -> Iterator[str]:
    for value, name in zip(op.operands[1:], ("output_shape", "scale", "offset"), strict=True):
        if not is_static(value.type):
            yield f"operand `{name}` must have a static length"


@_hazard("blockwise_shift_scale")
def _scale(op: CoreaiOp, verification: VerifierRun) -> Iterator[str]:
    _, scale, _, offset = (element_name(operand.type.element_type) for operand in op.operands)  # type: ignore[attr-defined]
    if scale not in (offset, "f8E8M0FNU"):  # found by trying: the runtime reads the bits of one type as the other
        yield f"the scale is {scale} and offset2 is {offset}, which gives wrong numbers; cast the scale to {offset}"


@_hazard("blockwise_shift_scale")
def _shifted_floats(op: CoreaiOp, verification: VerifierRun) -> Iterator[str]:
    data, _, shift, _ = op.operands
    element = element_name(data.type.element_type)  # type: ignore[attr-defined]
    if element not in ("f8E4M3FN", "f8E5M2", "f4E2M1FN"):
        return
    known = constant_values(shift)  # the toolchain sees no bytes of stored constants either
    if known is None or known.any():
        yield f"data of {element} needs an offset1 that is a constant of zeros in the text; use c.constant(0, ...)"


@_hazard("lut_to_dense")
def _lut(op: CoreaiOp, verification: VerifierRun) -> Iterator[str]:
    indices, lut = shape_of(op.operands[0].type), shape_of(op.operands[1].type)
    element = op.operands[0].type.element_type  # type: ignore[attr-defined]
    entries = 1 << BIT_WIDTHS[element_name(element)]
    if lut[-2] not in (None, entries):
        yield f"a table for {element_name(element)} indices has {entries} entries, not {lut[-2]}"
    for axis, (dim, blocks) in enumerate(zip(indices, lut[:-2], strict=True)):
        if dim is not None and blocks is not None and (blocks == 0 or dim % blocks):
            yield f"dimension {axis} of the indices ({dim}) is not divisible by the table's ({blocks})"


@_hazard("gather_along_axis", "scatter_along_axis")
def _index_along_axis(op: CoreaiOp, verification: VerifierRun) -> Iterator[str]:
    axis, indices = constant_integers(op.operands[-1]), constant_values(op.operands[1])
    shape = shape_of(op.operands[0].type)
    if axis is not None and indices is not None and indices.size:
        dim = shape[axis[0] % len(shape)]
        if dim is not None and not (-dim <= indices.min() and indices.max() < dim):
            yield OfTheModel(f"indices from {indices.min()} to {indices.max()} leave the dimension of {dim}")


@_hazard("gather_nd", "scatter_nd")
def _index_vectors(op: CoreaiOp, verification: VerifierRun) -> Iterator[str]:
    indices, shape = constant_values(op.operands[1]), shape_of(op.operands[0].type)
    if indices is None or not indices.size:
        return
    for column, dim in zip(range(indices.shape[-1]), shape, strict=False):
        low, high = indices[..., column].min(), indices[..., column].max()
        if dim is not None and not (-dim <= low and high < dim):
            yield OfTheModel(f"indices from {low} to {high} leave dimension {column} ({dim})")


@_hazard("read_handle", "write_handle")
def _token(op: CoreaiOp, verification: VerifierRun) -> Iterator[str]:
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


# ---- graphs ---------------------------------------------------------------------------------------


def graph_hazards(graph: CoreaiOp) -> Iterator[str]:
    """The problems that a graph's signature would cause when the graph is saved or called."""
    signature = graph.properties["function_type"]
    assert isinstance(signature, FunctionType)
    for key, what in (("arg_attrs", "argument"), ("res_attrs", "result")):
        entries = graph.properties.get(key)
        for index, entry in enumerate(entries.data if isinstance(entries, ArrayAttr) else ()):
            if isinstance(entry, DictionaryAttr) and "coreai.enumerated_shapes" in entry.data:
                yield f"{what} {index} has coreai.enumerated_shapes left; saving would abort the process"
    for type_ in (*signature.inputs, *signature.outputs):
        tensor_type = type_.tensor_type if isinstance(type_, HandleType) else type_
        if isinstance(tensor_type, TensorType) and element_name(tensor_type.element_type) not in ELEMENT_TYPES:
            yield f"Core AI has no element type {tensor_type.element_type}, so {type_} cannot be saved"
    if "priv" in graph.properties or "externalize" in graph.properties:
        return
    for what, types in (("argument", signature.inputs), ("result", signature.outputs)):
        for index, type_ in enumerate(types):
            if not isinstance(type_, TensorType | HandleType | TokenType | ImageType):
                yield f"{what} {index} is a bare {type_}, on which the runtime aborts; make it a tensor"
    yield from _name_hazards(graph, signature)


def _name_hazards(graph: CoreaiOp, signature: FunctionType) -> Iterator[str]:
    """Names by which the runtime cannot tell the graph's inputs, states and outputs apart."""
    arguments = list(zip(names_of(graph, "arg_attrs"), signature.inputs, strict=True))
    results = list(zip(names_of(graph, "res_attrs"), signature.outputs, strict=True))
    if not any(name is not None for name, _ in (*arguments, *results)):
        return  # a graph that is not meant to be called yet
    # the runtime ignores the names of tokens
    kinds = {
        "input": [name for name, type_ in arguments if not isinstance(type_, HandleType | TokenType)],
        "state": [name for name, type_ in arguments if isinstance(type_, HandleType)],
        "output": [name for name, type_ in results if not isinstance(type_, TokenType)],
    }
    for kind, names in kinds.items():
        for index, name in enumerate(names):
            if name is None:
                yield f"{kind} {index} has no name, but others have; running would abort the process"
            elif not name:
                yield f"{kind} {index} has an empty name; running would abort the process"
        for name, count in Counter(name for name in names if name).items():
            if count > 1:
                yield f"{count} {kind}s are named {name!r}; the runtime takes one and loses the others"
    for name in kinds["output"]:
        if name and name in kinds["state"]:
            yield f"output {name!r} has the name of a state, and the runtime loses it"
