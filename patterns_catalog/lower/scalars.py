"""0-d tensors where an op takes a dimension: PyTorch takes them as tensors of one element."""

from __future__ import annotations

from collections.abc import Sequence

from patcomp.authoring import Coreai
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import Capture, example, formula
from patcomp.patterns.conditions import is_floating
from patcomp.patterns.expressions import Expression
from patterns_catalog.lower.casts import BY_RESULT, convert
from patterns_catalog.lower.indexing import NO_GRADIENT, as_index
from patterns_catalog.sizes import sizes_of

_ONE = "a 0-d tensor has one value"


def _is_0d(self: Capture) -> list[Expression]:
    return [self.rank == 0]


@formula(
    "lower", "aten.max.dim", "aten.min.dim", "aten.cummax", "aten.cummin", "aten.sort", "aten.sort.stable", "aten.topk",
    name="value and position of a 0-d tensor", where=_is_0d,
    ignored=dict.fromkeys(("dim", "keepdim", "stable", "descending", "k", "largest", "sorted"), _ONE),
    examples=[example("f32", 0), example("f32", 0, op="aten.cummax"), example("f32", op="aten.sort"),
              example("f32", 1, op="aten.topk")],
)  # fmt: skip
def value_and_position(c: Coreai, self: Value, results: Sequence[ValueType]) -> list[Value]:
    "the value, at position 0"
    return [self, c.constant(0, results[1].element_type)]


@formula(
    "lower", "aten.cumsum", "aten.cumprod", name="scan of a 0-d tensor", where=_is_0d,
    ignored=BY_RESULT | {"dim": _ONE}, examples=[example("f32", 0), example("si32", 0, op="aten.cumprod")],
)  # fmt: skip
def scan(c: Coreai, self: Value, result: ValueType) -> Value:
    "the value, in the element type of the result"
    return convert(c, self, result.element_type)


@formula("lower", "aten._softmax", name="softmax of a 0-d tensor", where=lambda self: [
    self.rank == 0, is_floating(self).says("softmax of integers is not supported; cast the input to float"),
], ignored={"half_to_float": "the result type has it", "dim": _ONE}, examples=[example("f32", 0, False)])  # fmt: skip
def softmax(c: Coreai, self: Value, result: ValueType) -> Value:
    "of a vector of one element"
    return c.reshape(c.softmax(c.reshape(c.cast(self, result.element_type), [1]), 0), [])


@formula(
    "lower", "aten.index_select", name="index_select of a 0-d tensor", where=_is_0d,
    ignored=dict.fromkeys(("dim", "index"), _ONE), examples=[example("f32", 0, "1xsi64[0,0]")],
)  # fmt: skip
def index_select(c: Coreai, self: Value) -> Value:
    "the value"
    return self


@formula(
    "lower", "aten.gather", name="gather by a 0-d index", where=lambda self, index: [self.rank > 0, index.rank == 0],
    ignored=NO_GRADIENT | {"dim": "the tensor has one dimension"}, examples=[example("5xf32", 0, "si64[0,4]")],
)  # fmt: skip
def gather_by_0d_index(c: Coreai, self: Value, index: Value) -> Value:
    "an element of a vector"
    return c.gather_nd(self, c.reshape(as_index(c, index), [1]))


@formula(
    "lower", "aten.gather", name="gather of a 0-d tensor", where=lambda self, index: [self.rank == 0, index.rank == 0],
    ignored=NO_GRADIENT | {"dim": _ONE}, examples=[example("f32", 0, "si64[0,0]")],
)  # fmt: skip
def gather(c: Coreai, self: Value) -> Value:
    "the value"
    return self


@formula(
    "lower", "aten.gather", name="repeated gather of a 0-d tensor", ignored=NO_GRADIENT | {"dim": _ONE},
    where=lambda self, index: [self.rank == 0, index.rank > 0], examples=[example("f32", 0, "3xsi64[0,0]")],
)  # fmt: skip
def repeated_gather(c: Coreai, self: Value, index: Value) -> Value:
    "the value as often as the index says it"
    return c.broadcast_to(self, sizes_of(c, as_index(c, index)))
