"""0-d tensors where an op takes a dimension: PyTorch takes them as tensors of one element."""

from __future__ import annotations

from patcomp.patterns import Capture, example, formula
from patcomp.patterns.conditions import is_floating
from patcomp.patterns.expressions import Expression
from patterns_catalog.lower.casts import BY_RESULT, convert
from patterns_catalog.lower.indexing import NO_GRADIENT, NO_VECTOR
from patterns_catalog.sizes import as_index, sizes_of

_ONE = "a 0-d tensor has one value"


def _is_0d(self: Capture) -> list[Expression]:
    return [self.rank == 0]


value_and_position = formula(
    "lower", "aten.max.dim", "aten.min.dim", "aten.cummax", "aten.cummin", "aten.sort", "aten.sort.stable", "aten.topk",
    name="value and position of a 0-d tensor", where=_is_0d, doc="the value, at position 0",
    ignored=dict.fromkeys(("dim", "keepdim", "stable", "descending", "k", "largest", "sorted"), _ONE),
    examples=[example("f32", 0), example("f32", op="aten.sort"), example("f32", 1, op="aten.topk")],
)(lambda c, self, results: [self, c.constant(0, results[1].element_type)])  # fmt: skip
scan_of_0d = formula(
    "lower", "aten.cumsum", "aten.cumprod", name="scan of a 0-d tensor", where=_is_0d, doc="the value",
    ignored=BY_RESULT | {"dim": _ONE}, examples=[example("f32", 0), example("si32", 0, op="aten.cumprod")],
)(lambda c, self, result: convert(c, self, result.element_type))  # fmt: skip
softmax = formula(
    "lower", "aten._softmax", name="softmax of a 0-d tensor", doc="the softmax of a vector of one element",
    where=lambda self: [
        self.rank == 0, is_floating(self).says("softmax of integers is not supported; cast the input to float"),
    ], ignored={"half_to_float": "the result type has it", "dim": _ONE}, examples=[example("f32", 0, False)],
)(lambda c, self, result: c.reshape(c.softmax(c.reshape(c.cast(self, result.element_type), [1]), 0), []))  # fmt: skip
index_select = formula(
    "lower", "aten.index_select", name="index_select of a 0-d tensor", doc="the value", ignored={"dim": _ONE},
    where=lambda self, index: [self.rank == 0, (index.rank < 2).says(NO_VECTOR)],
    examples=[example("f32", 0, "1xsi64[0,0]")],
)(lambda c, self: self)  # fmt: skip
gather = formula(
    "lower", "aten.gather", name="gather of a 0-d tensor", ignored=NO_GRADIENT | {"dim": _ONE}, doc="the value",
    where=lambda self, index: [self.rank == 0, index.rank == 0], examples=[example("f32", 0, "si64[0,0]")],
)(lambda c, self: self)  # fmt: skip
repeated_gather = formula(
    "lower", "aten.gather", name="repeated gather of a 0-d tensor", ignored=NO_GRADIENT | {"dim": _ONE},
    where=lambda self, index: [self.rank == 0, index.rank > 0], examples=[example("f32", 0, "3xsi64[0,0]")],
    doc="the value, as often as the index has elements",
)(lambda c, self, index: c.broadcast_to(self, sizes_of(c, as_index(c, index))))  # fmt: skip
gather_by_0d_index = formula(
    "lower", "aten.gather", name="gather by a 0-d index", ignored=NO_GRADIENT | {"dim": "the tensor has one dimension"},
    where=lambda self, index: [self.rank > 0, index.rank == 0], examples=[example("5xf32", 0, "si64[0,4]")],
    doc="an element of a vector",
)(lambda c, self, index: c.gather_nd(self, c.reshape(as_index(c, index), [1])))  # fmt: skip
