"""Whether a procedural rule computes the same numbers as the op that it replaces.

Each example of the rule, and each variation of it (`proof.variations`), is a program of one op. It is compiled with the
rule in front of the catalog, and compared with eager PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from patcomp.errors import EvaluationError, RuleError, UnsupportedError
from patcomp.ir import aten, coreai
from patcomp.ir.aten import Argument, Schema
from patcomp.ir.builder import Builder
from patcomp.ir.infer import InferenceError
from patcomp.ir.module import IRModule, create_graph
from patcomp.ir.types import TensorType, element_type
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Block, set_name
from patcomp.patterns import Rejected, Rule, RuleSet
from patcomp.patterns.aspects import FurtherResults
from patcomp.patterns.example_types import limits_of, parse_type
from patcomp.proof.trials import InvalidRewriteError, Trial, WrongRuleError, agrees, failure_text, with_rule_in_front
from patcomp.proof.variations import OpDrawing, holds_tensors, variations
from patcomp.rewrites import Options, run_pipeline


def op_drawings(rule: Rule) -> Iterator[OpDrawing]:
    """The calls on which a rule of single ops is tested, without the examples that are programs.

    Raises:
        RuleError: the rule has no example, or its op belongs to a library that is not imported.
    """
    from patcomp.evaluate.eager import is_pointwise

    examples = [item for item in rule.examples if item.program is None]
    if not rule.examples:
        raise RuleError(f"rule {rule.name} ({rule.source}) has no examples= to make tests from")
    for example in examples:
        schema = operator_schema(example.op or rule.ops[0])
        if not is_registered(schema.name):
            raise RuleError(
                f"rule {rule.name} ({rule.source}) cannot be tested here, because PyTorch has no operator "
                f"{schema.name}; import the module that registers it"
            )
        yield from variations(rule, example, schema, broadcasts=is_pointwise(schema.name))


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


@dataclass(frozen=True)
class OperatorCall:
    """A call that eager PyTorch accepts, with inputs and results."""

    arguments: Mapping[str, Any]
    inputs: Mapping[str, Any]
    results: Sequence[Any]
    types: Sequence[TensorType]
    """The types of the results."""


def called(drawing: OpDrawing, seed: int = 0) -> OperatorCall | None:
    """A call on inputs of its types; None where PyTorch refuses it, or the IR has no such type.

    The results have no data if they are not compared.
    """
    from patcomp.evaluate.eager import (
        random_tensor,
        results_without_data,
        run_op,
        static_type_of,
        with_special_values,
    )

    inputs: dict[str, Any] = {}

    def tensor(text: str) -> Any:
        index, limits = len(inputs), limits_of(text)
        value = random_tensor(parse_type(text), limits, seed + index)
        inputs[f"x{index}"] = with_special_values(value, () if limits else drawing.special, seed + index)
        return inputs[f"x{index}"]

    arguments = arguments_of(drawing, tensor)
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


def attempt_op(drawing: OpDrawing, catalog: RuleSet, seed: int = 0) -> Trial | None:
    """A call before and after its rule; None if PyTorch or the rule refuses the call, or nothing is compared.

    The program returns all results of the op. If the rule refuses that, it returns only the first result.

    Args:
        drawing: the call.
        catalog: the rules that compile it, after the rule itself.
        seed: for the inputs.

    Raises:
        InvalidRewriteError: the rule raises an exception, or its result is an invalid program.
    """
    call = called(drawing, seed)
    if call is None:
        return None
    expected = {f"y{index}": value for index, value in enumerate(call.results)}
    for returned in dict.fromkeys([compared_results(drawing, call), 1]):
        source = program_of_call(drawing, call.types, returned)
        named = {name: expected[name] for name in list(expected)[:returned]}
        try:
            trial = rewritten_call(drawing, source, catalog, call.inputs, named)
        except InvalidRewriteError as error:
            if drawing.compared or not is_of_operands(error):
                raise
            return None
        if trial is not None:
            return trial if drawing.compared else None
    return None


def is_of_operands(error: BaseException | None) -> bool:
    """Whether operands that do not fit caused an error. Such a call may be invalid: some shape functions of PyTorch
    check less than its kernels, and a kernel that checks nothing cannot be asked."""
    return error is not None and (isinstance(error, InferenceError) or is_of_operands(error.__cause__))


def source_of_op(drawing: OpDrawing) -> IRModule | None:
    """A call as a program that returns its first result; None if PyTorch refuses the call."""
    call = called(drawing)
    return None if call is None else program_of_call(drawing, call.types, 1)


def rewritten_call(
    drawing: OpDrawing, source: IRModule, catalog: RuleSet, inputs: Mapping[str, Any], expected: Mapping[str, Any]
) -> Trial | None:
    """The program of a call before and after its rule; None if the rule does not take the call, or another stage
    refuses what is left.

    Raises:
        InvalidRewriteError: the rule raises an exception, or its result is an invalid program.
    """
    source_ir, texts_after = source.text(), dict[str, str]()
    rewritten = source.clone()
    rules = with_rule_in_front(catalog, drawing.rule)
    try:
        compilation = run_pipeline(
            rewritten,
            rules,
            Options(strict=True),
            after_stage=lambda stage, module: texts_after.update({stage: module.text()}),
        )
    except UnsupportedError:
        return None
    except Exception as error:  # whatever a rule's function raises
        raise InvalidRewriteError(drawing, failure_text(error), source_ir) from error
    if not any(drawing.rule.name in report.statistics.fired for report in compilation.reports):
        return None
    rewritten_ir = texts_after[drawing.rule.stage]
    return Trial(drawing, source, source_ir, rewritten, rewritten_ir, inputs, expected)


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
        raise RuleError(f"PyTorch has no operator {op}; import the module that registers it") from error


def arguments_of(
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

    arguments = arguments_of(drawing, argument, element_type)
    with Builder(block, blobs=module.blobs):
        coreai.output(*aten.build(drawing.op, types, **arguments)[:returned])
    names = [argument.name_hint or "" for argument in block.args]
    outputs = [f"y{index}" for index in range(returned)]
    module.op.body.block.add_op(create_graph("main", block, argument_names=names, result_names=outputs))
    return module


def check_decomposition(drawing: OpDrawing) -> int:
    """Compare a decomposition with the op that it decomposes, both in eager PyTorch.

    Returns:
        The number of compared calls, 0 or 1. It is 0 if the op or the decomposition refuses the call, or if a
        decomposition of complex numbers gets none.

    Raises:
        WrongRuleError: a result differs, or is missing.
    """
    from patcomp.evaluate.eager import DATA_DEPENDENT, call_of, results_of, without_data

    rule, call = drawing.rule, called(drawing)
    assert rule.function is not None
    if call is None or (rule.of_complex and not is_of_complex(call)):
        return 0
    args, kwargs = call_of(drawing.op, call.arguments)
    try:
        if drawing.compared:
            made = rule.function(*args, **kwargs)
        else:
            with without_data() as stripped:
                made = rule.function(*stripped(args), **stripped(kwargs))
        if made is NotImplemented:
            return 0
        given = results_of(made)
    except Rejected:
        return 0
    except Exception as error:  # whatever a rule's function raises
        if not drawing.compared and isinstance(error, (*DATA_DEPENDENT, RuntimeError)):
            return 0
        raise InvalidRewriteError(drawing, failure_text(error), str(drawing)) from error
    if len(given) != len(call.results):
        message = f"gives {len(given)} results for the {len(call.results)} of {drawing.op}"
        raise InvalidRewriteError(drawing, message, str(drawing))
    for index in range(compared_results(drawing, call) if drawing.compared else 0):
        if call.results[index].dtype != given[index].dtype or not agrees(call.results[index], given[index]):
            raise wrong_result(drawing, call, index, given[index], str(drawing))
    return int(drawing.compared)


def compared_results(drawing: OpDrawing, call: OperatorCall) -> int:
    """How many results of a call are compared: all, or the first one if its rule leaves the further results open."""
    return 1 if isinstance(drawing.rule.unspecified.get(drawing.aspect), FurtherResults) else len(call.results)


def wrong_result(drawing: OpDrawing, call: OperatorCall, index: int, made: Any, source: str) -> WrongRuleError:
    """The error for a result of a decomposition that differs from PyTorch's."""
    found = WrongRuleError(drawing, "computes something else than the op", source)
    found.tensors = {f"input {name}": value for name, value in call.inputs.items()}
    found.tensors |= {f"expected y{index}": call.results[index], f"actual y{index}": made}
    return found


def is_of_complex(call: OperatorCall) -> bool:
    """Whether complex tensors, types or numbers are among the arguments or results of a call."""
    values = [item for value in call.arguments.values() for item in (value if isinstance(value, list) else [value])]
    return any(
        isinstance(value, complex) or getattr(getattr(value, "dtype", value), "is_complex", False)
        for value in [*values, *call.results]
    )
