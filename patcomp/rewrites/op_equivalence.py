"""Whether a procedural rule computes the same as the op it takes, in numbers.

Each example of the rule, and variations of it (`patterns.variations`), is a program of one op; it is compiled with
the rule in front of the catalog, and run against eager PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from patcomp.errors import EvaluationError, RuleError, UnsupportedError
from patcomp.ir import aten, coreai
from patcomp.ir.aten import Argument, Schema
from patcomp.ir.builder import Builder
from patcomp.ir.module import IRModule, create_graph
from patcomp.ir.types import TensorType, element_name, element_type
from patcomp.ir.value import Value, set_name
from patcomp.ir.xdsl import Block
from patcomp.patterns import Decomposition, OpRule, Rejected, RuleSet
from patcomp.patterns.drawing import limits_of
from patcomp.patterns.selftest import parse_type
from patcomp.patterns.variations import OpDrawing, holds_tensors, variations
from patcomp.rewrites.pipeline import run_pipeline
from patcomp.rewrites.trials import TOLERANCES, InvalidRewriteError, Trial, WrongRuleError, failure_text, tolerance_of


def op_drawings(rule: OpRule | Decomposition) -> Iterator[OpDrawing]:
    """The calls on which a rule of single ops is tested; examples that are programs are not among them.

    Raises:
        RuleError: it has no example.
    """
    from patcomp.ir.evaluate.eager import is_pointwise

    examples = [item for item in rule.examples if item.program is None]
    if not rule.examples:
        raise RuleError(f"rule {rule.name} ({rule.source}) has no examples= to make tests from")
    for example in examples:
        schema = schema_of(example.op or rule.ops[0])
        yield from variations(rule, example, schema, broadcasts=is_pointwise(schema.name))


def attempt_op(drawing: OpDrawing, catalog: RuleSet, seed: int = 0) -> Trial | None:
    """A call before and after its rule; None where PyTorch refuses the call, or the rule does.

    Of an op with several results all are returned, or the first alone where the rule takes it only so.

    Args:
        drawing: the call.
        catalog: the rules that compile it; the rule goes before them.
        seed: for the inputs.

    Raises:
        InvalidRewriteError: the rule fails, or made an invalid program.
    """
    from patcomp.ir.evaluate.eager import dtype_of, run_op, type_of

    schema, inputs = schema_of(drawing.op), dict[str, Any]()
    arguments = _mapped(drawing.example, schema, lambda text: _input(text, drawing, inputs, seed), dtype_of)
    try:
        results = run_op(drawing.op, arguments)
        types = [type_of(result) for result in results]
    except EvaluationError:
        return None
    expected = {f"y{index}": value for index, value in enumerate(results)}
    for returned in dict.fromkeys([len(results), 1]):
        source = _program(drawing, schema, types, returned)
        named = {name: expected[name] for name in list(expected)[:returned]}
        trial = _rewritten(drawing, source, catalog, inputs, named)
        if trial is not None:
            return trial
    return None


def source_of_op(drawing: OpDrawing) -> IRModule | None:
    """A call as a program that returns its first result; None where PyTorch refuses it."""
    from patcomp.ir.evaluate.eager import dtype_of, run_op, type_of

    schema = schema_of(drawing.op)
    arguments = _mapped(drawing.example, schema, lambda text: _input(text, drawing, {}, 0), dtype_of)
    try:
        types = [type_of(result) for result in run_op(drawing.op, arguments)]
    except EvaluationError:
        return None
    return _program(drawing, schema, types, 1)


def _rewritten(
    drawing: OpDrawing, source: IRModule, catalog: RuleSet, inputs: Mapping[str, Any], expected: Mapping[str, Any]
) -> Trial | None:
    source_ir, texts_after = source.text(), dict[str, str]()
    rewritten = source.clone()
    rules = catalog.preceded_by([drawing.rule], override=True)
    try:
        compilation = run_pipeline(
            rewritten, rules, after_stage=lambda stage, module: texts_after.update({stage: module.text()})
        )
    except UnsupportedError:
        return None
    except Exception as error:  # whatever a rule's function raises
        raise InvalidRewriteError(drawing, failure_text(error), source_ir) from error
    if not any(drawing.rule.name in report.statistics.fired for report in compilation.reports):
        return None
    rewritten_ir = texts_after[drawing.rule.stage]
    tolerance = tolerance_of(source.graph("main").regions[0].block)
    return Trial(drawing, source, source_ir, rewritten, rewritten_ir, inputs, expected, tolerance)


def schema_of(op: str) -> Schema:
    """The schema of an op of PyTorch's or of one that a library registered.

    Raises:
        RuleError: there is none.
    """
    from patcomp.ir.evaluate.eager import overload_of

    op = op.replace("::", ".")
    known = aten.schema_of(op)
    if known is not None:
        return known
    try:
        return aten.define(str(overload_of(op)._schema))
    except (AttributeError, ValueError) as error:
        raise RuleError(f"PyTorch has no operator {op}; import what registers it") from error


def _input(text: str, drawing: OpDrawing, inputs: dict[str, Any], seed: int) -> Any:
    """A tensor of a type, noted as the next input."""
    from patcomp.ir.evaluate.eager import random_tensor, with_special_values

    index, limits = len(inputs), limits_of(text)
    value = random_tensor(parse_type(text), limits, seed + index)
    inputs[f"x{index}"] = with_special_values(value, () if limits else drawing.special, seed + index)
    return inputs[f"x{index}"]


def _mapped(
    example: Mapping[str, Any], schema: Schema, tensor: Callable[[str], Any], element: Callable[[str], Any]
) -> dict[str, Any]:
    """The arguments of a call, with tensors and element types in the place of texts."""

    def mapped(value: Any, argument: Argument) -> Any:
        if isinstance(value, str) and argument.type.startswith("ScalarType"):
            return element(value)
        if not holds_tensors(argument):
            return value
        if isinstance(value, list | tuple):
            return [mapped(item, argument) for item in value]
        return tensor(value) if isinstance(value, str) else value

    return {name: mapped(value, schema[name]) for name, value in example.items()}


def _program(drawing: OpDrawing, schema: Schema, types: Sequence[TensorType], returned: int) -> IRModule:
    """A call as a program that returns its first results."""
    module, block = IRModule(), Block()

    def argument(text: str) -> Value:
        made = block.insert_arg(parse_type(text), len(block.args))
        set_name(made, f"x{made.index}")
        return Value(made)

    arguments = _mapped(drawing.example, schema, argument, element_type)
    with Builder(block, blobs=module.blobs):
        coreai.output(*aten.build(schema.name, types, **arguments)[:returned])
    names = [argument.name_hint or "" for argument in block.args]
    outputs = [f"y{index}" for index in range(returned)]
    module.op.body.block.add_op(create_graph("main", block, argument_names=names, result_names=outputs))
    return module


def check_decomposition(drawing: OpDrawing) -> int:
    """Compares a decomposition with the op that it takes apart, both in eager PyTorch; 1, or 0 where one refuses.

    Raises:
        WrongRuleError: a result is another.
    """
    from patcomp.ir.evaluate import compare
    from patcomp.ir.evaluate.eager import dtype_of, results_of, run_op, type_of

    inputs: dict[str, Any] = {}
    arguments = _mapped(drawing.example, schema_of(drawing.op), lambda text: _input(text, drawing, inputs, 0), dtype_of)
    try:
        expected = run_op(drawing.op, arguments)
    except EvaluationError:
        return 0
    function: Callable[..., Any] = drawing.rule.function
    try:
        given = results_of(function(**arguments))
    except Rejected:
        return 0
    except Exception as error:  # whatever a rule's function raises
        raise InvalidRewriteError(drawing, failure_text(error), str(drawing)) from error
    elements = {element_name(type_of(value).element_type) for value in [*inputs.values(), *expected]}
    tolerance = max(TOLERANCES.get(element, 2e-5) for element in elements)
    for index, (wanted, made) in enumerate(zip(expected, given, strict=False)):
        same = wanted.shape == made.shape and wanted.dtype == made.dtype
        distance = compare("", "", wanted, made) if same else None
        if distance is None or min(distance.max_abs, distance.max_rel) > tolerance:
            found = WrongRuleError(drawing, "computes something else than the op", str(drawing))
            found.tensors = {f"input {name}": value for name, value in inputs.items()}
            found.tensors |= {f"expected y{index}": wanted, f"actual y{index}": made}
            raise found
    return 1
