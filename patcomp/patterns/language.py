"""The nodes that a rule is written with: captures, op nodes, alternatives, and the namespaces that make them.

A rule's function runs once, when it is declared, and builds two descriptions: the source, out of
pattern nodes, and the target, out of `targets.TargetCall`s. The same Python object used twice means the same
value twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from patcomp.errors import RuleError
from patcomp.ir.composite import Composite
from patcomp.ir.namespaces import ArgumentSpec, DialectInterface, OpSpec, composite_spec
from patcomp.ir.xdsl import Attribute
from patcomp.patterns.expressions import Expression, Property


class _Any:
    """The type of `ANY`."""

    def __repr__(self) -> str:
        return "ANY"


ANY = _Any()
"""Stands for an argument that the rule does not care about."""


class _Last(_Any):
    """The type of `LAST`."""

    def __repr__(self) -> str:
        return "LAST"


LAST = _Last()
"""Stands for an axis: the last one of the op's result, counted from either end."""


class PatternNode:
    """A value in the source of a rule. Python operators build ops of the source dialect."""

    source: SourceNamespace | None = None

    def _sugar(self, operator: str, *arguments: Any) -> OpNode:
        source = self.source or next((p.source for p in arguments if isinstance(p, PatternNode) and p.source), None)
        if source is None:
            raise RuleError(f"operator {operator} on {self}: no namespace is known here; name the op instead")
        return source.apply_operator(operator, arguments)

    def __add__(self, other: Any) -> OpNode:
        return self._sugar("+", self, other)

    def __radd__(self, other: Any) -> OpNode:
        return self._sugar("+", other, self)

    def __sub__(self, other: Any) -> OpNode:
        return self._sugar("-", self, other)

    def __rsub__(self, other: Any) -> OpNode:
        return self._sugar("-", other, self)

    def __mul__(self, other: Any) -> OpNode:
        return self._sugar("*", self, other)

    def __rmul__(self, other: Any) -> OpNode:
        return self._sugar("*", other, self)

    def __truediv__(self, other: Any) -> OpNode:
        return self._sugar("/", self, other)

    def __rtruediv__(self, other: Any) -> OpNode:
        return self._sugar("/", other, self)

    def __matmul__(self, other: Any) -> OpNode:
        return self._sugar("@", self, other)

    def __pow__(self, other: Any) -> OpNode:
        return self._sugar("**", self, other)

    def __rpow__(self, other: Any) -> OpNode:
        return self._sugar("**", other, self)

    def __neg__(self) -> OpNode:
        return self._sugar("neg", self)

    @property
    def rank(self) -> Expression:
        """The number of dimensions, in a condition."""
        return Property(self, "rank", lambda value: value.rank)

    @property
    def shape(self) -> Expression:
        """The dimensions, in a condition. A dynamic one makes a comparison with it false."""
        return Property(self, "shape", lambda value: value.shape)

    @property
    def dtype(self) -> Expression:
        """The name of the element type, in a condition."""
        return Property(self, "dtype", lambda value: value.dtype)

    @property
    def type(self) -> Expression:
        """Element type and shape, in a condition or as `result_type=` of a target."""
        return Property(self, "type", lambda value: value.type.attribute)

    @property
    def is_static(self) -> Expression:
        """Whether no dimension is dynamic, in a condition."""
        return Property(self, "is_static", lambda value: value.is_static)


class Capture(PatternNode):
    """A parameter of a rule without annotation: any SSA value."""

    def __init__(self, name: str, source: SourceNamespace | None = None):
        self.name, self.source = name, source

    def __str__(self) -> str:
        return self.name


class Const(Capture):
    """A parameter annotated `Const`: an inline constant. `.value` is its number, `.values` the array."""

    @property
    def value(self) -> Expression:
        """The number that every element equals."""
        return Property(self, "value", _uniform)

    @property
    def values(self) -> Expression:
        """The values as a numpy array."""
        return Property(self, "values", lambda value: value.constant)


def _uniform(value: Any) -> Any:
    array = value.constant
    if array.size == 0 or not bool((array == array[(0,) * array.ndim]).all()):
        raise TypeError("the constant is not one number")
    number = array[(0,) * array.ndim]
    # the shortest decimal that rounds to the same f32, so that the 1e-5 of a model reads 1e-05 again
    return float(str(number)) if array.dtype.kind == "f" else number.item()


class Attr(Expression):
    """A parameter annotated `Attr`: the value of an argument that is not a tensor, or a part of its list."""

    def __init__(self, name: str):
        self.name = name

    def evaluate(self, match: Any) -> Any:
        return match.attribute_of(self)

    @property
    def text(self) -> str:
        return self.name

    def captured(self) -> Iterator[Any]:
        yield self


class Number(PatternNode):
    """A literal where a tensor stands: a constant whose every element equals the number (or whose elements are
    those of the list)."""

    def __init__(self, literal: Any):
        self.literal = literal

    def __str__(self) -> str:
        return repr(self.literal)


class AnyValue(PatternNode):
    """`ANY` where a tensor stands."""

    def __str__(self) -> str:
        return "ANY"


class OpNode(PatternNode):
    """An op of the source dialect, every argument of it mentioned."""

    def __init__(self, source: SourceNamespace, spec: OpSpec, arguments: Mapping[str, Any]):
        self.source, self.spec, self.arguments = source, spec, dict(arguments)
        self.escapes = False

    def __getitem__(self, index: int) -> ResultNode:
        if self.spec.results is not None and not 0 <= index < self.spec.results:
            raise RuleError(f"{self.spec.name} has {self.spec.results} results; there is no result {index}")
        return ResultNode(self, index)

    def __iter__(self) -> Iterator[ResultNode]:
        if self.spec.results is None:
            raise RuleError(f"{self.spec.name} has any number of results: index it")
        return iter([self[i] for i in range(self.spec.results)])

    def __str__(self) -> str:
        arguments = ", ".join(
            f"{name}={shown(value)}" if self.spec.argument(name).kind == "attribute" else shown(value)
            for name, value in self.arguments.items()
        )
        return f"{self.spec.name}({arguments})"


class ResultNode(PatternNode):
    """One result of an op with several."""

    def __init__(self, node: OpNode, index: int):
        self.node, self.index, self.source = node, index, node.source

    def __str__(self) -> str:
        return f"{self.node}[{self.index}]"


class AnyOf(PatternNode):
    """Alternatives, tried in order."""

    def __init__(self, alternatives: Sequence[Any], tag: str | None, tags: Sequence[Any]):
        self.alternatives, self.tag, self.tags = tuple(alternatives), tag, tuple(tags)
        self.source = next(
            (a.source for a in alternatives if isinstance(a, PatternNode) and a.source is not None), None
        )

    def __str__(self) -> str:
        # the tag is the short name: patterns with many alternatives have texts of many pages
        return self.tag if self.tag is not None else f"any_of({', '.join(map(shown, self.alternatives))})"


def shown(value: Any) -> str:
    """An argument as messages show it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(shown, value))}]"
    return str(value) if isinstance(value, PatternNode | Expression) else repr(value)


def any_of(*alternatives: Any, tag: str | None = None, tags: Sequence[Any] = ()) -> AnyOf:
    """A value that may be any of the alternatives, tried in order.

    Args:
        alternatives: pattern nodes, captures or numbers.
        tag: name under which conditions and the target read the choice, `tag("name")`.
        tags: what the choice reads as, one for each alternative; by default its position.

    Raises:
        RuleError: fewer than two alternatives, or another number of tags.
    """
    if len(alternatives) < 2:
        raise RuleError("any_of needs at least two alternatives")
    if tags and len(tags) != len(alternatives):
        raise RuleError(f"any_of has {len(alternatives)} alternatives and {len(tags)} tags")
    if tags and tag is None:
        raise RuleError("any_of has tags= but no tag= to read them by")
    wrapped = [_as_value(alternative, "any_of", "alternative") for alternative in alternatives]
    return AnyOf(wrapped, tag, tags or range(len(alternatives)))


def _as_value(given: Any, op: str, argument: str) -> PatternNode:
    if isinstance(given, OpNode):
        if given.spec.results != 1:
            raise RuleError(f"{op}: {argument} is {given.spec.name}, which has several results; pick one, node[0]")
        return given
    if isinstance(given, PatternNode):
        return given
    if given is ANY:
        return AnyValue()
    if isinstance(given, Attr):
        raise RuleError(f"{op}: {argument} is a tensor, and {given.name} is annotated Attr; drop the annotation")
    if isinstance(given, bool | int | float) or (isinstance(given, list | tuple) and _numeric(given)):
        return Number(list(given) if isinstance(given, tuple) else given)
    raise RuleError(f"{op}: {argument} is a tensor; {given!r} cannot stand there")


def _numeric(items: Sequence[Any]) -> bool:
    return all(_numeric(i) if isinstance(i, list | tuple) else isinstance(i, bool | int | float) for i in items)


def _as_attribute(given: Any, op: str, argument: str, mixed: bool) -> Any:
    if isinstance(given, list | tuple):
        return [_as_attribute(item, op, argument, mixed) for item in given]
    if isinstance(given, PatternNode):
        if mixed:
            return _as_value(given, op, argument)
        raise RuleError(f"{op}: {argument} is not a tensor; annotate {given} with Attr to capture it")
    if isinstance(given, Expression) and not isinstance(given, Attr):
        raise RuleError(f"{op}: {argument} cannot be the expression `{given.text}`; capture it and compare in where=")
    if given is None or isinstance(given, _Any | bool | int | float | str | Attr | Attribute):
        return given
    raise RuleError(f"{op}: {argument} cannot be {given!r}")


def _as_argument(given: Any, op: str, argument: ArgumentSpec) -> Any:
    if argument.kind == "value":
        if given is None:
            if not argument.optional:
                raise RuleError(f"{op}: {argument.name} cannot be None")
            return None
        return _as_value(given, op, argument.name)
    if argument.kind == "values":
        if given is ANY or isinstance(given, Attr):
            return given
        if not isinstance(given, list | tuple):
            raise RuleError(f"{op}: {argument.name} is a list of tensors; give a list, an Attr or ANY")
        return [None if item is None else _as_value(item, op, argument.name) for item in given]
    return _as_attribute(given, op, argument.name, argument.kind == "mixed")


class SourceNamespace:
    """The first parameter of a rule: every attribute is an op of the source dialect, or a composite.

    Args:
        dialect: the source dialect.
        composites: the composites by name. One stands for its calls that earlier rules have recovered, with its
            inputs, attributes and options by name. Where the dialect has an op of the same name that takes
            the arguments as they are given, that op is meant; `a.op("composite.NAME", ...)` names the composite.
    """

    def __init__(self, dialect: DialectInterface, composites: Callable[[str], Any] = lambda name: None):
        self._dialect, self._composites = dialect, composites

    @property
    def dialect(self) -> DialectInterface:
        return self._dialect

    def __getattr__(self, name: str) -> Callable[..., OpNode]:
        if name.startswith("__"):
            raise AttributeError(name)
        specs = [*self._dialect.candidates(name), *self._recovered(name)]
        if not specs:
            raise RuleError(f"{self._dialect.name} has no op {name!r}")

        def make(*positional: Any, **keywords: Any) -> OpNode:
            return self._node(
                _choose(f"{self._dialect.name}.{name}", specs, positional, keywords), positional, keywords
            )

        return make

    def op(self, name: str, *positional: Any, **keywords: Any) -> OpNode:
        """The op of an exact name: `a.op("mean.dim", x, dim=[-1], keepdim=True, dtype=None)`.

        Raises:
            RuleError: there is none, or an argument is wrong or not mentioned.
        """
        recovered = self._recovered(name.removeprefix("composite.")) if name.startswith("composite.") else []
        spec = recovered[0] if recovered else self._dialect.spec(name)
        if spec is None:
            raise RuleError(f"{self._dialect.name} has no op {name!r}")
        complaint = _mismatch(spec, positional, keywords)
        if complaint:
            raise RuleError(complaint)
        return self._node(spec, positional, keywords)

    def _recovered(self, name: str) -> list[OpSpec]:
        """The composite of a name as a list, empty if there is none."""
        found = self._composites(name)
        return [composite_spec(found)] if isinstance(found, Composite) else []

    def escaping(self, node: Any) -> Any:
        """The node, whose value may also be used outside the match; its op then stays."""
        for op in op_nodes(node):
            op.escapes = True
        return node

    def apply_operator(self, operator: str, arguments: Sequence[Any]) -> OpNode:
        """The node of a Python operator.

        Raises:
            RuleError: the dialect has no op for it.
        """
        sugar = self._dialect.operators.get(operator)
        if sugar is None:
            raise RuleError(f"{self._dialect.name} has no operator {operator}; name the op instead")
        return self.op(sugar[0], *arguments, **sugar[1])

    def _node(self, spec: OpSpec, positional: Sequence[Any], keywords: Mapping[str, Any]) -> OpNode:
        named = dict(zip((argument.name for argument in spec.arguments), positional, strict=False)) | dict(keywords)
        arguments = {a.name: _as_argument(named[a.name], spec.name, a) for a in spec.arguments}
        return OpNode(self, spec, arguments)


def op_nodes(node: Any) -> Iterator[OpNode]:
    """The op nodes that a value stands for: itself, or those of its alternatives."""
    if isinstance(node, ResultNode):
        yield node.node
    elif isinstance(node, OpNode):
        yield node
    elif isinstance(node, AnyOf):
        for alternative in node.alternatives:
            yield from op_nodes(alternative)


def _mismatch(spec: OpSpec, positional: Sequence[Any], keywords: Mapping[str, Any]) -> str | None:
    """Why a call does not fit an op, None when it does."""
    names = [argument.name for argument in spec.arguments]
    inputs = len(names) if spec.composite is None else len(spec.composite.inputs)
    if len(positional) > inputs:
        if inputs < len(names):
            return f"{spec.name} takes {inputs} inputs, got {len(positional)}; its attributes are keywords"
        return f"{spec.name} takes {len(names)} arguments ({', '.join(names)}), got {len(positional)}"
    unknown = [name for name in keywords if name not in names]
    if unknown:
        return f"{spec.name} has no argument {', '.join(unknown)}; it has {', '.join(names)}"
    twice = [name for name in names[: len(positional)] if name in keywords]
    if twice:
        return f"{spec.name}: {', '.join(twice)} is given twice"
    absent = [name for name in names[len(positional) :] if name not in keywords]
    if absent:
        return f"{spec.name} does not mention {', '.join(absent)}; give a literal, a capture or ANY"
    return None


def _choose(name: str, specs: Sequence[OpSpec], positional: Sequence[Any], keywords: Mapping[str, Any]) -> OpSpec:
    """The overload that a call means: the first one that takes the arguments as they are given.

    Raises:
        RuleError: none does.
    """
    complaints: list[tuple[int, str]] = []
    for spec in specs:
        complaint = _mismatch(spec, positional, keywords)
        if complaint is None:
            named = dict(zip((argument.name for argument in spec.arguments), positional, strict=False)) | dict(keywords)
            try:
                for argument in spec.arguments:
                    _as_argument(named[argument.name], spec.name, argument)
                    _check_form(named[argument.name], spec.name, argument)
            except RuleError as error:
                complaint = str(error)
                complaints.append((0, complaint))
            else:
                return spec
        else:
            complaints.append((1 if "does not mention" in complaint else 2, complaint))
    best = min(rank for rank, _ in complaints)
    listed = list(dict.fromkeys(text for rank, text in complaints if rank == best))
    more = f' (or {len(listed) - 1} other overloads; a.op("name.overload", ...) picks one)' if len(listed) > 1 else ""
    raise RuleError(f"{name}: {listed[0]}{more}")


def _check_form(given: Any, op: str, argument: ArgumentSpec) -> None:
    """Rejects a literal that cannot be of the declared type, where overloads differ in nothing else."""
    declared = argument.type
    if argument.kind in ("value", "values") or not isinstance(given, list | tuple | bool | int | float | str):
        return
    is_list = "[" in declared
    if isinstance(given, list | tuple) != is_list:
        raise RuleError(f"{op}: {argument.name} is {declared}, not {given!r}")
    takes_text = declared.rstrip("?") in ("str", "ScalarType")
    if isinstance(given, str) and not takes_text and given not in declared.split("|"):
        raise RuleError(f"{op}: {argument.name} is {declared}, not {given!r}")
