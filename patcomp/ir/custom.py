"""`patcomp.custom`: an op that a user's function lowers; no rule matches it before.

    %y = patcomp.custom "my_lib.scaled_add"(%x, %z) names ["x", "z"] arguments "x, z, 0.5" : (T, T) -> T

The frontend imports a node as such an op if a lowering is registered for it, and stores the function in
`IRModule.custom`; the lower stage calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from patcomp.ir.value import Value
from patcomp.ir.xdsl import (
    AnyAttr,
    ArrayAttr,
    Attribute,
    LocationAttr,
    OwnOperation,
    Pure,
    StringAttr,
    irdl_op_definition,
    prop_def,
    traits_def,
    var_operand_def,
    var_result_def,
)

Lower = Callable[[dict[str, Value], LocationAttr], Any]
"""Called with the lowered operands by name, and the location; returns a value or a list of values."""


@irdl_op_definition
class CustomOp(OwnOperation):
    """A node that the user lowers."""

    name = "patcomp.custom"
    inputs = var_operand_def(AnyAttr())
    outputs = var_result_def(AnyAttr())
    target = prop_def(StringAttr, prop_name="target")
    """The op's name in PyTorch."""
    input_names = prop_def(ArrayAttr, prop_name="input_names")
    """The names of the FX nodes of the operands."""
    arguments = prop_def(StringAttr, prop_name="arguments")
    """The node's arguments as text, for readers."""
    traits = traits_def(Pure())
    assembly_format = (
        "$target `(` $inputs `)` `names` $input_names `arguments` $arguments attr-dict "
        "`:` functional-type($inputs, $outputs)"
    )

    def named(self, operands: Sequence[Value]) -> dict[str, Value]:
        """Values that stand for the operands, by name."""
        names = [name.data for name in self.input_names.data if isinstance(name, StringAttr)]
        return dict(zip(names, operands, strict=True))


def create_custom(
    target: str, inputs: Mapping[str, Value], arguments: str, result_types: Sequence[Attribute]
) -> CustomOp:
    """An unplaced op for a node."""
    op = CustomOp.create(
        operands=[value.ssa for value in inputs.values()],
        result_types=result_types,
        properties={
            "target": StringAttr(target),
            "input_names": ArrayAttr([StringAttr(name) for name in inputs]),
            "arguments": StringAttr(arguments),
        },
    )
    assert isinstance(op, CustomOp)
    return op
