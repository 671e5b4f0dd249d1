"""The `patcomp` dialect: regions that become graphs, and the markers from which regions are formed.

    %y = patcomp.region @rms_norm(%x, %w) {declaration = #coreai.composite_declaration<...>} : (T, U) -> T {
    ^bb0(%input: T, %scale: U):
      ...
      coreai.yield %result : T
    }

Composites that the recover stage found and modules that the user externalizes are such regions; the
outline stage turns each into a `coreai.graph` and a `coreai.invoke`. A module's call is imported as the ops
between a `patcomp.region_begin` and a `patcomp.region_end`; the import then makes a region of these ops.

Calls of a composite that have the same body share it. It is then a private graph, which each of them names:

    %y = patcomp.region @rms_norm(%x, %w) {declaration = #coreai.composite_declaration<...>, graph = @rms_norm} : ...
"""

from __future__ import annotations

from collections.abc import Sequence

from patcomp.ir.custom import CustomOp
from patcomp.ir.xdsl import (
    AnyAttr,
    ArrayAttr,
    Attribute,
    Block,
    Dialect,
    IntegerAttr,
    IsolatedFromAbove,
    Operation,
    OwnOperation,
    Parser,
    Printer,
    Pure,
    Region,
    SSAValue,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    irdl_op_definition,
    ops_inside,
    opt_prop_def,
    opt_region_def,
    prop_def,
    traits_def,
    var_operand_def,
    var_result_def,
)


@irdl_op_definition
class RegionOp(OwnOperation):
    """Ops that stay together: isolated, with the operands as block arguments and a `coreai.yield`."""

    name = "patcomp.region"
    inputs = var_operand_def(AnyAttr())
    outputs = var_result_def(AnyAttr())
    symbol = prop_def(StringAttr, prop_name="symbol")
    """Stem of the graph's symbol: the composite's name, or the module path."""
    declaration = opt_prop_def(AnyAttr(), prop_name="declaration")
    options = opt_prop_def(AnyAttr(), prop_name="options")
    """The undeclared values by which a recovered composite's body was built, by name."""
    public = opt_prop_def(UnitAttr, prop_name="public")
    argument_names = prop_def(ArrayAttr, prop_name="argument_names")
    result_names = opt_prop_def(ArrayAttr, prop_name="result_names")
    recover = opt_prop_def(IntegerAttr, prop_name="recover")
    """For a module that the user externalized: whether composites are recovered inside. Absent on composites of
    the recover stage."""
    graph = opt_prop_def(SymbolRefAttr, prop_name="graph")
    """The private graph with the body, if calls of a composite share it; the region itself is then empty."""
    own_body = opt_region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), Pure())

    @property
    def body(self) -> Region:
        """The region's own body; only a region without `graph` has one."""
        (body,) = self.regions
        return body

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
        if self.regions:
            printer.print_string(" ")
            printer.print_region(self.body)

    @classmethod
    def parse(cls, parser: Parser) -> RegionOp:
        symbol = parser.parse_symbol_name()
        arguments = parser.parse_op_args_list()
        properties: dict[str, Attribute] = {"symbol": symbol, **parser.parse_optional_attr_dict()}
        parser.parse_punctuation(":")
        signature = parser.parse_function_type()
        body = parser.parse_optional_region()
        return cls.create(
            operands=parser.resolve_operands(arguments, signature.inputs.data, parser.pos),
            result_types=signature.outputs.data,
            properties=properties,
            regions=[body] if body is not None else [],
        )


def inner_first(graph: Operation) -> list[RegionOp]:
    """The regions of a graph in order, inner regions before outer ones."""
    return sorted((op for op in ops_inside(graph) if type(op) is RegionOp), key=_depth, reverse=True)


def _depth(op: Operation) -> int:
    depth, parent = 0, op.parent_op()
    while parent is not None:
        depth, parent = depth + 1, parent.parent_op()
    return depth


def strings(names: Sequence[str]) -> ArrayAttr:
    """A list of names as an attribute."""
    return ArrayAttr([StringAttr(name) for name in names])


def create_region(
    symbol: str,
    inputs: Sequence[SSAValue],
    body: Block,
    result_types: Sequence[Attribute],
    argument_names: Sequence[str],
    declaration: Attribute | None = None,
    *,
    result_names: Sequence[str] = (),
    recover: Attribute | None = None,
    public: bool = False,
) -> RegionOp:
    """A region op around a block whose arguments stand for `inputs` and which ends in a `coreai.yield`."""
    properties: dict[str, Attribute | None] = {
        "symbol": StringAttr(symbol),
        "argument_names": strings(argument_names),
        "result_names": strings(result_names) if result_names else None,
        "recover": recover,
        "declaration": declaration,
        "public": UnitAttr() if public else None,
    }
    given = {name: attribute for name, attribute in properties.items() if attribute is not None}
    op = RegionOp.create(operands=inputs, result_types=result_types, properties=given, regions=[Region(body)])
    assert isinstance(op, RegionOp)
    return op


@irdl_op_definition
class RegionBeginOp(OwnOperation):
    """The begin of a call of an externalized module; operands are its parameters and buffers, then its arguments."""

    name = "patcomp.region_begin"
    inputs = var_operand_def(AnyAttr())
    symbol = prop_def(StringAttr, prop_name="symbol")
    """The module's path."""
    parameter_names = prop_def(ArrayAttr, prop_name="parameter_names")
    unused_names = prop_def(ArrayAttr, prop_name="unused_names")
    """Parameters and buffers of a composite that the program does not read."""
    argument_names = prop_def(ArrayAttr, prop_name="argument_names")
    recover = prop_def(IntegerAttr, prop_name="recover")
    declaration = opt_prop_def(AnyAttr(), prop_name="declaration")
    """A composite's name and attributes; its inputs and outputs are named when the region is formed."""


@irdl_op_definition
class RegionEndOp(OwnOperation):
    """The end of the innermost open call; operands are its results."""

    name = "patcomp.region_end"
    outputs = var_operand_def(AnyAttr())
    symbol = prop_def(StringAttr, prop_name="symbol")


PATCOMP = Dialect("patcomp", [RegionOp, RegionBeginOp, RegionEndOp, CustomOp], [])
