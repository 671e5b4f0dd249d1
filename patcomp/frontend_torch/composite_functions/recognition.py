"""The conditions and the rewrite of a match of a reference function's pattern."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from patcomp.errors import RuleError
from patcomp.frontend_torch.composite_functions.sources import Source
from patcomp.frontend_torch.composite_functions.traces import Constant, LiteralPlace, Trace
from patcomp.ir.attributes import CompositeDeclarationAttr
from patcomp.ir.builder import Builder
from patcomp.ir.constants import constant_equals
from patcomp.ir.region import RegionOp
from patcomp.ir.types import shape_of, tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation, OpResult, SSAValue, set_name
from patcomp.patterns import Capture, Const, compute
from patcomp.patterns.expressions import Expression, Undefined
from patcomp.patterns.language import Attr
from patcomp.patterns.match import Match, same_literal


@dataclass(frozen=True)
class Recognition:
    """Checks that a match of a source's pattern computes the same as the function, and reads the attributes."""

    source: Source
    name: str
    """The name of the composite."""
    inputs: Mapping[str, Capture]
    bound: Mapping[LiteralPlace, Any]
    """The captures of literals."""

    def attribute(self, name: str) -> Expression:
        """The value of an attribute, as an expression over the match."""
        place, item = self.source.places[name]
        node, kind = self.bound[place], type(self.source.attributes[name])

        def read(match: Match) -> Any:
            value = node.value.evaluate(match) if isinstance(node, Const) else node.evaluate(match)
            try:
                return kind(value if item is None else value[item])
            except IndexError:
                raise Undefined(f"{node.name} has no item {item}, which would be the attribute {name}") from None

        return compute(name, read)

    def is_outside(self, match: Match) -> bool:
        """Whether a match is outside the body of the composite itself, which consists of the same ops."""
        around = match.root.parent_op()
        while around is not None:
            declared = around.declaration if isinstance(around, RegionOp) else None
            if isinstance(declared, CompositeDeclarationAttr) and declared.composite_name.data == self.name:
                return False
            around = around.parent_op()
        return True

    def agrees(self, match: Match) -> bool:
        """Whether the function consists of the matched ops, for the matched types and attributes.

        Raises:
            Undefined: it does not; the message says why.
        """
        source = self.source
        types = {name: match[capture].type.attribute for name, capture in self.inputs.items()}
        attributes = {name: self.attribute(name).evaluate(match) for name in source.attributes}
        # ops that are the same for two sizes do not depend on a dynamic size
        stand_ins = (11, 13) if any(None in shape_of(type_) for type_ in types.values()) else (0,)
        for size in stand_ins:
            static = {
                name: tensor([size if n is None else n for n in shape_of(type_)], type_.element_type)
                for name, type_ in types.items()
            }
            try:
                expected = source.tracer(static, attributes, source.form)
            except RuleError as error:
                raise Undefined(str(error)) from None
            if expected.skeleton() != source.trace.skeleton():
                raise Undefined("for these types the reference consists of other ops")
            self._compare(expected, match)
        return True

    def _compare(self, expected: Trace, match: Match) -> None:
        own = self.source.trace.literals()
        for place, literal in expected.literals().items():
            node = self.bound.get(place)
            if isinstance(node, Const):
                value = match.value_of(node)
                assert value is not None
                good = value.rank == 0 and constant_equals(value.ssa, literal.literal)
            elif isinstance(node, Attr):
                good = same_literal(literal, match.attribute_of(node))
            else:
                good = own[place] == literal
            if not good:
                op, argument, _ = place
                shown = literal.literal if isinstance(literal, Constant) else literal
                raise Undefined(f"{argument} of {self.source.trace.ops[op].name} would have to be {shown}")


def outlined_ops(c: Any, *values: Value, matched: Match, captured: Sequence[str], **attributes: Any) -> Value:
    """The body of the composite: a copy of the matched ops, on its inputs."""
    mapped: dict[SSAValue, SSAValue] = {}
    for name, value in zip(captured, values, strict=True):
        mapped[matched[name].ssa] = value.ssa
    (root,) = matched.replaced
    assert isinstance(root, OpResult)
    builder = Builder.current()

    def copy(op: Operation) -> None:
        for operand in op.operands:
            if operand not in mapped:
                assert isinstance(operand, OpResult)
                copy(operand.op)
        made = op.clone(mapped)
        builder.insert(made)
        made.location = op.location
        for old, new in zip(op.results, made.results, strict=True):
            set_name(new, old.name_hint)

    copy(root.op)
    return Value(mapped[root])
