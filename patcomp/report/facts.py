"""What a reader of a graph wants to know of an op besides its name: attributes, and the names of its operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from patcomp.ir.aten import MEMORY_ARGUMENTS, AtenOp
from patcomp.ir.attributes import CompositeDeclarationAttr, EnumerationAttr
from patcomp.ir.constants import attribute_values, is_constant
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.module import callee
from patcomp.ir.region import RegionOp
from patcomp.ir.traits import Elementwise, Reduction, View
from patcomp.ir.types import TensorType, element_name, shape_of
from patcomp.ir.value import Value
from patcomp.ir.xdsl import ArrayAttr, Attribute, DictionaryAttr, FloatAttr, IntegerAttr, Operation, StringAttr

_SHOWN = 8
"""The elements of a constant, or of a list, that are shown."""

_ELSEWHERE = {"arg_attrs", "callee", "operandSegmentSizes", "res_attrs", "value"}
"""Properties that the text of an op shows in another form."""


def operand_names(op: Operation, graphs: Mapping[str, Operation]) -> list[str]:
    """A name for each operand of an op; empty texts if its dialect has none.

    Args:
        op: the op.
        graphs: the graphs of its module by symbol; a call's operands have the names of its graph's arguments.
    """
    if op.name == "coreai.invoke" and callee(op) in graphs:
        return [argument.name_hint or "" for argument in graphs[callee(op)].regions[0].block.args]
    if isinstance(op, CoreaiOp):
        slots = zip(op.ROW.operands, op.operands_by_slot(), strict=True)
        return [slot.name.rstrip("_") for slot, operands in slots for _ in operands]
    if isinstance(op, RegionOp):
        return [name.data for name in op.argument_names.data if isinstance(name, StringAttr)]
    if isinstance(op, AtenOp):
        return [name for name, argument in op.arguments_by_name().items() for _ in _values(argument)]
    return [""] * len(op.operands)


def _values(argument: Any) -> Sequence[Value]:
    """The values in an argument of an ATen op."""
    listed = argument if isinstance(argument, list | tuple) else [argument]
    return [each for each in listed if isinstance(each, Value)]


def shown_facts(op: Operation, graphs: Mapping[str, Operation]) -> list[str]:
    """The attributes of an op, each as `name value`; of a constant its value, or its type if it has many elements."""
    if is_constant(op):
        return [_constant(op)]
    if isinstance(op, AtenOp):
        defaults = {argument.name: argument.default for argument in op.SCHEMA.arguments if argument.has_default}
        given = op.arguments_by_name().items()
        return [
            f"{name} {_plain(argument)}"
            for name, argument in given
            if not (_values(argument) or argument is None or name in MEMORY_ARGUMENTS)
            and (name not in defaults or defaults[name] != argument)
        ]
    if isinstance(op, RegionOp):
        return _composite(op.declaration)
    if op.name == "coreai.invoke":
        graph = graphs.get(callee(op))
        return [] if graph is None else _composite(graph.properties.get("composite_decl"))
    return [f"{name} {_text(value)}" for name, value in op.properties.items() if name not in _ELSEWHERE]


def _composite(declaration: Attribute | None) -> list[str]:
    if not isinstance(declaration, CompositeDeclarationAttr):
        return []
    attributes = declaration.fields.data["op_attrs"]
    assert isinstance(attributes, DictionaryAttr)
    return [f"{name} {_text(value)}" for name, value in attributes.data.items() if name != "version"]


def _constant(op: Operation) -> str:
    type_ = op.results[0].type
    if not isinstance(type_, TensorType):
        return str(type_)
    kind = " ".join(["x".join("?" if size is None else str(size) for size in shape_of(type_)), _element(type_)]).strip()
    values = attribute_values(op.properties["value"])
    if values is None:
        return kind
    if values.size <= _SHOWN:
        return _plain(values.tolist())
    # equal elements are one number, repeated
    return f"{kind}, all {_plain(values.flat[0].item())}" if not any(values.strides) else kind


def _element(type_: TensorType) -> str:
    return element_name(type_.element_type)


def _text(attribute: Attribute) -> str:
    """A short text of a property."""
    if isinstance(attribute, EnumerationAttr | StringAttr):
        return attribute.data
    if isinstance(attribute, IntegerAttr):
        width = getattr(attribute.type, "width", None)
        return (
            _plain(bool(attribute.value.data)) if width is not None and width.data == 1 else str(attribute.value.data)
        )
    if isinstance(attribute, FloatAttr):
        return _plain(float(attribute.value.data))
    if isinstance(attribute, ArrayAttr):
        return f"[{', '.join(map(_text, attribute.data[:_SHOWN]))}{', …' * (len(attribute.data) > _SHOWN)}]"
    return str(attribute)


def _plain(value: Any) -> str:
    """A Python value as a short text; floats have as many digits as float32 holds."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return (
            repr(float(np.format_float_scientific(value, precision=6, trim="-"))) if np.isfinite(value) else str(value)
        )
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_plain, value[:_SHOWN]))}{', …' * (len(value) > _SHOWN)}]"
    return str(value)


def op_kind(op: Operation) -> str:
    """What an op does in a word, for its colour: `product`, `view`, `elementwise`, `reduction` or `other`."""
    is_product = bool(op.ROW.multiply_adds) if isinstance(op, CoreaiOp) else isinstance(op, AtenOp) and op.FACTS.product
    if is_product:
        return "product"
    kinds = {View: "view", Elementwise: "elementwise", Reduction: "reduction"}
    return next((kind for trait, kind in kinds.items() if op.has_trait(trait)), "other")
