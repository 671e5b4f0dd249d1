"""Mistakes that authors of rules make: each ends in one readable message with the rule and its place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import ModuleType

import pytest

from patcomp.errors import PatcompError
from patcomp.ir import coreai
from patcomp.ir.types import tensor
from patcomp.patterns import Context, RuleSet, collect, run
from patcomp.questions.reach import check_reach
from tests.patterns.graphs import Graph

HEAD = """
from patcomp.ir.namespaces import coreai_namespace
from patcomp.patterns import ANY, Attr, Capture, Const, Rewrite, any_of, check, compute
from patcomp.patterns import decomposition, pattern, lowering, op_rule, optimization, rule, tag

from tests.patterns.graphs import Target


def made(*operands, result_types, **attributes):
    return operands[0]


table = Target("mine", made)
"""


@dataclass(frozen=True)
class Mistake:
    """The text of a rule file, and what the message says. The rules are declared, checked, and run on a small graph."""

    name: str
    text: str
    message: str


def declarative(body: str, options: str = "", captures: str = "x") -> str:
    return f"@rule(into=table{options})\ndef mine(a, c, {captures}):\n    {body}\n"


def procedural(body: str, declared: str = '@op_rule("recover", "aten.gelu")') -> str:
    return f"{declared}\ndef mine(op, c):\n    {body}\n"


GELU = "a.gelu(x, approximate=ANY)"
MADE = f"return Rewrite({GELU}, to=c.made(x))"

MISTAKES = [
    # stages
    Mistake("misspelt stage", declarative(MADE, ', stage="lowwer"'), "no stage 'lowwer' runs rules; did you mean 'low"),
    Mistake(
        "stage without rules", declarative(MADE, ', stage="state"'), "no stage 'state' runs rules; the stages with"
    ),
    Mistake(
        "decompose",
        declarative(MADE, ', stage="decompose"'),
        "'decompose' runs decompositions only; declare the rule with",
    ),
    Mistake(
        "misspelt stage of a function", procedural("...", '@op_rule("recovr", "aten.gelu")'), "did you mean 'recov"
    ),
    Mistake(
        "aten in optimize", declarative(MADE, ', stage="optimize"'), "rewrites ops of coreai, and it starts from aten"
    ),
    Mistake(
        "coreai in lower", procedural("...", '@lowering("coreai.gelu")'), "rewrites ops of aten, and it starts from"
    ),
    # what a rule matches
    Mistake("argument not mentioned", declarative("return Rewrite(a.gelu(x), to=x)"), "does not mention approximate"),
    Mistake(
        "unknown argument", declarative("return Rewrite(a.gelu(x, approx=1), to=x)"), "has no argument approx; it has"
    ),
    Mistake("unknown op of a pattern", declarative("return Rewrite(a.geluu(x), to=x)"), "aten has no op 'geluu'"),
    Mistake("unknown op of a function", procedural("...", '@lowering("aten.geluu")'), "PyTorch has no op aten.geluu"),
    Mistake("no op", procedural("...", "@lowering()"), "names no ops to start from"),
    Mistake("decomposition of no op", procedural("...", "@decomposition()"), "names no ops to start from"),
    Mistake("a value as the root", declarative("return Rewrite(x, to=x)"), "not an op of aten"),
    Mistake("unused capture", declarative(MADE, captures="x, y"), "the source does not use the parameter y"),
    Mistake("no target namespace", "@rule\ndef mine(a): ...", "takes the source namespace, the target namespace"),
    Mistake("unknown annotation", declarative(MADE, captures="x: int"), "a capture is Capture, Const or Attr"),
    Mistake("attribute for a tensor", declarative(MADE, captures="x: Attr"), "is a tensor, and x is annotated Attr"),
    Mistake(
        "tensor for an attribute",
        declarative("return Rewrite(a.gelu(x, approximate=k), to=x)", captures="x, k"),
        "approximate is not a tensor; annotate k with Attr",
    ),
    Mistake("one alternative", declarative(f"return Rewrite(any_of({GELU}), to=x)"), "needs at least two alternatives"),
    Mistake(
        "unknown tag", declarative(f"return Rewrite({GELU}, to=x, where=[tag('kind') == 1])"), "which no any_of sets"
    ),
    Mistake(
        "and of conditions",
        declarative(f"return Rewrite({GELU}, to=x, where=[x.rank == 2 and x.rank > 1])"),
        "combine conditions with &",
    ),
    Mistake(
        "a Python bool as condition", declarative(f"return Rewrite({GELU}, to=x, where=[True])"), "is not a condition"
    ),
    Mistake(
        "a pattern in lower",
        "@pattern\ndef one(a, x):\n    return a.exp(x), []\n"
        + procedural("...", '@op_rule("lower", "aten.exp", pattern=one)'),
        "takes no pattern=",
    ),
    # what a rule builds, and its tests
    Mistake("no Rewrite", declarative(f"return {GELU}"), "not a Rewrite"),
    Mistake("unknown target", declarative(f"return Rewrite({GELU}, to=c.mad(x))"), "mine has no op 'mad'"),
    Mistake(
        "source op in the target", declarative(f"return Rewrite({GELU}, to=a.exp(x))"), "which the source does not ma"
    ),
    Mistake("example of another capture", declarative(MADE, ', example={"y": "2xf32"}'), "the captures are ['x']"),
    Mistake(
        "unknown aspect", declarative(MADE, ', unspecified={"nan": "why"}'), "unspecified= names 'nan'; the aspects"
    ),
    Mistake(
        "two rules of one name", declarative(MADE) + "one = mine\n" + declarative(MADE), "two rules are called mine"
    ),
    # while it runs
    Mistake(
        "wrong rank in a condition",
        declarative(
            f"return Rewrite({GELU}, to=x, where=[check('square', lambda m: len({{n for n, _, _ in [m['x'].shape]}}))])"
        ),
        "failed: ValueError: not enough values to unpack (expected 3, got 2)",
    ),
    Mistake(
        "failing attribute",
        declarative(f"return Rewrite({GELU}, to=c.made(x, n=compute('n', lambda m: m['x'].shape[5])))"),
        "failed: IndexError: tuple",
    ),
    Mistake(
        "failing function", procedural("return op['self'].shape[5]"), "failed: IndexError: tuple index out of range"
    ),
    Mistake("misspelt argument", procedural("return op.approximation"), "has no argument 'approximation'; it has"),
    Mistake(
        "argument left unread",
        procedural("return op['self']"),
        "the function does not account for argument approximate of",
    ),
    Mistake(
        "two values for one",
        procedural("op.approximate; return [op['self'], op['self']]"),
        "the function returned 2 values, but",
    ),
    Mistake(
        "a number for a value",
        procedural("op.approximate; return op['self'].rank"),
        "the function returned 2 for aten.gelu, which is",
    ),
    Mistake(
        "another element type",
        procedural("op.approximate; return c.cast(op['self'], 'f16')"),
        "the rule gives tensor<2x3xf16> for result 0 of aten.gelu, which is tensor<2x3xf32>",
    ),
    Mistake(
        "a target of another type",
        declarative("return Rewrite(a.sum(x, dtype=ANY), to=x)"),
        "the rule gives tensor<2x3xf32>",
    ),
    Mistake(
        "invalid op",
        procedural("op.approximate; return c.broadcasting_add(op['self'], c.constant([1.0, 2.0]))"),
        "it built an invalid op for aten.gelu",
    ),
]


def declared(text: str) -> RuleSet:
    """The rules of a file with this text."""
    module = ModuleType("rules")
    exec(compile(HEAD + text, "mine/rules.py", "exec"), vars(module))
    return collect(module)


def checked_and_run(text: str) -> None:
    """Declares the rules of a file, checks them, and runs them on a small graph."""
    g = Graph([tensor((2, 3), "f32")])
    g.use(g.gelu(g.inputs[0], approximate="none", types=[tensor((2, 3), "f32")]))
    g.use(g.sum(g.inputs[0], types=[tensor((), "f32")]))
    rules = declared(text)
    for rule in rules:
        check_reach(rule)
    run(g.block, rules, Context(namespace=coreai))


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_ends_in_one_readable_message(mistake: Mistake) -> None:
    with pytest.raises(PatcompError) as caught:
        checked_and_run(mistake.text)
    message = str(caught.value)
    assert mistake.message in message
    assert len(message.splitlines()) == 1
    assert re.search(r"(rule (decompose )?mine \(|called mine: )mine/rules.py:\d+", message)
    if "failed" in message or re.search(r"(returned|gives) .* aten\.", message):
        assert re.search(r"\(op aten.\w+, node %\w+, in module layer, at model.py:1\d\)", message)


def test_there_are_enough_mistakes() -> None:
    assert len({mistake.message for mistake in MISTAKES}) >= 30
