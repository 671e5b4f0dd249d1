"""Which calls of an op a rule leaves open, or PyTorch: they are not compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from patcomp.ir.aten import Schema
from patcomp.ir.module import IRModule
from patcomp.ir.types import TensorType, shape_of
from patcomp.patterns import Stage
from patcomp.patterns.aspects import RANKS, SPECIAL, FurtherResults, is_left_open
from patcomp.patterns.example_types import ExampleType
from patcomp_lab.proof.drawing import Drawing
from patcomp_lab.proof.op_calls import OpDrawing, axis_arguments, holds_tensors, operator_schema, tensor_types_in
from patcomp_lab.proof.pairs import RulePair
from patcomp_lab.proof.ties import are_places_of_equal_numbers, specifies_places

RANGES = "ranges of values"
"""The aspect of inputs with other ranges of values than those of the example. A decomposition has those that it
declares, because approximations have a domain."""


def is_open_call(drawing: OpDrawing, examples: Sequence[OpDrawing]) -> bool:
    """Whether a call differs from its rule's examples in an open aspect, or in sizes or ranks that eager PyTorch may
    not check (its kernels then read and write beyond the operands)."""
    from patcomp.evaluate.eager import is_pointwise

    schema = operator_schema(drawing.op)
    pointwise = is_pointwise(drawing.op)
    changes = [
        set(_changed(example.example, drawing.example, schema, pointwise)) | ({"sizes"} if drawing.runs else set())
        for example in examples
        if example.op == drawing.op
    ]
    found = min(changes, key=len, default=set())
    tensors = sum(
        len(tensor_types_in(drawing.example.get(each.name))) for each in schema.arguments if holds_tensors(each)
    )
    fixed = any(isinstance(value, Tensor) for value in drawing.example.values())
    unchecked = not pointwise and (
        (RANKS in found and tensors > 1) or (fixed and not found.isdisjoint({RANKS, "sizes"}))
    )
    beyond = RANGES in found and drawing.rule.stage is Stage.DECOMPOSE
    return unchecked or beyond or any(is_left_open(drawing.rule.unspecified, aspect) for aspect in found)


def _changed(before: Mapping[str, Any], after: Mapping[str, Any], schema: Schema, pointwise: bool) -> Iterator[str]:
    """The aspects in which two calls of an op differ."""
    axes = axis_arguments(schema)
    for name in {*before, *after}:
        argument = schema[name]
        one, other = (given.get(name, argument.default) for given in (before, after))
        if str(one) == str(other):
            continue
        if not holds_tensors(argument):
            yield "axes" if name in axes else "options"
            continue
        types = [[ExampleType.parsed(text) for text in tensor_types_in(value)] for value in (one, other)]
        if len(types[0]) != len(types[1]) or None in (*types[0], *types[1]):
            yield "options"
            continue
        for a, b in zip(*types, strict=True):
            assert a is not None
            assert b is not None
            if a.limits != b.limits:
                yield RANGES
            if a.element != b.element:
                yield "element types"
            if len(a.sizes) != len(b.sizes):
                yield RANKS
            elif a.sizes != b.sizes:
                yield "broadcasts" if pointwise else "sizes"


def returns_unwritten(drawing: Drawing) -> bool:
    """Whether a recorded program returns numbers that PyTorch leaves unwritten."""
    return drawing.returns_all and (drawing.applied or drawing.rule).ops[0].startswith("aten.empty")


def depends_on_data(module: IRModule, results: Sequence[Tensor]) -> bool:
    """Whether results have other shapes than the types of the program that returns them, because data decide."""
    returned = module.graph("main").regions[0].block.last_op
    assert returned is not None
    types = [value.type for value in returned.operands if isinstance(value.type, TensorType)]
    return any(
        known is not None and known != size
        for type_, value in zip(types, results, strict=False)
        for known, size in zip(shape_of(type_), value.shape, strict=False)
    )


def is_wide(results: Sequence[Tensor]) -> bool:
    """Whether results have integers that 32 bits do not have. Narrowing warns of them."""
    wide = [value for value in results if value.dtype == torch.int64 and value.numel()]
    return any(int(value.max()) >= 2**31 or int(value.min()) < -(2**31) for value in wide)


def is_result_open(pair: RulePair, index: int, expected: Tensor, actual: Tensor, inputs: Mapping[str, Any]) -> bool:
    """Whether a different result is unspecified. A rule may leave further results open on special values. PyTorch
    leaves open the integer cast of an infinite float, and the order of equal numbers (`proof.ties`)."""
    rule = pair.rule
    if rule.stage is Stage.OPTIMIZE:
        return False
    tensors = [value for value in inputs.values() if isinstance(value, Tensor)]
    infinite = any(value.is_floating_point() and not bool(value.isfinite().all()) for value in tensors)
    further = [aspect for aspect, reason in rule.unspecified.items() if isinstance(reason, FurtherResults)]
    if index > 0 and any(infinite or aspect not in SPECIAL for aspect in further):
        return True
    if expected.is_floating_point() or expected.dtype == torch.bool or expected.is_complex():
        return False
    if (are_right := are_places_of_equal_numbers(pair, expected, actual, inputs)) is not None:
        return are_right
    if specifies_places(pair):
        return False
    return infinite or (index > 0 and any(value.unique().numel() < value.numel() for value in tensors))
