"""How `coreai` ops look in text, in the forms of the real toolchain, whose parser reads the text unchanged.

The form of an op is part of its row: a template (see `template.py`), the name of a template that many ops share, or the
name of a pair of functions.
"""

from __future__ import annotations

from patcomp.ir.coreai_op import Form
from patcomp.ir.rows import Row
from patcomp.ir.syntax.graph import parse_graph, print_graph
from patcomp.ir.syntax.special import (
    parse_constant,
    parse_target_spec,
    parse_terminator,
    print_constant,
    print_target_spec,
    print_terminator,
)
from patcomp.ir.syntax.template import Template

__all__ = ["form_of"]


_FUNCTIONS = {
    "constant": Form(print_constant, parse_constant),
    "graph": Form(print_graph, parse_graph),
    "target_spec": Form(print_target_spec, parse_target_spec),
    "terminator": Form(print_terminator, parse_terminator),
}
_TEMPLATES = {
    "functional": "{ operands}{ words} : {types} -> {results}{ attributes}",
    "call": "({operands}) : {types} -> {results}{ attributes}",
    "unary": " {operands}{ words} : {type} -> {result}{ attributes}",
}


def form_of(row: Row) -> Form:
    """How the op of a row prints and parses."""
    if row.form in _FUNCTIONS:
        return _FUNCTIONS[row.form]
    template = Template(_TEMPLATES.get(row.form, row.form), row)
    return Form(template.print, template.parse)
