"""Composites from PyTorch functions: the function is the pattern, the declaration, the body and the tests.

    def my_norm(x, w, eps):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w

    norm = composite("my_norm", reference=my_norm, example={"x": "2x3x8xf32", "w": "8xf32"}, attributes={"eps": 1e-5})

The function is traced in the same way as models are converted, and its ops become the pattern of a rule. Axes, sizes
and other values that depend on shapes are captured. When the pattern matches, the function is traced again for the
shapes and types at hand, and the rule applies only if the traced ops equal the matched ops. So the rule works for any
rank and size, and never matches other computations. The matched ops become the composite's body.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from patcomp.errors import RuleError
from patcomp.frontend_torch.composite_functions.recognition import Recognition, outlined_ops
from patcomp.frontend_torch.composite_functions.sources import Source, sources
from patcomp.frontend_torch.composite_functions.traces import Constant, Input, LiteralPlace, Result, Tracer
from patcomp.frontend_torch.fx.dtypes import type_of
from patcomp.ir.composite import Composite
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.types import TensorType, element_name, shape_of
from patcomp.patterns import Attr, Capture, CompositeTable, Const, Example, Rule, Stage, check, compute
from patcomp.patterns.example_types import parse_type
from patcomp.patterns.language import OpNode, PatternNode, SourceNamespace
from patcomp.patterns.pattern import Pattern
from patcomp.patterns.targets import OpCall

InputTypes = Mapping[str, str | torch.Tensor]
"""The type or an example tensor of each input."""


def composite(
    name: str,
    *,
    reference: Callable[..., Any],
    example: InputTypes | Sequence[InputTypes],
    attributes: Mapping[str, int | float] | None = None,
    inputs: Sequence[str] | None = None,
    output: str = "output",
    priority: int = 1,
) -> tuple[Rule, ...]:
    """Declare a composite by a PyTorch function, and the rules that recover it from models.

    Args:
        name: the composite's name.
        reference: a function of tensors and numbers that returns one tensor.
        example: a type (`"2x3x8xf32"`, of indices `"2x3xsi64[0,9]"`) or tensor for each parameter that is an input.
            A function that has the same ops for any rank (elementwise ops, reductions) needs one example, any other
            function a list with one for each rank.
        attributes: an example value for each parameter that is an attribute: a number that a model may choose.
            Parameters that are neither keep their defaults.
        inputs: the declared names of the inputs, by default those of the parameters.
        output: the declared name of the output.
        priority: rules of higher priority go first; patcomp's own have 0.

    Returns:
        The rules, to be kept in a variable of the catalog's module. There are several if the function has other ops in
        half precision, or if PyTorch decomposes some of its ops.

    Raises:
        RuleError: an argument has the wrong kind; the function cannot be traced (for example, it branches on values),
            writes to an argument, returns several tensors, has weights of its own or does not use a parameter; or the
            value of an attribute cannot be found in the ops.
    """
    frame = sys._getframe(1)
    file = frame.f_code.co_filename
    place = f"{'/'.join(file.rsplit('/', 2)[-2:])}:{frame.f_lineno}"
    try:
        if not isinstance(name, str) or not name or not callable(reference):
            raise RuleError("composite() needs a name and a function, reference=")
        listed = [example] if isinstance(example, Mapping) else list(example or ())
        if not listed or not all(isinstance(item, Mapping) for item in listed):
            raise RuleError('example= must map each input to a type, {"x": "2x3x8xf32"}, or be a list of such mappings')
        if type(priority) not in (int, float):
            raise RuleError(f"the priority must be a number, got {priority!r}")
        examples = [
            _ordered(reference, {key: _type(key, given) for key, given in item.items()}, attributes or {})
            for item in listed
        ]
        ordered = examples[0]
        if any(list(item) != list(ordered) for item in examples):
            raise RuleError("the examples have different inputs")
        doc = inspect.getdoc(getattr(reference, "func", reference)) or ""  # of a partial, that of its function
        made = Composite(name, tuple(inputs or ordered), tuple(attributes or ()), (output,), outlined_ops, doc)
        if len(made.inputs) != len(ordered):
            raise RuleError(f"inputs= names {len(made.inputs)} inputs, but example= has {len(ordered)}")
        table = CompositeTable(name)
        table.define(made)
        rules: dict[str, Rule] = {}
        limits = {key: _limits(given) for item in [*reversed(listed)] for key, given in item.items()}
        for source in sources(Tracer(reference), examples, dict(attributes or {})):
            spelled = _unused(name + " in half precision" * source.is_half, rules)
            rules[spelled] = replace(_rule(source, made, table, spelled, place, priority, limits), file=file)
        return tuple(rules.values())
    except RuleError as error:
        raise RuleError(f"composite {name} ({place}): {error}") from error.__cause__


def _type(name: str, given: str | torch.Tensor) -> TensorType:
    try:
        type_ = type_of(given) if isinstance(given, torch.Tensor) else parse_type(given)
    except (TypeError, ValueError) as error:
        raise RuleError(f"the example of {name} must be a type such as '2x3x8xf32' or a tensor: {error}") from None
    assert isinstance(type_, TensorType)
    if None in shape_of(type_):
        raise RuleError(f"the example of {name} has a dynamic dimension; give a number, the rule matches any size")
    return type_


def _limits(given: str | torch.Tensor) -> str:
    """The range of values in the text of an example's type, `"[0,9]"`; empty if there is none."""
    return "" if isinstance(given, torch.Tensor) else "".join(given.partition("[")[1:])


def _ordered(
    reference: Callable[..., Any], types: Mapping[str, TensorType], attributes: Mapping[str, Any]
) -> dict[str, TensorType]:
    """The inputs in the order of the function's parameters.

    Raises:
        RuleError: the example and attributes do not match the function's parameters.
    """
    try:
        parameters = inspect.signature(reference).parameters
    except ValueError:
        raise RuleError("the reference must be a Python function, whose parameters have names") from None
    if unknown := [name for name in (*types, *attributes) if name not in parameters]:
        raise RuleError(f"the reference has no parameter {', '.join(unknown)}; it has {', '.join(parameters)}")
    if both := set(types) & set(attributes):
        raise RuleError(f"{', '.join(sorted(both))} is both in example= and in attributes=")
    for name, parameter in parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise RuleError(f"the parameter {parameter} of the reference cannot be passed by name")
        if parameter.default is parameter.empty and name not in types and name not in attributes:
            raise RuleError(f"the reference needs {name}: give a type in example= or a number in attributes=")
    for name, value in attributes.items():
        if type(value) not in (int, float):
            raise RuleError(
                f"the attribute {name} must be a number, got {value!r}; declare a composite for each choice, "
                f"functools.partial(reference, {name}={value!r})"
            )
    return {name: types[name] for name in parameters if name in types}


# ---- the rule -------------------------------------------------------------------------------------


def _rule(
    source: Source,
    made: Composite,
    table: CompositeTable,
    name: str,
    place: str,
    priority: int,
    limits: Mapping[str, str],
) -> Rule:
    """The rule that finds the ops of a function and makes the composite."""
    namespace = SourceNamespace(aten_namespace)
    captures: dict[str, Any] = {name: Capture(name, namespace) for name in source.inputs}
    example: dict[str, Any] = {name: _text(type_) + limits[name] for name, type_ in source.inputs.items()}
    literals, bound = source.trace.literals(), dict[LiteralPlace, Any]()
    for spot in sorted(source.varying, key=str):
        literal = literals[spot]
        stem = next((key for key, (at, item) in source.places.items() if at == spot and item is None), spot[1])
        key = _unused(stem, captures)
        captures[key] = bound[spot] = Const(key, namespace) if isinstance(literal, Constant) else Attr(key)
        example[key] = literal.literal if isinstance(literal, Constant) else literal
    nodes: list[OpNode] = []
    for number, op in enumerate(source.trace.ops):
        arguments = [
            _pattern(value, (number, name, None), captures, nodes, bound) for name, value in op.arguments.items()
        ]
        nodes.append(namespace.op(op.name, *arguments))
    recognition = Recognition(source, made.name, {name: captures[name] for name in source.inputs}, bound)
    keywords = {name: recognition.attribute(name) for name in source.attributes}
    target = OpCall(
        table, made.name, [captures[name] for name in source.inputs],
        {**keywords, "matched": compute("the matched ops", lambda match: match),
         "captured": list(source.inputs)},
    )  # fmt: skip
    where = (
        check(f"it is not inside of {made.name}", recognition.is_outside),
        check(f"the ops are those of {made.name} for these types", recognition.agrees),
    )
    pattern = Pattern.declared(aten_namespace, _node(source.trace.result, nodes), captures, where)
    doc = made.doc or f"what the reference of {made.name} computes"
    return Rule(
        name, Stage.RECOVER, pattern.root_ops, pattern, target, examples=(Example((), example),), doc=doc,
        source=place, priority=priority, size=pattern.size,
    )  # fmt: skip


def _text(type_: TensorType) -> str:
    return "x".join([*map(str, shape_of(type_)), element_name(type_.element_type)])


def _unused(stem: str, names: Mapping[str, Any]) -> str:
    number, name = 1, stem
    while name in names:
        number += 1
        name = f"{stem}_{number}"
    return name


def _pattern(
    value: Any, place: LiteralPlace, captures: Mapping[str, Any], nodes: list[OpNode], bound: Mapping[Any, Any]
) -> Any:
    """An argument as a pattern."""
    if place in bound:
        return bound[place]
    if isinstance(value, Input):
        return captures[value.name]
    if isinstance(value, Result):
        return _node(value, nodes)
    if isinstance(value, Constant):
        return value.literal
    if isinstance(value, list):
        return [_pattern(item, (*place[:2], index), captures, nodes, bound) for index, item in enumerate(value)]
    return value


def _node(result: Result, nodes: list[OpNode]) -> PatternNode:
    node = nodes[result.op]
    return node if node.spec.results == 1 else node[result.index]
