"""The programs that proofs list: of patterns and of calls of ops, and what rules make of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from patcomp.patterns import Rule
from patcomp_lab.proof.drawing import Drawing, draw, smaller
from patcomp_lab.proof.enumeration import Search
from patcomp_lab.proof.near_misses import self_tests
from patcomp_lab.proof.op_calls import axis_arguments, called, examples_of_op, has_one_tensor, operator_schema
from patcomp_lab.proof.open_aspects import is_open_call, returns_unwritten
from patcomp_lab.proof.programs import Programs, _of_op, _of_pattern
from patcomp_lab.proof.variants import sample, variants
from patcomp_lab.proof.words import words_of
from patterns_catalog import all_rules, default_rules
from tests.proof_lemmas.fingerprints import Lines, attempt, table

PATTERNS = (
    "times_one", "cast_of_cast", "rms_norm", "reshape_of_reshape", "dims_by_reshape", "transpose_of_transpose",
    "slice of repeated halves", "normalize drop_identity_slice", "plus_zero", "einsum_product", "cast_of_number",
)  # fmt: skip
"""Rules with a pattern."""
OPS = (
    "addmm", "amax", "decompose threshold", "decompose linear", "select_scatter", "to_copy", "normalize eq", "gelu",
    "decompose fake_quantize_per_channel", "decompose complex sum", "decompose select_copy.int", "cat",
)  # fmt: skip
"""Rules of single ops."""
RULES = {rule.name: rule for rule in all_rules()}


def _named(names: tuple[str, ...]) -> Iterator[Rule]:
    return (RULES[name] for name in names)


def _line(drawing: Any, firsts: Any) -> str:
    if isinstance(drawing, Drawing):
        kept = [drawing.returns_all, *drawing.ignored.values(), drawing.as_inputs, drawing.same]
        more = [returns_unwritten(drawing), *smaller(drawing.example)]
    else:
        kept, more = [drawing.compared], [is_open_call(drawing, firsts)]
    return f"{drawing} {drawing.runs} {kept} {more}"


def _searched(rule: Rule, count: int, every: int) -> Iterator[str]:
    """The programs of a search for which every second, third or other program matches."""
    firsts, parts = _of_pattern(rule, count) if rule.is_drawn else _of_op(examples_of_op(rule))
    yield f"{dict(parts.words)} {parts.is_elementwise}"
    search = Search(firsts, parts, count)
    for place, drawing in enumerate(search):
        yield _line(drawing, firsts)
        if place % every == 0:
            search.keep(drawing)


@table
def programs() -> Lines:
    """With several numbers of programs, and several shares of those that match."""
    shares = ((2, 2), (5, 3))
    return {
        rule.name: [line for share in shares for line in _searched(rule, *share)] for rule in _named(PATTERNS + OPS)
    }


@table
def patterns() -> Lines:
    """The variants of each pattern with their ops, and the tests of what it matches."""
    found = {}
    for rule in _named(PATTERNS):
        tests = self_tests(rule)
        lines = [f"{test.kind}: {test}" for test in tests]
        for variant in variants(rule):
            lines += [variant.name, *map(str, sample(rule, variant).block.ops), str(draw(rule, variant))]
        found[rule.name] = lines + [attempt(test.run) for test in tests]
    return found


@table
def calls() -> Lines:
    """The calls that are examples of ops."""
    found = {}
    for rule in _named(OPS):
        lines = []
        for drawing in examples_of_op(rule):
            schema = operator_schema(drawing.op)
            call = called(drawing)
            assert call is not None
            types = [str(type_) for type_ in call.types]
            lines.append(
                f"{drawing} {sorted(axis_arguments(schema))} {has_one_tensor(drawing.example, schema)} {types}"
            )
        found[rule.name] = lines
    return found


FIRED = ("times_one", "cast_of_cast", "normalize eq", "linear as convolution", "gather_from_the_front")
"""Rules that take little time."""


@table
def pairs() -> Lines:
    """Programs before and after a rule, and which of those that are listed a rule refuses."""
    found = {}
    for rule in _named(FIRED):
        listed = Programs(rule, default_rules(), 1)
        lines = []
        for pair in listed:
            if pair is not None:
                inputs = [{name: each.type for name, each in run.items()} for run in pair.runs]
                about = [pair.is_elementwise, pair.shares_kernel, pair.shares_definition, pair.tolerance]
                lines.append(f"{pair.drawing} {inputs} {about}\n{pair.source_ir}\n{pair.rewritten_ir}")
            else:
                lines.append("refused")
        found[rule.name] = [*lines, str(listed.missed)]
    return found


NAMES = (
    "approximate", "rounding_mode", "reduce", "interpolation", "side", "norm", "mode", "pad_mode", "padding",
    "padding_side", "indexing", "ord", "UPLO", "reduction", "interpolation_mode", "padding_mode", "dim",
)  # fmt: skip


@table
def words() -> Lines:
    return {type_: [str(words_of(name, type_)) for name in NAMES] for type_ in ("str", "str?", "int", "a|b", "Tensor")}
