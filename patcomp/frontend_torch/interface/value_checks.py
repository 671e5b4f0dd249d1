"""The checks of values that export leaves in a program: `torch._check` of `.item()`, `torch._assert_async`.

They compute no output, so the IR does not have them. `program.run` computes them by PyTorch.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Interpreter, Node

from patcomp.errors import Problem
from patcomp.frontend_torch.fx.nodes import given_arguments, is_assertion, operator_name, reads_number
from patcomp.frontend_torch.fx.provenance import nested_graph
from patcomp.frontend_torch.fx.sizes import known
from patcomp.frontend_torch.interface.names import Names
from patcomp.frontend_torch.interface.signature import Signature
from patcomp.interface.checks import ValueChecks
from patcomp.ir.aten_facts import facts_of
from patcomp.pytorch import bound_sympy, free_unbacked_symbols


def value_checks(program: ExportedProgram, signature: Signature, names: Names) -> ValueChecks | None:
    """The checks of values of a program without writes in place; None if it has none that could fail.

    Checks of sizes that follow from the inputs' are guards (`patcomp.frontend_torch.interface.guards`).
    """
    own = names.of_arguments(signature)
    called = {**own, **{name: path for name, (path, _) in signature.constants.items()}}
    ranges = program.range_constraints
    texts = {node: text for node in program.graph.nodes for text in _texts(node, called, ranges)}
    if not texts:
        return None
    constants = {name: weight for name, (_, weight) in signature.constants.items()} | signature.fixed_inputs
    graph, copies = _slice(program.graph, list(texts))
    module, checked = GraphModule(program.graph_module, graph), {copies[node]: text for node, text in texts.items()}
    needed = {node.name for node in graph.find_nodes(op="placeholder")}
    held = {name: value for name, value in constants.items() if name in needed}

    def broken(values: Mapping[str, Any]) -> str | None:
        given = held | {name: values[own[name]] for name in needed if name in own}
        try:
            with torch.no_grad():
                _Checks(module, checked, given).run()
        except _BrokenError as error:
            return str(error)
        return None

    return ValueChecks(tuple(dict.fromkeys(texts.values())), broken)


def warning(checks: ValueChecks | None) -> Iterator[Problem]:
    """The warning that an asset does not check values."""
    if checks is not None:
        more = f" and {len(checks.texts) - _SHOWN} more" if len(checks.texts) > _SHOWN else ""
        yield Problem(
            f"the model checks that {'; '.join(checks.texts[:_SHOWN])}{more}; program.run checks this, but an asset "
            "cannot, and computes numbers where the model raises an error",
            advice="check the inputs before calling the asset",
        )


_SHOWN = 4


# ---- which checks ----------------------------------------------------------------------------------


def _texts(node: Node, called: Mapping[str, str], ranges: Mapping[Any, Any]) -> Iterator[str]:
    """What a node checks, in words: the condition of an assertion on values, if it can fail, or the checks of a nested
    graph.

    Args:
        called: the names of the inputs and weights, by those of their placeholders.
        ranges: what export knows of sizes.
    """
    if any(
        _has_checks(inside, ranges) for source in node.all_input_nodes if (inside := nested_graph(source)) is not None
    ):
        yield f"the checks inside of {node.name} hold"
    if not is_assertion(node):
        return
    target, arguments = operator_name(node), node.args
    is_of_values = (
        target == "aten._assert_scalar" and _is_of_values(arguments[0]) and not _is_trivial(arguments[0], ranges)
    )
    if target.startswith("aten._assert_async") or is_of_values:
        yield _with_message(_text(arguments[0], called), arguments[1:])
    elif target.startswith("aten.sym_constrain_range") and _is_of_values(arguments[0]):
        low, high = _limits(target, node.kwargs)
        size = _text(arguments[0], called)
        limits = f"{'' if low is None else f'{low} <= '}{size}{'' if high is None else f' <= {high}'}"
        if limits != size and not (high is None and low == 0 and _is_size(arguments[0])):
            yield limits


def _limits(target: str, keywords: Mapping[str, Any]) -> tuple[Any, Any]:
    """The smallest and the largest value that `aten.sym_constrain_range` or its form for sizes allows; None if any."""
    low = keywords.get("min")
    return 0 if low is None and target.endswith("for_size") else low, keywords.get("max")


def _has_checks(graph: GraphModule, ranges: Mapping[Any, Any]) -> bool:
    """Whether a branch or a loop body has checks of values."""
    return any(True for node in graph.graph.nodes for _ in _texts(node, {}, ranges))


def _is_of_values(condition: Any) -> bool:
    """Whether a condition is one on values, not only on the sizes of inputs. Export may have assumed that the condition
    is true; then its recorded value does not show how it is computed."""
    stack = [condition]
    while stack:
        node = stack.pop()
        if not isinstance(node, Node):
            continue
        if reads_number(node) or torch.Tag.dynamic_output_shape in getattr(node.target, "tags", ()):
            return True
        size: Any = known(node.meta.get("val")) if _is_size(node) else None
        if not hasattr(size, "node"):  # also a size that export has found to be a number: by a check, or of the inputs
            stack += node.all_input_nodes
        elif free_unbacked_symbols(size.node.expr):
            return True
    return False


def _is_size(node: Any) -> bool:
    return operator_name(node) == "aten.sym_size.int"


def _is_trivial(condition: Any, ranges: Mapping[Any, Any]) -> bool:
    """Whether a condition is about the number of elements that were selected, and holds for every selection."""
    if not isinstance(condition, Node) or condition.target not in (operator.ge, operator.le):
        return False
    size, limit = condition.args[0], condition.args[1]
    if not isinstance(size, Node) or not isinstance(limit, int):
        return False
    if size.target is torch.sym_ite:  # a decomposition checks the item of a bool like a size
        return all(condition.target(each, limit) for each in size.args[1:] if isinstance(each, int))  # type: ignore[operator]
    if not _is_size(size):
        return False
    selected = size.args[0]
    assert isinstance(selected, Node)
    while selected.target is operator.getitem or operator_name(selected) == "aten.unbind.int":  # of several results
        selected = selected.all_input_nodes[0]
    if condition.target is operator.ge:
        least = given_arguments(selected).get("minlength", 0) if operator_name(selected) == "aten.bincount" else 0
        return limit <= least
    if not facts_of(operator_name(selected)).selects:
        return False
    sources = [source.meta["val"] for source in selected.all_input_nodes]
    return any(
        limit >= math.prod(_most(size, ranges) for size in source.shape)
        for source in sources
        if isinstance(source, torch.Tensor)
    )


def _most(size: Any, ranges: Mapping[Any, Any]) -> float:
    """The largest value of a size, as far as export knows it."""
    value = known(size)
    if not hasattr(value, "node"):
        return int(value)
    most = (
        ranges[value.node.expr].upper if value.node.expr in ranges else bound_sympy(value.node.expr, {**ranges}).upper
    )
    return int(most) if getattr(most, "is_Integer", False) else math.inf


def _with_message(text: str, arguments: tuple[Any, ...]) -> str:
    """A condition with the user's message about it."""
    message = next((each for each in arguments if isinstance(each, str)), "")
    return text if not message or message.startswith("Runtime assertion failed") else f"{text} ({message})"


_INFIX = {
    "ge": ">=", "le": "<=", "gt": ">", "lt": "<", "eq": "==", "ne": "!=", "add": "+", "sub": "-", "mul": "*",
    "floordiv": "//", "mod": "%", "and_": "and", "or_": "or", "__and__": "and", "__or__": "or", "logical_and": "and",
    "logical_or": "or",
}  # fmt: skip
_DEPTH = 4


def _text(value: Any, called: Mapping[str, str], depth: int = 0) -> str:
    """A value of a graph in terms of its inputs."""
    if not isinstance(value, Node):
        return str(value)
    if value.op == "placeholder":
        return called.get(value.name, value.name)
    if depth > _DEPTH or value.op != "call_function":
        return value.name
    name = operator_name(value).removeprefix("aten.").partition(".")[0]
    args = [arg for arg in value.args if isinstance(arg, Node | int | float | bool)]
    if (every := _of_all(value)) is not None:  # as PyTorch's table writes `all`
        return f"all({_text(every, called, depth + 1)})"

    def inner(argument: Any) -> str:
        text = _text(argument, called, depth + 1)
        return f"({text})" if name in _INFIX and " " in text else text

    if name in ("item", "_local_scalar_dense", "sym_ite", "sym_float", "_is_all_true") and args:
        return f"all({inner(args[0])})" if name == "_is_all_true" else inner(args[0])
    if name == "sym_size" and len(args) == 2:
        return f"{inner(args[0])}.shape[{args[1]}]"
    if name in _INFIX and len(args) == 2:
        left, right = args
        if isinstance(left, Node) and left.target is torch.sym_ite and right == 1:
            return _text(left, called, depth)
        return f"{inner(left)} {_INFIX[name]} {inner(right)}"
    return f"{name}({', '.join(map(inner, args))})"


def _of_all(value: Node) -> Node | None:
    """`x` of `not any(not x)`."""
    for name in ("logical_not", "any", "logical_not"):
        if operator_name(value).split(".")[1:2] != [name] or not isinstance(value.args[0], Node):
            return None
        value = value.args[0]
    return value


# ---- computing them --------------------------------------------------------------------------------


def _slice(graph: Graph, wanted: list[Node]) -> tuple[Graph, dict[Node, Node]]:
    """A graph of some nodes and what they are computed from, and its node for each of theirs."""
    needed, stack = set(wanted), list(wanted)
    while stack:
        new = set(stack.pop().all_input_nodes) - needed
        needed |= new
        stack += new
    made, copies = Graph(), dict[Node, Node]()
    for node in graph.nodes:
        if node in needed:
            copies[node] = made.node_copy(node, copies.__getitem__)
            copies[node].name = node.name
    made.output(())
    return made, copies


class _BrokenError(Exception):
    """A condition does not hold."""


class _Checks(Interpreter):
    """Runs the slice of a program that its checks need. `run` raises `_BrokenError` for one that does not hold."""

    def __init__(self, module: GraphModule, texts: Mapping[Node, str], given: Mapping[str, Any]):
        super().__init__(module)
        self.texts, self.given = texts, given
        self.extra_traceback = False

    def run_node(self, n: Node) -> Any:
        if n.op == "placeholder":
            return self._given(n)
        text = self.texts.get(n)
        if text is None:
            return None if is_assertion(n) else super().run_node(n)
        if not is_assertion(n):  # a branch or loop with checks inside
            try:
                return super().run_node(n)
            except RuntimeError as error:
                raise _BrokenError(f"{text}: {str(error).splitlines()[0]}") from None
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if not _holds(operator_name(n), args, kwargs):
            raise _BrokenError(text)
        return None

    def _given(self, node: Node) -> Any:
        value, recorded = self.given.get(node.name), node.meta.get("val")
        if isinstance(recorded, torch.Tensor):
            return None if value is None else torch.as_tensor(value).to(recorded.dtype)
        return value.item() if isinstance(value, torch.Tensor) else value


def _holds(target: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    if not target.startswith("aten.sym_constrain_range"):
        return bool(args[0])
    low, high = _limits(target, kwargs)
    return (low is None or args[0] >= low) and (high is None or args[0] <= high)
