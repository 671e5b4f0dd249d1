"""How the evaluator runs what is not Core AI yet: ops of the stages before `lower`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor
from torch.fx import Node
from torch.fx.node import map_arg

from patcomp.errors import PatcompError
from patcomp.evaluate.eager import eager_implementation, results_of
from patcomp.evaluate.registry import EvaluatedOp, Implementation
from patcomp.frontend_torch.custom.lowerings import node_of
from patcomp.ir.custom import CustomOp
from patcomp.ir.module import IRModule
from patcomp.ir.xdsl import Operation


def implementation(module: IRModule, op: Operation) -> Implementation | None:
    """How the evaluator runs ops of the stages before `lower`: by PyTorch."""
    if op in module.custom:
        return partial(_run_custom, node_of(module.custom[op]))
    return eager_implementation(op)


def _run_custom(node: Node, op: EvaluatedOp, *operands: Tensor) -> list[Tensor]:
    assert isinstance(op.operation, CustomOp)
    given: Mapping[str, Any] = op.operation.named(operands)  # type: ignore[arg-type, assignment]

    def value_of(source: Node) -> Any:
        value = given[source.name]
        return value if isinstance(source.meta.get("val"), Tensor) else value.item()

    try:
        return results_of(node.target(*map_arg(node.args, value_of), **map_arg(node.kwargs, value_of)))  # type: ignore[operator]
    except PatcompError:
        raise
    except Exception as error:  # a user's operator may raise any exception
        raise op.error(str(error)) from error
