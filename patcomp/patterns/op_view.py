"""`OpView`, through which a procedural rule reads its op, and the examples of rules.

    @lowering("aten.addmm", examples=[example("3xf32", "2x4xf32", "4x3xf32", beta=0.5)])
    def addmm(op, c):
        "beta * self + alpha * (mat1 @ mat2)"
        product = c.broadcasting_batch_matmul(op.mat1, op.mat2)
        ...

The function reads the op's arguments from `op`. It builds the replacement with the second parameter, the authoring
functions of the target dialect. It must read each argument or declare it ignored; otherwise the rewrite is an error,
because an overlooked argument makes a compiler silently wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from patcomp.ir.value import Value, ValueType
from patcomp.ir.xdsl import Attribute, Operation


@dataclass(frozen=True)
class Example:
    """The arguments on which the generated tests run a rule: those of its op, or the captures of its pattern by name.

    A tensor is written as its type, `"2x3xf32"`, with a range of values if it matters, `"4xsi64[0,3]"` (both ends
    included). Every other argument is a Python value.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    op: str | None = None
    """The op to run; by default the first op of the rule."""
    program: Callable[..., Any] | None = None
    """For a rule that matches several ops: a function of the module `torch` and the tensors, to run instead of one
    op."""


def example(*args: Any, op: str | None = None, program: Callable[..., Any] | None = None, **kwargs: Any) -> Example:
    """An `Example` from an operator's arguments: `example("2x3xf32", "3xf32", alpha=2)`."""
    return Example(args, kwargs, op, program)


class Rejected(Exception):  # noqa: N818  (not an error: the rule does not apply, and says why)
    """Raised by `op.reject`: the rule refuses this op."""


class OpView:
    """The op of a procedural rule: its arguments by schema name. The view records which arguments are read.

    The other attributes are `results` (the `ValueType` of each result), `result` (the only or first one), `op_name` and
    `operation`, the op itself.

    A rule that matches more than one op declares the other ops with `cover`, and their results that it replaces with
    `replace`. The lower stage, which does not rewrite in place, cannot have such rules.
    """

    def __init__(
        self,
        operation: Operation,
        arguments: Mapping[str, Any],
        result_types: Sequence[Attribute] | None = None,
        assumed: Collection[str] = (),
    ):
        self.operation, self.assumed = operation, assumed
        self._arguments = dict(arguments)
        self._unread = set(arguments)
        types = result_types if result_types is not None else [result.type for result in operation.results]
        self.results = [ValueType(type_) for type_ in types]
        self.matched = [operation]
        """The ops that the rewrite replaces. New ops get their locations, and those without uses are erased."""
        self.replaced: list[tuple[Value, Value]] = []
        """The replaced results of other ops, each with its new value."""

    def cover(self, *operations: Operation) -> None:
        """Declare further ops that the rewrite replaces. Call this before building."""
        self.matched += [op for op in operations if op not in self.matched]

    def replace(self, old: Value, new: Value) -> None:
        """Declare that the rewrite also replaces a value of another op.

        The driver moves users of the old value behind the new ops. If a new op depends on the old value, the rewrite
        does not happen.
        """
        self.replaced.append((old, new))

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def __getitem__(self, name: str) -> Any:
        """The argument of a name, even if a method of the view has the same name."""
        try:
            value = self._arguments[name]
        except KeyError:
            raise AttributeError(f"{self.op_name} has no argument {name!r}; it has {sorted(self._arguments)}") from None
        self._unread.discard(name)
        return value

    def read_all(self) -> Mapping[str, Any]:
        """Every argument by name, of a rule whose declaration accounts for all of them."""
        self._unread.clear()
        return self._arguments

    @property
    def op_name(self) -> str:
        return self.operation.name

    @property
    def result(self) -> ValueType:
        return self.results[0]

    def ignore(self, *names: str, because: str) -> None:
        """Declare arguments that cannot change the result, with the reason."""
        assert because
        self._unread.difference_update(names)

    def expect(self, condition: bool, reason: str) -> None:
        """Reject the op unless the condition holds."""
        if not condition:
            self.reject(reason)

    def reject(self, reason: str) -> NoReturn:
        """Refuse this op. The reason tells the user what to change."""
        raise Rejected(reason)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of all arguments, in the order of the schema."""
        return tuple(self._arguments)

    def used(self, index: int) -> bool:
        """Whether a result has any use."""
        return bool(self.operation.results[index].uses)

    @property
    def unread(self) -> frozenset[str]:
        """The arguments that the rule has neither read nor declared ignored."""
        return frozenset(self._unread)
