"""Lowerings as rows of tables: an op, and the Core AI expression of its tensors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from patcomp.authoring import Coreai, coreai
from patcomp.ir.types import BIT_WIDTHS, element_name, element_type, is_integer
from patcomp.ir.value import Value
from patcomp.patterns import Example, OpView, Rejected, Rule, example, lowering
from patterns_catalog.lower.casts import convert

Formula = str | Callable[..., Value]
"""The name of a function of Core AI, or a function of `c` and the tensors."""
Kind = Literal["bools", "unsigned", "integers"]
Computed = Literal["as given", "as the result", "in 32 bits"]


def row(
    op: str,
    formula: Formula,
    *examples: str | Example,
    doc: str,
    computed: Computed = "as given",
    of: Mapping[Kind, Formula | Rejected] | None = None,
    fixed: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Rule:
    """The lowering of an op whose arguments are tensors of one element type.

    Args:
        op: the name of the op without its dialect.
        formula: the result, built from the tensors.
        examples: examples of the rule; a type stands for an example of one tensor.
        doc: what the rule does.
        computed: in which element type: that of the tensors; that of the result, into which the tensors are cast; or
            that of the result with at least 32 bits, which is rounded afterwards.
        of: other formulas for tensors of some kinds, or why the op is refused for them.
        fixed: arguments that have one value here, because normalize spells others as further ops.
        name: the rule's name; by default the op's without its overload.
    """
    others = {str(kind): other for kind, other in (of or {}).items()}
    formulas = {kind: _callable(other) for kind, other in ({"": formula} | others).items()}
    given = fixed or {}

    def rule(view: OpView, c: Coreai) -> Value:
        for argument, value in given.items():
            view.expect(view[argument] == value, f"{argument} must be {value}, as the normalize stage spells this op")
        tensors = [view[argument] for argument in view.arguments if argument not in given]
        element = view.result.element_type
        if computed != "as given":
            narrow = computed == "in 32 bits" and BIT_WIDTHS[element_name(element)] < 32
            tensors = [convert(c, tensor, element_type("f32") if narrow else element) for tensor in tensors]
        types = [tensor.dtype for tensor in tensors]
        same = len(set(types)) == 1
        view.expect(same, f"the operands have different dtypes, {' and '.join(types)}; cast one of them")
        chosen = next(formulas[kind] for kind in _kinds(tensors[0]) if kind in formulas)
        if isinstance(chosen, Rejected):
            raise chosen
        made = chosen(c, *tensors)
        return c.cast(made, element) if computed == "in 32 bits" else made

    rule.__doc__ = doc
    listed = [item if isinstance(item, Example) else example(item) for item in examples]
    declared = lowering(f"aten.{op}", name=name or op.partition(".")[0], examples=listed)(rule)
    table = sys._getframe(1)  # the place of the table, not of this function
    file = table.f_code.co_filename
    source = f"{'/'.join(file.rsplit('/', 2)[-2:])}:{table.f_lineno}"
    return replace(declared, source=source, file=file, is_row=True)


def _callable(formula: Formula | Rejected) -> Callable[..., Value] | Rejected:
    """A formula as a function of `c` and the tensors."""
    if not isinstance(formula, str):
        return formula
    getattr(coreai, formula)  # a name that does not exist is an error of the declaration
    return lambda c, *tensors: getattr(c, formula)(*tensors)


def _kinds(x: Value) -> tuple[str, ...]:
    """The kinds of elements that a tensor has, the narrowest first."""
    if x.dtype == "i1":
        return ("bools", "")
    if not is_integer(x.element_type):
        return ("",)
    return ("unsigned", "integers", "") if x.dtype[0] == "u" else ("integers", "")
