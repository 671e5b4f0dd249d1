"""The `patcomp` dialect: one op, the region that will become a graph of its own.

    %y = patcomp.region @rms_norm(%x, %w) {declaration = #coreai.composite_declaration<...>} : (T, U) -> T {
    ^bb0(%input: T, %scale: U):
      ...
      coreai.yield %result : T
    }

Composites that the recover stage found and modules that the user externalizes are such regions; the
outline stage turns each into a `coreai.graph` and a `coreai.invoke`.
"""

from __future__ import annotations

from collections.abc import Sequence

from patcomp.ir.xdsl import (
    AnyAttr,
    ArrayAttr,
    Attribute,
    Block,
    Dialect,
    IRDLOperation,
    IsolatedFromAbove,
    Parser,
    Printer,
    Pure,
    Region,
    SSAValue,
    StringAttr,
    UnitAttr,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)


@irdl_op_definition
class RegionOp(IRDLOperation):
    """Ops that stay together: isolated, with the operands as block arguments and a `coreai.yield`."""

    name = "patcomp.region"
    inputs = var_operand_def(AnyAttr())
    outputs = var_result_def(AnyAttr())
    symbol = prop_def(StringAttr, prop_name="symbol")
    """Stem of the graph's symbol: the composite's name, or the module path."""
    declaration = opt_prop_def(AnyAttr(), prop_name="declaration")
    public = opt_prop_def(UnitAttr, prop_name="public")
    argument_names = prop_def(ArrayAttr, prop_name="argument_names")
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), Pure())

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.symbol.data)
        printer.print_string("(")
        printer.print_list(self.operands, printer.print_ssa_value)
        printer.print_string(") ")
        printer.print_attr_dict({k: self.properties[k] for k in sorted(self.properties) if k != "symbol"})
        printer.print_string(" : ")
        printer.print_function_type(
            [operand.type for operand in self.operands], [result.type for result in self.results]
        )
        printer.print_string(" ")
        printer.print_region(self.body)

    @classmethod
    def parse(cls, parser: Parser) -> RegionOp:
        symbol = parser.parse_symbol_name()
        arguments = parser.parse_op_args_list()
        properties: dict[str, Attribute] = {"symbol": symbol, **parser.parse_optional_attr_dict()}
        parser.parse_punctuation(":")
        signature = parser.parse_function_type()
        body = parser.parse_region()
        return cls.create(
            operands=parser.resolve_operands(arguments, signature.inputs.data, parser.pos),
            result_types=signature.outputs.data,
            properties=properties,
            regions=[body],
        )


def create_region(
    symbol: str,
    inputs: Sequence[SSAValue],
    body: Block,
    result_types: Sequence[Attribute],
    argument_names: Sequence[str],
    declaration: Attribute | None = None,
    *,
    public: bool = False,
) -> RegionOp:
    """A region op around a block whose arguments stand for `inputs` and which ends in a `coreai.yield`."""
    properties: dict[str, Attribute] = {
        "symbol": StringAttr(symbol),
        "argument_names": ArrayAttr([StringAttr(name) for name in argument_names]),
    }
    if declaration is not None:
        properties["declaration"] = declaration
    if public:
        properties["public"] = UnitAttr()
    op = RegionOp.create(operands=inputs, result_types=result_types, properties=properties, regions=[Region(body)])
    assert isinstance(op, RegionOp)
    return op


PATCOMP = Dialect("patcomp", [RegionOp], [])
