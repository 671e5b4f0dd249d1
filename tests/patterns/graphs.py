"""Small helpers to build `aten` graphs and rules for the tests of the pattern language."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from patcomp.ir.builder import Builder
from patcomp.ir.locations import Origin, origin_location
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute, Block, Operation, UnrealizedConversionCastOp
from patcomp.patterns import Rewrite, Rule, rule
from patcomp.patterns.match import Match, Matcher

MATRIX = tensor((2, 8), "f32")


def made(*operands: Value, result_types: Any, **attributes: Any) -> Any:
    """A target that stands for anything: an op without meaning that keeps its operands and location."""
    op = UnrealizedConversionCastOp.create(
        operands=[value.ssa for value in operands if value is not None],
        result_types=result_types or [MATRIX],
    )
    CALLS.append(attributes)
    values = [Value(result) for result in Builder.current().insert(op).results]
    return values[0] if len(values) == 1 else values


CALLS: list[dict[str, Any]] = []
"""The attributes of every call of `made`, last one last."""


class Target:
    """A target dialect whose ops are Python functions; each is given `result_types=`."""

    def __init__(self, name: str, *functions: Callable[..., Any]):
        self.name = name
        self.functions = {function.__name__: function for function in functions}

    def names(self) -> Iterable[str]:
        return self.functions

    def spec(self, name: str) -> Any:
        return self.functions.get(name)

    def candidates(self, name: str) -> list[Any]:
        return [self.functions[name]] if name in self.functions else []

    def build(self, name: str, arguments: Any, keywords: Any, types: Any) -> Any:
        return self.functions[name](*arguments, result_types=types, **keywords)


TABLE = Target("test", made)


class Graph:
    """A block under construction: `g.mul(x, y)` adds an op whose results are named after it."""

    def __init__(self, types: Sequence[Attribute] = (MATRIX, MATRIX)):
        self.block = Block(arg_types=types)
        self.inputs = [Value(argument) for argument in self.block.args]
        for name, value in zip("xyzw", self.inputs, strict=False):
            value.ssa.name_hint = name

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def build(
            *arguments: Any, types: Sequence[Attribute] = (MATRIX,), hint: str | None = None, **keywords: Any
        ) -> Any:
            count = sum(1 for _ in self.block.ops)
            location = origin_location(Origin(f"{hint or name}_{count}", "layer", "model.py", 10 + count))
            with Builder(self.block, location=location):
                built = aten_namespace.build(name, arguments, keywords, list(types))
            for value in built if isinstance(built, list) else [built]:
                value.ssa.name_hint = hint or name.strip("_").partition(".")[0]
            return built

        return build

    def op(self, name: str, *arguments: Any, **keywords: Any) -> Any:
        """An op by its overload name."""
        return self.__getattr__(name)(*arguments, **keywords)

    def use(self, *values: Value) -> None:
        """A use of values by an op that no rule knows."""
        self.block.add_op(UnrealizedConversionCastOp.create(operands=[v.ssa for v in values], result_types=[]))

    @property
    def names(self) -> list[str]:
        """The names of the ops in order."""
        return [op.name for op in self.block.ops]


def match(rule_: Rule, value: Value | Operation) -> Match | None:
    """The match of a rule at the op that makes a value."""
    op = value.ssa.owner if isinstance(value, Value) else value
    assert isinstance(op, Operation)
    return Matcher(rule_.graph, op).run()


def declare(function: Callable[..., Rewrite], **options: Any) -> Rule:
    """A rule that builds `made`."""
    return rule(into=TABLE, **options)(function)
