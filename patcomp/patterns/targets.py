"""The targets of rules: descriptions of ops that are built when the rule matches, and the tables of what can be
built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from patcomp.errors import RuleError
from patcomp.ir.composite import Composite
from patcomp.ir.xdsl import Attribute
from patcomp.patterns.language import shown


class TargetBuilder(Protocol):
    """Builds the targets of rules: a dialect, or a table of functions or composites."""

    name: str

    def names(self) -> Iterable[str]: ...

    def spec(self, name: str) -> Any: ...

    def candidates(self, name: str) -> Any: ...

    def build(
        self, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any], types: Sequence[Attribute] | None
    ) -> Any: ...


class TargetCall:
    """An op of the target, to be built when the rule matches."""

    def __init__(self, builder: TargetBuilder, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any]):
        self.builder, self.name, self.arguments, self.keywords = builder, name, tuple(arguments), dict(keywords)

    def __getitem__(self, index: int) -> TargetResult:
        return TargetResult(self, index)

    def __str__(self) -> str:
        parts = [*map(shown, self.arguments), *(f"{name}={shown(value)}" for name, value in self.keywords.items())]
        return f"{self.builder.name}.{self.name}({', '.join(parts)})"


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
        builder = self._builder.of(name) if isinstance(self._builder, FunctionTable) else self._builder
        return TargetCall(builder, name, arguments, keywords)


_Function = TypeVar("_Function", bound=Callable[..., Any])


class FunctionTable:
    """A target made of Python functions: `table.define(f)` lets rules write `c.f(x, w, eps=eps.value)`.

    A function is called with `Value`s by position, the evaluated attributes by keyword, and
    `result_types=`, the types of the results it replaces (None below the root of a target), while the
    builder that inserts before the matched root is active. It returns a `Value` or a list of them.
    """

    def __init__(self, name: str):
        self.name = name
        self._functions: dict[str, Callable[..., Any]] = {}

    def define(self, function: _Function, name: str | None = None) -> _Function:
        """Add a function under its own name, or another. This method can be a decorator.

        A function that is defined again, by a notebook's cell or a reloaded module, replaces the earlier one; rules
        that were declared before keep the earlier one.

        Raises:
            RuleError: another function has the name.
        """
        spelled = name or getattr(function, "name", None) or function.__name__
        known = self._functions.get(spelled)
        if known is not None and _origin(known) != _origin(function):
            raise RuleError(f"{self.name} already has {spelled!r}, defined in {_origin(known)[0]}")
        self._functions[spelled] = function
        return function

    def of(self, name: str) -> FunctionTable:
        """A table with only the function that has this name now; the table itself if no function has the name yet."""
        if name not in self._functions:
            return self
        table = FunctionTable(self.name)
        table.define(self._functions[name], name)
        return table

    def __iter__(self) -> Iterator[Callable[..., Any]]:
        return iter(self._functions.values())

    def names(self) -> Iterable[str]:
        """The names of the functions."""
        return self._functions

    def spec(self, name: str) -> Callable[..., Any] | None:
        """The function of a name."""
        return self._functions.get(name)

    def candidates(self, name: str) -> list[Any]:
        """The function of a name, as a list."""
        return [self._functions[name]] if name in self._functions else []

    def build(
        self, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any], types: Sequence[Attribute] | None
    ) -> Any:
        """Calls the function of a name."""
        return self._functions[name](*arguments, result_types=types, **keywords)


class CompositeTable(FunctionTable):
    """A table of composites, which the Core AI compiler knows by name."""

    def define(self, function: _Function, name: str | None = None) -> _Function:
        """Adds a composite.

        Raises:
            RuleError: another composite has the name, or the function is no composite.
        """
        if not isinstance(function, Composite):
            raise RuleError(
                f"{self.name}: {function.__name__} is not a composite; declare it with @composite(...), or put it into "
                "a FunctionTable of its own and name that in into="
            )
        return super().define(function, name)


def _origin(function: Any) -> tuple[str, str]:
    """The file of a function or composite (`__main__` in a notebook or script), and its qualified name."""
    function = getattr(function, "body", function)
    module = function.__module__
    return module if module == "__main__" else function.__code__.co_filename, function.__qualname__


composites = CompositeTable("composites")
"""The default target of rules; the catalog fills it."""
