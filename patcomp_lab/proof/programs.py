"""The programs of a rule of any kind, before and after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from patcomp.evaluate.eager import is_pointwise
from patcomp.ir.aten import Argument
from patcomp.patterns import Rule, RuleSet, Stage
from patcomp.patterns.aspects import is_left_open
from patcomp.patterns.language import Attr, OpNode
from patcomp_lab.proof.calls import compiled, decomposed
from patcomp_lab.proof.changes import ExampleParts
from patcomp_lab.proof.drawing import Choose, Drawing, draw
from patcomp_lab.proof.enumeration import Search
from patcomp_lab.proof.examples import converted_example
from patcomp_lab.proof.op_calls import OpDrawing, examples_of_op, holds_tensors, is_registered, operator_schema
from patcomp_lab.proof.open_aspects import is_open_call, returns_unwritten
from patcomp_lab.proof.pairs import RulePair, rewritten
from patcomp_lab.proof.recording import NotAPatternError, recorded_rule
from patcomp_lab.proof.variants import variants
from patcomp_lab.proof.words import words_of

_LONG = 6
"""The number of ops from which on fewer variations of a recorded program are compared, because each takes longer."""

_ELEMENTS = ("f32", "f16", "si32", "si8", "i1", "si16", "bf16", "si64", "ui8")


class Programs:
    """The programs near the examples of a rule. A program that the rule does not match is None."""

    def __init__(self, rule: Rule, catalog: RuleSet, count: int):
        self.rule, self.catalog, self.count = rule, catalog, count
        self.missed: Counter[str] = Counter()
        """Programs that could not be made, by reason."""

    def __iter__(self) -> Iterator[RulePair | None]:
        if self.rule.is_drawn:
            yield from self._searched(*_of_pattern(self.rule, self.count))
        elif drawings := examples_of_op(self.rule):
            yield from self._searched(*_of_op(drawings))
        for example in self.rule.examples:
            if example.program is not None:
                yield from self._of_program(example)

    def examples(self) -> Sequence[Any]:
        """The examples of the rule that are not programs; of a rule with a pattern, in some of its variants."""
        return _of_pattern(self.rule, self.count)[0] if self.rule.is_drawn else examples_of_op(self.rule)

    def _searched(
        self, firsts: Sequence[Any], parts: ExampleParts, count: int | None = None
    ) -> Iterator[RulePair | None]:
        search = Search(firsts, parts, count or self.count)
        for drawing in search:
            if isinstance(drawing, OpDrawing):
                is_built = not drawing.compared and not is_left_open(self.rule.unspecified, drawing.aspect)
                if not is_built and is_open_call(drawing, firsts):
                    continue
            elif returns_unwritten(drawing):
                continue
            pair = self.pair_of(drawing)
            if pair is not None:
                search.keep(drawing)
            yield pair

    def _of_program(self, example: Any) -> Iterator[RulePair | None]:
        whole = converted_example(self.rule, example, self.catalog)
        if whole is None:
            self.missed["the rule does not fire in its example"] += 1
            return
        yield whole.pair
        try:
            source = recorded_rule(self.rule, whole)
        except NotAPatternError as error:
            self.missed[f"variations of a program: {error}"] += 1
            return
        first = Drawing(source, variants(source)[0], dict(source.example or {}), {}, applied=self.rule)
        if self.pair_of(first) is None:
            self.missed["variations of a program: the rule does not match the recorded program"] += 1
            return
        count = -(-self.count // sum(item.program is not None for item in self.rule.examples))
        if source.graph.size > _LONG:
            count = max(2, count * _LONG // source.graph.size)
        yield from self._searched([first], ExampleParts(_words(source)), count=count)

    def pair_of(self, drawing: Any) -> RulePair | None:
        """A program before and after the rule; None if it is not valid, or the rule does not match it.

        Raises:
            InvalidRewriteError: the rule raises an exception, or its result is an invalid program.
        """
        if isinstance(drawing, Drawing):
            return rewritten(drawing, self.catalog)
        return decomposed(drawing) if self.rule.stage is Stage.DECOMPOSE else compiled(drawing, self.catalog)


def _of_pattern(rule: Rule, count: int) -> tuple[list[Drawing], ExampleParts]:
    known = variants(rule)
    chosen = known[:: -(-len(known) // count)]
    firsts = [draw(rule, variant) for variant in chosen]
    others = [
        replace(draw(rule, chosen[0], _chooser(elements, other)), aspect="arguments that the pattern leaves free")
        for elements, other in ((1, 0), (2, 0), (3, 0), (0, 1), (0, 2), (0, 3))
        if firsts[0].ignored
    ]
    return [*firsts, *others], ExampleParts(_words(rule), _is_elementwise(rule))


def _chooser(elements: int, other: int) -> Choose:
    """Picks the element types of the arguments that a pattern leaves free, and then their values, by position."""
    places = iter([elements])
    return lambda options: options[next(places, other) % len(options)]


def _is_elementwise(rule: Rule) -> bool:
    from patcomp.ir.dialect import OPS
    from patcomp.ir.traits import Elementwise

    nodes = [node for node in rule.graph.nodes if isinstance(node, OpNode)]
    return all(
        node.spec.composite is None
        and (
            OPS[node.spec.name].has_trait(Elementwise) or node.spec.name == "coreai.cast"
            if node.spec.name in OPS
            else is_registered(node.spec.name) and is_pointwise(node.spec.name)
        )
        for node in nodes
    )


def _words(rule: Rule) -> dict[str, Sequence[Any]]:
    """The other values of the captures that are words: element types, and the words that an op declares."""
    words: dict[str, Sequence[Any]] = {}
    for node in rule.graph.nodes:
        for name, argument in node.arguments.items() if isinstance(node, OpNode) else ():
            if isinstance(argument, Attr) and isinstance((rule.example or {}).get(argument.name), str):
                declared = node.spec.argument(name).type
                words[argument.name] = _ELEMENTS if declared.startswith("ScalarType") else words_of(name, declared)
    return words


def _of_op(examples: Sequence[OpDrawing]) -> tuple[list[OpDrawing], ExampleParts]:
    """The examples of a rule of one op, with all arguments."""
    firsts = [_complete(drawing) for drawing in examples]
    words: dict[str, list[Any]] = {}
    for drawing in firsts:
        schema = operator_schema(drawing.op)
        for name, value in drawing.example.items():
            declared = schema[name].type
            given = [*words_of(name, declared)]
            if isinstance(value, str) and not holds_tensors(schema[name]):
                given = [value, *(_ELEMENTS if declared.startswith("ScalarType") else given)]
            if given:
                words[name] = list(dict.fromkeys([*words.get(name, ()), *given]))
    return firsts, ExampleParts(words, all(is_pointwise(drawing.op) for drawing in firsts))


def _complete(drawing: OpDrawing) -> OpDrawing:
    """The call with the default values of its other arguments, which are varied, too."""
    schema = operator_schema(drawing.op)
    defaults = {
        argument.name: argument.default
        for argument in schema.arguments
        if argument.has_default and not holds_tensors(argument) and _is_varied(argument)
    }
    return replace(drawing, example={**defaults, **drawing.example})


def _is_varied(argument: Argument) -> bool:
    """Whether other values of an argument are known than its default."""
    return isinstance(argument.default, bool | int | float) or bool(words_of(argument.name, argument.type))
