"""What a procedural rule reads an op through, and the examples of rules.

    @lowering("aten.addmm", examples=[example("3xf32", "2x4xf32", "4x3xf32", beta=0.5)])
    def addmm(op, c):
        "beta * self + alpha * (mat1 @ mat2)"
        product = c.broadcasting_batch_matmul(op.mat1, op.mat2)
        ...

The function reads the op's arguments from `op` and builds the replacement with the second parameter, the authoring
functions of the target dialect. An argument that it neither reads nor declares ignored makes the rewrite an error: that
is how a compiler comes to be silently wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from patcomp.ir.value import Value, ValueType
from patcomp.ir.xdsl import Attribute, Operation


@dataclass(frozen=True)
class Example:
    """Arguments on which the generated tests run a rule: those of its op, or the captures of its pattern by name.

    Tensors are written as types, `"2x3xf32"`, with a range of values where it matters, `"4xsi64[0,3]"`
    (ends included); all else is a Python value.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    op: str | None = None
    """The op to run, where the rule takes several; the first one otherwise."""
    program: Callable[..., Any] | None = None
    """A function of the module `torch` and the tensors, to run in place of one op where a rule takes several."""


def example(*args: Any, op: str | None = None, program: Callable[..., Any] | None = None, **kwargs: Any) -> Example:
    """An `Example` from an operator's arguments: `example("2x3xf32", "3xf32", alpha=2)`."""
    return Example(args, kwargs, op, program)


class Rejected(Exception):  # noqa: N818  (not an error: the rule does not apply, and says why)
    """Raised by `op.reject`: the rule does not take this op."""


class OpView:
    """An op as a procedural rule sees it: arguments by schema name, each read recorded.

    Attributes that are not arguments: `results` (the `ValueType` of each result), `result` (the only or
    first one), `name` of the op is `op_name`, and `operation`, the op itself.

    A rule that matches more than its op names the other ops with `cover`, and the results of theirs that
    it replaces with `replace`. Only the stages that rewrite in place (all but lower) can have such rules.
    """

    def __init__(
        self, operation: Operation, arguments: Mapping[str, Any], result_types: Sequence[Attribute] | None = None
    ):
        self.operation = operation
        self._arguments = dict(arguments)
        self._unread = set(arguments)
        types = result_types if result_types is not None else [result.type for result in operation.results]
        self.results = [ValueType(type_) for type_ in types]
        self.matched = [operation]
        """The ops that the rewrite stands for: locations are fused from theirs, and dead ones are erased."""
        self.replaced: list[tuple[Value, Value]] = []
        """Results of other ops, and what takes their place."""

    def cover(self, *operations: Operation) -> None:
        """Declares further ops that the rewrite stands for, before anything is built."""
        self.matched += [op for op in operations if op not in self.matched]

    def replace(self, old: Value, new: Value) -> None:
        """Declares that a value of another op is replaced, besides the results of this one.

        Its users may stand before what was built; the driver moves them behind it. Where something of what was
        built depends on the old value, the rewrite does not happen.
        """
        self.replaced.append((old, new))

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def __getitem__(self, name: str) -> Any:
        """The argument of a name, also where the name collides with a method of `OpView`."""
        try:
            value = self._arguments[name]
        except KeyError:
            raise AttributeError(f"{self.op_name} has no argument {name!r}; it has {sorted(self._arguments)}") from None
        self._unread.discard(name)
        return value

    @property
    def op_name(self) -> str:
        return self.operation.name

    @property
    def result(self) -> ValueType:
        return self.results[0]

    def ignore(self, *names: str, because: str) -> None:
        """Declares arguments that cannot change the result, with the reason."""
        assert because
        self._unread.difference_update(names)

    def expect(self, condition: bool, reason: str) -> None:
        """Rejects the op unless the condition holds."""
        if not condition:
            self.reject(reason)

    def reject(self, reason: str) -> NoReturn:
        """Says that the rule does not take this op, and why, in words a user can act on."""
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
