"""The authoring functions: `coreai.broadcasting_add(x, 1.0)` adds an op at the active insertion point.

There is one function for each op of the dialect, under the name in Core AI's own authoring package
(`coreai.abs_`, `coreai.sumpool2d`) and under the op's own name. Operands are given by position or by name.
Python and numpy numbers, lists and arrays become constants of the operand's type: `si32` for axes and bounds,
`ui32` for sizes and counts, the element type of the other operands for scalars. Lists of sizes and bounds may
contain scalar values, too: `coreai.reshape(x, [batch, 4, -1])`. Result types are inferred; pass `result_type=`
if they depend on run-time values or are known more precisely. `loc=` sets the op's location.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np

from patcomp.errors import DynamicSizeError, did_you_mean
from patcomp.ir.attributes import symbol_constant, word_attribute
from patcomp.ir.builder import Builder
from patcomp.ir.constants import dense
from patcomp.ir.coreai_table import COREAIX_ROWS, ROWS
from patcomp.ir.dialect import OPS
from patcomp.ir.elements import element_of_numpy, to_numpy
from patcomp.ir.graphs import graph as graph
from patcomp.ir.infer import InferenceError, infer_types
from patcomp.ir.rows import Row, Slot
from patcomp.ir.types import ELEMENT_OF_TORCH, ELEMENT_TYPES, FAMILIES, TensorType, element_name, element_type, tensor
from patcomp.ir.value import Value, ValueType
from patcomp.ir.xdsl import Attribute, DenseIntOrFPElementsAttr, LocationAttr, Region, SSAValue, StringAttr

Branch = Callable[..., Value | Sequence[Value]]
"""A function that builds a region and returns one or several values."""


def constant(value: Any, dtype: Any = None, *, name: str | None = None, loc: LocationAttr | None = None) -> Value:
    """A constant tensor.

    Args:
        value: bool, int, float, nested list or numpy array.
        dtype: element type (`"f32"`, an xDSL type, a numpy or PyTorch dtype); by default `i1`, `si32` or `f32` for
            Python values and the array's own for numpy ones.
        name: the name that a large constant has in the text, `dense_resource<name>`.
        loc: location of the op.

    Raises:
        OverflowError: an integer does not fit the element type.
        TypeError: the value or the element type is not supported.
    """
    element = _element(dtype) if dtype is not None else None
    return _at(loc, lambda builder: builder.constant(*to_numpy(value, element), name or "constant"))


def cast(x: Any, dtype: Any, *, loc: LocationAttr | None = None, result_type: Attribute | None = None) -> Value:
    """`x` in another element type; numbers become constants, and a value that already has the type is returned.

    A cast to integers saturates, also from wider integers, and NaN becomes 0.
    """
    element = _element(dtype)
    if not isinstance(x, Value | SSAValue):
        return constant(x, element, loc=loc)
    value = x if isinstance(x, Value) else Value(x)
    wanted = result_type or tensor(value.shape, element)
    if value.ssa.type == wanted:
        return value
    return _at(loc, lambda builder: _build(builder, OPS["coreai.cast"].ROW, [value.ssa], {}, [wanted], ())[0])


def if_(condition: Any, then: Branch, otherwise: Branch) -> list[Value]:
    """`coreai.if`: the results of one of two branches, whose types must be equal."""
    builder = Builder.current()
    regions = [builder.region((), then), builder.region((), otherwise)]
    types = [[operand.type for operand in region.block.last_op.operands] for region in regions]  # type: ignore[union-attr]
    if types[0] != types[1]:
        raise InferenceError(f"branches of an if have different types: {_listed(types[0])} and {_listed(types[1])}")
    return _build(builder, OPS["coreai.if"].ROW, [_ssa(condition)], {}, types[0], regions)


def while_(inits: Sequence[Value], condition: Callable[..., Value], body: Branch) -> list[Value]:
    """`coreai.while`: `condition(*values)` decides, `body(*values)` computes the next values, of the same types."""
    builder = Builder.current()
    types = [_ssa(value).type for value in inits]
    before = builder.region(types, lambda *values: [condition(*values), *values], "coreai.condition")
    after = builder.region(types, body)
    given = [operand.type for operand in after.block.last_op.operands]  # type: ignore[union-attr]
    if given != types:
        raise InferenceError(f"the body of a while takes {_listed(types)}, but gives {_listed(given)}")
    return _build(builder, OPS["coreai.while"].ROW, [_ssa(value) for value in inits], {}, types, [before, after])


def invoke(callee: str, operands: Sequence[Any], result_types: Sequence[Attribute]) -> list[Value]:
    """A call of the graph `@callee`, whose signature must match exactly."""
    builder = Builder.current()
    properties: dict[str, Attribute] = {"callee": symbol_constant(callee)}
    return _build(builder, OPS["coreai.invoke"].ROW, [_ssa(v) for v in operands], properties, result_types, ())


def output(*operands: Any) -> None:
    """The terminator of a graph."""
    _build(Builder.current(), OPS["coreai.output"].ROW, [_ssa(value) for value in operands], {}, (), ())


def yield_(*operands: Any) -> None:
    """The terminator of a region."""
    _build(Builder.current(), OPS["coreai.yield"].ROW, [_ssa(value) for value in operands], {}, (), ())


# ---- one function for each remaining row ----------------------------------------------------------


def _listed(types: Sequence[Attribute]) -> str:
    return f"({', '.join(map(str, types))})"


def _ssa(value: Any) -> SSAValue:
    if isinstance(value, Value):
        return value.ssa
    if isinstance(value, SSAValue):
        return value
    raise TypeError(f"expected a value, got {value!r}")


def _element(dtype: Any) -> Attribute:
    """The element type for a name, an xDSL type, or a numpy or PyTorch dtype."""
    if isinstance(dtype, str) or (isinstance(dtype, Attribute) and dtype in ELEMENT_TYPES.values()):
        return element_type(dtype)
    if (name := str(dtype).removeprefix("torch.")) in ELEMENT_OF_TORCH and not isinstance(dtype, np.dtype | type):
        return element_type(ELEMENT_OF_TORCH[name])
    if isinstance(dtype, np.dtype | type):
        return element_of_numpy(np.dtype(dtype))
    raise TypeError(f"expected an element type, such as 'f32' or x.type.element_type, got {dtype!r}")


def _at(loc: LocationAttr | None, build: Callable[[Builder], Any]) -> Any:
    builder = Builder.current()
    if loc is None:
        return build(builder)
    if not isinstance(loc, LocationAttr):
        raise TypeError(f"loc= takes a location, the third argument of a lowering, got {loc!r}")
    outer, builder.location = builder.location, loc
    try:
        return build(builder)
    finally:
        builder.location = outer


def _build(
    builder: Builder,
    row: Row,
    operands: Sequence[SSAValue],
    properties: dict[str, Attribute],
    result_types: Sequence[Attribute],
    regions: Sequence[Region],
) -> list[Value]:
    op = OPS[row.op_name].create(operands=operands, result_types=result_types, properties=properties, regions=regions)
    return [Value(result) for result in builder.insert(op).results]


def _partner_element(row: Row, slot: Slot, arguments: dict[str, Any]) -> Attribute | None:
    """The element type that a number in this slot takes from the other operands."""
    for group in row.same:
        if slot.name in group:
            for name in group:
                given = arguments.get(name)
                for item in given if isinstance(given, list | tuple) else [given]:
                    if isinstance(item, Value | SSAValue):
                        type_ = _ssa(item).type
                        return type_.element_type if isinstance(type_, TensorType) else None
    return None


def _coerce(builder: Builder, row: Row, slot: Slot, given: Any, arguments: dict[str, Any]) -> SSAValue:
    if isinstance(given, Value | SSAValue):
        return _index(given) if slot.types[0] in ("IDX", "UIDX") else _ssa(given)
    if isinstance(given, list | tuple) and any(
        type(item) is not int and isinstance(item, Value | SSAValue) for item in given
    ):
        return _joined(builder, given, "ui32" if slot.types[0] in ("UIDX", "ui32") else "si32")
    if slot.types[0] in _INTEGER_SLOTS and _are_integers(given):
        return builder.constant_of(
            _integers(given if type(given) is int else tuple(given), slot.types[0], slot.ranks)
        ).ssa
    families = set(slot.types)
    element: Attribute | None = None
    if slot.types[0] in _INTEGER_SLOTS:
        element = element_type(_INTEGER_SLOTS[slot.types[0]])
        if (
            isinstance(given, np.ndarray | np.generic)
            and element_name(element_of_numpy(given.dtype)) in FAMILIES[slot.types[0]]
        ):
            element = element_of_numpy(given.dtype)
    elif len(families) == 1 and slot.types[0] not in FAMILIES:
        if slot.types[0] not in ELEMENT_TYPES:  # a token or a handle, which no number stands for
            return _ssa(given)
        element = element_type(slot.types[0])
    elif families == {"B"}:
        element = element_type("i1")
    else:
        element = _partner_element(row, slot, arguments)
    if element is not None and isinstance(given, list | tuple) and None in given:
        raise DynamicSizeError(
            f"{given} has a size that is only known at run time (None); read it with coreai.get_shape, or write -1"
        )
    array, element = to_numpy(given, element)
    return builder.constant(_of_rank(array, slot.ranks), element).ssa


_INTEGER_SLOTS = {"IDX": "si32", "UIDX": "ui32"}
"""The slots of sizes and indices, and the element type that Python integers get there."""


def _are_integers(given: Any) -> bool:
    if isinstance(given, list | tuple):
        return len(given) <= 16 and all(type(item) is int for item in given)
    return type(given) is int


@lru_cache(maxsize=4096)  # most programs repeat few shapes and axes
def _integers(given: int | tuple[int, ...], slot_type: str, ranks: tuple[int, ...]) -> DenseIntOrFPElementsAttr:
    array, element = to_numpy(given, _INTEGER_SLOTS[slot_type])
    array = _of_rank(array, ranks)
    return dense(array, tensor(array.shape, element))


def _of_rank(array: np.ndarray, ranks: tuple[int, ...]) -> np.ndarray:
    """An array of one number in the only rank that a slot takes."""
    if ranks == (0,) and array.ndim == 1 and array.size == 1:
        return array.reshape(())
    return array.reshape(1) if ranks == (1,) and array.ndim == 0 else array


def _joined(builder: Builder, given: Sequence[Any], element: str) -> SSAValue:
    """A vector of numbers and of scalars known only at run time."""
    parts: list[Value] = []
    for is_value, items in groupby(given, lambda item: isinstance(item, Value | SSAValue)):
        if is_value:
            scalars = (cast(item if isinstance(item, Value) else Value(item), element) for item in items)
            parts += [scalar if scalar.rank else FUNCTIONS["reshape"](scalar, [1]) for scalar in scalars]
        else:
            parts.append(constant(list(items), element))
    return (parts[0] if len(parts) == 1 else FUNCTIONS["concat"](0, parts)).ssa


def _index(given: Value | SSAValue) -> SSAValue:
    """Cast indices to at most 32 bits; the cast saturates, so indices out of range stay out of range."""
    type_ = _ssa(given).type
    if isinstance(type_, TensorType) and element_name(type_.element_type) in ("si64", "ui64"):
        return cast(Value(_ssa(given)), "si32").ssa
    return _ssa(given)


def _properties(row: Row, given: dict[str, Any]) -> dict[str, Attribute]:
    properties: dict[str, Attribute] = {}
    for declared in row.properties:
        value = given.pop(declared.name, None)
        if value is None:
            value = declared.default
        if value is None:
            if declared.optional:
                continue
            raise TypeError(f"{row.op_name} needs {declared.name}=")
        if not isinstance(value, Attribute):
            value = word_attribute(declared, value) if declared.words else StringAttr(value)
        properties[declared.name] = value
    return properties


def _author(row: Row) -> Callable[..., Any]:
    slots = row.operands
    property_names = [declared.name for declared in row.properties]

    def function(*args: Any, loc: LocationAttr | None = None, result_type: Any = None, **kwargs: Any) -> Any:
        given_properties = {name: kwargs.pop(name) for name in list(kwargs) if name in property_names}
        arguments: dict[str, Any] = {}
        positional = list(args)
        for slot in slots:
            if slot.name in kwargs:
                arguments[slot.name] = kwargs.pop(slot.name)
            elif positional:
                arguments[slot.name] = positional.pop(0)
            else:
                raise TypeError(f"{row.op_name} needs {slot.name}=")
        for name in property_names:
            if positional and name not in given_properties:
                given_properties[name] = positional.pop(0)
        if positional or kwargs:
            raise TypeError(f"{row.op_name} takes {[slot.name for slot in slots]}, got also {positional or kwargs}")

        def build(builder: Builder) -> Any:
            operands: list[SSAValue] = []
            segments: list[int] = []
            for slot in slots:
                given = arguments[slot.name]
                if slot.variadic and not isinstance(given, list | tuple):
                    raise TypeError(f"{row.op_name}: {slot.name} must be a list of values, got {given!r}")
                items = given if slot.variadic else [given]
                try:
                    operands += [_coerce(builder, row, slot, item, arguments) for item in items]
                except (TypeError, OverflowError) as error:
                    raise type(error)(f"{row.op_name}, {slot.name}: {error}") from None
                segments.append(len(items))
            properties = _properties(row, given_properties)
            if sum(slot.variadic for slot in slots) > 1:
                properties["operandSegmentSizes"] = OPS[row.op_name].segment_sizes(segments)
            regions: list[Region] = []
            if row.name == "scatter_nd":
                element = tensor((), operands[0].type.element_type)  # type: ignore[attr-defined]
                regions = [builder.region([element, element], lambda old, new: [new])]
            results = builder.insert(
                OPS[row.op_name].create(
                    operands=operands,
                    result_types=_result_types(row, operands, properties, result_type),
                    properties=properties,
                    regions=regions,
                )
            ).results
            values = [Value(result) for result in results]
            return values[0] if len(values) == 1 and not row.results[0].variadic else values

        return _at(loc, build)

    function.__name__ = row.builder
    function.__qualname__ = row.builder
    function.__doc__ = f"{row.doc}\n\nOperands: {', '.join(slot.name for slot in slots) or 'none'}."
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(slot.name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for slot in slots]
        + [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in property_names]
        + [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in ("loc", "result_type")]
    )
    return function


def _result_types(
    row: Row, operands: Sequence[SSAValue], properties: dict[str, Attribute], wanted: Any
) -> list[Attribute]:
    if wanted is not None:
        listed = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
        wanted = [item.attribute if isinstance(item, ValueType) else item for item in listed]
        count = len(wanted) if row.results and row.results[-1].variadic else len(row.results)
        if [isinstance(item, Attribute) for item in wanted] != [True] * count:
            raise TypeError(f"{row.op_name}: result_type= takes a type such as x.type for each result, got {listed}")
    try:
        inferred = infer_types(row, operands, properties)
    except (InferenceError, IndexError) as error:
        types = ", ".join(str(operand.type) for operand in operands)
        reason = error if isinstance(error, InferenceError) else f"wrong rank of {_of_wrong_rank(row, operands)}"
        raise InferenceError(f"{row.op_name}({types}): {reason}") from None
    if wanted is None:
        if inferred is None:
            raise TypeError(f"{row.op_name} needs result_type=")
        return inferred
    return wanted


def _of_wrong_rank(row: Row, operands: Sequence[SSAValue]) -> str:
    """Describe the operands of a wrong rank, with the ranks accepted by the op."""
    wrong = [
        f"{slot.name}, not {' or '.join(map(str, slot.ranks))}"
        for slot, operand in zip(row.operands, operands, strict=False)
        if slot.ranks and isinstance(operand.type, TensorType) and Value(operand).rank not in slot.ranks
    ]
    return ", ".join(wrong) or "an operand"


FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function for function in (constant, cast, if_, while_, invoke, output, yield_, graph)
}
"""The authoring functions by name: the builder's name of the row, and the op's own."""

for _row in (*ROWS, *COREAIX_ROWS):
    if _row.authored and _row.builder not in FUNCTIONS:
        FUNCTIONS[_row.builder] = _author(_row)
for _row in ROWS:
    if _row.authored:
        FUNCTIONS.setdefault(_row.name.rpartition(".")[2], FUNCTIONS[_row.builder])


def __getattr__(name: str) -> Callable[..., Any]:
    try:
        return FUNCTIONS[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{did_you_mean(name, FUNCTIONS)}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *FUNCTIONS})
