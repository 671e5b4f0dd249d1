"""How `coreai` ops look in text: one printer and one parser for each form that the dialect table names.

The forms are those of the real toolchain, so that text goes through its parser unchanged.
"""

from __future__ import annotations

from patcomp.ir.syntax.graph import parse_graph, print_graph
from patcomp.ir.syntax.ops import (
    parse_braced,
    parse_call,
    parse_cast,
    parse_delegate,
    parse_functional,
    parse_metal,
    parse_unary,
    print_braced,
    print_call,
    print_cast,
    print_delegate,
    print_functional,
    print_metal,
    print_unary,
    to_form,
)
from patcomp.ir.syntax.pieces import Form
from patcomp.ir.syntax.regions import (
    parse_if,
    parse_isolated_group,
    parse_scatter_nd,
    parse_while,
    print_if,
    print_isolated_group,
    print_scatter_nd,
    print_while,
    region_form,
)
from patcomp.ir.syntax.special import (
    parse_constant,
    parse_create_token,
    parse_invoke,
    parse_slice_update,
    parse_target_spec,
    parse_terminator,
    print_constant,
    print_create_token,
    print_invoke,
    print_slice_update,
    print_target_spec,
    print_terminator,
)

__all__ = ["FORMS", "Form"]

FORMS: dict[str, Form] = {
    "functional": Form(print_functional, parse_functional),
    "call": Form(print_call, parse_call),
    "unary": Form(print_unary, parse_unary),
    **{f"{template} to": to_form(template) for template in ("{}, {}", "{} at {}", "{} at {} along {}")},
    "slice_update": Form(print_slice_update, parse_slice_update),
    "cast": Form(print_cast, parse_cast),
    "braced": Form(print_braced, parse_braced),
    "delegate": Form(print_delegate, parse_delegate),
    "metal4_kernel": Form(print_metal, parse_metal),
    "constant": Form(print_constant, parse_constant),
    "create_token": Form(print_create_token, parse_create_token),
    "invoke": Form(print_invoke, parse_invoke),
    "target_spec": Form(print_target_spec, parse_target_spec),
    "terminator": Form(print_terminator, parse_terminator),
    "if": Form(print_if, parse_if),
    "while": Form(print_while, parse_while),
    "reduce": region_form("{}, {}, init {}", "->"),
    "reduce_index": region_form("{}, {}, init {} init_index {}", "->"),
    "scatter_nd": Form(print_scatter_nd, parse_scatter_nd),
    "isolated_group": Form(print_isolated_group, parse_isolated_group),
    "graph": Form(print_graph, parse_graph),
}
