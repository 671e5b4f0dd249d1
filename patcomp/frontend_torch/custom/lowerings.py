"""Lowerings that the user registers: functions of an FX node that build `coreai` ops.

    @converter.register_torch_lowering("my_lib::scaled_add")
    def lower_scaled_add(values_map, node, loc):
        x, y = get_operands(values_map, node, [0, 1], loc)
        return coreai.broadcasting_add(x, coreai.broadcasting_mul(y, node.args[2], loc=loc), loc=loc)

Import makes such a node a `patcomp.custom`, which no rule takes, and the lower stage calls the function.
"""

from __future__ import annotations

import operator
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import Node

from patcomp.errors import did_you_mean
from patcomp.frontend_torch.fx.nodes import given_arguments, operator_name
from patcomp.ir import aten, coreai
from patcomp.ir.aten_facts import ops_where
from patcomp.ir.custom import Lower
from patcomp.ir.value import Value
from patcomp.ir.xdsl import LocationAttr
from patcomp.patterns import RuleSet
from patcomp.pytorch import OpOverload, overload_name, schema_of_overload

Lowering = Callable[[dict[str, Value], Node, LocationAttr], Any]
"""A function of `(values_map, node, loc)` that returns the node's value, or the list of its values."""

_NAME = re.compile(r"\w+::\w+(\.\w+)?")


class Lowerings(dict[str, Lowering]):
    """The registered lowerings of a converter by name, in the order of registration.

    Args:
        rules: the rules of the converter, which take ops without registered lowerings.
        known: the lowerings registered so far.
    """

    def __init__(self, rules: RuleSet, known: Mapping[str, Lowering] = MappingProxyType({})):
        super().__init__(known)
        self._rules = rules

    def copy(self) -> Lowerings:
        """A copy; later registrations change only one of the two."""
        return Lowerings(self._rules, self)

    def _is_built_in(self, name: str) -> bool:
        """Whether rules or decompositions take an op, or an overload of it."""
        own, ops = aten.op_name(name), (*self._rules.procedural_ops, *self._rules.decompositions())
        return any(op == own or op.startswith(f"{own}.") for op in ops)

    def check(self, name: str, allow_override: bool) -> None:
        """Raise the errors of `register` for a name."""
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            near = f"; write aten::{name.rpartition('.')[2]}" if str(name).startswith(("torch.", "aten.")) else ""
            raise ValueError(
                f"qualified_name must be 'namespace::op_name' or 'namespace::op.overload', got {name!r}{near}"
            )
        if (namespace := name.partition("::")[0]) in ("coreai", "coreaix"):
            raise ValueError(
                f"{name!r}: the namespace {namespace} is Core AI's own, and no operator of PyTorch is in it"
            )
        op = name.removeprefix("aten::").partition(".")[0]
        if namespace == "aten" and not hasattr(torch.ops.aten, op):
            ops = {each.split(".")[1] for each in aten.known_names()}
            raise ValueError(f"PyTorch has no operator {name}{did_you_mean(op, ops)}")
        if name.startswith("higher_order::"):
            raise ValueError(f"{name!r} takes graphs, and a lowering cannot; register lowerings of the ops in them")
        checks = (known.replace(".", "::", 1) for known in ops_where("checks"))
        if name.startswith("aten::sym_") or any(_covers(name, known) for known in checks):
            raise ValueError(f"{name!r} needs no lowering: it computes no tensor, only a size or a check")
        if not allow_override and (self._is_built_in(name) or any(_covers(n, name) or _covers(name, n) for n in self)):
            raise ValueError(f"{name!r} is already registered; set allow_override=True to replace it")

    def register(self, name: str, function: Lowering, allow_override: bool) -> None:
        """Add a lowering of `namespace::op`, for every overload, or of `namespace::op.overload`.

        Raises:
            TypeError: the lowering is not a function.
            ValueError: the name has another form, or the op has a lowering and `allow_override` is false.
        """
        self.check(name, allow_override)
        if not callable(function):
            raise TypeError(f"the lowering of {name} must be a function (values_map, node, loc), got {function!r}")
        for known in [known for known in self if _covers(name, known)]:
            del self[known]
        self[name] = function

    def name_of(self, target: Any) -> str | None:
        """The name under which a lowering for a node's target is registered; None if there is none."""
        if not self or not isinstance(target, OpOverload):
            return None
        op, overload = schema_of_overload(target).name, overload_name(target)
        return next((name for name in (f"{op}.{overload}", op) if name in self), None)

    def of(self, node: Node) -> Lower | None:
        """The registered lowering of a node, or None."""
        name = self.name_of(node.target)
        return None if name is None else partial(_lower, self[name], node)


def node_of(lower: Lower) -> Node:
    """The node that a lowering, which `Lowerings.of` returned, is for."""
    assert isinstance(lower, partial)
    node: Node = lower.args[1]
    return node


def _covers(name: str, other: str) -> bool:
    """Whether a registered name is the name of an op or of all its overloads."""
    return name == other or other.startswith(f"{name}.")


class _ValuesMap(dict[str, Value]):
    """The values of a node's inputs by name; one of several results of a node `split` is also `split#0`."""

    def __init__(self, values: dict[str, Value], node: Node):
        super().__init__(values)
        self._node = node

    def __missing__(self, name: str) -> Value:
        raise KeyError(
            f"{name!r} is no input of the node {self._node.name!r}; its inputs are {list(self)}. A lowering gets no "
            "other values, because the rest of the program is already rewritten"
        )


def _lower(function: Lowering, node: Node, values: dict[str, Value], location: LocationAttr) -> Any:
    several = [source for source in node.all_input_nodes if source.target is operator.getitem]
    numbered = {f"{source.args[0]}#{source.args[1]}": values[source.name] for source in several}
    try:
        return function(_ValuesMap(values | numbered, node), node, location)
    except Exception as error:
        if _is_of_native_compiler(error):
            raise TypeError(
                f"the lowering of {operator_name(node)} (node %{node.name}) passes patcomp's values to coreai-core, "
                f"which fails: {error}; build the ops with patcomp.ir.coreai, for example "
                "coreai.broadcasting_add(x, y, loc=loc)"
            ) from error
        raise


def _is_of_native_compiler(error: BaseException) -> bool:
    """Whether an exception was raised inside of coreai-core."""
    (*_, (frame, _)) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__", "")).startswith("coreai.")


def get_operand(values_map: Mapping[str, Value], node: Node, index: int, loc: LocationAttr | None = None) -> Any:
    """An argument of a node as a value; unchanged if it has no value.

    Args:
        values_map: the first argument of the lowering.
        node: the second one.
        index: position in the op's schema, also for arguments given by keyword or left to their default.
        loc: the third one.

    Returns:
        The value of a tensor or of a size known at run time; a constant for a number, `i1`, `si32` or `f32`; a list for
        a list with nodes in it; None, text and other lists as they are.

    Raises:
        IndexError: the op has no such argument.
    """
    return _operand(values_map, argument_of(node, index), loc)


def get_operands(
    values_map: Mapping[str, Value], node: Node, indices: Sequence[int], loc: LocationAttr | None = None
) -> list[Any]:
    """`get_operand` for several positions."""
    return [get_operand(values_map, node, index, loc) for index in indices]


def argument_of(node: Node, index: int) -> Any:
    """The argument of a node at a position of its op's schema."""
    schema = schema_of_overload(node.target).arguments
    if not 0 <= index < len(schema):
        raise IndexError(f"{node.target} has {len(schema)} arguments, so there is no argument {index}")
    return given_arguments(node).get(schema[index].name, schema[index].default_value)


def _operand(values_map: Mapping[str, Value], argument: Any, loc: LocationAttr | None) -> Any:
    if isinstance(argument, Node):
        return values_map[argument.name]
    if isinstance(argument, bool | int | float):
        return coreai.constant(argument, loc=loc)
    if isinstance(argument, list | tuple) and any(isinstance(item, Node) for item in argument):
        return [_operand(values_map, item, loc) for item in argument]
    return argument
