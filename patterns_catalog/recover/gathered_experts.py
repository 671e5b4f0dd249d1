"""Experts that differ only in their weights: each token is computed with the experts that it is routed to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from patcomp.authoring import aten, coreai
from patcomp.ir.aten import op_class
from patcomp.ir.builder import Builder
from patcomp.ir.constants import constant_values
from patcomp.ir.traits import Broadcasting
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import OpResult
from patcomp.patterns import OpView
from patterns_catalog.recover.experts import grouped_product
from patterns_catalog.sizes import as_index
from patterns_catalog.views import arguments_of


@dataclass(frozen=True)
class Routing:
    """The experts of each token and their weights, both `[..., k]`."""

    indices: Value
    weights: Value


class GatheredExperts:
    """Experts of the same ops, computed on rows `[tokens * k, features]`: one for each token and chosen expert.

    Each method takes the corresponding values of all experts and returns the value that replaces them.
    """

    def __init__(self, op: OpView, routing: Routing):
        self.op = op
        *lead, self.k = routing.indices.static_shape
        self.tokens = math.prod(lead)
        self.count = self.tokens * self.k
        self.expert_of_row = coreai.reshape(routing.indices, [self.count])
        self.known: dict[tuple[Value, ...], Value] = {}

    def rows(self, values: tuple[Value, ...]) -> Value:
        """The replacement of values with a row for each token."""
        if values not in self.known:
            self.known[values] = self._rows(values)
        return self.known[values]

    def _rows(self, values: tuple[Value, ...]) -> Value:
        first = values[0]
        self.op.expect(self._has_rows(first), "an expert mixes tokens")
        if all(value == first for value in values):
            table = coreai.reshape(first, [self.tokens, 1, first.static_shape[-1]])
            repeated = coreai.broadcast_to(table, [self.tokens, self.k, first.static_shape[-1]])
            return coreai.reshape(repeated, [self.count, first.static_shape[-1]])
        name, arguments = self._alike(values)
        if name == "aten.view":
            return self.rows(arguments["self"])
        if name == "aten.mm":
            return self._product(arguments["self"], arguments["mat2"])
        if name == "aten.matmul":
            self.op.expect(
                all(value.rank == 2 for value in arguments["other"]), "an expert multiplies by several matrices"
            )
            return self._product(arguments["self"], arguments["other"])
        if name == "aten.addmm":
            self.op.expect(arguments["beta"] == arguments["alpha"] == 1, "an expert scales its product")
            product = self._product(arguments["mat1"], arguments["mat2"])
            return coreai.broadcasting_add(product, self._vector(arguments["self"]))
        if name in ("aten.slice.Tensor", "aten.split_with_sizes"):
            self.op.expect(arguments["dim"] % first.rank == first.rank - 1, "an expert splits the tokens")
            return self._built(values, name, {**arguments, "self": self.rows(arguments["self"]), "dim": 1})
        self.op.expect(op_class(name).has_trait(Broadcasting), f"an expert contains {name}")
        given = {key: self._operand(part) if isinstance(part, tuple) else part for key, part in arguments.items()}
        return self._built(values, name, given)

    def _has_rows(self, value: Value) -> bool:
        return value.is_static and value.rank > 1 and math.prod(value.static_shape[:-1]) == self.tokens

    def _alike(self, values: Sequence[Value]) -> tuple[str, dict[str, Any]]:
        """The op that computes each of the values, and its arguments; tensors as a tuple with one for each expert."""
        owners = [value.maker for value in values]
        first = owners[0]
        if first is None or not first.name.startswith("aten."):
            self.op.reject("an expert is not computed from the tokens")
        results = {value.ssa.index for value in values if isinstance(value.ssa, OpResult)}
        same = all(owner is not None and owner.name == first.name for owner in owners)
        self.op.expect(same and len(results) == 1, "the experts consist of different ops")
        each = [owner.arguments_by_name() for owner in owners]  # type: ignore[union-attr]
        arguments: dict[str, Any] = {}
        for name, argument in each[0].items():
            others = [given[name] for given in each]
            tensors = isinstance(argument, Value)
            self.op.expect(
                all(isinstance(other, Value) if tensors else other == argument for other in others),
                "the experts have different arguments",
            )
            alike = not tensors or all(other.type == argument.type for other in others)
            self.op.expect(alike, "the experts have different shapes")
            arguments[name] = tuple(others) if tensors else argument
        return first.name, arguments

    def _built(self, values: Sequence[Value], name: str, arguments: dict[str, Any]) -> Value:
        result = values[0].ssa
        assert isinstance(result, OpResult)
        shapes = [Value(other) for other in result.op.results]
        types = [tensor((self.count, other.static_shape[-1]), other.element_type) for other in shapes]
        made: Value = aten.build(name, types, **arguments)[result.index]
        return made

    def _operand(self, values: tuple[Value, ...]) -> Value:
        """An operand of an elementwise op: rows, a vector for each expert, or one value for all experts."""
        first = values[0]
        if self._has_rows(first):
            return self.rows(values)
        if first.rank == 0 and (
            all(value == first for value in values)
            or (first.constant is not None and all(_equal(value.constant, first.constant) for value in values))
        ):
            return first
        return self._vector(values)

    def _vector(self, values: tuple[Value, ...]) -> Value:
        """The vector of each row, from a vector for each expert."""
        self.op.expect(values[0].rank == 1, "an expert adds or multiplies by a weight that is not a vector")
        if all(value == values[0] for value in values):
            return values[0]
        at = coreai.expand_dims(as_index(coreai, self.expert_of_row), [1])
        return coreai.gather_nd(self._stack(values), at)

    def _product(self, left: tuple[Value, ...], right: tuple[Value, ...]) -> Value:
        """Rows times the matrices of their experts."""
        rows = self.rows(left)
        permuted = [arguments_of(value, "permute") for value in right]
        stored = "plain"
        if all(arguments is not None and list(arguments["dims"]) == [1, 0] for arguments in permuted):
            right, stored = tuple(arguments["self"] for arguments in permuted if arguments is not None), "transposed"
        return grouped_product(rows, self._stack(right), self.expert_of_row, stored=stored)

    def _stack(self, values: tuple[Value, ...]) -> Value:
        """The weights of all experts as one tensor: the tensor that they are parts of, or a new constant."""
        parts = [arguments_of(value, "select.int") for value in values]
        if parts[0] is not None and parts[0]["self"].shape[:1] == (len(values),):
            whole: Value = parts[0]["self"]
            if all(
                part is not None and part["self"] == whole and part["dim"] == 0 and part["index"] == expert
                for expert, part in enumerate(parts)
            ):
                return whole
        builder = Builder.current()
        arrays = [constant_values(value.ssa, builder.blobs) for value in values]
        self.op.expect(all(array is not None for array in arrays), "the weights of the experts are not constants")
        return coreai.constant(np.stack([array for array in arrays if array is not None]), values[0].element_type)


def _equal(left: np.ndarray | None, right: np.ndarray) -> bool:
    return left is not None and left.dtype == right.dtype and left.tobytes() == right.tobytes()
