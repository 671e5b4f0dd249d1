"""Where a model in half precision loses most of its distance from the model in float32."""

from __future__ import annotations

from torch import Tensor
from torch.fx import Node

from patcomp.evaluate.twin import HALF
from patcomp.frontend_torch.verification.values import ValueComparison


def most_lost(values: ValueComparison) -> tuple[Node, float, float] | None:
    """The node whose result is farther from float32 than what it reads, by the largest step.

    Returns:
        The node, and the errors of its operands and of its result, relative to their largest magnitudes; None if the
        exported program does not run in float32, or loses nothing.
    """
    errors: dict[Node, float] = {}

    def visit(node: Node, value: object) -> None:
        twin = values.twins.get(node)
        if twin is not None and twin.of in HALF and isinstance(value, Tensor) and value.shape == twin.value.shape:
            errors[node] = _relative(value, twin.value)

    values.run_export(visit)
    steps = {
        node: (max((errors.get(each, 0.0) for each in node.all_input_nodes), default=0.0), after)
        for node, after in errors.items()
        if node.op == "call_function"
    }
    node = max(steps, key=lambda each: steps[each][1] - steps[each][0], default=None)
    return None if node is None or steps[node][1] <= steps[node][0] else (node, *steps[node])


def _relative(value: Tensor, wide: Tensor) -> float:
    """The largest error of a value, relative to the largest finite magnitude in float32."""
    if not value.is_floating_point() or not value.numel():
        return 0.0
    difference = (value.double() - wide.double()).abs().nan_to_num(0.0, 0.0, 0.0)
    scale = wide.double().abs().nan_to_num(0.0, 0.0, 0.0).max()
    return float(difference.max() / scale) if scale else float(difference.max() > 0)
