"""`Formula`: the replacement of one op as a function of the op's arguments, under conditions.

    @formula("lower", "aten.cumsum", examples=[example("2x3xf32", 1)],
             where=lambda self, dim: [self.rank > 0], ignored={"dtype": "the result type has it"})
    def cumsum(c: Coreai, self: Value, dim: int, result: ValueType) -> Value: ...

A parameter is an argument by its name in the op's schema; `op_name`, which of several ops it is; `result` or
`results`, the `ValueType`s to make; or `used`, a list that says of each result whether an op reads it (None stands for
a result that no op reads). Every argument is a parameter of the function or of the conditions, or is ignored with a
reason; the declaration is an error otherwise. A parameter with a default may be absent from some of the ops. A name
that is a keyword of Python has an underscore after it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import update_wrapper
from typing import Any, NoReturn

from patcomp.errors import RuleError, did_you_mean
from patcomp.ir.namespaces import OpSpec
from patcomp.ir.value import Value, ValueType
from patcomp.ir.xdsl import Operation
from patcomp.patterns.expressions import Expression, Said, Undefined
from patcomp.patterns.language import Attr, Capture
from patcomp.patterns.op_view import OpView, Rejected

Conditions = Callable[..., Sequence[Expression]]
"""A function of captures with the names of arguments: a `Capture` for a tensor or a result, an `Attr` for all else."""

_FACTS = ("op_name", "result", "results", "used")


class Declined(Rejected):
    """A condition without a reason for users does not hold: another rule is for this op.

    Its text is made where somebody reads it, because many ops are declined.
    """

    def __init__(self, condition: Expression, why: str):
        super().__init__(condition, why)
        self.condition, self.why = condition, why

    def __str__(self) -> str:
        return f"`{self.condition.text}` {self.why}"


class _Tensor(Capture):
    """A tensor argument; as an argument of a condition, its `Value`, or None where it is left out."""

    def as_expression(self) -> Expression:
        return Attr(self.name)


class _Arguments:
    """What expressions read of an op: its arguments and the types of its results, by name."""

    tags: Mapping[str, Any] = {}

    def __init__(self, values: Mapping[str, Any], assumed: Collection[str]):
        self.values, self.assumed = values, assumed

    def value_of(self, node: Any) -> Any:
        return self.values[node.name]

    attribute_of = value_of


class _NotLocal(Exception):  # noqa: N818  (not an error: the condition reads more than the op)
    """A condition reads ops around its op."""


class _LocalValue(Value):
    """A value of which a condition reads its type, and its numbers if it is a constant."""

    __slots__ = ("_value",)

    def __init__(self, value: Value):
        self._value = value

    @property
    def ssa(self) -> NoReturn:  # type: ignore[override]
        raise _NotLocal

    @property
    def type(self) -> ValueType:
        return self._value.type

    shape = property(lambda self: self._value.shape)  # type: ignore[assignment]
    rank = property(lambda self: self._value.rank)  # type: ignore[assignment]
    element_type = property(lambda self: self._value.element_type)  # type: ignore[assignment]
    static_shape = property(lambda self: self._value.static_shape)  # type: ignore[assignment]
    constant = property(lambda self: self._value.constant)  # type: ignore[assignment]
    uniform = property(lambda self: self._value.uniform)  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _LocalValue) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)


class _Unknown(frozenset[str]):
    """What the user declared about the whole model."""

    def __contains__(self, name: object) -> NoReturn:
        raise _NotLocal


def _local(value: Any) -> Any:
    if isinstance(value, list):
        return [_local(item) for item in value]
    return _LocalValue(value) if isinstance(value, Value) else value


class Formula:
    """The function of a rule that is a formula, called with the op's view as any rule's function.

    Args:
        function: builds the replacement from the authoring functions and the arguments.
        specs: the ops.
        where: gives the conditions; it is called once, here.
        ignored: the arguments that cannot change the result, each with the reason.
        parameters: the names of the function's parameters after the first, if its signature does not have them.
        written: the functions that the author of the rule wrote, if `function` only chooses among them.

    Raises:
        RuleError: an argument is not accounted for, or a name is no argument of the ops.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        specs: Sequence[OpSpec],
        where: Conditions | None = None,
        ignored: Mapping[str, str] | None = None,
        *,
        parameters: Sequence[str] | None = None,
        written: Iterable[Callable[..., Any]] | None = None,
    ):
        update_wrapper(self, function)
        self.function = function
        self.written = (function,) if written is None else tuple(written)
        self.ignored = dict(ignored or {})
        known = {argument.name: argument for spec in specs for argument in spec.arguments if argument.kind != _TYPE}
        named = dict.fromkeys(parameters, inspect.Parameter.empty) if parameters else _defaults(function, 1)
        self.parameters = {_plain(name, known): default for name, default in named.items()}
        read = {_plain(name, known): name for name in (_defaults(where, 0) if where is not None else {})}
        mentioned = {*self.parameters, *read, *self.ignored}
        if unknown := sorted(mentioned - known.keys() - {*_FACTS}):
            near = did_you_mean(unknown[0], known)
            raise RuleError(f"{unknown[0]} is no argument of {' or '.join(spec.name for spec in specs)}{near}")
        if empty := [name for name, reason in self.ignored.items() if not reason]:
            raise RuleError(f"{empty[0]} is ignored without a reason")
        for spec in specs:
            own = {argument.name for argument in spec.arguments if argument.kind != _TYPE}
            for name in {*self.parameters, *read} - own - {*_FACTS}:
                if self.parameters.get(name, inspect.Parameter.empty) is inspect.Parameter.empty:
                    raise RuleError(f"{spec.name} has no argument {name}, which needs a default here")
            if missing := [argument.name for argument in spec.arguments if argument.name in own - mentioned]:
                raise RuleError(
                    f"{spec.name} has the argument {missing[0]}, which is no parameter of the formula or its "
                    f"conditions; ignored= takes an argument that cannot change the result, with the reason"
                )
        self._absent = {
            name: None if default is inspect.Parameter.empty else default for name, default in self.parameters.items()
        }
        kinds: dict[str, Any] = {
            name: _Tensor if argument.kind == "value" else Attr for name, argument in known.items()
        }
        kinds |= {"op_name": Attr, "used": Attr}
        captures = {name: kinds.get(name, Capture)(name) for name in read}
        self._reads_uses = "used" in mentioned
        self.conditions = _listed(where(**{read[name]: capture for name, capture in captures.items()}) if where else ())

    def __call__(self, view: OpView, c: Any) -> Any:
        """The replacement of an op.

        Raises:
            Rejected: a condition does not hold.
        """
        arguments = self._named(view, view.read_all())
        if self._reads_uses:
            arguments["used"] = [view.used(index) for index in range(len(view.results))]
        if self.conditions:
            given = _Arguments(arguments, view.assumed)
            for condition in self.conditions:
                _check(condition, given)
        return self.function(c, *(arguments[name] for name in self.parameters))

    def refutes(self, op: Operation) -> bool:
        """Whether types, properties and constants of an op make a condition false, whatever is around the op."""
        view = OpView(op, op.arguments_by_name())  # type: ignore[attr-defined]
        read = {name: _local(value) for name, value in view.read_all().items()}
        given = _Arguments(self._named(view, read), _Unknown())
        return any(_is_false(condition, given) for condition in self.conditions)

    def _named(self, view: OpView, read: Mapping[str, Any]) -> dict[str, Any]:
        """What conditions and the function are given by name, without the uses of the results."""
        result = view.results[0] if view.results else None
        return {**self._absent, **read, "op_name": view.op_name, "results": view.results, "result": result}


_TYPE = "element type"
"""The kind of an argument that the type of the result holds."""


def _defaults(function: Any, leading: int) -> dict[str, Any]:
    """The default of each parameter after the leading ones; `Parameter.empty` where there is none."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]  # a signature takes ten times as long
    given = function.__defaults__ or ()
    defaults = dict(zip(names[len(names) - len(given) :], given, strict=True))
    return {name: defaults.get(name, inspect.Parameter.empty) for name in names[leading:]}


def _plain(name: str, known: Collection[str]) -> str:
    """The name of the argument that a parameter stands for."""
    return name if name in known or name in _FACTS else name.removesuffix("_")


def _listed(conditions: Any) -> tuple[Expression, ...]:
    given = tuple(conditions) if isinstance(conditions, list | tuple) else (conditions,)
    if wrong := [condition for condition in given if not isinstance(condition, Expression)]:
        raise RuleError(f"where= gives {wrong[0]!r}, which is not a condition on the arguments")
    return given


def _is_false(condition: Expression, given: _Arguments) -> bool:
    """Whether a condition is known not to hold."""
    try:
        return not condition.evaluate(given)
    except Undefined:
        return True
    except Exception:  # it reads more than the op, or is broken, which is reported where the rule is tried
        return False


def _check(condition: Expression, given: _Arguments) -> None:
    """Refuse an op unless a condition holds, by the condition's reason if it has one.

    Raises:
        Rejected: the condition does not hold.
        Declined: it does not hold, and has no reason for users.
    """
    try:
        holds, why = bool(condition.evaluate(given)), "does not hold"
    except Undefined as undefined:
        holds, why = False, f"has no value: {undefined}"
    if not holds:
        if isinstance(condition, Said):
            raise Rejected(condition.refusal(given))
        raise Declined(condition, why)
