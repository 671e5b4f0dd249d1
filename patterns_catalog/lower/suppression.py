"""Non-maximum suppression of torchvision: of boxes that overlap, the one with the best score stays."""

from __future__ import annotations

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import example, formula
from patcomp.patterns.conditions import is_floating
from patterns_catalog.lower.ordering import order_of
from patterns_catalog.sizes import END, positions, size_of


@formula("lower", "torchvision.nms", where=lambda dets: [
    is_floating(dets).says("boxes of integers have no overlap in torchvision; cast them to float"),
], examples=[example("9x4xf32[0,9]", "9xf32", 0.1)])  # fmt: skip
def nms(c: Coreai, dets: Value, scores: Value, iou_threshold: float, result: ValueType) -> Value:
    """A loop with a step for each box that stays: the best remaining box removes the boxes that overlap it too much."""
    count = size_of(c, dets, 0)
    order = c.cast(order_of(c, scores, 0, True), "si32")
    boxes = c.gather_nd(dets, c.expand_dims(order, [1]))
    low, high = (c.slice_(boxes, [0, start], [END, start + 2], [1, 1]) for start in (0, 2))
    areas = c.reduce_product(c.broadcasting_sub(high, low), [1])  # [boxes, 1]
    places = c.expand_dims(positions(c, count), [1])
    limit = c.constant(_rounded_down(iou_threshold), boxes.element_type)

    def step(left: Value, kept: Value) -> list[Value]:
        best = c.cast(c.argmax(c.cast(left, "si32"), 0), "si32")  # [1, 1]; the first of the boxes that are left
        own_low, own_high, own_area = (c.gather_nd(value, best) for value in (low, high, areas))
        sides = c.broadcasting_sub(c.broadcasting_minimum(high, own_high), c.broadcasting_maximum(low, own_low))
        shared = c.reduce_product(c.broadcasting_maximum(sides, 0), [1])
        union = c.broadcasting_sub(c.broadcasting_add(areas, own_area), shared)
        itself = c.broadcasting_equal(places, best)
        gone = c.broadcasting_or(c.broadcasting_greater(c.broadcasting_divide(shared, union), limit), itself)
        return [c.broadcasting_and(left, c.not_(gone)), c.broadcasting_or(kept, itself)]

    nothing = c.broadcasting_greater(0, places)
    _, kept = c.while_(
        [c.not_(nothing), nothing],
        lambda left, _kept: c.reshape(c.any_(left, [0, 1]), []),
        step,
    )
    chosen = c.non_zero(c.shrink_dims(kept, [1]))
    return c.cast(c.gather_nd(order, chosen), result.element_type)


def _rounded_down(number: float) -> float:
    """The largest float32 that is not larger: PyTorch compares float32 with a threshold of 64 bits."""
    rounded = np.float32(number)
    return float(np.nextafter(rounded, np.float32(-np.inf)) if rounded > number else rounded)
