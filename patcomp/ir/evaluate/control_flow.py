"""Constants, branches, loops, calls and regions; and the ops that only a device or the compiler can run."""

from __future__ import annotations

from typing import Any

import torch

from patcomp.ir.evaluate.registry import Call, implements, integers
from patcomp.ir.module import callee


@implements("coreai.constant")
def constant(call: Call) -> torch.Tensor:
    return call.machine.constant(call.op.properties["value"])


@implements("coreai.if")
def if_(call: Call, condition: torch.Tensor) -> list[Any]:
    region = 0 if bool(condition) else 1
    if not call.op.regions[region].blocks or call.op.regions[region].block.last_op is None:
        return []  # an else that is absent
    return call.region(region, [])


@implements("coreai.while")
def while_(call: Call, *inits: Any) -> list[Any]:
    values = list(inits)
    while True:
        condition, *values = call.region(0, values)
        if not bool(condition):
            return values
        values = call.region(1, values)


@implements("coreai.invoke")
def invoke(call: Call, *operands: Any) -> list[Any]:
    try:
        graph = call.machine.module.graph(callee(call.op))
    except KeyError as error:
        raise call.error(str(error.args[0])) from None
    return call.machine.run_graph(graph, operands)


@implements("coreai.isolated_group", "patcomp.region")
def isolated(call: Call, *operands: Any) -> list[Any]:
    return call.machine.run_block(call.op.regions[0].block, operands, {})


@implements("coreaix.copy_with_constraints", "coreaix.copy_discarding_constraints")
def copy(call: Call, x: torch.Tensor) -> torch.Tensor:
    return x  # the constraints say how memory is laid out, which torch hides


@implements("coreai.metal4_kernel")
def metal_kernel(call: Call, *operands: torch.Tensor) -> list[torch.Tensor]:
    name = call.attribute("kernel_name")
    function = call.machine.module.kernels.get(name)
    if function is None:
        raise call.error(f"Metal kernel {name!r} is known to the program alone that a converter made with it")
    values = iter(operands)
    arguments, _, _, shapes = ([next(values) for _ in group] for group in call.op.operands_by_slot())  # type: ignore[attr-defined]
    results = [call.result(result, index) for index, result in enumerate(function(*arguments))]
    for result, shape in zip(results, shapes, strict=True):
        if list(result.shape) != integers(shape):
            raise call.error(
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
def unavailable(call: Call, *operands: Any) -> Any:
    raise call.error("needs an Apple device or a compiler back end, and cannot be evaluated here")
