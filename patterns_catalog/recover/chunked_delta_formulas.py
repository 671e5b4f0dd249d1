"""Patterns for the gated delta rule in chunks as transformers computes it; `chunked_delta_recovery` uses them.

The sequences `[batch, heads, tokens, ...]` are viewed as chunks of n tokens, `[batch, heads, chunks, n, ...]`. In the
shapes below, b are batches, h heads, t tokens, c chunks, n the tokens of a chunk, k and v the sizes of keys and values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from patcomp.authoring import AtenSource
from patcomp.ir.composite import Composite
from patcomp.patterns import ANY, Attr, Capture, Pattern, any_of, check
from patterns_catalog.recover.chunk_patterns import INFINITY, Parts, is_last, part, shaped, triangle
from patterns_catalog.recover.forward_substitution import forward_substitution
from patterns_catalog.recover.gated_delta import gated_delta_update
from patterns_catalog.triangles import is_identity

_ = forward_substitution  # patterns name it


class Chunks(Parts):
    """Parts that both families have."""

    def of(self, x: Any, size: str = "") -> Any:
        """A sequence as chunks."""
        return self.has(self.a.view(self.has(x, f"bht{size}"), size=ANY), f"bhcn{size}")

    def times(self, x: Any, beta: Any, size: str) -> Any:
        """The products of a sequence and a number for each token, as chunks."""
        factor = self.has(self.a.unsqueeze(self.has(beta, "bht"), dim=ANY), "bht1")
        return self.of(self.has(x, f"bht{size}") * factor, size)

    def passed(self, g: Any, size: str = "") -> Any:
        """The sums of g over the tokens of each chunk."""
        x = self.of(g, size)
        sums = [self.a.cumsum(x, dim=dim, dtype=None) for dim in (3, -2 if size else -1)]
        return self.has(any_of(*sums), f"bhcn{size}")

    def left(self, passed: Any, later: Any, size: str = "") -> Any:
        """exp(passed - passed of an earlier token), and 0 for later tokens."""
        between = self.unsqueezed(passed, f"bhcn1{size}") - self.unsqueezed(passed, f"bhc1n{size}")
        mask = self.unsqueezed(self.has(later, "nn"), "nn1") if size else self.has(later, "nn")
        return self.a.exp(self.a.where(mask, -INFINITY, between))

    def inverse(self, overlap: Any, lower: Any, upper: Any, identity: Any) -> Any:
        """The inverse of I + the part of the overlaps below the diagonal."""
        a = self.a
        below = any_of(a.where(self.has(lower, "nn"), overlap, 0.0), a.where(self.has(upper, "nn"), 0.0, overlap))
        return a.forward_substitution(a.neg(below)) + self.has(identity, "nn")

    def at(self, x: Any, index: Any, letters: str) -> Any:
        """One chunk."""
        return self.has(self.a.op("select.int", x, dim=2, index=index), letters)


IS_LATER = triangle("later", True, 1)
IS_INVERSE = [
    triangle("lower", False, -1),
    triangle("upper", True, 0),
    check("an identity matrix is added", lambda match: is_identity(match["identity"])),
]

# ---- the loop over chunks ---------------------------------------------------------------------------


def _written(a: AtenSource, state: Any, values: Any, reading: Any) -> Any:
    """What the tokens of a chunk write, without what the state before the chunk has."""
    return values - a.matmul(reading, state)


@part
def output(a: AtenSource, state: Capture, queries: Capture, scores: Capture, values: Capture, reading: Capture) -> Any:
    "queries @ state + scores @ (values - reading @ state)"
    result = a.matmul(queries, state) + a.matmul(scores, _written(a, state, values, reading))
    return result, [
        shaped({
            state: "bhkv", queries: "bhnk", scores: "bhnn", values: "bhnv", reading: "bhnk", result: "bhnv",
        }),
    ]  # fmt: skip


@part
def update(a: AtenSource, state: Capture, decay: Capture, keys: Capture, values: Capture, reading: Capture) -> Any:
    "state * decay + keys^T @ (values - reading @ state)"
    result = state * decay + a.matmul(a.permute(keys, dims=[0, 1, 3, 2]), _written(a, state, values, reading))
    return result, [shaped({state: "bhkv", keys: "bhnk", values: "bhnv", reading: "bhnk", result: "bhkv"})]


# ---- of all chunks ----------------------------------------------------------------------------------


@part
def values(a: AtenSource, inverse: Capture, value: Capture, beta: Capture) -> Any:
    "inverse @ (value * beta)"
    x = Chunks(a)
    return a.matmul(x.has(inverse, "bhcnn"), x.times(value, beta, "v")), x.where()


@part
def inverse(
    a: AtenSource, key: Capture, beta: Capture, g: Capture, later: Capture, lower: Capture, upper: Capture,
    identity: Capture,
) -> Any:  # fmt: skip
    "(I + below(key * beta @ key^T * decays))^-1"
    x = Chunks(a)
    overlap = a.matmul(x.times(key, beta, "k"), a.permute(x.of(key, "k"), dims=[0, 1, 2, 4, 3]))
    left = x.left(x.passed(g), later)
    return x.inverse(x.has(overlap * left, "bhcnn"), lower, upper, identity), [*x.where(), IS_LATER, *IS_INVERSE]


@part
def reading(a: AtenSource, inverse: Capture, key: Capture, beta: Capture, g: Capture) -> Any:
    "inverse @ (key * beta * exp(sums of g))"
    x = Chunks(a)
    kept = x.unsqueezed(a.exp(x.passed(g)), "bhcn1")
    return a.matmul(x.has(inverse, "bhcnn"), x.times(key, beta, "k") * kept), x.where()


@part
def queries(a: AtenSource, query: Capture, g: Capture) -> Any:
    "query * exp(sums of g)"
    x = Chunks(a)
    return x.of(query, "k") * x.unsqueezed(a.exp(x.passed(g)), "bhcn1"), x.where()


@part
def scores(a: AtenSource, query: Capture, key: Capture, g: Capture, later: Capture) -> Any:
    "query @ key^T * decays"
    x = Chunks(a)
    products = a.matmul(x.of(query, "k"), a.permute(x.of(key, "k"), dims=[0, 1, 2, 4, 3]))
    return x.has(products * x.left(x.passed(g), later), "bhcnn"), [*x.where(), IS_LATER]


@part
def keys(a: AtenSource, key: Capture, g: Capture, start: Attr) -> Any:
    "key * exp(the last sum of g - sums of g)"
    x = Chunks(a)
    passed = x.passed(g)
    last = x.has(a.op("slice.Tensor", passed, dim=3, start=start, end=ANY, step=1), "bhc1")
    return x.of(key, "k") * x.unsqueezed(a.exp(last - passed), "bhcn1"), [*x.where(), is_last(start, passed, 3)]


@part
def decay(a: AtenSource, g: Capture, index: Attr) -> Any:
    "exp(the last sum of g)"
    x = Chunks(a)
    passed = x.passed(g)
    last = a.exp(x.has(a.op("select.int", passed, dim=3, index=index), "bhc"))
    return x.unsqueezed(x.unsqueezed(last, "bhc1"), "bhc11"), [*x.where(), is_last(index, passed, 3)]


@dataclass(frozen=True)
class Family:
    """How one rule computes what a chunk reads (`output`, `update`)."""

    update: Composite
    inverse: Pattern
    of_all: Mapping[str, Pattern]
    """What is computed for all chunks at once; each selects its own."""
    of_each: Mapping[str, Pattern] = field(default_factory=dict)
    """What is computed for each chunk, of which `index` is the number."""


DELTA = Family(
    gated_delta_update,
    inverse,
    {"values": values, "reading": reading, "queries": queries, "scores": scores, "keys": keys, "decay": decay},
)
