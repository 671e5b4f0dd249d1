"""A program of a rule's source: the rule's example, or one that differs from it, and the sizes and axes in it.

The sizes of an example are related (8 may be 2 x 4, or twice 4), so a size changes wherever it stands.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from patcomp.errors import RuleError
from patcomp.patterns import Rule
from patcomp.patterns.example_types import ExampleType, limits_of
from patcomp.patterns.language import ANY, Attr, Const, OpNode, PatternNode
from patcomp.patterns.op_view import Example
from patcomp.patterns.pattern import children
from patcomp_lab.proof.variants import RuleVariant, Sample, chosen_nodes, sample
from patcomp_lab.proof.words import words_of

Choose = Callable[[Sequence[Any]], Any]
"""Picks one of some options; the first is the simplest."""

_FLOATS = ("f32", "f16", "bf16")
AXES = ("dim", "dims", "axis", "axes", "permutation")
_INDICES = re.compile(r"[su]i\d+\[0,(\d+)\]")
_LISTED = 16
"""The largest number of elements that are listed."""
LARGEST_DRAWN_SIZE = 4096
"""The largest number that counts as a size. A larger one is the end of an open slice, and stays."""


@dataclass(frozen=True)
class Drawing:
    """One program of a rule's source."""

    rule: Rule
    variant: RuleVariant
    example: Mapping[str, Any]
    """A type, number or attribute for each capture, in place of the rule's own example."""
    ignored: Mapping[tuple[int, str], Any]
    """The values of arguments that the rule ignores, by identity of the op node and name."""
    aspect: str = "the example"
    """What differs from the rule's own example."""
    runs: Sequence[Mapping[str, Any]] = ()
    """Other types of the inputs, by capture, with which the same program is run, too. A size that differs from the
    example's is open in the program."""
    as_inputs: Mapping[str, str] = field(default_factory=dict)
    """The numbers of the example that are inputs of the program and not constants, each with its element type."""
    same: Mapping[str, str] = field(default_factory=dict)
    """The captures that are the same value as another capture."""
    returns_all: bool = False
    """Whether the program also returns the values that the rule lets other ops use."""
    applied: Rule | None = None
    """The rule that rewrites the program, if it is not the one whose source the program is."""

    def sample(self, example: Mapping[str, Any] | None = None) -> Sample:
        """The graph, with guessed result types.

        Args:
            example: the types, numbers and attributes; by default those of the example.
        """
        given = Example((), self.example if example is None else example)
        return sample(replace(self.rule, examples=(given,)), self.variant, self.ignored)

    def range_of(self, capture: str) -> tuple[float, float] | None:
        """The least and the greatest value of a tensor whose type has a range: `"3xsi64[0,2]"`."""
        return limits_of(self.example[capture])

    def __str__(self) -> str:
        given = [f"{name}={described_value(value)}" for name, value in self.example.items()]
        given += [f"{name} is {other}" for name, other in self.same.items()]
        if self.runs:
            sizes = {name: open_type(self.example[name], [run[name] for run in self.runs]) for name in self.runs[0]}
            given += [f"{name}: {text}" for name, text in sizes.items() if text != self.example[name]]
        if self.as_inputs:
            given.append(f"{', '.join(self.as_inputs)} as inputs")
        if self.returns_all:
            given.append("inner values are returned")
        return f"{self.aspect}, {self.variant.name}, {', '.join(given)}"


def described_value(value: Any) -> str:
    """The text of a part of an example; of a large array, its shape and a fingerprint."""
    if not hasattr(value, "tobytes"):
        return str(value)
    if value.size <= _LISTED:
        return str(value.tolist())
    digest = hashlib.blake2b(value.tobytes(), digest_size=4).hexdigest()
    return f"{value.dtype} numbers of shape {value.shape} ({digest})"


def open_type(text: str, others: Sequence[str]) -> str:
    """The type with an open size on each axis where the types differ; all have the same rank."""
    types = [type_ for type_ in map(ExampleType.parsed, (text, *others)) if type_]
    sizes = [
        "?" if len(set(of_axis)) > 1 else str(of_axis[0]) for of_axis in zip(*(t.sizes for t in types), strict=True)
    ]
    limits = text[text.index("[") :] if "[" in text else ""
    return "x".join([*sizes, types[0].element]) + limits


def first_option(options: Sequence[Any]) -> Any:
    return options[0]


def draw(rule: Rule, variant: RuleVariant, choose: Choose = first_option) -> Drawing:
    """The example of one variant of a rule's source, which the rule need not match.

    Args:
        choose: chooses the arguments that the pattern leaves free.

    Raises:
        RuleError: the rule has no example.
    """
    if rule.example is None:
        raise RuleError(f"rule {rule.name} ({rule.source}) has no example= to make tests from")
    nodes = _op_nodes(rule, variant)
    return Drawing(rule, variant, dict(rule.example), _ignored(nodes, choose))


def axes_in(rule: Rule, variant: RuleVariant) -> set[str]:
    """The names of the captures that are axes in a variant of a rule's source."""
    nodes = _op_nodes(rule, variant)
    return {part.name for node in nodes for name in AXES for part in _attributes(node.arguments.get(name))}


def _op_nodes(rule: Rule, variant: RuleVariant) -> list[OpNode]:
    return [node for node in chosen_nodes(rule.graph.root, variant.choices) if isinstance(node, OpNode)]


def smaller(example: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The example with one of its sizes made smaller wherever it occurs, the largest sizes first.

    An example with an index whose limit is not a size is not made smaller: kernels that do not check indices would read
    beyond a tensor.
    """
    sizes = {1, *sizes_in(example, set(AXES))}
    if any(int(most) + 1 not in sizes for value in example.values() for most in _INDICES.findall(str(value))):
        return
    for size in sorted(set(sizes_in(example, set(AXES))), reverse=True):
        for instead in sorted({1, 2, size // 2}):
            if 0 < instead < size:
                yield with_other_sizes(example, {size: instead})


def with_other_sizes(example: Mapping[str, Any], instead: Mapping[int, int]) -> dict[str, Any]:
    """The example with other sizes, wherever they stand; axes stay."""

    def resize(size: int) -> int:
        return instead.get(size, size)

    return {name: value if name in AXES else _resized(value, resize) for name, value in example.items()}


# ---- sizes ----------------------------------------------------------------------------------------


def _attributes(argument: Any) -> Iterator[Attr | Const]:
    """The captures of attributes and constants in an argument of an op."""
    if isinstance(argument, Attr | Const):
        yield argument
    elif not isinstance(argument, PatternNode):
        for part in children(argument):
            yield from _attributes(part)


def sizes_in(example: Mapping[str, Any], axes: set[str]) -> Iterator[int]:
    """The sizes in an example."""
    for name, value in example.items():
        if type_ := ExampleType.parsed(value):
            yield from type_.sizes
        elif isinstance(value, list):
            for item in value:
                yield from sizes_in({name: item}, axes)
        elif name not in axes and _is_size(value):
            yield value


def _is_size(value: Any) -> bool:
    return type(value) is int and 1 < value <= LARGEST_DRAWN_SIZE


def _resized(value: Any, resize: Callable[[int], int]) -> Any:
    """A type, a size or a list of sizes with every size mapped."""
    if type_ := ExampleType.parsed(value):
        type_ = replace(type_, sizes=tuple(_resize(size, resize) for size in type_.sizes))
        if type_.is_integer and type_.limits and type_.limits[0] == "0" and type_.limits[1].isdigit():  # indices
            type_ = replace(type_, limits=("0", str(_resize(int(type_.limits[1]) + 1, resize) - 1)))
        return str(type_)
    if isinstance(value, list):
        return [_resized(item, resize) for item in value]
    return _resize(value, resize)


def _resize(value: Any, resize: Callable[[int], int]) -> Any:
    return resize(value) if _is_size(value) else value


# ---- element types, and arguments that a pattern leaves free ---------------------------------------


def of_element(text: str, element: str) -> str:
    """A type of floats with another element type."""
    type_ = ExampleType.parsed(text)
    return str(replace(type_, element=element)) if type_ and type_.element in _FLOATS else text


def _ignored(nodes: Sequence[OpNode], choose: Choose) -> dict[tuple[int, str], Any]:
    """Values for the arguments, other than tensors, that the rule gives as `ANY`."""
    drawn: dict[tuple[int, str], Any] = {}
    elements = choose(((None, "f32"), ("f32",), ("si64",), (None, "f32", "f16", "bf16", "si64")))
    for node in nodes:
        for name, pattern in node.arguments.items():
            argument = node.spec.argument(name)
            if pattern is ANY and argument.kind in ("attribute", "mixed"):
                is_element = argument.type.startswith("ScalarType")
                drawn[id(node), name] = choose(
                    elements if is_element else _options(name, argument.type, argument.sample)
                )
            elif isinstance(pattern, list) and any(item is ANY for item in pattern):
                drawn[id(node), name] = [choose((-1, 0, 1)) if item is ANY else item for item in pattern]
    return drawn


def _options(name: str, type_: str, sample: Any) -> Sequence[Any]:
    if words := words_of(name, type_):
        return (sample, *(word for word in words if word != sample))
    if type_.startswith("bool"):
        return (False, True)
    if "[" in type_:
        return ([-1], [0])  # of sizes, the first is that of a flat tensor
    if type_ in ("Scalar", "float"):
        return (1, 2, 0.5)
    return (sample, 0, 1, -1) if type_ in ("int", "SymInt") else (sample,)
