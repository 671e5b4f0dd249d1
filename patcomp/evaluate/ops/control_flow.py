"""Constants, branches, loops, calls and regions; and the ops that only a device or the compiler can run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from patcomp.evaluate.registry import EvaluatedOp, implements, integers
from patcomp.ir.module import callee
from patcomp.ir.region import RegionOp


@implements("coreai.constant")
def constant(op: EvaluatedOp) -> Tensor:
    return op.machine.constant(op.operation.properties["value"])


@implements("coreai.if")
def if_(op: EvaluatedOp, condition: Tensor) -> list[Any]:
    region = 0 if bool(condition) else 1
    if not op.operation.regions[region].blocks or op.operation.regions[region].block.last_op is None:
        return []  # an else that is absent
    return op.region(region, [])


@implements("coreai.while")
def while_(op: EvaluatedOp, *inits: Any) -> list[Any]:
    values = list(inits)
    while True:
        condition, *values = op.region(0, values)
        if not bool(condition):
            return values
        values = op.region(1, values)


@implements("coreai.invoke")
def invoke(op: EvaluatedOp, *operands: Any) -> list[Any]:
    return _call(op, callee(op.operation), operands)


def _call(op: EvaluatedOp, name: str, operands: Sequence[Any]) -> list[Any]:
    try:
        graph = op.machine.module.graph(name)
    except KeyError as error:
        raise op.error(str(error.args[0])) from None
    return op.machine.run_graph(graph, operands)


@implements("coreai.isolated_group", "patcomp.region")
def isolated(op: EvaluatedOp, *operands: Any) -> list[Any]:
    if isinstance(op.operation, RegionOp) and op.operation.graph is not None:
        return _call(op, op.operation.graph.string_value(), operands)
    return op.machine.run_block(op.operation.regions[0].block, operands, {})


@implements("coreaix.copy_with_constraints", "coreaix.copy_discarding_constraints")
def copy(op: EvaluatedOp, x: Tensor) -> Tensor:
    return x  # the constraints say how memory is laid out, which torch hides


@implements("coreai.metal4_kernel")
def metal_kernel(op: EvaluatedOp, *operands: Tensor) -> list[Tensor]:
    name = op.attribute("kernel_name")
    function = op.machine.module.kernels.get(name)
    if function is None:
        raise op.error(f"Metal kernel {name!r} is known to the program alone that a converter made with it")
    values = iter(operands)
    arguments, _, _, shapes = ([next(values) for _ in group] for group in op.operation.operands_by_slot())  # type: ignore[attr-defined]
    results = [op.result(result, index) for index, result in enumerate(function(*arguments))]
    for result, shape in zip(results, shapes, strict=True):
        if list(result.shape) != integers(shape):
            raise op.error(
                f"Metal kernel {name!r} was called with the result shape {integers(shape)}, "
                f"and torch_defn gives {list(result.shape)}"
            )
    return results


@implements(
    "coreai.delegate",
    "coreai.image_to_tensor",
    "coreai.tensor_to_image",
    "coreai.target_spec",
)
def unavailable(op: EvaluatedOp, *operands: Any) -> Any:
    raise op.error("needs an Apple device or a compiler back end, and cannot be evaluated here")
