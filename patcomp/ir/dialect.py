"""The `coreai` dialect as xDSL op classes, made from the rows of `coreai_table`.

`OPS["coreai.add"]` is the class of an op; `op.ROW` its row. Ops are created with `create_op`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from patcomp.ir import attributes, traits
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.coreai_table import COREAIX_ROWS, ROWS
from patcomp.ir.rows import Row, Slot
from patcomp.ir.syntax import form_of
from patcomp.ir.traits import Broadcasting, Elementwise, Reduction, SameShape
from patcomp.ir.types import (
    HandleType,
    ImageType,
    ParameterReferenceType,
    ParameterType,
    SymbolType,
    TokenType,
)
from patcomp.ir.xdsl import (
    AnyAttr,
    Attribute,
    AttrSizedOperandSegments,
    Dialect,
    IsolatedFromAbove,
    IsTerminator,
    Operation,
    OpTrait,
    Pure,
    Region,
    SSAValue,
    SymbolOpInterface,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)


def _traits(row: Row) -> list[type[OpTrait]]:
    """The traits that follow from a row's facts."""
    of_one = row.infer == "like_first" and len(row.operands) == 1
    facts: dict[type[OpTrait], bool] = {
        Pure: row.pure,
        IsTerminator: row.terminator,
        Elementwise: row.infer == "same_shape",
        Broadcasting: row.infer in ("broadcast", "cast") or of_one,
        SameShape: row.infer == "like_first" and not of_one,
        Reduction: row.infer == "reduce" and not row.regions,
    }
    named = [getattr(traits, row.trait)] if row.trait else []
    return named + [trait for trait, holds in facts.items() if holds]


def _make(row: Row) -> type[CoreaiOp]:
    def define(slot: Slot, single: Any, variadic: Any) -> Any:
        return (variadic if slot.variadic else single)(AnyAttr())

    fields: dict[str, Any] = {"__module__": __name__, "name": row.op_name, "__doc__": row.doc}
    # a field must not shadow a method or attribute of Operation, hence the suffixes
    for slot in row.operands:
        fields[f"{slot.name}_operand"] = define(slot, operand_def, var_operand_def)
    for slot in row.results:
        fields[f"{slot.name}_result"] = define(slot, result_def, var_result_def)
    for region, _ in row.regions:
        fields[f"{region}_region"] = region_def()
    for declared in row.properties:
        definition = opt_prop_def if declared.optional else prop_def
        fields[f"{declared.name}_property"] = definition(AnyAttr(), prop_name=declared.name)
    own: list[Any] = [trait() for trait in _traits(row)]
    if row.name == "graph":
        own += [IsolatedFromAbove(), SymbolOpInterface()]
    fields["traits"] = traits_def(*own)
    if sum(slot.variadic for slot in row.operands) > 1:
        fields["irdl_options"] = (AttrSizedOperandSegments(as_property=True),)
    class_name = "".join(part.capitalize() for part in row.name.replace(".", "_").split("_")) + "Op"
    op_class: type[CoreaiOp] = irdl_op_definition(type(class_name, (CoreaiOp,), fields))
    op_class.ROW, op_class.FORM = row, form_of(row)
    return op_class


OPS: dict[str, type[CoreaiOp]] = {row.op_name: _make(row) for row in (*ROWS, *COREAIX_ROWS)}
"""Every op class of the two dialects by its full name, `"coreai.add"`."""


def ops_with(trait: type[OpTrait]) -> tuple[str, ...]:
    """The names of the ops that have a trait, in the order of the table."""
    return tuple(name for name, op_class in OPS.items() if op_class.has_trait(trait))


COREAI = Dialect(
    "coreai",
    [op_class for name, op_class in OPS.items() if name.startswith("coreai.")],
    [
        *(attribute for attribute in attributes.ATTRIBUTES if attribute.name.startswith("coreai.")),
        *{attributes.enumeration(item.name, item.words): None for row in ROWS for item in row.properties if item.words},
        TokenType,
        HandleType,
        ImageType,
    ],
)
COREAIX = Dialect(
    "coreaix",
    [op_class for name, op_class in OPS.items() if name.startswith("coreaix.")],
    [attributes.HardwareConstraintsAttr, attributes.ImageConstraintsAttr],
)
PARAM = Dialect(
    "param",
    [],
    [
        attributes.SymbolConstantAttr,
        attributes.ParameterDeclarationsAttr,
        SymbolType,
        ParameterType,
        ParameterReferenceType,
    ],
)


def create_op(
    name: str,
    operands: Sequence[SSAValue],
    result_types: Sequence[Attribute],
    properties: dict[str, Attribute] | None = None,
    regions: Sequence[Region] = (),
) -> Operation:
    """An unplaced op of the dialect; fast, because nothing is checked before `verify`."""
    return OPS[name].create(operands=operands, result_types=result_types, properties=properties or {}, regions=regions)
