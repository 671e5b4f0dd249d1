"""The nodes that a rule is written with: captures, op nodes, alternatives, and the namespaces that make them.

A rule's function runs once, when it is declared, and builds two descriptions: the source, out of
pattern nodes, and the target, out of `targets.TargetCall`s. The same Python object used twice means the same
value twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any

from patcomp.errors import RuleError, did_you_mean
from patcomp.ir.composite import Composite
from patcomp.ir.namespaces import ArgumentSpec, DialectInterface, OpSpec, composite_spec
from patcomp.ir.xdsl import Attribute
from patcomp.patterns.expressions import Bound, Expression, Operators, Property, Undefined, binary


class _Any:
    """The type of `ANY`."""

    def __repr__(self) -> str:
        return "ANY"


ANY = _Any()
"""Matches any argument."""


class _Last(_Any):
    """The type of `LAST`."""

    def __repr__(self) -> str:
        return "LAST"


LAST = _Last()
"""Matches the last axis of the op's result, counted from either end."""


class PatternNode(Operators):
    """A value in the source of a rule. Python operators build ops of the source dialect."""

    source: SourceNamespace | None = None

    def _operator(self, symbol: str, *operands: Any) -> OpNode:
        source = self.source or next((p.source for p in operands if isinstance(p, PatternNode) and p.source), None)
        if source is None:
            raise RuleError(f"operator {symbol} on {self}: no namespace is known here; name the op instead")
        return source.apply_operator(symbol, operands)

    __matmul__ = binary("@")

    def as_expression(self) -> Expression:
        """The matched value, as an argument of a condition: `broadcasts_to(x, y)`."""
        return Bound(self)

    def __neg__(self) -> OpNode:
        return self._operator("neg", self)

    @property
    def rank(self) -> Expression:
        """The number of dimensions, in a condition."""
        return Property(self, "rank", lambda value: value.rank)

    @property
    def shape(self) -> Expression:
        """The dimensions, in a condition. A comparison with a dynamic dimension is false."""
        return Property(self, "shape", lambda value: value.shape)

    @property
    def dtype(self) -> Expression:
        """The name of the element type, in a condition."""
        return Property(self, "dtype", lambda value: value.dtype)

    @property
    def element_type(self) -> Expression:
        """The element type, as an argument of a condition or a function."""
        return Property(self, "element_type", lambda value: value.element_type)

    @property
    def type(self) -> Expression:
        """Element type and shape, in a condition or as `result_type=` of a target."""
        return Property(self, "type", lambda value: value.type.attribute)

    @property
    def is_static(self) -> Expression:
        """Whether no dimension is dynamic, in a condition."""
        return Property(self, "is_static", lambda value: value.is_static)


class Capture(PatternNode):
    """A parameter annotated `Capture`, or without annotation: any SSA value."""

    def __init__(self, name: str, source: SourceNamespace | None = None):
        self.name, self.source = name, source

    def __str__(self) -> str:
        return self.name


class Const(Capture):
    """A parameter annotated `Const`: an inline constant. `.value` is its number, `.values` the array."""

    @property
    def value(self) -> Expression:
        """The number that every element equals."""
        return Property(self, "value", self._uniform)

    @property
    def values(self) -> Expression:
        """The values as a numpy array."""
        return Property(self, "values", lambda value: value.constant)

    def _uniform(self, value: Any) -> Any:
        number = value.uniform
        if number is None:
            raise Undefined(f"`{self.name}.value` has no value: the constant is not one number")
        # the shortest decimal that rounds to the same f32, so that the 1e-5 of a model reads 1e-05 again
        return float(str(number)) if number.dtype.kind == "f" else number.item()


class Attr(Expression):
    """A parameter annotated `Attr`: the value of an argument that is no tensor, or an item of its list."""

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
    """A literal in the place of a tensor: a constant whose elements all equal the number, or equal the list's
    elements."""

    def __init__(self, literal: Any):
        self.literal = literal

    def __str__(self) -> str:
        return repr(self.literal)


class AnyValue(PatternNode):
    """`ANY` in the place of a tensor."""

    def __str__(self) -> str:
        return "ANY"


class OpNode(PatternNode):
    """An op of the source dialect with all its arguments."""

    def __init__(self, source: SourceNamespace, spec: OpSpec, arguments: Mapping[str, Any]):
        self.source, self.spec, self.arguments = source, spec, dict(arguments)
        self.escapes = self.is_seen = False

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
    """One result of an op with several results."""

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
        # the text of a pattern with many alternatives would have many pages
        return self.tag if self.tag is not None else f"any_of({', '.join(map(shown, self.alternatives))})"


def shown(value: Any) -> str:
    """The text of an argument in messages."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(shown, value))}]"
    return str(value) if isinstance(value, PatternNode | Expression) else repr(value)


def any_of(*alternatives: Any, tag: str | None = None, tags: Sequence[Any] = ()) -> AnyOf:
    """A value that may be any of the alternatives, tried in order.

    Args:
        alternatives: pattern nodes, captures or numbers.
        tag: the name by which conditions and the target read the choice: `tag("name")`.
        tags: the value of `tag("name")` for each alternative; by default its position.

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
        composites: a table of composites, or None. A composite matches its calls that earlier rules have recovered; its
            arguments are inputs, attributes and options. If the dialect has an op of the same name that takes the given
            arguments, the name means that op; `a.op("composite.NAME", ...)` always means the composite.
    """

    def __init__(self, dialect: DialectInterface, composites: Any = None):
        self._dialect, self._composites = dialect, composites

    @property
    def dialect(self) -> DialectInterface:
        return self._dialect

    def __getattr__(self, name: str) -> Callable[..., OpNode]:
        if name.startswith("__"):
            raise AttributeError(name)
        specs = [*self._dialect.candidates(name), *self._recovered(name)]
        if not specs:
            raise self._unknown(name)

        def make(*positional: Any, **keywords: Any) -> OpNode:
            return self._node(
                _choose(f"{self._dialect.name}.{name}", specs, positional, keywords), positional, keywords
            )

        return make

    def op(self, name: str, *positional: Any, **keywords: Any) -> OpNode:
        """The op of an exact name: `a.op("mean.dim", x, dim=[-1], keepdim=True, dtype=None)`.

        Raises:
            RuleError: there is no such op, or an argument is wrong or not mentioned.
        """
        recovered = self._recovered(name.removeprefix("composite.")) if name.startswith("composite.") else []
        spec = recovered[0] if recovered else self._dialect.spec(name)
        if spec is None:
            raise self._unknown(name)
        return self._node(spec, positional, keywords)

    def _unknown(self, name: str) -> RuleError:
        prefixes = (f"{self._dialect.name}.", "composite.")
        plain = next((name.removeprefix(prefix) for prefix in prefixes if name.startswith(prefix)), name)
        names = {*self._dialect.names(), *(self._composites.names() if self._composites is not None else ())}
        return RuleError(f"{self._dialect.name} has no op {name!r}{did_you_mean(plain, names)}")

    def _recovered(self, name: str) -> list[OpSpec]:
        """The composite of a name as a list, empty if there is none."""
        found = self._composites.spec(name) if self._composites is not None else None
        return [composite_spec(found)] if isinstance(found, Composite) else []

    def escaping(self, node: Any) -> Any:
        """The node, and allow uses of its value outside the match. Its op stays if there are such uses."""
        for op in op_nodes(node):
            op.escapes = True
        return node

    def seen(self, node: Any) -> Any:
        """The node, whose op the rule only looks at: it may be used elsewhere, and new ops do not take its location."""
        for op in op_nodes(self.escaping(node)):
            op.is_seen = True
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
        named = _named(spec, positional, keywords)
        arguments = {a.name: _as_argument(named[a.name], spec.name, a) for a in spec.arguments}
        return OpNode(self, spec, arguments)


def op_nodes(node: Any) -> Iterator[OpNode]:
    """The op nodes of a value: its own node, or the op nodes of its alternatives."""
    if isinstance(node, ResultNode):
        yield node.node
    elif isinstance(node, OpNode):
        yield node
    elif isinstance(node, AnyOf):
        for alternative in node.alternatives:
            yield from op_nodes(alternative)


class _Misfit(IntEnum):
    """How far a call is from an op. Of several overloads, the message is about the nearest."""

    FORM = 0
    """An argument is of another type."""
    LEFT_OUT = 1
    """An argument is not mentioned."""
    NAMES = 2
    """The arguments are those of another op."""


class _MisfitError(RuleError):
    def __init__(self, misfit: _Misfit, message: str):
        super().__init__(message)
        self.misfit = misfit


def _named(spec: OpSpec, positional: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name.

    Raises:
        RuleError: they are not the op's.
    """
    names = [argument.name for argument in spec.arguments]
    inputs = len(names) if spec.composite is None else len(spec.composite.inputs)
    wrong = ""
    if len(positional) > inputs:
        wrong = f"{spec.name} takes {len(names)} arguments ({', '.join(names)}), got {len(positional)}"
        if inputs < len(names):
            wrong = f"{spec.name} takes {inputs} inputs, got {len(positional)}; its attributes are keywords"
    elif unknown := [name for name in keywords if name not in names]:
        wrong = f"{spec.name} has no argument {', '.join(unknown)}; it has {', '.join(names)}"
    elif twice := [name for name in names[: len(positional)] if name in keywords]:
        wrong = f"{spec.name}: {', '.join(twice)} is given twice"
    if wrong:
        raise _MisfitError(_Misfit.NAMES, wrong)
    if absent := [name for name in names[len(positional) :] if name not in keywords]:
        message = f"{spec.name} does not mention {', '.join(absent)}; give a literal, a capture or ANY"
        raise _MisfitError(_Misfit.LEFT_OUT, message)
    return dict(zip(names, positional, strict=False)) | dict(keywords)


def _choose(name: str, specs: Sequence[OpSpec], positional: Sequence[Any], keywords: Mapping[str, Any]) -> OpSpec:
    """Choose the first overload that takes the arguments of a call.

    Raises:
        RuleError: no overload takes them.
    """
    complaints: list[tuple[_Misfit, str]] = []
    for spec in specs:
        try:
            named = _named(spec, positional, keywords)
            for argument in spec.arguments:
                _as_argument(named[argument.name], spec.name, argument)
                _check_form(named[argument.name], spec.name, argument)
        except RuleError as error:
            complaints.append((error.misfit if isinstance(error, _MisfitError) else _Misfit.FORM, str(error)))
        else:
            return spec
    nearest = min(misfit for misfit, _ in complaints)
    listed = list(dict.fromkeys(text for misfit, text in complaints if misfit is nearest))
    more = f' (or {len(listed) - 1} other overloads; a.op("name.overload", ...) picks one)' if len(listed) > 1 else ""
    raise RuleError(f"{name}: {listed[0]}{more}")


def _check_form(given: Any, op: str, argument: ArgumentSpec) -> None:
    """Refuse a literal that is not of the declared type, because some overloads differ only in types."""
    declared = argument.type
    if argument.kind in ("value", "values") or not isinstance(given, list | tuple | bool | int | float | str):
        return
    is_list = "[" in declared
    if isinstance(given, list | tuple) != is_list:
        raise RuleError(f"{op}: {argument.name} is {declared}, not {given!r}")
    takes_text = declared.rstrip("?") in ("str", "ScalarType")
    if isinstance(given, str) and not takes_text and given not in declared.split("|"):
        raise RuleError(f"{op}: {argument.name} is {declared}, not {given!r}")
