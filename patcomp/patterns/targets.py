"""The targets of rules: descriptions of ops that are built when the rule matches, and the table of composites."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from patcomp.errors import PatcompError, RuleError, did_you_mean
from patcomp.ir.composite import Composite
from patcomp.ir.namespaces import OpSpec
from patcomp.ir.xdsl import Attribute
from patcomp.patterns.language import shown


class TargetBuilder(Protocol):
    """Builds ops by their names: a dialect, or a table of composites."""

    name: str

    def names(self) -> Iterable[str]: ...

    def spec(self, name: str) -> Any: ...

    def candidates(self, name: str) -> Any: ...

    def build(
        self, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any], types: Sequence[Attribute] | None
    ) -> Any: ...


class TargetCall:
    """A call in a target, made when the rule matches."""

    def __init__(self, arguments: Sequence[Any], keywords: Mapping[str, Any]):
        self.arguments, self.keywords = tuple(arguments), dict(keywords)

    name: str

    @property
    def function(self) -> Any:
        """The Python function or composite that is called; None for an op of a dialect."""
        raise NotImplementedError

    def make(self, arguments: Sequence[Any], keywords: Mapping[str, Any], types: Sequence[Attribute] | None) -> Any:
        """The values of the call.

        Args:
            arguments: the `Value`s and attributes of the arguments.
            keywords: the same for the keywords.
            types: the types of the results at the root of a target; None below.
        """
        raise NotImplementedError

    def check(self) -> None:
        """Check that what is called exists. All tables must be filled before.

        Raises:
            RuleError: it does not.
        """

    def __getitem__(self, index: int) -> TargetResult:
        return TargetResult(self, index)

    def __str__(self) -> str:
        parts = [*map(shown, self.arguments), *(f"{name}={shown(value)}" for name, value in self.keywords.items())]
        return f"{self.name}({', '.join(parts)})"


class OpCall(TargetCall):
    """An op of a dialect, or a composite of a table."""

    def __init__(self, builder: TargetBuilder, op: str, arguments: Sequence[Any], keywords: Mapping[str, Any]):
        super().__init__(arguments, keywords)
        self.builder, self.op, self.name = builder, op, f"{builder.name}.{op}"
        # a rule keeps the composite that the name means now, if a notebook's cell defines the name again
        self._meant = self._composite()

    def _composite(self) -> Composite | None:
        found = self.builder.spec(self.op)
        return found if isinstance(found, Composite) else None

    @property
    def function(self) -> Composite | None:
        return self._meant or self._composite()

    def make(self, arguments: Sequence[Any], keywords: Mapping[str, Any], types: Sequence[Attribute] | None) -> Any:
        if self._meant is not None:
            return self._meant(*arguments, result_types=types, **keywords)
        try:
            return self.builder.build(self.op, arguments, keywords, types)
        except (TypeError, KeyError, AttributeError) as error:  # arguments that the op does not take
            if isinstance(error, PatcompError):
                raise
            raise RuleError(f"{self} cannot be built: {type(error).__name__}: {error}{self._signature()}") from error

    def _signature(self) -> str:
        """The arguments that the op takes, as the end of a message."""
        spec = self.builder.spec(self.op)
        names = ", ".join(argument.name for argument in spec.arguments) if isinstance(spec, OpSpec) else ""
        return f"; {self.name} takes {names}" if names else ""

    def check(self) -> None:
        if self.builder.spec(self.op) is None and not self.builder.candidates(self.op):
            near = did_you_mean(self.op, self.builder.names())
            raise RuleError(f"{self.builder.name} has no op {self.op!r}{near}")


class FunctionCall(TargetCall):
    """A call of a Python function."""

    def __init__(self, function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]):
        super().__init__(arguments, keywords)
        self.called, self.name = function, function.__name__

    @property
    def function(self) -> Callable[..., Any]:
        return self.called

    def make(self, arguments: Sequence[Any], keywords: Mapping[str, Any], types: Sequence[Attribute] | None) -> Any:
        return self.called(*arguments, **keywords)


def build(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> FunctionCall:
    """A call of a Python function as a target, or as a part of one: `to=build(layer, x, w, eps=eps.value)`.

    The function is called when the rule matches, and adds ops with the functions of a dialect (`aten` and `coreai` of
    `patcomp.authoring`). It gets a `Value` for each pattern node and the value of each expression, and returns a
    `Value` or a list of them. `Rejected` in it is a refusal.

    Raises:
        RuleError: it is no function.
    """
    if not callable(function) or isinstance(function, Composite):
        raise RuleError(f"build takes a Python function and its arguments, got {function!r}")
    return FunctionCall(function, arguments, keywords)


class TargetResult:
    """One result of a target op with several results."""

    def __init__(self, call: TargetCall, index: int):
        self.call, self.index = call, index


def target_parts(target: Any) -> Iterator[Any]:
    """A target and everything in it."""
    yield target
    inner: Any = ()
    if isinstance(target, TargetCall):
        inner = (*target.arguments, *target.keywords.values())
    elif isinstance(target, TargetResult):
        inner = (target.call,)
    elif isinstance(target, list | tuple):
        inner = target
    elif isinstance(target, dict):
        inner = tuple(target.values())
    for part in inner:
        yield from target_parts(part)


class TargetNamespace:
    """The second parameter of a rule: every attribute describes an op of the target, built later."""

    def __init__(self, builder: TargetBuilder):
        self._builder = builder

    def __getattr__(self, name: str) -> Callable[..., TargetCall]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *arguments, **keywords: self.op(name, *arguments, **keywords)

    def op(self, name: str, *arguments: Any, **keywords: Any) -> TargetCall:
        """The op of an exact name."""
        return OpCall(self._builder, name, arguments, keywords)


class CompositeTable:
    """A table of composites, which the Core AI compiler knows by name: `into=table` lets rules write
    `c.rms_norm(x, w, eps=eps.value)`."""

    def __init__(self, name: str):
        self.name = name
        self._composites: dict[str, Composite] = {}

    def define(self, composite: Composite) -> Composite:
        """Add a composite under its own name. This method can be a decorator.

        A composite that is defined again, by a notebook's cell or a reloaded module, replaces the earlier one; rules
        that were declared before keep the earlier one.

        Raises:
            RuleError: another composite has the name, or it is no composite.
        """
        if not isinstance(composite, Composite):
            raise RuleError(
                f"{self.name}: {composite.__name__} is not a composite; declare it with @composite(...). A rule calls "
                "other functions with build(function, ...)"
            )
        known = self._composites.get(composite.name)
        if known is not None and _origin(known) != _origin(composite):
            raise RuleError(f"{self.name} already has {composite.name!r}, defined in {_origin(known)[0]}")
        self._composites[composite.name] = composite
        return composite

    def __iter__(self) -> Iterator[Composite]:
        return iter(self._composites.values())

    def names(self) -> Iterable[str]:
        """The names of the composites."""
        return self._composites

    def spec(self, name: str) -> Composite | None:
        """The composite of a name."""
        return self._composites.get(name)

    def candidates(self, name: str) -> list[Any]:
        """The composite of a name, as a list."""
        return [self._composites[name]] if name in self._composites else []

    def build(
        self, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any], types: Sequence[Attribute] | None
    ) -> Any:
        """Calls the composite of a name."""
        return self._composites[name](*arguments, result_types=types, **keywords)


def _origin(composite: Composite) -> tuple[str, str]:
    """The file of a composite's body (`__main__` in a notebook or script), and its qualified name."""
    body = composite.body
    module = body.__module__
    return module if module == "__main__" else body.__code__.co_filename, body.__qualname__


composites = CompositeTable("composites")
"""The default target of rules; the catalog fills it."""
