"""The `coreai` dialect as xDSL op classes, made from the rows of `coreai_table`.

`OPS["coreai.add"]` is the class of an op; `op.ROW` its row. Ops are created with `create_op`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, ClassVar

from patcomp.ir import attributes
from patcomp.ir.coreai_table import COREAIX_ROWS, ROWS
from patcomp.ir.rows import Row, Slot
from patcomp.ir.syntax import Form, form_of
from patcomp.ir.types import (
    HandleType,
    ImageType,
    ParameterReferenceType,
    ParameterType,
    SymbolType,
    TokenType,
)
from patcomp.ir.value import Value
from patcomp.ir.xdsl import (
    AnyAttr,
    Attribute,
    AttrSizedOperandSegments,
    DenseArrayBase,
    Dialect,
    IntegerType,
    IsolatedFromAbove,
    Operation,
    OpTrait,
    OwnOperation,
    Parser,
    Printer,
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


class CoreaiOp(OwnOperation):
    """Base of every op of the dialect."""

    ROW: ClassVar[Row]
    FORM: ClassVar[Form]

    def operand_segments(self) -> tuple[int, ...] | None:
        """The number of operands of each slot, as the op stores it; None if at most one slot is variadic."""
        sizes = self.properties.get("operandSegmentSizes")
        return tuple(sizes.get_values()) if type(sizes) is DenseArrayBase else None

    def operands_by_slot(self) -> list[list[SSAValue]]:
        """The operands of each of the row's slots; a slot that is not variadic has one."""
        slots, operands = self.ROW.operands, self.operands
        sizes = self.operand_segments()
        if sizes is None:
            sizes = tuple(len(operands) - len(slots) + 1 if slot.variadic else 1 for slot in slots)
        taken = iter(operands)
        return [list(islice(taken, size)) for size in sizes]

    def arguments_by_name(self) -> dict[str, Any]:
        """Operands by name as `Value`s (a list where variadic) and properties by name as attributes."""
        arguments: dict[str, Any] = dict(self.properties)
        arguments.pop("operandSegmentSizes", None)
        if self.ROW.has_variadic:
            for slot, group in zip(self.ROW.operands, self.operands_by_slot(), strict=True):
                values = [Value(operand) for operand in group]
                arguments[slot.name] = values if slot.variadic else values[0]
        else:
            for slot, operand in zip(self.ROW.operands, self.operands, strict=True):
                arguments[slot.name] = Value(operand)
        return arguments

    def print(self, printer: Printer) -> None:
        self.FORM.print(self, printer)

    @classmethod
    def parse(cls, parser: Parser) -> CoreaiOp:
        return cls.FORM.parse(parser, cls)

    @staticmethod
    def segment_sizes(sizes: Sequence[int]) -> Attribute:
        return DenseArrayBase.from_list(IntegerType(32), sizes)


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
    traits: list[Any] = [trait() for trait in row.traits]
    if row.name == "graph":
        traits += [IsolatedFromAbove(), SymbolOpInterface()]
    fields["traits"] = traits_def(*traits)
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
