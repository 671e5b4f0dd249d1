"""GELU of numbers that are computed from constants alone: the toolchain dies when it folds one, but not its formula."""

from __future__ import annotations

import math

from patcomp.ir import coreai
from patcomp.ir.builder import Builder
from patcomp.ir.module import IRModule, graph_name
from patcomp.ir.value import Value, replace_op
from patcomp.ir.xdsl import Block, Pure, SSAValue, ops_inside
from patcomp.patterns.statistics import Statistics


def expand_constant_gelu(module: IRModule, statistics: Statistics) -> None:
    """Replace each `coreai.gelu` whose operand is computed from constants alone."""
    found = [op for op in ops_inside(module.op) if op.name == "coreai.gelu"]
    known = _Known(module) if found else None
    for op in found:
        if known is None or not known(op.operands[0]):
            continue
        assert op.parent is not None
        with Builder(op.parent, before=op, blobs=module.blobs, location=op.location):
            x, approximate = Value(op.operands[0]), getattr(op.properties.get("approximate"), "data", "none")
            made = coreai.cast(_formula(coreai.cast(x, "f32"), approximate), x.element_type)
        replace_op(op, [made.ssa])
        statistics.record("formula of a constant gelu", True, 0.0)


def _formula(x: Value, approximate: str) -> Value:
    if approximate == "sigmoid":
        return coreai.broadcasting_mul(x, coreai.sigmoid(coreai.broadcasting_mul(x, 1.702)))
    if approximate == "tanh":
        cube = coreai.broadcasting_mul(coreai.broadcasting_mul(x, x), coreai.broadcasting_mul(x, 0.044715))
        curve = coreai.tanh(coreai.broadcasting_mul(coreai.broadcasting_add(x, cube), math.sqrt(2 / math.pi)))
    else:
        curve = coreai.erf(coreai.broadcasting_mul(x, math.sqrt(0.5)))
    return coreai.broadcasting_mul(coreai.broadcasting_mul(x, 0.5), coreai.broadcasting_add(curve, 1.0))


class _Known:
    """Whether a value is computed from constants alone, also through calls of private graphs."""

    def __init__(self, module: IRModule):
        self._answers: dict[SSAValue, bool] = {}
        self._calls = module.invokes()

    def __call__(self, value: SSAValue) -> bool:
        waiting = [value]
        while waiting:
            needed = [item for item in self._of(waiting[-1]) or () if item not in self._answers]
            if needed:
                waiting += needed
                continue
            sources = self._of(last := waiting.pop())
            self._answers[last] = sources is not None and all(self._answers[item] for item in sources)
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
