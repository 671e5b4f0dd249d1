"""Lowerings as rows of tables: an op, and the Core AI expression of its tensors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from patcomp.authoring import Coreai, coreai
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.types import BIT_WIDTHS, element_name, element_type, is_integer
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import Example, Rejected, Rule, example
from patcomp.patterns import formula as declare
from patcomp.patterns.formula import Conditions
from patterns_catalog.lower.casts import convert

Build = str | Callable[..., Value]
"""The name of a function of Core AI, or a function of `c` and the tensors."""
_Kind = Literal["bools", "unsigned", "integers"]
_Computed = Literal["as given", "as the result", "in 32 bits"]


def row(
    op: str,
    formula: Build,
    *examples: str | Example,
    doc: str,
    computed: _Computed = "as given",
    of: Mapping[_Kind, Build | Rejected] | None = None,
    where: Conditions | None = None,
    name: str | None = None,
) -> Rule:
    """The lowering of an op of tensors of one element type.

    Args:
        op: the name of the op without its dialect.
        formula: the result, built from the tensors.
        examples: examples of the rule; a type stands for an example of one tensor.
        doc: what the rule does.
        computed: in which element type: that of the tensors; that of the result, into which the tensors are cast; or
            that of the result with at least 32 bits, which is rounded afterwards.
        of: other formulas for tensors of some kinds, or why the op is refused for them.
        where: conditions on the arguments that are no tensors, as in a formula.
        name: the rule's name; by default the op's without its overload.
    """
    formulas = {str(kind): _callable(other) for kind, other in ({"": formula} | dict(of or {})).items()}
    spec = aten_namespace.spec(f"aten.{op}")
    assert spec is not None

    def build(c: Coreai, result: ValueType, *tensors: Value) -> Value:
        element = result.element_type
        if computed != "as given":
            narrow = computed == "in 32 bits" and BIT_WIDTHS[element_name(element)] < 32
            tensors = tuple(convert(c, tensor, element_type("f32") if narrow else element) for tensor in tensors)
        types = [tensor.dtype for tensor in tensors]
        if len(set(types)) > 1:
            raise Rejected(f"the operands have different dtypes, {' and '.join(types)}; cast one of them")
        chosen = next(formulas[kind] for kind in _kinds(tensors[0]) if kind in formulas)
        if isinstance(chosen, Rejected):
            raise chosen
        made = chosen(c, *tensors)
        return c.cast(made, element) if computed == "in 32 bits" else made

    build.__doc__ = doc
    declared = declare(
        "lower", f"aten.{op}", where=where, name=name or op.partition(".")[0],
        parameters=["result", *(argument.name for argument in spec.arguments if argument.kind == "value")],
        written=[other for other in formulas.values() if not isinstance(other, Rejected)],
        examples=[item if isinstance(item, Example) else example(item) for item in examples],
    )(build)  # fmt: skip
    table = sys._getframe(1)  # the place of the table, not of this function
    file = table.f_code.co_filename
    source = f"{'/'.join(file.rsplit('/', 2)[-2:])}:{table.f_lineno}"
    return replace(declared, source=source, file=file)


def _callable(formula: Build | Rejected) -> Callable[..., Value] | Rejected:
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
