"""Rules that fail."""

from __future__ import annotations

from patcomp.patterns import Rewrite, check, op_rule
from tests.patterns.graphs import declare


@op_rule("normalize", "aten.neg", "aten.abs", name="unsigned")
def unsigned(op, b):
    "neg and abs of a matrix"
    op.expect(op.self.rank == 2, "only matrices")
    b.relu(op.self)  # left over when the rule does not apply
    if op.op_name == "aten.abs":
        return None
    return b.exp(op.self)


def _unpack(match):
    rows, columns, depth = match["x"].shape
    return rows * columns * depth


@declare
def failing_condition(a, c, x):
    return Rewrite(a.exp(x), to=c.made(x), where=[check("three dimensions", _unpack)])


@op_rule("recover", "aten.exp")
def failing_function(op, c):
    c.relu(op["self"])
    return op["self"].shape[7]
