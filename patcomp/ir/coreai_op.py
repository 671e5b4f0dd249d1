"""The base of the op classes of the `coreai` dialect, and how an op's text is printed and parsed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from patcomp.ir.rows import Row
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute, DenseArrayBase, IntegerType, OwnOperation, Parser, Printer, SSAValue


@dataclass(frozen=True)
class Form:
    """A pair of functions: print what follows the op's name, and parse it back."""

    print: Callable[[CoreaiOp, Printer], None]
    parse: Callable[[Parser, type[CoreaiOp]], CoreaiOp]


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
