"""What is known of PyTorch's operators besides their schemas: one row an op, in `aten_facts.txt`.

A row is `add.Tensor: commutes range=add float=sum`: overloads of one operator that share their facts, then the facts.
The fields of `OpFacts` say what the words mean. What PyTorch says of an operator is not repeated: `aten_schemas.txt`
has its tag `pointwise`, and its schema says whether the result shares memory with an argument.

A value such as `range=add` is the name of a function of the package that asks; a test compares the names with the
functions. An op without a row, such as a custom one, has no facts.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files

ELEMENTS = ("in_order", "whole", "selection", "movement", "filled")


@dataclass(frozen=True)
class OpFacts:
    """The facts of an op. An empty text stands for: not known, or nothing to say."""

    elements: str = ""
    """Where the results have their elements from, one of `ELEMENTS`: all elements of the first operand, in their order;
    all of them; some of them, perhaps repeated; elements of the operands, numbers among the arguments, and zeros (or
    sums, if the op accumulates); one number among the arguments."""
    pointwise: bool = False
    """Whether the op is elementwise, where PyTorch's tag does not say so."""
    same_shape: bool = False
    """Whether the first result has the shape of the first operand."""
    product: bool = False
    """Whether the op is a matrix product or convolution."""
    commutes: bool = False
    """Whether `self` and `other` may change places."""
    truth: bool = False
    """Whether the result is a tensor of booleans."""
    sizes: str = ""
    """How the sizes of the result follow from the arguments: `ir.extents` traces dynamic ones, `ir.guessed_types`
    computes static ones. Elementwise ops, and those of the same shape, need none."""
    range: str = ""
    """The range of the results, by the ranges of the arguments: `narrowing.transfer_functions`. The results of a
    selection have the range of `self`."""
    float: str = ""
    """What the op does with rounded operands: `exact` rounds nothing, `decision` is discontinuous, `relative` keeps the
    relative error, `sum` and `function` may enlarge it. Ops that move elements are exact."""
    modular: bool = False
    """Whether the results, modulo 2**32, follow from the operands modulo 2**32."""
    limiting: bool = False
    """Whether the op commutes with saturation: a saturated operand gives the same result, or the saturated one."""
    index: str = ""
    """Which operand has positions in another: `along_dim`, `by_axis`, `rows` (`narrowing.index_uses`)."""
    zeros: bool = False
    """Whether the results have zeros that no operand has."""
    places: str = ""
    """Which place of equal numbers the op gives: the `first`, `any`, or `distinct` ones of an order."""
    selects: bool = False
    """Whether the number of results depends on data, and is at most the number of the operand's elements."""
    parts: str = ""
    """The argument that says into how many parts the op cuts a tensor; `rows`: each row is a part."""
    memory: str = ""
    """Whether the results share memory with an argument, where the schema does not say it for certain: `shared`,
    `either`, `new` (of an op that is made of others), `undeclared` (the schema hides that they may), or `unless_train`
    (they are the argument, but in training)."""
    written: str = ""
    """How a write to the op's result changes the tensor that it is a view of: `functional.views`."""
    layout: bool = False
    """Whether the results depend on the layout of tensors in memory."""
    complex: str = ""
    """Of the ops with complex tensors that are not decomposed: `imported`, `lowered`, or both, `stays`."""
    any_length: bool = False
    """Whether the op works for any length of a dynamic dimension, though it is not elementwise."""
    decomposition: str = ""
    """What becomes of PyTorch's decomposition: the op is `kept` whole; the catalog's decomposition takes its place
    (`replaced`), or none (`refused`), because it computes other numbers than the op; it is for `real` numbers only."""
    checks: bool = False
    """Whether the op only checks something, or asks for a type; the IR's types state the same."""
    reads: bool = False
    """Whether the op reads a number from a tensor."""
    opaque: bool = False
    """Whether proofs do not look into the op: it is a function of one or two numbers that they know by name only."""
    unknown: str = ""
    """Which of `sizes`, `range` and `float` nobody has found out, separated by commas. The row of an op that a rule
    takes states each of the three, unless a trait implies it, or says that it is unknown."""


NOTHING = OpFacts()
_FLAGS = frozenset(field.name for field in fields(OpFacts) if field.default is False)


def _facts(words: str) -> OpFacts:
    given: dict[str, str | bool] = {}
    for word in words.split():
        key, _, value = word.partition("=")
        if word in ELEMENTS:
            key, value = "elements", word
        given[key] = True if key in _FLAGS else value
    return OpFacts(**given)  # type: ignore[arg-type]


@cache
def _table() -> dict[str, OpFacts]:
    table: dict[str, OpFacts] = {}
    for line in files("patcomp.ir").joinpath("aten_facts.txt").read_text().splitlines():
        if not line.startswith("#"):
            names, _, words = line.partition("  # ")[0].partition(": ")
            table |= dict.fromkeys(map(_full_name, names.split(",")), _facts(words))
    return table


def _full_name(name: str) -> str:
    return name.replace("::", ".") if "::" in name else f"aten.{name}"


def facts_of(name: str) -> OpFacts:
    """The facts of an op by its name in the dialect, `aten.add.Tensor`; of an op without a row, `NOTHING`."""
    return _table().get(name, NOTHING)


@cache
def ops_where(fact: str, *values: str) -> frozenset[str]:
    """The names of the ops that have a fact, or one of some values of it."""
    found = ((name, getattr(facts, fact)) for name, facts in _table().items())
    return frozenset(name for name, value in found if (value in values if values else value))


def operators_where(fact: str, *values: str) -> frozenset[str]:
    """The same without dialect and overload: the names of operators of which an overload has the fact."""
    return frozenset(name.split(".")[1] for name in ops_where(fact, *values))
