"""Calls of one op of PyTorch: the examples of a rule of single ops, and what they are as programs and on numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from patcomp.errors import EvaluationError, RuleError
from patcomp.ir import aten, coreai
from patcomp.ir.aten import Argument, Schema
from patcomp.ir.builder import Builder
from patcomp.ir.infer import InferenceError
from patcomp.ir.module import IRModule, create_graph
from patcomp.ir.types import TensorType, element_type
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Block, set_name
from patcomp.patterns import Rule
from patcomp.patterns.aspects import FurtherResults
from patcomp.patterns.example_types import limits_of, parse_type
from patcomp_lab.proof.drawing import AXES, sizes_in


@dataclass(frozen=True)
class OpDrawing:
    """One call of an op that a procedural rule starts from."""

    rule: Rule
    op: str
    example: Mapping[str, Any]
    """Its arguments by name; tensors are types."""
    aspect: str
    """What differs from the rule's own example."""
    compared: bool = True
    """Whether the numbers are compared; otherwise the rule only builds its replacement."""
    runs: Sequence[Mapping[str, Any]] = ()
    """Other types of the tensors, by argument, with which the same program is run, too. A size that differs from the
    example's is open in the program."""

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value}" for name, value in self.example.items())
        if self.runs:
            given += f", with open sizes, also as {', '.join(map(str, self.runs[0].values()))}"
        return f"{self.aspect}, {self.op}({given})"


def examples_of_op(rule: Rule) -> list[OpDrawing]:
    """The calls that are examples of a rule of single ops, without the examples that are programs.

    Raises:
        RuleError: the rule has no example, or its op belongs to a library that is not imported.
    """
    if not rule.examples:
        raise RuleError(f"rule {rule.name} ({rule.source}) has no examples= to make tests from")
    found = []
    for example in rule.examples:
        if example.program is not None:
            continue
        schema = operator_schema(example.op or rule.ops[0])
        if not is_registered(schema.name):
            raise RuleError(
                f"rule {rule.name} ({rule.source}) cannot be tested here, because PyTorch has no operator "
                f"{schema.name}; import the module that registers it"
            )
        given = dict(zip((item.name for item in schema.arguments), example.args, strict=False)) | dict(example.kwargs)
        found.append(OpDrawing(rule, schema.name, given, "the example"))
    return found


def is_registered(op: str) -> bool:
    """Whether PyTorch has an op. Those of other libraries are registered when the library is imported."""
    from patcomp.evaluate.eager import overload_of

    try:
        overload_of(op)
    except AttributeError:
        return False
    return True


def of_absent_library(rule: Rule) -> bool:
    """Whether a rule lowers ops of a library that is not imported."""
    return rule.stage == "lower" and not rule.is_declarative and not all(map(is_registered, rule.ops))


def operator_schema(op: str) -> Schema:
    """The schema of an op of PyTorch, or of an op that a library registered.

    Raises:
        RuleError: there is no such op.
    """
    from patcomp.evaluate.eager import overload_of
    from patcomp.pytorch import schema_of_overload

    op = op.replace("::", ".")
    known = aten.schema_of(op)
    if known is not None:
        return known
    try:
        return aten.define(str(schema_of_overload(overload_of(op))))
    except (AttributeError, ValueError) as error:
        is_function = op.startswith("torch.")
        advice = f"write aten.{op.rpartition('.')[2]}" if is_function else "import the module that registers it"
        raise RuleError(f"PyTorch has no operator {op}; {advice}") from error


@dataclass(frozen=True)
class OperatorCall:
    """A call that eager PyTorch accepts, with inputs and results."""

    arguments: Mapping[str, Any]
    inputs: Mapping[str, Any]
    results: Sequence[Any]
    types: Sequence[TensorType]
    """The types of the results."""


def called(drawing: OpDrawing) -> OperatorCall | None:
    """A call on inputs of its types; None where PyTorch refuses it, or the IR has no such type.

    The results have no data if they are not compared.
    """
    from patcomp.evaluate.eager import (
        random_tensor,
        results_without_data,
        run_op,
        static_type_of,
    )

    inputs: dict[str, Any] = {}

    def tensor(text: str) -> Any:
        index = len(inputs)
        inputs[f"x{index}"] = random_tensor(parse_type(text), limits_of(text), index)
        return inputs[f"x{index}"]

    arguments = call_arguments_of(drawing, tensor)
    try:
        results = results_without_data(drawing.op, arguments)
        if drawing.compared:
            results = run_op(drawing.op, arguments)
        if results is None:
            return None
        types = [static_type_of(result) for result in results]
    except EvaluationError:
        return None
    return OperatorCall(arguments, inputs, results, types)


def call_arguments_of(
    drawing: OpDrawing, tensor: Callable[[str], Any], element: Callable[[str], Any] | None = None
) -> dict[str, Any]:
    """The arguments of a call by name.

    Args:
        tensor: makes a tensor of its type.
        element: makes an element type of its name; by default PyTorch's dtype.
    """
    from patcomp.evaluate.element_types import TORCH_DTYPES

    schema, typed = operator_schema(drawing.op), element or TORCH_DTYPES.__getitem__

    def mapped(value: Any, argument: Argument) -> Any:
        if isinstance(value, str) and argument.type.startswith("ScalarType"):
            return typed(value)
        if not holds_tensors(argument):
            return value
        if isinstance(value, list | tuple):
            return [mapped(item, argument) for item in value]
        return tensor(value) if isinstance(value, str) else value

    return {name: mapped(value, schema[name]) for name, value in drawing.example.items()}


def program_of_call(drawing: OpDrawing, types: Sequence[TensorType], returned: int) -> IRModule:
    """A call as a program that returns its first results.

    Args:
        drawing: the call, whose tensors may have open sizes.
        types: the types of the op's results.
        returned: how many of them the program returns.
    """
    module, block = IRModule(), Block()

    def argument(text: str) -> Value:
        made = block.insert_arg(parse_type(text), len(block.args))
        set_name(made, f"x{made.index}")
        return Value(made)

    arguments = call_arguments_of(drawing, argument, element_type)
    with Builder(block, blobs=module.blobs):
        coreai.output(*aten.build(drawing.op, types, **arguments)[:returned])
    names = [argument.name_hint or "" for argument in block.args]
    outputs = [f"y{index}" for index in range(returned)]
    module.op.body.block.add_op(create_graph("main", block, argument_names=names, result_names=outputs))
    return module


def compared_results(drawing: OpDrawing, call: OperatorCall) -> int:
    """How many results of a call are compared: all, or the first one if its rule leaves the further results open."""
    return 1 if isinstance(drawing.rule.unspecified.get(drawing.aspect), FurtherResults) else len(call.results)


def is_of_operands(error: BaseException | None) -> bool:
    """Whether operands that do not fit caused an error. Such a call may be invalid: some shape functions of PyTorch
    check less than its kernels, and a kernel that checks nothing cannot be asked."""
    return error is not None and (isinstance(error, InferenceError) or is_of_operands(error.__cause__))


def is_of_complex(call: OperatorCall) -> bool:
    """Whether complex tensors, types or numbers are among the arguments or results of a call."""
    values = [item for value in call.arguments.values() for item in (value if isinstance(value, list) else [value])]
    return any(
        isinstance(value, complex) or getattr(getattr(value, "dtype", value), "is_complex", False)
        for value in [*values, *call.results]
    )


def axis_arguments(schema: Schema) -> set[str]:
    """The names of the arguments that are axes."""
    return {argument.name for argument in schema.arguments if argument.name.rstrip("0123456789s") in AXES}


def has_one_tensor(given: Mapping[str, Any], schema: Schema) -> bool:
    """Whether all sizes in a call are those of one tensor."""
    tensors = [name for name, value in given.items() if schema[name].type == "Tensor" and tensor_types_in(value)]
    return not list(sizes_in({name: value for name, value in given.items() if name not in tensors[:1]}, set(AXES)))


def holds_tensors(argument: Argument) -> bool:
    """Whether an argument is a tensor, or a list of them."""
    return argument.type.startswith("Tensor")


def tensor_types_in(value: Any) -> Sequence[str]:
    """The tensor types in an argument that holds tensors."""
    items = value if isinstance(value, list | tuple) else [value]
    return [item for item in items if isinstance(item, str)]
