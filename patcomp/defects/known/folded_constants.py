"""Ops on floats that are computed from constants alone: formulas stand where the toolchain folds wrongly.

Measured of float32 and float16: it takes numbers for equal that differ in the last bit, and
infinity for equal to every positive number; it loses the NaN of a second operand of a maximum or a minimum, of `relu`,
`reduce_max` and `reduce_min`; and it dies of `gelu`. It folds `greater`, and `equal` of a number and itself, as
PyTorch computes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from patcomp.defects.defect import Defect, Probe
from patcomp.ir import coreai
from patcomp.ir.builder import Builder
from patcomp.ir.module import IRModule, graph_name
from patcomp.ir.types import TensorType, is_float
from patcomp.ir.value import Value, replace_op
from patcomp.ir.xdsl import Block, Operation, Pure, SSAValue, ops_inside
from patcomp.patterns.statistics import Statistics


def expand_constant_expressions(module: IRModule, statistics: Statistics) -> None:
    """Replace each op of `_FORMULAS` whose operands are floating-point numbers computed from constants alone."""
    found = [op for op in ops_inside(module.op) if op.name in _FORMULAS and _is_floating(op.operands[0])]
    known = _Known(module) if found else None
    for op in found:
        if known is None or not all(map(known, op.operands)):
            continue
        assert op.parent is not None
        with Builder(op.parent, before=op, blobs=module.blobs, location=op.location):
            made = _FORMULAS[op.name](op, *map(Value, op.operands))
        replace_op(op, [made.ssa])
        statistics.record("formula of a constant expression", True, 0.0)


def _is_floating(value: SSAValue) -> bool:
    return isinstance(value.type, TensorType) and is_float(value.type.element_type)


def _equal(op: Operation, x: Value, y: Value) -> Value:
    differ = coreai.broadcasting_or(coreai.broadcasting_greater(x, y), coreai.broadcasting_greater(y, x))
    numbers = coreai.broadcasting_and(coreai.broadcasting_equal(x, x), coreai.broadcasting_equal(y, y))
    return coreai.broadcasting_and(numbers, coreai.not_(differ))


def _not_equal(op: Operation, x: Value, y: Value) -> Value:
    return coreai.not_(_equal(op, x, y))


def _maximum(op: Operation, x: Value, y: Value) -> Value:
    return _or_nan(y, coreai.broadcasting_maximum(x, y))


def _minimum(op: Operation, x: Value, y: Value) -> Value:
    return _or_nan(y, coreai.broadcasting_minimum(x, y))


def _relu(op: Operation, x: Value) -> Value:
    return _or_nan(x, coreai.relu(x))


def _reduce_max(op: Operation, x: Value, axes: Value) -> Value:
    return _or_nan(_sum_of_nan(x, axes), coreai.reduce_max(x, axes))


def _reduce_min(op: Operation, x: Value, axes: Value) -> Value:
    return _or_nan(_sum_of_nan(x, axes), coreai.reduce_min(x, axes))


def _sum_of_nan(x: Value, axes: Value) -> Value:
    """NaN where one of the reduced elements is, else 0."""
    zero = coreai.constant(0.0, x.element_type)
    return coreai.reduce_sum(coreai.broadcasting_where(coreai.broadcasting_equal(x, x), zero, x), axes)


def _or_nan(x: Value, result: Value) -> Value:
    """The result, but NaN where `x` is."""
    return coreai.broadcasting_where(coreai.broadcasting_equal(x, x), result, x)


def _gelu(op: Operation, given: Value) -> Value:
    x, approximate = coreai.cast(given, "f32"), getattr(op.properties.get("approximate"), "data", "none")
    if approximate == "sigmoid":
        result = coreai.broadcasting_mul(x, coreai.sigmoid(coreai.broadcasting_mul(x, 1.702)))
        return coreai.cast(result, given.element_type)
    if approximate == "tanh":
        cube = coreai.broadcasting_mul(coreai.broadcasting_mul(x, x), coreai.broadcasting_mul(x, 0.044715))
        curve = coreai.tanh(coreai.broadcasting_mul(coreai.broadcasting_add(x, cube), math.sqrt(2 / math.pi)))
    else:
        curve = coreai.erf(coreai.broadcasting_mul(x, math.sqrt(0.5)))
    result = coreai.broadcasting_mul(coreai.broadcasting_mul(x, 0.5), coreai.broadcasting_add(curve, 1.0))
    return coreai.cast(result, given.element_type)


_FORMULAS: Mapping[str, Callable[..., Value]] = {
    "coreai.decomposable.broadcasting_equal": _equal,
    "coreai.equal": _equal,
    "coreai.decomposable.broadcasting_not_equal": _not_equal,
    "coreai.not_equal": _not_equal,
    "coreai.decomposable.broadcasting_maximum": _maximum,
    "coreai.maximum": _maximum,
    "coreai.decomposable.broadcasting_minimum": _minimum,
    "coreai.minimum": _minimum,
    "coreai.reduce_max": _reduce_max,
    "coreai.reduce_min": _reduce_min,
    "coreai.relu": _relu,
    "coreai.gelu": _gelu,
}


class _Known:
    """Whether a value is computed from constants alone, also through calls of private graphs."""

    def __init__(self, module: IRModule):
        self._answers: dict[SSAValue, bool] = {}
        self._calls = module.invokes()

    def __call__(self, value: SSAValue) -> bool:
        waiting = [value]
        while waiting:
            sources = self._of(waiting[-1])
            known = sources is not None and all(self._answers.get(item, True) for item in sources)
            if known and (needed := [item for item in sources or () if item not in self._answers]):
                waiting.append(needed[0])
            else:
                self._answers[waiting.pop()] = known
        return self._answers[value]

    def _of(self, value: SSAValue) -> list[SSAValue] | None:
        """The values that one is computed from; None if only a run determines it."""
        owner = value.owner
        if isinstance(owner, Block):
            graph = owner.parent_op()
            if graph is None or graph.name != "coreai.graph" or "priv" not in graph.properties:
                return None
            calls = self._calls.get(graph_name(graph), ())
            return [call.operands[value.index] for call in calls]  # type: ignore[attr-defined]
        pure = owner.name == "coreai.invoke" or (owner.has_trait(Pure) and not owner.regions)
        return list(owner.operands) if pure else None


DEFECT = Defect(
    name="folded_constants",
    says="The toolchain folds comparisons, maxima and `gelu` of floating-point constants to wrong numbers, or dies.",
    mend=expand_constant_expressions,
    ops=tuple(_FORMULAS),
    after=("scatters_in_branches",),  # free
    probes=(
        Probe(
            program="""
coreai.graph @main(%x: tensor<2xi1> {coreai.name = "x"}) -> (tensor<2xi1> {coreai.name = "y"}) {
  %a = coreai.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %b = coreai.constant dense<[1.0000001, 2.0]> : tensor<2xf32>
  %same = coreai.equal %a, %b : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>
  %y = coreai.and %x, %same : (tensor<2xi1>, tensor<2xi1>) -> tensor<2xi1>
  coreai.output %y : tensor<2xi1>
}
""",
            inputs={"x": [True, True]},
            gives={"y": [False, True]},
            symptom="is wrong",
        ),
        Probe(
            program="""
coreai.graph @main(%x: tensor<2xf32> {coreai.name = "x"}) -> (tensor<2xf32> {coreai.name = "y"}) {
  %a = coreai.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %b = coreai.constant dense<[0x7FC00000, 3.0]> : tensor<2xf32>
  %made = coreai.maximum %a, %b : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %y = coreai.add %x, %made : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  coreai.output %y : tensor<2xf32>
}
""",
            inputs={"x": [0, 0]},
            gives={"y": [math.nan, 3]},
            symptom="is wrong",
        ),
        Probe(
            program="""
coreai.graph @main(%x: tensor<2xf32> {coreai.name = "x"}) -> (tensor<2xf32> {coreai.name = "y"}) {
  %a = coreai.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %b = coreai.constant dense<[0x7FC00000, 3.0]> : tensor<2xf32>
  %made = coreai.minimum %a, %b : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %y = coreai.add %x, %made : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  coreai.output %y : tensor<2xf32>
}
""",
            inputs={"x": [0, 0]},
            gives={"y": [math.nan, 2]},
            symptom="is wrong",
        ),
        Probe(
            program="""
coreai.graph @main(%x: tensor<2xf32> {coreai.name = "x"}) -> (tensor<2xf32> {coreai.name = "y"}) {
  %a = coreai.constant dense<[0x7FC00000, 2.0]> : tensor<2xf32>
  %made = coreai.relu %a : (tensor<2xf32>) -> tensor<2xf32>
  %y = coreai.add %x, %made : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  coreai.output %y : tensor<2xf32>
}
""",
            inputs={"x": [0, 0]},
            gives={"y": [math.nan, 2]},
            symptom="is wrong",
        ),
        Probe(
            program="""
coreai.graph @main(%x: tensor<2xf32> {coreai.name = "x"}) -> (tensor<2xf32> {coreai.name = "y"}) {
  %a = coreai.constant dense<[0.0, 9.0]> : tensor<2xf32>
  %made = coreai.gelu %a : tensor<2xf32> -> tensor<2xf32>
  %y = coreai.add %x, %made : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  coreai.output %y : tensor<2xf32>
}
""",
            inputs={"x": [0, 0]},
            gives={"y": [0, 9]},
            symptom="dies",
        ),
        Probe(
            program="""
coreai.graph @main(%x: tensor<1xf32> {coreai.name = "x"}) -> (tensor<1xf32> {coreai.name = "y"}) {
  %a = coreai.constant dense<[0x7FC00000, 2.0]> : tensor<2xf32>
  %axis = coreai.constant dense<0> : tensor<1xsi32>
  %made = coreai.reduce_max %a, %axis : (tensor<2xf32>, tensor<1xsi32>) -> tensor<1xf32>
  %y = coreai.add %x, %made : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xf32>
  coreai.output %y : tensor<1xf32>
}
""",
            inputs={"x": [0]},
            gives={"y": [math.nan]},
            symptom="is wrong",
        ),
        Probe(
            program="""
coreai.graph @main(%x: tensor<1xf32> {coreai.name = "x"}) -> (tensor<1xf32> {coreai.name = "y"}) {
  %a = coreai.constant dense<[0x7FC00000, 2.0]> : tensor<2xf32>
  %axis = coreai.constant dense<0> : tensor<1xsi32>
  %made = coreai.reduce_min %a, %axis : (tensor<2xf32>, tensor<1xsi32>) -> tensor<1xf32>
  %y = coreai.add %x, %made : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xf32>
  coreai.output %y : tensor<1xf32>
}
""",
            inputs={"x": [0]},
            gives={"y": [math.nan]},
            symptom="is wrong",
        ),
    ),
)
